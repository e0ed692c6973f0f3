"""Graphs made from others, against networkx and dictionaries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from tests.graph.test_selection import graphs, same


def reordered(other: Any, names: Any) -> Any:
    found = type(other)()
    found.add_nodes_from((v, other.nodes[v]) for v in names)
    found.add_edges_from(other.edges(data=True))
    return found


@given(graphs(), graphs(), st.data())
def test_two_graphs(one: tuple[gf.Graph, Any], two: tuple[gf.Graph, Any], data: st.DataObject) -> None:
    """Breaks when an edge is lost, or has the attributes of the wrong graph."""
    (first, a), (second, b) = one, two
    alike = first.directed == second.directed
    if not alike:
        with pytest.raises(gf.InputError, match=r"one of the graphs is directed and the other is not"):
            gf.intersection(first, second)
        return
    if isinstance(next(iter(first)), str) != isinstance(next(iter(second)), str):
        with pytest.raises(gf.InputError):
            gf.union(first, second)
        return
    both = [pair for pair in a.edges if b.has_edge(*pair)]
    for found, kept in (
        (gf.intersection(first, second), both),
        (gf.difference(first, second), set(a.edges) - set(both)),
    ):
        left = type(a)()
        left.add_nodes_from(a.nodes(data=True))
        left.add_edges_from((u, v, a.edges[u, v]) for u, v in kept)
        same(found, left)
    if (first.weights is None) != (second.weights is None):
        with pytest.raises(gf.InputError, match="one of the graphs has weights"):
            gf.union(first, second)
        return
    joined = gf.union(first, second)
    expected = nx.compose(b, a)  # the attributes of the last one count
    assert list(joined) == sorted(expected)
    found = {frozenset(pair) if not first.directed else pair for pair in zip(
        joined.edges["source"].to_pylist(), joined.edges["target"].to_pylist(), strict=True)}  # fmt: skip
    assert found == {frozenset(pair) if not first.directed else pair for pair in expected.edges}
    for row in joined.edges.to_pylist():
        of_first = a.edges[row["source"], row["target"]] if a.has_edge(row["source"], row["target"]) else None
        values = of_first if of_first is not None else b.edges[row["source"], row["target"]]
        assert all(row[name] == value for name, value in values.items())
    for row in joined.vertices.to_pylist():
        assert row.get("age") == (a if row["vertex"] in a else b).nodes[row["vertex"]].get("age")


@given(graphs(), st.data())
def test_groups_labels_and_columns(both: tuple[gf.Graph, Any], data: st.DataObject) -> None:
    graph, other = both
    names = list(other)
    groups = data.draw(st.lists(st.sampled_from(["x", "y", "z"]), min_size=len(names), max_size=len(names)))
    of = dict(zip(names, groups, strict=True))
    sums: Counter[Any] = Counter()
    for u, v, value in other.edges(data="weight", default=1.0):
        pair = (of[u], of[v]) if graph.directed else tuple(sorted((of[u], of[v])))
        sums[pair] += value
    for loops in ("keep", "drop"):
        found = gf.contract(graph, groups, self_loops=loops)  # type: ignore[arg-type]
        kept = {pair: value for pair, value in sums.items() if loops == "keep" or pair[0] != pair[1]}
        assert {(r["source"], r["target"]): r["weight"] for r in found.edges.to_pylist()} == kept
        assert {r["vertex"]: r["size"] for r in found.vertices.to_pylist()} == Counter(groups)
    # A result in another order than the vertices.
    order = data.draw(st.permutations(range(len(names))))
    table = pa.table({"vertex": [names[i] for i in order], "group": [groups[i] for i in order]})
    assert gf.contract(graph, gf.Result("g", table)).edges == gf.contract(graph, groups).edges
    same(gf.relabel(graph, [f"n{v}" for v in names]), nx.relabel_nodes(other, {v: f"n{v}" for v in names}))
    if not isinstance(names[0], str):
        same(gf.relabel(graph, {names[0]: 1000}), reordered(
            nx.relabel_nodes(other, {names[0]: 1000}), [1000, *names[1:]]))  # fmt: skip
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True))
    rows = pa.table({"vertex": pa.array(chosen, graph.label_column().type), "score": np.arange(len(chosen)) + 0.5})
    scores = dict(zip(chosen, np.arange(len(chosen)) + 0.5, strict=True))
    for row in gf.join_vertices(graph, rows).vertices.to_pylist():
        assert row["score"] == scores.get(row["vertex"]) and row.get("age") == other.nodes[row["vertex"]].get("age")
    pairs = list(other.edges)
    picked = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    turned = [pair if graph.directed or number % 2 else pair[::-1] for number, pair in enumerate(picked)]
    kind = graph.label_column().type
    rows = pa.table({
        "source": pa.array([u for u, _ in turned], kind), "target": pa.array([v for _, v in turned], kind),
        "note": [f"{u}>{v}" for u, v in picked],
    })  # fmt: skip
    for u, v in picked:
        other.edges[u, v]["note"] = f"{u}>{v}"
    for row in gf.join_edges(graph, rows).edges.to_pylist():
        data_of = other.edges[row.pop("source"), row.pop("target")]
        assert row == {name: data_of.get(name) for name in row}
    if pairs:
        weights = pa.table({
            "source": pa.array([u for u, _ in pairs], kind), "target": pa.array([v for _, v in pairs], kind),
            "weight": np.arange(len(pairs)) + 2.0,
        })  # fmt: skip
        heavy = gf.join_edges(graph, weights)
        found = {(r["source"], r["target"]): r["weight"] for r in heavy.edges.to_pylist()}
        for number, (u, v) in enumerate(pairs):
            assert found.get((u, v), found.get((v, u))) == number + 2
        assert heavy.degrees()["strength"].to_pylist() is not None and heavy.weights is not None


def test_samples() -> None:
    """Breaks when a seed draws others, an element is drawn twice, or some are never drawn."""
    graph = gf.from_edges(np.arange(99), np.arange(1, 100))
    assert len(gf.sample(graph, vertices=30)) == 30 and gf.sample(graph, edges=30).num_edges == 30
    assert gf.sample(graph, vertices=1000).num_edges == 99 and gf.sample(graph, edges=0).num_edges == 0
    assert list(gf.sample(graph, vertices=9, seed=4)) == list(gf.sample(graph, vertices=9, seed=4))
    drawn: Counter[Any] = Counter()
    for seed in range(200):
        drawn.update(gf.sample(graph, vertices=10, seed=seed))
    assert len(drawn) == 100 and max(drawn.values()) < 60


GRAPH = gf.from_edges([1, 2], [2, 3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gf.union(GRAPH, gf.from_edges([1], [2], directed=True)), "one of the graphs is directed"),
        (lambda: gf.union(GRAPH, None), "second is None: expected a goffish Graph"),  # type: ignore[arg-type]
        (lambda: gf.union(GRAPH, gf.from_edges(["a"], ["b"])), "^union: "),
        (lambda: gf.contract(GRAPH, [1, 2]), "groups: 2 groups; accepted is one for each of 3 vertices"),
        (lambda: gf.contract(GRAPH, gf.edge_betweenness(GRAPH)), "groups: the result has no row for each vertex"),
        (lambda: gf.contract(GRAPH, gf.bfs(gf.from_edges([1], [2]), 1)), "groups: the vertex 3 has none"),
        (lambda: gf.relabel(GRAPH, {9: 1}), "unknown vertex 9"),
        (lambda: gf.relabel(GRAPH, {1: 2}), "labels: 2 occurs more than once"),
        (lambda: gf.relabel(GRAPH, [1, 2]), "labels: 2 labels; accepted is one for each of 3 vertices"),
        (lambda: gf.sample(GRAPH), "accepted is one of vertices and edges"),
        (lambda: gf.sample(GRAPH, vertices=-1), "vertices=-1: must be an integer of at least 0"),
        (lambda: gf.join_vertices(GRAPH, pa.table({"v": [1]})), "table: no column 'vertex'"),
        (lambda: gf.join_vertices(GRAPH, pa.table({"vertex": ["a"]})), "vertex is string, and labels of .* int64"),
        (lambda: gf.join_vertices(GRAPH, pa.table({"vertex": [1, 1]})), "vertex: 1 occurs more than once"),
        (lambda: gf.join_edges(GRAPH, pa.table({"source": [1]})), "table: no column 'target'"),
        (lambda: gf.join_edges(GRAPH, pa.table({"source": [1, 2], "target": [2, 1]})), "edge 1 - 2 occurs"),
        (lambda: gf.join_edges(GRAPH, pa.table({"source": [1], "target": [2], "weight": [1.0]})), "1 edges have none"),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        call()
