"""Eigenvector centrality, Katz centrality and HITS, against dense solvers."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms import rows
from goffish.algorithms.spectral.in_memory import eigenvector_of, hits_of, katz_of
from goffish.gofs import build_layout
from goffish.graph import Graph, from_edges

EDGES = st.integers(0, 12).flatmap(
    lambda n: st.tuples(
        st.just(n + 1), st.lists(st.tuples(st.integers(0, n), st.integers(0, n), st.integers(0, 5)), max_size=40)
    )
)
Case = tuple[int, list[tuple[int, int, int]]]


def build(n: int, edges: list[tuple[int, int, int]], directed: bool) -> Graph:
    ends = np.array(edges, np.int64).reshape(-1, 3)
    return from_edges(
        ends[:, 0], ends[:, 1], ends[:, 2].astype(np.float64), labels=np.arange(n), directed=directed,
        self_loops="keep", parallel="keep",
    )  # fmt: skip


def matrix(n: int, edges: list[tuple[int, int, int]], directed: bool, weighted: bool) -> np.ndarray:
    """Entry (u, v) for the arcs from u to v."""
    out = np.zeros((n, n))
    for u, v, w in edges:
        out[u, v] += w if weighted else 1
        if not directed and u != v:
            out[v, u] += w if weighted else 1
    return out


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.sampled_from([1e-3, 1e-8]))
def test_values_satisfy_their_equations(case: Case, directed: bool, weighted: bool, tolerance: float) -> None:
    """Breaks when arcs are followed the wrong way, or a bound is claimed that does not hold."""
    n, edges = case
    graph, dense = build(n, edges, directed), matrix(n, edges, directed, weighted)
    options = {"weighted": weighted, "tolerance": tolerance}
    pull = dense.T
    katz = katz_of(graph, **options)
    exact = np.linalg.solve(np.eye(n) - katz.scale * pull, np.ones(n))
    assert (np.abs(katz.values - exact) <= (katz.error + 1e-12) * exact).all() and katz.error <= tolerance
    hubs, found = hits_of(graph, **options)
    a, square = found.values, dense.T @ dense
    largest = float(np.linalg.eigvalsh(square)[-1])
    assert np.linalg.norm(square @ a - found.scale**2 * a) <= (found.error + 1e-12) * largest + 1e-300
    assert found.error <= tolerance and np.linalg.norm(a) == pytest.approx(1)
    assert (a >= 0).all() and hubs == pytest.approx(dense @ a)
    assert found.scale**2 == pytest.approx(largest, rel=2 * tolerance + 1e-9, abs=1e-12)
    if not directed:
        one = eigenvector_of(graph, **options)
        largest = max(float(np.linalg.eigvalsh(dense)[-1]), 0.0)
        assert one.scale == pytest.approx(largest, rel=tolerance + 1e-9, abs=1e-12)
        assert np.linalg.norm(pull @ one.values - one.scale * one.values) <= (one.error + 1e-12) * largest + 1e-300
        assert (one.values >= 0).all() and np.linalg.norm(one.values) == pytest.approx(1)
        assert one.error <= tolerance


@settings(max_examples=100)
@given(EDGES)
def test_directed_eigenvectors(case: Case) -> None:
    """Converges to the largest eigenvalue, or fails: without cycles, or where eigenvalues have too few vectors."""
    n, edges = case
    dense = matrix(n, edges, True, False)
    largest = float(np.abs(np.linalg.eigvals(dense)).max())
    cycles = not nx.is_directed_acyclic_graph(nx.DiGraph([(u, v) for u, v, _ in edges]))
    try:
        found = eigenvector_of(build(n, edges, True), tolerance=1e-6)
    except gf.JobError:
        strong = nx.DiGraph([(u, v) for u, v, _ in edges])
        assert not cycles or nx.number_strongly_connected_components(strong) > 1
        return
    assert cycles or not edges
    x = found.values
    assert (x >= 0).all() and np.linalg.norm(dense.T @ x - found.scale * x) <= 1.1e-6 * found.scale
    assert found.scale == pytest.approx(largest, rel=1e-3)


@settings(max_examples=60)
@given(EDGES, st.booleans(), st.booleans(), st.integers(1, 5), st.sampled_from(["components", "vertex"]), st.data())
def test_engines_satisfy_the_same_equations(
    case: Case, directed: bool, weighted: bool, parts: int, units: Any, data: st.DataObject
) -> None:
    """Breaks when an arc between partitions is left out, or followed the wrong way."""
    n, edges = case
    graph, dense = build(n, edges, directed), matrix(n, edges, directed, weighted)
    owner = data.draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n))
    cut = build_layout(graph, np.array(owner), parts, finder=units)
    options: dict[str, Any] = {"weighted": weighted, "tolerance": 1e-8}
    katz, alone = gf.katz(cut, **options), gf.katz(graph, **options)
    assert katz.table["katz"].to_numpy() == pytest.approx(alone.table["katz"].to_numpy(), rel=2e-8)
    assert katz.summary["alpha"] == pytest.approx(alone.summary["alpha"])
    assert katz.summary["error_bound"] <= 1e-8 and katz.summary["iterations"] == alone.summary["iterations"]
    exact = np.linalg.solve(np.eye(n) - katz.summary["alpha"] * dense.T, np.ones(n))
    assert katz.table["katz"].to_numpy() == pytest.approx(exact, rel=1.1e-8)
    hits = gf.hits(cut, **options)
    hubs, a = (hits.table[name].to_numpy() for name in ("hub", "authority"))
    square = float(np.linalg.eigvalsh(dense.T @ dense)[-1])
    assert hits.summary["singular_value"] ** 2 == pytest.approx(square, rel=1e-7, abs=1e-12)
    assert np.linalg.norm(dense.T @ dense @ a - square * a) <= 3e-8 * square * np.linalg.norm(a) + 1e-300
    assert (a >= 0).all() and a.sum() == pytest.approx(1) and hits.summary["residual"] <= 1e-8
    assert hubs == pytest.approx(dense @ a / ((dense @ a).sum() or 1.0))
    if not directed:
        found = gf.eigenvector(cut, **options)
        x, value = found.table["eigenvector"].to_numpy(), found.summary["eigenvalue"]
        assert value == pytest.approx(max(float(np.linalg.eigvalsh(dense)[-1]), 0.0), rel=1e-8, abs=1e-12)
        assert np.linalg.norm(dense @ x - value * x) <= 1.1e-8 * value + 1e-300
        assert (x >= 0).all() and np.linalg.norm(x) == pytest.approx(1)


@pytest.mark.parametrize("directed", [False, True])
def test_engines_take_as_many_passes(directed: bool) -> None:
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 300, 1500), (rng.random(1500) ** 2 * 300).astype(int)
    graph = from_edges(*ends, rng.random(1500), directed=directed)
    for name in ("eigenvector", "katz", "hits"):
        for weighted in (False, True):
            alone = gf.run(name, graph, weighted=weighted, tolerance=1e-9)
            found = gf.run(name, graph, weighted=weighted, tolerance=1e-9, parts=3)
            assert abs(found.summary["iterations"] - alone.summary["iterations"]) <= 1
            for column in alone.table.column_names[1:]:
                assert found.table[column].to_numpy() == pytest.approx(alone.table[column].to_numpy(), abs=1e-7)


@pytest.mark.parametrize("directed", [False, True])
def test_same_bits_for_every_number_of_threads(directed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a sum depends on which thread did what, or on the width of the vertex numbers."""
    monkeypatch.setattr(rows, "CHUNK", 500)
    rng = np.random.default_rng(2)
    graph = from_edges(
        rng.integers(0, 900, 6000), (rng.random(6000) ** 2 * 900).astype(int), rng.random(6000), directed=directed
    )
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), directed, graph.num_edges, graph.weights)
    for solve in (eigenvector_of, katz_of, lambda *a, **o: hits_of(*a, **o)[1]):
        first, *others = (
            solve(given, threads=t, weighted=True, tolerance=1e-10) for given, t in ((graph, 1), (graph, 3), (wide, 2))
        )
        assert first.iterations > 3
        for other in others:
            assert other.values.tobytes() == first.values.tobytes()


def test_fewer_passes_than_a_power_iteration() -> None:
    """A grid has close eigenvalues: power iteration takes thousands of passes."""
    n, side = 60 * 60, 60
    at = np.arange(n).reshape(side, side)
    graph = from_edges(
        np.concatenate([at[:, 1:].ravel(), at[1:].ravel()]), np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    )
    found = eigenvector_of(graph, tolerance=1e-8)
    assert found.iterations < 600
    assert found.scale == pytest.approx(4 * np.cos(np.pi / (side + 1)), rel=1e-12)
    wave = np.sin(np.pi * np.arange(1, side + 1) / (side + 1))
    assert found.values == pytest.approx((np.outer(wave, wave) * 2 / (side + 1)).ravel(), abs=1e-4)


def test_tables_stores_and_hostile_weights() -> None:
    graph = from_edges(["a", "b", "b"], ["b", "c", "d"], [1e140, 1e140, 1e-140])
    found = gf.eigenvector(graph, weighted=True)
    assert found.summary["eigenvalue"] == pytest.approx(2**0.5 * 1e140)
    assert found.to_dict() == pytest.approx({"a": 0.5, "b": 0.5**0.5, "c": 0.5, "d": 0.0}, abs=1e-6)
    assert gf.hits(graph, weighted=True).summary["singular_value"] == pytest.approx(2**0.5 * 1e140)
    assert gf.katz(graph, weighted=True).to_dict() == pytest.approx({"a": 3, "b": 4, "c": 3, "d": 1}, rel=1e-6)
    parted = gf.partition(graph, parts=2)
    for name in ("eigenvector", "katz", "hits"):
        for weighted in (False, True):
            expected = gf.run(name, graph, weighted=weighted)
            found = gf.run(name, parted, weighted=weighted)
            for column in expected.table.column_names[1:]:
                assert found.to_dict(column) == pytest.approx(expected.to_dict(column), abs=1e-6)
            assert found.summary.keys() == {*expected.summary, "supersteps"}
            assert found.table.schema.equals(expected.table.schema)
        for empty in (gf.run(name, from_edges([], [])), gf.run(name, from_edges([], []), parts=1)):
            assert len(empty) == 0 and empty.summary["iterations"] == 0
    isolated = from_edges([], [], isolated=[1, 2, 3, 4], directed=True)
    assert gf.eigenvector(isolated).to_dict() == dict.fromkeys((1, 2, 3, 4), 0.5)
    assert gf.hits(isolated).to_dict() == dict.fromkeys((1, 2, 3, 4), 0.0)
    assert gf.katz(isolated).to_dict() == dict.fromkeys((1, 2, 3, 4), 1.0)
    star = gf.hits(from_edges([0] * 5, [1, 2, 3, 4, 5], directed=True))
    assert (star.to_dict("hub")[0], star.to_dict("authority")[3]) == (1.0, pytest.approx(0.2))


def test_errors() -> None:
    ring = from_edges([1, 2, 3], [2, 3, 1])
    path = from_edges(np.arange(9), np.arange(1, 10), directed=True)
    kite = from_edges([1, 2, 3, 3], [2, 3, 1, 4])
    for parts in ({}, {"parts": 2}):
        with pytest.raises(gf.JobError, match="the directed graph has no cycles"):
            gf.run("eigenvector", path, **parts)
        for name in ("eigenvector", "hits"):
            with pytest.raises(gf.JobError, match=r"no convergence after 2 iterations: .*residual .*, tolerance 1e-09"):
                gf.run(name, kite, tolerance=1e-9, max_iterations=2, **parts)
        with pytest.raises(gf.JobError, match=r"alpha=0\.6: decrease alpha"):
            gf.run("katz", ring, alpha=0.6, **parts)
        with pytest.raises(gf.JobError, match="no convergence after 1 iterations with alpha=1e"):
            gf.run("katz", ring, alpha=1e300, **parts)
    for options, told in (
        ({"tolerance": 0.0}, "tolerance=0.0 should be greater than 0"),
        ({"tolerance": float("nan")}, "tolerance=nan"),
        ({"max_iterations": 0}, "max_iterations=0"),
        ({"weighted": True}, "the graph has no weights"),
    ):
        for function in (gf.eigenvector, gf.katz, gf.hits):
            with pytest.raises(gf.InputError, match=told):
                function(ring, **options)
    for alpha in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(gf.InputError, match="alpha="):
            gf.katz(ring, alpha=alpha)
