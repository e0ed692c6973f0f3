"""Spanning forests against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

import goffish as gf
from goffish.algorithms.structure.in_memory import forest_of_edges
from goffish.graph import Graph, to_scipy
from tests.algorithms.test_whole_components import EDGES, build

Case = tuple[int, list[tuple[int, int]]]


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.data())
def test_forests_equal_those_of_networkx(case: Case, directed: bool, data: st.DataObject) -> None:
    """Breaks when a cycle is closed, an edge is missing, or a lighter one is left out; ties are taken in edge order."""
    n, edges = case
    weight = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5]), min_size=len(edges), max_size=len(edges)))
    graph = build(n, edges, directed, weight=weight)
    # In the order of the rows: networkx sorts by weight and takes the first of equal ones.
    src, dst, weights, _ = graph.to_undirected().edge_columns()
    assert weights is not None
    lightest: dict[tuple[int, int], float] = {}
    for u, v, w in zip(src.tolist(), dst.tolist(), weights.tolist(), strict=True):
        lightest[u, v] = min(w, lightest.get((u, v), w))
    reference = nx.Graph()
    reference.add_nodes_from(range(n))
    reference.add_weighted_edges_from((u, v, w) for (u, v), w in lightest.items())
    expected = {(min(u, v), max(u, v)): w["weight"] for u, v, w in nx.minimum_spanning_edges(reference)}
    found = gf.minimum_spanning_forest(graph)
    assert list(found.to_dict().items()) == sorted(expected.items())
    trees = nx.number_connected_components(reference)
    assert found.summary == {"edges": n - trees, "trees": trees, "weight": pytest.approx(sum(expected.values()))}
    columns = forest_of_edges(src, dst, weights, n)
    assert list(zip(src[columns].tolist(), dst[columns].tolist(), strict=True)) == sorted(expected)
    plain = gf.minimum_spanning_forest(graph, weighted=False).to_dict()
    joined = nx.Graph(list(plain))
    joined.add_nodes_from(range(n))
    assert set(plain.values()) <= {1.0} and nx.is_forest(joined)
    assert nx.number_connected_components(joined) == trees == n - len(plain)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_large_forests(kind: type) -> None:
    """Many rounds, long paths whose vertices all choose the same direction, and stars."""
    rng = np.random.default_rng(1)
    n, m = 3000, 9000
    src, dst, weight = rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(1, 50, m).astype(float)
    graph = gf.from_edges(src, dst, weight, labels=np.arange(n))
    wide = Graph(graph.offsets, graph.targets.astype(kind), False, graph.num_edges, graph.weights)
    found = gf.minimum_spanning_forest(wide)
    tree = minimum_spanning_tree(to_scipy(graph))
    assert (found.summary["weight"], found.summary["edges"]) == (tree.sum(), tree.nnz)
    n = 200_000
    for weight in (np.ones(n - 1), np.arange(1.0, n), np.arange(1.0, n)[::-1]):
        for first in (np.arange(n - 1), np.zeros(n - 1, np.int64)):
            assert gf.minimum_spanning_forest(gf.from_edges(first, np.arange(1, n), weight)).summary["edges"] == n - 1


def test_forests_of_labels_stores_and_odd_graphs() -> None:
    graph = gf.from_edges(["b", "c", "a", "x"], ["a", "b", "c", "y"], [2.0, 1.0, 3.0, 0.0], isolated=["z"])
    found = gf.minimum_spanning_forest(graph)
    assert found.to_dict() == {("a", "b"): 2.0, ("b", "c"): 1.0, ("x", "y"): 0.0}
    assert found.summary == {"edges": 3, "trees": 3, "weight": 3.0}
    assert gf.run("spanning-forest", gf.partition(graph, parts=2)).to_dict() == found.to_dict()
    empty = gf.minimum_spanning_forest(gf.from_edges([], []))
    assert (len(empty), empty.summary) == (0, {"edges": 0, "trees": 0, "weight": 0.0})
    both = gf.from_edges([1, 2, 2], [2, 1, 3], [5.0, 4.0, 1.0], directed=True)
    assert gf.minimum_spanning_forest(both).to_dict() == {(1, 2): 4.0, (2, 3): 1.0}
    with pytest.raises(gf.InputError, match="weights must be 0 or from"):
        gf.minimum_spanning_forest(gf.from_edges([1], [2], [1e200]))
    with pytest.raises(gf.InputError, match="weighted"):
        gf.minimum_spanning_forest(graph, weighted="heavy")  # type: ignore[arg-type]
