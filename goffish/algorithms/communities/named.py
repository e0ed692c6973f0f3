"""Divisions as users give them: tables, mappings and columns with names of groups, and what a search starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.algorithms.communities.divisions import match_ids
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.graph import Graph
from goffish.graph.columns import as_table
from goffish.graph.guards import expect, from_library
from goffish.graph.labels import as_id_column, find_labels

Ids = NDArray[np.int64]
Source = Graph | PartitionedGraph

_ADVICE = (
    "expected a table with the columns vertex and community, a mapping of vertex to community, "
    "or one community per vertex in vertex order"
)


def named_division(graph: Source, given: Any, name: str) -> Ids:
    """Group of every vertex, numbered from 0 in order of appearance in `given`.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
    given
        A table (Arrow, pandas, polars) with the columns ``vertex`` and ``community``, a mapping from vertex label to
        group, or a column of groups in vertex order. Groups are numbers, texts or anything hashable; a null is no
        group. Vertices that the graph does not have are passed over.
    name : str
        What to call it in an error.

    Returns
    -------
    int64, shape (n,)
        -1 for a vertex without a group.

    Raises
    ------
    InputError
        A missing column, several rows for one vertex, labels of another type, or a column of another length.
    """
    keys, codes = _rows(graph, given, name)
    if keys is None:
        return codes
    vertices = _numbers(graph, keys, name)
    return _placed(graph, vertices, codes, name)


def full_division(graph: Graph, given: Any, name: str) -> Ids:
    """As `named_division`, where every vertex must have a group and no other vertex may be named."""
    keys, codes = _rows(graph, given, name)
    if keys is not None:
        vertices = _numbers(graph, keys, name)
        unknown = np.flatnonzero(vertices < 0)
        if unknown.size:
            label = pa.array(keys)[int(unknown[0])].as_py()
            raise InputError(f"{name}: vertex {label!r} is not in the graph")
        codes = _placed(graph, vertices, codes, name)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        label = graph.label_column()[int(missing[0])].as_py()
        more = f" (nor for {missing.size - 1:,} other vertices)" if missing.size > 1 else ""
        raise InputError(f"{name} has no community for vertex {label!r}{more}")
    return codes


def starting_point(graph: Source, initial: Any, fixed: Any) -> tuple[Ids | None, NDArray[np.bool_] | None]:
    """Starting communities, numbered from 0, and which vertices are fixed.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
    initial
        An earlier division, as `goffish.algorithms.communities.named.named_division` takes it, or a result with a
        ``table``. Vertices that it does not name start alone; so do, in a `Graph`, those without a neighbor that are
        not fixed.
    fixed
        Labels of vertices that keep their community of `initial`; or a mapping from label to a group: vertices of one
        group stay together, those of different groups apart.

    Raises
    ------
    InputError
        A vertex that the graph does not have; a fixed vertex without a community; an `initial` and a mapping `fixed`
        that contradict each other.
    """
    if initial is None and fixed is None:
        return None, None
    n = graph.num_vertices
    start = np.full(n, -1, np.int64)
    if initial is not None:
        start = named_division(graph, getattr(initial, "table", initial), "initial").copy()
    held = None
    if fixed is not None:
        labels = list(fixed)
        vertices = find_labels(_stored_labels(graph), n, labels) if labels else np.empty(0, np.int64)
        held = np.zeros(n, np.bool_)
        held[vertices] = True
        if isinstance(fixed, Mapping):
            groups = group_codes(list(fixed.values()), "fixed")
            if groups.size and groups.min() < 0:
                raise InputError("fixed: groups must not be null")
            # Held vertices form communities of their own: other vertices join them by moving.
            start[vertices] = int(start.max(initial=-1)) + 1 + groups
        elif vertices.size and start[vertices].min() < 0:
            lost = labels[int(np.flatnonzero(start[vertices] < 0)[0])]
            raise InputError(f"fixed: vertex {lost!r} has no community in initial; pass a mapping of vertex to group")
    alone = start < 0
    if initial is not None and isinstance(graph, Graph):
        degree = graph.out_degrees + (np.bincount(graph.targets, minlength=n) if graph.directed else 0)
        alone |= (degree == 0) if held is None else (degree == 0) & ~held
    start[alone] = int(start.max(initial=-1)) + 1 + np.arange(int(alone.sum()))
    _, start = np.unique(start, return_inverse=True)
    return start.astype(np.int64), held


def kept_ids(graph: Source, initial: Any, membership: Ids) -> Ids:
    """What communities are called after a warm start, int64, shape (c,).

    Each takes over the name of the old community with which it shares most vertices (`match_ids`), the others get
    numbers above all old ones. Old names that are not whole numbers of at least 0 are replaced by their order of
    appearance in `initial`.
    """
    given = getattr(initial, "table", initial)
    old, names = named_division(graph, given, "initial"), group_names(given, "initial")
    if names is not None:
        old = np.where(old < 0, -1, names[old]) if names.size else old
    ids = np.empty(int(membership.max(initial=-1)) + 1, np.int64)
    ids[membership] = match_ids(old, membership)
    return ids


def vertex_labels(graph: Source) -> pa.Array:
    """Labels of all vertices in vertex order."""
    return graph.label_column() if isinstance(graph, Graph) else graph.labels_by_number()


def _stored_labels(graph: Source) -> pa.Array | None:
    return graph.labels if isinstance(graph, Graph) else graph.labels_by_number()


def group_codes(values: Any, name: str) -> Ids:
    """Numbers from 0 for the distinct values of a column in order of appearance, -1 for nulls.

    Raises
    ------
    InputError
        Not one column, or values that cannot be hashed.
    """
    plain = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not (plain or hasattr(values, "to_numpy") or isinstance(values, np.ndarray)):
        expect(values, np.ndarray, name, "expected a column of groups (list, array or series)")
    shape = getattr(values, "shape", (0,))
    if len(shape) != 1:
        raise InputError(f"{name}: expected one column, got an array of shape {shape}")
    try:
        column = _arrow(values).dictionary_encode().indices
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _by_hash(values, name)
    return np.asarray(column.cast(pa.int64()).fill_null(-1).to_numpy())


def group_names(given: Any, name: str) -> Ids | None:
    """The groups of a division by their number in `named_division`, where they are whole numbers of at least 0."""
    if isinstance(given, Mapping):
        groups: Any = list(given.values())
    else:
        groups = as_table(given, name).column("community") if hasattr(given, "columns") else given
    try:
        names = _arrow(groups).dictionary_encode().dictionary
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if not pa.types.is_integer(names.type):
        return None
    numbers = np.asarray(names.cast(pa.int64()).to_numpy())
    return numbers if numbers.min(initial=0) >= 0 else None


def _arrow(values: Any) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        column = values
    else:
        column = values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values, from_pandas=True)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _by_hash(values: Any, name: str) -> Ids:
    """For what Arrow has no type: mixed types, tuples, frozen sets."""
    rows = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    codes: dict[Any, int] = {}
    try:
        return np.array([-1 if row is None else codes.setdefault(row, len(codes)) for row in rows], np.int64)
    except TypeError as error:
        raise InputError(f"{name}: groups must be numbers, strings or other hashable values ({error})") from None


def _rows(graph: Source, given: Any, name: str) -> tuple[Any, Ids]:
    """Labels (None: all vertices in their order) and group codes."""
    if isinstance(given, Mapping):
        return as_id_column(list(given), f"{name}, vertex"), group_codes(list(given.values()), name)
    if isinstance(given, pa.Table | pa.RecordBatch) or any(
        from_library(given, library, "DataFrame") for library in ("pandas", "polars")
    ):
        table = as_table(given, name)
        for column in ("vertex", "community"):
            if column not in table.column_names:
                names = ", ".join(map(str, table.column_names)) or "none"
                raise InputError(f"{name} has no column {column!r}; available: {names}")
        return as_id_column(table.column("vertex"), f"{name}, column vertex"), group_codes(
            table.column("community"), f"{name}, column community"
        )
    if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")) or isinstance(given, str | bytes):
        expect(given, pa.Table, name, _ADVICE)
    codes = group_codes(given, name)
    if codes.size != graph.num_vertices:
        raise InputError(f"{name} has {codes.size:,} rows, the graph {graph.num_vertices:,} vertices: {_ADVICE}")
    return None, codes


def _numbers(graph: Source, keys: Any, name: str) -> Ids:
    """Vertex numbers of labels, -1 for those that the graph does not have."""
    labels = _stored_labels(graph)
    kind = pa.int64() if labels is None else labels.type
    column = pa.array(keys)
    try:
        column = column.cast(kind)
    except pa.ArrowException:
        raise InputError(f"{name}: vertex labels have type {column.type}, those of the graph {kind}") from None
    if labels is None:
        numbers = column.to_numpy()
        return np.where((numbers >= 0) & (numbers < graph.num_vertices), numbers, -1)
    return np.asarray(pc.index_in(column, value_set=labels).fill_null(-1).to_numpy().astype(np.int64))


def _placed(graph: Source, vertices: Ids, codes: Ids, name: str) -> Ids:
    known = vertices >= 0
    vertices = vertices[known]
    rows = np.bincount(vertices, minlength=graph.num_vertices)
    if rows.max(initial=0) > 1:
        label = vertex_labels(graph)[int(rows.argmax())].as_py()
        raise InputError(f"{name} has several rows for vertex {label!r}")
    out = np.full(graph.num_vertices, -1, np.int64)
    out[vertices] = codes[known]
    return out
