"""Operators that run on workers of their own: stages, their arcs of the ring, and what failures and moves change."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.hashing import positions_of
from goffish.streaming.ring.ranges import CIRCLE, EVERYTHING, Ranges
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.plan import Delivery, Plan
from goffish.streaming.runtime.stages import STAGE_BITS, Arc, divided, spread
from tests.commands import ENVIRONMENT, call
from tests.streaming.runtime import simulation
from tests.streaming.runtime.hosts import workers_of

few = pytest.param((0,), id="1 seed")
many = pytest.param(range(1, 13), marks=(pytest.mark.slow, pytest.mark.timeout(1800)), id="many seeds")


def make(source: Path, target: Path, rate: float | None = None) -> gf.stream.Flow:
    flow = gf.stream.Flow("test")
    events = flow.source(gf.stream.read_json_lines(str(source), rate=rate), time="at", lateness="2s")
    parsed = events.map(lambda row: row | {"n": row["n"] * 2}, name="parse")
    copied = parsed.flat_map(lambda row: [row] * (row["n"] % 3), name="copy")
    sums = copied.filter(lambda row: row["n"] < 16, name="small").key_by("user")
    sums.window(gf.stream.tumbling("5s")).sum("n", name="sums").sink(gf.stream.write_json_lines(target))
    return flow


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], int]]:
    """Files of events, and the sums of users and windows."""
    folder, rng = tmp_path_factory.mktemp("events"), random.Random(7)
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for number in range(3):
        lines = []
        for i in range(400):
            row = {"at": i / 10 + rng.random() * 2, "user": f"u{rng.randrange(40)}", "n": rng.randrange(10)}
            lines.append(json.dumps(row) + "\n")
            n = row["n"] * 2
            if n < 16 and n % 3:
                expected[row["user"], int(row["at"] // 5 * 5)] += n * (n % 3)
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder, dict(expected)


def written(folder: Path) -> list[tuple[tuple[str, int], int]]:
    files = sorted(folder.glob("part-*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    start = len("1970-01-01T00:")
    return [
        ((row["user"], 60 * int(row["window_start"][start:][:2]) + int(row["window_start"][start:][3:5])), row["n"])
        for row in rows
    ]


def test_stages_of_operators() -> None:
    """A stage begins with an operator that is named; the channel to it has a key."""
    flow = make(Path("in"), Path("out"))
    topology = divided(flow.check(), ["copy", "sums"])
    parts = {one.name: topology.stages[one.name] for one in topology.operators}
    assert {name: parts[name] for name in ("parse", "copy", "small", "sums")} == {
        "parse": 0, "copy": 1, "small": 1, "sums": 2
    }  # fmt: skip
    keyed = {channel.target for channel in topology.channels if channel.key is not None}
    assert keyed == {"copy", "sums"}
    assert divided(topology, ["copy", "sums"]) == topology
    assert Plan(topology).arcs["small"] == Arc(1, STAGE_BITS)


def test_too_many_stages() -> None:
    with pytest.raises(InputError, match="64 operators with separate workers; accepted are at most 63"):
        divided(make(Path("in"), Path("out")).check(), map(str, range(64)))


def test_arcs() -> None:
    """Positions of keys on an arc keep their order, and ranges of the ring lead back to them."""
    positions = positions_of([f"key {n}" for n in range(2000)])
    arc = Arc(5, STAGE_BITS)
    outer = arc.outer(positions)
    assert arc.ranges.contains(outer).all()
    half = Ranges.arc((arc.start + arc.stop) // 2, CIRCLE // 2)
    np.testing.assert_array_equal(half.contains(outer), arc.inner(half).contains(positions))
    assert arc.inner(EVERYTHING) == EVERYTHING
    assert not arc.inner(Arc(6, STAGE_BITS).ranges)


def test_records_are_spread_evenly() -> None:
    """Also a few records, over any number of workers."""
    for workers in (2, 3, 7):
        counts = np.bincount(spread(np.arange(50)) // np.uint64(CIRCLE // workers + 1), minlength=workers)
        assert counts.max() - counts.min() <= 4


@pytest.mark.parametrize("event", ["", "kill", "scale out", "scale in"])
@pytest.mark.parametrize("seeds", [few, many])
def test_nothing_is_lost_or_counted_twice(events: Any, tmp_path: Path, seeds: range, event: str) -> None:
    """Workers of one stage take over from those of another, and give the positions back."""
    source, expected = events
    for seed in seeds:
        flow = make(source, tmp_path / str(seed))
        workers = {"copy": 2, "sums": 3}
        cluster = simulation.Cluster(flow, workers, replication=1 + seed % 2, seed=seed, limit=6, varies=True)
        cluster.run(0.1 + 0.8 * cluster.random.random())
        stage = cluster.random.choice(list(cluster.staff))
        if event == "kill":
            at = cluster.random.randrange(len(cluster.staff[stage]))
            cluster.kill(cluster.staff[stage][at])
            cluster.run(cluster.now + cluster.random.random())
            cluster.add(9)
            cluster.staff[stage][at] = 9
        elif event == "scale out":
            cluster.add(9)
            cluster.staff[stage].insert(cluster.random.randrange(len(cluster.staff[stage]) + 1), 9)
        elif event == "scale in":
            del cluster.staff[1][cluster.random.randrange(2)]
        cluster.arrange()
        cluster.finish()
        lines = written(tmp_path / str(seed))
        assert dict(lines) == expected
        assert len(lines) == len(expected)
        assert {member.node: member.token for member in cluster.registry.read().members} == cluster.layout
        for stage, numbers in cluster.staff.items():
            for number in numbers:
                counts = cluster.workers[number].counts
                assert not cluster.workers[number].pipeline.instances["sums"].state.extract() or stage == 2
                assert counts["small"].received or stage != 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2))])
def test_at_least_once(events: Any, tmp_path: Path, seed: int) -> None:
    """Without waiting for checkpoints; after a failure, records may count again, and none is lost."""
    source, expected = events
    for kill in (False, True):
        target = tmp_path / f"{kill}"
        cluster = simulation.Cluster(
            make(source, target), {"copy": 2, "sums": 2}, seed=seed, limit=6, delivery=Delivery.AT_LEAST_ONCE
        )
        cluster.run(0.3)
        assert sum(cluster.workers[number].counts["sums"].received for number in cluster.staff[2]) > 0
        if kill:
            cluster.kill(cluster.staff[1][0])
        cluster.finish()
        found = dict(written(target))
        assert found.keys() == expected.keys()
        assert all(found[key] >= expected[key] for key in expected) if kill else found == expected


@pytest.mark.slow
def test_processes(events: Any, tmp_path: Path) -> None:
    """Operators on processes of their own: one is killed, and one is added while the flow runs."""
    source, expected = events
    flow = make(source, tmp_path / "out", rate=600)
    cluster = Cluster(flow.check(), {"copy": 1, "sums": 2}, checkpoint_s=0.2)

    def poll_until(done: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, cluster.metrics()
            cluster.poll()
            assert 0 not in cluster.pids.values()  # of workers that have not started: a signal to 0 is for the caller

    try:
        assert len(cluster.pids) == 4
        poll_until(lambda: cluster.metrics()["sums"].received > 50)
        cluster.scale({"copy": 2})
        poll_until(lambda: len(cluster.metrics().workers) == 5 and cluster.arranged)
        with pytest.raises(InputError, match=r"workers = 3: operators have separate workers; give .* copy, sums"):
            cluster.scale(3)
        with pytest.raises(InputError, match="'parse' has no separate workers; operators that have some: copy, sums"):
            cluster.scale({"parse": 2})
        number, pid = max(cluster.pids.items())
        os.kill(pid, signal.SIGKILL)
        poll_until(lambda: cluster.failures == 1 and cluster.arranged)
        assert number not in cluster.pids and len(cluster.pids) == 5
        cluster.run()
    finally:
        cluster.close()
    lines = written(tmp_path / "out")
    assert dict(lines) == expected
    assert len(lines) == len(expected)


FLOW = """
import goffish as gf

flow = gf.stream.Flow("test")
events = flow.source(gf.stream.read_json_lines({source!r}, rate={rate}), time="at", lateness="2s")
parsed = events.map(lambda row: row | {{"n": row["n"] * 2}}, name="parse")
copied = parsed.flat_map(lambda row: [row] * (row["n"] % 3), name="copy")
sums = copied.filter(lambda row: row["n"] < 16, name="small").key_by("user")
sums.window(gf.stream.tumbling("5s")).sum("n", name="sums").sink(gf.stream.write_json_lines({target!r}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_all_processes_are_killed(events: Any, tmp_path: Path, seed: int) -> None:
    """A run with separate workers for the same operators continues, with any number of them."""
    source, expected = events
    paths = {"source": str(source), "target": str(tmp_path / "out")}
    (tmp_path / "flow.py").write_text(FLOW.format(rate=40, **paths))
    rng, run = random.Random(seed), ("stream", "run", "flow.py", "--checkpoint", "saved", "--every", "0.1", "--json")
    for first, workers in ((0, "copy=1,sums=2"), (4, "copy=2,sums=1")):
        command = [sys.executable, "-m", "goffish", *run, "--workers", workers]
        process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=-1, stderr=-1, text=True)
        saved = [tmp_path / "saved" / "workers" / str(first + one) / "checkpoint.json" for one in range(4)]
        while not all(file.exists() for file in saved):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        time.sleep(rng.uniform(0.2, 1.5))
        pids = workers_of(process.pid)
        assert len(pids) == 4
        for pid in (process.pid, *pids):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    (tmp_path / "flow.py").write_text(FLOW.format(rate=5000, **paths))
    for workers in ("sums=1", "2"):
        ended = call(*run, "--workers", workers, cwd=tmp_path)
        assert ended.code == 2 and "same keys, windows and separate workers (copy, sums had some)" in ended.err
    ended = call(*run, "--workers", "copy=1,sums=1", cwd=tmp_path)
    assert ended.json["stopped"] == "finished"
    lines = written(tmp_path / "out")
    assert dict(lines) == expected
    assert len(lines) == len(expected)


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ({"nothing": 1}, "no operator 'nothing'; choose one of"),
        ({"copy": 0}, "workers: copy = 0: must be 1 to 256"),
        ({"copy": 200, "sums": 57}, "workers: 257 in all; 1 to 256 are accepted"),
        ({}, "workers: 0 in all"),
    ],
)
def test_refused(events: Any, tmp_path: Path, workers: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Cluster(make(events[0], tmp_path / "out").check(), workers)


def slow(number: int) -> int:
    time.sleep(0.002)
    return number


@pytest.mark.slow
@pytest.mark.parametrize(
    "delivery", [Delivery.EXACTLY_ONCE, pytest.param(Delivery.AT_LEAST_ONCE, marks=pytest.mark.slow)]
)
def test_sources_wait_for_a_slow_operator(delivery: Delivery) -> None:
    """What waits between operators is bounded, although the operator before the slow one is fast."""
    flow = gf.stream.Flow("slow")
    numbers = flow.source(gf.stream.generate(), name="numbers").map(abs, name="fast")
    numbers.map(slow, name="slow").sink(gf.stream.call(abs))
    cluster = Cluster(flow.check(), {"fast": 1, "slow": 1}, delivery=delivery, checkpoint_s=0.2)
    waiting = []
    try:
        end = time.monotonic() + 60
        while len(waiting) < 40 and time.monotonic() < end:
            cluster.poll()
            received = {one.operator: one.received for one in cluster.metrics().operators}
            if received["slow"]:
                waiting.append(received["numbers"] - received["slow"])
                time.sleep(0.1)
    finally:
        cluster.close()
    assert 0 < waiting[-1] < 3_000_000
    assert waiting[-1] < 1.05 * waiting[-10] + 50_000, waiting
