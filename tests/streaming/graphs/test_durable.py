"""Live graphs in a folder: they go on after any end as if there had been none."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import CheckpointError, GoffishWarning, InputError, JobError
from goffish.streaming.graphs import live as live_module
from goffish.streaming.graphs import trees
from goffish.streaming.graphs.durable import checkpoint_age, checkpoints
from goffish.streaming.graphs.recovery import verify
from tests.commands import ENVIRONMENT
from tests.streaming.graphs.reference import Reference
from tests.streaming.graphs.test_queries import TICK, Followed, plain, some_queries, some_records
from tests.streaming.graphs.test_reference import shown

#: Every kind of pattern, windows, epochs, and queries that hold events back.
QUERIES = """
DETECT Reach(source:{has(x)}, sink:{has(y)}) AS paths;
DETECT Cluster(size >= 2, sum(node.x) > 2) AS sums;
DETECT Neighbourhood(center:{x = 3}, hops: 2) WINDOW 40s AS near;
DETECT Degree(degree >= 3, clear: 2, direction: out, distinct: true) WINDOW 40s AS busy;
DETECT Component(members: true, grow: 4) WHERE edge:{type = b} EMIT EVERY 7s AS parts;
DETECT Match(edge:{type = a}) WHERE SUCCEEDS 2 OF busy WITHIN 30s AND PREDATES near WITHIN 20s AND ORDERED AS later;
DETECT Match(vertex:{has(tags)}) WHERE SUCCEEDS sums WITHIN 60s SHARING VERTICES AS shared;
DETECT Match(vertex:{id != "a"}) FOR 60s AS some;
DETECT Evolved(sums) WHERE sum(node.x) < 4 AND edges > 0 WITH (track = 30s) AS evolved;
DETECT Reach(source:{id = sums.*}, sink:{id = parts.*}) EMIT EVERY 7s AS between;
DETECT Match(vertex:{NOT (id = sums.*), has(x)}) WHERE node:{NOT (id = sums.*)} AS outside;
DETECT Motif((a)-[e]->(b)-[f]->(c), a.x != c.x, e.time < f.time) EMIT EVERY 9s AS pairs;
DETECT Centrality(measure: degree, top: 3) AS most;
DETECT Centrality(measure: pagerank, top: 3) EMIT EVERY 9s AS ranked
"""
STEP = 7


def everything(live: gf.stream.LiveGraph) -> dict[str, Any]:
    """What can be seen of a live graph."""
    topics = {topic: (live.events(topic).to_pylist(), live.answers(topic).to_pylist()) for topic in live.topics}
    return {
        "topics": topics, "queries": list(map(live.query, live.topics)), "counts": live.counts, "time": live.time,
        "vertices": live.vertices.to_pylist(), "edges": live.edges.to_pylist(),
    }  # fmt: skip


def commands(seed: int, count: int = 300) -> list[Any]:
    """Batches of records, and other commands between them."""
    rng = random.Random(seed)
    records = list(some_records(rng, count))
    for one in records[::11]:
        one["stream"] = "other"
    for at, one in enumerate(records[::5]):
        one |= {"seq": at // 2 * 2}  # half of them twice
    found: list[Any] = [records[at : at + STEP] for at in range(0, len(records), STEP)]
    found.insert(10, "DETECT Reach(source:{y = 1}, sink:{}, hops: 2) AS late")
    found.insert(20, ("cancel", "near"))
    return [QUERIES, *found, "end"]


def follow(live: gf.stream.LiveGraph, command: Any) -> None:
    if isinstance(command, list):
        live.feed(command)
    elif command == "end":
        live.end()
    elif isinstance(command, tuple):
        live.cancel(command[1])
    else:
        live.submit(command)


def abandon(live: gf.stream.LiveGraph) -> None:
    """Leave a live graph as a process does that is killed."""
    live._folder.close()  # type: ignore[union-attr]


@pytest.mark.filterwarnings("error::goffish.errors.GoffishWarning")
@pytest.mark.parametrize("seed", [*(pytest.param(one, marks=pytest.mark.slow) for one in range(2)), 2])
def test_it_goes_on(tmp_path: Path, seed: int) -> None:
    """Breaks when a live graph that was closed or killed differs from one that was not."""
    rng = random.Random(seed)
    given = commands(seed)
    plain = gf.stream.LiveGraph(lateness=3)
    kept = gf.stream.LiveGraph(lateness=3, state=tmp_path / "state")
    for command in given:
        follow(plain, command)
        follow(kept, command)
        ends = rng.choice(["", "", "", "close", "kill", "checkpoint"])
        if ends == "close":
            kept.close()
        elif ends == "checkpoint":
            kept.checkpoint()
        if ends in ("close", "kill"):
            abandon(kept) if ends == "kill" else None
            kept = gf.stream.LiveGraph(lateness=3, state=tmp_path / "state")
            assert everything(kept) == everything(plain)
    assert everything(kept) == everything(plain)
    events = {topic: len(rows) for topic, (rows, _) in everything(plain)["topics"].items()}
    assert sum(map(bool, events.values())) >= 7, events
    kept.close()


@pytest.mark.filterwarnings("error::goffish.errors.GoffishWarning")
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 200), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_random_queries_go_on(tmp_path: Path, seeds: range) -> None:
    """Breaks when the state of a pattern is not complete in checkpoints."""
    for seed in seeds:
        rng = random.Random(seed)
        given = list(some_records(rng, 120))
        queries, reference = some_queries(rng), Reference()
        live = gf.stream.LiveGraph(lateness=TICK, state=tmp_path / f"{seed}")
        live.feed([{"t": 0, "op": "heartbeat"}, {"t": TICK, "op": "heartbeat"}])
        live.submit("; ".join(queries.values()))
        reference.submit("; ".join(queries.values()))
        reference.feed(given)
        while given:
            size = rng.choice([1, 3, 20])
            live.feed(given[:size])
            given = given[size:]
            if rng.random() < 0.25:
                if rng.random() < 0.7:
                    live.checkpoint()
                live.close()
                live = gf.stream.LiveGraph(lateness=TICK, state=tmp_path / f"{seed}")
        live.feed([{"t": 1000 + TICK, "op": "heartbeat"}])
        reference.advance(1000)
        for topic in queries:
            followed = Followed(live)
            followed.take(topic, live.events(topic))
            expected = [shown(plain(one)) for one in reference.events if one.topic == topic]
            assert [shown(plain(one)) for one in followed.events] == expected, f"seed {seed}: {queries}"
        live.close()


@pytest.mark.slow
def test_subscribers_receive_each_event_once(tmp_path: Path) -> None:
    """Breaks when a function that begins after its last offset misses events, or receives one twice."""
    given = commands(7)
    seen: dict[str, list[Any]] = {}

    def take(topic: str, table: Any) -> None:
        seen.setdefault(topic, []).extend(table.select(["offset", "status", "event_id"]).to_pylist())

    live = gf.stream.LiveGraph(lateness=3, state=tmp_path)
    for number, command in enumerate(given):
        follow(live, command)
        if number % 4 == 0:
            abandon(live)
            live = gf.stream.LiveGraph(lateness=3, state=tmp_path)
        for topic in live.topics:
            live.subscribe(topic, take, after=len(seen.get(topic, [])))
    columns = ["offset", "status", "event_id"]
    assert {topic: seen.get(topic, []) for topic in live.topics} == {
        topic: live.events(topic).select(columns).to_pylist() for topic in live.topics
    }
    abandon(live)


@pytest.mark.parametrize(
    ("rate", "volume", "cost", "replay", "seconds"),
    [
        (1_000, 1e5, 0.5, 1e5, 60), (10_000, 1e6, 0.5, 1e5, 60), (10_000, 1e6, 8, 1e5, 80),
        (50_000, 5e6, 0.5, 1e5, 20), (80_000, 2e6, 0.5, 4e4, 12.5), (200_000, 2e7, 0.5, 1e5, 5),
    ],
)  # fmt: skip
def test_time_between_checkpoints(rate: float, volume: float, cost: float, replay: float, seconds: float) -> None:
    assert checkpoint_age(rate, volume, cost, replay) == pytest.approx(seconds)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with two checkpoints, and what the live graph in it is."""
    folder = tmp_path_factory.mktemp("filled") / "state"
    live = gf.stream.LiveGraph(lateness=3, state=folder)
    for number, command in enumerate(commands(1)):
        follow(live, command)
        if number in (15, 30):
            live.checkpoint()
    found = everything(live)
    abandon(live)
    return folder, found


def opened(folder: Path) -> dict[str, Any]:
    live = gf.stream.LiveGraph(lateness=3, state=folder)
    try:
        return everything(live)
    finally:
        abandon(live)


def test_what_is_refused(filled: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Breaks when a folder is used with other options, twice at a time, or although it is of something else."""
    folder, found = tmp_path / "state", filled[1]
    shutil.copytree(filled[0], folder)
    with pytest.raises(InputError, match=r"state: has lateness = 3 s, and not 5 s; give the same, or name a new"):
        gf.stream.LiveGraph(state=folder)
    live = gf.stream.LiveGraph(lateness=3, state=folder)
    with pytest.raises(InputError, match="state: in use by another run"):
        gf.stream.LiveGraph(lateness=3, state=folder)
    live.close()
    assert opened(folder) == found
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="other: is not the folder of a live graph; name a new folder"):
        gf.stream.LiveGraph(state=other)
    assert [one.name for one in other.iterdir()] == ["notes.txt"]
    with pytest.raises(InputError, match=r"notes.txt: is a file; name a folder"):
        gf.stream.LiveGraph(state=other / "notes.txt")
    with pytest.raises(InputError, match="s3://bucket/state: URIs are not supported here"):
        gf.stream.LiveGraph(state="s3://bucket/state")
    manifest = folder / "live-graph.json"
    given = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(given | {"version": 2}))
    with pytest.raises(CheckpointError, match=r"live-graph.json: has version 2; this program reads version 1"):
        gf.stream.LiveGraph(lateness=3, state=folder)
    for text in ("", "[]", "{", '{"format": "live graph", "version": 1, "options": {"lateness": 1e999}}'):
        manifest.write_text(text)
        with pytest.raises(CheckpointError, match=r"live-graph.json: is damaged; restore it"):
            gf.stream.LiveGraph(lateness=3, state=folder)


def test_leftovers_are_removed(filled: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Breaks when parts of files of a process that was killed remain, or change anything."""
    folder = tmp_path / "state"
    shutil.copytree(filled[0], folder)
    (folder / ".checkpoint-0000000000000040.arrow.partial").write_bytes(b"half")
    (folder / "checkpoint-0000000000000040.arrow").write_bytes(b"not described yet")
    live = gf.stream.LiveGraph(lateness=3, state=folder)
    assert everything(live) == filled[1]
    live.checkpoint()
    live.close()
    names = {one.name for one in folder.iterdir() if "checkpoint" in one.name}
    assert names == {name.name for one in checkpoints(folder) for name in (one.path, one.path.with_suffix(".json"))}


@pytest.mark.filterwarnings("ignore::goffish.errors.GoffishWarning")
@pytest.mark.parametrize("count", [30, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_damage(filled: tuple[Path, dict[str, Any]], tmp_path: Path, count: int) -> None:
    """Breaks when a file that was cut or changed at random gives another graph, or an error of more than one line."""
    rng = random.Random(5)
    files = sorted(one.relative_to(filled[0]) for one in filled[0].rglob("*") if one.is_file() and one.name != "lock")
    whole = refused = 0
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(filled[0], folder)
        file = folder / files[number % len(files)]
        data = bytearray(file.read_bytes())
        at = rng.randrange(len(data))
        if rng.random() < 0.3:
            data = data[:at]
        else:
            data[at] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
        is_log = file.suffix == ".journal"
        try:
            found = opened(folder)
        except (CheckpointError, InputError) as error:
            assert "\n" not in str(error) and str(folder) in str(error)
            refused += 1
        else:
            whole += 1
            if is_log and found != filled[1]:  # the last entries of the log, which end in the middle of one
                assert found["counts"]["accepted"] < filled[1]["counts"]["accepted"]
                continue
            assert found == filled[1], file
        shutil.rmtree(folder)
    assert whole > count / 3 and refused > count / 12


def test_all_checkpoints_are_damaged(filled: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Breaks when the log is not replayed from its beginning, or its end is missing without an error."""
    folder = tmp_path / "state"
    shutil.copytree(filled[0], folder)
    for one in checkpoints(folder):
        one.path.write_bytes(one.path.read_bytes()[:-100])
    with pytest.warns(GoffishWarning, match="is damaged; the log was replayed from an earlier one"):
        assert opened(folder) == filled[1]
    assert not checkpoints(folder)
    shutil.rmtree(folder)
    shutil.copytree(filled[0], folder)
    for file in (folder / "log").glob("*.journal"):
        file.unlink()
    with pytest.raises(CheckpointError, match="the journal has entries"):
        opened(folder)


@pytest.mark.slow
def test_numbers_of_labels_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when ids of elements that are gone stay in memory, or events are about others that took their place."""
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 8)
    given = commands(2, 400)
    for number, command in enumerate(given):
        for one in command if isinstance(command, list) else ():
            for name in ("id", "src", "dst"):  # other ids every now and then
                if isinstance(one.get(name), str):
                    one[name] += f"-{number // 15}"
    again = gf.stream.LiveGraph(lateness=3, state=tmp_path)
    for command in given:
        follow(again, command)
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 1 << 40)
    plain = gf.stream.LiveGraph(lateness=3)
    for command in given:
        follow(plain, command)
    tables = again._engine.encoder.edges, plain._engine.encoder.edges
    assert tables[0].mark[1] or tables[0].count < tables[1].count
    found, wanted = everything(again), everything(plain)
    for name in ("vertices", "edges"):
        found[name], wanted[name] = (sorted(map(repr, one[name])) for one in (found, wanted))
    assert found == wanted
    abandon(again)
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 8)
    assert everything(gf.stream.LiveGraph(lateness=3, state=tmp_path))["topics"] == wanted["topics"]


@pytest.mark.slow
def test_many_edges_that_do_not_last() -> None:
    """Breaks when the space that a live graph takes grows with the ids that it has seen."""
    live = gf.stream.LiveGraph(lateness=1)
    live.submit("DETECT Degree(degree >= 2) WINDOW 10s AS busy")
    sizes = []
    for part in range(20):
        numbers = np.arange(part * 20_000, (part + 1) * 20_000)
        times = np.repeat(numbers, 2) / 1e4 + np.tile([1, 1.1], len(numbers))
        order = np.argsort(times, kind="stable")
        columns = {
            "t": times, "op": np.tile(["+e", "-e"], len(numbers)), "id": np.repeat(numbers, 2),
            "src": np.repeat(numbers % 50_000 + part, 2), "dst": np.repeat(numbers, 2),
        }  # fmt: skip
        live.feed(pa.table({name: column[order] for name, column in columns.items()}))
        live.feed([{"t": times.max(), "op": "-v", "id": int(one)} for one in numbers[:10]])
        sizes.append(live._engine.encoder.edges.capacity)
    assert live.counts["late"] < 500
    assert sizes[-1] == sizes[8] < 400_000


def changed_nodes(node: Any, rng: random.Random) -> Any:
    """Change one part of a description at random."""
    if isinstance(node, list) and node and rng.random() < 0.9:
        at = rng.randrange(len(node))
        return [*node[:at], changed_nodes(node[at], rng), *node[at + 1 :]]
    return rng.choice(
        [
            None, -1, 1 << 62, 0.5, "x", [], ["a", 0], ["a", 10**9], ["n", "os:system", ["ls"]], ["l", ["v", []]],
            ["a", 0, "<i8", [1 << 60]], ["n", "goffish.streaming.graphs.live:LiveGraph", []],
        ]
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::goffish.errors.GoffishWarning")
@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_files_that_were_made_to_harm(filled: tuple[Path, dict[str, Any]], tmp_path: Path, count: int) -> None:
    """Breaks when a checkpoint with another content, but the right checksum, ends in another error than one line."""
    rng = random.Random(3)
    refused = 0
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(filled[0], folder)
        for one in checkpoints(folder):
            with pa.ipc.open_stream(one.path.read_bytes()) as stream:
                tree, batches = json.loads(stream.schema.metadata[b"tree"]), list(stream)
            schema = stream.schema.with_metadata({"tree": json.dumps(changed_nodes(tree, rng))})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema) as made:
                for batch in batches:
                    made.write_batch(batch.cast(schema))
            data = sink.getvalue().to_pybytes()
            one.path.write_bytes(data)
            described = json.loads(one.path.with_suffix(".json").read_text())
            described |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            one.path.with_suffix(".json").write_text(json.dumps(described))
        before = len(checkpoints(folder))
        try:
            opened(folder)
        except (CheckpointError, InputError) as error:
            assert "\n" not in str(error)
            refused += 1
        refused += len(checkpoints(folder)) < before
        shutil.rmtree(folder)
    assert refused > count / 2
    deep: Any = []
    for _ in range(500):
        deep = ["t", [deep]]
    for node in (deep, ["a", 0, "<i8", [1 << 60]], ["cn", "os:stat_result", 1, []], ["n", "os:stat_result", []]):
        with pytest.raises(ValueError, match=r"nested|unknown|reshape|element"):
            trees._Reader([np.zeros(3)]).value(node)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Breaks when a file in the way ends in a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="state: is a file; name a folder"):
        gf.stream.LiveGraph(state=tmp_path / "file" / "state")


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    """Breaks when records that are not in the log are applied, or a query is lost without an error."""
    code = f"""
import resource, signal
import goffish as gf
from goffish.errors import JobError

live = gf.stream.LiveGraph(lateness=0, state={str(tmp_path / "state")!r})
live.submit("DETECT Match(vertex:{{}}) AS first")
live.feed([{{"t": 1, "op": "+v", "id": "a"}}])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
many = [{{"t": 2, "op": "+v", "id": f"v{{n}}"}} for n in range(1000)]
for work in (lambda: live.feed(many), live.checkpoint):
    try:
        work()
    except JobError as error:
        print(error)
print(live.counts["applied"], live.num_vertices)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
live.feed(many[:1])
live.feed([{{"t": 3, "op": "+v", "id": "b"}}])
print(live.counts["applied"], live.events("first").num_rows)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
for work in (lambda: live.submit("DETECT Match(edge:{{}}) AS second"), lambda: live.feed(many)):
    try:
        work()
    except JobError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    assert lines[0].endswith("the journal cannot be written (File too large); the records were not taken"), ended.stderr
    assert lines[1].endswith("a checkpoint cannot be written (File too large); all records are in the log")
    assert lines[2:4] == ["1 1", "3 3"]
    assert lines[4].endswith("the journal cannot be written (File too large)")
    assert lines[5] == "the live graph could not write to its log; make a new one"
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "state")
    assert live.counts["applied"] == 3 and live.topics == ["first"] and live.events("first").num_rows == 3
    live.close()
    with pytest.raises(JobError, match="the live graph is closed; make a new one"):
        live.feed([])
        live.feed([{"t": 5, "op": "+v", "id": "c"}])
    reader = gf.stream.LiveGraph.reading(tmp_path / "state")
    with pytest.raises(JobError, match="the live graph is for reading only"):
        reader.end()


WALL = "DETECT Match(vertex:{}) FOR 20h WITH (clock = wall) AS w; DETECT Reach(source:{}, sink:{id = p.*}) AS r"


class Clock:
    """Time that passes when a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000.0
        monkeypatch.setattr(live_module.time, "time", lambda: self.now)
        monkeypatch.setattr(live_module.time, "time_ns", lambda: int(self.now) * 10**9)


def reasons(live: gf.stream.LiveGraph, topic: str) -> list[str]:
    return [one for one in live.events(topic)["reason"].to_pylist() if one is not None]


def test_a_query_ends_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when event time ends it, the deadline is lost with the process, or another one does not follow."""
    clock = Clock(monkeypatch)
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
    live.submit(WALL.replace("; ", "; DETECT Component() AS p; "))
    live.feed([{"t": 1, "op": "+e", "src": "a", "dst": "b"}, {"t": 90 * 3600, "op": "+v", "id": "c"}])
    assert len(live.answers("w")) == 3 and not reasons(live, "w")
    abandon(live)
    clock.now += 20 * 3600 - 1
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
    live.feed([{"t": 90 * 3600 + 1, "op": "+v", "id": "d"}])
    live.checkpoint()
    abandon(live)
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
    clock.now += 1
    live.feed([{"t": 90 * 3600 + 2, "op": "+v", "id": "e"}])
    assert reasons(live, "w") == ["expired"] and not reasons(live, "r")
    assert live.events("w")["id"].to_pylist() == ["a", "b", "c", "d", None]
    with pytest.raises(InputError, match="no such query runs"):
        live.cancel("w")
    seen, read = everything(live), gf.stream.LiveGraph.reading(tmp_path / "s")
    assert everything(read)["topics"] == seen["topics"]
    abandon(live)
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
    assert everything(live) == seen
    live.close()
    assert {one["result"] for one in verify(tmp_path / "s")} == {"same"}


def test_a_query_ends_by_the_clock_without_records(tmp_path: Path) -> None:
    """Breaks when nothing ends a query as no records are fed, or a cancelled one is ended again."""
    with gf.stream.LiveGraph(lateness=0, state=tmp_path / "s") as live:
        calls: list[None] = []
        live.after_deadlines(lambda: calls.append(None))
        live.submit("DETECT Match(vertex:{}) FOR 60ms WITH (clock = wall) AS v")
        live.cancel("v")
        live.submit("DETECT Match(vertex:{}) FOR 50ms WITH (clock = wall) AS w")
        with live.lock:
            assert live.lock.wait_for(lambda: bool(reasons(live, "w")), 60)
        assert (reasons(live, "w"), reasons(live, "v"), live.topics) == (["expired"], ["cancelled"], ["v", "w"])
        assert calls == [None]
