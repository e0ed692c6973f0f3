"""GraphFrames and its jars.

With the jars in the environment, the session of all tests has them. Sessions that load other jars are processes of
their own, since a JVM loads them once.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.gofs import open_store
from goffish.gopher.spark.session import GRAPHFRAMES, GRAPHFRAMES_JARS, has_graphframes, session
from goffish.graph.libraries import from_networkx
from goffish.spark import from_graphframe, motifs, series_frames, to_graphframe
from goffish.temporal.build import build_from_events
from tests.spark.test_frames import cut

pytest.importorskip("pyspark")

_FOUND = """
from goffish.gopher.spark.session import has_graphframes, session
made = session(master="local[1]", memory="512m", graphframes=True)
assert has_graphframes(made)
print("found")
"""

#: Simple graphs have the same rows.
PATTERNS = [
    "(a)-[e]->(b)",
    "(a)-[e]->(b); (b)-[f]->(c)",
    "(a)-[e]->(b);(b)-[]->(a)",
    "(a)-[e]->(a)",
    "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
    "(a)-[]->()",
    "()-[e]->(); (b)-[]->(b)",
    "(c)-[]->(d); (a)-[e]->(b); (b)-[]->(c); !(a)-[]->(a)",
    "(a)-[]->(b); (b)-[]->(c); !(c)-[]->(a)",
    "(v); !(v)-[]->()",
    "!(a)-[]->(b)",
    "!()-[]->(a)",
    "(a)-[e]->(b); !(b)-[]->(c)",
    "(a)-[e]->(b); !(c)-[]->(a); !(b)-[]->(c)",
    "(a)-[e]->(b); !(c)-[]->(d)",
    "(a)<-[e]-(b)",
    "(a)<-[]-(b); (b)<-[f]-(c)",
    "(a)<-[e]-()",
    "(a)-[e]->(b); !(a)<-[]-(b)",
    "(a)<-[e]->(b)",
    "(a)<-[]->(b)",
    "(a)<-[e]->()",
    "(a)<-[e]->(b); (b)<-[f]->(c); !(a)-[]->(c)",
    "(a)-[e*1]->(b)",
    "(a)-[e*2]->(b)",
    "(a)-[*2]->(b)",
    "(a)-[e*3]->(a)",
    "(a)<-[e*2]-(b)",
    "(a)<-[*2]->(b)",
    "()-[e*2]->()",
    "()-[*2]->(b)",
    "(a)-[e*2]->(); (a)-[f*2]->(b)",
    "(a)-[e*2]->(b); (b)-[]->(a); !(_ab1)-[]->(_ab1)",
    "(a)-[e]->(b);",
]
#: Rows that GraphFrames removes here are equal to others.
WITH_EQUAL_ROWS = ["(a)-[]->(); !()-[]->(a)", "(a)-[]->(b); !(b)-[]->(a)", "(a)-[]->(b); (b)-[]->(); !(b)-[]->(a)"]


def run(code: str, jars: str, *given: str) -> None:
    """A session of its own with these jars."""
    root = str(Path(__file__).parents[2])
    environment = os.environ | {GRAPHFRAMES_JARS: jars, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", code, *given], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.stdout.split()[-1:] == ["found"], done.stderr[-3000:]


@pytest.fixture
def graphframes(spark: Any) -> Any:
    """The Python half of GraphFrames, in a session with the other one."""
    module = pytest.importorskip("graphframes")
    if not has_graphframes(spark):
        names = f"({GRAPHFRAMES} and graphframes-graphx)"
        pytest.skip(f"{GRAPHFRAMES_JARS} does not name the two jars of GraphFrames {names}")
    return module


def digraph(seed: int, parallel: bool = False) -> nx.MultiDiGraph:
    """Loops, an isolated vertex, and attributes; on request, parallel edges."""
    G = nx.MultiDiGraph(nx.gnm_random_graph(7, 12, seed=seed, directed=True))
    G.add_edges_from([(0, 0), (2, 2), *(list(G.edges(keys=False))[:3] if parallel else [])])
    G.add_node(7)
    for time, (_, _, data) in enumerate(G.edges(data=True)):
        data["time"] = 7 * time % 16
    for vertex, data in G.nodes(data=True):
        data["size"] = 10 * vertex
    return G


def found_by(frame: Any) -> Counter[Any]:
    """The rows of a DataFrame, however often they occur; structs as tuples."""
    return Counter(tuple(tuple(value) for value in row) for row in frame.collect())


def empty_class(name: str) -> bytes:
    """A Java class without anything in it."""

    def text(value: str) -> bytes:
        return struct.pack(">BH", 1, len(value)) + value.encode()

    pool = text(name) + struct.pack(">BH", 7, 1) + text("java/lang/Object") + struct.pack(">BH", 7, 3)
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 52, 5) + pool + struct.pack(">HHHHHHH", 0x21, 2, 4, 0, 0, 0, 0)


@pytest.mark.slow
def test_jars_that_the_environment_names(tmp_path: Path) -> None:
    """Breaks when a session cannot load the jars of GraphFrames without Maven."""
    jar = tmp_path / "graphframes-spark4.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.writestr("org/graphframes/GraphFrame.class", empty_class("org/graphframes/GraphFrame"))
    run(_FOUND, str(jar))


def test_jars_that_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a wrong name is a stack trace of the JVM, or falls back to Maven."""
    monkeypatch.setenv(GRAPHFRAMES_JARS, "/nowhere/a.jar, /nowhere/b.jar")
    with pytest.raises(InputError, match=r"GOFFISH_GRAPHFRAMES_JARS: /nowhere/a\.jar: no such file"):
        session(graphframes=True)


@pytest.mark.slow
@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_becomes_a_graphframe_and_returns(
    spark: Any, graphframes: Any, tmp_path: Path, texts: bool, directed: bool
) -> None:
    G = nx.gnm_random_graph(20, 40, seed=3, directed=directed)
    G.add_edges_from([(4, 4), (5, 5)])
    G.add_node(20)
    for number, (_, _, data) in enumerate(G.edges(data=True)):
        data["weight"] = 1.0 + number
    if texts:
        G = nx.relabel_nodes(G, {v: f"v{v:02d} ü" for v in G})
    cut(from_networkx(G, self_loops="keep")).save(tmp_path / "store")
    frame = to_graphframe(open_store(tmp_path / "store"), spark=spark)
    assert isinstance(frame, graphframes.GraphFrame)
    frame.validate(check_vertices=False)
    degrees = {row["id"]: row["degree"] for row in frame.degrees.collect()}
    arcs = 1 if directed else 2
    assert degrees == {v: arcs * (d - 2 * (v in G[v])) + 2 * (v in G[v]) for v, d in G.degree if d}
    back = gf.to_networkx(from_graphframe(frame, weight="weight", directed=directed))
    assert nx.utils.graphs_equal(type(G)(back), G)


@pytest.mark.slow
def test_a_graphframe_as_a_store(spark: Any, graphframes: Any, tmp_path: Path) -> None:
    """Without the memory of the driver: its DataFrames are those of `from_dataframe`."""
    frame = to_graphframe(from_networkx(digraph(1)), spark=spark)
    store = gf.from_dataframe(frame.edges, tmp_path / "store", vertices=frame.vertices, directed=True)
    assert store.num_vertices == frame.vertices.count() == 8
    assert store.num_edges == frame.edges.dropDuplicates(["src", "dst"]).filter("src <> dst").count()


@pytest.mark.slow
def test_algorithms_of_graphframes_agree(spark: Any, graphframes: Any, tmp_path: Path) -> None:
    """Each beside ours on Spark, on the DataFrames of the same store, as the guide says how they differ."""
    from pyspark import StorageLevel

    G = nx.gnm_random_graph(30, 45, seed=1)
    cut(from_networkx(G)).save(tmp_path / "store")
    store = open_store(tmp_path / "store")
    frame = to_graphframe(store, spark=spark)

    def ours(name: str, column: str, **options: Any) -> dict[int, Any]:
        table = gf.run(name, store, engine="spark", spark=spark, **options).table
        return dict(zip(table["vertex"].to_pylist(), table[column].to_pylist(), strict=True))

    def theirs(frame: Any, column: str) -> dict[int, Any]:
        return {row["id"]: row[column] for row in frame.collect()}

    largest: dict[int, int] = {}
    groups = theirs(frame.connectedComponents(use_local_checkpoints=True, broadcastThreshold=-1), "component")
    for vertex, group in groups.items():
        largest[group] = max(largest.get(group, -1), vertex)
    assert ours("components", "component") == {vertex: largest[group] for vertex, group in groups.items()}
    hops = theirs(frame.shortestPaths(landmarks=[0]), "distances")
    assert ours("bfs", "distance", source=0) == {vertex: found.get(0) for vertex, found in hops.items()}
    ranks = theirs(frame.pageRank(maxIter=60).vertices, "pagerank")
    assert {v: 30 * rank for v, rank in ours("pagerank", "rank", tolerance=1e-9).items()} == pytest.approx(ranks, 1e-3)
    labels = theirs(frame.labelPropagation(maxIter=5), "label")
    assert all(groups[vertex] == groups[label] for vertex, label in labels.items())
    communities = ours("label-propagation", "community")
    assert all(groups[u] == groups[v] for u in G for v in G if communities[u] == communities[v])
    counts = theirs(frame.triangleCount(StorageLevel.MEMORY_ONLY), "count")
    assert ours("triangles", "triangles") == counts == nx.triangles(G)


@pytest.mark.slow
def test_messages_of_graphframes_agree(spark: Any, graphframes: Any) -> None:
    from graphframes.lib import AggregateMessages as AM
    from pyspark.sql import functions as F

    graph = from_networkx(digraph(2), self_loops="keep")
    frame = to_graphframe(graph, spark=spark)
    sums = frame.aggregateMessages([F.sum(AM.msg).alias("value")], sendToDst=[AM.src["size"] + AM.edge["time"]])
    weighted = from_networkx(digraph(2), weight="time", self_loops="keep")
    ours = gf.aggregate_messages(
        weighted, lambda sent, there, weight: sent + weight, values="size", engine="spark", spark=spark
    )
    found = {row["id"]: row["value"] for row in sums.collect()}
    assert ours.to_dict() == {vertex: found.get(vertex, 0.0) for vertex in range(8)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_motifs_as_graphframes_finds_them(spark: Any, graphframes: Any, seed: int) -> None:
    """The same columns and rows, of the graph and of the GraphFrame."""
    graph = from_networkx(digraph(seed), self_loops="keep", parallel="keep")
    frame = to_graphframe(graph, spark=spark)
    vertices, edges = frame.vertices.cache(), frame.edges.cache()
    frame = graphframes.GraphFrame(vertices, edges)
    found = 0
    for pattern in PATTERNS:
        ours, theirs = motifs(frame, pattern), frame.find(pattern)
        assert ours.columns == theirs.columns, pattern
        rows = found_by(theirs)
        assert found_by(ours) == rows, pattern
        found += bool(rows)
    assert found >= 23
    for pattern in WITH_EQUAL_ROWS:
        assert set(found_by(motifs(frame, pattern))) == set(found_by(frame.find(pattern))), pattern
    assert found_by(motifs(graph, PATTERNS[1], spark=spark)) == found_by(frame.find(PATTERNS[1]))


@pytest.mark.slow
def test_equal_rows_of_parallel_edges(spark: Any, graphframes: Any) -> None:
    """Without ``!`` the same rows; with it, GraphFrames has each row once."""
    frame = to_graphframe(from_networkx(digraph(3, True), self_loops="keep", parallel="keep"), spark=spark)
    for pattern in ("(a)-[]->(b)", "(a)-[e]->(b); (b)-[]->(c)", "(a)-[*2]->(b)"):
        assert found_by(motifs(frame, pattern)) == found_by(frame.find(pattern)), pattern
    pattern = "(a)-[]->(b); !(b)-[]->(c)"
    ours, theirs = found_by(motifs(frame, pattern)), found_by(frame.find(pattern))
    assert set(ours) == set(theirs)
    assert set(theirs.values()) == {1} < set(ours.values())


@pytest.mark.slow
def test_motifs_of_the_instances_of_a_series(spark: Any, graphframes: Any, tmp_path: Path) -> None:
    events = pa.table({"source": [1, 2, 2, 3, 1], "target": [2, 1, 3, 2, 2], "timestamp": [0, 12, 3, 14, 15]})
    build_from_events(events, tmp_path / "series", window=10, start=0, time_unit="1", directed=True, parts=2)
    vertices, edges = series_frames(tmp_path / "series", spark=spark)
    frame = graphframes.GraphFrame(vertices.select("id").distinct(), edges)
    pattern = "(a)-[e]->(b); (b)-[f]->(a)"
    rows = found_by(motifs(frame, pattern).filter("f.timestep = e.timestep + 1"))
    assert rows == found_by(frame.find(pattern).filter("f.timestep = e.timestep + 1"))
    assert len(rows) == 2
