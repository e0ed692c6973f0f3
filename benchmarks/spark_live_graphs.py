"""Continuous queries on streams of Spark, beside the embedded engine: ``python benchmarks/spark_live_graphs.py``.

Parquet files with additions and removals of edges are batches of a stream, in a session ``local[2]``. Two queries for
``Degree`` and ``Match`` are evaluated on the driver, and in 1, 2 and 4 shards; then components of the edges are
followed. The embedded engine reads the same files, writes the same log and the same events. All must have published the
same events. The first batches, in which Java and the kernels are compiled, are not timed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import goffish as gf
from goffish.spark import session

_QUERIES = """
DETECT Degree(degree >= 100, clear: 50, direction: out, distinct: true) AS large;
DETECT Match(edge:{amount > 999}) AS amounts
"""
_TOPICS = ("large", "amounts")
_SCHEMA = "t timestamp, op string, src bigint, dst bigint, amount double"
_WARM = 4


def write_updates(folder: Path, vertices: int, rows: int, batches: int) -> None:
    """Write files of edges that are added, and, a third of them, removed in a later file."""
    rng, earlier = np.random.default_rng(0), np.zeros((2, 0), np.int64)
    folder.mkdir()
    for number in range(batches):
        old = earlier[:, rng.permutation(earlier.shape[1])[: rows // 3]]
        count = rows - old.shape[1]
        new = np.stack([(vertices * rng.power(0.4, count)).astype(np.int64), rng.integers(0, vertices, count)])
        order = rng.permutation(rows)
        sources, targets = np.concatenate([new, old], axis=1)[:, order]
        times = (np.arange(rows) + number * rows) * 100
        table = {
            "t": pa.array(times, pa.timestamp("us", "UTC")), "op": np.where(order < count, "+e", "-e"),
            "src": sources, "dst": targets, "amount": rng.integers(0, 1001, rows).astype(float),
        }  # fmt: skip
        earlier = new
        pq.write_table(pa.table(table), folder / f"{number:04d}.parquet")


def embedded(updates: Path, folder: Path) -> tuple[float, dict[str, list[str]]]:
    """Return seconds of the batches that are timed, and the ids of all events."""
    events: dict[str, list[str]] = {topic: [] for topic in _TOPICS}
    live = gf.stream.LiveGraph(lateness=0.001, state=folder / "live")
    tables: list[tuple[str, pa.Table]] = []
    live.submit(_QUERIES, on_events=lambda topic, table: tables.append((topic, table)))
    begun = 0.0
    for number, file in enumerate(sorted(updates.iterdir())):
        begun = time.perf_counter() if number == _WARM else begun
        live.feed(pq.read_table(file))
        for at, (topic, table) in enumerate(tables):
            pq.write_table(table, folder / f"{topic}-{number}-{at}.parquet")
            events[topic] += table["event_id"].to_pylist()
        tables.clear()
    return time.perf_counter() - begun, events


def batch_seconds(run: gf.stream.SparkRun) -> float:
    """Return the seconds of the batches that are timed, from beginning to end as Spark reports them."""
    with run:
        run.await_termination()
        found = {one["batchId"]: one["durationMs"]["triggerExecution"] for one in run.query.recentProgress}
    return float(sum(millis for batch, millis in found.items() if batch >= _WARM)) / 1000


def streamed(frame: Any, folder: Path, shards: int) -> tuple[float, dict[str, list[str]]]:
    """Return seconds of the batches that are timed, and the ids of all events."""
    seconds = batch_seconds(
        gf.stream.spark_queries(
            frame, _QUERIES, checkpoint=folder / "checkpoint", output=folder / "events", lateness=0.001, shards=shards,
            trigger={"availableNow": True},
        )
    )  # fmt: skip
    events = {}
    for topic in _TOPICS:
        files = sorted((folder / "events" / topic).glob("*/*.parquet"), key=lambda one: int(one.parent.name[6:]))
        events[topic] = [row for one in files for row in pq.read_table(one, partitioning=None)["event_id"].to_pylist()]
    return seconds, events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--rows", default="5000,50000,200000")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--shards", default="0,1,2,4")
    given = parser.parse_args()
    spark = session(master="local[2]", memory="1g", config={"spark.sql.shuffle.partitions": 2})
    print(_harness.machine_line(("pyspark", "pyarrow")))
    print()
    rows = []
    for size in map(int, given.rows.split(",")):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_updates(folder / "in", given.vertices, size, given.batches)
            timed = size * (given.batches - _WARM)
            (folder / "embedded").mkdir()
            seconds, expected = embedded(folder / "in", folder / "embedded")
            count = sum(map(len, expected.values()))
            rows.append([f"{size:,}", "embedded engine", f"{timed / seconds:,.0f}", f"{count:,}"])
            frame = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
            for shards in map(int, given.shards.split(",")):
                seconds, events = streamed(frame, folder / f"{shards}", shards)
                if events != expected:
                    raise SystemExit(f"{shards} shards: other events than those of the embedded engine")
                name = f"Spark, {shards} shard{'s' * (shards > 1)}" if shards else "Spark, queries on the driver"
                rows.append([f"{size:,}", name, f"{timed / seconds:,.0f}", f"{count:,}"])
            seconds = batch_seconds(
                gf.stream.spark_algorithm(
                    frame.drop("t"), "components", checkpoint=folder / "components", output=folder / "result",
                    trigger={"availableNow": True},
                )
            )  # fmt: skip
            rows.append([f"{size:,}", "Spark, components", f"{timed / seconds:,.0f}", ""])
    _harness.print_table(["records in a batch", "", "updates/s", "events"], rows)


if __name__ == "__main__":
    main()
