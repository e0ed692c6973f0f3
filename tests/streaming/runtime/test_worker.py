"""Flows on several workers in virtual time: results equal those of plain Python, whatever fails when."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.checkpoints import CheckpointFolder
from goffish.streaming.ring.ranges import CIRCLE
from goffish.streaming.ring.view import Member, MemoryRegistry, View
from goffish.streaming.runtime.plan import Plan
from goffish.streaming.runtime.worker import Begin, Worker
from goffish.streaming.sources import Files
from tests.streaming.runtime.simulation import Cluster

few = pytest.param((0,), id="1 seed")
many = pytest.param(range(1, 13), marks=(pytest.mark.slow, pytest.mark.timeout(1800)), id="many seeds")
FILES, RECORDS, EARLY = 4, 400, 8.0


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Files of events, each ordered by time up to two seconds."""
    folder = tmp_path_factory.mktemp("events")
    rng = random.Random(7)
    rows = []
    for number in range(FILES):
        mine = [
            {"at": i / 10 + rng.random() * 2, "user": f"u{rng.randrange(40)}", "n": rng.randrange(10)}
            for i in range(RECORDS)
        ]
        rows += mine
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    return folder, rows


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*.jsonl")) for line in file.read_text().splitlines()]


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def totals(flow: gf.stream.Flow, source: Path, target: Path) -> None:
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    summed = events.map(lambda row: row | {"n": row["n"] * 2}, name="double").key_by("user")
    summed.reduce(lambda total, row: total + row["n"], initial=0, name="total").sink(gf.stream.write_json_lines(target))


def windows(flow: gf.stream.Flow, source: Path, target: Path) -> None:
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    events.key_by("user").window(gf.stream.tumbling("5s")).sum("n").sink(gf.stream.write_json_lines(target))


def two_stages(flow: gf.stream.Flow, source: Path, target: Path) -> None:
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    sums = events.key_by("user").window(gf.stream.tumbling("5s")).sum("n", name="sums")
    groups = sums.map(lambda row: row | {"group": int(row["user"][1:]) % 3}, name="group").key_by("group")
    groups.window(gf.stream.tumbling("10s")).sum("n").sink(gf.stream.write_json_lines(target))


def hand_over(cluster: Cluster, event: str) -> None:
    """Hand partitions to other workers, again and again; meanwhile, some fail."""
    cluster.run(0.02 + 0.3 * cluster.random.random())
    for _ in range(3):
        cluster.hand_over()
        cluster.run(cluster.now + 0.4 * cluster.random.random())
        if event == "hand over, kill":
            cluster.kill(cluster.random.choice(cluster.alive).number)
            cluster.run(cluster.now + 0.1 * cluster.random.random())
            cluster.hand_over()
            cluster.run(cluster.now + 1.5)
            number = max(cluster.workers) + 1
            cluster.add(number)
            cluster.alive[0].node.give(number, cluster.now)


def fail_here(cluster: Cluster, event: str) -> None:
    """Let workers end that alone can read the sources, some of those that take over, and those that replace them."""
    rng = cluster.random
    cluster.run(0.05 + 0.5 * rng.random())
    first, number = cluster.workers[0], 9
    if event == "here, leave":
        target = cluster.registry.read().clockwise(0, rng.choice((1, -1)))
        assert first.node.give(target, cluster.now, leaves=True)
        while 0 in cluster.registry.read():
            cluster.run(cluster.now + 0.01)
    cluster.kill(0)
    for _ in range(2):
        while not any(worker._unread for worker in cluster.alive):
            cluster.run(cluster.now + 0.005)
        if rng.random() < 0.5:
            cluster.run(cluster.now + 1.5)
            [holder] = [worker for worker in cluster.alive if worker._unread]
            cluster.kill(holder.number)
        cluster.run(cluster.now + 1.5)
        assert any(worker._unread for worker in cluster.alive)
        cluster.here = {number}
        cluster.add(number)
        assert cluster.alive[0].node.give(number, cluster.now)
        while not cluster.workers[number]._partitions:
            cluster.run(cluster.now + 0.005)
        if number == 9:
            cluster.run(cluster.now + 0.05 * rng.random())
            cluster.kill(number)
        number += 1


def run(
    build: Any, source: Path, target: Path, seed: int, event: str, workers: int = 4, varies: bool = False
) -> Cluster:
    flow = gf.stream.Flow("test")
    build(flow, source, target)
    hands, here = event.startswith("hand over"), event.startswith("here")
    with pytest.MonkeyPatch.context() as patch:
        if here:
            patch.setattr(Files, "here", True)
        limit, reads = 2 if hands or here else 6, {0} if here else None
        cluster = Cluster(flow, workers, replication=1 + seed % 2, seed=seed, limit=limit, varies=varies, here=reads)
        if here:
            fail_here(cluster, event)
            assert all(worker.number in (0, 9, 10) or not worker._partitions for worker in cluster.workers.values())
    if hands:
        hand_over(cluster, event)
    elif here:
        pass
    elif event:
        cluster.run(0.05 + 1.2 * cluster.random.random())
        number = cluster.random.randrange(workers)
        if event == "scale out":
            cluster.add(9)
            cluster.workers[number].node.give(9, cluster.now)
        elif event == "load balance":
            node = cluster.workers[number].node
            node.give(node.view.clockwise(number), cluster.now)
        elif event == "take from the next":
            node = cluster.workers[number].node
            token, stop = node.view.token(number), node.view.token(node.view.clockwise(number))
            third = (token + (stop - token) % CIRCLE // 3) % CIRCLE
            assert node.give(node.view.clockwise(number, -1), cluster.now, part=(token, third))
        elif event == "move":
            cluster.add(9)
            assert cluster.workers[number].node.give(9, cluster.now, leaves=True)
        else:
            cluster.kill(number)
        if event == "replace":
            cluster.run(cluster.now + 1.5)
            cluster.add(9)
            cluster.alive[0].node.give(9, cluster.now)
        if event == "kill what joins":
            cluster.run(cluster.now + 1.5)
            cluster.add(9)
            cluster.alive[0].node.give(9, cluster.now)
            cluster.run(cluster.now + 0.5 * cluster.random.random())
            cluster.kill(9)
            cluster.run(cluster.now + 1.5)
            cluster.add(10)
            cluster.alive[-1].node.give(10, cluster.now)
    cluster.finish()
    assert not hands or cluster.registry._handed
    return cluster


EVENTS = pytest.mark.parametrize(
    "event",
    [
        "scale out",
        "hand over, kill",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (
                "",
                "kill",
                "load balance",
                "take from the next",
                "move",
                "replace",
                "kill what joins",
                "hand over",
                "here, kill",
                "here, leave",
            )
        ),
    ],
)


@EVENTS
@pytest.mark.parametrize("seeds", [few, many])
def test_totals(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    source, rows = events
    expected: dict[str, int] = defaultdict(int)
    for row in rows:
        expected[row["user"]] += 2 * row["n"]
    for seed in seeds:
        cluster = run(totals, source, tmp_path / str(seed), seed, event)
        found = [worker.pipeline.instances["total"].state.values for worker in cluster.alive]
        assert sum(map(len, found)) == len(expected)
        assert {key: value for part in found for key, value in part.items()} == expected
        latest: dict[str, int] = {}
        for row in written(tmp_path / str(seed)):
            latest[row["user"]] = max(row["value"], latest.get(row["user"], 0))
        assert latest == expected


def test_sources_that_one_machine_reads(events: Any, tmp_path: Path) -> None:
    """Breaks when a worker of another machine reads them, or their records are lost while none can."""
    test_totals(events, tmp_path, range(1), "here, kill")


@EVENTS
@pytest.mark.parametrize("seeds", [few, many])
@pytest.mark.slow
def test_windows(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    """Each window is written once, with the records of all workers."""
    source, rows = events
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        expected[row["user"], int(row["at"] // 5 * 5)] += row["n"]
    for seed in seeds:
        run(windows, source, tmp_path / str(seed), seed, event)
        lines = written(tmp_path / str(seed))
        assert {(row["user"], seconds(row["window_start"])): row["n"] for row in lines} == expected
        assert len(lines) == len(expected)


@EVENTS
@pytest.mark.parametrize("seeds", [few, many])
def test_two_stages(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    """What one keyed operator sends to the next also counts exactly once."""
    source, rows = events
    expected: dict[tuple[int, int], int] = defaultdict(int)
    for row in rows:
        expected[int(row["user"][1:]) % 3, int(row["at"] // 10 * 10)] += row["n"]
    for seed in seeds:
        run(two_stages, source, tmp_path / str(seed), seed, event)
        lines = written(tmp_path / str(seed))
        assert {(row["group"], seconds(row["window_start"])): row["n"] for row in lines} == expected
        assert len(lines) == len(expected)


@pytest.mark.parametrize("event", ["move", "leave", "kill"])
@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 60), marks=(pytest.mark.slow, pytest.mark.timeout(1800)))]
)
@pytest.mark.slow
def test_positions_move_when_the_sources_have_ended(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    """Breaks when workers finish before windows that end while their positions move, or write them twice."""
    source, rows = events
    expected: dict[tuple[int, int], int] = defaultdict(int)
    for row in rows:
        expected[int(row["user"][1:]) % 3, int(row["at"] // 10 * 10)] += row["n"]
    for seed in seeds:
        flow = gf.stream.Flow("test")
        two_stages(flow, source, tmp_path / str(seed))
        workers = 2 if event == "leave" else 3
        cluster = Cluster(flow, workers, replication=seed % 2, seed=seed, limit=40)
        while any(worker.reading for worker in cluster.alive):
            cluster.run(cluster.now + 0.01)
        cluster.run(cluster.now + 0.3 * cluster.random.random())
        if event == "kill" and seed % 2:
            cluster.kill(1)
        elif event == "leave":
            assert cluster.workers[1].node.give(0, cluster.now, leaves=True)
        else:
            cluster.add(9)
            cluster.workers[1].node.give(9, cluster.now, leaves=True)
        cluster.finish(step=0.001)
        lines = written(tmp_path / str(seed))
        assert {(row["group"], seconds(row["window_start"])): row["n"] for row in lines} == expected
        assert len(lines) == len(expected)


def both(flow: gf.stream.Flow, source: Path, target: Path) -> None:
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    events.sink(gf.stream.write_json_lines(target / "all"), name="all")
    events.key_by("user").count(name="count").sink(gf.stream.write_json_lines(target / "counts"))


@EVENTS
@pytest.mark.parametrize("seeds", [few, many])
@pytest.mark.slow
def test_sinks_without_a_key(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    """Records that are read again, as others may lack them, do not reach such a sink twice."""
    source, rows = events
    for seed in seeds:
        cluster = run(both, source, tmp_path / str(seed), seed, event)
        lines = written(tmp_path / str(seed) / "all")
        assert sorted(lines, key=repr) == sorted(rows, key=repr)
        counted = [worker.pipeline.instances["count"].state for worker in cluster.alive]
        assert sum(len(state.at(None).all_slots()) for state in counted) == 40


def several(flow: gf.stream.Flow, source: Path, target: Path) -> None:
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    events.key_by("user").count(name="count").sink(gf.stream.write_json_lines(target / "counts"))
    parts = events.branch({"odd": lambda row: row["n"] % 2, "even": lambda row: True})
    both = parts["even"].map(dict).union(parts["odd"])
    both.key_by("user").sum("n", name="sum").sink(gf.stream.write_json_lines(target / "sums"))


@pytest.mark.slow
@EVENTS
@pytest.mark.parametrize("seeds", [few, many])
def test_sizes_of_batches_differ_when_records_are_read_again(
    events: Any, tmp_path: Path, seeds: range, event: str
) -> None:
    """The order of records of several branches depends on the sizes of batches."""
    source, rows = events
    counts: dict[str, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["user"]] += 1
        sums[row["user"]] += row["n"]
    for seed in seeds:
        cluster = run(several, source, tmp_path / str(seed), seed, event, varies=True)
        for name, field, expected in (("count", "count0", counts), ("sum", "value0", sums)):
            found = dict[str, int]()
            for worker in cluster.alive:
                part = worker.pipeline.instances[name].state.extract()
                found |= {key: value[field] for key, _, value, _ in part.entries()}
            assert found == expected


@pytest.mark.slow
def test_sources_that_are_idle(events: Any, tmp_path: Path) -> None:
    """Breaks when windows end, and later records are late, because no partition has records now."""
    flow = gf.stream.Flow("test")
    source = gf.stream.read_json_lines(str(events[0]), follow=True)
    rows = flow.source(source, time="at", lateness="2s", idle="1s")
    sums = rows.key_by("user").window(gf.stream.tumbling("5s")).sum("n", name="sums")
    groups = sums.map(lambda row: row | {"group": 0}).key_by("group").window(gf.stream.tumbling("5s"))
    groups.count().sink(gf.stream.write_json_lines(tmp_path / "out"))
    cluster = Cluster(flow, 2)
    cluster.run(20.0)
    ended = sorted(seconds(row["window_start"]) for row in written(tmp_path / "out"))
    assert ended == list(range(0, 35, 5))  # the last records are of about 41 s, of which lateness takes 2


class Turns:
    """Counts how often records of a key come around."""

    def on_value(self, key: str, value: dict[str, Any], state: dict[str, Any], timers: Any, emit: Any) -> None:
        state["turns"] = state.get("turns", 0) + 1
        emit(value | {"n": value["n"] - 1})


def looped(flow: gf.stream.Flow, source: Path, target: Path) -> None:
    """Numbers return without a key until they are less than 6, and then with a key until they are 0."""
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    large, small = flow.loop("large"), flow.loop("small")
    early = events.filter(lambda row: row["at"] < EARLY)
    first = early.union(large, name="all").branch({"large": lambda row: row["n"] > 5, "rest": lambda row: True})
    large.close(first["large"].map(lambda row: row | {"n": row["n"] - 1}, name="less"))
    turned = first["rest"].union(small, name="turn").key_by("user").process(Turns, name="turns")
    parts = turned.branch({"more": lambda row: row["n"] > 0, "done": lambda row: True})
    small.close(parts["more"])
    done = parts["done"].key_by("user").window(gf.stream.tumbling("1h")).count(name="done")
    done.sink(gf.stream.write_json_lines(target))


@EVENTS
@pytest.mark.parametrize("seeds", [few, many])
@pytest.mark.slow
def test_loops(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    """Breaks when a record in a loop is lost or counts twice, or windows end before it has left the loop."""
    source, rows = events
    turns: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    for row in (row for row in rows if row["at"] < EARLY):
        turns[row["user"]] += max(1, min(row["n"], 5))
        counts[row["user"]] += 1
    for seed in seeds:
        cluster = run(looped, source, tmp_path / str(seed), seed, event)
        parts = [worker.pipeline.instances["turns"].state.extract().entries() for worker in cluster.alive]
        assert {key: value for part in parts for key, _, value, _ in part} == turns
        lines = written(tmp_path / str(seed))
        assert {row["user"]: row["count"] for row in lines} == counts
        assert len(lines) == len(counts)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_positions_stay_in_order_while_records_are_repeated(events: Any, tmp_path: Path, seed: int) -> None:
    """Otherwise the next worker that repeats them would send some to sinks without a key a second time."""
    flow = gf.stream.Flow("test")
    both(flow, events[0], tmp_path / "out")
    cluster = Cluster(flow, 3, seed=seed, limit=3, checkpoint_s=0.05)
    cluster.run(0.3)
    cluster.kill(1)
    repeated = False
    for _ in range(200):
        cluster.run(cluster.now + 0.005)
        for worker in cluster.alive:
            for partition in worker._partitions.values():
                records = [place["records"] for place in partition.history]
                assert records == sorted(records)
                repeated |= partition.records < records[-1]
    assert repeated


def test_checkpoints_hold_what_was_taken_over(events: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first checkpoint after a takeover has all keys, also if it would only hold changes."""
    source, rows = events
    flow = gf.stream.Flow("test")
    totals(flow, source, tmp_path / "out")
    monkeypatch.setattr(CheckpointFolder, "whole_is_due", property(lambda folder: folder.latest is None))
    cluster = Cluster(flow, 2, seed=1, folder=tmp_path / "saved")
    cluster.finish()
    cluster.kill(1)
    survivor = cluster.workers[0]
    while not any(event.kind == "takeover" for event in survivor.node.events):
        cluster.run(cluster.now + 0.005)
    serial = survivor.node.serial
    while survivor.node.serial == serial:
        cluster.run(cluster.now + 0.005)
    folder = CheckpointFolder(tmp_path / "saved" / "0", "test", cluster.plan.topology.fingerprint, locked=False)
    saved = {key for name, delta in folder.state() if name == "total" for key, *_ in delta.entries()}
    assert saved == {row["user"] for row in rows}


@pytest.mark.parametrize("whole", [True, False])
def test_checkpoints_hold_what_is_being_given_away(
    events: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """All workers may be killed after a move, before the new owner has made a checkpoint, though the old one has."""
    source, rows = events
    expected: dict[str, int] = defaultdict(int)
    for row in rows:
        expected[row["user"]] += 2 * row["n"]
    flow = gf.stream.Flow("test")
    totals(flow, source, tmp_path / "out")
    monkeypatch.setattr(CheckpointFolder, "whole_is_due", property(lambda folder: whole or folder.latest is None))
    cluster = Cluster(flow, 2, seed=3, folder=tmp_path / "saved")
    cluster.finish()
    giver, target = cluster.workers[0], cluster.workers[1]
    assert giver.node.give(1, cluster.now)
    cluster._post(0)
    while not any(event.kind == "takeover" for event in target.node.events):
        cluster.run(cluster.now + 0.001)
    saved = target.node.serial
    giver.node.follow(cluster.now)
    giver.node.checkpoint_soon(cluster.now)
    giver.tick(cluster.now)
    assert target.node.serial == saved
    view = View(1, (Member(7, 0),), 0)
    registry = MemoryRegistry(view)
    for lane in cluster.plan.lanes:
        registry.claim(lane, 7)
    begin = Begin(tmp_path / "saved", old=(0, 1))
    worker = Worker(cluster.plan, 7, registry, cluster.options, cluster.now, begin)
    assert worker.pipeline.instances["total"].state.values == expected
    # Once the new owner has a checkpoint, the old one drops them.
    cluster.run(cluster.now + 2)
    assert not giver._given


def test_taking_over_a_source_keeps_its_rate() -> None:
    flow = gf.stream.Flow("test")
    ones = flow.source(gf.stream.generate(lambda n: n % 5, rate=100), name="ones")
    ones.key_by(lambda n: n).count().sink(gf.stream.call(lambda row: None))
    cluster = Cluster(flow, 2)
    cluster.run(1)
    cluster.workers[1]._paces["ones"]._begun -= 3600  # as if the worker ran for an hour without this source
    cluster.kill(0)
    while "ones\ngenerated" not in cluster.workers[1]._partitions:
        cluster.run(cluster.now + 0.1)
    before = cluster.workers[1]._partitions["ones\ngenerated"].records
    begun = time.monotonic()
    cluster.run(cluster.now + 2)
    read = cluster.workers[1]._partitions["ones\ngenerated"].records - before
    assert read <= 2 + 100 * (time.monotonic() - begun)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.slow
def test_checkpoints_hold_partitions_that_are_handed_over(
    events: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """All workers may be killed before the new reader has made a checkpoint, though the old one has."""
    flow = gf.stream.Flow("test")
    both(flow, events[0], tmp_path / "out")
    monkeypatch.setattr(CheckpointFolder, "whole_is_due", property(lambda folder: whole or folder.latest is None))
    cluster = Cluster(flow, 2, seed=3, folder=tmp_path / "saved", limit=2)
    cluster.run(0.2)
    giver, target = cluster.workers[0], cluster.workers[1]
    [source] = cluster.plan.sources
    giver.give_partitions(source, 1, 1, cluster.now)
    [lane] = giver._leaving
    while lane not in target._partitions:
        cluster.run(cluster.now + 0.0005)
    read, saved = giver._handed[lane].history[0]["records"], target.node.serial
    giver.node.checkpoint_soon(cluster.now)
    giver.tick(cluster.now)
    assert read and target.node.serial == saved

    def resumed() -> Worker:
        registry = MemoryRegistry(View(1, (Member(7, 0),), 0))
        for one in cluster.plan.lanes:
            registry.claim(one, 7)
        begin = Begin(tmp_path / "saved", old=(0, 1))
        return Worker(cluster.plan, 7, registry, cluster.options, cluster.now, begin)

    assert resumed()._partitions[lane].records == read
    # Once the new reader has a checkpoint, the old one drops the place.
    cluster.run(cluster.now + 2)
    assert not giver._handed
    assert resumed()._partitions[lane].records > read


def test_a_rate_is_not_made_up_for(events: Any, tmp_path: Path) -> None:
    """Breaks when a worker reads as much at once as was due before it had a partition."""
    flow = gf.stream.Flow("test")
    read = flow.source(gf.stream.read_json_lines(str(events[0] / "0.jsonl"), rate=100), name="read")
    read.key_by("user").count(name="count").sink(gf.stream.write_json_lines(tmp_path / "out"))
    cluster = Cluster(flow, 2, seed=1)
    cluster.run(0.3)
    giver, target = cluster.workers[0], cluster.workers[1]
    target._paces["read"]._begun -= 100  # it runs for a while
    giver.give_partitions("read", 1, 1, cluster.now)
    while not target._partitions:
        cluster.run(cluster.now + 0.001)
    assert target._paces["read"].allowed(1000) <= 10


def test_partitions_go_to_members_only(events: Any, tmp_path: Path) -> None:
    """Breaks when a partition is handed to a worker that has failed, and none reads it any more."""
    flow = gf.stream.Flow("test")
    both(flow, events[0], tmp_path / "out")
    cluster = Cluster(flow, 3, seed=1, limit=2)
    cluster.run(0.1)
    [source] = cluster.plan.sources
    before = cluster.workers[0].partitions
    cluster.kill(1)
    cluster.workers[0].give_partitions(source, 1, 9, cluster.now)
    cluster.workers[0].give_partitions(source, 0, 9, cluster.now)
    assert cluster.workers[0].partitions == {source: 0} and cluster.workers[0].handing_over
    cluster.run(cluster.now + 3)
    assert not cluster.workers[0].handing_over
    read = {lane for worker in cluster.alive for lane in worker._partitions}
    assert read == set(cluster.plan.lanes) and before[source] > 0
    cluster.finish()


def test_refused() -> None:
    flow = gf.stream.Flow("late-time")
    stream = flow.source(gf.stream.generate(5)).key_by(lambda n: n % 2).count()
    stream.event_time(lambda row: row[1], name="clock").key_by(lambda row: 1).count().sink(gf.stream.collect())
    with pytest.raises(InputError, match=r"operator clock: set the event time before key_by\(\)"):
        Plan(flow.check())
