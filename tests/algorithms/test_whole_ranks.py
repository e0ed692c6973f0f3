"""Whole-graph PageRank against networkx and a dense solver."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms import rows
from goffish.algorithms.pagerank import in_memory as whole
from goffish.algorithms.pagerank.in_memory import pagerank, rank_of
from goffish.errors import InputError
from goffish.graph import Graph, from_edges

EDGES = st.integers(0, 12).flatmap(
    lambda n: st.tuples(
        st.just(n + 1), st.lists(st.tuples(st.integers(0, n), st.integers(0, n), st.integers(0, 5)), max_size=30)
    )
)  # fmt: skip


def build(n: int, edges: list[tuple[int, int, int]], directed: bool) -> Graph:
    table = np.array(edges, np.int64).reshape(-1, 3)
    return from_edges(
        table[:, 0], table[:, 1], table[:, 2], labels=np.arange(n), directed=directed,
        self_loops="keep", parallel="keep",
    )  # fmt: skip


def exact(graph: Graph, damping: float, redistribute: bool, weighted: bool, v: np.ndarray) -> np.ndarray:
    """Solve the dense system; dangling columns point to the teleport vector, or nowhere."""
    n = graph.num_vertices
    matrix = np.zeros((n, n))
    weights = graph.weights if weighted else np.ones(graph.num_arcs)
    np.add.at(matrix, (graph.targets, graph.arc_sources()), weights)
    sums = matrix.sum(axis=0)
    for u in range(n):
        matrix[:, u] = matrix[:, u] / sums[u] if sums[u] else (v if redistribute else 0)
    return np.linalg.solve(np.eye(n) - damping * matrix, (1 - damping) * v)


@given(
    EDGES, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.5, 0.85, 0.99]),
    st.sampled_from([1e-3, 1e-6, 1e-11]), st.booleans(),
)  # fmt: skip
def test_error_is_as_promised(case, directed, weighted, redistribute, damping, tolerance, personal):
    """Fails when the stopping rule claims more than it proves, or the formula is wrong in any variant."""
    n, edges = case
    graph = build(n, edges, directed)
    v = np.full(n, 1 / n)
    if personal:
        v = np.arange(n, dtype=float) % 3 + (n == 1)
        v /= v.sum()
    ranks = rank_of(
        graph, damping=damping, tolerance=tolerance, weighted=weighted, teleport=v,
        dangling="redistribute" if redistribute else "leak", max_iterations=100_000,
    )  # fmt: skip
    error = np.abs(ranks.rank - exact(graph, damping, redistribute, weighted, v)).sum()
    assert ranks.error_bound <= tolerance
    assert error <= ranks.error_bound + 1e-12


@given(EDGES, st.booleans(), st.booleans())
def test_equals_networkx(case, directed, weighted):
    """The default variant is networkx's; a difference here breaks what users expect of the name."""
    n, edges = case
    reference = nx.MultiDiGraph() if directed else nx.MultiGraph()
    reference.add_nodes_from(range(n))
    reference.add_weighted_edges_from(edges)
    expected = nx.pagerank(reference, tol=1e-13, max_iter=10_000, weight="weight" if weighted else None)
    got = pagerank(build(n, edges, directed), tolerance=1e-11, weighted=weighted).to_dict()
    assert got == pytest.approx(expected, abs=1e-9)


def random_graph(directed: bool, n: int = 3000, m: int = 12_000) -> Graph:
    rng = np.random.default_rng(4)
    return from_edges(
        rng.integers(0, n, m), (rng.random(m) ** 3 * n).astype(np.int64), rng.random(m),
        labels=np.arange(n), directed=directed,
    )  # fmt: skip


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_for_every_number_of_threads(directed, weighted, monkeypatch):
    """Fails when a sum depends on which thread did what; small ranges make many tasks of a small graph."""
    monkeypatch.setattr(rows, "CHUNK", 500)
    monkeypatch.setattr(whole, "_BLOCK", 1500)
    graph = random_graph(directed)
    first, *others = (rank_of(graph, threads=t, weighted=weighted) for t in (1, 2, 3, 5))
    for other in others:
        assert first.rank.tobytes() == other.rank.tobytes()
        assert first.iterations == other.iterations


@pytest.mark.parametrize("directed", [False, True])
def test_blocks_keep_the_promise(directed, monkeypatch):
    """The error bound holds however the rows are cut."""
    graph = random_graph(directed, 400, 1500)
    expected = exact(graph, 0.85, True, False, np.full(400, 1 / 400))
    for work in (50, 300, 10_000):
        monkeypatch.setattr(rows, "CHUNK", work)
        monkeypatch.setattr(whole, "_BLOCK", work)
        ranks = rank_of(graph, tolerance=1e-8)
        assert np.abs(ranks.rank - expected).sum() <= ranks.error_bound <= 1e-8


def test_conjugate_gradients_beat_the_power_method():
    """At rate 0.557 per pass, 1e-8 takes about 32 passes; power iteration would take over 100."""
    n = 2000
    path = from_edges(np.arange(n - 1), np.arange(1, n))
    assert rank_of(path, tolerance=1e-8).iterations < 45


def test_stops_at_max_iterations_and_says_so():
    for directed in (False, True):
        result = pagerank(random_graph(directed), tolerance=1e-12, max_iterations=4)
        assert result.summary["iterations"] == 4
        assert result.summary["error_bound"] > 1e-12


def test_unreachable_tolerance_ends_at_the_rounding_floor():
    ranks = rank_of(random_graph(False), tolerance=1e-300)
    assert ranks.iterations < 300
    assert ranks.error_bound < 1e-13


def test_sixty_four_bit_targets_give_the_same_bits():
    for directed in (False, True):
        graph = random_graph(directed, 200, 900)
        wide = Graph(graph.offsets, graph.targets.astype(np.int64), directed, graph.num_edges, graph.weights)
        assert rank_of(wide).rank.tobytes() == rank_of(graph).rank.tobytes()


def test_labels_personalization_and_edge_cases():
    graph = from_edges(["x", "y"], ["y", "z"])
    ranks = pagerank(graph, personalization={"x": 2}, tolerance=1e-12).to_dict()
    expected = nx.pagerank(nx.Graph([("x", "y"), ("y", "z")]), personalization={"x": 1}, tol=1e-13, max_iter=999)
    assert ranks == pytest.approx(expected, abs=1e-10)
    for directed in (False, True):
        assert pagerank(build(0, [], directed)).table.num_rows == 0
        assert pagerank(build(1, [], directed)).to_dict() == pytest.approx({0: 1.0})
        assert pagerank(build(1, [], directed), dangling="leak").to_dict() == pytest.approx({0: 0.15})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"damping": 1.0}, "damping"),
        ({"tolerance": 0}, "tolerance"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"dangling": "keep"}, "dangling"),
        ({"weighted": True}, "weights"),
        ({"threads": 0}, "threads"),
        ({"personalization": {}}, "personalization"),
        ({"personalization": {"x": -1}}, "'x'"),
        ({"personalization": {"q": 1}}, "'q'"),
    ],
)
def test_bad_options_are_named(options, names):
    with pytest.raises(InputError, match=names):
        pagerank(from_edges(["x"], ["y"]), **options)
