"""The refined communities of the engine: what partitions collapse, what the master merges, and how it searches."""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.communities.hierarchy import meet, nested_maps
from goffish.algorithms.communities.in_memory import find_communities
from goffish.algorithms.communities.levels import Level, from_graph, half_edges
from goffish.algorithms.communities.merged import agreed_communities, connected_pieces, search_ensemble
from goffish.algorithms.communities.sequential import sequential_louvain
from goffish.algorithms.communities.settings import Search
from goffish.algorithms.communities.subgraph import master, program
from goffish.algorithms.communities.subgraph import piece_kernels as kernels
from goffish.algorithms.communities.subgraph.messages import Kind
from goffish.algorithms.communities.subgraph.program import PartitionedLouvain
from goffish.gofs import build_layout
from goffish.gopher import Result, run_program
from goffish.graph import Graph
from tests.algorithms.communities.louvain_cases import (
    dense,
    dense_modularity,
    lfr,
    nx_modularity,
    planted,
    random_graph,
    to_graph,
    to_nx,
)

SEEDS = st.integers(0, 10_000)
ENRON = "data/email-enron.txt.gz"


def run(graph: Graph, owner: np.ndarray, k: int, threads: int = 2, **options: Any) -> Result:
    return run_program(PartitionedLouvain(**options), build_layout(graph, owner.astype(np.int32), k), threads=threads)


def labels(result: Result) -> np.ndarray:
    found: np.ndarray = result.table["community"].to_numpy()
    return found


def modularity(result: Result) -> float:
    assert result.stats is not None
    return float(result.stats.aggregates["modularity"])


def assert_connected(graph: nx.Graph, community: np.ndarray) -> None:
    for c in np.unique(community):
        assert nx.is_connected(graph.subgraph(np.flatnonzero(community == c).tolist()))


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(0, 160), st.integers(1, 5), SEEDS, st.booleans(), st.booleans())
@settings(max_examples=40)
def test_the_master_merges_the_whole_matrix(
    n: int, edges: int, k: int, seed: int, directed: bool, rounds: bool
) -> None:
    """The matrix between merged vertices is PᵀAP: every pair is told once, from whichever partitions know of it."""
    given_graph = random_graph(n, edges, seed, directed=directed)
    graph = to_graph(given_graph)
    owner = np.random.default_rng(seed).integers(0, k, n)
    merged: list[tuple[np.ndarray, Level]] = []
    original = master.merge_pairs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(master, "merge_pairs", lambda *r, **o: merged.append(original(*r, **o)) or merged[-1])
        if rounds:
            patch.setattr(program, "MOST_ROWS", -1)
        result = run(graph, owner, k, seed=seed)
    (_, level), fine = merged[0], result.table["level_1"].to_numpy()
    membership = np.zeros((n, level.num_vertices))
    membership[np.arange(n), fine] = 1.0
    whole = dense(half_edges(graph))
    assert np.allclose(dense(level), membership.T @ whole @ membership)
    degrees = [level.degree + level.in_degree] if directed else [level.degree]
    expected = [whole.sum(1)]
    if directed:
        arcs = nx.to_numpy_array(given_graph)
        degrees += [level.degree, level.in_degree]
        expected += [arcs.sum(1), arcs.sum(0)]
    for found, one in zip(degrees, expected, strict=True):
        assert np.allclose(found, one @ membership)
    assert level.total == pytest.approx(whole.sum())
    if not directed:
        assert modularity(result) == pytest.approx(dense_modularity(whole, labels(result)), abs=1e-9)


@given(st.integers(1, 40), st.integers(0, 160), st.integers(1, 5), SEEDS)
@settings(max_examples=40)
def test_partitions_collapse_only_connected_pieces_of_themselves(n: int, edges: int, k: int, seed: int) -> None:
    graph = random_graph(n, edges, seed, weighted=False)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    owner = np.random.default_rng(seed).integers(0, k, n)
    result = run(to_graph(graph), owner, k, seed=seed)
    fine = result.table["level_1"].to_numpy()
    assert_connected(graph, fine)
    assert_connected(graph, labels(result))
    for c in np.unique(fine):
        members = np.flatnonzero(fine == c)
        assert np.unique(owner[members]).size == 1
        if members.size > 1:  # of a vertex without half its weight in its partition nothing is decided there
            for v in members.tolist():
                inside = sum(owner[u] == owner[v] for u in graph[v])
                assert 2 * inside >= graph.degree(v)


@given(st.integers(1, 30), st.integers(0, 90), st.integers(0, 10), SEEDS)
def test_vertices_without_half_their_weight_in_their_community_are_contested(
    n: int, edges: int, ghosts: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, n, edges))
    targets = rng.integers(0, n + ghosts, edges).astype(np.int32)
    weights = rng.integers(0, 5, edges).astype(float)
    offsets = np.searchsorted(rows, np.arange(n + 1))
    label = rng.integers(-1, n, n + ghosts)
    found = kernels.contested(offsets[:-1], offsets[1:], targets, weights, label)
    matrix, same = np.zeros((n, n + ghosts)), label[:n, None] == label[None, :]
    np.add.at(matrix, (rows, targets), weights)
    assert np.array_equal(found, (matrix * same).sum(1) < (matrix * ~same).sum(1))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_meet(pairs: list[tuple[int, int]]) -> None:
    one, two = np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)
    assert meet(one, two).tolist() == [list(dict.fromkeys(pairs)).index(pair) for pair in pairs]


@given(st.integers(1, 40), st.integers(0, 160), SEEDS, st.booleans())
@settings(max_examples=40)
def test_the_ensemble_says_what_it_found(n: int, edges: int, seed: int, weighted: bool) -> None:
    graph = random_graph(n, edges, seed, weighted=weighted)
    found = search_ensemble(from_graph(to_graph(graph, weighted=weighted)), Search(seed=seed))
    assert found.modularity == pytest.approx(nx_modularity(graph, found.membership), abs=1e-12)
    strong = nx.Graph((u, v) for u, v, w in graph.edges(data="weight") if w > 0)
    strong.add_nodes_from(graph)
    assert_connected(strong, found.membership)
    divisions = list(itertools.accumulate(nested_maps(found.steps, found.membership), lambda below, up: up[below]))
    assert np.array_equal(divisions[-1], found.membership)
    for fine, coarse in itertools.pairwise(divisions):
        assert np.unique(np.stack((fine, coarse)), axis=1).shape[1] == fine.max() + 1


@pytest.mark.slow
def test_the_ensemble_is_better_than_single_searches() -> None:
    """What it is for: the worst of several seeds, and the mean, on a graph where single searches differ."""
    graph = gf.read(ENRON)
    level = from_graph(graph)
    many = [search_ensemble(level, Search(seed=seed, threads=1)).modularity for seed in range(4)]
    single = [find_communities(graph, Search(seed=seed, threads=1)).modularity for seed in range(8)]
    assert min(many) > np.mean(single)
    assert np.ptp(many) < np.ptp(single)


def test_what_two_searches_agree_on_is_not_torn_apart() -> None:
    """Of clear communities nearly all pieces lie inside one, and there are far fewer pieces than vertices."""
    graph = lfr(5000, 1)
    level = from_graph(graph)
    truth = find_communities(graph, Search(seed=9, refine="leiden")).membership
    agreed, passes = agreed_communities(level, Search(seed=1, threads=1))
    alone = np.arange(5000) % 50 == 0
    pieces, count = connected_pieces(level, agreed, alone, Search(seed=1, threads=1))
    assert (np.bincount(pieces)[pieces[alone]] == 1).all()
    assert passes > 1
    assert np.unique(np.stack((pieces, agreed)), axis=1).shape[1] == count == pieces.max() + 1
    assert_connected(to_nx(graph), pieces)
    assert count < graph.num_vertices / 2
    spread = np.unique(np.stack((pieces, truth)), axis=1).shape[1] - count
    assert spread < 0.02 * count


def test_the_refined_run_takes_five_supersteps_and_tells_every_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, k = lfr(2000, 1), 4
    inboxes: list[np.ndarray] = []
    original = master.finish

    def finish(*given: Any) -> None:
        inboxes.append(given[2].messages.copy())
        original(*given)

    monkeypatch.setattr(program, "finish", finish)
    result = run_program(PartitionedLouvain(), gf.partition(graph, k, "hash"))
    assert result.stats is not None
    assert result.stats.supersteps == 5
    (inbox,) = inboxes
    fine = result.table["level_1"].to_numpy()
    src, dst, _, _ = graph.edge_columns()
    pairs = np.unique(np.sort(np.stack((fine[src], fine[dst]), 1), axis=1), axis=0)
    between = pairs[pairs[:, 0] != pairs[:, 1]]
    rows = inbox[inbox["kind"] == Kind.ROW]
    told = np.stack((rows["a"], rows["b"]), 1)
    assert np.array_equal(np.unique(told[told[:, 0] != told[:, 1]], axis=0), between)
    assert len(told) == len(between) + fine.max() + 1


@pytest.mark.parametrize("method", ["metis", "hash"])
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.slow
def test_rounds_make_a_graph_smaller_that_is_too_big_for_the_master(
    method: str, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planted(5000, 0.3, (20, 60), (9, 50), 3)
    layout = gf.partition(graph, 6, method)
    usual = run_program(PartitionedLouvain(connected=connected), layout)
    monkeypatch.setattr(program, "MOST_ROWS", 1000)
    result = run_program(PartitionedLouvain(connected=connected), layout)
    assert usual.stats is not None
    assert result.stats is not None
    assert result.stats.supersteps > 5
    if not connected:
        assert result.stats.aggregates["merged_vertices"] < 0.7 * usual.stats.aggregates["merged_vertices"]
    other = to_nx(graph)
    assert modularity(result) == pytest.approx(nx_modularity(other, labels(result)), abs=1e-9)
    assert modularity(result) > sequential_louvain(graph).modularity[-1] - 2e-3
    if connected:
        assert_connected(other, labels(result))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "k"), [("metis", 4), ("metis", 64), ("hash", 8)])
def test_leiden_is_connected_and_as_good(method: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the merged graph is searched only once; and as good as Leiden on the whole graph."""
    graph = gf.read(ENRON)
    store = gf.partition(graph, k, method)
    plain = store.run("louvain").summary["modularity"]
    whole = find_communities(graph, Search(refine="leiden", threads=1)).modularity
    assert store.run("louvain", refine="leiden").summary["modularity"] >= max(plain, whole) - 1e-3
    monkeypatch.setattr("goffish.algorithms.communities.merged._MOST_TRIED_ARCS", 1000)
    found = store.run("louvain", refine="leiden")
    assert found.summary["modularity"] >= store.run("louvain").summary["modularity"] - 1e-3
    assert_connected(to_nx(graph), found.table["community"].to_numpy())


def test_neither_threads_nor_most_rounds_change_a_refined_answer() -> None:
    graph = lfr(3000, 2)
    owner = np.random.default_rng(1).integers(0, 6, 3000)
    wanted = run(graph, owner, 6, threads=1).table
    assert run(graph, owner, 6, threads=3).table.equals(wanted)
    assert run(graph, owner, 6, repair_rounds=0).table.equals(wanted)
    assert not run(graph, owner, 6, seed=1).table.equals(wanted)
