"""Quality of an assignment: cut, communication volume, balance, subgraphs, quotient graph."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph import Graph, from_edges
from goffish.graph.guards import GRAPH_ADVICE, expect
from goffish.kernels.subgraphs import local_components
from goffish.partition import kernels
from goffish.partition.links import links

_NO_WEIGHTS = np.empty(0, np.float64)
#: Arcs that the search for the diameter may look at: about a second.
DIAMETER_BUDGET = 200_000_000


@dataclass(frozen=True)
class PartitionQuality:
    """Quality of an assignment. Arrays have one entry per partition, shape (parts,).

    Attributes
    ----------
    parts, vertices, edges : int
        Numbers of the whole graph; an undirected edge counts once.
    edge_cut : int
        Edges whose ends have different owners.
    edge_cut_share : float
        ``edge_cut / edges`` (0 without edges).
    edge_cut_weight : float or None
        Weight of the cut edges, if the graph has weights.
    communication_volume : int
        Sum over all vertices of the number of other partitions among the vertex's neighbors, ignoring directions (METIS
        manual, section 4.1): the values sent when every vertex sends one value to its neighbors.
    max_communication_volume : int
        Largest share of one partition.
    boundary_vertices : int
        Vertices with a neighbor in another partition.
    vertex_balance, arc_balance : float
        Largest partition over the mean: 1 is best, `parts` is worst.
    empty_partitions : int
        Partitions without vertices.
    subgraphs : int
        Connected components of all partitions: the vertices of the quotient graph.
    quotient_edges : int
        Pairs of subgraphs that are joined by at least one edge.
    quotient_diameter : int
        Largest eccentricity in hops inside any component of the quotient graph.
    diameter_exact : bool
        False if `quotient_diameter` is only a lower bound (at least that of a double sweep), because the search
        exceeded its budget.
    part_vertices, part_arcs, part_edges : int64
        Vertices; arcs in their rows; edges with both ends in the partition.
    part_volume, part_boundary, part_subgraphs : int64
        Shares of the partition in `communication_volume`, `boundary_vertices` and `subgraphs`.
    """

    parts: int
    vertices: int
    edges: int
    edge_cut: int
    edge_cut_share: float
    edge_cut_weight: float | None
    communication_volume: int
    max_communication_volume: int
    boundary_vertices: int
    vertex_balance: float
    arc_balance: float
    empty_partitions: int
    subgraphs: int
    quotient_edges: int
    quotient_diameter: int
    diameter_exact: bool
    part_vertices: NDArray[np.int64]
    part_arcs: NDArray[np.int64]
    part_edges: NDArray[np.int64]
    part_volume: NDArray[np.int64]
    part_boundary: NDArray[np.int64]
    part_subgraphs: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Return all measures as plain Python values (arrays as lists), ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}


def quality(
    graph: Graph, owner: NDArray[np.integer[Any]], parts: int, *, diameter_budget: int = DIAMETER_BUDGET
) -> PartitionQuality:
    """Measure the quality of an assignment of vertices to partitions.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    owner : array of int, shape (n,)
        Partition of each vertex, 0 to `parts` - 1, such as `PartitionedGraph.owner`.
    parts : int
        Number of partitions.
    diameter_budget : int
        Maximum number of arcs of the quotient graph to visit for its diameter; beyond it the diameter is a lower bound
        [default: 200,000,000, about a second].

    Returns
    -------
    PartitionQuality
        Edge cut, communication volume, balance, subgraphs and quotient graph, such as ``edge_cut``, ``edge_cut_share``,
        ``communication_volume``, ``vertex_balance``, ``subgraphs`` and ``quotient_diameter``.

    Raises
    ------
    InputError
        If `owner` has the wrong shape or a number outside 0 to `parts` - 1.

    Notes
    -----
    Linear in vertices, arcs and parts, plus the search for the diameter.

    References
    ----------
    F. Takes, W. Kosters, "Determining the diameter of small world networks", CIKM 2011.

    Examples
    --------
    >>> import goffish as gf
    >>> import numpy as np
    >>> found = gf.quality(gf.from_edges([1, 2], [2, 3]), np.array([0, 0, 1]), 2)
    >>> found.edge_cut, found.edge_cut_share
    (1, 0.5)
    """
    expect(graph, Graph, "graph", GRAPH_ADVICE)
    owner = _check_owner(graph, owner, parts)
    component, subgraphs = _subgraphs(graph, owner)
    part_edges, ends, cut_weight = _cut(graph, owner, parts, component)
    part_vertices = np.bincount(owner, minlength=parts)
    part_arcs = np.zeros(parts, np.int64)
    np.add.at(part_arcs, owner, graph.out_degrees)
    part_volume, part_boundary = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    simple = links(graph)
    kernels.volumes(simple.offsets, simple.targets, owner, np.full(parts, -1, np.int64), part_volume, part_boundary)
    home = np.empty(subgraphs, np.int32)
    home[component] = owner
    quotient = _quotient(ends, subgraphs)
    diameter, exact = _diameter(quotient, diameter_budget)
    cut = ends.shape[1]
    return PartitionQuality(
        parts=parts,
        vertices=graph.num_vertices,
        edges=graph.num_edges,
        edge_cut=cut,
        edge_cut_share=cut / graph.num_edges if graph.num_edges else 0.0,
        edge_cut_weight=None if graph.weights is None else cut_weight,
        communication_volume=int(part_volume.sum()),
        max_communication_volume=int(part_volume.max()),
        boundary_vertices=int(part_boundary.sum()),
        vertex_balance=_balance(part_vertices),
        arc_balance=_balance(part_arcs),
        empty_partitions=int(np.count_nonzero(part_vertices == 0)),
        subgraphs=subgraphs,
        quotient_edges=quotient.num_edges,
        quotient_diameter=diameter,
        diameter_exact=exact,
        part_vertices=part_vertices,
        part_arcs=part_arcs,
        part_edges=part_edges,
        part_volume=part_volume,
        part_boundary=part_boundary,
        part_subgraphs=np.bincount(home, minlength=parts),
    )


def _check_owner(graph: Graph, owner: NDArray[np.integer[Any]], parts: int) -> NDArray[np.int32]:
    owner = np.asarray(owner)
    if owner.shape != (graph.num_vertices,) or owner.dtype.kind not in "iu":
        raise InputError(
            f"owner: {owner.dtype} of shape {owner.shape}, expected integers of shape ({graph.num_vertices},)"
        )
    bad = np.flatnonzero((owner < 0) | (owner >= parts))
    if bad.size:
        raise InputError(f"owner: vertex number {bad[0]} has {owner[bad[0]]}; partitions must be from 0 to {parts - 1}")
    return np.ascontiguousarray(owner, dtype=np.int32)


def _subgraphs(graph: Graph, owner: NDArray[np.int32]) -> tuple[NDArray[np.integer[Any]], int]:
    return local_components(graph.offsets, graph.targets, owner, symmetric=not graph.directed)


def _cut(
    graph: Graph, owner: NDArray[np.int32], parts: int, component: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]], float]:
    """Edges inside each part, subgraphs at the ends of each cut edge, weight of the cut."""
    weights = _NO_WEIGHTS if graph.weights is None else graph.weights
    ends = np.empty((2, 0), component.dtype)
    cut_weight = 0.0
    for _ in range(2):  # count, then fill
        part_edges = np.zeros(parts, np.int64)
        cut, cut_weight = kernels.cut_edges(
            graph.offsets, graph.targets, weights, graph.weights is not None, graph.directed, owner,
            part_edges, component, ends,
        )  # fmt: skip
        if cut == ends.shape[1]:
            break
        ends = np.empty((2, int(cut)), component.dtype)
    return part_edges, ends, float(cut_weight)


def _quotient(ends: NDArray[np.integer[Any]], subgraphs: int) -> Graph:
    names = np.arange(subgraphs)
    return from_edges(ends[0], ends[1], np.ones(ends.shape[1]), labels=names, parallel="sum")


def _diameter(quotient: Graph, budget: int) -> tuple[int, bool]:
    n = quotient.num_vertices
    component, count = local_components(quotient.offsets, quotient.targets, np.zeros(n, np.int8), symmetric=True)
    sizes = np.bincount(component, minlength=count)
    largest_first = np.argsort(-sizes, kind="stable")
    place = np.empty(count, np.int64)
    place[largest_first] = np.arange(count)
    members = np.argsort(place[component], kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes[largest_first])])
    best, exact = kernels.largest_eccentricity(quotient.offsets, quotient.targets, members, starts, budget)
    return int(best), bool(exact)


def _balance(sizes: NDArray[np.int64]) -> float:
    mean = sizes.mean()
    return float(sizes.max() / mean) if mean else 1.0
