"""What a graph gives of its vertices and edges, and graphs of parts of it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf


@st.composite
def graphs(draw: st.DrawFn) -> tuple[gf.Graph, Any]:
    """A graph with labels, loops, weights and attributes, and the same one of networkx."""
    n, directed = draw(st.integers(1, 8)), draw(st.booleans())
    labels = draw(st.sampled_from([None, "texts", "integers"]))
    names: list[Any] = [f"v{v}" if labels == "texts" else 7 * v - 9 if labels else v for v in range(n)]
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20, unique=True))
    if not directed:
        pairs = [(u, v) for u, v in pairs if u <= v]
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    weights = np.arange(1.0, len(pairs) + 1) if draw(st.booleans()) else None
    with_attributes = draw(st.booleans())
    graph = gf.from_edges(
        columns[0], columns[1], weights, directed=directed, labels=names, self_loops="keep",
        vertex_attributes={"age": list(range(10, 10 + n))} if with_attributes else None,
        edge_attributes={"at": list(range(len(pairs)))} if with_attributes else None,
    )  # fmt: skip
    other = nx.DiGraph() if directed else nx.Graph()
    for v, name in enumerate(names):
        other.add_node(name, **({"age": 10 + v} if with_attributes else {}))
    for row, (u, v) in enumerate(pairs):
        given = ({} if weights is None else {"weight": float(row + 1)}) | ({"at": row} if with_attributes else {})
        other.add_edge(names[u], names[v], **given)
    return graph, other


def same(graph: gf.Graph, other: Any) -> None:
    """Compare all that both have: also the order of vertices, which is that of the graph they are parts of."""
    assert list(graph) == [*other]
    key = (lambda u, v: (u, v)) if other.is_directed() else lambda u, v: tuple(sorted((u, v)))
    found = {key(row.pop("source"), row.pop("target")): row for row in graph.edges.to_pylist()}
    assert found == {key(u, v): data for u, v, data in other.edges(data=True)}
    assert graph.num_edges == other.number_of_edges() and graph.directed == other.is_directed()
    ages = [row.get("age") for row in graph.vertices.to_pylist()]
    assert ages == [other.nodes[v].get("age") for v in other]
    assert all(np.all(np.diff(graph.neighbors(v)) > 0) for v in range(len(graph)))
    if graph.weights is not None:
        weights = {key(*pair): data["weight"] for *pair, data in other.edges(data=True)}
        labels = list(graph)
        for u in range(len(graph)):
            for i in range(graph.offsets[u], graph.offsets[u + 1]):
                assert graph.weights[i] == weights[key(labels[u], labels[graph.targets[i]])]


@given(graphs(), st.data())
def test_parts(both: tuple[gf.Graph, Any], data: st.DataObject) -> None:
    """Breaks when a part lacks or gains a vertex, edge, weight or attribute, or mixes up two of them."""
    graph, other = both
    names = list(other)
    chosen = data.draw(st.lists(st.sampled_from(names)))
    part = other.subgraph(chosen)
    ordered = type(other)()
    ordered.add_nodes_from((v, other.nodes[v]) for v in other if v in part)
    ordered.add_edges_from(part.edges(data=True))
    same(graph.subgraph(chosen), ordered)
    mask = np.array([v in part for v in other])
    same(graph.subgraph(mask), ordered)
    same(graph.filter(vertices=mask), ordered)
    same(graph.subgraph(pa.array(mask)), ordered)
    start, radius = data.draw(st.sampled_from(names)), data.draw(st.integers(0, 3))
    for direction, base in (("out", other), ("in", other.reverse() if other.is_directed() else other),
                            ("both", other.to_undirected())):  # fmt: skip
        near = nx.single_source_shortest_path_length(base, start, cutoff=radius)
        found = graph.ego(start, radius=radius, direction=direction)  # type: ignore[arg-type]
        assert set(found) == set(near) and found.num_edges == other.subgraph(near).number_of_edges()
    weak = list(nx.connected_components(other.to_undirected()))
    assert set(graph.component(start)) == next(one for one in weak if start in one)
    assert len(graph.largest_component()) == max(map(len, weak))


@given(graphs())
def test_degrees_and_conditions(both: tuple[gf.Graph, Any]) -> None:
    """Breaks when loops, directions or weights count otherwise than in networkx, or an edge of a condition is lost."""
    graph, other = both
    assert graph.degree.to_dict() == dict(other.degree)
    rows = graph.degrees().to_pylist()
    assert [row["degree"] for row in rows] == [degree for _, degree in other.degree]
    if other.is_directed():
        assert [row["in_degree"] for row in rows] == [degree for _, degree in other.in_degree]
        assert [row["out_degree"] for row in rows] == [degree for _, degree in other.out_degree]
    if graph.weights is not None:
        assert [row["strength"] for row in rows] == [degree for _, degree in other.degree(weight="weight")]
        heavy = sorted(weight for *_, weight in other.edges(data="weight") if weight > 3)
        found = graph.filter(edges=pc.field("weight") > 3)
        assert sorted(found.edges["weight"].to_pylist()) == heavy
        assert found.num_edges == len(heavy) and len(found) == len(other)
    busy = [v for v, degree in other.degree if degree > 1]
    assert list(graph.filter(vertices=pc.field("degree") > 1)) == busy


def test_limits() -> None:
    """Breaks when a part of an empty graph, or a radius beyond 64 bits, ends in an error of a library."""
    graph, empty = gf.from_edges([1, 2], [2, 3]), gf.from_edges([], [])
    assert len(graph.ego(1, radius=2**70)) == 3 and len(empty.largest_component()) == len(empty.subgraph([])) == 0
    assert empty.degree.to_dict() == {} and empty.degrees().num_rows == empty.edges.num_rows == 0


def test_manners() -> None:
    graph = gf.from_edges(["b", "a"], ["c", "b"])
    assert len(graph) == 3 and list(graph) == ["a", "b", "c"] and bool(gf.from_edges([], []))
    assert "a" in graph and "d" not in graph and 1 not in graph and None not in graph and [] not in graph
    numbered = gf.from_edges([0], [1])
    assert 0 in numbered and np.int64(1) in numbered and 2 not in numbered and -1 not in numbered
    assert True not in numbered and "0" not in numbered and 2**70 not in numbered
    assert 2**70 not in gf.from_edges([5], [7]) and 7 in gf.from_edges([5], [7])
    assert graph.degree["b"] == 2 and np.asarray(graph.degree).tolist() == [1, 2, 1] and list(graph.degree) == [1, 2, 1]
    assert repr(graph.degree) == "VertexValues(3 vertices; a: 1, b: 2, c: 1)"
    assert np.array(graph.degree, dtype=float).dtype == float
    with pytest.raises(gf.InputError, match="unknown vertex 'd'"):
        _ = graph.degree["d"]


def test_tables_without_a_copy() -> None:
    """Breaks when another library cannot read the edges, or columns are copied for it."""
    import polars as pl

    weights = np.array([1.0, 2.0])
    graph = gf.from_edges([0, 1], [1, 2], weights, directed=True)
    assert graph.weights is not None
    assert graph.edges["weight"].chunk(0).buffers()[1].address == graph.weights.ctypes.data
    assert pl.DataFrame(graph).to_dicts() == graph.edges.to_pylist()
    assert pa.table(graph).equals(graph.edges)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.subgraph(["x"]), r"unknown vertex 'x'"),
        (lambda g: g.subgraph([True]), r"vertices: bool values of shape \(1,\); accepted .* each of the 3 vertices"),
        (lambda g: g.filter(edges=[True]), r"edges: bool values of shape \(1,\).* 2 edges"),
        (lambda g: g.filter(edges=pc.field("cost") > 1), r"edges: No match.*cost.*; the columns are source, target$"),
        (lambda g: g.filter(vertices=pc.field("degree") + 1), r"vertices: the expression is int64; accepted are cond"),
        (lambda g: g.filter(vertices=lambda row: True), r"vertices: object values of shape \(\)"),
        (lambda g: g.ego(1, radius=-1), r"radius=-1: must be an integer of at least 0"),
        (lambda g: g.ego(1, direction="up"), r"direction='up': choose one of out, in, both"),
        (lambda g: g.component(9), r"unknown vertex 9"),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        call(gf.from_edges([1, 2], [2, 3]))
