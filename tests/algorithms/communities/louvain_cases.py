"""Graphs for the Louvain tests, and modularity by networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.levels import Level
from goffish.algorithms.communities.sequential import LouvainRun
from goffish.graph import Graph, from_edges


def nx_modularity(graph: nx.Graph, label: NDArray[Any], resolution: float = 1.0) -> float:
    """By networkx; 0 for a graph without weight, where networkx divides by zero."""
    if not sum(w for _, _, w in graph.edges(data="weight", default=1)):
        return 0.0
    groups = [set(np.flatnonzero(label == c).tolist()) for c in np.unique(label)]
    return float(nx.community.modularity(graph, groups, weight="weight", resolution=resolution))


def random_graph(n: int, edges: int, seed: int, *, weighted: bool = True, directed: bool = False) -> nx.Graph:
    """Random edges with loops; integer weights, some of them 0."""
    rng = np.random.default_rng(seed)
    found = nx.DiGraph() if directed else nx.Graph()
    found.add_nodes_from(range(n))
    for u, v in rng.integers(0, n, (edges, 2)).tolist():
        found.add_edge(u, v, weight=float(rng.integers(0, 8)) if weighted else 1.0)
    return found


def to_graph(graph: nx.Graph, *, weighted: bool = True) -> Graph:
    edges = list(graph.edges(data="weight", default=1.0))
    src, dst, weight = (list(c) for c in zip(*edges, strict=True)) if edges else ([], [], [])
    return from_edges(
        np.array(src, np.int64), np.array(dst, np.int64), np.array(weight, float) if weighted else None,
        labels=np.arange(graph.number_of_nodes()), self_loops="keep", directed=graph.is_directed(),
    )  # fmt: skip


def to_nx(graph: Graph) -> nx.Graph:
    src, dst, weight, _ = graph.edge_columns()
    found = nx.Graph()
    found.add_nodes_from(range(graph.num_vertices))
    values = np.ones(src.size) if weight is None else weight
    found.add_weighted_edges_from(zip(src.tolist(), dst.tolist(), values.tolist(), strict=True))
    return found


def dense(graph: Level) -> NDArray[np.float64]:
    """The matrix A."""
    n = graph.num_vertices
    found = np.diag(graph.loops if graph.loops.size else np.zeros(n)).astype(float)
    rows = np.repeat(np.arange(n), np.diff(graph.offsets.astype(np.int64)))
    np.add.at(found, (rows, graph.targets), graph.weights if graph.weights.size else 1.0)
    return found


def dense_modularity(matrix: NDArray[np.float64], label: NDArray[Any]) -> float:
    """The sum over ordered pairs, literally."""
    k = matrix.sum(1)
    if not k.sum():
        return 0.0
    same = label[:, None] == label[None, :]
    return float(((matrix - np.outer(k, k) / k.sum()) * same).sum() / k.sum())


def cliques(count: int = 8, size: int = 6) -> Graph:
    """A ring of cliques, neighbours joined by one edge; the optimum is the cliques, Q = 0.8125 for 8 of 6."""
    edges = [(c * size + i, c * size + j) for c in range(count) for i in range(size) for j in range(i)]
    edges += [(c * size, (c * size + size + 1) % (count * size)) for c in range(count)]
    src, dst = np.array(edges).T
    return from_edges(src, dst, labels=np.arange(count * size))


def planted(n: int, mixing: float, sizes: tuple[int, int], degrees: tuple[int, int], seed: int) -> Graph:
    """An LFR-like graph: power-law degrees (exponent 2) and community sizes (exponent 1), configuration model.

    Each vertex has the share `mixing` of its half-edges outside its community. Half-edges are paired at random, inside
    and outside; loops and repeated edges are dropped, which the generator of Lancichinetti et al. rewires instead.
    """
    rng = np.random.default_rng(seed)
    steps = np.arange(degrees[0], degrees[1] + 1)
    degree = rng.choice(steps, n, p=steps**-2.0 / (steps**-2.0).sum())
    spans = np.arange(sizes[0], sizes[1] + 1)
    drawn = rng.choice(spans, n // sizes[0] + 1, p=1.0 / spans / (1.0 / spans).sum())
    community = np.repeat(np.arange(drawn.size), drawn)[:n]
    community = rng.permutation(community)
    inside = np.minimum((degree * (1.0 - mixing) + rng.random(n)).astype(int), sizes[0] - 1)
    halves = np.repeat(np.arange(n), inside)
    halves = halves[np.lexsort((rng.random(halves.size), community[halves]))]
    first = community[halves]
    # Pair neighbours in each community's run; the odd one out is left alone.
    rank = np.arange(halves.size) - np.searchsorted(first, first)
    left = np.flatnonzero((rank[:-1] % 2 == 0) & (first[:-1] == first[1:]))
    outside = rng.permutation(np.repeat(np.arange(n), degree - inside))
    outside = outside[: outside.size // 2 * 2]
    src = np.concatenate((halves[left], outside[::2]))
    dst = np.concatenate((halves[left + 1], outside[1::2]))
    return from_edges(src, dst, labels=np.arange(n))


def lfr(n: int, seed: int) -> Graph:
    """With the parameters of the paper's graphs: mean degree about 7.5, mixing 0.1, communities of 20 to 50."""
    return planted(n, 0.1, (20, 50), (5, 20), seed)


def check_hierarchy(run: LouvainRun, n: int) -> None:
    """Acceptance check 9: contiguous labels on every level, sizes that add up."""
    size = n
    for step in run.maps:
        assert step.shape == (size,)
        size = int(step.max(initial=-1)) + 1
        assert np.array_equal(np.unique(step), np.arange(size))
    assert run.membership.shape == (n,)
    assert np.bincount(run.membership).sum() == n
