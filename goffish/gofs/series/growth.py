"""Templates that grow: more vertices and edges, while slices with the values of earlier instances stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.layout import build_layout
from goffish.gofs.partitioned import PartitionedGraph
from goffish.gofs.series.model import EXISTS, PLACES, Place, SeriesSchema
from goffish.gofs.series.slices import Elements, StoredRows, find_elements, numbered
from goffish.gofs.slices import Slice
from goffish.graph import Graph


class Growth(NamedTuple):
    """The template that a series has from now on.

    Attributes
    ----------
    graph : PartitionedGraph
        In memory; with the partitions of the store, and its vertices in the same ones.
    template : Graph
        The same graph, with `edge_of_arc`.
    vertices, edges : int64 arrays
        Number in it of each vertex and edge that the store has.
    store : PartitionedGraph
        The template so far.
    """

    graph: PartitionedGraph
    template: Graph
    vertices: NDArray[np.int64]
    edges: NDArray[np.int64]
    store: PartitionedGraph


def grown_template(
    store: PartitionedGraph,
    graph: Graph,
    owner: NDArray[np.int32],
    vertices: NDArray[np.int64],
    edges: NDArray[np.int64],
) -> Growth:
    """Cut a graph that a store's template has become.

    Parameters
    ----------
    owner : int32 array
        Partition of each vertex of `graph`.
    vertices, edges : int64 arrays
        See `Growth`.

    Notes
    -----
    The layout is that of `graph` cut by `owner` at once. Subgraphs that were split stay apart; vertices next to them
    join one of them.
    """
    info = store.info
    cells = _cells(store, graph, owner, vertices) if "split" in info.partitioner else None
    cut = int(np.count_nonzero(np.repeat(owner, np.diff(graph.offsets)) != owner[graph.targets]))
    share = {"edge_cut": cut if graph.directed else cut // 2, "edge_cut_share": cut / max(graph.num_arcs, 1)}
    about = {name: share.get(name, value) for name, value in info.partitioner.items()}
    finder: Any = info.finder
    layout = build_layout(graph, owner, info.num_partitions, finder=finder, cells=cells, partitioner=about)
    return Growth(layout, numbered(graph), vertices, edges, store)


def _cells(
    store: PartitionedGraph, graph: Graph, owner: NDArray[np.int32], vertices: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A number for each subgraph of the store; further vertices have that of a neighbor in their partition, or 0."""
    sizes = np.concatenate([np.diff(part.subgraph_offsets) for part in store.slices()])
    cells = np.zeros(graph.num_vertices, np.int64)
    cells[vertices[store.vertex_ids()]] = np.repeat(1 + np.arange(sizes.size), sizes)
    free, sources = np.full(cells.size, sizes.size + 1), graph.arc_sources()
    for near, far in ((sources, graph.targets), (graph.targets, sources)):
        arcs = np.flatnonzero((cells[near] == 0) & (cells[far] > 0) & (owner[near] == owner[far]))
        np.minimum.at(free, near[arcs], cells[far[arcs]])
    return np.where((cells == 0) & (free <= sizes.size), free, cells)


def grown_elements(before: list[Elements], growth: Growth, bins: int) -> Iterator[Elements]:
    """Rows and bins of every partition of a template that has grown."""
    rank = growth.graph.read_order()
    for part, elements in enumerate(find_elements(growth.graph, growth.template, bins)):
        old, new = growth.store.slice(part), growth.graph.slice(part)
        vertex = rank[growth.vertices[old.vertex_ids]] - new.vertex_start
        yield _grown(before[part], old, elements, new, vertex, growth)


def _grown(
    before: Elements, old: Slice, after: Elements, new: Slice, vertex: NDArray[np.int64], growth: Growth
) -> Elements:
    """Rows of one partition; `vertex`: where each local vertex is now."""
    home = np.searchsorted(new.subgraph_offsets, vertex[old.subgraph_offsets[:-1]], side="right") - 1
    total = growth.template.num_edges
    wanted = np.repeat(home, np.diff(before.edge_offsets)) * total + growth.edges[before.edge_id]
    keys = np.repeat(np.arange(new.num_subgraphs), np.diff(after.edge_offsets)) * total + after.edge_id
    now: dict[Place, NDArray[np.int64]] = {"vertex": vertex, "edge": np.searchsorted(keys, wanted)}
    count = max(before.num_bins, 1)
    bins = np.full(new.num_subgraphs, count)
    np.minimum.at(bins, home, before.bin_of_subgraph)
    bins = np.where(bins == count, np.arange(bins.size) % count, bins)
    return replace(after, bin_of_subgraph=bins, grown={p: _more_rows(before, after, p, now[p], bins) for p in PLACES})


def _more_rows(
    before: Elements, after: Elements, place: Place, now: NDArray[np.int64], bins: NDArray[np.int64]
) -> StoredRows:
    """Stored rows of one kind; `now`: where each row is, `bins`: of the subgraphs."""
    stored = before.grown.get(place)
    if stored is None:
        sizes = np.diff(before.offsets(place))
        stored = StoredRows(np.arange(now.size), np.repeat(before.bin_of_subgraph, sizes), np.array([now.size]))
    fresh = np.ones(after.count(place), np.bool_)
    fresh[now] = False
    rows = np.flatnonzero(fresh)
    subgraph = np.searchsorted(after.offsets(place), rows, side="right") - 1
    return StoredRows(
        np.concatenate((now[stored.row], rows)), np.concatenate((stored.bin, bins[subgraph])),
        np.append(stored.widths, fresh.size),
    )  # fmt: skip


def check_values(schema: SeriesSchema, instances: int, growth: Growth) -> None:
    """Refuse elements that would lack values in the instances that a series has.

    Raises
    ------
    InputError
        An attribute has no default, and the series does not say which elements exist.
    """
    more: dict[Place, int] = {
        "vertex": growth.graph.num_vertices - growth.vertices.size,
        "edge": growth.graph.num_edges - growth.edges.size,
    }
    for place in PLACES:
        if not (instances and more[place]) or f"{place}.{EXISTS}" in schema:
            continue
        for attribute in getattr(schema, place):
            if not attribute.has_default:
                elements = "vertices" if place == "vertex" else "edges"
                raise InputError(
                    f"{more[place]:,} new {elements} have no {place}.{attribute.name} in {instances:,} earlier "
                    f"instances: the attribute needs a default, or the series needs {place}.{EXISTS}"
                )
