"""The files of a time series: elements and bins of a partition, and the slices with the values."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import kernels
from goffish.gofs.encoding import decode_arrays, encode_arrays
from goffish.gofs.partitioned import PartitionedGraph, arc_positions
from goffish.gofs.series.model import PLACES, Attribute, Place
from goffish.gofs.slices import Arcs, Slice, freeze
from goffish.graph import Graph
from goffish.graph import kernels as graph_kernels
from goffish.graph.labels import vertex_dtype

#: Files of a partition: times and schema (of the first one only), elements and bins, values.
FACTS, ELEMENTS = "series", "series-elements"
_FORM = b"goffish.form"
_DENSE, _SPARSE = b"dense", b"sparse"
#: What a text or a list takes in memory, roughly.
_TEXT_BYTES = 8


def slice_kind(name: str, group: int, bin_number: int) -> str:
    """What the slice of an attribute, a group of instances and a bin is called in the manifest."""
    return f"series.{name}.g{group:05d}.b{bin_number:05d}"


def assign_bins(sizes: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Bin of each subgraph: the largest first, each into the lightest bin so far.

    With S subgraphs, ``min(bins, S)`` bins are used, and the heaviest holds at most total/b + (1 - 1/b) times the
    largest subgraph. See docs/specs/time-series.md, sections 5.1 and 7; R. L. Graham, "Bounds on Multiprocessing
    Timing Anomalies", SIAM J. Appl. Math. 17 (1969).
    """
    from heapq import heapify, heapreplace

    if sizes.size <= bins:
        return np.arange(sizes.size)
    chosen = np.empty(sizes.size, np.int64)
    loads = [(0, number) for number in range(bins)]
    heapify(loads)
    for at in np.argsort(-sizes, kind="stable").tolist():
        load, lightest = loads[0]
        chosen[at] = lightest
        heapreplace(loads, (load + int(sizes[at]), lightest))
    return chosen


class StoredRows(NamedTuple):
    """The rows of one kind in the order in which slices hold them, once a template has grown.

    Rows that a generation of the template adds follow those of the generations before it, so that slices stay as they
    are.

    Attributes
    ----------
    row : int32 or int64, shape (rows,)
        Row of the partition.
    bin : integers, shape (rows,)
    widths : int64, shape (generations,)
        Rows that each generation of the template has.
    """

    row: NDArray[np.integer[Any]]
    bin: NDArray[np.integer[Any]]
    widths: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Elements:
    """The rows that a partition's slices speak of. Every subgraph owns one range of each kind.

    Attributes
    ----------
    vertex_offsets : int64, shape (subgraphs + 1,)
        Rows of vertices: their local numbers.
    edge_offsets : int64, shape (subgraphs + 1,)
        Rows of edges.
    edge_id : int32 or int64, shape (edges,)
        Number over the whole graph of the edge of each row: all edges that touch the subgraph, ascending in it.
    edge_row : int32 or int64, shape (arcs,)
        Row of each arc of the partition's `out_arcs`.
    in_edge_row : int32 or int64, shape (arcs into the partition,)
        The same for its `in_arcs`; the same array in an undirected graph.
    bin_of_subgraph : int64, shape (subgraphs,)
        Where the subgraph's rows are; if the template has grown, where further rows of it go.
    grown : mapping of place to StoredRows
        Empty unless the template has grown.
    """

    vertex_offsets: NDArray[np.int64]
    edge_offsets: NDArray[np.int64]
    edge_id: NDArray[np.integer[Any]]
    edge_row: NDArray[np.integer[Any]]
    in_edge_row: NDArray[np.integer[Any]]
    bin_of_subgraph: NDArray[np.int64]
    grown: Mapping[Place, StoredRows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(*(getattr(self, name) for name in _ARRAYS), *chain.from_iterable(self.grown.values()))

    @cached_property
    def num_bins(self) -> int:
        bins = self.grown["vertex"].bin if self.grown else self.bin_of_subgraph
        return int(bins.max(initial=-1)) + 1

    def bins_in(self, generation: int) -> int:
        """The number of bins that slices of a generation have."""
        if not self.grown:
            return self.num_bins
        bins, widths = self.grown["vertex"].bin, self.grown["vertex"].widths
        return int(bins[: widths[generation]].max(initial=-1)) + 1

    def offsets(self, place: Place) -> NDArray[np.int64]:
        """Rows of each subgraph."""
        return self.vertex_offsets if place == "vertex" else self.edge_offsets

    def count(self, place: Place) -> int:
        """Rows of the partition."""
        return int(self.offsets(place)[-1])

    def bins_of(self, subgraphs: Any) -> list[int]:
        """The bins that hold some subgraphs (local numbers), ascending."""
        numbers = np.asarray(subgraphs, np.int64)
        if not self.grown:
            return [int(b) for b in np.unique(self.bin_of_subgraph[numbers])]
        return [int(b) for b in np.flatnonzero(self._in_bin[numbers].any(axis=0))]

    @cached_property
    def _in_bin(self) -> NDArray[np.bool_]:
        """Whether a subgraph has rows in a bin."""
        found = np.zeros((self.bin_of_subgraph.size, self.num_bins), np.bool_)
        for place, stored in self.grown.items():
            found[np.searchsorted(self.offsets(place), stored.row, side="right") - 1, stored.bin] = True
        return found

    def stored(self, place: Place, bin_number: int, generation: int | None = None) -> NDArray[np.int64]:
        """The numbers that slices of a generation (default: the last one) give to the rows of a bin, ascending."""
        found = self._stored[place][bin_number]
        if generation is None or not self.grown:
            return found
        return found[: np.searchsorted(found, self.grown[place].widths[generation])]

    def added(self, place: Place, bin_number: int, generation: int) -> NDArray[np.int64]:
        """The rows of a bin that are not in the slices of a generation."""
        return self.row_of(place, self._stored[place][bin_number][self.stored(place, bin_number, generation).size :])

    def row_of(self, place: Place, stored: NDArray[Any]) -> NDArray[Any]:
        """The rows of the partition for numbers in slices."""
        return self.grown[place].row[stored] if self.grown else stored

    @cached_property
    def _stored(self) -> dict[str, list[NDArray[np.int64]]]:
        found: dict[str, list[NDArray[np.int64]]] = {}
        for place in PLACES:
            if self.grown:
                bin_of_row = self.grown[place].bin
            else:
                bin_of_row = np.repeat(self.bin_of_subgraph, np.diff(self.offsets(place)))
            order = np.argsort(bin_of_row, kind="stable")
            limits = np.searchsorted(bin_of_row[order], np.arange(self.num_bins + 1))
            found[place] = [order[limits[b] : limits[b + 1]] for b in range(self.num_bins)]
        return found

    def encode(self) -> pa.Buffer:
        """The bytes of the file."""
        arrays = {name: getattr(self, name) for name in _ARRAYS} | {"edge_id": _narrow(self.edge_id)}
        if self.in_edge_row is self.edge_row:
            del arrays["in_edge_row"]
        return encode_arrays(arrays)

    def encode_growth(self) -> pa.Buffer:
        """The bytes of the file with the order of stored rows."""
        arrays: dict[str, Any] = {}
        for place, stored in self.grown.items():
            arrays |= {f"{place}.row": _narrow(stored.row), f"{place}.bin": _narrow(stored.bin, np.int8)}
            arrays[f"{place}.widths"] = stored.widths
        return encode_arrays(arrays)

    @classmethod
    def decode(cls, data: pa.Buffer, growth: pa.Buffer | None = None) -> Elements:
        """The inverse of `encode` and `encode_growth`."""
        arrays = {name: array.to_numpy() for name, array in decode_arrays(data).items()}
        arrays.setdefault("in_edge_row", arrays["edge_row"])
        if growth is None:
            return cls(**arrays)
        more = {name: array.to_numpy() for name, array in decode_arrays(growth).items()}
        grown = {place: StoredRows(*(more[f"{place}.{name}"] for name in StoredRows._fields)) for place in PLACES}
        return cls(**arrays, grown=grown)


_ARRAYS = ("vertex_offsets", "edge_offsets", "edge_id", "edge_row", "in_edge_row", "bin_of_subgraph")


def _narrow(numbers: NDArray[np.integer[Any]], *smaller: type[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Numbers from 0 on in the smallest of some types, int32 and int64: large files take time to write and to check."""
    largest = int(numbers.max(initial=0))
    kind = next(one for one in (*smaller, np.int32, np.int64) if largest <= np.iinfo(one).max)
    return numbers.astype(kind, copy=False)


def numbered(graph: Graph) -> Graph:
    """The graph with `edge_of_arc`: edges are numbered in the order of `Graph.edge_columns` unless they are already."""
    if graph.edge_of_arc is not None:
        return graph
    number = np.arange(graph.num_arcs)
    if not graph.directed:
        graph_kernels.number_edges(graph.offsets, graph.targets, number.copy(), number)
    return replace(graph, edge_of_arc=number)


def find_elements(graph: PartitionedGraph, template: Graph, bins: int) -> Iterator[Elements]:
    """Elements and bins of every partition; `template` is the graph put together again, with `edge_of_arc`."""
    original = graph.vertex_ids()
    for part in graph.slices():
        yield elements_of(part, template, original, bins)


def elements_of(part: Slice, template: Graph, original: NDArray[np.integer[Any]], bins: int) -> Elements:
    """Elements and bins of one partition.

    `template` has all arcs of the partition's vertices, and `edge_of_arc`; `original` is the vertex in it of each
    partitioned number.
    """
    sides = [_edges_of_arcs(template, part, part.out_arcs, original)]
    if part.directed:
        sides.append(_edges_of_arcs(template.reverse, part, part.in_arcs, original))
    # A subgraph and an edge in one number: fewer than 2^31 of the one and 2^32 of the other.
    edges = max(template.num_edges, 1)
    keys = np.concatenate([subgraph * edges + edge for subgraph, edge in sides])
    order = np.argsort(keys)
    ordered = keys[order]
    opens = np.diff(ordered, prepend=-1) != 0
    rows = ordered[opens]
    place = np.empty(keys.size, vertex_dtype(rows.size))
    place[order] = np.cumsum(opens, dtype=place.dtype) - 1
    places = np.split(place, [sides[0][0].size])
    return Elements(
        part.subgraph_offsets, np.searchsorted(rows, np.arange(part.num_subgraphs + 1) * edges), rows % edges,
        places[0], places[1] if part.directed else places[0], assign_bins(np.diff(part.subgraph_offsets), bins),
    )  # fmt: skip


def _edges_of_arcs(
    template: Graph, part: Slice, arcs: Arcs, original: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Local subgraph and edge number of every arc."""
    assert template.edge_of_arc is not None
    targets, arc = np.empty(template.num_arcs, template.targets.dtype), np.empty(template.num_arcs, np.int64)
    kernels.restore_rows(
        arcs.offsets, arcs.targets, part.subgraph_offsets, arcs.remote_offsets, arcs.remote_vertex, part.vertex_start,
        original, part.vertex_ids, template.offsets, targets, arc,
    )  # fmt: skip
    mine = arc_positions(template.offsets, part.vertex_ids)
    edge = np.empty(arcs.targets.size, np.int64)
    edge[arc[mine]] = template.edge_of_arc[mine]
    subgraph = np.repeat(np.arange(part.num_subgraphs), np.diff(arcs.offsets[part.subgraph_offsets]))
    return subgraph, edge


def encode_slice(columns: Sequence[pa.Array], first: int, rows: NDArray[np.int64], kind: pa.DataType) -> pa.Buffer:
    """The bytes of a slice, in the form that is smaller in memory.

    Parameters
    ----------
    columns
        For each successive instance the values of `rows`; null where an element has none.
    first : int
        Number of the first instance.
    rows : int64 array
        Rows of the bin as they are stored, ascending.
    kind
        Arrow type of the values.

    Notes
    -----
    *dense*: one column ``value``, instance by instance the value of every row of the bin, ascending. *sparse*:
    ``instance``, ``element`` (row in the partition) and ``value``, ascending, without nulls. The metadata of the schema
    say which (``goffish.form``).
    """
    value = pa.concat_arrays(columns)
    given = len(value) - value.null_count
    width = _TEXT_BYTES if pa.types.is_nested(kind) or pa.types.is_string(kind) else max(1, kind.bit_width // 8)
    elements = vertex_dtype(int(rows.max(initial=0)) + 1)
    if given and len(value) * width <= given * (width + np.dtype(elements).itemsize):
        return _parquet(pa.table({"value": value}), _DENSE)
    place = np.flatnonzero(value.is_valid().to_numpy(zero_copy_only=False))
    count = max(rows.size, 1)
    table = {
        "instance": pa.array((first + place // count).astype(np.int32)),
        "element": pa.array(rows[place % count].astype(elements)),
        "value": value.drop_null(),
    }
    return _parquet(pa.table(table), _SPARSE)


def _parquet(table: pa.Table, form: bytes) -> pa.Buffer:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({_FORM: form}), sink, compression="zstd", row_group_size=max(table.num_rows, 1),
        use_dictionary=["instance", "value", "value.list.element"],
        column_encoding={"element": "DELTA_BINARY_PACKED"} if form == _SPARSE else None,
    )  # fmt: skip
    return pa.py_buffer(sink.getvalue())


@dataclass(frozen=True, eq=False)
class Block:
    """A decoded slice.

    Attributes
    ----------
    values : NumPy array of numbers and truth values, Arrow array of texts and lists
        Dense: instance by instance; sparse: by instance and element.
    width : int
        Rows of the bin.
    missing : bool array or None
        Dense: where there is no value.
    limits, elements : int64 and int array, or None
        Sparse: where each instance begins, and the row in the partition of each value.
    """

    values: Any
    width: int
    missing: NDArray[np.bool_] | None = None
    limits: NDArray[np.int64] | None = None
    elements: NDArray[np.integer[Any]] | None = None

    @property
    def nbytes(self) -> int:
        arrays = (self.values, self.missing, self.limits, self.elements)
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def at(self, instance: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.integer[Any]] | None, Any]:
        """Stored rows and their values in the instance at this place of the slice; ``None``: all `rows`."""
        if self.limits is not None and self.elements is not None:
            first, last = int(self.limits[instance]), int(self.limits[instance + 1])
            return self.elements[first:last], self.values[first:last]
        chosen = slice(instance * self.width, (instance + 1) * self.width)
        values = self.values[chosen]
        if self.missing is None or not self.missing[chosen].any():
            return None, values
        given = np.flatnonzero(~self.missing[chosen])
        return rows[given], values[given] if isinstance(values, np.ndarray) else values.take(pa.array(given))

    def column(self, instances: int, rows: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
        """The argument of `encode_slice` again: ``instances * width`` values with nulls."""
        if self.limits is not None and self.elements is not None:
            where = np.full(instances * self.width, -1, np.int64)
            begin = np.repeat(np.arange(instances) * self.width, np.diff(self.limits))
            where[begin + np.searchsorted(rows, self.elements)] = np.arange(self.elements.size)
            return pa.array(self.values, kind).take(pa.array(where, mask=where < 0))
        if isinstance(self.values, np.ndarray):
            return pa.array(self.values, kind, mask=self.missing)
        return self.values


def decode_slice(data: pa.Buffer, attribute: Attribute, first: int, instances: int, width: int) -> Block:
    """The inverse of `encode_slice`; `first` and `instances`: which ones, `width`: rows of the bin."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    # Parquet calls the values of a list otherwise, and the bytes of a slice shall not depend on it.
    values = _whole(table.column("value")).cast(attribute.arrow_type)
    numeric = attribute.dtype is not None
    if table.schema.metadata[_FORM] == _SPARSE:
        instance = table.column("instance").to_numpy()
        limits = np.searchsorted(instance, np.arange(first, first + instances + 1))
        elements = table.column("element").to_numpy()
        freeze(elements)
        return Block(_plain(values) if numeric else values, width, None, limits, elements)
    missing = None
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        if numeric:
            values = values.fill_null(pa.scalar(0, pa.int8()).cast(values.type))
    return Block(_plain(values) if numeric else values, width, missing)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


def _plain(values: pa.Array) -> NDArray[Any]:
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    freeze(array)
    return array
