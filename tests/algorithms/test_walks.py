"""Random walks and embeddings, against transition probabilities and dense matrices."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.walks import in_memory, subgraph
from goffish.gofs import build_layout
from goffish.graph import Graph
from tests.algorithms.test_spectral import EDGES, Case, build, matrix

#: Without biases; biases by which steps are proposed again and again; and such that only all arcs decide.
BIASES = st.sampled_from([(1.0, 1.0), (0.25, 4.0), (8.0, 0.1), (1.0, 1e9), (1e-9, 1e-9), (1e9, 1e-6)])


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.sampled_from([1.0, 0.25, 1e-9]), st.sampled_from([1.0, 1e9]))
def test_walks_follow_arcs(case: Case, directed: bool, weighted: bool, p: float, q: float) -> None:
    """Breaks when a step follows no arc or one that weighs nothing, or a walk ends where it could go on."""
    n, edges = case
    graph, weights = build(n, edges, directed), matrix(n, edges, directed, weighted)
    options = {"length": 6, "walks": 2, "weighted": weighted, "p": p, "q": q, "seed": n}
    walks = gf.random_walks(graph, **options, threads=1)
    assert walks.shape == (2 * n, 7) and walks.dtype == graph.targets.dtype
    assert walks[:, 0].tolist() == np.repeat(np.arange(n), 2).tolist()
    for row in walks.tolist():
        for u, v in pairwise(row):
            assert (u == v == -1) or (weights[u, v] > 0 if v >= 0 else not weights[u].any())
    assert (gf.random_walks(graph, **options, threads=3) == walks).all()


@settings(max_examples=60)
@given(
    EDGES, st.booleans(), st.booleans(), st.integers(1, 5), st.sampled_from(["components", "vertex"]), BIASES, st.data()
)
def test_engines_walk_alike(
    case: Case, directed: bool, weighted: bool, parts: int, units: Any, biases: tuple[float, float], data: st.DataObject
) -> None:
    """Breaks when a random number is drawn for an arc that has another place among those of the vertex."""
    n, edges = case
    graph = build(n, edges, directed)
    owner = data.draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n))
    cut = build_layout(graph, np.array(owner), parts, finder=units)
    sources = data.draw(st.none() | st.lists(st.integers(0, n - 1), max_size=4))
    options = {"length": 6, "walks": 2, "weighted": weighted, "seed": n, "sources": sources}
    options |= {"p": biases[0], "q": biases[1]}
    alone, found = gf.run("walks", graph, **options), gf.run("walks", cut, **options)
    assert found.table.equals(alone.table)
    assert found.summary == alone.summary | {"supersteps": found.summary["supersteps"]}


def test_long_walks_on_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when visits are lost as their table grows."""
    graph = gf.from_networkx(nx.gnm_random_graph(300, 900, seed=1))
    alone = gf.run("walks", graph, length=40, walks=3)
    monkeypatch.setattr(subgraph, "_LEAST_ROWS", 1)
    for parts in (1, 3):
        found = gf.run("walks", graph, length=40, walks=3, parts=parts)
        assert found.table.equals(alone.table)
    texts = gf.from_edges(["a", "b", "c", "a"], ["b", "c", "d", "d"])
    options = {"length": 3, "walks": 5, "sources": ["c", "a", "c"]}
    assert gf.run("walks", texts, parts=2, **options).table.equals(gf.run("walks", texts, **options).table)
    assert len(gf.run("walks", gf.from_edges([], []), parts=1)) == 0
    with pytest.raises(gf.InputError, match="are too many for one array"):
        gf.run("walks", texts, parts=2, walks=1 << 30, length=1 << 30)
    with pytest.raises(gf.InputError, match="the graph has no weights"):
        gf.run("walks", texts, parts=2, weighted=True)


def test_messages_of_biased_walks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when walks are lost that wait for the next superstep, or all of them ask at once."""
    graph = gf.from_networkx(nx.gnm_random_graph(100, 1000, seed=1))
    options: dict[str, Any] = {"length": 5, "walks": 3, "q": 50.0}
    alone = gf.run("walks", graph, **options)
    at_once = gf.run("walks", graph, **options, parts=2, units="vertex")
    monkeypatch.setattr(subgraph, "_LEAST_MESSAGES", 1)
    found = gf.run("walks", graph, **options, parts=2, units="vertex")
    assert found.table.equals(alone.table) and at_once.table.equals(alone.table)
    assert found.summary["supersteps"] > at_once.summary["supersteps"]
    steps = [result.stats.steps for result in (found, at_once) if result.stats]
    few, many = (max(step["messages"].to_numpy()[step["superstep"].to_numpy() > 1]) for step in steps)
    # Each walk is sent on, and there is a message for each of them, and for the arcs of one vertex.
    assert few <= 2 * 300 + int(graph.out_degrees.max()) < many


def frequencies(walks: np.ndarray, steps: int) -> Counter[tuple[int, ...]]:
    return Counter(
        row for i in range(walks.shape[1] - steps) for row in map(tuple, walks[:, i : i + steps + 1].tolist())
    )


@pytest.mark.parametrize(
    ("p", "q", "weighted"),
    [(1.0, 1.0, False), (1.0, 1.0, True), (0.25, 4.0, True), (8.0, 0.1, False), (1e-3, 1e3, True)],
)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.slow
def test_transition_probabilities(p: float, q: float, weighted: bool, directed: bool) -> None:
    """Each step, given the two vertices before it, within five standard deviations of its probability."""
    edges = [(u, v, 1 + (3 * u + v) % 4) for u, v in nx.gnp_random_graph(7, 0.5, seed=3, directed=directed).edges]
    edges += [(6, 0, 2), (0, 6, 1)] if directed else []
    graph = build(7, edges, directed)
    w = matrix(7, edges, directed, weighted)
    walks = gf.random_walks(graph, length=40, walks=600, weighted=weighted, p=p, q=q, seed=5)
    found = frequencies(walks, 2)
    totals: Counter[tuple[int, ...]] = Counter()
    for (t, u, _), count in found.items():
        totals[t, u] += count
    checked = 0
    for (t, u), total in totals.items():
        if min(t, u) < 0 or not w[u].any():
            continue
        bias = np.where(w[t] > 0, 1.0, 1 / q)
        bias[t] = 1 / p
        chances = w[u] * bias / (w[u] * bias).sum()
        for v, chance in enumerate(chances):
            deviation = np.sqrt(total * chance * (1 - chance))
            # Steps that are rarer than one in all walks may be found once; those without a chance, never.
            assert abs(found[t, u, v] - total * chance) <= 5 * deviation + (chance > 0), (t, u, v)
            checked += total > 100
    assert checked > 50


def test_sources_seeds_tasks_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gf.from_edges(["a", "b", "c", "a"], ["b", "c", "d", "d"])
    walks = gf.random_walks(graph, length=3, walks=5, sources=["c", "a", "c"])
    assert walks[:, 0].tolist() == [2] * 5 + [0] * 5 + [2] * 5
    assert graph.labels_of(walks[0])[0].as_py() == "c"
    assert (
        gf.random_walks(gf.partition(graph, parts=2).to_graph(), length=3, walks=5, sources=["c", "a", "c"]) == walks
    ).all()
    assert gf.random_walks(gf.partition(graph, parts=2), length=3).shape == (40, 4)
    assert (gf.random_walks(graph, seed=1) != gf.random_walks(graph, seed=2)).any()
    large = gf.from_networkx(nx.gnm_random_graph(300, 1500, seed=1))
    wide = Graph(large.offsets, large.targets.astype(np.int64), False, large.num_edges)
    walks, vectors = gf.random_walks(large, length=9, p=0.5), gf.fastrp(large, dimension=7)
    monkeypatch.setattr(in_memory, "STEPS", 50)
    for threads in (1, 3):
        assert (gf.random_walks(large, length=9, p=0.5, threads=threads) == walks).all()
        assert gf.fastrp(large, dimension=7, threads=threads).tobytes() == vectors.tobytes()
    assert (gf.random_walks(wide, length=9, p=0.5) == walks).all()
    empty = gf.from_edges([], [])
    assert gf.random_walks(empty).shape == (0, 81) and gf.fastrp(empty).shape == (0, 128)
    assert gf.random_walks(graph, sources=[]).shape == (0, 81)
    table = gf.run("walks", graph, length=2, walks=1)
    assert table.table.column_names == ["walk", "step", "vertex"] and len(table) == 12


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.sampled_from([0.0, -0.5]))
def test_embeddings_equal_dense_products(case: Case, directed: bool, weighted: bool, exponent: float) -> None:
    """The projection is read off the vectors with one factor; the rest is matrix products in double precision."""
    n, edges = case
    graph, weights = build(n, edges, directed), matrix(n, edges, directed, weighted)
    options = {"dimension": 9, "degree_exponent": exponent, "weighted": weighted, "seed": 3}
    degree = np.maximum(graph.out_degrees, 1) / max(graph.num_arcs, 1)
    at = np.sign(gf.fastrp(graph, iteration_weights=[1], **options)) * (degree**exponent)[:, None]
    factors = (0.5, 1.0, -2.0, 0.0, 1.5)
    expected = np.zeros((n, 9))
    shares = weights / np.maximum(weights.sum(axis=1), 1e-300)[:, None]
    for factor in factors:
        length = np.linalg.norm(at, axis=1)
        # Means that cancel out to rounding errors have no direction.
        if ((length > 0) & (length < 1e-5)).any():
            return
        expected += factor * at / np.where(length > 0, length, 1)[:, None]
        at = shares @ at
    found = gf.fastrp(graph, iteration_weights=factors, **options)
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=2e-4)


def test_projection_and_neighborhoods() -> None:
    signs = np.sign(gf.fastrp(gf.from_edges([], [], isolated=np.arange(3000)), dimension=40, iteration_weights=[1]))
    for value, share in ((-1, 1 / 6), (0, 2 / 3), (1, 1 / 6)):
        assert abs((signs == value).mean() - share) < 5 * np.sqrt(share * (1 - share) / signs.size)
    assert abs(np.corrcoef(signs[:, :8].T) - np.eye(8)).max() < 0.1
    barbell = gf.fastrp(gf.from_networkx(nx.barbell_graph(12, 0)), dimension=256)
    near = barbell @ barbell.T
    assert near[:11, :11].min() > 2 * near[:11, 13:].max()


def test_errors() -> None:
    graph = gf.from_edges(["a", "b"], ["b", "c"])
    for options, told in (
        ({"length": 0}, "length=0"), ({"walks": 0}, "walks=0"), ({"p": 0.0}, r"p=0\.0"), ({"q": float("nan")}, "q=nan"),
        ({"q": float("inf")}, "q=inf"), ({"seed": -1}, "seed=-1"), ({"seed": 1 << 64}, "seed="),
        ({"sources": ["z"]}, "unknown vertex 'z'"), ({"weighted": True}, "the graph has no weights"),
        ({"threads": 0}, "threads=0"), ({"walks": 1 << 31}, "walks="), ({"length": 1 << 40}, "length="),
        ({"walks": 1 << 30, "length": 1 << 30}, "3,221,225,472 walks are too many for one array"),
    ):  # fmt: skip
        with pytest.raises(gf.InputError, match=told):
            gf.random_walks(graph, **options)
    for options, told in (
        ({"dimension": 0}, "dimension=0"), ({"dimension": 1 << 30}, "dimension="),
        ({"iteration_weights": []}, "iteration_weights="),
        ({"iteration_weights": [float("nan")]}, "iteration_weights="), ({"degree_exponent": 9.0}, "degree_exponent="),
        ({"weighted": True}, "the graph has no weights"),
    ):  # fmt: skip
        with pytest.raises(gf.InputError, match=told):
            gf.fastrp(graph, **options)
    with pytest.raises(gf.InputError, match="graph is of type int"):
        gf.random_walks(7)  # type: ignore[arg-type]


def test_more_than_fits_in_memory() -> None:
    graph = gf.generators.erdos_renyi(200, 0.05, seed=1)
    many = gf.from_edges([0], [1], isolated=np.arange(1_000_000))
    message = r"dimension=1048576: 1,000,000 vectors do not fit in memory: 12,582\.9 GB, of "
    with pytest.raises(gf.InputError, match=message):
        gf.fastrp(many, dimension=1 << 20)
    with pytest.raises(gf.InputError, match="209,715,200 walks do not fit in memory"):
        gf.random_walks(graph, walks=1 << 20, length=1 << 16)
