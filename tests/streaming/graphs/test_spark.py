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
from goffish.streaming.graphs import durable
from goffish.streaming.graphs.cgql.parser import parse
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
    return folder / "checkpoint", folder / "events", parse(text), {}, count, True, {"lateness": 3, "events": 1000}


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


@pytest.mark.slow
def test_events_of_the_embedded_engine(spark: Any, tmp_path: Path) -> None:
    """Breaks when a stream of files gives another event than `feed`, in one run or in two."""
    text = f"{QUERIES.strip()}; {LOCAL.strip()}"
    records = local_records(1, 300)
    parts = [records[at : at + 100] for at in range(0, len(records), 100)]
    write_lines(tmp_path / "in", parts[:2])
    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))

    def run() -> SparkRun:
        return gf.stream.spark_queries(
            frame, text, checkpoint=tmp_path / "checkpoint", output=tmp_path / "events", lateness=3,
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


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 16), marks=pytest.mark.slow)])
def test_shards(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """Breaks when an event depends on the number of shards, on batches, or on where a shard continues."""
    monkeypatch.setattr("goffish.streaming.graphs.spark.PERIOD", 3)
    for seed in seeds:
        rng, count = random.Random(seed), 1 + seed % 4
        records = local_records(seed, 240 if seed else 120)
        folder = tmp_path / str(seed)
        running = _Queries(*options(folder, LOCAL, count))
        for number, part in enumerate(batches_of(seed, records)):
            running(texts(spark, part), number)
            running(texts(spark, part), number)  # nothing happens twice
            if rng.random() < 0.3:
                abandon(running) if rng.random() < 0.5 else running.close()
                running = _Queries(*options(folder, LOCAL, count))
        running.close()
        live = embedded(LOCAL, records)
        assert len(live.events("inner")) and len(live.events("spread"))
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
    ("count", "times"), [(0, 10), pytest.param(0, 120, marks=pytest.mark.slow),
                         pytest.param(3, 40, marks=pytest.mark.slow)],
)  # fmt: skip
@pytest.mark.slow
def test_killed_within_a_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, times: int
) -> None:
    """Breaks when a file has another byte than that of a driver that was not killed, wherever this one ends."""
    monkeypatch.setattr("goffish.streaming.graphs.spark.PERIOD", 2)
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


# -- algorithms


def some_edges(seed: int, count: int) -> list[dict[str, Any]]:
    """Edges that come and go, with weights."""
    rng, found = random.Random(seed), list[dict[str, Any]]()
    for _ in range(count):
        src, dst = rng.randrange(40), rng.randrange(40)
        op = "+e" if rng.random() < 0.7 else "-e"
        found.append({"src": src, "dst": dst, "weight": float(rng.randrange(1, 9)), "op": op})
        if op == "-e":
            found.append(rng.choice(found) | {"op": "-e"})
    return found


def applied(edges: list[dict[str, Any]]) -> nx.DiGraph:
    G = nx.DiGraph()
    for one in edges:
        if one["op"] == "+e":
            G.add_edge(one["src"], one["dst"], weight=one["weight"])
        elif G.has_edge(one["src"], one["dst"]):
            G.remove_edge(one["src"], one["dst"])
    return G


def folded(folder: Path, name: str) -> dict[int, Any]:
    """What a reader has that puts each row in the place of an earlier one of its vertex."""
    found: dict[int, Any] = {}
    for file in sorted(folder.glob("batch=*/result.parquet"), key=lambda one: int(one.parent.name[6:])):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            found[row["id"]] = row[name]
    return {vertex: value for vertex, value in found.items() if value is not None}


def algorithm(folder: Path, name: str, **more: Any) -> _Algorithm:
    given: dict[str, Any] = {"weight": None, "options": {}, "output": folder / "out", "least_change": 0.0}
    given["mode"] = "update"
    return _Algorithm(folder / "checkpoint", name, lateness=None, **(given | more))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(1), range(1, 16)])
def test_algorithms_follow_edges(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """Breaks when folded rows are not what NetworkX computes of all edges so far, also after the driver was killed."""
    for seed in seeds:
        rng, edges = random.Random(seed), some_edges(seed, 120)
        folders = [tmp_path / f"{seed}-{name}" for name in ("components", "pagerank")]
        ranked = {"weight": "weight", "options": {"tolerance": 1e-10}, "least_change": 1e-9}

        def made() -> list[_Algorithm]:
            return [algorithm(folders[0], "components"), algorithm(folders[1], "pagerank", **ranked)]  # noqa: B023

        running = made()
        for number, end in enumerate(range(30, len(edges) + 30, 30)):
            frame = spark.createDataFrame(pa.Table.from_pylist(edges[end - 30 : end])).coalesce(1)
            for at, one in enumerate(running):
                if rng.random() < 0.5:
                    with killed_at(rng.randrange(1, 12), monkeypatch):
                        try:
                            one(frame, number)
                        except Killed:
                            abandon(one)
                            running[at] = one = made_again(folders[at], at, ranked)  # noqa: PLW2901
                one(frame, number)
            G = applied(edges[:end])
            components = folded(folders[0] / "out", "component")
            assert components == {
                vertex: min(component) for component in nx.weakly_connected_components(G) for vertex in component
            }
            ranks = folded(folders[1] / "out", "rank")
            G.remove_edges_from(list(nx.selfloop_edges(G)))
            assert ranks == pytest.approx(nx.pagerank(G, tol=1e-12, max_iter=500), abs=1e-6)
        for one in running:
            one.close()


def made_again(folder: Path, at: int, ranked: dict[str, Any]) -> _Algorithm:
    return algorithm(folder, "pagerank", **ranked) if at else algorithm(folder, "components")


def test_complete_results_and_functions(spark: Any, tmp_path: Path) -> None:
    """Breaks when a batch lacks rows, a vertex that is gone remains, or times are not followed."""
    seen: dict[int, list[Any]] = {}

    def take(frame: Any, batch: int) -> None:
        seen[batch] = sorted((row["id"], row["component"]) for row in frame.collect())

    add = {"op": "+e", "t": 5}
    write_lines(tmp_path / "in", [
        [add | {"src": "c", "dst": "d", "t": 6}, add | {"src": "a", "dst": "b"}, {"op": "heartbeat", "t": 8}],
        [{"op": "-v", "id": "d", "t": 7}, {"op": "heartbeat", "t": 10}],
    ])  # fmt: skip
    frame = spark.readStream.schema("t bigint, op string, id string, src string, dst string").option(
        "maxFilesPerTrigger", 1
    ).json(
        str(tmp_path / "in")
    )  # fmt: skip
    for mode in ("complete", "update"):
        with gf.stream.spark_algorithm(
            frame, "components", checkpoint=tmp_path / mode, output=take, mode=mode, lateness=2,
        ) as run:  # fmt: skip
            run.process_all()
        assert seen[max(seen)] == ([("a", "a"), ("b", "a"), ("c", "c")] if mode == "complete" else [("d", None)])
        seen.clear()


# -- errors


def test_records_that_are_not_accepted(spark: Any, tmp_path: Path) -> None:
    """Breaks when what is malformed ends the stream, or is lost without a trace."""
    rows = ['{"t": 9, "op": "+v", "id": 1}', "{", "", None, '{"t": 1, "op": "+v", "id": 2}', "[1]", '{"op": "+v"}']
    frame = spark.createDataFrame(pa.table({"value": pa.array(rows, pa.string())})).coalesce(1)
    running = _Queries(*options(tmp_path, "DETECT Match(vertex:{}) AS q"))
    running(frame, 0)
    assert running.live.counts["rejected"] == 5 and running.live.counts["late"] == 1
    lines = (tmp_path / "checkpoint" / "rejected" / "batch=0.jsonl").read_text().splitlines()
    found = [json.loads(one) for one in lines]
    assert [one["record"] for one in found] == ["{", "", None, [1], {"op": "+v"}, json.loads(rows[4] or "")]
    assert "field t: missing" in found[4]["error"] and found[5]["error"].startswith("late")
    running.close()
    table = pa.table({"t": [1, None, 20], "op": ["+v", None, "+v"], "id": [1, None, 2]})
    columns = list(options(tmp_path / "columns", "DETECT Match(vertex:{}) AS q"))
    columns[5] = False
    running = _Queries(*columns)
    running(spark.createDataFrame(table).coalesce(1), 0)
    running.close()
    [line] = (tmp_path / "columns" / "checkpoint" / "rejected" / "batch=0.jsonl").read_text().splitlines()
    assert json.loads(line)["error"] == "field t: missing; give the event time"
    assert [row["id"] for row in published(tmp_path / "columns" / "events", "q")] == ["1"]


def test_what_is_refused(spark: Any, tmp_path: Path) -> None:
    """Breaks when something else is continued, or an error does not say what is accepted."""
    stream = spark.readStream.text(str(tmp_path))
    place: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "output": tmp_path / "events"}
    text = "DETECT Match(vertex:{}) AS q"
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (spark.range(1), {}, r"not a stream; make it with spark.readStream"),
        (stream, {"shards": -1}, r"shards = -1: must be from 0 to 4096"),
        (stream.selectExpr("value as x"), {}, r"updates: has the columns x; accepted are t, op"),
        (stream, {"queries": "DETECT Nothing() AS q"}, r"line 1"),
        (stream, {"queries": "DETECT Match(vertex:{}) AS q; CANCEL q"}, r"CANCEL"),
        (stream, {"trigger": {"often": 1}}, r"^trigger = {'often': 1}: .*often"),
        (stream, {"checkpoint": "s3://bucket/x"}, r"s3://bucket/x: URIs are not supported here"),
        (stream, {"output": "s3://bucket/x"}, r"s3://bucket/x: URIs are not supported here"),
        (stream, {"lateness": -1}, r"lateness"),
        (stream, {"vocabularies": {"v": {"a": "x"}}}, r"vocabulary v: word a: 'x': must be"),
        (stream, {"queries": "DETECT Match(vertex:{a}) WITH (vocabulary = v)"}, r"there is no such vocabulary"),
        (
            stream,
            {
                "queries": "DETECT Match(vertex:{a}) FOR 1h WITH (vocabulary = v, clock = wall)",
                "vocabularies": {"v": {"a": "{x = 1}"}},
            },
            r"WITH clock = wall: not accepted here",
        ),
    ]
    for frame, more, message in refused:
        with pytest.raises(InputError, match=message):
            gf.stream.spark_queries(frame, **({"queries": text} | place | more))
    running = _Queries(*options(tmp_path, text))
    running(texts(spark, [{"t": 1, "op": "+v", "id": 1}, {"t": 9, "op": "heartbeat"}]), 0)
    with pytest.raises(InputError, match=r"live: in use by another run"):
        _Queries(*options(tmp_path, text))
    with pytest.raises(InputError, match=r"has queries = .*, and not .*; give the same, or name a new folder"):
        _Queries(*options(tmp_path, "DETECT Match(edge:{}) AS q"))
    with pytest.raises(InputError, match=r"has shards = 0, and not 2"):
        _Queries(*options(tmp_path, text, 2))
    with pytest.raises(InputError, match=r"output .*events: is not empty; name a new folder"):
        _Queries(tmp_path / "other", *options(tmp_path, text)[1:])
    running.close()
    with pytest.raises(JobError, match="batch 1: the stream was stopped"):
        running(texts(spark, []), 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"mine: is not empty; name a new folder"):
        _Queries(tmp_path / "mine", *options(tmp_path / "new", text)[1:])
    (tmp_path / "checkpoint" / "committed.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"committed.json: is damaged"):
        _Queries(*options(tmp_path, text))
    (tmp_path / "new").mkdir(exist_ok=True)
    edges = spark.readStream.schema("src bigint, dst bigint, t bigint").json(str(tmp_path / "new"))
    of_edges: list[tuple[Any, dict[str, Any], str]] = [
        (edges.drop("t"), {"weight": "w"}, r"edges: no column 'w'; available: src, dst"),
        (edges, {}, r"edges: has a column t; give the lateness"),
        (edges, {"lateness": 1, "mode": "append"}, r"mode = 'append': accepted are update and complete"),
        (edges, {"lateness": 1, "least_change": float("nan")}, r"least_change = nan: must be at least 0"),
        (edges, {"lateness": 1, "algorithm": "closeness"}, r"closeness"),
    ]
    for frame, more, message in of_edges:
        given: dict[str, Any] = {"algorithm": "components", "output": tmp_path / "result"}
        given |= {"checkpoint": tmp_path / "edges"}
        with pytest.raises(InputError, match=message):
            gf.stream.spark_algorithm(frame, **(given | more))


def test_a_batch_that_fails(spark: Any, tmp_path: Path) -> None:
    """Breaks when an error of a batch is not one line, or the stream cannot continue."""
    write_lines(tmp_path / "in", [[{"t": 1, "op": "+v", "id": "a"}, {"t": 9, "op": "heartbeat"}]])
    place: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "output": tmp_path / "events"}
    (tmp_path / "events").mkdir()
    frame = spark.readStream.text(str(tmp_path / "in"))
    with gf.stream.spark_queries(frame, "DETECT Match(vertex:{}) AS q", **place) as run:
        (tmp_path / "events" / "q").write_text("in the way")
        with pytest.raises(JobError, match=r"^batch 0: .*events/q.*: cannot be written \([^\n]*\)$"):
            run.process_all()
    (tmp_path / "events" / "q").unlink()
    with gf.stream.spark_queries(frame, "DETECT Match(vertex:{}) AS q", **place) as run:
        run.process_all()
    assert [row["id"] for row in published(tmp_path / "events", "q")] == ["a"]
    sharded = _Queries(*options(tmp_path / "ids", LOCAL, 2))
    twice = [{"t": 1, "op": "+e", "id": 1, "src": "a", "dst": b} for b in "bc"]
    with pytest.raises(JobError, match=r"batch 0: 1 edges have the id of one with other ends; with shards, ids"):
        sharded(texts(spark, [*twice, {"t": 9, "op": "heartbeat"}]), 0)
    sharded.close()


#: Runs a stream in another driver; with a number, it is killed at that call that changes a file.
DRIVER = """
import os, signal, sys
from pathlib import Path
import goffish as gf
from goffish.spark import session
folder, text, shards, moment = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
calls = 0
def counted(function):
    def call(*arguments, **more):
        global calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return call
spark = session(master="local[2]", memory="1g", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "mkdir")):
    setattr(owner, name, counted(getattr(owner, name)))
with gf.stream.spark_queries(
    frame, text, checkpoint=folder / "checkpoint", output=folder / "events", lateness=3, shards=shards,
    trigger={"availableNow": True},
) as run:
    run.await_termination()
print(calls)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [0, 2])
def test_killed_drivers(tmp_path: Path, count: int) -> None:
    """Breaks when a driver that continues after `kill -9` publishes another event than the embedded engine."""
    text = f"{QUERIES.strip()}; {LOCAL.strip()}" if count == 0 else LOCAL
    records = local_records(5, 150)
    write_lines(tmp_path / "in", [records[at : at + 40] for at in range(0, len(records), 40)])
    rng, kills = random.Random(count), 0
    while True:
        moment = rng.randrange(1, 80) if kills < 6 else 0
        command = [sys.executable, "-c", DRIVER, str(tmp_path), text, str(count), str(moment)]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=200, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
        kills += 1
    assert kills
    live = embedded(text, records)
    for topic in live.topics:
        assert published(tmp_path / "events", topic) == expected(live, topic), topic
