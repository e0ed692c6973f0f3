"""Truss numbers against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.clustering import in_memory, trusses
from goffish.algorithms.clustering.trusses import trusses_of
from goffish.graph import Graph
from tests.algorithms.test_whole_counts import EDGES, build, simple


def expected(reference: nx.Graph) -> dict[tuple[int, int], int]:
    """The largest k whose k-truss holds each edge."""
    found: dict[tuple[int, int], int] = {}
    k, left = 2, reference
    while left.number_of_edges():
        found |= {(min(e), max(e)): k for e in left.edges}
        k += 1
        left = nx.k_truss(left, k)
    return found


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.sampled_from([1, 2, 3]))
def test_trusses_equal_networkx(case: tuple[int, list[tuple[int, int]]], directed: bool, threads: int) -> None:
    """Breaks when a triangle is missed or counted twice, or an edge takes too many others with it."""
    n, edges = case
    result = gf.truss_numbers(build(n, edges, directed), threads=threads)
    reference = expected(simple(n, edges))
    assert result.to_dict() == reference
    assert list(result.to_dict()) == sorted(reference)
    values = list(reference.values())
    largest = max(values, default=0)
    assert result.summary == {"largest": largest, "innermost": values.count(largest)}


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_larger_graphs_on_any_number_of_threads(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hubs, many levels and many tasks; every number is the same on any number of threads."""
    rng = np.random.default_rng(3)
    edges = [*(rng.random((4000, 2)) ** 3 * 400).astype(np.int64).tolist(), *nx.complete_graph(12).edges]
    graph, reference = build(400, edges, False), expected(simple(400, edges))
    graph = Graph(graph.offsets, graph.targets.astype(kind), False, graph.num_edges)
    assert max(reference.values()) > 10
    monkeypatch.setattr(trusses, "STEPS", 1 << 10)
    for threads in (1, 3):
        ends, truss = trusses_of(graph, threads=threads)
        assert dict(zip(zip(*ends.tolist(), strict=True), truss.tolist(), strict=True)) == reference
    assert in_memory.STEPS > 1 << 10


def test_labels_stores_and_graphs_without_triangles() -> None:
    graph = gf.from_edges(["a", "b", "c", "c"], ["b", "c", "a", "d"], [0.0, 1.0, 2.0, 3.0])
    reference = {("a", "b"): 3, ("a", "c"): 3, ("b", "c"): 3, ("c", "d"): 2}
    assert gf.truss_numbers(graph).to_dict() == reference
    assert gf.run("trusses", gf.partition(graph, parts=2)).to_dict() == reference
    path = gf.truss_numbers(gf.from_edges(np.arange(99_999), np.arange(1, 100_000)))
    assert path.summary == {"largest": 2, "innermost": 99_999}
    for n in (0, 1, 5):
        empty = gf.truss_numbers(build(n, [], False))
        assert (len(empty), empty.summary) == (0, {"largest": 0, "innermost": 0})
    clique = gf.truss_numbers(gf.from_networkx(nx.complete_graph(40)))
    assert clique.summary == {"largest": 40, "innermost": 780}


def test_errors() -> None:
    with pytest.raises(gf.InputError, match="threads=0"):
        gf.truss_numbers(gf.from_edges([1], [2]), threads=0)
    with pytest.raises(gf.InputError, match="runs only in memory; omit engine"):
        gf.run("trusses", gf.from_edges([1], [2]), "local")
