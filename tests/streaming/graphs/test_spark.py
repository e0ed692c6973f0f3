"""Live graphs on streams of Spark: events of the embedded engine, once each, however often the driver ends."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.errors import CheckpointError, InputError, JobError
from goffish.streaming.graphs import durable, shards
from goffish.streaming.graphs.spark import SparkRun, _Algorithm, _Queries
from tests.commands import ENVIRONMENT
from tests.streaming.graphs.test_durable import QUERIES
from tests.streaming.graphs.test_queries import LABELS, some_records

pytest.importorskip("pyspark")

#: Queries that shards evaluate: all kinds of elements, roles, windows and what they see.
LOCAL = """
DETECT Match(vertex:{x > 1}) AS v;
DETECT Match(vertex:{}) AS all_vertices;
DETECT Match(edge:{has(y)}) AS e;
DETECT Match(edge:{}) WINDOW 20s WHERE node:{has(x)} AS inner;
DETECT Degree(degree >= 3, clear: 2, direction: out, distinct: true) WINDOW 40s AS spread;
DETECT Degree(degree >= 4) AS large;
DETECT Degree(vertex:{x > 1}, degree < 3, direction: in) WHERE edge:{has(x)} AS small;
DETECT Degree(degree >= 2) WHERE status = RAISED WITH (initial = false) AS raised
"""


def local_records(seed: int, count: int = 240) -> list[dict[str, Any]]:
    """Random changes, in which an id is always of the same edge; some are late, twice, or of another stream."""
    rng = random.Random(seed)
    found = []
    for number, one in enumerate(some_records(rng, count)):
        for each in one.get("updates", [one]):
            if each["op"] == "+e":
                each.pop("id", None)
                each["attrs"].pop("type", None)
            elif "e" in each["op"]:
                each["id"] = f"{rng.choice(LABELS)}>{rng.choice(LABELS)}:"
        if rng.random() < 0.1:
            one["t"] -= rng.randrange(8)
        if rng.random() < 0.3:
            one["stream"] = "other"
        found += [one | {"seq": number}] * rng.choice([1, 1, 1, 2])
    return found


def batches_of(seed: int, records: list[Any]) -> list[list[Any]]:
    rng, found = random.Random(seed), []
    while records:
        size = rng.choice([0, 1, 5, 20, 60])
        found.append(records[:size])
        records = records[size:]
    return found


def texts(spark: Any, records: list[Any]) -> Any:
    rows = pa.table({"value": pa.array(map(json.dumps, records), pa.string())})
    return spark.createDataFrame(rows).coalesce(1)


def embedded(text: str, records: list[Any]) -> gf.stream.LiveGraph:
    live = gf.stream.LiveGraph(lateness=3)
    live.submit(text)
    live.feed(records)
    return live


def as_text(value: Any) -> Any:
    return list(map(str, value)) if isinstance(value, list) else str(value)


def published(folder: Path, topic: str) -> list[dict[str, Any]]:
    """All events in the files of a topic, in order."""
    files = sorted((folder / topic).glob("batch=*/events.parquet"), key=lambda one: int(one.parent.name[6:]))
    rows = [row for one in files for row in pq.read_table(one, partitioning=None).to_pylist()]
    return [{name: as_text(value) for name, value in row.items()} for row in rows]


def expected(live: gf.stream.LiveGraph, topic: str) -> list[dict[str, Any]]:
    return [{name: as_text(value) for name, value in row.items()} for row in live.events(topic).to_pylist()]


def options(folder: Path, text: str, count: int = 0) -> tuple[Any, ...]:
    return folder / "checkpoint", folder / "events", text, {}, count, True, {"lateness": 3, "events": 1000}


def abandon(batches: Any) -> None:
    """Leave a stream as a driver does that is killed."""
    batches.live._folder.close()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*.parquet"))}


def write_lines(folder: Path, parts: list[list[Any]]) -> None:
    folder.mkdir()
    for number, part in enumerate(parts):
        file = folder / f"{number:03d}.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in part))
        os.utime(file, (10**9 + number, 10**9 + number))


def test_events_of_the_embedded_engine(spark: Any, tmp_path: Path) -> None:
    """Breaks when a stream of files gives another event than `feed`, in one run or in two."""
    text = f"{QUERIES.strip()}; {LOCAL.strip()}"
    records = local_records(1, 300)
    parts = [records[at : at + 100] for at in range(0, len(records), 100)]
    write_lines(tmp_path / "in", parts[:2])
    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))

    def run() -> SparkRun:
        return gf.stream.spark_queries(
            frame, text, checkpoint=tmp_path / "checkpoint", output=tmp_path / "events", lateness=3, shards=2,
            trigger={"availableNow": True},
        )  # fmt: skip

    with run() as first:
        assert first.await_termination()
    write_lines(tmp_path / "more", parts)
    for file in sorted((tmp_path / "more").iterdir())[2:]:
        file.rename(tmp_path / "in" / file.name)
    with run() as second:
        second.await_termination(60)
    live = embedded(text, records)
    for topic in live.topics:
        assert published(tmp_path / "events", topic) == expected(live, topic), topic
    counts = {topic: len(live.events(topic)) for topic in live.topics}
    assert sum(map(bool, counts.values())) >= 14, counts
    frame = spark.read.parquet(str(tmp_path / "events" / "all_vertices"))
    assert frame.count() == counts["all_vertices"] and {"batch", "event_id", "id"} <= set(frame.columns)
    assert not list((tmp_path / "events").rglob(".*.partial"))


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 60), marks=pytest.mark.slow)])
def test_shards(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """Breaks when an event depends on the number of shards, on batches, or on where a shard continues."""
    monkeypatch.setattr(shards, "_SAVED_EVERY", 3)
    for seed in seeds:
        rng, count = random.Random(seed), 1 + seed % 4
        records = local_records(seed)
        folder = tmp_path / str(seed)
        running = _Queries(*options(folder, LOCAL, count))
        for number, part in enumerate(batches_of(seed, records)):
            running(texts(spark, part), number)
            running(texts(spark, part), number)  # nothing happens twice
            if rng.random() < 0.3:
                abandon(running) if rng.random() < 0.5 else running.close()
                shards._held.clear()
                running = _Queries(*options(folder, LOCAL, count))
        running.close()
        live = embedded(LOCAL, records)
        assert len(live.events("v")) and len(live.events("spread"))
        for topic in live.topics:
            assert published(folder / "events", topic) == expected(live, topic), (seed, topic)


class Killed(BaseException):
    """The driver is killed."""


@contextmanager
def killed_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Raise an exception at the n-th call that changes a file; yield how many there were."""
    calls = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == moment:
                raise Killed
            return function(*arguments, **more)

        return call

    with monkeypatch.context() as patch:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield calls


@pytest.mark.parametrize(
    ("count", "times"), [(0, 12), (2, 5), pytest.param(0, 150, marks=pytest.mark.slow),
                         pytest.param(3, 60, marks=pytest.mark.slow)],
)  # fmt: skip
def test_killed_within_a_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, times: int
) -> None:
    """Breaks when a file has another byte than that of a driver that was not killed, wherever this one ends."""
    monkeypatch.setattr(shards, "_SAVED_EVERY", 2)
    monkeypatch.setattr(durable, "_MOST_UPDATES", 60)
    text = f"{QUERIES.strip()}; {LOCAL.strip()}" if count == 0 else LOCAL
    records = local_records(3, 120)
    frames = [texts(spark, records[at : at + 25]) for at in range(0, len(records), 25)]
    whole = _Queries(*options(tmp_path / "whole", text, count))
    with killed_at(0, monkeypatch) as calls:
        for number, frame in enumerate(frames):
            whole(frame, number)
    whole.close()
    wanted = files_of(tmp_path / "whole" / "events")
    assert len(wanted) > 15
    rng = random.Random(times)
    kills = number = runs = 0
    folder = tmp_path / "0"
    running: Any = None
    while kills < times:
        with killed_at(rng.randrange(1, calls[0] // 3), monkeypatch):
            try:
                running = None
                running = _Queries(*options(folder, text, count))
                while number < len(frames):
                    running(frames[number], number)
                    number += 1
            except Killed:
                kills += 1
                number = max(0, number - rng.randrange(2))  # Spark may not have noted that a batch was complete
        if running is not None:
            abandon(running)
        if number == len(frames):
            assert files_of(folder / "events") == wanted
            runs, number = runs + 1, 0
            folder = tmp_path / str(runs)
    running = _Queries(*options(folder, text, count))
    for at in range(number, len(frames)):
        running(frames[at], at)
    running.close()
    assert files_of(folder / "events") == wanted
