"""Random partitioned graphs for property tests: the families of docs/specs/engine.md, section 6."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import work
from goffish.graph import Graph, from_edges

FAMILIES = ("grid", "random", "preferential", "tree", "small-world", "directed")


@dataclass(frozen=True)
class Case:
    """A graph in networkx and in GoFFish, cut into `k` partitions; vertex labels are 0 … n-1."""

    name: str
    nx: nx.Graph | nx.DiGraph
    graph: Graph
    owner: np.ndarray
    k: int

    def layout(self, finder: str = "components") -> PartitionedGraph:
        return build_layout(self.graph, self.owner, self.k, finder=finder)

    def __repr__(self) -> str:
        return f"Case({self.name}, n={self.graph.num_vertices}, m={self.graph.num_edges}, k={self.k})"


@contextmanager
def no_graph_is_small() -> Iterator[None]:
    """The engine's threads work however little there is to do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "SMALL", -1)
        yield


def make_graph(family: str, n: int, seed: int) -> nx.Graph | nx.DiGraph:
    rng = np.random.default_rng(seed)
    if family == "grid":
        width = 1 + n // 4
        return nx.convert_node_labels_to_integers(nx.grid_2d_graph(max(1, n // width), width))
    if family == "random":
        return nx.gnm_random_graph(n, int(rng.integers(0, 2 * n + 1)), seed=seed)
    if family == "preferential":
        return nx.barabasi_albert_graph(max(n, 3), 2, seed=seed)
    if family == "tree":
        graph = nx.Graph()
        graph.add_nodes_from(range(n))
        graph.add_edges_from((v, int(rng.integers(0, v))) for v in range(1, n))
        return graph
    if family == "small-world":
        return nx.watts_strogatz_graph(max(n, 5), 4, 0.2, seed=seed)
    return nx.gnm_random_graph(n, int(rng.integers(0, 3 * n + 1)), seed=seed, directed=True)


def region_grown(graph: nx.Graph | nx.DiGraph, k: int, seed: int) -> np.ndarray:
    """Partitions grown breadth first from k random vertices; what they do not reach goes anywhere."""
    rng = np.random.default_rng(seed)
    n = graph.number_of_nodes()
    owner = np.full(n, -1)
    undirected = graph.to_undirected(as_view=True)
    queue = [(int(v), p) for p, v in enumerate(rng.permutation(n)[:k])]
    for v, p in queue:
        if owner[v] < 0:
            owner[v] = p
            queue.extend((w, p) for w in undirected.neighbors(v) if owner[w] < 0)
    owner[owner < 0] = rng.integers(0, k, int((owner < 0).sum()))
    return owner


def make_case(family: str, n: int, k: int, seed: int, *, grown: bool, weights: str) -> Case:
    G = make_graph(family, n, seed)
    rng = np.random.default_rng(seed + 1)
    n = G.number_of_nodes()
    for u, v in G.edges:
        G.edges[u, v]["weight"] = float(rng.integers(0, 10)) if weights == "integer" else float(rng.random())
    edges = list(G.edges(data="weight"))
    src, dst, weight = (list(c) for c in zip(*edges, strict=True)) if edges else ([], [], [])
    graph = from_edges(
        np.array(src, np.int64), np.array(dst, np.int64), np.array(weight, float),
        directed=G.is_directed(), labels=np.arange(n),
    )  # fmt: skip
    owner = region_grown(G, k, seed) if grown else rng.integers(0, k, n)
    return Case(f"{family} seed={seed} grown={grown} weights={weights}", G, graph, owner.astype(np.int32), k)


@st.composite
def cases(draw: st.DrawFn, families: tuple[str, ...] = FAMILIES, largest: int = 40) -> Case:
    """Graphs of every family, k from 1 to 6, scattered or region-grown partitions."""
    return make_case(
        draw(st.sampled_from(families)),
        draw(st.integers(1, largest)),
        draw(st.integers(1, 6)),
        draw(st.integers(0, 10_000)),
        grown=draw(st.booleans()),
        weights=draw(st.sampled_from(("integer", "real"))),
    )


def grid(width: int, height: int) -> Graph:
    """Grid with id = row * width + column."""
    ids = np.arange(width * height).reshape(height, width)
    src = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
    dst = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
    return from_edges(src, dst, labels=np.arange(width * height))


def grid_blocks(width: int, height: int, down: int = 3, across: int = 4) -> np.ndarray:
    """Owner of each grid vertex for equal blocks."""
    v = np.arange(width * height)
    return ((v // width) * down // height * across + (v % width) * across // width).astype(np.int32)
