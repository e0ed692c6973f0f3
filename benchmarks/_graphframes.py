"""GraphFrames beside the Spark engine, in one session: ``python benchmarks/_graphframes.py STORE JOB MASTER MEMORY``.

Both have the same store: GraphFrames its DataFrames, cached, and the engine its slices. A time of GraphFrames ends when
all columns of its result are computed, one of the engine when the result is a table on the driver; those of motifs are
both of DataFrames. The first round of each warms up and is not counted. Without arguments, the results of both are
compared on a small graph.

GraphFrames has the options that its documentation calls the fastest: no broadcasts by hand (``broadcastThreshold=-1``)
and local checkpoints for components, its GraphX for the others; as many shuffle partitions as the session has slots.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import _harness
import numpy as np
from _engine_jobs import LONG, options_of
from _graphx import in_process

import goffish as gf
from goffish.gofs import PartitionedGraph
from goffish.spark import motifs, session, vertices_and_edges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JARS = "GOFFISH_GRAPHFRAMES_JARS"
TRIANGLES = "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)"
ITERATIONS = 20


class Job(NamedTuple):
    """What both do: from a GraphFrame and its least id to a DataFrame; from it, session and store to a result.

    `same` are numbers of both results that must be equal: of a DataFrame, and of a result of ours.
    """

    theirs: Callable[[Any, int], DataFrame]
    ours: Callable[[Any, SparkSession, PartitionedGraph], Any]
    same: tuple[Callable[[DataFrame], Any], Callable[[Any], Any]] | None = None


def version() -> str | None:
    """The version of GraphFrames in the name of its jar; ``None`` without the jars."""
    found = re.search(r"graphframes-spark4_2\.13-([^/,]+)\.jar", os.environ.get(JARS, ""))
    return found[1] if found else None


def graphframes_seconds(store: Path, limit: float, *, master: str, memory: str = "4g") -> dict[str, list[float]]:
    """Seconds of the Spark engine and of GraphFrames by job; infinite where both took longer than `limit`."""
    seconds = {}
    for name in JOBS:
        printed = in_process(f"GraphFrames, {name}", [__file__, str(store), name, master, memory], limit)
        done = [float(line) for line in printed.split("\n")[:-1]]
        seconds[name] = [*done, *[float("inf")] * (2 - len(done))]
    return seconds


def _on_engine(job: str, **more: Any) -> Callable[[Any, SparkSession, PartitionedGraph], Any]:
    def run(frame: Any, spark: SparkSession, store: PartitionedGraph) -> Any:
        return gf.run(job, store, engine="spark", spark=spark, **{**options_of(job, store), **more})

    return run


def _components(frame: Any, least: int) -> DataFrame:
    found: DataFrame = frame.connectedComponents(broadcastThreshold=-1, use_local_checkpoints=True)
    return found


def _messages(frame: Any, least: int) -> DataFrame:
    from graphframes.lib import AggregateMessages as AM
    from pyspark.sql import functions as F

    found: DataFrame = frame.aggregateMessages([F.sum(AM.msg).alias("value")], sendToDst=[F.lit(1.0)])
    return found


def _hops(found: DataFrame) -> Any:
    from pyspark.sql import functions as F

    return found.select(F.explode(F.map_values("distances")).alias("hops")).agg(F.sum("hops")).first()[0]


def _sum(found: DataFrame) -> Any:
    from pyspark.sql import functions as F

    return found.agg(F.sum("value")).first()[0]


def _finite(result: gf.Result) -> int:
    distances = result.table["distance"].to_numpy()
    return int(distances[np.isfinite(distances)].sum())


JOBS: dict[str, Job] = {
    "components": Job(
        _components,
        _on_engine("components"),
        (lambda found: found.select("component").distinct().count(), lambda result: result.summary["components"]),
    ),
    "sssp": Job(
        lambda frame, least: frame.shortestPaths(landmarks=[least]),
        _on_engine("sssp", weighted=False),
        (_hops, _finite),
    ),
    "pagerank": Job(lambda frame, least: frame.pageRank(maxIter=ITERATIONS).vertices, _on_engine("pagerank")),
    "label-propagation": Job(lambda frame, least: frame.labelPropagation(maxIter=5), _on_engine("label-propagation")),
    "motifs": Job(
        lambda frame, least: frame.find(TRIANGLES),
        lambda frame, spark, store: motifs(frame, TRIANGLES),
        (lambda found: found.count(), lambda found: found.count()),
    ),
    "messages": Job(
        _messages,
        lambda frame, spark, store: gf.aggregate_messages(store, engine="spark", spark=spark),
        (_sum, lambda result: result.table["value"].to_numpy().sum()),
    ),
}


def _timed(call: Callable[[], Any], after: Callable[[Any], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds of the rounds after the first, and what `after`, which is not timed, makes of the last result."""
    seconds, last = list[float](), None
    while len(seconds) < 2 or (len(seconds) <= repeats and sum(seconds) < LONG):
        begun = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begun)
        last = after(result)
    return statistics.median(seconds[1:]), last


def beside(spark: SparkSession, store: PartitionedGraph, name: str, repeats: int = 3) -> Iterator[float]:
    """Seconds of the Spark engine, and then of GraphFrames; an `AssertionError` if their results differ."""
    from graphframes import GraphFrame

    job = JOBS[name]
    vertices, edges = (frame.cache() for frame in vertices_and_edges(store, spark=spark))
    frame, least = GraphFrame(vertices, edges), min(store.labels().to_pylist())
    for cached in (vertices, edges):
        cached.count()

    def computed(found: Any) -> Any:
        if hasattr(found, "sparkSession"):
            found.write.format("noop").mode("overwrite").save()
        return found

    def released(found: DataFrame) -> Any:
        number = job.same[0](found) if job.same else None
        found.unpersist()
        return number

    after = job.same[1] if job.same else lambda result: None
    ours, other = _timed(lambda: computed(job.ours(frame, spark, store)), after, repeats)
    yield ours
    theirs, number = _timed(lambda: computed(job.theirs(frame, least)), released, repeats)
    assert number == other, f"{name}: {number} in GraphFrames, {other} in GoFFish"
    for cached in (vertices, edges):
        cached.unpersist()
    yield theirs


def started(master: str, memory: str) -> SparkSession:
    """A session with as many shuffle partitions as it has slots."""
    config = {"spark.sql.shuffle.partitions": re.findall(r"\d+", master)[0]}
    return session(master=master, memory=memory, graphframes=True, config=config)


def main() -> None:
    """Time one job on a store, for `graphframes_seconds`; without arguments, all on a small graph."""
    if len(sys.argv) > 1:
        path, name, master, memory = sys.argv[1:]
        for seconds in beside(started(master, memory), gf.open(path), name):
            print(seconds, flush=True)
        return
    if version() is None:
        sys.exit(f"{JARS} does not name the jars of GraphFrames")
    ends = np.random.default_rng(1).integers(0, 60, (2, 90))
    spark = started("local[2]", "1g")
    print(_harness.machine_line(["pyspark", "graphframes-py"]))
    with tempfile.TemporaryDirectory(prefix="goffish-") as folder:
        path = f"{folder}/store"
        gf.partition(gf.from_edges(*ends), 2).save(path)
        rows = [[name, *(f"{s:.2f}" for s in beside(spark, gf.open(path), name, 1))] for name in JOBS]
    _harness.print_table(["job", "Spark engine", f"GraphFrames {version()}"], rows)
    spark.stop()


if __name__ == "__main__":
    main()
