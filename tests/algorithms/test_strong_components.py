"""Strongly connected components and condensations, against networkx."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.components.in_memory import strong_component_of
from goffish.gofs import build_layout
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build


def expected(n: int, edges: list[tuple[int, int]]) -> tuple[list[int], nx.DiGraph]:
    reference = nx.DiGraph(edges)
    reference.add_nodes_from(range(n))
    out = [0] * n
    for members in nx.strongly_connected_components(reference):
        for v in members:
            out[v] = max(members)
    return out, reference


@settings(max_examples=200)
@given(EDGES)
def test_components_equal_those_of_networkx(case: tuple[int, list[tuple[int, int]]]) -> None:
    """Breaks when a cycle is missed, or what only leads to it is taken for a part of it."""
    n, edges = case
    graph = build(n, edges, True)
    result = gf.strongly_connected_components(graph)
    names, reference = expected(n, edges)
    assert result.table["component"].to_pylist() == names
    sizes = Counter(names)
    found = {"components": len(sizes), "largest": max(sizes.values()), "trivial": list(sizes.values()).count(1)}
    assert result.summary == found
    number = strong_component_of(graph)
    for u, v in edges:
        assert number[u] <= number[v], "an arc leads to a component that was complete before"
    same = gf.strongly_connected_components(build(n, edges, False)).to_dict()
    assert same == gf.connected_components(build(n, edges, False)).to_dict()
    condensed = gf.condensation(graph)
    assert set(condensed) == set(names) and nx.is_directed_acyclic_graph(gf.to_networkx(condensed))
    between = {(names[u], names[v]) for u, v in reference.edges if names[u] != names[v]}
    assert {(row["source"], row["target"]) for row in condensed.edges.to_pylist()} == between
    assert {row["vertex"]: row["size"] for row in condensed.vertices.to_pylist()} == dict(sizes)


@given(EDGES, st.booleans(), st.integers(1, 5), st.sampled_from(["components", "single", "vertex"]), st.data())
def test_engines_find_the_same(
    case: tuple[int, list[tuple[int, int]]], directed: bool, parts: int, units: Any, data: st.DataObject
) -> None:
    """Breaks when a search stops at the end of a partition, or goes on into another group."""
    n, edges = case
    graph = build(n, edges, directed)
    owner = data.draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n))
    alone = gf.strongly_connected_components(graph)
    found = gf.strongly_connected_components(build_layout(graph, np.array(owner), parts, finder=units))
    assert found.table.equals(alone.table)
    assert found.summary == alone.summary | {"supersteps": found.summary["supersteps"]}


def test_engines_divide_long_chains() -> None:
    """Breaks when components are found one after the other: chains need few rounds, in either order of the numbers."""
    n = 600
    rng = np.random.default_rng(1)
    for numbers in (np.arange(n), np.arange(n)[::-1], rng.permutation(n)):
        pairs = numbers.reshape(-1, 2)
        src = np.concatenate((pairs[:, 0], pairs[:, 1], pairs[:-1, 1]))
        dst = np.concatenate((pairs[:, 1], pairs[:, 0], pairs[1:, 0]))
        chain = gf.from_edges(src, dst, directed=True, labels=np.arange(n))
        found = gf.run("strong-components", chain, parts=2)
        assert found.table.equals(gf.strongly_connected_components(chain).table)
        assert found.summary["components"] == n // 2 and found.summary["supersteps"] < 200
    for m in (900, 2600, 9000):
        graph = build(2000, rng.integers(0, 2000, (m, 2)).tolist(), True)
        assert gf.run("strong-components", graph, parts=3).table["component"].to_pylist() == (
            gf.strongly_connected_components(graph).table["component"].to_pylist()
        )
    assert len(gf.run("strong-components", gf.from_edges([], [], directed=True), parts=1)) == 0


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_large_graphs(kind: type) -> None:
    """Paths as long as the graph, and giants among many small components: no recursion, no stack that is too short."""
    rng = np.random.default_rng(1)
    for m in (900, 2000, 2600, 9000):
        edges = rng.integers(0, 2000, (m, 2)).tolist()
        graph = build(2000, edges, True)
        graph = Graph(graph.offsets, graph.targets.astype(kind), True, graph.num_edges)
        assert gf.strongly_connected_components(graph).table["component"].to_pylist() == expected(2000, edges)[0]
    n = 300_000
    path = gf.from_edges(np.arange(n - 1), np.arange(1, n), directed=True)
    assert gf.strongly_connected_components(path).summary == {"components": n, "largest": 1, "trivial": n}
    cycle = gf.from_edges(np.arange(n), np.roll(np.arange(n), -1), directed=True)
    assert gf.strongly_connected_components(cycle).summary == {"components": 1, "largest": n, "trivial": 0}


def test_labels_weights_and_stores() -> None:
    graph = gf.from_edges(
        ["a", "b", "c", "a", "b"], ["b", "c", "a", "d", "d"], [1.0, 1.0, 1.0, 2.0, 3.0], directed=True
    )
    assert gf.strongly_connected_components(graph).to_dict() == {"a": "c", "b": "c", "c": "c", "d": "d"}
    assert gf.condensation(graph).edges.to_pylist() == [{"source": "c", "target": "d", "weight": 5.0}]
    parted = gf.partition(graph, parts=2)
    assert gf.run("strong-components", parted).to_dict() == gf.run("strong-components", graph).to_dict()
    empty = gf.from_edges([], [], directed=True)
    assert gf.strongly_connected_components(empty).summary["components"] == len(gf.condensation(empty)) == 0


def test_errors() -> None:
    with pytest.raises(gf.InputError, match="graph is undirected"):
        gf.condensation(gf.from_edges([1], [2]))
    with pytest.raises(gf.InputError, match="convert a PartitionedGraph with to_graph"):
        gf.condensation(gf.partition(gf.from_edges([1, 2], [2, 3], directed=True), parts=2))  # type: ignore[arg-type]
    with pytest.warns(gf.errors.GoffishWarning, match="threads=2 has no effect"):
        gf.strongly_connected_components(gf.from_edges([1], [2]), threads=2)
