"""Whole-graph BFS and shortest paths against networkx and scipy."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from goffish.algorithms.paths import in_memory as whole
from goffish.algorithms.paths.in_memory import bfs, distances_from, levels_from, sssp
from goffish.errors import InputError
from goffish.graph import Graph, from_edges

WEIGHTS = st.one_of(st.integers(0, 3), st.sampled_from([0.1, 0.2, 0.3, 1e-139, 1e9, 5e17]))
EDGES = st.integers(0, 12).flatmap(
    lambda n: st.tuples(
        st.just(n + 1), st.lists(st.tuples(st.integers(0, n), st.integers(0, n), WEIGHTS), max_size=35)
    )
)  # fmt: skip


def build(n: int, edges: list[tuple[int, int, float]], directed: bool, weighted: bool) -> Graph:
    src, dst, weight = ([row[k] for row in edges] for k in range(3))
    return from_edges(
        src, dst, weight if weighted else None, labels=np.arange(n), directed=directed,
        self_loops="keep", parallel="keep",
    )  # fmt: skip


def reference(n: int, edges: list[tuple[int, int, float]], directed: bool) -> nx.Graph:
    out = nx.MultiDiGraph() if directed else nx.MultiGraph()
    out.add_nodes_from(range(n))
    out.add_weighted_edges_from(edges)
    return out


def smallest_parents(graph: Graph, distance: np.ndarray) -> dict[int, int]:
    """Smallest strictly nearer vertex with a tight arc, for every vertex that has one."""
    out: dict[int, int] = {}
    weights = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    arcs = zip(graph.arc_sources().tolist(), graph.targets.tolist(), weights.tolist(), strict=True)
    for u, v, w in arcs:
        if distance[u] < distance[v] and distance[u] + w == distance[v] < math.inf:
            out[v] = min(u, out.get(v, u))
    return out


@given(EDGES, st.booleans(), st.booleans())
def test_bfs_equals_networkx(case, directed, upwards):
    """Fails when a level is wrong or a parent is not the smallest; `upwards` forces the search from below."""
    n, edges = case
    graph = build(n, edges, directed, False)
    with pytest.MonkeyPatch.context() as patch:
        if upwards:
            patch.setattr(whole, "_ALPHA", 10**9)
            patch.setattr(whole, "_BETA", 10**9)
        table = bfs(graph, 0).table
    expected = nx.single_source_shortest_path_length(reference(n, edges, directed), 0)
    assert table.column("distance").to_pylist() == [expected.get(v) for v in range(n)]
    parents = smallest_parents(graph, np.array([expected.get(v, math.inf) for v in range(n)]))
    assert table.column("parent").to_pylist() == [parents.get(v) for v in range(n)]


@given(EDGES, st.booleans(), st.booleans())
def test_sssp_equals_networkx(case, directed, weighted):
    """Distances to the last bit; parents re-sum to them, never run in circles, and follow the rule."""
    n, edges = case
    graph = build(n, edges, directed, weighted)
    table = sssp(graph, 0).table
    expected = nx.single_source_dijkstra_path_length(
        reference(n, edges, directed), 0, weight="weight" if weighted else None
    )
    distance = table.column("distance").to_numpy()
    assert distance.tolist() == [expected.get(v, math.inf) for v in range(n)]
    parent = table.column("parent").to_pylist()
    ruled = smallest_parents(graph, distance)
    weights = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    for v in range(n):
        if v == 0 or distance[v] == math.inf:
            assert parent[v] is None
            continue
        if v in ruled:
            assert parent[v] == ruled[v]
        u = parent[v]
        arcs = slice(graph.offsets[u], graph.offsets[u + 1])
        assert distance[v] in distance[u] + weights[arcs][graph.targets[arcs] == v]
        steps, at = 0, v
        while at != 0:
            at, steps = parent[at], steps + 1
            assert steps <= n


@pytest.mark.parametrize("kind", ["must be integers", "uniform", "heavy tail", "mostly zero", "huge"])
def test_large_random_graph_equals_scipy(kind):
    """The buckets wrap round and the heap refills: fails when an entry is lost, early or late."""
    rng = np.random.default_rng(3)
    n, m = 4000, 14_000
    weight = {
        "must be integers": rng.integers(1, 256, m).astype(float),
        "uniform": rng.random(m),
        "heavy tail": rng.pareto(0.3, m),
        "mostly zero": np.where(rng.random(m) < 0.99, 0.0, rng.random(m)),
        "huge": rng.random(m) * 1e139,
    }[kind]
    for directed in (False, True):
        graph = from_edges(rng.integers(0, n, m), rng.integers(0, n, m), weight, labels=np.arange(n), directed=directed)
        if kind == "mostly zero":  # scipy takes a stored zero for no arc
            edges = nx.DiGraph()
            edges.add_weighted_edges_from(
                zip(graph.arc_sources().tolist(), graph.targets.tolist(), graph.weights.tolist(), strict=True)
            )
            lengths = nx.single_source_dijkstra_path_length(edges, 5)
            expected = np.array([lengths.get(v, math.inf) for v in range(n)])
        else:
            matrix = scipy.sparse.csr_array((graph.weights, graph.targets, graph.offsets), shape=(n, n))
            expected = dijkstra(matrix, indices=5)
        assert np.array_equal(distances_from(graph, 5)[0], expected)


def test_bfs_turns_round_on_a_dense_graph():
    """A hub makes the second level nearly everything, which the default thresholds answer from below."""
    rng = np.random.default_rng(6)
    n = 3000
    graph = from_edges(
        np.r_[np.zeros(n - 500, int), rng.integers(0, n, 40_000)],
        np.r_[np.arange(1, n - 499), rng.integers(0, n, 40_000)], labels=np.arange(n),
    )  # fmt: skip
    matrix = scipy.sparse.csr_array((np.ones(graph.num_arcs), graph.targets, graph.offsets), shape=(n, n))
    depth, parent = levels_from(graph, 7)
    expected = dijkstra(matrix, indices=7, unweighted=True)
    assert np.array_equal(np.where(depth < 0, np.inf, depth), expected)
    ruled = smallest_parents(graph, expected)
    assert parent.tolist() == [ruled.get(v, -1) for v in range(n)]


@pytest.mark.slow
def test_sixty_four_bit_targets_give_the_same_answer():
    rng = np.random.default_rng(8)
    graph = from_edges(rng.integers(0, 99, 300), rng.integers(0, 99, 300), rng.random(300))
    for weights in (None, graph.weights):
        args = (graph.offsets, graph.targets, False, graph.num_edges, weights)
        wide = (graph.offsets, graph.targets.astype(np.int64), False, graph.num_edges, weights)
        for one, two in zip(distances_from(Graph(*args), 3), distances_from(Graph(*wide), 3), strict=True):
            assert np.array_equal(one, two)


def test_labels_and_summaries():
    graph = from_edges(["c", "a", "x"], ["a", "b", "y"], [2.0, 3.0, 1.0])
    result = sssp(graph, "c")
    assert result.to_dict() == {"a": 2.0, "b": 5.0, "c": 0.0, "x": math.inf, "y": math.inf}
    assert result.to_dict("parent") == {"a": "c", "b": "a", "c": None, "x": None, "y": None}
    assert result.summary == {"reached": 3, "farthest": 5.0}
    assert sssp(graph, "c", parents=False).table.column_names == ["vertex", "distance"]
    result = bfs(graph, "c")
    assert result.to_dict() == {"a": 1, "b": 2, "c": 0, "x": None, "y": None}
    assert result.to_dict("parent") == {"a": "c", "b": "a", "c": None, "x": None, "y": None}
    assert result.summary == {"reached": 3, "farthest": 2}
    numbers = bfs(from_edges([10, 20], [20, 30]), 10)
    assert numbers.to_dict("parent") == {10: None, 20: 10, 30: 20}


def test_single_vertex_and_unknown_source():
    lonely = from_edges([], [], labels=["a"])
    assert bfs(lonely, "a").to_dict() == {"a": 0}
    assert sssp(lonely, "a").to_dict() == {"a": 0.0}
    for call in (bfs, sssp):
        with pytest.raises(InputError, match="'q'"):
            call(lonely, "q")
        with pytest.raises(InputError, match="0"):
            call(from_edges([], []), 0)
