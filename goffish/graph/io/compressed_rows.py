"""Files of compressed sparse rows: the arrays of a `Graph` as they are in memory, mapped and not parsed.

An Arrow IPC file with one row, whose columns are lists: ``offsets``, ``targets`` and, where the graph has them,
``weights``, ``labels``, ``edge_of_arc``, ``vertex_attributes`` and ``edge_attributes``. The metadata key ``goffish``
holds what is not an array.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.graph.graph import Graph
from goffish.graph.io import kernels as k
from goffish.graph.io.columnar import KEY
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.streams import Source
from goffish.graph.labels import vertex_dtype
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.graph.tables import from_arrow, to_arrow, vertices_to_arrow
from goffish.threads import interruptible

_VERSION = 1
_ARRAYS = ("offsets", "targets", "weights", "edge_of_arc")
_TABLES = ("vertex_attributes", "edge_attributes")
_PROBLEMS = {
    k.NO_VERTEX: "has a target that is no vertex",
    k.NOT_ASCENDING: "is not ascending",
    k.BAD_WEIGHT: "has a weight that is negative or not finite",
    k.NO_EDGE: "has an arc without a row of edge attributes",
}
#: Arcs of one task, so that Ctrl-C ends the check soon.
_TASK = 1 << 24


def write_rows_file(graph: Graph, file: BinaryIO) -> None:
    """Write the arrays of a graph; nothing is lost, and nothing but labels and attributes is copied."""
    columns: dict[str, Any] = {name: getattr(graph, name) for name in (*_ARRAYS, "labels")}
    for name in _TABLES:
        table = getattr(graph, name)
        columns[name] = None if table is None else table.to_struct_array()
    lists = {name: _one_list(values) for name, values in columns.items() if values is not None}
    about = {"version": _VERSION, "directed": graph.directed, "vertices": graph.num_vertices, "edges": graph.num_edges}
    batch = pa.record_batch(lists).replace_schema_metadata({KEY: json.dumps(about).encode()})
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with pa.ipc.new_file(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def _one_list(values: Any) -> pa.LargeListArray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # its texts are too long for one array
        raise InputError("attributes with more than 2 GiB of text do not fit in a .csr file; save the graph as a store")
    values = pa.array(values) if isinstance(values, np.ndarray) else values
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def read_rows_file(source: Source, options: ReadOptions) -> Graph:
    """Map a file of compressed sparse rows; see `goffish.graph.io.read`."""
    if options.columns:
        raise InputError(f"{source.name}: columns does not apply to a .csr file")
    data = source.mapped()
    try:
        about, columns = _open(source, data)
    except (pa.ArrowException, MemoryError, OSError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(source.name, None, f"not a readable file of compressed sparse rows ({error})") from None
    arrays = {name: _array(source, data, columns[name]) for name in _ARRAYS if name in columns}
    tables = {name: pa.Table.from_struct_array(columns[name]) for name in _TABLES if name in columns}
    graph = Graph(
        arrays["offsets"], arrays["targets"], about["directed"], about["edges"], arrays.get("weights"),
        columns.get("labels"), tables.get("vertex_attributes"), tables.get("edge_attributes"),
        arrays.get("edge_of_arc"),
    )  # fmt: skip
    loops = parallel = 0
    if options.verify:
        loops, parallel = interruptible(graph.num_arcs, _check, source.name, graph, about["vertices"])
    if source.progress is not None:
        source.progress(source.estimated_bytes, source.total)
    if options.weighted and graph.weights is None:
        raise FormatError(source.name, None, "weighted=True: the graph has no weights")
    if options.weighted is False:
        graph = replace(graph, weights=None)
    directed = graph.directed if options.directed is None else options.directed
    drops, merges = loops and options.self_loops == "drop", parallel and options.parallel != "keep"
    if directed == graph.directed and not drops and not merges:
        return graph
    return from_arrow(
        to_arrow(graph), directed=directed, vertices=vertices_to_arrow(graph), self_loops=options.self_loops,
        parallel=options.parallel,
    )  # fmt: skip


def _open(source: Source, data: Any) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """Return the metadata and the columns, of the types that they must have."""
    reader = pa.ipc.open_file(pa.py_buffer(data))
    about = json.loads((reader.schema.metadata or {})[KEY])
    if about["version"] != _VERSION:
        raise FormatError(source.name, None, f"version {about['version']!r}; this version of GoFFish reads {_VERSION}")
    if reader.num_record_batches != 1 or len(batch := reader.get_batch(0)) != 1:
        raise ValueError("expected one row")
    batch.validate(full=True)
    vertices, edges = about["vertices"], about["edges"]
    if not (isinstance(about["directed"], bool) and type(vertices) is type(edges) is int and vertices >= 0):
        raise ValueError("the metadata is damaged")
    columns = dict(zip(batch.schema.names, (column.flatten() for column in batch.columns), strict=True))
    if "offsets" not in columns or "targets" not in columns:
        raise ValueError("expected the columns offsets and targets")
    arcs, whole = len(columns["targets"]), pa.from_numpy_dtype(vertex_dtype(vertices))
    expected = {
        "offsets": (vertices + 1, (pa.int64(),)), "targets": (arcs, (whole,)), "weights": (arcs, (pa.float64(),)),
        "edge_of_arc": (arcs, (pa.int64(),)), "labels": (vertices, (pa.int64(), pa.string())),
        "vertex_attributes": (vertices, None), "edge_attributes": (edges, None),
    }  # fmt: skip
    for name, column in columns.items():
        length, types = expected[name]
        fits = pa.types.is_struct(column.type) if types is None else column.type in types
        if not fits or len(column) != length or column.null_count:
            raise ValueError(f"{name}: {len(column):,} values of {column.type}, {column.null_count:,} of them null")
    if ("edge_of_arc" in columns) is not ("edge_attributes" in columns):
        raise ValueError("edge_of_arc and edge_attributes go together")
    return about, columns


def _array(source: Source, data: Any, column: pa.Array) -> NDArray[Any]:
    """Return the values of a column as an array over the mapped file, which can be written to: no file changes."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    if not len(column):
        return np.empty(0, dtype)
    place = column.buffers()[1].address + column.offset * dtype.itemsize - pa.py_buffer(data).address
    if not 0 <= place <= len(data) - len(column) * dtype.itemsize:
        raise FormatError(source.name, None, "the arrays are compressed or of another byte order")
    return np.frombuffer(data, dtype, len(column), place)


def _check(name: str, graph: Graph, n: int) -> tuple[int, int]:
    """Return the number of self-loops and of repeated arcs, after a look at every arc: kernels trust the arrays.

    An undirected graph has each edge in both rows. With a random seed, sums of hashes over all arcs to higher and to
    lower vertices are equal for other graphs with a chance of 2^-64.
    """
    offsets, targets = graph.offsets, graph.targets
    if offsets[0] != 0 or offsets[-1] != targets.size or bool((offsets[1:] < offsets[:-1]).any()):
        raise FormatError(name, None, "the row pointers are damaged")
    bits = np.empty(0, np.uint64) if graph.weights is None else graph.weights.view(np.uint64)
    edges = np.empty(0, np.int64) if graph.edge_of_arc is None else graph.edge_of_arc
    bounds = balanced_rows(offsets, 1 + (targets.size + n) // _TASK).tolist()
    arrays = k.StoredRows(offsets, targets, bits, edges)
    factors = np.frombuffer(secrets.token_bytes(40), np.uint64) | np.uint64(1)
    tasks = [(arrays, graph.num_edges, first, last, factors) for first, last in pairwise(bounds)]
    found = run_tasks(k.check_rows, tasks, thread_count())
    for status, row, *_ in found:
        if status != k.OK:
            raise FormatError(name, None, f"row {row:,} {_PROBLEMS[status]}")
    loops, parallel, higher = (sum(one[at] for one in found) for at in (2, 3, 4))
    lower = targets.size - higher - loops
    digest = sum(int(one[5]) for one in found) % (1 << 64)
    if targets.size != graph.num_edges if graph.directed else (higher + loops != graph.num_edges or higher != lower):
        raise FormatError(name, None, f"{targets.size:,} arcs are not those of {graph.num_edges:,} edges")
    if not graph.directed and digest:
        raise FormatError(name, None, "the two arcs of an edge differ")
    return loops, parallel
