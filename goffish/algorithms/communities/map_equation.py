"""The map equation: how many bits a step of a random walk takes, given the communities it moves between.

Flows along arcs are the weights of a graph that `flow_graph` makes, in any unit: of an undirected graph they are its
weights. With what enters, leaves and flows through every community, and the flow through every vertex, the length is
``(f(Σ enter) - Σ f(enter) - Σ f(leave) + Σ f(leave + through) - Σ_v f(flow)) / Σ_v flow`` where ``f(x) = x log2 x``:
the logarithms of the unit cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.communities import flow_kernels as kernels
from goffish.algorithms.communities.divisions import GRAPH_IN_MEMORY, id_column, normalise
from goffish.algorithms.communities.levels import Labels, Level, from_graph
from goffish.algorithms.pagerank.in_memory import rank_of
from goffish.algorithms.weights import LEAST, check_range
from goffish.graph import Graph
from goffish.graph.guards import expect

#: Counts of arcs up to which ``x log2 x`` is looked up; the table stays in the first cache.
_TABLE = 1 << 11
#: L1 error of the flows through vertices of a directed graph.
_FLOW_ERROR = 1e-9


def flow_graph(graph: Graph, damping: float, threads: int | None) -> Graph:
    """The graph with flows along arcs as weights.

    In an undirected graph these are its weights. In a directed one a walker follows arcs by their weights and, with
    probability ``1 - damping`` and from vertices without arcs, goes to a vertex drawn by the weight of its arcs. Steps
    along arcs are what is recorded (unrecorded teleportation, Lambiotte and Rosvall 2012).
    """
    if not graph.directed:
        return graph
    check_range(graph.weights)
    sources, n = graph.arc_sources(), graph.num_vertices
    weights = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    strength = np.bincount(sources, weights, minlength=n)
    total = float(strength.sum())
    if total == 0.0:
        return graph
    rank = rank_of(
        graph, damping=damping, tolerance=_FLOW_ERROR, weighted=graph.weights is not None, teleport=strength / total,
        threads=threads,
    ).rank  # fmt: skip
    out = np.divide(rank, strength, out=np.zeros(n), where=strength > 0.0)
    flows = out[sources] * weights
    flows[flows < LEAST] = 0.0
    return replace(graph, weights=flows)


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows between and through the vertices of a graph, and what of the code length does not depend on communities.

    Attributes
    ----------
    level : Level
        Flows along arcs; see `flow_graph`.
    table : float64
        ``x log2 x`` of small counts; empty where flows are no counts.
    total : float
        Sum of the flows through vertices.
    vertex_bits : float
        Sum of ``x log2 x`` of these flows.
    """

    level: Level
    table: NDArray[np.float64]
    total: float
    vertex_bits: float

    def code_length(self, labels: Labels) -> float:
        """Bits per step with the communities `labels`, numbers below n."""
        if self.total == 0.0:
            return 0.0
        _, values, entering = self.modules(self.level, labels)
        bits = float(kernels.sum_bits(np.array([entering]), self.table)) + float(values.sum()) - self.vertex_bits
        return max(bits / self.total, 0.0)

    def modules(self, level: Level, labels: Labels) -> tuple[NDArray[Any], NDArray[np.float64], Any]:
        """Flows of every community, what each adds to the code, and the flow that enters them, on a collapsed level."""
        n = level.num_vertices
        modules, values = np.empty(4 * n, level.degree.dtype), np.empty(n)
        entering = kernels.sum_modules(level.parts, labels, modules, self.table, values)
        return modules, values, level.degree.dtype.type(entering)


def flows_of(graph: Graph, damping: float = 0.85, threads: int | None = None) -> Flows:
    """The flows of a graph."""
    level = from_graph(flow_graph(graph, damping, threads))
    table = np.zeros(_TABLE if level.degree.dtype.kind == "i" else 0)
    kernels.fill_table(table)
    flow = level.in_degree if level.in_degree.size else level.degree
    total = float(flow.sum(dtype=np.float64))
    return Flows(level, table, total, float(kernels.sum_bits(flow, table)))


def codelength(graph: Graph, membership: ArrayLike, damping: float = 0.85) -> float:
    """Bits per step of a division; see `goffish.codelength`, whose options these are, already checked."""
    expect(graph, Graph, "graph", GRAPH_IN_MEMORY)
    column = id_column(membership, graph.num_vertices, "membership")
    flows = flows_of(graph, damping)
    return flows.code_length(normalise(column).astype(flows.level.targets.dtype))
