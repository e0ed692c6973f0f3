"""Cut a graph into partition slices: subgraph discovery, renumbering, resolution of remote vertices."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs import kernels
from goffish.gofs.manifest import GraphInfo
from goffish.gofs.partitioned import PartitionedGraph
from goffish.gofs.slices import Arcs, Slice, column_of, distinct, freeze
from goffish.graph import Graph
from goffish.graph.labels import vertex_dtype
from goffish.kernels.subgraphs import local_components

Finder = Literal["components", "single", "vertex"]


def build_layout(
    graph: Graph,
    owner: NDArray[np.integer[Any]],
    parts: int,
    *,
    finder: Finder = "components",
    cells: NDArray[np.integer[Any]] | None = None,
    partitioner: Mapping[str, Any] | None = None,
    threads: int = 2,
) -> PartitionedGraph:
    """Cut `graph` by `owner` into partitions and subgraphs.

    Parameters
    ----------
    graph : Graph
    owner : int array, shape (n,)
        Partition of each vertex, ``0 … parts-1``.
    parts : int
        Number of partitions; some may be empty.
    finder : {"components", "single", "vertex"}
        The unit of computation: weakly connected components of each partition (subgraph-centric), each whole
        partition (partition-centric), or each vertex (vertex-centric).
    cells : int array, shape (n,), optional
        A second cut inside partitions (subgraph splitting): a subgraph never spans two cells.
    partitioner : mapping, optional
        How `owner` was made; kept with the graph.

    Returns
    -------
    PartitionedGraph
        Subgraphs of a partition are numbered by their smallest vertex; vertices of a subgraph keep their order.

    Notes
    -----
    See docs/specs/engine.md, section 2. Cost: O(arcs) plus sorting the distinct remote
    vertices of each subgraph; extra memory 8 bytes per arc, and 12 per vertex and thread.
    """
    n = graph.num_vertices
    owners = np.ascontiguousarray(owner, dtype=np.int32)
    if owners.shape != (n,):
        raise InputError(f"owner has shape {owners.shape}, expected ({n},)")
    if n and (owners.min() < 0 or owners.max() >= parts):
        raise InputError(f"owner must be between 0 and {parts - 1}, found {owners.min()} to {owners.max()}")
    order, rank, subgraph_offsets, subgraph_starts = number_by_owner(graph, owners, parts, finder=finder, cells=cells)
    vertex_starts = subgraph_offsets[subgraph_starts]

    graph.reverse  # noqa: B018 (made once, before the threads ask for it)

    def cut(partition: int) -> Slice:
        return cut_slice(graph, partition, order, rank, subgraph_offsets, subgraph_starts)

    with ThreadPoolExecutor(max(1, threads)) as pool:
        slices = list(pool.map(cut, range(parts)))
    info = GraphInfo(
        directed=graph.directed,
        num_edges=graph.num_edges,
        vertices=np.diff(vertex_starts).tolist(),
        arcs=[s.num_arcs for s in slices],
        subgraphs=np.diff(subgraph_starts).tolist(),
        remote=[int(s.out_arcs.remote_vertex.size) for s in slices],
        weighted=graph.weights is not None,
        label_type="implicit" if graph.labels is None else str(graph.labels.type),
        vertex_schema=_schema(graph.vertex_attributes),
        edge_schema=_schema(graph.edge_attributes),
        partitioner=dict(partitioner or {}),
        finder=finder,
    )
    return PartitionedGraph(info, slices.__getitem__)


def _schema(table: pa.Table | None) -> dict[str, str]:
    return {} if table is None else {f.name: str(f.type) for f in table.schema}


def number_by_owner(
    graph: Graph,
    owner: NDArray[np.int32],
    parts: int,
    *,
    finder: Finder = "components",
    cells: NDArray[np.integer[Any]] | None = None,
) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[np.int64], NDArray[np.int64]]:
    """The partitioned numbering; arguments as for `build_layout`.

    Returns
    -------
    order, rank : int32 or int64, shape (n,)
        The vertex with each partitioned number, and the partitioned number of each vertex.
    subgraph_offsets : int64, shape (subgraphs + 1,)
        First partitioned number of each subgraph.
    subgraph_starts : int64, shape (parts + 1,)
        First subgraph of each partition.
    """
    unit, unit_owner = _units(graph, owner, parts, finder, cells)
    return _renumber(unit, unit_owner, parts, graph.num_vertices)


def _units(
    graph: Graph,
    owner: NDArray[np.int32],
    parts: int,
    finder: Finder,
    cells: NDArray[np.integer[Any]] | None,
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int32]]:
    """Unit of each vertex, numbered by smallest vertex, and the partition of each unit."""
    if finder == "vertex":
        return np.arange(graph.num_vertices, dtype=vertex_dtype(graph.num_vertices)), owner
    if finder == "single":
        present = np.unique(owner)
        compact = np.zeros(parts, np.int32)
        compact[present] = np.arange(present.size)
        return compact[owner], present.astype(np.int32)
    if finder != "components":
        raise InputError(f"finder={finder!r}: choose one of components, single, vertex")
    cell = owner
    if cells is not None:
        pairs = owner.astype(np.int64) * (int(cells.max(initial=0)) + 1) + cells
        cell = np.unique(pairs, return_inverse=True)[1].astype(np.int32)
    unit, count = local_components(graph.offsets, graph.targets, cell, symmetric=not graph.directed)
    unit_owner = np.empty(count, np.int32)
    unit_owner[unit] = owner
    return unit, unit_owner


def _renumber(
    unit: NDArray[np.integer[Any]], unit_owner: NDArray[np.int32], parts: int, n: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[np.int64], NDArray[np.int64]]:
    by_owner = np.argsort(unit_owner, kind="stable")
    subgraph_of_unit = np.empty(by_owner.size, vertex_dtype(n))
    subgraph_of_unit[by_owner] = np.arange(by_owner.size)
    subgraph = subgraph_of_unit[unit]
    sizes = np.bincount(subgraph, minlength=by_owner.size)
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    starts = np.searchsorted(unit_owner[by_owner], np.arange(parts + 1)).astype(np.int64)
    order, rank = np.empty(n, vertex_dtype(n)), np.empty(n, vertex_dtype(n))
    kernels.counting_order(subgraph, offsets[:-1].copy(), order, rank)
    return order, rank, offsets, starts


def _cut_arcs(
    graph: Graph,
    order: NDArray[Any],
    rank: NDArray[Any],
    subgraph_offsets: NDArray[np.int64],
    first: int,
    last: int,
) -> tuple[Arcs, NDArray[np.int64], NDArray[np.int64]]:
    n = graph.num_vertices
    mark = np.full(n, -1, np.int64)
    remote_offsets = np.zeros(last - first + 1, np.int64)
    numbering = kernels.Numbering(order, rank, subgraph_offsets)
    arcs = kernels.slice_sizes(graph.offsets, graph.targets, numbering, first, last, mark, remote_offsets)
    mark.fill(-1)
    remote_vertex = np.empty(int(remote_offsets[-1]), vertex_dtype(n))
    remote_links = np.zeros(remote_vertex.size, np.int64)
    offsets = np.zeros(int(subgraph_offsets[last] - subgraph_offsets[first]) + 1, np.int64)
    targets, arc_ids = np.empty(arcs, np.int32), np.empty(arcs, np.int64)
    remote = kernels.RemoteTable(remote_offsets, remote_vertex, remote_links)
    kernels.fill_slice(graph.offsets, graph.targets, numbering, first, last, mark, remote, offsets, targets, arc_ids)
    remote_subgraph = np.searchsorted(subgraph_offsets, remote_vertex, side="right").astype(np.int64) - 1
    return (
        Arcs(offsets, targets, remote_offsets, remote_vertex, remote_subgraph),
        remote_links,
        arc_ids,
    )


def cut_slice(
    graph: Graph,
    partition: int,
    order: NDArray[Any],
    rank: NDArray[Any],
    subgraph_offsets: NDArray[np.int64],
    subgraph_starts: NDArray[np.int64],
) -> Slice:
    """The slice of one partition, from a numbering as `number_by_owner` gives it."""
    first, last = int(subgraph_starts[partition]), int(subgraph_starts[partition + 1])
    out_arcs, out_links, arc_ids = _cut_arcs(graph, order, rank, subgraph_offsets, first, last)
    in_arcs, in_links, in_ids = out_arcs, out_links, arc_ids
    if graph.directed:
        in_arcs, in_links, in_ids = _cut_arcs(graph.reverse, order, rank, subgraph_offsets, first, last)
    start, stop = int(subgraph_offsets[first]), int(subgraph_offsets[last])
    neighbors = _neighbors([out_arcs, in_arcs] if graph.directed else [out_arcs],
                           [out_links, in_links], last - first)  # fmt: skip
    vertex_ids = order[start:stop].copy()
    columns: dict[str, Any] = {"label": vertex_ids if graph.labels is None else graph.labels.take(pa.array(vertex_ids))}
    if graph.weights is not None:
        columns["weight"] = graph.weights[arc_ids]
        reverse = graph.reverse.weights
        assert reverse is not None
        columns["in_weight"] = reverse[in_ids] if graph.directed else columns["weight"]
        freeze(columns["weight"], columns["in_weight"])
    for name in _schema(graph.vertex_attributes):
        assert graph.vertex_attributes is not None
        columns[f"vertex.{name}"] = graph.vertex_attributes.column(name).take(pa.array(vertex_ids))
    if graph.edge_attributes is not None and graph.edge_of_arc is not None:
        edge_of_in = graph.reverse.edge_of_arc
        assert edge_of_in is not None
        touching = distinct(np.concatenate((graph.edge_of_arc[arc_ids], edge_of_in[in_ids])))
        columns["edge_id"] = touching
        columns["edge_row"] = np.searchsorted(touching, graph.edge_of_arc[arc_ids])
        for name in graph.edge_attributes.column_names:
            columns[f"edge.{name}"] = graph.edge_attributes.column(name).take(pa.array(touching))
    return Slice(
        partition, start, first, graph.directed, graph.weights is not None,
        subgraph_offsets[first : last + 1] - start, out_arcs, in_arcs, *neighbors, vertex_ids,
        lambda name: column_of(columns, name),
    )  # fmt: skip


def _neighbors(
    directions: list[Arcs], links: list[NDArray[np.int64]], subgraphs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the quotient graph from the remote tables of one or both directions."""
    here = np.concatenate([np.repeat(np.arange(subgraphs), np.diff(a.remote_offsets)) for a in directions])
    there = np.concatenate([a.remote_subgraph for a in directions])
    count = np.concatenate(links[: len(directions)])
    if len(directions) > 1:
        both = np.lexsort((there, here))
        here, there, count = here[both], there[both], count[both]
    if not here.size:
        return np.zeros(subgraphs + 1, np.int64), there, count
    new = np.flatnonzero(np.concatenate(([True], (here[1:] != here[:-1]) | (there[1:] != there[:-1]))))
    offsets = np.searchsorted(here[new], np.arange(subgraphs + 1)).astype(np.int64)
    return offsets, there[new], np.add.reduceat(count, new)
