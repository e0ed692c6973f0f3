"""Topological orders and longest paths, against networkx."""

from __future__ import annotations

import re
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.graph import Graph
from tests.algorithms.test_whole_paths import EDGES, build


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans())
def test_orders_and_paths_equal_those_of_networkx(case, forward, weighted):
    """Fails when an arc leads backward, a longer path is missed, or a cycle is not one."""
    n, edges = case
    edges = [(min(u, v), max(u, v), w) for u, v, w in edges if u != v] if forward else edges
    graph = build(n, edges, True, weighted)
    reference = nx.MultiDiGraph()
    reference.add_nodes_from(range(n))
    reference.add_weighted_edges_from((u, v, w if weighted else 1) for u, v, w in edges)
    if not nx.is_directed_acyclic_graph(reference):
        for function in (gf.topological_order, gf.longest_path):
            with pytest.raises(gf.InputError, match="graph has a cycle") as refused:
                function(graph)
            shown = str(refused.value).removeprefix("graph has a cycle: ")
            if "…" not in shown:
                cycle = [int(v) for v in shown.split(" -> ")]
                assert cycle[0] == cycle[-1] and len(set(cycle)) == len(cycle) - 1
                assert all(reference.has_edge(u, v) for u, v in pairwise(cycle))
        return
    order = gf.topological_order(graph)
    generations = [sorted(generation) for generation in nx.topological_generations(reference)]
    assert list(order) == [(v, level) for level, generation in enumerate(generations) for v in generation]
    assert order.summary == {"levels": len(generations)}
    longest = gf.longest_path(graph)
    length = nx.dag_longest_path_length(reference)
    assert longest.summary["length"] == pytest.approx(length, rel=1e-12)
    rows = list(longest)
    assert (rows[0][1], rows[-1][1], len(rows)) == (0.0, longest.summary["length"], longest.summary["hops"] + 1)
    for (u, before), (v, after) in pairwise(rows):
        assert after == before + max(data["weight"] for data in reference[u][v].values())


def test_long_paths_and_cycles() -> None:
    n = 200_000
    line = gf.from_edges(np.arange(n - 1), np.arange(1, n), np.full(n - 1, 0.5), directed=True)
    assert gf.longest_path(line).summary == {"length": (n - 1) / 2, "hops": n - 1}
    assert gf.topological_order(line).summary == {"levels": n}
    wide = Graph(line.offsets, line.targets.astype(np.int64), True, line.num_edges, line.weights)
    assert gf.longest_path(wide).table == gf.longest_path(line).table
    ring = gf.from_edges(np.arange(n), np.roll(np.arange(n), -1), directed=True)
    with pytest.raises(gf.InputError, match=re.escape("9 -> … (200,000 vertices)")):
        gf.topological_order(ring)


def test_labels_stores_and_errors() -> None:
    graph = gf.from_edges(["c", "a", "c"], ["a", "b", "b"], [1.0, 1.0, 5.0], directed=True)
    assert list(gf.topological_order(graph)) == [("c", 0), ("a", 1), ("b", 2)]
    assert gf.longest_path(graph).to_dict() == {"c": 0.0, "b": 5.0}
    assert gf.longest_path(graph, weighted=False).to_dict() == {"c": 0.0, "a": 1.0, "b": 2.0}
    cut = gf.partition(graph, parts=2)
    for name in ("topological-order", "longest-path"):
        assert gf.run(name, cut).to_dict() == gf.run(name, graph).to_dict()
    empty = gf.from_edges([], [], directed=True)
    assert (gf.topological_order(empty).summary, len(gf.longest_path(empty))) == ({"levels": 0}, 0)
    loop = gf.from_edges(["x"], ["x"], directed=True, self_loops="keep")
    with pytest.raises(gf.InputError, match="graph has a cycle: x -> x"):
        gf.longest_path(loop)
    with pytest.raises(gf.InputError, match="graph is undirected"):
        gf.topological_order(gf.from_edges([1], [2]))
