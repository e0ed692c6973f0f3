"""Updates of flows on real worker processes, while they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.updates.plan import plan_update
from goffish.streaming.updates.versions import PartialWindow, Strategy
from tests.streaming.runtime.test_cluster import make_events, sums_of

RECORDS = 5000


def make(folder: Path, factor: int, rate: float = 2500) -> gf.stream.Flow:
    flow = gf.stream.Flow("groups")
    events = flow.source(gf.stream.read_json_lines(str(folder / "in"), rate=rate), time="at", lateness="2s")
    sums = events.key_by("user").window(gf.stream.tumbling("5s")).sum("n", name="sums")
    groups = sums.map(lambda row: row | {"group": int(row["user"][1:]) % 3, "n": row["n"] * factor}, name="group")
    totals = groups.key_by("group").window(gf.stream.tumbling("10s")).sum("n", name="groups")
    totals.sink(gf.stream.write_json_lines(folder / "out"))
    return flow


def finish(cluster: Cluster, *, kill: bool = False) -> None:
    """Wait until the flow has ended; kill a worker while it is updated."""
    end = time.monotonic() + 60
    while not cluster.finished:
        cluster.poll()
        if kill and cluster.updating:
            os.kill(cluster.pids[1], signal.SIGKILL)
            kill = False
        assert time.monotonic() < end
    assert not kill


@pytest.mark.parametrize("kill", [False, True])
def test_an_update(tmp_path: Path, kill: bool) -> None:
    expected = make_events(tmp_path / "in", RECORDS)
    cluster = Cluster(make(tmp_path, 1).check(), 2, checkpoint_s=0.2)
    try:
        while cluster.metrics().records < RECORDS // 2:
            cluster.poll()
        cluster.update(make(tmp_path, 1_000_000).check(), Strategy.MVC, PartialWindow.MERGE)
        with pytest.raises(InputError, match="an update is in progress"):
            cluster.update(make(tmp_path, 3).check())
        finish(cluster, kill=kill)
        (report,) = cluster.updates
        version = cluster.topology.operator("group")
    finally:
        cluster.close()
    assert (report.state, report.lost, report.changes) == ("complete", 0, "changed group")
    assert report.refresh_s is not None and report.mixes
    assert version.function is not None and version.function({"user": "u1", "n": 1})["n"] == 1_000_000
    found = sums_of(tmp_path / "out")
    assert {key: value % 1_000_000 + value // 1_000_000 for key, value in found.items()} == expected
    assert any(value >= 1_000_000 for value in found.values())


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no model")

    def on_value(self, key: str, value: object, state: object, timers: object, emit: object) -> None:
        """Not called."""


def with_model(folder: Path) -> gf.stream.Flow:
    flow = gf.stream.Flow("groups")
    events = flow.source(gf.stream.read_json_lines(str(folder / "in"), rate=2000), time="at", lateness="2s")
    events.key_by("user").process(Broken, name="model").sink(gf.stream.write_json_lines(folder / "model"))
    return flow


def test_a_version_that_does_not_become_ready(tmp_path: Path) -> None:
    """The flow goes on as it was, and can be updated again."""
    expected = make_events(tmp_path / "in", 2000)
    cluster = Cluster(make(tmp_path, 1, 2000).check(), 2, checkpoint_s=0.2)
    try:
        cluster.update(with_model(tmp_path).check())
        while cluster.updating:
            cluster.poll()
        cluster.update(make(tmp_path, 1_000_000, 2000).check(), Strategy.HTI)
        finish(cluster)
        first, second = cluster.updates
    finally:
        cluster.close()
    assert first.state == "aborted"
    assert first.reason.startswith("worker ") and "no model" in first.reason
    assert second.state == "complete"
    found = sums_of(tmp_path / "out")
    assert {key: value % 1_000_000 + value // 1_000_000 for key, value in found.items()} == expected


def test_refused(tmp_path: Path) -> None:
    make_events(tmp_path / "in", 10)
    old = make(tmp_path, 1).check()
    with pytest.raises(InputError, match="no operator and no channel differs"):
        plan_update(1, old, make(tmp_path, 1).check())
    with pytest.raises(InputError, match="operator source: sources, event times and loops cannot be updated"):
        plan_update(1, old, make(tmp_path, 1, 5).check())
    other = gf.stream.Flow("other")
    other.source(gf.stream.generate(1)).sink(gf.stream.collect())
    with pytest.raises(InputError, match="flow other: the running flow is groups"):
        plan_update(1, old, other.check())


def run_and_update(folder: Path) -> None:
    """Run and update the flow; the process is killed meanwhile."""
    cluster = Cluster(make(folder, 1).check(), 2, checkpoint_s=0.1, checkpoint=folder / "saved")
    while cluster.metrics().records < RECORDS // 2:
        cluster.poll()
    cluster.update(make(folder, 1_000_000).check(), Strategy.MVC)
    finish(cluster)


def totals_of(folder: Path) -> dict[tuple[int, str], int]:
    """Return how much each group and window has, of both versions."""
    found: dict[tuple[int, str], int] = {}
    for file in sorted(folder.glob("part-*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            assert not (row["n"] % 1_000_000 and row["n"] >= 1_000_000)  # no window has both
            key = row["group"], row["window_start"]
            found[key] = found.get(key, 0) + row["n"] % 1_000_000 + row["n"] // 1_000_000
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_all_processes_are_killed_during_an_update(tmp_path: Path, seed: int) -> None:
    """The run that resumes completes the update; a third one needs nothing of the old version."""
    expected = make_events(tmp_path / "in", RECORDS)
    names = "from pathlib import Path; from tests.streaming.updates.test_live import run_and_update; "
    code = f"{names} run_and_update(Path({str(tmp_path)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    kept = tmp_path / "saved" / "workers" / "update"
    while not kept.exists():
        assert process.poll() is None
        time.sleep(0.002)
    time.sleep(0.05 * seed)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    was_kept = kept.exists()
    if was_kept:
        with pytest.raises(InputError, match=r"was being updated \(changed group, groups\); resume it"):
            Cluster(make(tmp_path, 3).check(), 2, checkpoint=tmp_path / "saved")
    cluster = Cluster(make(tmp_path, 1_000_000).check(), 3, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        finish(cluster)
        states = [report.state for report in cluster.updates]
    finally:
        cluster.close()
    assert states == (["complete"] if was_kept else [])
    assert totals_of(tmp_path / "out") == expected
    cluster = Cluster(make(tmp_path, 1_000_000).check(), 2, checkpoint=tmp_path / "saved")
    try:
        finish(cluster)
    finally:
        cluster.close()
    assert totals_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_run_resumes_after_an_update(tmp_path: Path) -> None:
    """Checkpoints of a worker that was killed before are of the old version, and are not needed."""
    expected = make_events(tmp_path / "in", RECORDS)

    def wider() -> gf.stream.Flow:
        """Other windows in the first stage, whose sums are the same in ten seconds."""
        flow = gf.stream.Flow("groups")
        events = flow.source(gf.stream.read_json_lines(str(tmp_path / "in"), rate=2500), time="at", lateness="2s")
        sums = events.key_by("user").window(gf.stream.tumbling("2s")).sum("n", name="sums")
        groups = sums.map(lambda row: row | {"group": int(row["user"][1:]) % 3}, name="group")
        totals = groups.key_by("group").window(gf.stream.tumbling("10s")).sum("n", name="groups")
        totals.sink(gf.stream.write_json_lines(tmp_path / "out"))
        return flow

    cluster = Cluster(make(tmp_path, 1).check(), 2, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        while not list((tmp_path / "out").glob("part-*")):
            cluster.poll()
        os.kill(cluster.pids[0], signal.SIGKILL)
        while cluster.failures == 0 or len(cluster._registry.read().members) < 2:
            cluster.poll()
        cluster.update(wider().check(), Strategy.MVC, PartialWindow.EMIT)
        while cluster.updating or (tmp_path / "saved" / "workers" / "update").exists():
            cluster.poll()
        assert cluster.updates[0].state == "complete"
        assert not (tmp_path / "saved" / "workers" / "0").exists()
    finally:
        cluster.close()
    with pytest.raises(InputError, match="checkpoint of another flow"):
        Cluster(make(tmp_path, 1).check(), 2, checkpoint=tmp_path / "saved")
    cluster = Cluster(wider().check(), 3, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        finish(cluster)
    finally:
        cluster.close()
    assert totals_of(tmp_path / "out") == expected
