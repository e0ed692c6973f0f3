"""Updates of flows on several workers in virtual time: nothing is lost or mixed, whatever fails when."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.streaming.sources import Files
from goffish.streaming.updates.versions import PartialWindow, Strategy
from tests.streaming.runtime.simulation import Cluster

few = pytest.param(None, id="1 seed")
many = pytest.param(range(12), marks=(pytest.mark.slow, pytest.mark.timeout(1800)), id="many seeds")
FILES, RECORDS = 4, 300
SAFE = (Strategy.MVC, Strategy.PVC, Strategy.NCH)
EVENTS = ("", "kill", "scale out", "hand over")


def quick_seeds(strategy: Strategy, event: str) -> list[int]:
    """The seeds of a quick run: with each strategy, and with each event, states have one copy once, and two once."""
    if event not in EVENTS:
        return [0, 1]
    return [(list(Strategy).index(strategy) + EVENTS.index(event)) % 2]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[tuple[int, int]]]:
    """Files of events, and the number of events of each group in ten seconds."""
    folder = tmp_path_factory.mktemp("events")
    rng = random.Random(7)
    expected: Counter[tuple[int, int]] = Counter()
    for number in range(FILES):
        lines = []
        for i in range(RECORDS):
            user, at = rng.randrange(40), i / 10 + rng.random() * 2
            expected[user % 3, int(at // 10 * 10)] += 1
            lines.append(json.dumps({"at": at, "user": user}) + "\n")
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder, expected


def make(source: Path, target: Path, version: int, *, first: bool = True, second: bool = True) -> gf.stream.Flow:
    """Return a flow whose results name the versions of two operators that their records went through."""
    a, b = version if first else 1, version if second else 1
    flow = gf.stream.Flow("test")
    events = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    tagged = events.map(lambda row: row | {"a1": int(a == 1), "a2": int(a == 2)}, name="first")
    sums = tagged.key_by("user").window(gf.stream.tumbling("5s")).aggregate(
        a1=("sum", "a1"), a2=("sum", "a2"), name="sums"
    )  # fmt: skip

    def group(row: dict[str, Any]) -> dict[str, Any]:
        count = row["a1"] + row["a2"]
        return row | {"group": row["user"] % 3, "b1": count if b == 1 else 0, "b2": count if b == 2 else 0}

    groups = sums.map(group, name="second").key_by("group").window(gf.stream.tumbling("10s")).aggregate(
        name="groups", **{name: ("sum", name) for name in ("a1", "a2", "b1", "b2")}
    )  # fmt: skip
    groups.sink(gf.stream.write_json_lines(target))
    return flow


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*.jsonl")) for line in file.read_text().splitlines()]


def total(rows: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for row in rows:
        found[row["group"], round(datetime.fromisoformat(row["window_start"]).timestamp())] += row["a1"] + row["a2"]
    return found


def mixed(row: dict[str, Any]) -> bool:
    return bool((row["a1"] or row["b1"]) and (row["a2"] or row["b2"]))


def run(
    source: Path, target: Path, seed: int, strategy: Strategy, event: str = "",
    partial: PartialWindow = PartialWindow.EMIT, **changed: bool,
) -> Cluster:  # fmt: skip
    limit = 2 if event == "hand over" else 6
    reads = {0} if event == "here" else None
    cluster = Cluster(make(source, target, 1), 3, replication=1 + seed % 2, seed=seed, limit=limit, here=reads)
    cluster.run(0.2 + 0.8 * cluster.random.random())
    if event == "hand over":  # some partitions stay with their workers, and some are on their way to others
        cluster.hand_over()
        cluster.run(cluster.now + 0.4 * cluster.random.random())
    cluster.update(make(source, target, 2, **changed), strategy, partial)
    if event:
        cluster.run(cluster.now + 0.3 * cluster.random.random())
        if event == "kill":
            cluster.kill(cluster.random.randrange(3))
        elif event == "here":  # the only worker that can read the source
            cluster.kill(0)
            while not any(worker._unread for worker in cluster.alive):
                cluster.run(cluster.now + 0.01)
            cluster.run(cluster.now + 0.5 * cluster.random.random())
            assert cluster.rollout is not None and not cluster.rollout.ending
            cluster.here = {9}
            cluster.add(9)
            while cluster.workers[9].newest < cluster.rollout.plan.number:
                cluster.run(cluster.now + 0.005)
            cluster.alive[0].node.give(9, cluster.now)
        elif event == "scale out":
            cluster.add(9)
            cluster.run(cluster.now + 0.1)
            cluster.workers[cluster.random.randrange(3)].node.give(9, cluster.now)
    cluster.finish()
    return cluster


@pytest.mark.parametrize(
    "event", ["kill", "hand over", *(pytest.param(one, marks=pytest.mark.slow) for one in ("", "scale out"))]
)
@pytest.mark.parametrize("strategy", SAFE)
@pytest.mark.parametrize("seeds", [few, many])
def test_nothing_is_lost_or_mixed(
    events: Any, tmp_path: Path, seeds: range | None, strategy: Strategy, event: str
) -> None:
    source, expected = events
    versions: Counter[str] = Counter()
    for seed in seeds or quick_seeds(strategy, event):
        cluster = run(source, tmp_path / str(seed), seed, strategy, event)
        rows = written(tmp_path / str(seed))
        assert total(rows) == expected
        assert not any(mixed(row) for row in rows)
        assert sum(worker.lost for worker in cluster.workers.values()) == 0
        assert cluster.rollout is not None and cluster.rollout.state == "complete"
        versions.update({"old": sum(row["a1"] for row in rows), "new": sum(row["a2"] for row in rows)})
    assert versions["old"] > 0 and versions["new"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SAFE)
@pytest.mark.parametrize("seeds", [pytest.param(range(2), id="2 seeds"), many])
def test_sources_that_one_machine_reads(
    events: Any, tmp_path: Path, seeds: range, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when an update waits forever for what no worker can read, or another worker reads it."""
    monkeypatch.setattr(Files, "here", True)
    test_nothing_is_lost_or_mixed(events, tmp_path, seeds, strategy, "here")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [Strategy.MVC, Strategy.NCH])
@pytest.mark.parametrize("seeds", [pytest.param(range(3), id="3 seeds"), many])
def test_versions_send_different_numbers_of_records(
    events: Any, tmp_path: Path, seeds: range, strategy: Strategy
) -> None:
    """Records that are read again after a failure are processed by the version that has processed them before."""
    source, expected = events

    def flow(target: Path, version: int) -> gf.stream.Flow:
        flow = gf.stream.Flow("test")
        read = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
        parts = read.flat_map(lambda row: [row | {"part": 2 / version}] * version, name="parts")
        parts.key_by("user").sum("part", name="sum").sink(gf.stream.write_json_lines(target))
        return flow

    for seed in seeds:
        cluster = Cluster(flow(tmp_path / str(seed), 1), 3, seed=seed, limit=6, varies=True)
        cluster.run(0.2 + 0.8 * cluster.random.random())
        cluster.update(flow(tmp_path / str(seed), 2), strategy)
        cluster.run(cluster.now + 0.25 * cluster.random.random())
        cluster.kill(cluster.random.randrange(3))
        cluster.finish()
        states = [worker.pipeline.instances["sum"].state for worker in cluster.alive]
        found = sum(value["value0"] for one in states for _, _, value, _ in one.extract().entries())
        assert found == 2 * sum(expected.values())


@pytest.mark.slow
def test_hti_mixes_and_loses_nothing(events: Any, tmp_path: Path) -> None:
    source, expected = events
    found = 0
    for seed in range(3):
        run(source, tmp_path / str(seed), seed, Strategy.HTI)
        rows = written(tmp_path / str(seed))
        assert total(rows) == expected
        assert len(rows) == len(expected)  # windows continue
        found += sum(mixed(row) for row in rows)
    assert found


@pytest.mark.slow
def test_ncl_loses_and_does_not_mix(events: Any, tmp_path: Path) -> None:
    source, expected = events
    lost = 0
    for seed in range(3):
        cluster = run(source, tmp_path / str(seed), seed, Strategy.NCL)
        rows = written(tmp_path / str(seed))
        assert not any(mixed(row) for row in rows)
        assert sum(total(rows).values()) <= sum(expected.values())
        lost += sum(worker.lost for worker in cluster.workers.values())
    assert lost


@pytest.mark.parametrize("partial", PartialWindow)
@pytest.mark.slow
def test_partial_windows(events: Any, tmp_path: Path, partial: PartialWindow) -> None:
    source, expected = events
    cluster = run(source, tmp_path, 1, Strategy.MVC, partial=partial)
    rows = written(tmp_path)
    lost = sum(worker.lost for worker in cluster.workers.values())
    match partial:
        case PartialWindow.EMIT:
            assert len(rows) > len(expected)
            assert total(rows) == expected
        case PartialWindow.DROP:
            assert lost
            assert sum(total(rows).values()) < sum(expected.values())
        case PartialWindow.MERGE:
            assert len(rows) == len(expected)
            assert total(rows) == expected
            assert any(mixed(row) for row in rows)
    assert (lost > 0) == (partial == PartialWindow.DROP)


class Each:
    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Any) -> None:
        emit(value)


@pytest.mark.slow
def test_in_flight_records_of_common_paths_move_with_pvc(events: Any, tmp_path: Path) -> None:
    """Records that were read before the update take the new version where it begins, and with MVC the old one."""
    source, expected = events

    def flow(target: Path, version: int) -> gf.stream.Flow:
        flow = gf.stream.Flow("test")
        users = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s").key_by("user")
        each = users.process(Each, name="each")
        each.map(lambda row: row | {"version": version}, name="last").sink(gf.stream.write_json_lines(target))
        return flow

    counts: Counter[Strategy] = Counter()
    for strategy in (Strategy.MVC, Strategy.PVC):
        for seed in range(3):
            target = tmp_path / f"{strategy}-{seed}"
            cluster = Cluster(flow(target, 1), 3, seed=seed, limit=3)
            cluster.run(0.2)
            cluster.update(flow(target, 2), strategy)
            cluster.finish()
            rows = written(target)
            assert len(rows) == sum(expected.values())
            counts[strategy] += sum(row["version"] == 2 for row in rows)
    assert counts[Strategy.PVC] > counts[Strategy.MVC] > 0


def test_operators_come_and_go(events: Any, tmp_path: Path) -> None:
    """A branch is added while the flow runs, and removed again."""
    source, expected = events

    def wider() -> gf.stream.Flow:
        flow = gf.stream.Flow("test")
        read = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
        users = read.key_by("user")
        users.window(gf.stream.tumbling("10s")).count(name="counts").sink(
            gf.stream.write_json_lines(tmp_path / "counts")
        )
        late = read.filter(lambda row: row["user"] < 5, name="few").key_by("user")
        late.reduce(lambda total, row: total + 1, initial=0, name="each").sink(
            gf.stream.write_json_lines(tmp_path / "few")
        )
        return flow

    def narrow() -> gf.stream.Flow:
        flow = gf.stream.Flow("test")
        users = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s").key_by("user")
        users.window(gf.stream.tumbling("10s")).count(name="counts").sink(
            gf.stream.write_json_lines(tmp_path / "counts")
        )
        return flow

    cluster = Cluster(narrow(), 3, seed=4, limit=6)
    cluster.run(0.4)
    cluster.update(wider(), Strategy.MVC)
    while not cluster.rollout.ending:
        cluster.run(cluster.now + 0.01)
    cluster.run(cluster.now + 0.2)
    cluster.update(narrow(), Strategy.PVC)
    cluster.finish()
    assert cluster.rollout.state == "complete"
    assert len(cluster.workers[0].pipelines) == 1
    assert sum(row["count"] for row in written(tmp_path / "counts")) == sum(expected.values())
    few = written(tmp_path / "few")
    assert len(few) > 0
    assert all(row["user"] < 5 for row in few)


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy.PVC,
        pytest.param(Strategy.HTI, marks=pytest.mark.slow),
        pytest.param(Strategy.MVC, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_another_key(events: Any, tmp_path: Path, strategy: Strategy) -> None:
    """Records in flight are on the workers of the old key: the new version must not count them there."""
    source, expected = events

    def flow(target: Path, key: str) -> gf.stream.Flow:
        flow = gf.stream.Flow("test")
        read = flow.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
        tens = read.map(lambda row: row | {"ten": row["user"] // 10}, name="tens").key_by(key)
        tens.window(gf.stream.tumbling("10s")).count(name="counts").sink(gf.stream.write_json_lines(target))
        return flow

    for seed in range(3):
        target = tmp_path / str(seed)
        cluster = Cluster(flow(target, "user"), 3, seed=seed, limit=3)
        cluster.run(0.3)
        cluster.update(flow(target, "ten"), strategy)
        cluster.finish()
        rows = written(target)
        new = [(row["ten"], row["window_start"]) for row in rows if "ten" in row]
        assert len(new) == len(set(new)) > 0
        assert sum(row["count"] for row in rows) == sum(expected.values())
