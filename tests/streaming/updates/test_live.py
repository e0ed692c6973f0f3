"""Updates of flows on real worker processes, while they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.updates.plan import plan_update
from goffish.streaming.updates.versions import PartialWindow, Strategy
from tests.streaming.runtime.test_cluster import make_events, sums_of
from tests.streaming.updates.gated import Gated

RECORDS = 5000


def source(folder: Path, free: int = RECORDS // 2) -> Gated:
    """Events; half of them wait for the file `begun`, and the last hundred of each partition for `over`."""
    events = gf.stream.read_json_lines(str(folder / "in"), rate=2500)
    return Gated(Gated(events, free, str(folder / "begun")), RECORDS - 100, str(folder / "over"))


def make(folder: Path, factor: int, free: int = RECORDS // 2) -> gf.stream.Flow:
    flow = gf.stream.Flow("groups")
    events = flow.source(source(folder, free), time="at", lateness="2s", name="source")
    sums = events.key_by("user").window(gf.stream.tumbling("5s")).sum("n", name="sums")
    groups = sums.map(lambda row: row | {"group": int(row["user"][1:]) % 3, "n": row["n"] * factor}, name="group")
    totals = groups.key_by("group").window(gf.stream.tumbling("10s")).sum("n", name="groups")
    totals.sink(gf.stream.write_json_lines(folder / "out"))
    return flow


def poll_until(cluster: Cluster, reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 100
    while not reached():
        cluster.poll()
        assert time.monotonic() < end


def update(cluster: Cluster, folder: Path, new: gf.stream.Flow, *options: Any, kill: bool = False) -> None:
    """Update the flow while it reads; the last records are read when that is over."""
    poll_until(cluster, lambda: cluster.metrics().records >= 3 * (RECORDS // 2))
    cluster.update(new.check(), *options)
    (folder / "begun").touch()
    if kill:
        cluster.poll()
        os.kill(cluster.pids[1], signal.SIGKILL)
    poll_until(cluster, lambda: not cluster.updating)
    (folder / "over").touch()


def finish(cluster: Cluster) -> None:
    poll_until(cluster, lambda: cluster.finished)


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_update(tmp_path: Path, kill: bool) -> None:
    expected = make_events(tmp_path / "in", RECORDS)
    cluster = Cluster(make(tmp_path, 1).check(), 2, checkpoint_s=0.2)
    try:
        update(cluster, tmp_path, make(tmp_path, 1_000_000), Strategy.MVC, PartialWindow.MERGE, kill=kill)
        finish(cluster)
        (report,) = cluster.updates
        version = cluster.topology.operator("group")
    finally:
        cluster.close()
    assert cluster.failures == kill
    assert (report.state, report.lost, report.changes) == ("complete", 0, "changed group")
    assert report.refresh_s is not None and report.mixes
    assert version.function is not None and version.function({"user": "u1", "n": 1})["n"] == 1_000_000
    found = sums_of(tmp_path / "out")
    assert {key: value % 1_000_000 + value // 1_000_000 for key, value in found.items()} == expected
    assert any(value >= 1_000_000 for value in found.values())


@pytest.mark.slow
def test_a_worker_that_begins_before_an_update_is_complete(tmp_path: Path) -> None:
    """Breaks when a worker that has the version before, gets no positions after the update."""
    expected = make_events(tmp_path / "in", RECORDS)
    cluster = Cluster(make(tmp_path, 1).check(), 2, checkpoint_s=0.2)
    try:
        poll_until(cluster, lambda: cluster.metrics().records >= 3 * (RECORDS // 2))
        os.kill(cluster.pids[1], signal.SIGKILL)
        poll_until(cluster, lambda: 2 in cluster.pids)
        started = cluster._folder / "2.socket"
        while not started.exists():
            time.sleep(0.001)
        os.kill(cluster.pids[2], signal.SIGSTOP)  # it has read the flow
        update(cluster, tmp_path, make(tmp_path, 1_000_000), Strategy.MVC, PartialWindow.MERGE)
        os.kill(cluster.pids[2], signal.SIGCONT)
        poll_until(cluster, lambda: [one.joined for one in cluster.metrics().workers] == [True, True])
        finish(cluster)
        (report,) = cluster.updates
    finally:
        cluster.close()
    assert report.state == "complete"
    found = sums_of(tmp_path / "out")
    assert {key: value % 1_000_000 + value // 1_000_000 for key, value in found.items()} == expected


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no model")

    def on_value(self, key: str, value: object, state: object, timers: object, emit: object) -> None:
        """Not called."""


def with_model(folder: Path) -> gf.stream.Flow:
    flow = gf.stream.Flow("groups")
    events = flow.source(source(folder), time="at", lateness="2s", name="source")
    events.key_by("user").process(Broken, name="model").sink(gf.stream.write_json_lines(folder / "model"))
    return flow


@pytest.mark.slow
def test_a_version_that_does_not_become_ready(tmp_path: Path) -> None:
    """The flow goes on as it was, and can be updated again."""
    expected = make_events(tmp_path / "in", RECORDS)
    cluster = Cluster(make(tmp_path, 1).check(), 2, checkpoint_s=0.2)
    try:
        cluster.update(with_model(tmp_path).check())
        with pytest.raises(InputError, match="an update is in progress"):
            cluster.update(make(tmp_path, 3).check())
        poll_until(cluster, lambda: not cluster.updating)
        update(cluster, tmp_path, make(tmp_path, 1_000_000), Strategy.HTI)
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
        plan_update(1, old, make(tmp_path, 1, free=5).check())
    other = gf.stream.Flow("other")
    other.source(gf.stream.generate(1)).sink(gf.stream.collect())
    with pytest.raises(InputError, match="flow other: the running flow is groups"):
        plan_update(1, old, other.check())


def run_and_update(folder: Path) -> None:
    """Run and update the flow; the process is killed meanwhile."""
    cluster = Cluster(make(folder, 1).check(), 2, checkpoint_s=0.1, checkpoint=folder / "saved")
    update(cluster, folder, make(folder, 1_000_000), Strategy.MVC)
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
    time.sleep(0.05 * seed)  # at another moment of the update
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    was_kept = kept.exists()
    (tmp_path / "over").touch()
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
        events = flow.source(source(tmp_path), time="at", lateness="2s", name="source")
        sums = events.key_by("user").window(gf.stream.tumbling("2s")).sum("n", name="sums")
        groups = sums.map(lambda row: row | {"group": int(row["user"][1:]) % 3}, name="group")
        totals = groups.key_by("group").window(gf.stream.tumbling("10s")).sum("n", name="groups")
        totals.sink(gf.stream.write_json_lines(tmp_path / "out"))
        return flow

    cluster = Cluster(make(tmp_path, 1).check(), 2, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        poll_until(cluster, lambda: bool(list((tmp_path / "out").glob("part-*"))))
        os.kill(cluster.pids[0], signal.SIGKILL)
        poll_until(cluster, lambda: cluster.failures == 1 and len(cluster._registry.read().members) == 2)
        update(cluster, tmp_path, wider(), Strategy.MVC, PartialWindow.EMIT)
        poll_until(cluster, lambda: not (tmp_path / "saved" / "workers" / "update").exists())
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
