"""Closeness and harmonic centrality against networkx, igraph and closed forms."""

from __future__ import annotations

import threading
from typing import Any

import igraph
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.closeness import searches
from goffish.algorithms.closeness.in_memory import closeness, harmonic
from goffish.algorithms.closeness.lane_kernels import LANES
from goffish.errors import InputError
from tests.cases import Case, cases

EITHER = st.booleans()


def by_vertex(scores: dict[int, float]) -> np.ndarray:
    return np.array([scores[v] for v in range(len(scores))], np.float64)


def whole_weights(case: Case) -> bool:
    return "integer" in case.name


@given(cases(), EITHER, EITHER, st.integers(1, 3))
def test_closeness_is_that_of_networkx(case: Case, weighted: bool, wf_improved: bool, threads: int) -> None:
    found = closeness(case.graph, weighted=weighted, wf_improved=wf_improved, threads=threads)
    expected = by_vertex(
        nx.closeness_centrality(case.nx, distance="weight" if weighted else None, wf_improved=wf_improved)
    )
    if weighted and not whole_weights(case):
        np.testing.assert_allclose(found.scores, expected, rtol=1e-13)
    else:
        np.testing.assert_array_equal(found.scores, expected, "whole distances add up exactly")


@given(cases(), EITHER, st.data())
def test_harmonic_is_that_of_networkx(case: Case, weighted: bool, data: st.DataObject) -> None:
    nodes = list(case.nx)
    some = st.one_of(st.none(), st.lists(st.sampled_from(nodes), unique=True))
    vertices, sources = data.draw(some), data.draw(some)
    found = harmonic(case.graph, weighted=weighted, vertices=vertices, sources=sources)
    distance = "weight" if weighted else None
    expected = nx.harmonic_centrality(case.nx, nbunch=vertices, distance=distance, sources=sources)
    assert found.vertices.tolist() == sorted(expected)
    np.testing.assert_allclose(found.scores, [expected[v] for v in sorted(expected)], rtol=1e-13)


def large(kind: str, directed: bool) -> nx.Graph:
    """Several batches of searches; deep graphs, and small components that share a batch."""
    if kind == "deep":
        G = nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 400))
    elif kind == "pieces":
        G = nx.disjoint_union_all([nx.gnm_random_graph(5 + i % 7, 9, seed=i) for i in range(150)])
        G = nx.disjoint_union(G, nx.gnm_random_graph(LANES + 50, 1500, seed=1))
    else:
        G = nx.barabasi_albert_graph(3 * LANES, 3, seed=4)
    if directed:
        rng = np.random.default_rng(5)
        arcs = [(u, v) for u, v in G.to_directed().edges if rng.random() < 0.7]
        n = G.number_of_nodes()
        G = nx.DiGraph()
        G.add_nodes_from(range(n))
        G.add_edges_from(arcs)
    return G


@pytest.mark.parametrize("kind", ["deep", "pieces", "hubs"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.slow
def test_many_batches(kind: str, directed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    G = large(kind, directed)
    ends = np.array(G.edges)
    order = np.random.default_rng(3).permutation(len(G))
    graph = gf.from_edges(order[ends[:, 0]], order[ends[:, 1]], directed=directed, labels=np.arange(len(G)))
    theirs = igraph.Graph(n=len(G), edges=np.stack([order[ends[:, 0]], order[ends[:, 1]]], axis=1), directed=directed)
    distance = np.array(theirs.distances(mode="in"), np.float64)
    near = np.isfinite(distance) & (distance > 0)
    sums = np.where(near, distance, 0.0).sum(axis=1)
    inverse = np.divide(1.0, distance, out=np.zeros_like(distance), where=near).sum(axis=1)
    first = closeness(graph, threads=1)
    np.testing.assert_array_equal(first.total, sums)
    np.testing.assert_array_equal(first.reached, near.sum(axis=1))
    alone = harmonic(graph, threads=1).scores
    np.testing.assert_allclose(alone, inverse, rtol=1e-13)
    for threads in (2, 5):
        assert np.array_equal(closeness(graph, threads=threads).scores, first.scores)
        assert np.array_equal(harmonic(graph, threads=threads).scores, alone), "threads must not change a bit"
    # Searches that are left and taken up again find the same.
    monkeypatch.setattr(searches, "_BATCH_CHUNK", 1)
    np.testing.assert_array_equal(closeness(graph).total, sums)
    few = [0, 3, 7]
    np.testing.assert_array_equal(closeness(graph, vertices=few).total, sums[few])
    np.testing.assert_allclose(harmonic(graph, vertices=few).scores, inverse[few], rtol=1e-13)


@pytest.mark.parametrize("threads", [1, 3])
def test_weighted_sums_do_not_depend_on_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "_DISTANCE_CHUNK", 500)
    G = nx.gnm_random_graph(120, 300, seed=2, directed=True)
    rng = np.random.default_rng(1)
    ends, weight = np.array(G.edges), rng.random(300)
    graph = gf.from_edges(ends[:, 0], ends[:, 1], weight, directed=True, labels=np.arange(120))
    for sources in (None, [1, 5, 9, 17]):  # against the arcs, and along them
        found, first = (harmonic(graph, sources=sources, threads=t).scores for t in (threads, 2))
        assert np.array_equal(found, first)
    G.add_weighted_edges_from((*e, w) for e, w in zip(ends.tolist(), weight.tolist(), strict=True))
    expected = by_vertex(nx.harmonic_centrality(G, distance="weight", sources=[1, 5, 9, 17]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(st.integers(2, 60))
@settings(max_examples=20)
def test_closed_forms(n: int) -> None:
    path = closeness(gf.from_edges(np.arange(n - 1), np.arange(1, n)))
    i = np.arange(n)
    np.testing.assert_array_equal(path.total, i * (i + 1) / 2 + (n - 1 - i) * (n - i) / 2)
    star = gf.from_edges(np.zeros(n - 1, np.int64), np.arange(1, n))
    np.testing.assert_allclose(harmonic(star).scores, [n - 1] + [1 + (n - 2) / 2] * (n - 1))
    assert closeness(star).scores[0] == 1.0
    np.testing.assert_allclose(harmonic(star, normalized=True).scores[0], 1.0)


def test_loops_and_parallel_edges() -> None:
    edges = [(0, 1, 3.0), (0, 1, 1.0), (1, 1, 5.0), (1, 2, 2.0)]
    src, dst, weight = (list(column) for column in zip(*edges, strict=True))
    graph = gf.from_edges(src, dst, weight, self_loops="keep", parallel="keep")
    assert closeness(graph).total.tolist() == [4.0, 3.0, 5.0]
    assert closeness(graph, weighted=False).total.tolist() == [3.0, 2.0, 3.0]
    same = gf.from_edges([0, 1], [1, 2], [0.0, 0.0])
    assert closeness(same).scores.tolist() == [0.0, 0.0, 0.0]
    assert harmonic(same).scores.tolist() == [0.0, 0.0, 0.0]


def test_empty_and_tiny_graphs() -> None:
    for n in (0, 1, 2):
        graph = gf.from_edges([], [], labels=np.arange(n))
        assert closeness(graph).scores.tolist() == harmonic(graph).scores.tolist() == [0.0] * n


@pytest.mark.parametrize("vertices", [None, [0, 1]])
def test_progress_ends_with_all_work_done(vertices: Any) -> None:
    told: list[tuple[float, float]] = []
    home = threading.get_ident()

    def tell(done: float, todo: float) -> None:
        assert threading.get_ident() == home
        told.append((done, todo))

    closeness(gf.from_edges(np.arange(2000), np.arange(1, 2001)), vertices=vertices, progress=tell)
    assert told[-1][0] == told[-1][1] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_an_interruption_ends_all_threads_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = gf.from_edges(rng.integers(0, 30_000, 90_000), rng.integers(0, 30_000, 90_000))
    begun: list[int] = []
    begin = searches.kernels.begin_batch
    monkeypatch.setattr(searches.kernels, "begin_batch", lambda *args: (begun.append(1), begin(*args)))

    def stop(done: float, todo: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        closeness(graph, threads=2, progress=stop)
    assert 1 <= len(begun) < 30_000 // LANES // 2, "the other thread went on to the end"


def test_tables_and_options() -> None:
    G = nx.krackhardt_kite_graph()
    ends = np.array(G.edges)
    names = np.array(list("abcdefghij"))
    graph = gf.from_edges(names[ends[:, 0]], names[ends[:, 1]])
    expected = {names[v]: c for v, c in nx.closeness_centrality(G).items()}
    found = gf.closeness(graph)
    assert found.to_dict() == expected
    lengths = [d for _, row in nx.all_pairs_shortest_path_length(G) for d in row.values() if d]
    assert found.summary["mean_distance"] == pytest.approx(np.mean(lengths))
    ranked = sorted(expected, key=lambda v: (-expected[v], v))
    assert gf.closeness(graph, top=3).table["vertex"].to_pylist() == ranked[:3]
    assert gf.closeness(graph, vertices=["j", "a"]).to_dict() == {"a": expected["a"], "j": expected["j"]}
    spread = nx.harmonic_centrality(G, sources=[0, 9])
    assert gf.harmonic(graph, sources=["a", "j"], vertices=["c"]).to_dict() == pytest.approx({"c": spread[2]})
    lines: list[str] = []
    gf.harmonic(graph, note=lines.append)
    assert lines[-1].startswith("100.0 % of the searches")


def test_a_partitioned_graph_is_put_together() -> None:
    graph = gf.from_edges([0, 1, 2], [1, 2, 3])
    for call in (gf.closeness, gf.harmonic):
        assert call(gf.partition(graph, parts=2)).to_dict() == call(graph).to_dict()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda g: gf.closeness(g, weighted=True), "weighted=True: the graph has no weights"),
        (lambda g: gf.closeness(g, top=0), "top=0 should be greater than or equal to 1"),
        (lambda g: gf.harmonic(g, vertices=[77]), "77"),
        (lambda g: gf.harmonic(g, sources=[0, 77]), "77"),
        (lambda g: gf.closeness(g, vertices=[1.5]), "vertices"),
        (lambda g: closeness(g, vertices=3), "vertices=3: expected a list of vertex labels"),
        (lambda g: closeness(g, threads=0), "threads=0"),
        (lambda g: gf.run("harmonic", g, parts=2), "runs only in memory; omit parts"),
        (lambda g: gf.run("closeness", g, engine="local"), "omit engine"),
    ],
)
def test_bad_input(call: Any, told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        call(gf.from_edges([0, 1, 2], [1, 2, 3]))
    assert "\n" not in str(error.value)
