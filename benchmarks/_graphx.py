"""The GraphX of Spark as a vertex-centric peer: its library algorithms on an edge list, called through py4j.

The jars of GraphFrames include another version; see `_graphframes`.

GraphX has no Python side, so the graph is loaded by the JVM from a file, and answers come back as text files. What is
timed is the algorithm with everything that it needs to give one value per vertex; loading, warming up and the way back
are not. ``python benchmarks/_graphx.py`` checks all four answers against networkx.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from goffish.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ids = NDArray[np.integer[Any]]


class Answer(NamedTuple):
    """Seconds of the algorithm, and one value for each vertex that has an edge: `ids` ascending."""

    seconds: float
    ids: NDArray[np.int64]
    values: NDArray[Any]


def components(spark: SparkSession, src: Ids, dst: Ids, *, parts: int = 2) -> Answer:
    """Weakly connected components: the least vertex number in each.

    Parameters
    ----------
    src, dst : integer arrays, shape (rows,)
        Edges; GraphX follows them from `src` to `dst` where an algorithm looks at directions.
    parts : int
        Partitions of the edges.
    """
    library = _library(spark).ConnectedComponents
    return _timed(spark, src, dst, parts, lambda graph, tag: library.run(graph, tag, tag), np.int64)


def label_propagation(spark: SparkSession, src: Ids, dst: Ids, *, steps: int = 5, parts: int = 2) -> Answer:
    """Label of each vertex after `steps` rounds of label propagation; ties are broken by chance of the hash map."""
    library = _library(spark).LabelPropagation
    return _timed(spark, src, dst, parts, lambda graph, tag: library.run(graph, steps, tag), np.int64)


def pagerank(
    spark: SparkSession, src: Ids, dst: Ids, *, steps: int = 10, reset: float = 0.15, parts: int = 2
) -> Answer:
    """PageRank after `steps` rounds, scaled so that all ranks add up to 1."""
    library = _library(spark).PageRank
    found = _timed(spark, src, dst, parts, lambda graph, tag: library.run(graph, steps, reset, tag, tag), np.float64)
    return found._replace(values=found.values / found.values.sum())


def shortest_paths(spark: SparkSession, src: Ids, dst: Ids, *, landmark: int, parts: int = 2) -> Answer:
    """Hops from each vertex to `landmark` along the edges, -1 where there is no path (GraphX knows no weights)."""
    library = _library(spark).ShortestPaths
    boxed = spark._jvm.java.util.ArrayList()
    boxed.add(spark._jvm.java.lang.Long(landmark))
    wanted = spark._jvm.scala.jdk.javaapi.CollectionConverters.asScala(boxed).toSeq()
    return _timed(spark, src, dst, parts, lambda graph, tag: library.run(graph, wanted, tag), None)


def in_process(what: str, arguments: Sequence[str], limit: float) -> str:
    """What a script prints in a process of its own, which is killed after `limit` seconds.

    GraphX does not react to the cancelling of its jobs while it plans the next one of some hundred supersteps.
    """
    running = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, errors = running.communicate(timeout=limit)
    except subprocess.TimeoutExpired as error:
        return (error.output or b"").decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    if running.returncode:
        sys.exit(f"{what}: ended with code {running.returncode}: {errors.strip()[-2000:]}")
    return printed


def graphx_seconds(graph: Graph, limit: float, *, master: str = "local[2]", memory: str = "4g") -> dict[str, float]:
    """Seconds of each algorithm on a graph; infinite where one has not ended after `limit` seconds."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="goffish-") as folder:
        file = Path(folder) / "edges.npz"
        np.savez(file, src=graph.arc_sources(), dst=graph.targets)
        for name in _JOBS:
            printed = in_process(f"GraphX, {name}", [__file__, str(file), name, master, memory], limit)
            seconds[name] = float(printed.split()[-1]) if printed else float("inf")
    return seconds


_JOBS: dict[str, Callable[[SparkSession, Ids, Ids], Answer]] = {
    "components": components,
    "sssp": lambda spark, src, dst: shortest_paths(spark, src, dst, landmark=0),
    "pagerank": lambda spark, src, dst: pagerank(spark, src, dst, steps=20),
    "label propagation": label_propagation,
}


def _timed(spark: SparkSession, src: Ids, dst: Ids, parts: int, run: Callable[[Any, Any], Any], kind: Any) -> Answer:
    """Run once on a graph of two edges to load the classes, then on the graph; `kind` is ``None`` for maps."""
    tag = getattr(getattr(spark._jvm.scala.reflect, "ClassTag$"), "MODULE$").Int()
    with _loaded(spark, np.array([0, 1]), np.array([1, 2]), 1) as graph:
        run(graph, tag).vertices().count()
    with _loaded(spark, src, dst, parts) as graph:
        begun = time.perf_counter()
        vertices = run(graph, tag).vertices()
        vertices.cache()
        vertices.count()
        seconds = time.perf_counter() - begun
        ids, values = _values(vertices, kind)
        vertices.unpersist(False)
    return Answer(seconds, ids, values)


@contextmanager
def _loaded(spark: SparkSession, src: Ids, dst: Ids, parts: int) -> Iterator[Any]:
    """The graph in GraphX, in memory."""
    context = spark.sparkContext._jsc.sc()
    level = spark._jvm.org.apache.spark.storage.StorageLevel.MEMORY_ONLY()
    with tempfile.TemporaryDirectory(prefix="goffish-") as folder:
        file = Path(folder) / "edges.txt"
        np.savetxt(file, np.column_stack((src, dst)), "%d")
        loader = spark._jvm.org.apache.spark.graphx.GraphLoader
        graph = loader.edgeListFile(context, str(file), False, parts, level, level)
        graph.vertices().count()
        graph.edges().count()
        try:
            yield graph
        finally:
            graph.unpersist(False)


def _values(vertices: Any, kind: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Pairs of a vertex and its value, through text: a million of them one by one through py4j takes minutes."""
    with tempfile.TemporaryDirectory(prefix="goffish-") as folder:
        vertices.toJavaRDD().saveAsTextFile(f"{folder}/answer")
        told = "".join(file.read_text() for file in sorted(Path(folder, "answer").glob("part-*")))
    if kind is None:
        rows = re.findall(r"\((\d+),\w*Map\((?:\d+ -> (\d+))?\)\)", told)
        values: NDArray[Any] = np.array([int(hops) if hops else -1 for _, hops in rows], np.int64)
        ids = np.array([vertex for vertex, _ in rows], np.int64)
    else:
        plain = told.translate({ord("("): None, ord(")"): None}).encode()
        columns = csv.read_csv(pa.BufferReader(plain), read_options=csv.ReadOptions(column_names=["id", "value"]))
        ids, values = columns["id"].to_numpy(), columns["value"].to_numpy().astype(kind)
    order = np.argsort(ids)
    return ids[order], values[order]


def _library(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.graphx.lib


def check(spark: SparkSession, src: Sequence[int], dst: Sequence[int]) -> None:
    """Compare all four with networkx on a small graph; an `AssertionError` names the first that differs."""
    import networkx as nx

    G = nx.MultiDiGraph()
    G.add_edges_from(zip(src, dst, strict=True))
    ends = np.array(src), np.array(dst)
    order = sorted(G)
    least = {v: min(part) for part in nx.weakly_connected_components(G) for v in part}
    found = components(spark, *ends)
    assert (found.ids.tolist(), found.values.tolist()) == (order, [least[v] for v in order]), "components"
    hops = nx.single_target_shortest_path_length(G, order[0])
    found = shortest_paths(spark, *ends, landmark=order[0])
    assert (found.ids.tolist(), found.values.tolist()) == (order, [dict(hops).get(v, -1) for v in order]), "paths"
    # GraphX gives dangling rank back to nobody, as networkx does with a sink that is a vertex of its own.
    found = pagerank(spark, *ends, steps=60)
    assert np.allclose(found.values, _ranks(G, order), atol=1e-6), "ranks"
    found = label_propagation(spark, *ends, steps=5)
    assert all(least[v] == least[label] for v, label in zip(order, found.values.tolist(), strict=True)), "labels"


def _ranks(G: Any, order: list[int]) -> NDArray[np.float64]:
    """The fixed point r = 0.15 + 0.85 Aᵀ D⁻¹ r as a linear system, scaled to 1; the matrix is networkx's."""
    import networkx as nx

    counts = nx.to_numpy_array(G, nodelist=order)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ranks = np.linalg.solve(np.eye(len(order)) - 0.85 * share.T, np.full(len(order), 0.15))
    return np.asarray(ranks / ranks.sum())


def main() -> None:
    """Time one algorithm on saved edges, for `graphx_seconds`; without arguments, check all against networkx."""
    from goffish.spark import session

    if len(sys.argv) > 1:
        file, name, master, memory = sys.argv[1:]
        edges = np.load(file)
        spark = session(master=master, memory=memory)
        print(_JOBS[name](spark, edges["src"], edges["dst"]).seconds, flush=True)
        return
    ends = np.random.default_rng(1).integers(0, 60, (2, 90))
    spark = session(master="local[2]", memory="1g")
    check(spark, *ends.tolist())
    for name, job in _JOBS.items():
        print(f"{name}: {job(spark, *ends).seconds:.2f} s, as networkx has it")
    spark.stop()


if __name__ == "__main__":
    main()
