"""Converters: round trips, and agreement with what the other library itself says."""

from __future__ import annotations

import igraph
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from goffish.errors import InputError
from goffish.graph import (
    from_arrow,
    from_edges,
    from_igraph,
    from_networkx,
    from_pandas,
    from_polars,
    from_scipy,
    to_arrow,
    to_igraph,
    to_networkx,
    to_pandas,
    to_polars,
    to_scipy,
    vertices_to_arrow,
)
from tests.graph.graph_helpers import assert_same, build_by_hand, edge_set

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 8)
TEXTS = st.text(max_size=3)
KEEP = {"self_loops": "keep", "parallel": "keep"}


@st.composite
def graphs(draw):
    """Graphs of every kind with isolated vertices and attributes."""
    ids = draw(st.sampled_from([NUMBERS, TEXTS]))
    vertices = sorted(draw(st.sets(ids, min_size=1, max_size=8)), key=lambda v: v.encode() if isinstance(v, str) else v)
    place = st.integers(0, len(vertices) - 1)
    rows = draw(st.lists(st.tuples(place, place, st.floats(0, 1e300), st.sampled_from("abc")), max_size=20))
    src, dst, weight, kind = ([row[i] for row in rows] for i in range(4))
    return from_edges(
        np.array(src, np.int64), np.array(dst, np.int64), weight if draw(st.booleans()) else None,
        directed=draw(st.booleans()), labels=vertices, self_loops="keep",
        parallel=draw(st.sampled_from(["min", "keep"])),
        edge_attributes={"kind": pa.array(kind, pa.string())} if draw(st.booleans()) else None,
        vertex_attributes={"size": np.arange(len(vertices))} if draw(st.booleans()) else None,
    )  # fmt: skip


@given(graph=graphs())
def test_tables_lose_nothing(graph):
    vertices = vertices_to_arrow(graph)
    options = {"directed": graph.directed, **KEEP}
    assert_same(from_arrow(to_arrow(graph), vertices=vertices, **options), graph)
    assert_same(from_polars(to_polars(graph), vertices=pl.from_arrow(vertices), **options), graph)
    if graph.num_edges:  # pandas gives a column without rows no type
        assert_same(from_pandas(to_pandas(graph), vertices=vertices.to_pandas(), **options), graph)


@given(graph=graphs())
def test_networkx_and_igraph_lose_nothing_but_empty_columns(graph):
    """Vertices are numbered by ascending label, which is how `graphs` makes them."""
    if graph.num_edges == 0 and (graph.edge_attributes is not None or graph.weights is not None):
        return
    assert_same(from_networkx(to_networkx(graph), **KEEP), graph)
    assert_same(from_igraph(to_igraph(graph), **KEEP), graph)


@given(graph=graphs())
def test_scipy_keeps_structure_and_weights(graph):
    matrix = to_scipy(graph)
    dense = np.zeros((graph.num_vertices,) * 2)
    src, dst, weight, _ = graph.edge_columns()
    for u, v, w in zip(src, dst, np.ones(src.size) if weight is None else weight, strict=True):
        dense[u, v] += w
        if not graph.directed and u != v:
            dense[v, u] += w
    assert np.allclose(matrix.toarray(), dense)
    back = from_scipy(
        matrix,
        directed=graph.directed,
        labels=graph.label_column(),
        weighted=graph.weights is not None,
        **KEEP,
    )
    assert_same(back, from_edges(src, dst, weight, labels=graph.label_column(), directed=graph.directed, **KEEP))


ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2).map(float)), max_size=25)


@given(entries=ENTRIES, missing=st.sampled_from(["add", "error"]), parallel=st.sampled_from(["min", "sum"]))
def test_scipy_and_missing_reverse_edges(entries, missing, parallel):
    cells = {(u, v): w for u, v, w in entries}
    rows, columns = [u for u, _ in cells], [v for _, v in cells]
    matrix = sparse.coo_array((list(cells.values()), (rows, columns)), shape=(6, 6))
    symmetric = all(cells.get((v, u)) == w for (u, v), w in cells.items())
    assert from_scipy(matrix).directed == (not symmetric)
    if missing == "error" and not symmetric:
        with pytest.raises(InputError, match="no equal reverse"):
            from_scipy(matrix, directed=False, missing_reverse=missing)
        return
    graph = from_scipy(matrix, directed=False, weighted=True, missing_reverse=missing, parallel=parallel)
    once = [(u, v, w) for (u, v), w in cells.items() if u <= v or cells.get((v, u)) != w]
    wanted = build_by_hand(once, directed=False, parallel=parallel)
    assert edge_set(graph) == wanted
    assert graph.num_vertices == 6


def test_scipy_weights_and_types():
    ones = sparse.csr_matrix(np.array([[0, 1], [1, 0]], bool))
    assert from_scipy(ones).weights is None
    assert from_scipy(ones, weighted=True).weights.tolist() == [1.0, 1.0]
    assert from_scipy(sparse.csc_array(np.array([[0, 3], [0, 0]]))).weights.tolist() == [3.0]
    with pytest.raises(InputError, match="not square"):
        from_scipy(sparse.csr_array((2, 3)))
    with pytest.raises(InputError, match="real numbers"):
        from_scipy(sparse.csr_array(np.array([[0, 1j], [0, 0]])))
    with pytest.raises(InputError, match="non-negative"):
        from_scipy(sparse.csr_array(np.array([[0, -1.0], [0, 0]])))


def test_scipy_shares_the_structure():
    graph = from_edges([0, 1], [1, 2])
    assert np.shares_memory(to_scipy(graph).indices, graph.targets)


def test_networkx_attributes_and_missing_values():
    source = nx.DiGraph()
    source.add_node("b", colour="red")
    source.add_edge("c", "a", weight=2, kind="x")
    source.add_edge("a", "b")
    graph = from_networkx(source)
    assert edge_set(graph) == [("a", "b", 1.0), ("c", "a", 2.0)]
    assert graph.vertex_attributes.to_pydict() == {"colour": [None, "red", None]}
    assert graph.edge_columns()[3].to_pydict() == {"kind": [None, "x"]}
    back = to_networkx(graph)
    assert dict(back.nodes(data=True)) == {"a": {}, "b": {"colour": "red"}, "c": {}}
    assert sorted(back.edges(data=True)) == [
        ("a", "b", {"weight": 1.0}),
        ("c", "a", {"weight": 2.0, "kind": "x"}),
    ]
    assert from_networkx(source, weight=None).weights is None


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx_kinds(kind):
    source = kind([(1, 2), (2, 1), (1, 2), (3, 3)])
    graph = from_networkx(source, **KEEP)
    assert graph.num_edges == source.number_of_edges()
    assert graph.directed == source.is_directed()
    back = to_networkx(graph)
    assert nx.utils.graphs_equal(nx.Graph(back), nx.Graph(source))
    assert back.number_of_edges() == source.number_of_edges()


@pytest.mark.parametrize("nodes", [[(0, 1)], [1, "a"], [1.5], [True, False], [None]][:4])
def test_networkx_nodes_of_other_types(nodes):
    source = nx.Graph()
    source.add_nodes_from(nodes)
    with pytest.raises(InputError, match="convert_node_labels_to_integers"):
        from_networkx(source)


def test_networkx_mixed_attribute():
    source = nx.Graph()
    source.add_edge(1, 2, kind="x")
    source.add_edge(2, 3, kind=5)
    with pytest.raises(InputError, match="'kind' cannot be stored in one column"):
        from_networkx(source)


def test_igraph_agrees():
    source = igraph.Graph.Erdos_Renyi(60, m=150, directed=True)
    graph = from_igraph(source)
    assert {e[:2] for e in edge_set(graph)} == set(source.get_edgelist())
    assert to_igraph(graph).get_adjacency().data == source.get_adjacency().data
    named = igraph.Graph.TupleList([("a", "b", 2.5), ("b", "c", 1)], weights=True)
    assert edge_set(from_igraph(named)) == [("a", "b", 2.5), ("b", "c", 1.0)]
    assert from_igraph(named, weight=None).edge_attributes.to_pydict() == {"weight": [2.5, 1.0]}


def test_data_frames_with_other_names_and_types():
    frame = pd.DataFrame({"from": pd.Categorical(["a", "b"]), "to": ["b", "c"], "km": [1, 2]}, index=[7, 8])
    graph = from_pandas(frame, source="from", target="to", weight="km")
    assert edge_set(graph) == [("a", "b", 1.0), ("b", "c", 2.0)]
    assert to_pandas(graph, source="u", target="v", weight="w").columns.tolist() == ["u", "v", "w"]
    small = pl.DataFrame({"source": pl.Series([1, 2], dtype=pl.UInt8), "target": pl.Series([2, 3], dtype=pl.UInt8)})
    assert edge_set(from_polars(small)) == [(1, 2, 1.0), (2, 3, 1.0)]
    assert edge_set(from_polars(pl.DataFrame({"source": ["x"], "target": ["y"]}))) == [("x", "y", 1.0)]


def test_tables_that_cannot_be_used():
    table = pa.table({"source": [1, None], "target": [2, 3]})
    with pytest.raises(InputError, match="row 1 has no vertex label"):
        from_arrow(table)
    with pytest.raises(InputError, match="no column 'src'"):
        from_arrow(table, source="src")
    with pytest.raises(InputError, match="unknown vertex 3"):
        from_arrow(pa.table({"source": [1], "target": [3]}), vertices=pa.table({"v": [1, 2]}))
    with pytest.raises(InputError, match="integers or strings"):
        from_arrow(pa.table({"source": [1.5], "target": [2.5]}))
    with pytest.raises(InputError, match="row 0 holds nan"):
        from_arrow(pa.table({"source": [1], "target": [2], "weight": pa.array([None], pa.float64())}))
    with pytest.raises(InputError, match="int64"):
        from_arrow(pa.table({"source": pa.array([2**63], pa.uint64()), "target": pa.array([1], pa.uint64())}))
    graph = from_edges([1], [2], [1.0], edge_attributes={"weight": [5]})
    with pytest.raises(InputError, match="rename"):
        to_arrow(graph)


@pytest.mark.parametrize("parallel", ["min", "sum", "first", "keep"])
@pytest.mark.parametrize("self_loops", ["drop", "keep"])
def test_policies_pass_through(parallel, self_loops):
    rows = [(1, 2, 5.0), (2, 1, 3.0), (1, 1, 2.0), (2, 3, 1.0), (2, 3, 4.0)]
    policies = {"parallel": parallel, "self_loops": self_loops}
    wanted = build_by_hand(rows, directed=False, **policies)
    frame = pd.DataFrame(rows, columns=["source", "target", "weight"])
    multi = nx.MultiGraph()
    multi.add_weighted_edges_from(rows)
    other = igraph.Graph(4, [row[:2] for row in rows], edge_attrs={"weight": [row[2] for row in rows]})
    assert edge_set(from_pandas(frame, **policies)) == wanted
    assert edge_set(from_polars(pl.from_pandas(frame), **policies)) == wanted
    assert edge_set(from_igraph(other, **policies)) == wanted
    if parallel != "first":  # networkx gives edges node by node
        assert edge_set(from_networkx(multi, **policies)) == wanted
