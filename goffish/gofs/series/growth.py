"""Templates that grow: more vertices and edges, while slices with the values of earlier instances stay as they are.

Every array of a partition is merged with what is added to it. That takes time in proportion to the size of the files,
without a sort of all edges: the graph is not put together, nor cut again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs import merge_kernels
from goffish.gofs.kernels import Rows, counting_order
from goffish.gofs.layout import number_by_owner
from goffish.gofs.manifest import GraphInfo
from goffish.gofs.partitioned import PartitionedGraph
from goffish.gofs.series.model import EXISTS, PLACES, Place, SeriesSchema
from goffish.gofs.series.slices import Elements, StoredRows
from goffish.gofs.slices import Arcs, Slice, column_of, distinct, freeze
from goffish.graph import Graph, from_edges
from goffish.graph.labels import vertex_dtype

_Numbers = NDArray[np.int64]


class Found(NamedTuple):
    """What a template has of another graph.

    Attributes
    ----------
    vertices : int64, shape (n,)
        Partitioned number of each vertex, or -1.
    edges : int64, shape (edges,)
        Number of each edge, in the order of `Graph.edge_columns`, or -1; of parallel edges the first one.
    """

    vertices: _Numbers
    edges: _Numbers


class Growth(NamedTuple):
    """The template that a series has from now on.

    Attributes
    ----------
    graph : PartitionedGraph
        In memory; with the partitions of the store, and its vertices in the same ones.
    elements : list of Elements
        Of every partition.
    vertices, edges : int64 arrays
        Number of each vertex and edge of the graph that was added.
    store : PartitionedGraph
        The template so far.
    """

    graph: PartitionedGraph
    elements: list[Elements]
    vertices: _Numbers
    edges: _Numbers
    store: PartitionedGraph

    def added(self, place: Place) -> int:
        """The number of new vertices or edges."""
        if place == "vertex":
            return self.graph.num_vertices - self.store.num_vertices
        return self.graph.num_edges - self.store.num_edges


def find_in_template(store: PartitionedGraph, elements: Sequence[Elements], graph: Graph) -> Found:
    """Look up the vertices and edges of a graph.

    Raises
    ------
    InputError
        The labels are of another type.
    """
    labels, wanted = store.labels(), graph.label_column()
    if len(labels) and len(wanted) and labels.type != wanted.type:
        raise InputError(f"the vertex labels are {wanted.type}, and those of the graph {labels.type}")
    same = wanted.cast(labels.type) if len(labels) else wanted
    numbers = pc.index_in(same, value_set=labels if len(labels) else wanted[:0]).fill_null(-1)
    vertices = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
    source, target, _, _ = graph.edge_columns()
    first, second, edges = vertices[source], vertices[target], np.full(source.size, -1)
    if not store.info.directed:
        # of parallel edges, the row of the smaller end has the first one first
        original = store.vertex_ids()
        first, second = (
            _ordered(first, second, original[first] > original[second]) if original.size else (first, second)
        )
    known = np.flatnonzero((first >= 0) & (second >= 0))
    for part, chosen in _by_partition(store, first[known]):
        some, arcs = known[chosen], np.empty(chosen.size, np.int64)
        merge_kernels.find_arcs(
            _rows(part, part.out_arcs), part.out_arcs.remote_vertex, part.vertex_start,
            first[some] - part.vertex_start, second[some], arcs,
        )  # fmt: skip
        there, rows = np.flatnonzero(arcs >= 0), elements[part.partition]
        edges[some[there]] = rows.edge_id[rows.edge_row[arcs[there]]]
    return Found(vertices, edges)


class _Grown(NamedTuple):
    """Numbers in a template that has grown.

    Attributes
    ----------
    order : shape (n,)
        Original number of each vertex by partitioned number.
    moved : shape (earlier vertices,)
        Partitioned number of each vertex by the one that it had.
    subgraph : shape (n,)
        Of each vertex by partitioned number.
    offsets : int64, shape (subgraphs + 1,)
        First partitioned number of each subgraph.
    starts : int64, shape (partitions + 1,)
        First subgraph of each partition.
    home : shape (earlier subgraphs,)
        Which one each subgraph has become, or has become part of.
    edges : int64, shape (earlier edges,)
        Number of each edge by the one that it had.
    num_edges : int
    """

    order: NDArray[np.integer[Any]]
    moved: NDArray[np.integer[Any]]
    subgraph: _Numbers
    offsets: _Numbers
    starts: _Numbers
    home: _Numbers
    edges: _Numbers
    num_edges: int


class _Arcs(NamedTuple):
    """New arcs of a direction: partitioned numbers of both ends, the edge, and its number among the new ones."""

    near: _Numbers
    far: _Numbers
    edge: _Numbers
    row: _Numbers

    def of(self, start: int, stop: int) -> _Arcs:
        """Those of a range of vertices."""
        chosen = np.flatnonzero((self.near >= start) & (self.near < stop))
        return _Arcs(*(column[chosen] for column in self))


class _New(NamedTuple):
    """What is added to a template.

    Attributes
    ----------
    directions : list of _Arcs
        The arcs out, and in a directed graph those in.
    weights : float64 array or None
        Of the new edges.
    vertices : int64 array
        Partitioned numbers of the new vertices.
    labels : pyarrow.Array
        Their labels.
    implicit : bool
        All labels are the numbers of the vertices.
    """

    directions: list[_Arcs]
    weights: NDArray[np.float64] | None
    vertices: _Numbers
    labels: pa.Array
    implicit: bool


def grown_template(
    store: PartitionedGraph, elements: Sequence[Elements], graph: Graph, found: Found, owner: NDArray[np.int32]
) -> Growth:
    """Add the vertices and edges of a graph that a template does not have.

    Parameters
    ----------
    elements : sequence of Elements
        Of every partition of the store.
    found : Found
        Of `find_in_template`.
    owner : int32, shape (n,)
        Partition of each vertex of `graph`.

    Notes
    -----
    New vertices are numbered in the order of the labels if those of the store ascend, else after all others. The layout
    is that of the whole graph cut by the owners at once. Subgraphs that were split stay apart; vertices next to them
    join one of them.
    """
    original, fresh = store.vertex_ids().astype(np.int64), np.flatnonzero(found.vertices < 0)
    labels = graph.label_column().take(pa.array(fresh))
    before, implicit = _places_of_labels(store, labels)
    labels = labels.cast(store.labels().type) if original.size else labels
    # what comes before in the order of reading moves everything after it, and nothing else
    number = np.arange(original.size) + _shift(before, original.size)
    ends, earlier = np.empty(graph.num_vertices, np.int64), np.empty(graph.num_vertices, np.int64)
    there = np.flatnonzero(found.vertices >= 0)
    earlier[there], earlier[fresh] = original[found.vertices[there]], before
    ends[there], ends[fresh] = number[earlier[there]], before + np.arange(fresh.size)

    kept = np.flatnonzero(found.edges < 0)
    source, target, weights, _ = graph.edge_columns()
    u, v = source[kept], target[kept]
    if not store.info.directed:
        u, v = _ordered(u, v, ends[u] > ends[v])
    order = np.lexsort((ends[v], ends[u]))
    kept, u, v = kept[order], u[order], v[order]
    place = _places_of_edges(store, original, found.vertices[u], earlier[u], earlier[v])
    edge = place + np.arange(place.size)
    edges = np.arange(store.num_edges) + _shift(place, store.num_edges)

    sizes = np.concatenate([np.diff(part.subgraph_offsets) for part in store.slices()])
    now = number[original]
    home, starts = _subgraphs(store, now[np.cumsum(sizes) - sizes], found.vertices, owner, ends, (u, v))
    count = original.size + fresh.size
    kind = vertex_dtype(count)
    subgraph = np.empty(count, kind)
    subgraph[now], subgraph[ends[fresh]] = np.repeat(home[: sizes.size], sizes), home[sizes.size :]
    totals = np.bincount(subgraph, minlength=int(starts[-1]))
    offsets = np.concatenate(([0], np.cumsum(totals, dtype=np.int64)))
    by_number, rank = np.empty(count, kind), np.empty(count, kind)
    counting_order(subgraph, offsets[:-1].copy(), by_number, rank)
    grown = _Grown(
        by_number, rank[now], np.repeat(np.arange(totals.size), totals), offsets, starts, home[: sizes.size], edges,
        store.num_edges + kept.size,
    )  # fmt: skip
    first, second, row = rank[ends[u]].astype(np.int64), rank[ends[v]].astype(np.int64), np.arange(kept.size)
    if store.info.directed:
        directions = [_Arcs(first, second, edge, row), _Arcs(second, first, edge, row)]
    else:
        back = np.flatnonzero(first != second)
        pairs = ((first, second), (second, first), (edge, edge), (row, row))
        directions = [_Arcs(*(np.concatenate((one, other[back])) for one, other in pairs))]
    added = None
    if store.info.weighted:
        added = np.empty(0) if weights is None else weights[kept]
    new = _New(directions, added, rank[ends[fresh]].astype(np.int64), labels, implicit)
    made = [_grown_part(part, elements[part.partition], grown, new, store) for part in store.slices()]
    slices = [part for part, _ in made]
    numbers = found.edges.copy()
    numbers[found.edges >= 0] = edges[found.edges[found.edges >= 0]]
    numbers[kept] = edge
    kind_of_labels = store.info.label_type if store.info.label_type != "implicit" else str(labels.type)
    info = _info(store, slices, grown.num_edges, "implicit" if implicit else kind_of_labels)
    return Growth(PartitionedGraph(info, slices.__getitem__), [rows for _, rows in made], ends, numbers, store)


def _rows(part: Slice, arcs: Arcs) -> Rows:
    return Rows(arcs.offsets, arcs.targets, arcs.remote_offsets, part.subgraph_offsets)


def _ordered(first: Any, second: Any, swapped: NDArray[np.bool_]) -> tuple[Any, Any]:
    return np.where(swapped, second, first), np.where(swapped, first, second)


def _shift(places: _Numbers, count: int) -> _Numbers:
    """How far each of some numbers moves when others are put before those at `places`."""
    return np.cumsum(np.bincount(places, minlength=count + 1))[:count]


def _by_partition(store: PartitionedGraph, vertices: _Numbers) -> Iterator[tuple[Slice, _Numbers]]:
    """Slices, and which of some partitioned numbers are theirs."""
    home = np.searchsorted(store.vertex_starts, vertices, side="right") - 1
    for partition in np.unique(home).tolist():
        yield store.slice(partition), np.flatnonzero(home == partition)


def _places_of_labels(store: PartitionedGraph, labels: pa.Array) -> tuple[_Numbers, bool]:
    """How many vertices of the store come before each of some new labels, and whether labels are numbers then."""
    there, count = store.num_vertices, store.num_vertices + len(labels)
    if not len(labels):
        return np.empty(0, np.int64), store.info.label_type == "implicit"
    known = store.labels_by_number() if there else labels[:0]
    if pc.any(pc.less(known[1:], known[:-1])).as_py():
        return np.full(len(labels), there), False
    if pa.types.is_integer(labels.type):
        old, new = known.to_numpy(), labels.to_numpy()
        ends = np.concatenate((old[:1], new[:1])).min(), np.concatenate((old[-1:], new[-1:])).max()
        return np.searchsorted(old, new), ends == (0, count - 1)
    order = pc.sort_indices(pa.concat_arrays([known, labels.cast(known.type)])).to_numpy()
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    return place[there:] - np.arange(len(labels)), False


def _places_of_edges(
    store: PartitionedGraph, original: _Numbers, sources: _Numbers, first: _Numbers, second: _Numbers
) -> _Numbers:
    """How many edges of the store come before each of some new ones.

    `sources` are the partitioned numbers of their first ends (-1: new); `first` and `second` how many vertices of the
    store come before their ends.
    """
    directed, counts = store.info.directed, np.zeros(original.size + 1, np.int64)
    for part in store.slices():
        arcs = part.out_arcs
        merge_kernels.count_edges(_rows(part, arcs), arcs.remote_vertex, part.vertex_start, original, directed, counts)
    place = (np.cumsum(counts) - counts)[first]
    known = np.flatnonzero(sources >= 0)
    for part, chosen in _by_partition(store, sources[known]):
        some, more = known[chosen], np.empty(chosen.size, np.int64)
        merge_kernels.count_edges_before(
            _rows(part, part.out_arcs), part.out_arcs.remote_vertex, part.vertex_start, original, directed,
            sources[some] - part.vertex_start, second[some], more,
        )  # fmt: skip
        place[some] += more
    return place


def _subgraphs(
    store: PartitionedGraph,
    smallest: _Numbers,
    vertices: _Numbers,
    owner: NDArray[np.int32],
    ends: _Numbers,
    edges: tuple[NDArray[Any], NDArray[Any]],
) -> tuple[_Numbers, _Numbers]:
    """The subgraph that each earlier one and each new vertex belongs to, and the first one of each partition.

    The graph of earlier subgraphs and new vertices is cut, in the order of their `smallest` vertices. `vertices`,
    `owner` and `ends` (original numbers) are those of the vertices of the graph that is added, `edges` its new edges.
    """
    info, there, fresh = store.info, smallest.size, np.flatnonzero(vertices < 0)
    order = np.argsort(np.concatenate((smallest, ends[fresh])))
    node = np.empty_like(order)
    node[order] = np.arange(order.size)
    part = np.concatenate((np.repeat(np.arange(info.num_partitions), info.subgraphs), owner[fresh])).astype(np.int32)
    index = np.empty(vertices.size, np.int64)
    known = np.flatnonzero(vertices >= 0)
    starts = np.concatenate([one.vertex_start + one.subgraph_offsets[:-1] for one in store.slices()])
    index[known] = np.searchsorted(starts, vertices[known], side="right") - 1
    index[fresh] = there + np.arange(fresh.size)
    first, second = (index[side] for side in edges)
    cells = None
    if "split" in info.partitioner:
        cell = np.concatenate((1 + np.arange(there), np.full(fresh.size, there + 1)))
        for near, far in ((first, second), (second, first)):
            joins = np.flatnonzero((near >= there) & (far < there) & (part[near] == part[far]))
            np.minimum.at(cell, near[joins], 1 + far[joins])
        cells = np.where(cell > there, 0, cell)[order]
    graph = from_edges(
        node[first], node[second], directed=info.directed, labels=np.arange(order.size), parallel="first"
    )  # fmt: skip
    finder: Any = info.finder
    _, rank, offsets, firsts = number_by_owner(graph, part[order], info.num_partitions, finder=finder, cells=cells)
    subgraph = np.searchsorted(offsets, rank, side="right") - 1
    return subgraph[node], firsts


class _Place(NamedTuple):
    """A partition of a template that has grown.

    Attributes
    ----------
    part : Slice
        The partition so far.
    first, last, start, stop : int
        Subgraphs and vertices.
    home : int64 array
        Which of its subgraphs each earlier one is part of.
    now, before : int64 arrays
        Local number of each earlier vertex, and which one each vertex was, or -1.
    added : list of _Arcs
        New arcs at its vertices.
    """

    part: Slice
    first: int
    last: int
    start: int
    stop: int
    home: _Numbers
    now: _Numbers
    before: _Numbers
    added: list[_Arcs]

    @classmethod
    def of(cls, part: Slice, grown: _Grown, new: _New) -> _Place:
        first, last = (int(x) for x in grown.starts[part.partition : part.partition + 2])
        start, stop = int(grown.offsets[first]), int(grown.offsets[last])
        now = grown.moved[part.vertex_start : part.vertex_start + part.num_vertices].astype(np.int64) - start
        before = np.full(stop - start, -1)
        before[now] = np.arange(now.size)
        home = grown.home[part.subgraph_start : part.subgraph_start + part.num_subgraphs] - first
        return cls(part, first, last, start, stop, home, now, before, [one.of(start, stop) for one in new.directions])


def _grown_part(
    part: Slice, before: Elements, grown: _Grown, new: _New, store: PartitionedGraph
) -> tuple[Slice, Elements]:
    """Slice and rows of a partition."""
    here = _Place.of(part, grown, new)
    sides = zip((part.out_arcs, part.in_arcs), here.added, strict=False)
    merged = [_merged_arcs(arcs, added, here, grown) for arcs, added in sides]
    arcs, arcs_from = [one for one, _ in merged], [one for _, one in merged]
    ids = grown.order[here.start : here.stop].copy()
    columns: dict[str, Any] = {"label": ids if new.implicit else _labels(here, new)}
    if new.weights is not None:
        for name, added, chosen in zip(("weight", "in_weight"), here.added, arcs_from, strict=False):
            columns[name] = np.concatenate((part.column(name), new.weights[added.row]))[chosen]
            freeze(columns[name])
        columns.setdefault("in_weight", columns["weight"])
    kept = pa.array(here.before, mask=here.before < 0)
    for name in store.info.vertex_schema:
        columns[f"vertex.{name}"] = part.column(f"vertex.{name}").take(kept)
    if store.info.edge_schema:
        given_ids = grown.edges[np.asarray(part.column("edge_id"))]
        touching, place = _merged(given_ids, distinct(np.concatenate([one.edge for one in here.added])))
        rows = (place[part.column("edge_row")], np.searchsorted(touching, here.added[0].edge))
        columns["edge_id"], columns["edge_row"] = touching, np.concatenate(rows)[arcs_from[0]]
        row = np.full(touching.size, -1)
        row[place[: given_ids.size]] = np.arange(given_ids.size)
        for name in store.info.edge_schema:
            columns[f"edge.{name}"] = part.column(f"edge.{name}").take(pa.array(row, mask=row < 0))
    made = Slice(
        part.partition, here.start, here.first, part.directed, part.weighted,
        grown.offsets[here.first : here.last + 1] - here.start, arcs[0], arcs[-1], *_merged_neighbors(here, grown), ids,
        lambda name: column_of(columns, name),
    )  # fmt: skip
    return made, _grown_elements(before, made, here, grown, arcs_from)


def _labels(here: _Place, new: _New) -> pa.Array:
    mine = np.flatnonzero((new.vertices >= here.start) & (new.vertices < here.stop))
    row = here.before.copy()
    row[new.vertices[mine] - here.start] = here.now.size + np.arange(mine.size)
    some = new.labels.take(pa.array(mine))
    return (pa.concat_arrays([here.part.labels(), some]) if here.now.size else some).take(pa.array(row))


def _merged(first: _Numbers, more: NDArray[np.integer[Any]]) -> tuple[_Numbers, NDArray[np.integer[Any]]]:
    """Distinct numbers, ascending, and the place of each; fast where `first` consists of few ascending runs."""
    every = np.concatenate((first, more))
    order = np.argsort(every, kind="stable")
    place = np.empty(order.size, vertex_dtype(order.size))
    place[order] = np.arange(order.size, dtype=place.dtype)
    return every[order], place


def _merged_arcs(arcs: Arcs, added: _Arcs, here: _Place, grown: _Grown) -> tuple[Arcs, _Numbers]:
    """Arcs of a direction, and which earlier one each is; new ones are counted from the last of these on."""
    count, subgraphs = grown.order.size, here.last - here.first
    subgraph = grown.subgraph[added.near]
    remote = grown.subgraph[added.far] != subgraph
    keys = np.concatenate((
        np.repeat(here.home, np.diff(arcs.remote_offsets)) * count + grown.moved[arcs.remote_vertex],
        (subgraph[remote] - here.first) * count + added.far[remote],
    ))  # fmt: skip
    order = np.argsort(keys, kind="stable")
    opens = np.diff(keys[order], prepend=-1) != 0
    table, row = keys[order][opens], np.empty_like(order)
    row[order] = np.cumsum(opens) - 1
    remote_offsets = np.searchsorted(table, np.arange(subgraphs + 1) * count)
    row -= remote_offsets[keys // max(count, 1)]
    place = added.far - grown.offsets[subgraph]
    place[remote] = merge_kernels.REMOTE + row[arcs.remote_vertex.size :]
    order = np.lexsort((place, added.near))
    limits = np.searchsorted(added.near[order], np.arange(here.start, here.stop + 1))
    total = arcs.targets.size + order.size
    offsets, targets = np.zeros(here.before.size + 1, np.int64), np.empty(total, np.int32)
    came = np.empty(total, np.int64)
    merge_kernels.merge_rows(
        _rows(here.part, arcs),
        merge_kernels.Moved(grown.offsets[here.first : here.last + 1] - here.start, here.before, here.now, row),
        merge_kernels.AddedArcs(limits, place[order], arcs.targets.size + order), offsets, targets, came,
    )  # fmt: skip
    vertex = (table % max(count, 1)).astype(vertex_dtype(count))
    return Arcs(offsets, targets, remote_offsets, vertex, grown.subgraph[vertex]), came


def _merged_neighbors(here: _Place, grown: _Grown) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Rows of the quotient graph."""
    part, total = here.part, grown.offsets.size - 1
    near, far = (np.concatenate([grown.subgraph[getattr(one, side)] for one in here.added]) for side in ("near", "far"))
    remote = near != far
    keys = np.concatenate((
        np.repeat(here.home, np.diff(part.neighbor_offsets)) * total + grown.home[part.neighbor_subgraph],
        (near[remote] - here.first) * total + far[remote],
    ))  # fmt: skip
    links = np.concatenate((part.neighbor_links, np.ones(np.count_nonzero(remote), np.int64)))
    order = np.argsort(keys, kind="stable")
    opens = np.flatnonzero(np.diff(keys[order], prepend=-1) != 0)
    pairs = keys[order][opens]
    offsets = np.searchsorted(pairs, np.arange(here.last - here.first + 1) * total)
    return offsets, pairs % max(total, 1), np.add.reduceat(links[order], opens) if opens.size else links


def _grown_elements(before: Elements, part: Slice, here: _Place, grown: _Grown, arcs_from: list[_Numbers]) -> Elements:
    """Rows of a partition."""
    total = max(grown.num_edges, 1)
    keys = np.repeat(here.home, np.diff(before.edge_offsets)) * total + grown.edges[before.edge_id]
    added = [(grown.subgraph[one.near] - here.first) * total + one.edge for one in here.added]
    rows, place = _merged(keys, distinct(np.concatenate(added)))
    given = (before.edge_row, before.in_edge_row)
    edge_rows = [
        np.concatenate((place[old], np.searchsorted(rows, more).astype(place.dtype)))[chosen]
        for old, more, chosen in zip(given, added, arcs_from, strict=False)
    ]
    now: dict[Place, NDArray[Any]] = {"vertex": here.now, "edge": place[: keys.size]}
    count = max(before.num_bins, 1)
    bins = np.full(part.num_subgraphs, count)
    np.minimum.at(bins, here.home, before.bin_of_subgraph)
    bins = np.where(bins == count, np.arange(bins.size) % count, bins)
    offsets = np.searchsorted(rows, np.arange(part.num_subgraphs + 1) * total)
    after = Elements(part.subgraph_offsets, offsets, rows % total, edge_rows[0], edge_rows[-1], bins)
    return replace(after, grown={one: _more_rows(before, after, one, now[one], bins) for one in PLACES})


def _info(store: PartitionedGraph, slices: list[Slice], num_edges: int, label_type: str) -> GraphInfo:
    info, arcs = store.info, sum(part.num_arcs for part in slices)
    links = 0
    for part in slices:
        elsewhere = (part.neighbor_subgraph < part.subgraph_start) | (
            part.neighbor_subgraph >= part.subgraph_start + part.num_subgraphs
        )
        links += int(part.neighbor_links[elsewhere].sum())
    # both ends of a cut edge count it
    cut = links // 2
    share = {"edge_cut": cut, "edge_cut_share": (cut if info.directed else 2 * cut) / max(arcs, 1)}
    return replace(
        info, num_edges=num_edges, vertices=[part.num_vertices for part in slices],
        arcs=[part.num_arcs for part in slices], subgraphs=[part.num_subgraphs for part in slices],
        remote=[int(part.out_arcs.remote_vertex.size) for part in slices], label_type=label_type,
        partitioner={name: share.get(name, value) for name, value in info.partitioner.items()},
    )  # fmt: skip


def _more_rows(
    before: Elements, after: Elements, place: Place, now: NDArray[np.int64], bins: NDArray[np.int64]
) -> StoredRows:
    """Stored rows of one kind; `now`: where each row is, `bins`: of the subgraphs."""
    if place in before.grown:
        row, bin_of_row, widths = before.grown[place]
        row = now[row]
    else:
        row, widths = now, np.array([now.size])
        bin_of_row = np.repeat(before.bin_of_subgraph.astype(np.int32), np.diff(before.offsets(place)))
    fresh = np.ones(after.count(place), np.bool_)
    fresh[now] = False
    rows = np.flatnonzero(fresh)
    subgraph = np.searchsorted(after.offsets(place), rows, side="right") - 1
    more = bins[subgraph].astype(np.int32)
    return StoredRows(np.concatenate((row, rows)), np.concatenate((bin_of_row, more)), np.append(widths, fresh.size))


def check_values(schema: SeriesSchema, instances: int, growth: Growth) -> None:
    """Refuse elements that would lack values in the instances that a series has.

    Raises
    ------
    InputError
        An attribute has no default, and the series does not say which elements exist.
    """
    for place in PLACES:
        more = growth.added(place)
        if not (instances and more) or f"{place}.{EXISTS}" in schema:
            continue
        for attribute in getattr(schema, place):
            if not attribute.has_default:
                elements = "vertices" if place == "vertex" else "edges"
                raise InputError(
                    f"{more:,} new {elements} have no {place}.{attribute.name} in {instances:,} earlier "
                    f"instances: the attribute needs a default, or the series needs {place}.{EXISTS}"
                )
