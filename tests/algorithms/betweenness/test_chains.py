"""Chains made one edge: against networkx on graphs made of chains, whatever their cost; taken where they pay."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.betweenness import chains
from goffish.algorithms.betweenness.in_memory import betweenness
from goffish.graph import Graph, from_edges
from tests.algorithms.betweenness.graphs import cut_small

SEEDS = st.integers(0, 1_000_000)


def of_chains(seed: int) -> nx.Graph:
    """Up to six vertices, joined by chains: parallel ones, loops, direct edges, several components."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    G = nx.Graph()
    G.add_nodes_from(range(n))
    for _ in range(int(rng.integers(1, 10))):
        a, b = rng.integers(0, n, 2).tolist()
        count = max(int(rng.integers(0, 7)), 2 if a == b else 0)
        nx.add_path(G, [a, *range(G.number_of_nodes(), G.number_of_nodes() + count), b])
    return G


def to_graph(G: nx.Graph) -> Graph:
    edges = np.array(list(G.edges), np.int64).reshape(-1, 2)
    return from_edges(edges[:, 0], edges[:, 1], labels=np.arange(len(G)))


@pytest.fixture(autouse=True, scope="module")
def _whatever_the_cost():
    was = chains._SAVED
    chains._SAVED = -1e12
    yield
    chains._SAVED = was


@given(SEEDS)
def test_graphs_of_chains_agree_with_networkx(seed):
    G = of_chains(seed)
    expected = list(nx.betweenness_centrality(G, normalized=False).values())
    for reductions in (["chains"], ["leaves", "chains"], ["leaves", "blocks", "chains"], "all"):
        found = betweenness(to_graph(G), reductions=reductions).scores
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=str(reductions))


@given(SEEDS)
def test_sources_and_targets_anywhere_on_chains(seed):
    G = of_chains(seed)
    rng = np.random.default_rng(seed)
    sources, targets = (np.flatnonzero(rng.random(len(G)) < 0.5).tolist() for _ in range(2))
    expected = nx.betweenness_centrality_subset(G, sources, targets)
    for reductions in (["chains"], "all"):
        found = betweenness(to_graph(G), sources=sources, targets=targets, reductions=reductions).scores
        np.testing.assert_allclose(found, [expected[v] for v in range(len(G))], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 101, 102])
def test_a_circle_has_one_branch_vertex(n):
    i = np.arange(n)
    found = betweenness(from_edges(i, (i + 1) % n), reductions=["chains"])
    np.testing.assert_allclose(found.scores, (n - 1) * (n - 3) / 8 if n % 2 else (n - 2) ** 2 / 8, rtol=1e-12)


@pytest.mark.slow
def test_more_paths_than_a_float_can_hold():
    # Squares in a row, corner to corner, with sides of two edges: 2^k ways through k of them.
    k = 1100
    joint = 7 * np.arange(k)
    src = np.concatenate([joint, joint + 1, joint + 2, joint + 3, joint, joint + 4, joint + 5, joint + 6])
    dst = np.concatenate([joint + 1, joint + 2, joint + 3, joint + 7, joint + 4, joint + 5, joint + 6, joint + 7])
    graph = from_edges(src, dst, labels=np.arange(7 * k + 1))
    np.testing.assert_allclose(
        betweenness(graph, reductions=["chains"]).scores, betweenness(graph, reductions=["blocks"]).scores, rtol=1e-9
    )


def test_threads_do_not_matter(monkeypatch):
    cut_small(monkeypatch, 1 << 12)
    graph = to_graph(nx.disjoint_union_all([of_chains(seed) for seed in range(30)]))
    alone = betweenness(graph, threads=1).scores
    np.testing.assert_array_equal(betweenness(graph, threads=3).scores, alone)


@pytest.mark.slow
def test_roads_pay_and_dense_graphs_do_not(monkeypatch):
    monkeypatch.setattr(chains, "_SAVED", 0.4)
    core = nx.gnm_random_graph(60, 90, seed=1)
    roads = nx.Graph()
    for u, v in core.edges:
        nx.add_path(roads, [u, *((u, v, i) for i in range(12)), v])
    roads = nx.convert_node_labels_to_integers(roads)
    found = betweenness(to_graph(roads))
    share = {entry.reduction: entry.share for entry in found.removed}
    assert share["chains"] > 0.5
    assert found.share_left < 0.3
    expected = list(nx.betweenness_centrality(roads, normalized=False).values())
    np.testing.assert_allclose(found.scores, expected, rtol=1e-9, atol=1e-9)
    dense = betweenness(to_graph(nx.gnm_random_graph(60, 400, seed=1)))
    assert {entry.reduction: entry.share for entry in dense.removed}["chains"] == 0.0
