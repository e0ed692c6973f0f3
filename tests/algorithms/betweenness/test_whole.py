"""Exact betweenness of vertices and edges against networkx, igraph, counting all paths, and closed forms."""

from __future__ import annotations

import itertools
import math
import threading

import igraph
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.betweenness.in_memory import betweenness, edge_betweenness
from goffish.errors import InputError
from goffish.graph import Graph, from_edges
from tests.algorithms.betweenness.graphs import FAMILIES, cut_small, make, to_graph

CASES = st.tuples(st.sampled_from(FAMILIES), st.integers(1, 30), st.integers(0, 100_000))
KINDS = st.tuples(CASES, st.booleans(), st.booleans())


def close(found: np.ndarray, expected: np.ndarray, case: object = "") -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=str(case))


def by_vertex(scores: dict[int, float]) -> np.ndarray:
    return np.array([scores[v] for v in range(len(scores))])


def by_edge(graph: Graph, scores: dict[tuple[int, int], float]) -> np.ndarray:
    src, dst, _, _ = graph.edge_columns()
    ends = zip(src.tolist(), dst.tolist(), strict=True)
    return np.array([scores[u, v] if (u, v) in scores else scores[v, u] for u, v in ends])


def chosen(G: nx.Graph, weighted: bool) -> tuple[bool, str | None]:
    weighted = weighted and G.number_of_edges() > 0
    return weighted, "weight" if weighted else None


@given(KINDS, st.booleans())
def test_directed_and_undirected_scores_are_those_of_networkx(kind, normalized):
    case, weighted, directed = kind
    G = make(*case, directed=directed)
    weighted, weight = chosen(G, weighted)
    expected = nx.betweenness_centrality(G, normalized=normalized, weight=weight)
    close(betweenness(to_graph(G), weighted=weighted, normalized=normalized).scores, by_vertex(expected), kind)


@given(KINDS)
def test_endpoints_are_counted_as_networkx_counts_them(kind):
    case, weighted, directed = kind
    G = make(*case, directed=directed)
    weighted, weight = chosen(G, weighted)
    expected = nx.betweenness_centrality(G, normalized=False, endpoints=True, weight=weight)
    close(betweenness(to_graph(G), weighted=weighted, endpoints=True).scores, by_vertex(expected), kind)
    if G.number_of_nodes() > 2:
        expected = nx.betweenness_centrality(G, normalized=True, endpoints=True, weight=weight)
        found = betweenness(to_graph(G), weighted=weighted, endpoints=True, normalized=True)
        close(found.scores, by_vertex(expected), kind)


@given(KINDS)
def test_subsets_of_sources_and_targets_in_directed_graphs(kind):
    case, weighted, _ = kind
    G = make(*case, directed=True)
    rng = np.random.default_rng(case[2])
    n = G.number_of_nodes()
    sources, targets = (rng.permutation(n)[: int(rng.integers(0, n + 1))].tolist() for _ in range(2))
    weighted, weight = chosen(G, weighted)
    expected = nx.betweenness_centrality_subset(G, sources, targets, weight=weight)
    found = betweenness(to_graph(G), weighted=weighted, sources=sources, targets=targets).scores
    close(found, by_vertex(expected), kind)


@given(KINDS, st.booleans())
def test_edge_scores_are_those_of_networkx(kind, normalized):
    case, weighted, directed = kind
    G = make(*case, directed=directed)
    weighted, weight = chosen(G, weighted)
    graph = to_graph(G)
    expected = nx.edge_betweenness_centrality(G, normalized=normalized, weight=weight)
    for reductions in ((), ("leaves",), ("blocks",), "all"):
        found = edge_betweenness(graph, weighted=weighted, normalized=normalized, reductions=reductions)
        close(found.scores, by_edge(graph, expected), (kind, reductions))


@given(KINDS)
def test_edge_scores_of_subsets_are_those_of_counting_all_paths(kind):
    # Not networkx's edge_betweenness_centrality_subset: that shares dependencies out by the number of predecessors.
    case, weighted, directed = kind
    G = make(case[0], min(case[1], 12), case[2], directed=directed)
    if G.number_of_nodes() > 20:
        return
    weighted, weight = chosen(G, weighted)
    rng = np.random.default_rng(case[2])
    sources, targets = (rng.permutation(len(G))[: len(G) // 2].tolist() for _ in range(2))
    expected = dict.fromkeys(G.edges, 0.0)
    for s, t in itertools.product(sources, targets):
        if s != t and nx.has_path(G, s, t):
            paths = list(nx.all_shortest_paths(G, s, t, weight=weight))
            for u, v in itertools.chain.from_iterable(map(itertools.pairwise, paths)):
                expected[(u, v) if (u, v) in expected else (v, u)] += (1.0 if directed else 0.5) / len(paths)
    graph = to_graph(G)
    found = edge_betweenness(graph, weighted=weighted, sources=sources, targets=targets).scores
    close(found, by_edge(graph, expected), kind)


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("family", ["preferential", "grid", "uniform", "powerlaw"])
def test_larger_graphs_agree_with_igraph_and_threads_do_not_matter(family, directed, monkeypatch):
    n = 600
    G = {
        "preferential": lambda: nx.barabasi_albert_graph(n, 3, seed=1),
        "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 30)),
        "uniform": lambda: nx.gnm_random_graph(n, 3 * n, seed=2),
        "powerlaw": lambda: nx.powerlaw_cluster_graph(n, 8, 0.5, seed=3),
    }[family]()
    rng = np.random.default_rng(5)
    src, dst = np.array(G.edges).T
    if directed:
        turned = rng.random(src.size) < 0.5
        src, dst = np.where(turned, dst, src), np.where(turned, src, dst)
    weight = rng.integers(1, 11, src.size).astype(float)
    graph = from_edges(src, dst, weight, labels=np.arange(n), directed=directed)
    theirs = igraph.Graph(n, np.stack([src, dst], 1), directed=directed)
    cut_small(monkeypatch, 1 << 15)
    for weighted, given_weights in ((False, None), (True, weight)):
        alone = betweenness(graph, weighted=weighted, threads=1).scores
        np.testing.assert_array_equal(betweenness(graph, weighted=weighted, threads=3).scores, alone)
        close(alone, theirs.betweenness(directed=directed, weights=given_weights))
        ours = edge_betweenness(graph, weighted=weighted, threads=2).scores
        np.testing.assert_array_equal(edge_betweenness(graph, weighted=weighted, threads=1).scores, ours)
        expected = theirs.edge_betweenness(directed=directed, weights=given_weights)
        s, d, _, _ = graph.edge_columns()
        place = {(u, v): i for i, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True))}
        rows = [place[u, v] if (u, v) in place else place[v, u] for u, v in zip(s.tolist(), d.tolist(), strict=True)]
        close(ours, np.array(expected)[rows])


@pytest.mark.parametrize("layers", [900, 1100])
def test_more_shortest_paths_than_a_float_can_hold(layers):
    # Layers of two vertices, each joined to both of the next: 2^(layers - 2) shortest paths from end to end.
    pair = 2 * np.arange(layers - 1)
    src = np.concatenate([pair, pair, pair + 1, pair + 1])
    dst = np.concatenate([pair + 2, pair + 3, pair + 2, pair + 3])
    graph = from_edges(src, dst)
    i = np.arange(layers)
    # Half of the pairs with ends on different sides; the two of a neighbouring layer go through four vertices, those
    # of an end layer's neighbour through two or four.
    near = np.zeros(layers)
    for layer in (i - 1, i + 1):
        inside = (layer >= 0) & (layer < layers)
        near[inside] += np.where((layer[inside] == 0) | (layer[inside] == layers - 1), 1 / 2, 1 / 4)
    expected = np.repeat(2 * i * (layers - 1 - i) + near, 2)
    for reductions in ((), "all"):
        np.testing.assert_allclose(betweenness(graph, reductions=reductions).scores, expected, rtol=1e-9)
    edges = edge_betweenness(graph).scores
    assert edges.sum() == pytest.approx(sum_of_distances(layers), rel=1e-9)


def sum_of_distances(layers: int) -> float:
    """Sum of the distances of all pairs in the graph of layers."""
    between = sum(4 * d * (layers - d) for d in range(1, layers))
    return between + 2 * layers


@pytest.mark.slow
def test_weighted_paths_beyond_the_range_of_floats():
    # Diamonds one after another: 2^k shortest paths to the k-th joint; weights 1 and 2, and 2 and 1, on the two sides.
    k = 1100
    joint = 3 * np.arange(k)
    src = np.concatenate([joint, joint + 1, joint, joint + 2])
    dst = np.concatenate([joint + 1, joint + 3, joint + 2, joint + 3])
    weight = np.repeat([1.0, 2.0, 2.0, 1.0], k)
    found = betweenness(from_edges(src, dst, weight, labels=np.arange(3 * k + 1)), reductions=()).scores
    before, after = 3 * np.arange(k + 1), 3 * np.arange(k, -1, -1)
    pairs_of_sides = np.concatenate([[0], np.full(k, 0.5)]) + np.concatenate([np.full(k, 0.5), [0]])
    expected = before * after + pairs_of_sides
    np.testing.assert_allclose(found[::3], expected, rtol=1e-9)


def test_self_loops_and_parallel_edges_are_ignored():
    src, dst = [0, 0, 1, 1, 2, 2, 3, 0], [1, 1, 2, 1, 3, 3, 0, 0]
    weight = [2.0, 1.0, 1.0, 5.0, 1.0, 1.0, 3.0, 1.0]
    graph = from_edges(src, dst, weight, self_loops="keep", parallel="keep")
    G = nx.MultiGraph()
    G.add_weighted_edges_from(zip(src, dst, weight, strict=True))
    for weighted, name in ((False, None), (True, "weight")):
        expected = nx.betweenness_centrality(G, normalized=False, weight=name)
        close(betweenness(graph, weighted=weighted).scores, by_vertex(expected))
        theirs = nx.edge_betweenness_centrality(G, normalized=False, weight=name)
        s, d, w, _ = graph.edge_columns()
        ours = edge_betweenness(graph, weighted=weighted).scores
        rows = zip(s.tolist(), d.tolist(), w.tolist(), ours.tolist(), strict=True)
        named = [(min(u, v), max(u, v), G.edges[u, v, key]["weight"], x) for (u, v, key), x in theirs.items()]
        close(np.array(sorted(rows)), np.array(sorted(named)), name)


def test_labels_name_sources_and_targets():
    graph = from_edges(["a", "b", "c"], ["b", "c", "d"])
    assert betweenness(graph, sources=["a"], targets=["d"]).scores.tolist() == [0.0, 0.5, 0.5, 0.0]
    assert edge_betweenness(graph, sources=["a"], targets=["c"]).scores.tolist() == [0.5, 0.5, 0.0]


def test_empty_graphs_have_no_scores():
    assert betweenness(from_edges([], [])).scores.size == 0
    assert edge_betweenness(from_edges([], [])).scores.size == 0
    assert betweenness(from_edges([], [], labels=np.arange(3)), normalized=True).scores.tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("call", [betweenness, edge_betweenness])
def test_weights_that_are_not_positive_are_refused(call, bad):
    weights = np.array([1.0, 1.0, bad, bad])
    graph = Graph(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1], np.int32), False, 2, weights)
    with pytest.raises(InputError, match=r"positive, finite weights; set weighted=False"):
        call(graph)
    assert np.isfinite(call(graph, weighted=False).scores).all()


def test_bad_options_are_refused():
    graph = from_edges([0, 1], [1, 2])
    with pytest.raises(InputError, match="has no weights"):
        betweenness(graph, weighted=True)
    with pytest.raises(InputError, match="accepted: 'all', or any of leaves, blocks"):
        betweenness(graph, reductions=["leafs"])
    with pytest.raises(InputError, match="sources='x': expected a list"):
        betweenness(graph, sources="x")
    with pytest.raises(InputError, match="7"):
        betweenness(graph, targets=[7])
    with pytest.raises(InputError, match="threads=0"):
        betweenness(graph, threads=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_ends_at_the_work_to_do(monkeypatch, threads):
    cut_small(monkeypatch, 1 << 14)
    graph = to_graph(make("preferential", 300, 3))
    reports: list[tuple[float, float]] = []
    betweenness(graph, weighted=False, threads=threads, progress=lambda done, total: reports.append((done, total)))
    # Only the thread of the caller reports, and on a busy machine another one may take all blocks.
    assert len(reports) > 2 - threads
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert {total for _, total in reports} == {reports[-1][0]}


def test_an_interrupt_stops_all_threads(monkeypatch):
    cut_small(monkeypatch, 1 << 12)
    graph = to_graph(make("preferential", 2000, 3))
    calls = 0

    def stop(done: float, total: float) -> None:
        nonlocal calls
        assert threading.current_thread() is threading.main_thread()
        calls += 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        betweenness(graph, weighted=False, threads=2, progress=stop)
    assert calls == 1
