"""Spanning forests and biconnected components against networkx and SciPy."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

import goffish as gf
from goffish.algorithms.structure.in_memory import forest_of_edges
from goffish.gofs import build_layout
from goffish.graph import Graph, to_scipy
from tests.algorithms.test_whole_components import EDGES, build

Case = tuple[int, list[tuple[int, int]]]


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


@given(EDGES, st.booleans())
def test_blocks_equal_those_of_networkx(case: Case, directed: bool) -> None:
    """Breaks when a block is torn or two are joined, and when a loop or a parallel edge is taken for something else."""
    n, edges = case
    graph = build(n, edges, directed)
    simple = nx.Graph(edges)
    simple.add_nodes_from(range(n))
    times = Counter((min(edge), max(edge)) for edge in edges)
    cut = {v: sum(v in c for c in nx.biconnected_components(simple)) for v in nx.articulation_points(simple)}
    bridges = {(min(e), max(e)) for e in nx.bridges(simple) if times[min(e), max(e)] == 1}
    sides = {}
    for u, v in bridges:
        simple.remove_edge(u, v)
        sides[u, v] = min(len(nx.node_connected_component(simple, end)) for end in (u, v))
        simple.add_edge(u, v)
    blocks = list(nx.biconnected_components(simple))
    summary = {
        "blocks": len(blocks), "largest": max(map(len, blocks), default=0),
        "articulation_points": len(cut), "bridges": len(bridges),
    }  # fmt: skip
    points, found = gf.articulation_points(graph), gf.bridges(graph)
    assert points.to_dict() == cut and list(points.to_dict()) == sorted(cut)
    assert found.to_dict() == sides and list(found.to_dict()) == sorted(sides)
    parts = gf.biconnected_components(graph)
    members = defaultdict(set)
    for u, v, block in parts:
        assert (block is None) == (u == v)
        members[block] |= {u, v}
    members.pop(None, None)
    assert list(members) == list(range(len(blocks))), "blocks are numbered by their first edges"
    assert set(map(frozenset, members.values())) == set(map(frozenset, blocks))
    assert sorted(zip(parts.table["source"].to_pylist(), parts.table["target"].to_pylist(), strict=True)) == sorted(
        times.elements()
    )
    assert points.summary == found.summary == parts.summary == summary


def test_blocks_of_large_and_odd_graphs() -> None:
    n = 300_000
    path = gf.from_edges(np.arange(n - 1), np.arange(1, n))
    assert gf.bridges(path).summary == {"blocks": n - 1, "largest": 2, "articulation_points": n - 2, "bridges": n - 1}
    assert gf.bridges(path)[0, 1] == 1 and gf.bridges(path)[n // 2 - 1, n // 2] == n // 2
    cycle = gf.from_edges(np.arange(n), np.roll(np.arange(n), -1))
    summary = {"blocks": 1, "largest": n, "articulation_points": 0, "bridges": 0}
    assert gf.articulation_points(cycle).summary == summary
    wide = Graph(cycle.offsets, cycle.targets.astype(np.int64), False, cycle.num_edges)
    assert gf.biconnected_components(wide).summary == summary
    names = gf.from_edges(["b", "c", "a", "c"], ["a", "b", "c", "d"], isolated=["z"])
    assert gf.articulation_points(names).to_dict() == {"c": 2}
    assert gf.bridges(names).to_dict() == {("c", "d"): 1}
    parted = gf.partition(names, parts=2)
    for name in ("bridges", "articulation-points", "biconnected-components"):
        assert gf.run(name, parted).to_dict() == gf.run(name, names).to_dict()
        assert len(gf.run(name, gf.from_edges([], []))) == 0


def simple_graph(case: Case) -> nx.Graph:
    reference = nx.Graph()
    reference.add_nodes_from(range(case[0]))
    reference.add_edges_from((u, v) for u, v in case[1] if u != v)
    return reference


@given(EDGES, st.booleans())
def test_greedy_choices(case: Case, directed: bool) -> None:
    """Each is what it says, cannot be extended, and follows its order; the oracle is a loop over that order."""
    n, edges = case
    graph, simple = build(n, edges, directed), simple_graph(case)
    degree = graph.to_undirected().degree

    expected: set[int] = set()
    for v in sorted(range(n), key=lambda v: degree[v]):
        if not expected & set(simple[v]):
            expected.add(v)
    found = gf.maximal_independent_set(graph)
    assert {v for v, member in found if member} == expected
    assert found.summary == {"members": len(expected)}
    assert all(set(simple[v]) & expected for v in set(simple) - expected), "a vertex can be added"

    partner: dict[int, int] = {}
    for u, v in sorted((min(edge), max(edge)) for edge in simple.edges):
        if u not in partner and v not in partner:
            partner |= {u: v, v: u}
    pairs = gf.maximal_matching(graph)
    assert pairs.to_dict() == {v: partner.get(v) for v in range(n)}
    assert pairs.summary == {"edges": len(partner) // 2, "unmatched": n - len(partner)}
    assert nx.is_maximal_matching(simple, {(u, v) for u, v in partner.items() if u < v})

    color: dict[int, int] = {}
    for v in sorted(range(n), key=lambda v: -degree[v]):
        color[v] = min(set(range(n)) - {color[u] for u in simple[v] if u in color})
    colors = gf.greedy_coloring(graph)
    assert colors.to_dict() == color
    assert colors.summary == {"colors": len(set(color.values())), "largest": max(Counter(color.values()).values())}
    last = gf.greedy_coloring(graph, order="smallest-last")
    assert all(last[u] != last[v] for u, v in simple.edges)
    assert last.summary["colors"] <= max(nx.core_number(simple).values()) + 1


@given(EDGES, st.booleans(), st.data())
def test_labels_settle(case: Case, directed: bool, data: st.DataObject) -> None:
    """Communities are those of networkx without weights; with them, no label has more weight than that of a vertex."""
    n, edges = case
    graph = build(n, edges, directed)
    reference = nx.MultiGraph()
    reference.add_nodes_from(range(n))
    kept = graph.to_undirected(parallel="sum").edge_columns()
    reference.add_edges_from(zip(kept[0].tolist(), kept[1].tolist(), strict=True))
    found = gf.label_propagation(graph)
    groups = defaultdict(set)
    for v, community in found:
        groups[community].add(v)
    assert list(groups) == list(range(len(groups)))
    assert list(groups.values()) == list(nx.community.label_propagation_communities(reference))
    largest = max(map(len, groups.values()))
    assert found.summary["communities"] == len(groups) and found.summary["largest"] == largest
    weight = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 5.0]), min_size=len(edges), max_size=len(edges)))
    weighted = build(n, edges, directed, weight=weight)
    label = gf.label_propagation(weighted).to_dict()
    votes = [Counter[int]() for _ in range(n)]
    for (u, v), w in zip(edges, weight, strict=True):
        votes[u][label[v]] += w  # type: ignore[assignment]
        if u != v:
            votes[v][label[u]] += w  # type: ignore[assignment]
    for v in range(n):
        assert votes[v][label[v]] >= max(votes[v].values(), default=0) - 1e-9
    plain = gf.label_propagation(weighted, weighted=False)
    assert plain.to_dict() == found.to_dict()


def test_choices_of_large_and_odd_graphs() -> None:
    n = 300_000
    path = gf.from_edges(np.arange(n - 1), np.arange(1, n))
    assert gf.maximal_matching(path).summary == {"edges": n // 2, "unmatched": 0}
    assert gf.maximal_independent_set(path).summary == {"members": n // 2}
    assert gf.greedy_coloring(path).summary["colors"] <= 3
    assert gf.greedy_coloring(path, order="smallest-last").summary == {"colors": 2, "largest": n // 2}
    planted = nx.planted_partition_graph(8, 40, 0.5, 0.005, seed=1)
    graph = gf.from_networkx(planted)
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), False, graph.num_edges)
    for name in ("label-propagation", "independent-set", "matching", "coloring"):
        assert gf.run(name, wide).to_dict() == gf.run(name, graph).to_dict()
        assert gf.run(name, gf.partition(graph, parts=2)).to_dict() == gf.run(name, graph).to_dict()
        assert len(gf.run(name, gf.from_edges([], []))) == 0
    assert gf.label_propagation(graph).to_dict() == {v: v // 40 for v in planted}
    pair = gf.from_edges(["a"], ["b"], isolated=["z"])
    assert gf.maximal_matching(pair).to_dict() == {"a": "b", "b": "a", "z": None}
    with pytest.raises(gf.InputError, match="order='smallest-last' works only in memory"):
        gf.greedy_coloring(gf.partition(pair, 1), order="smallest-last")
    with pytest.raises(gf.InputError, match="'largest-first' or 'smallest-last'"):
        gf.greedy_coloring(pair, order="random")  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="weights must be 0 or from"):
        gf.label_propagation(gf.from_edges([1], [2], [1e200]))
    with pytest.warns(gf.errors.GoffishWarning, match="threads=2 has no effect"):
        gf.maximal_matching(pair, threads=2)


@given(EDGES, st.booleans(), st.integers(1, 5), st.sampled_from(["components", "single", "vertex"]), st.data())
def test_engines_choose_alike(case: Case, directed: bool, parts: int, units: Any, data: st.DataObject) -> None:
    """Breaks when a vertex decides before a neighbor in another partition whose turn is earlier."""
    n, edges = case
    graph = build(n, edges, directed)
    owner = data.draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n))
    cut = build_layout(graph, np.array(owner), parts, finder=units)
    for name in ("coloring", "independent-set", "label-propagation"):
        alone, found = gf.run(name, graph), gf.run(name, cut, units=units)
        assert found.to_dict() == alone.to_dict()
        assert {figure: found.summary[figure] for figure in alone.summary} == alone.summary
        assert found.table.schema.equals(alone.table.schema)
        assert found.stats is not None
    weight = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 5.0]), min_size=len(edges), max_size=len(edges)))
    weighted = build(n, edges, directed, weight=weight)
    forest = gf.minimum_spanning_forest(weighted)
    cut = build_layout(weighted, np.array(owner), parts, finder=units)
    for found in (gf.minimum_spanning_forest(cut), gf.run("spanning-forest", cut, threads=2)):
        assert found.table.equals(forest.table)
        assert {figure: found.summary[figure] for figure in forest.summary} == forest.summary
    plain = gf.minimum_spanning_forest(cut, weighted=False)
    assert plain.table.equals(gf.minimum_spanning_forest(weighted, weighted=False).table)
    alone = gf.label_propagation(weighted)
    found = gf.label_propagation(cut)
    assert found.to_dict() == alone.to_dict() and found.summary["rounds"] == alone.summary["rounds"]
