"""Graphs for the partitioning tests: generators, hypothesis strategies, and the same graph for networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from goffish.graph import Graph, from_edges


def grid(width: int, height: int) -> Graph:
    """Row-major grid of docs/specs/engine.md, section 6."""
    v = np.arange(width * height).reshape(height, width)
    src = np.concatenate([v[:, :-1].ravel(), v[:-1].ravel()])
    dst = np.concatenate([v[:, 1:].ravel(), v[1:].ravel()])
    return from_edges(src, dst)


def edgeless(n: int) -> Graph:
    return from_edges([], [], labels=np.arange(n))


@st.composite
def random_graphs(draw: st.DrawFn, max_vertices: int = 30) -> Graph:
    """Directed or not, weighted or not, disconnected, with loops and parallel edges, even empty."""
    n = draw(st.integers(0, max_vertices))
    m = draw(st.integers(0, 3 * n)) if n else 0
    ends = st.lists(st.integers(0, max(n - 1, 0)), min_size=m, max_size=m)
    src, dst = draw(ends), draw(ends)
    weight = draw(st.lists(st.integers(1, 9), min_size=m, max_size=m)) if draw(st.booleans()) else None
    return from_edges(
        np.array(src, np.int64),
        np.array(dst, np.int64),
        weight,
        directed=draw(st.booleans()),
        labels=np.arange(n),
        self_loops=draw(st.sampled_from(["drop", "keep"])),
        parallel=draw(st.sampled_from(["keep", "sum"])),
    )


def to_networkx(graph: Graph) -> nx.MultiGraph | nx.MultiDiGraph:
    src, dst, weight, _ = graph.edge_columns()
    out = nx.MultiDiGraph() if graph.directed else nx.MultiGraph()
    out.add_nodes_from(range(graph.num_vertices))
    weights = np.ones(src.size) if weight is None else weight
    out.add_weighted_edges_from(zip(src.tolist(), dst.tolist(), weights.tolist(), strict=True))
    return out
