"""Parts of partitioned graphs: which vertices and edges they have, read from the partitions that hold them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError, StoreError
from goffish.gofs import kernels
from goffish.gofs.manifest import GraphInfo
from goffish.gofs.slices import Arcs, Slice, distinct, freeze
from goffish.graph import Graph
from goffish.graph.assembly import assemble
from goffish.graph.labels import find_labels, labels_of_type, unknown_vertex, vertex_dtype
from goffish.graph.selection import checked_mask, condition_mask
from goffish.threads import interruptible

#: Arcs that are turned into columns at a time.
_BLOCK = 1 << 20
#: Partitions that are read at the same time.
_READERS = 4
_NO_ROWS = kernels.Rows(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
_NO_MARKS = np.empty(0, np.bool_)
_NO_WEIGHTS = np.empty(0)
freeze(*_NO_ROWS, _NO_WEIGHTS)

#: Local vertices of some partitions, as a truth value for each.
Masks = dict[int, NDArray[np.bool_]]


class Partitions(NamedTuple):
    """What parts are taken of.

    Attributes
    ----------
    info : GraphInfo
    vertex_starts : int64, shape (partitions + 1,)
    slice : callable
        Returns a partition. Slices of one that is read a second time are equal.
    column : callable
        Returns a column of the vertices of a partition, without its arcs: ``label``, ``vertex.NAME`` or ``vertex_id``.
    """

    info: GraphInfo
    vertex_starts: NDArray[np.int64]
    slice: Callable[[int], Slice]
    column: Callable[[int, str], Any]


class Edges(NamedTuple):
    """Some arcs of a slice.

    Attributes
    ----------
    source, target : int64
        Places of both ends: local vertices, then rows of the remote table.
    arcs : int64
        Numbers of the arcs.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    arcs: NDArray[np.int64]


#: Which of some edges stay, by their slice, the numbers of both ends and the numbers of the arcs.
Chosen = Callable[[Slice, NDArray[Any], NDArray[Any], NDArray[np.int64]], NDArray[np.bool_]]


def by_partition(
    graph: Partitions, numbers: NDArray[Any]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield partitions with the local numbers of vertices that they own, and the places of those in `numbers`."""
    owner = np.searchsorted(graph.vertex_starts, numbers, side="right") - 1
    order = np.argsort(owner, kind="stable")
    owner = owner[order]
    bounds = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
    for first, last in pairwise(bounds.tolist()):
        partition = int(owner[first])
        places = order[first:last]
        yield partition, numbers[places].astype(np.int64) - graph.vertex_starts[partition], places


def find_vertices(graph: Partitions, labels: Any) -> NDArray[np.int64]:
    """Return the partitioned numbers of labels; partitions are read until all are found.

    Raises
    ------
    InputError
        A label is unknown.
    """
    n, implicit = graph.info.num_vertices, graph.info.label_type == "implicit"
    if implicit:
        values = pa.array(find_labels(None, n, labels), pa.int64())
    else:
        values = labels_of_type(labels, pa.type_for_alias(graph.info.label_type))
    wanted = values.unique()
    numbers = np.full(len(wanted), -1, np.int64)
    left = len(wanted)
    for partition in range(graph.info.num_partitions):
        if not left:
            break
        column = pa.array(graph.column(partition, "vertex_id" if implicit else "label"))
        at = pc.index_in(column, value_set=wanted.cast(column.type))
        local = np.flatnonzero(at.is_valid())
        numbers[at.drop_null().to_numpy()] = graph.vertex_starts[partition] + local
        left -= local.size
    missing = np.flatnonzero(numbers < 0)
    if missing.size and not implicit:
        raise unknown_vertex(wanted[int(missing[0])].as_py(), n)
    if implicit:
        _check_found(graph, wanted.to_numpy(), numbers)
    found: NDArray[np.int64] = numbers[pc.index_in(values, value_set=wanted).to_numpy()]
    return found


def _check_found(graph: Partitions, wanted: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
    """Compare numbers that were read without their checksums with slices, whose checksums are verified."""
    for partition, local, places in by_partition(graph, numbers[numbers >= 0]):
        if not np.array_equal(graph.slice(partition).vertex_ids[local], wanted[numbers >= 0][places]):
            raise StoreError(
                f"partition {partition}: vertex numbers changed while they were read; open the store again"
            )
    if (numbers < 0).any():
        for partition in range(graph.info.num_partitions):
            graph.slice(partition)  # one of them is damaged
        raise StoreError(f"the vertex {wanted[numbers < 0][0]} is in no partition; partition the graph again")


def labels_of(graph: Partitions, numbers: NDArray[Any], column: Callable[[int], pa.Array] | None = None) -> pa.Array:
    """Return the labels of partitioned numbers; `column` is asked for those of a partition, if it is given."""
    pieces, order = [], [np.empty(0, np.int64)]
    for partition, local, places in by_partition(graph, numbers):
        labels = label_array(graph.column(partition, "label")) if column is None else column(partition)
        pieces.append(labels.take(pa.array(local)))
        order.append(places)
    if not pieces:
        return pa.array([], label_type(graph.info))
    back = np.empty(numbers.size, np.int64)
    back[np.concatenate(order)] = np.arange(numbers.size)
    return pa.concat_arrays(pieces).take(pa.array(back))


def original_numbers(graph: Partitions) -> NDArray[np.integer[Any]]:
    """Return the original number of each partitioned number; reads one partition at a time."""
    n = graph.info.num_vertices
    ids = np.empty(n, vertex_dtype(n))
    for partition in range(graph.info.num_partitions):
        part = graph.slice(partition)
        ids[part.vertex_start : part.vertex_start + part.num_vertices] = part.vertex_ids
    return ids


def label_type(info: GraphInfo) -> pa.DataType:
    """Return the type of the labels."""
    return pa.int64() if info.label_type == "implicit" else pa.type_for_alias(info.label_type)


def label_array(column: Any) -> pa.Array:
    """Return a column of labels as an array; numbers of vertices as 64-bit integers."""
    if isinstance(column, np.ndarray):
        return pa.array(column.astype(np.int64, copy=False))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def neighbors(graph: Partitions, vertex: int) -> NDArray[np.integer[Any]]:
    """Return the out-neighbors of a vertex as partitioned numbers, ascending."""
    ((partition, (local,), _),) = by_partition(graph, np.array([vertex]))
    part = graph.slice(partition)
    arcs = part.out_arcs
    subgraph = int(np.searchsorted(part.subgraph_offsets, local, side="right")) - 1
    targets = arcs.targets[arcs.offsets[local] : arcs.offsets[local + 1]].astype(np.int64)
    here = targets[targets >= 0] + part.vertex_start + part.subgraph_offsets[subgraph]
    there = arcs.remote_vertex[arcs.remote_offsets[subgraph] + ~targets[targets < 0]]
    return np.sort(np.concatenate((here, there))).astype(vertex_dtype(graph.info.num_vertices))


def near(graph: Partitions, starts: NDArray[np.int64], radius: int | None, direction: str) -> Masks:
    """Return the vertices within some steps of others, or all that are connected with them; reads their partitions."""
    found: Masks = {}

    def mark(numbers: NDArray[Any]) -> list[NDArray[np.int64]]:
        """Mark vertices, and return those that were not marked."""
        new = []
        for partition, local, _ in by_partition(graph, numbers):
            mask = found.setdefault(partition, np.zeros(graph.info.vertices[partition], np.bool_))
            unmarked = local[~mask[local]]
            mask[unmarked] = True
            new.append(unmarked + graph.vertex_starts[partition])
        return new

    frontier = mark(distinct(starts))
    steps = graph.info.num_vertices if radius is None else min(radius, graph.info.num_vertices)
    for _ in range(steps):
        if not sum(map(len, frontier)):
            break
        inside: list[NDArray[np.int64]] = []
        outside: list[NDArray[Any]] = []
        reached = {p: local for p, local, _ in by_partition(graph, np.concatenate(frontier))}
        for partition, part in _slices(graph, reached).items():
            local = reached[partition]
            queue = np.empty(part.num_vertices, np.int64)
            queue[: local.size] = local
            followed = [part.in_arcs] if direction == "in" else [part.out_arcs]
            if direction == "both" and part.directed:
                followed.append(part.in_arcs)
            met = [np.zeros(arcs.remote_vertex.size, np.bool_) for arcs in followed]
            both = len(followed) > 1
            end = interruptible(
                part.num_arcs, kernels.expand, _rows(part, followed[0]), met[0],
                _rows(part, followed[1]) if both else _NO_ROWS, met[1] if both else _NO_MARKS,
                found[partition], queue, 0, local.size, radius is None,
            )  # fmt: skip
            inside.append(queue[local.size : end] + part.vertex_start)
            outside += [arcs.remote_vertex[marks] for arcs, marks in zip(followed, met, strict=True)]
        frontier = mark(distinct(np.concatenate(outside).astype(np.int64)))
        if radius is not None:  # otherwise they were followed already
            frontier += inside
    return found


def largest(graph: Partitions) -> Masks:
    """Return the vertices of the largest connected component; of equally large ones, the one with the first vertex."""
    n = graph.info.num_vertices
    parent, ids = np.arange(n, dtype=vertex_dtype(n)), np.empty(n, vertex_dtype(n))
    for partition in range(graph.info.num_partitions):
        part = graph.slice(partition)
        ids[part.vertex_start : part.vertex_start + part.num_vertices] = part.vertex_ids
        arcs = part.out_arcs
        interruptible(
            part.num_arcs, kernels.join_rows, _rows(part, arcs), arcs.remote_vertex, part.vertex_start, parent
        )
    kernels.flatten(parent)
    sizes = np.bincount(parent, minlength=1)
    most = np.flatnonzero(sizes[parent] == sizes.max())
    kept = parent == parent[most[ids[most].argmin()]] if n else np.empty(0, np.bool_)
    return split_mask(graph, kept)


def split_mask(graph: Partitions, mask: NDArray[np.bool_]) -> Masks:
    """Return truth values by partitioned number as those of each partition."""
    starts = graph.vertex_starts.tolist()
    return {p: mask[first:last] for p, (first, last) in enumerate(pairwise(starts))}


def listed(graph: Partitions, numbers: NDArray[np.int64]) -> Masks:
    """Return vertices that are given by their partitioned numbers."""
    found: Masks = {}
    for partition, local, _ in by_partition(graph, numbers):
        found[partition] = np.zeros(graph.info.vertices[partition], np.bool_)
        found[partition][local] = True
    return found


def by_original(graph: Partitions, mask: NDArray[np.bool_]) -> Masks:
    """Return truth values in the order of the graph as it was read as those of each partition."""
    return {p: mask[graph.slice(p).vertex_ids] for p in range(graph.info.num_partitions)}


def all_vertices(graph: Partitions) -> Masks:
    """Return all vertices."""
    return {p: np.ones(count, np.bool_) for p, count in enumerate(graph.info.vertices)}


def degree_columns(info: GraphInfo, part: Slice) -> dict[str, NDArray[Any]]:
    """Return what `Graph.degrees` has of the vertices of a partition."""
    weights = part.column("weight") if info.weighted else _NO_WEIGHTS
    n, outward = part.num_vertices, np.diff(part.out_arcs.offsets)
    sums, loops, loop_sums = np.zeros(n), np.zeros(n, np.int64), np.zeros(n)
    if info.weighted or (not info.directed and 2 * info.num_edges > sum(info.arcs)):  # a loop is one arc
        kernels.sum_rows(_rows(part, part.out_arcs), weights, sums, loops, loop_sums)
    if not info.directed:
        columns: dict[str, NDArray[Any]] = {"degree": outward + loops}
        return columns | {"strength": sums + loop_sums} if info.weighted else columns
    inward = np.diff(part.in_arcs.offsets)
    columns = {"degree": outward + inward, "in_degree": inward, "out_degree": outward}
    if info.weighted:
        back = np.zeros(n)
        kernels.sum_rows(_rows(part, part.in_arcs), part.column("in_weight"), back, loops, loop_sums)
        columns["strength"] = sums + back
    return columns


def degrees(graph: Partitions) -> pa.Table:
    """Return the degrees of all vertices in the order of the graph as it was read."""
    n, labels = graph.info.num_vertices, []
    order = np.empty(n, np.int64)
    columns: dict[str, Any] = {"vertex": None}
    for partition in range(graph.info.num_partitions):
        part = graph.slice(partition)
        order[part.vertex_ids] = np.arange(part.vertex_start, part.vertex_start + part.num_vertices)
        if graph.info.label_type != "implicit":
            labels.append(part.labels())
        for name, values in degree_columns(graph.info, part).items():
            columns.setdefault(name, np.empty(n, values.dtype))[part.vertex_ids] = values
    columns["vertex"] = pa.concat_arrays(labels).take(pa.array(order)) if labels else np.arange(n)
    return pa.table(columns)


def blocks(part: Slice, number: NDArray[Any]) -> Iterator[Edges]:
    """Yield the arcs between numbered vertices, each edge without a direction once; whole rows at a time.

    Parameters
    ----------
    number : integers, shape (n_local + remote,)
        As for `kernels.edges_between`.
    """
    rows, first = _rows(part, part.out_arcs), 0
    while first < part.num_vertices:
        last = int(np.searchsorted(rows.offsets, rows.offsets[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), part.num_vertices)
        arcs = int(rows.offsets[last] - rows.offsets[first])
        columns = Edges(*(np.empty(arcs, np.int64) for _ in Edges._fields))
        count = kernels.edges_between(rows, number, part.directed, first, last, *columns)
        yield Edges(*(column[:count] for column in columns))
        first = last


def collect(graph: Partitions, kept: Masks, choose: Callable[[pa.Array | None], Chosen] | None = None) -> Graph:
    """Return the graph of some vertices and edges; reads the partitions of these vertices.

    Parameters
    ----------
    choose : callable, optional
        Makes from the labels of the vertices what says which edges stay [default: all].
    """
    info = graph.info
    kept = {p: mask for p, mask in sorted(kept.items()) if mask.any()}
    parts = _slices(graph, kept)
    local = {p: np.flatnonzero(mask) for p, mask in kept.items()}
    places = np.concatenate([np.empty(0, np.int64), *(rows + graph.vertex_starts[p] for p, rows in local.items())])
    ids = np.concatenate([np.empty(0, np.int64), *(part.vertex_ids[local[p]] for p, part in parts.items())])
    n, order = places.size, pa.array(np.argsort(ids, kind="stable"))
    kind = vertex_dtype(n)
    number = np.empty(n, kind)
    number[order.to_numpy()] = np.arange(n, dtype=kind)

    def gathered(name: str, type_: pa.DataType) -> Any:
        pieces = [as_type(part.column(name), type_).take(pa.array(local[p])) for p, part in parts.items()]
        return pa.chunked_array(_chunks(pieces), type_).unify_dictionaries().take(order)

    labels: pa.Array | None
    if info.label_type == "implicit":
        ascending = ids[order.to_numpy()].astype(np.int64)
        labels = None if np.array_equal(ascending, np.arange(n)) else pa.array(ascending)
    else:
        labels = gathered("label", label_type(info)).combine_chunks()
    columns = {name: gathered(f"vertex.{name}", attribute_type(graph, f"vertex.{name}")) for name in info.vertex_schema}
    source, target, weights, attributes = _gather_edges(
        graph, parts, places, number, None if choose is None else choose(labels)
    )
    return Graph(*assemble(
        source, target, weights, n, info.directed, "keep", "keep", labels, pa.table(columns) if columns else None,
        attributes,
    ))  # fmt: skip


def _gather_edges(
    graph: Partitions, parts: dict[int, Slice], places: NDArray[np.int64], number: NDArray[Any], chosen: Chosen | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None, pa.Table | None]:
    """Return ends, weights and attributes of the edges between vertices; `parts` is emptied, to free memory."""
    info = graph.info
    sources, targets, weights = [number[:0]], [number[:0]], [_NO_WEIGHTS]
    attributes: dict[str, list[Any]] = {name: [] for name in info.edge_schema}
    types = {name: attribute_type(graph, f"edge.{name}") for name in info.edge_schema}
    at = 0
    for partition in list(parts):
        part = parts.pop(partition)
        remote = part.out_arcs.remote_vertex
        here = np.full(part.num_vertices + remote.size, -1, number.dtype)
        end = int(np.searchsorted(places, part.vertex_start + part.num_vertices))
        here[places[at:end] - part.vertex_start] = number[at:end]
        at = end
        found = np.minimum(np.searchsorted(places, remote), places.size - 1)
        here[part.num_vertices :] = np.where(places[found] == remote, number[found], -1)
        for block in blocks(part, here):
            source, target, arcs = here[block.source], here[block.target], block.arcs
            if chosen is not None:
                stays = chosen(part, source, target, arcs)
                source, target, arcs = source[stays], target[stays], arcs[stays]
            sources.append(source)
            targets.append(target)
            if info.weighted:
                weights.append(part.column("weight")[arcs])
            if types and arcs.size:
                rows = pa.array(part.column("edge_row")[arcs])
                for name, type_ in types.items():
                    attributes[name].append(as_type(part.column(f"edge.{name}"), type_).take(rows))
    table = {
        name: pa.chunked_array(_chunks(pieces), types[name]).unify_dictionaries() for name, pieces in attributes.items()
    }
    return (
        np.concatenate(sources), np.concatenate(targets), np.concatenate(weights) if info.weighted else None,
        pa.table(table) if table else None,
    )  # fmt: skip


def attribute_type(graph: Partitions, name: str) -> pa.DataType:
    """Return the type of an attribute; only types with parameters are read from a partition."""
    place, _, attribute = name.partition(".")
    schema = graph.info.vertex_schema if place == "vertex" else graph.info.edge_schema
    try:
        return pa.type_for_alias(schema[attribute])
    except ValueError:
        return graph.column(0, name).type


def as_type(column: Any, type_: pa.DataType) -> Any:
    """Return a column with the type that it had in memory: Parquet has fewer types of times."""
    return column if column.type == type_ else column.cast(type_)


def _chunks(columns: list[Any]) -> list[pa.Array]:
    return [
        chunk for column in columns for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    ]


def needed_columns(condition: pc.Expression, schema: pa.Schema, noun: str) -> list[str]:
    """Return the columns that a condition is about, at least one.

    Raises
    ------
    InputError
        There is no such column, or the expression is no condition.
    """
    table = schema.empty_table()
    condition_mask(table, condition, noun, noun)

    def needs(name: str) -> bool:
        try:
            condition_mask(table.drop_columns(name), condition, noun, noun)
        except InputError:
            return True
        return False

    return [name for name in schema.names if needs(name)] or schema.names[:1]


def vertex_condition(graph: Partitions, condition: Any, schema: pa.Schema) -> Masks:
    """Return the vertices for which a condition over their columns and degrees holds; reads only those columns."""
    info = graph.info
    if not isinstance(condition, pc.Expression):
        return by_original(graph, checked_mask(condition, info.num_vertices, "vertices", "vertices"))
    names = ["degree", *(["in_degree", "out_degree"] if info.directed else [])]
    extra = [pa.field(name, pa.int64()) for name in names] + [pa.field("strength", pa.float64())] * info.weighted
    computed = {field.name for field in extra if field.name not in schema.names}
    whole = pa.schema([*schema, *(field for field in extra if field.name in computed)])
    names = needed_columns(condition, whole, "vertices")
    found: Masks = {}
    for partition in range(info.num_partitions):
        figures = degree_columns(info, graph.slice(partition)) if computed.intersection(names) else {}
        columns = {
            name: figures[name]
            if name in figures and name in computed
            else vertex_column(graph, partition, whole.field(name))
            for name in names
        }
        found[partition] = condition_mask(pa.table(columns), condition, "vertices", "vertices")
    return found


def vertex_column(graph: Partitions, partition: int, field: pa.Field) -> Any:
    """Return a column of the table of vertices, of one partition."""
    if field.name == "vertex":
        return label_array(graph.column(partition, "label"))
    return as_type(graph.column(partition, f"vertex.{field.name}"), field.type)


def edge_condition(condition: pc.Expression, schema: pa.Schema) -> Callable[[pa.Array | None], Chosen]:
    """Return what makes of the labels of vertices the choice of the edges for which a condition holds."""
    names = needed_columns(condition, schema, "edges")

    def choose(labels: pa.Array | None) -> Chosen:
        def holds(
            part: Slice, source: NDArray[Any], target: NDArray[Any], arcs: NDArray[np.int64]
        ) -> NDArray[np.bool_]:
            ends = {"source": source, "target": target}
            columns = {
                name: pa.array(ends[name].astype(np.int64)) if name in ends and labels is None
                else labels.take(pa.array(ends[name])) if name in ends and labels is not None
                else edge_column(part, schema.field(name), arcs)
                for name in names
            }  # fmt: skip
            return condition_mask(pa.table(columns), condition, "edges", "edges")

        return holds

    return choose


def edge_column(part: Slice, field: pa.Field, arcs: NDArray[np.int64]) -> Any:
    """Return a column of the table of edges, of some arcs of a partition; not one of ends."""
    if field.name == "weight" and part.weighted:
        return pa.array(part.column("weight")[arcs])
    rows = pa.array(part.column("edge_row")[arcs])
    return as_type(part.column(f"edge.{field.name}"), field.type).take(rows)


def numbered_edges(graph: Partitions, mask: NDArray[np.bool_]) -> Chosen:
    """Return the choice of edges that have a truth value each, in the order of `Graph.edges`; of all vertices."""
    n = graph.info.num_vertices
    ids = original_numbers(graph)
    first = np.zeros(n + 1, np.int64)
    for partition in range(graph.info.num_partitions):
        part = graph.slice(partition)
        number = np.concatenate((part.vertex_ids, ids[part.out_arcs.remote_vertex]))
        for block in blocks(part, number):
            np.add.at(first, number[block.source].astype(np.int64) + 1, 1)
    np.cumsum(first, out=first)

    def drawn(part: Slice, source: NDArray[Any], target: NDArray[Any], arcs: NDArray[np.int64]) -> NDArray[np.bool_]:
        begins = np.flatnonzero(np.concatenate((np.ones(min(source.size, 1), np.bool_), source[1:] != source[:-1])))
        row = np.repeat(np.arange(begins.size), np.diff(begins, append=source.size))
        chosen = np.empty(source.size, np.bool_)
        # Slices have other vertices of the same subgraph first; edges are numbered by ascending targets.
        order = np.argsort(row * n + target, kind="stable")
        chosen[order] = mask[first[source] + np.arange(source.size) - begins[row]]
        return chosen

    return drawn


def _slices(graph: Partitions, partitions: Collection[int]) -> dict[int, Slice]:
    """Return several partitions, which are read at the same time: storage answers late, and checksums take time."""
    if len(partitions) < 2:
        return {p: graph.slice(p) for p in partitions}
    with ThreadPoolExecutor(min(len(partitions), _READERS)) as pool:
        return dict(zip(partitions, pool.map(graph.slice, partitions), strict=True))


def _rows(part: Slice, arcs: Arcs) -> kernels.Rows:
    return kernels.Rows(arcs.offsets, arcs.targets, arcs.remote_offsets, part.subgraph_offsets)
