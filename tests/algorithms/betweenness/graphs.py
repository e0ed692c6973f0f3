"""Random graphs with what the reductions look for: trees, cut vertices, twins, cliques, chains."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from goffish.algorithms.betweenness import searches
from goffish.graph import Graph, from_edges

FAMILIES = (
    "random", "preferential", "forest", "grid", "lollipop", "cycle-and-star", "multipartite", "cavemen",
    "small-world", "cactus", "subdivided", "cograph",
)  # fmt: skip


def make(family: str, n: int, seed: int, *, directed: bool = False) -> nx.Graph:
    """A graph on 0 … with integer weights from 1 to 10; `directed` drops each direction of an edge now and then."""
    rng = np.random.default_rng(seed)
    G = nx.convert_node_labels_to_integers(_plain(family, n, seed, rng))
    if directed:
        arcs = [(u, v) for u, v in G.to_directed().edges if rng.random() < 0.7]
        nodes = list(G)
        G = nx.DiGraph()
        G.add_nodes_from(nodes)
        G.add_edges_from(arcs)
    for u, v in G.edges:
        G.edges[u, v]["weight"] = float(rng.integers(1, 11))
    return G


def _plain(family: str, n: int, seed: int, rng: np.random.Generator) -> nx.Graph:
    G = nx.Graph()
    G.add_nodes_from(range(n))
    if family == "random":
        return nx.gnm_random_graph(n, int(rng.integers(0, 2 * n + 1)), seed=seed)
    if family == "preferential":
        return nx.barabasi_albert_graph(max(n, 4), int(rng.integers(1, 4)), seed=seed)
    if family == "forest":
        G.add_edges_from((v, int(rng.integers(0, v))) for v in range(1, n) if rng.random() < 0.9)
        return G
    if family == "grid":
        return nx.grid_2d_graph(int(rng.integers(1, 6)), 1 + n // 6)
    if family == "lollipop":
        return nx.lollipop_graph(int(rng.integers(2, 7)), n // 4)
    if family == "cycle-and-star":
        G = nx.disjoint_union(nx.cycle_graph(3 + n // 3), nx.star_graph(n // 3))
        G.add_edge(0, G.number_of_nodes() - 1)
        return G
    if family == "multipartite":
        return nx.complete_multipartite_graph(*rng.integers(1, 4, int(rng.integers(1, 5))).tolist())
    if family == "cavemen":
        return nx.connected_caveman_graph(int(rng.integers(2, 5)), int(rng.integers(2, 6)))
    if family == "small-world":
        return nx.watts_strogatz_graph(max(n, 6), 4, 0.2, seed=seed)
    if family == "cactus":
        while G.number_of_edges() < n:
            ring = [int(rng.integers(0, n)), *(G.number_of_nodes() + np.arange(int(rng.integers(2, 5)))).tolist()]
            nx.add_cycle(G, ring)
        return G
    if family == "subdivided":
        core = nx.gnm_random_graph(3 + n // 6, 3 + n // 3, seed=seed)
        for u, v in core.edges:
            between = (10_000 * (u + 1) + 100 * v + np.arange(int(rng.integers(0, 5)))).tolist()
            nx.add_path(G, [u, *between, v])
        return G
    return nx.random_cograph(3 + n % 2, seed=seed)


def to_graph(G: nx.Graph) -> Graph:
    """The same graph, weighted, with labels 0 … n-1."""
    edges = list(G.edges(data="weight"))
    src, dst, weight = (list(c) for c in zip(*edges, strict=True)) if edges else ([], [], [])
    return from_edges(
        np.array(src, np.int64), np.array(dst, np.int64), np.array(weight, float),
        directed=G.is_directed(), labels=np.arange(G.number_of_nodes()),
    )  # fmt: skip


def cut_small(monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    """Cut even small runs into blocks of about `work` arc visits."""
    for name, value in (("_BLOCK", work), ("_SMALL_BLOCK", 1), ("_PER_VERTEX", 0), ("_BLOCKS", 1)):
        monkeypatch.setattr(searches, name, value)
