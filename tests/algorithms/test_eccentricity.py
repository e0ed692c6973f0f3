"""Eccentricities and diameters, against networkx and SciPy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

import goffish as gf
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build


def expected(graph: Graph) -> list[int]:
    matrix = scipy.sparse.csr_array((np.ones(graph.num_arcs), graph.targets, graph.offsets), shape=(len(graph),) * 2)
    lengths = dijkstra(matrix, unweighted=True)
    return np.where(np.isfinite(lengths), lengths, 0).max(axis=1).astype(int).tolist()


def check(graph: Graph) -> None:
    values = expected(graph)
    found = gf.eccentricity(graph)
    assert found.table["eccentricity"].to_pylist() == values
    assert (found.summary["diameter"], found.summary["radius"]) == (max(values), min(values))
    farthest = gf.diameter(graph)
    ((source, target, distance),) = farthest
    assert distance == farthest.summary["diameter"] == max(values)
    assert gf.bfs(graph, source).to_dict()[target] == distance


@settings(max_examples=200)
@given(EDGES, st.booleans())
@pytest.mark.slow
def test_values_equal_those_of_all_searches(case: tuple[int, list[tuple[int, int]]], directed: bool) -> None:
    """Fails when a bound is wrong, or a vertex is left out although its bounds differ."""
    check(build(*case, directed))


@pytest.mark.parametrize("directed", [False, True])
def test_large_graphs(directed: bool) -> None:
    """Giants among many small components, thin and dense: where searches turn round, and where bounds decide."""
    rng = np.random.default_rng(3)
    for m in (500, 1200, 6000):
        check(build(1000, rng.integers(0, 1000, (m, 2)).tolist(), directed))
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 25))
    check(gf.from_networkx(grid.to_directed() if directed else grid))


def test_few_searches_are_enough() -> None:
    """Fails when bounds are not used: a search for each vertex would be counted."""
    rng = np.random.default_rng(1)
    hubs = (20_000 * rng.random(40_000) ** 4).astype(int)
    graph = gf.from_edges(rng.integers(0, 20_000, 40_000), hubs).largest_component()
    assert gf.diameter(graph).summary["searches"] < 100
    n = 100_000
    line = gf.from_edges(np.arange(n - 1), np.arange(1, n))
    assert gf.diameter(line).summary["diameter"] == n - 1
    assert gf.eccentricity(line).summary["searches"] < 20
    one_way = gf.from_edges(np.arange(n - 1), np.arange(1, n), directed=True)
    assert gf.diameter(one_way).summary == {"diameter": n - 1, "searches": n + 1}


@pytest.mark.slow
def test_labels_stores_and_small_graphs() -> None:
    graph = gf.from_edges(["a", "b", "x"], ["b", "c", "y"], directed=True)
    assert gf.eccentricity(graph).to_dict() == {"a": 2, "b": 1, "c": 0, "x": 1, "y": 0}
    assert gf.diameter(graph).to_dict() == {("a", "c"): 2}
    cut = gf.partition(graph, parts=2)
    for name in ("eccentricity", "diameter"):
        assert gf.run(name, cut).to_dict() == gf.run(name, graph).to_dict()
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), True, graph.num_edges)
    assert gf.eccentricity(wide).summary == gf.eccentricity(graph).summary
    empty = gf.from_edges([], [])
    assert (len(gf.eccentricity(empty)), len(gf.diameter(empty))) == (0, 0)
    assert gf.diameter(empty).summary == {"diameter": 0, "searches": 0}
    assert gf.diameter(gf.from_edges([], [], labels=["a"])).to_dict() == {("a", "a"): 0}
