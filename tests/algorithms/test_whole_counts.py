"""Whole-graph triangles and cores against networkx."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish import threads as interrupts
from goffish.algorithms.clustering import in_memory as whole
from goffish.algorithms.clustering.in_memory import core_numbers, triangles, triangles_of
from goffish.graph import Graph, from_edges

EDGES = st.integers(0, 12).flatmap(
    lambda n: st.tuples(st.just(n + 1), st.lists(st.tuples(st.integers(0, n), st.integers(0, n)), max_size=45))
)


def build(n: int, edges: list[tuple[int, int]], directed: bool) -> Graph:
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return from_edges(
        ends[:, 0], ends[:, 1], labels=np.arange(n), directed=directed, self_loops="keep", parallel="keep"
    )


def simple(n: int, edges: list[tuple[int, int]]) -> nx.Graph:
    out = nx.Graph((u, v) for u, v in edges if u != v)
    out.add_nodes_from(range(n))
    return out


@given(EDGES, st.booleans(), st.sampled_from([1, 2, 3]))
def test_triangles_equal_networkx(case, directed, threads):
    """Fails when loops, parallel arcs or directions are counted, or a corner is left out."""
    n, edges = case
    result = triangles(build(n, edges, directed), threads=threads)
    expected = simple(n, edges)
    assert result.to_dict() == nx.triangles(expected)
    assert result.summary["total"] == sum(nx.triangles(expected).values()) // 3
    local = gf.clustering(build(n, edges, directed), threads=threads)
    assert local.to_dict() == pytest.approx(nx.clustering(expected))
    assert (local.to_dict("triangles"), local.to_dict("neighbors")) == (nx.triangles(expected), dict(expected.degree))
    assert local.summary == result.summary
    assert result.summary["average_clustering"] == pytest.approx(nx.average_clustering(expected))
    assert result.summary["transitivity"] == pytest.approx(nx.transitivity(expected))


@given(EDGES, st.booleans())
def test_cores_equal_networkx(case, directed):
    """Fails when the peeling order or the simple view is wrong."""
    n, edges = case
    result = core_numbers(build(n, edges, directed))
    expected = nx.core_number(simple(n, edges))
    assert result.to_dict() == expected
    assert result.summary["degeneracy"] == max(expected.values())
    assert result.summary["innermost"] == list(expected.values()).count(max(expected.values()))


@pytest.mark.parametrize("exponent", [1, 3])
def test_larger_graphs_on_any_number_of_threads(exponent):
    """A skewed graph, so that the ranges of the threads differ; every count is the same to the bit."""
    rng = np.random.default_rng(1)
    n = 1500
    edges = (rng.random((20_000, 2)) ** exponent * n).astype(np.int64).tolist()
    graph, expected = build(n, edges, False), simple(n, edges)
    corners = nx.triangles(expected)
    for threads in (1, 2, 3, 5):
        assert triangles_of(graph, threads=threads)[0].tolist() == [corners[v] for v in range(n)]
    assert core_numbers(graph).to_dict() == nx.core_number(expected)


@pytest.mark.slow
def test_sixty_four_bit_targets_give_the_same_answer():
    graph = build(60, np.random.default_rng(2).integers(0, 60, (400, 2)).tolist(), False)
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), False, graph.num_edges)
    assert triangles(wide).to_dict() == triangles(graph).to_dict()
    assert core_numbers(wide).to_dict() == core_numbers(graph).to_dict()


def test_labels_and_graphs_without_edges():
    graph = from_edges(["a", "b", "c", "c"], ["b", "c", "a", "d"])
    assert triangles(graph).to_dict() == {"a": 1, "b": 1, "c": 1, "d": 0}
    assert core_numbers(graph).to_dict() == {"a": 2, "b": 2, "c": 2, "d": 1}
    for directed in (False, True):
        empty = build(0, [], directed)
        assert triangles(empty).table.num_rows == core_numbers(empty).table.num_rows == 0
        assert triangles(empty).summary == {"total": 0, "average_clustering": 0.0, "transitivity": 0.0}
        assert core_numbers(build(1, [], directed)).to_dict() == {0: 0}


def test_triangles_in_many_small_tasks(monkeypatch):
    """Ctrl-C is heard between two tasks; buffers pass from one to the next."""
    monkeypatch.setattr(whole, "STEPS", 5)
    edges = nx.powerlaw_cluster_graph(60, 4, 0.6, seed=2)
    src, dst = np.array(edges.edges).T
    for threads in (1, 3):
        assert triangles(from_edges(src, dst), threads=threads).to_dict() == nx.triangles(edges)


@pytest.fixture
def heard() -> Iterator[threading.Event]:
    """Set when SIGINT is handled, as Ctrl-C would be; a test runner may have it ignored."""
    event = threading.Event()

    def handle(number: int, frame: object) -> None:
        event.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    yield event
    event.set()
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_triangles_at_the_next_task(threads, monkeypatch, heard):
    """Fails when the work is a task per thread, or the other threads go on to the end."""
    monkeypatch.setattr(whole, "STEPS", 1 << 8)
    graph = gf.from_networkx(nx.gnm_random_graph(3000, 30_000, seed=1))
    begun: list[int] = []
    count = whole.kernels.count_triangles

    def counted(*given):
        begun.append(1)
        count(*given)

    monkeypatch.setattr(whole.kernels, "count_triangles", counted)
    expected = gf.triangles(graph, threads=threads).to_dict()
    tasks = len(begun)
    assert tasks > 500
    begun.clear()

    def interrupted(*given):
        begun.append(1)
        if len(begun) == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if threading.current_thread() is not threading.main_thread():
            assert heard.wait(60)
        count(*given)

    monkeypatch.setattr(whole.kernels, "count_triangles", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gf.triangles(graph, threads=threads)
    assert heard.is_set()
    assert 1 <= len(begun) < tasks // 2
    monkeypatch.setattr(whole.kernels, "count_triangles", count)
    assert gf.triangles(graph, threads=threads).to_dict() == expected


@pytest.mark.parametrize(
    ("name", "options", "module", "kernel"),
    [
        ("cores", {}, "clustering.in_memory", "peel"),
        ("components", {}, "components.in_memory", "join_sampled"),
        ("components", {}, "components.in_memory", "join_all"),
        ("bfs", {"source": 0}, "paths.in_memory", "breadth_first"),
        ("sssp", {"source": 0}, "paths.in_memory", "dijkstra"),
        ("triangles", {}, "clustering.in_memory", "orient"),
        ("betweenness", {}, "betweenness.reductions", "find_blocks"),
        ("spanning-forest", {}, "structure.in_memory", "lightest_arcs"),
        ("label-propagation", {}, "structure.in_memory", "propagate"),
        ("matching", {}, "structure.in_memory", "match"),
        ("maximum-flow", {"source": 0, "target": 1}, "flows.in_memory", "grow"),
    ],
)
def test_an_interrupt_does_not_wait_for_a_kernel(name, options, module, kernel, monkeypatch, heard):
    """Fails when a kernel of a whole graph runs where it keeps the interrupt from being heard."""
    module = importlib.import_module(f"goffish.algorithms.{module}")
    edges = np.array(nx.gnm_random_graph(300, 400 if kernel == "join_all" else 6000, seed=1).edges)
    graph = gf.from_edges(*edges.T, np.arange(1.0, 1 + len(edges)) if name == "sssp" else None)
    ends, runs_on = threading.Event(), []

    def endless(*given):
        runs_on.append(threading.current_thread())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        ends.wait(60)

    monkeypatch.setattr(interrupts, "_LONG", 1)
    monkeypatch.setattr(module.kernels, kernel, endless)
    with pytest.raises(KeyboardInterrupt):
        gf.run(name, graph, **options)
    ends.set()
    assert heard.is_set()
    assert len(runs_on) == 1 and runs_on[0] is not threading.main_thread(), "a compiled kernel would hear nothing there"


@pytest.mark.parametrize("units", [None, "single", "vertex"])
def test_directed_stores_are_seen_as_undirected(tmp_path, units):
    edges = nx.gnp_random_graph(30, 0.12, seed=4, directed=True)
    src, dst = np.array(edges.edges).T
    gf.partition(from_edges(src, dst, labels=np.arange(30), directed=True), 3, "range").save(tmp_path / "store")
    store, undirected = gf.open(tmp_path / "store"), nx.Graph(edges)
    assert gf.run("triangles", store, units=units).to_dict() == nx.triangles(undirected)
    found = gf.run("clustering", store, units=units)
    assert found.to_dict() == gf.clustering(from_edges(src, dst, labels=np.arange(30))).to_dict()
    assert found.summary["average_clustering"] == pytest.approx(nx.average_clustering(undirected))
    assert found.summary["transitivity"] == pytest.approx(nx.transitivity(undirected))
    assert gf.run("cores", store, units=units).to_dict() == nx.core_number(undirected)
