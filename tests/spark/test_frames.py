"""Graphs as DataFrames and GraphFrames: the same graph there and back."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.gofs import build_layout, open_store
from goffish.gopher.spark.session import GRAPHFRAMES, GRAPHFRAMES_JARS, has_graphframes
from goffish.graph import Graph, from_edges
from goffish.graph.libraries import from_networkx
from goffish.spark import from_graphframe, session, to_graphframe, vertices_and_edges

pytest.importorskip("pyspark")


def digraph(texts: bool) -> nx.MultiDiGraph:
    """With parallel edges, loops, an isolated vertex, weights and attributes."""
    G = nx.gnm_random_graph(30, 80, seed=5, directed=True)
    G = nx.MultiDiGraph(G)
    G.add_edges_from([(3, 3), (4, 4), *list(G.edges(keys=False))[:10]])
    G.add_node(30)
    for number, (_, _, data) in enumerate(G.edges(data=True)):
        data.update(
            weight=1.0 + number, since=datetime.date(2020, 1, 1) + datetime.timedelta(number), kind=f"k{number}"
        )
    for vertex, data in G.nodes(data=True):
        data.update(age=int(vertex) * 2, name=f"n {vertex} ü")
    return (
        nx.relabel_nodes(G, {v: f"v{v:03d} ü" for v in G}) if texts else nx.relabel_nodes(G, {v: 7 * v - 50 for v in G})
    )


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def edges_of(G: Any, *names: str) -> list[tuple[Any, ...]]:
    return sorted((u, v, *(data[name] for name in names)) for u, v, data in G.edges(data=True))


def cut(graph: Graph, parts: int = 2) -> Any:
    return build_layout(graph, (np.arange(graph.num_vertices) % parts).astype(np.int32), parts)


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_vertices_and_edges_as_networkx_has_them(spark: Any, tmp_path: Path, texts: bool, stored: bool) -> None:
    G = digraph(texts)
    graph: Any = from_networkx(G, self_loops="keep", parallel="keep")
    if stored:
        cut(graph).save(tmp_path / "store")
        graph = open_store(tmp_path / "store")
    vertices, edges = vertices_and_edges(graph, spark=spark)
    assert vertices.schema["id"].dataType.simpleString() == ("string" if texts else "bigint")
    assert sorted(vertices.columns) == ["age", "id", "name"]
    assert rows(vertices.select("id", "age", "name")) == sorted((v, d["age"], d["name"]) for v, d in G.nodes(data=True))
    told = edges.select("src", "dst", "weight", "since", "kind")
    assert rows(told) == edges_of(G, "weight", "since", "kind")


@pytest.mark.parametrize("labelled", [False, True])
def test_undirected_edges_are_told_in_both_directions(spark: Any, tmp_path: Path, labelled: bool) -> None:
    G = nx.gnm_random_graph(20, 40, seed=2)
    G.add_edge(5, 5)
    ends = np.array(G.edges)
    graph = from_edges(ends[:, 0], ends[:, 1], self_loops="keep", labels=None if labelled else np.arange(20))
    cut(graph).save(tmp_path / "store")
    wanted = sorted([(u, v) for u, v in G.edges] + [(v, u) for u, v in G.edges if u != v])
    for form in (graph, open_store(tmp_path / "store"), cut(graph)):
        vertices, edges = vertices_and_edges(form, spark=spark)
        assert rows(edges) == wanted
        assert rows(vertices) == [(v,) for v in range(20)]
    back = from_graphframe(SimpleNamespace(vertices=vertices, edges=edges), directed=False)
    assert nx.utils.graphs_equal(nx.Graph(gf.to_networkx(back)), G)


def test_the_way_back_keeps_labels_weights_and_loops(spark: Any) -> None:
    G = digraph(True)
    graph = from_networkx(G, self_loops="keep", parallel="min")
    vertices, edges = vertices_and_edges(graph, spark=spark)
    back = from_graphframe(SimpleNamespace(vertices=vertices, edges=edges), weight="weight")
    least: dict[tuple[str, str], float] = {}
    for u, v, data in G.edges(data=True):
        least[u, v] = min(data["weight"], least.get((u, v), np.inf))
    assert edges_of(gf.to_networkx(back), "weight") == sorted((u, v, w) for (u, v), w in least.items())
    assert back.label_column().to_pylist() == sorted(G)
    assert from_graphframe(SimpleNamespace(vertices=vertices, edges=edges)).weights is None


def test_frames_that_are_no_graph_are_refused(spark: Any) -> None:
    def frame(columns: dict[str, Any]) -> Any:
        return spark.createDataFrame(pa.table(columns))

    ids, ends = {"id": [1, 2]}, {"src": [1], "dst": [2]}
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
        (ends, ends, {}, "vertices: no column 'id'"),
        (ids, ids, {}, "edges: no column 'src'"),
        (ids, ends, {"weight": "w"}, "edges: no column 'w'; available: src, dst"),
        ({"id": [1, 2, 1]}, ends, {}, "the column id has duplicate values"),
        (ids, {"src": [1], "dst": [9]}, {}, "edges: 9 is the end of an edge but not in vertices.id"),
        ({"id": [0.5, 2.0]}, ends, {}, "must be integers or strings"),
        (ids, {"src": pa.array([None], pa.int64()), "dst": [2]}, {}, "source: row 0 has no vertex label"),
        (ids, {**ends, "w": [-1.0]}, {"weight": "w"}, "negative"),
    ]
    for vertices, edges, options, told in cases:
        with pytest.raises(InputError, match=told):
            from_graphframe(SimpleNamespace(vertices=frame(vertices), edges=frame(edges)), **options)
    with pytest.raises(InputError, match="int is not a GraphFrame"):
        from_graphframe(3)
    with pytest.raises(InputError, match="expected a goffish Graph or PartitionedGraph"):
        vertices_and_edges(3, spark=spark)  # type: ignore[arg-type]
    wrong = from_edges([0], [1], edge_attributes={"src": [1]})
    with pytest.raises(InputError, match="edge attribute 'src': the DataFrame already has a column of this name"):
        vertices_and_edges(wrong, spark=spark)
    assert [frame.count() for frame in vertices_and_edges(from_edges([], []), spark=spark)] == [0, 0]


def test_a_session_without_the_jar_is_told_what_to_add(spark: Any) -> None:
    pytest.importorskip("graphframes")
    if has_graphframes(spark):
        pytest.skip("this session has the GraphFrames jar")
    for existing in (True, False):
        with pytest.raises(InputError) as told:
            to_graphframe(from_edges([0], [1]), spark=spark) if existing else session(graphframes=True)
        for words in (f"--packages {GRAPHFRAMES}", "session(graphframes=True)", "--jars", "graphframes-graphx-spark4"):
            assert words in str(told.value)


def test_the_session_asks_maven_for_graphframes(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the packages of the user; nothing is fetched here, because a session runs already."""
    import pyspark.sql.session

    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        pyspark.sql.session.SparkSession.Builder, "config", lambda self, key, value: asked.update({key: value}) or self
    )
    monkeypatch.delenv(GRAPHFRAMES_JARS, raising=False)
    refused = (
        contextlib.nullcontext() if has_graphframes(spark) else pytest.raises(InputError, match="no GraphFrames jar")
    )
    with refused:
        session(graphframes=True, packages=["a:b:1"])
    assert asked["spark.jars.packages"] == f"a:b:1,{GRAPHFRAMES}"
