"""Loops of flows on several worker processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.updates.versions import Strategy

COUNT = 600


def less(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"n": row["n"] - 1, "turns": row.get("turns", 0) + 1}


def twice(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"n": row["n"] - 2, "turns": row.get("turns", 0) + 1}


class Seen:
    """Counts the records of a key."""

    def on_value(self, key: str, value: dict[str, Any], state: dict[str, Any], timers: Any, emit: Any) -> None:
        state["seen"] = state.get("seen", 0) + 1
        emit(value | {"seen": state["seen"]})


def flow_of(folder: Path, step: Callable[[dict[str, Any]], Any] = less, rate: float | None = None) -> gf.stream.Flow:
    flow = gf.stream.Flow("around")
    rows = flow.source(gf.stream.read_json_lines(str(folder / "in"), rate=rate), time="at")
    loop = flow.loop("again")
    seen = rows.union(loop, name="all").key_by("user").process(Seen, name="seen").map(step, name="step")
    parts = seen.branch({"more": lambda row: row["n"] > 0, "done": lambda row: True})
    loop.close(parts["more"])
    parts["done"].sink(gf.stream.write_json_lines(folder / "done"), name="rows")
    counted = parts["done"].key_by("user").window(gf.stream.tumbling("1d")).count(name="count")
    counted.sink(gf.stream.write_json_lines(folder / "counts"), name="counts")
    return flow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for part in range(2):
        rows = [{"at": n, "id": f"{part}-{n}", "user": f"u{n % 7}", "n": n % 9} for n in range(COUNT)]
        (tmp_path / "in" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in folder.glob("part-*") for line in file.read_text().splitlines()]


def check(folder: Path, turns: Callable[[int], set[int]], versions: int = 1) -> None:
    """Check that each record has left the loop once, after a number of turns, and is in the windows."""
    done = {row["id"]: row["turns"] for row in lines(folder / "done")}
    assert len(lines(folder / "done")) == len(done) == 2 * COUNT
    for name, count in done.items():
        assert count in turns(int(name.split("-")[1]) % 9), name
    counted = Counter[str]()
    for row in lines(folder / "counts"):
        counted[row["user"]] += row["count"]
    assert counted == {f"u{user}": 2 * len(range(user, COUNT, 7)) for user in range(7)}
    assert len(lines(folder / "counts")) <= 7 * versions


def exactly(n: int) -> set[int]:
    return {max(n, 1)}


@pytest.mark.parametrize("workers", [2, pytest.param({"step": 2, "counts": 1}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.slow)])
def test_a_loop_on_several_workers(folder: Path, workers: Any, delivery: str) -> None:
    """Breaks when windows end before the loop is empty, or the run never ends."""
    metrics = flow_of(folder).run(workers=workers, every=0.2, delivery=delivery, progress=False)
    assert metrics.stopped == "finished" and metrics["count"].late == 0
    check(folder, exactly)


def poll(cluster: Cluster, done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, cluster.metrics()
        cluster.poll()


@pytest.mark.slow
def test_a_worker_of_a_loop_is_killed(folder: Path) -> None:
    cluster = Cluster(flow_of(folder, rate=1000).check(), 2, checkpoint_s=0.2)
    try:
        poll(cluster, lambda: cluster.metrics()["again"].received > 500)
        os.kill(cluster.pids[1], signal.SIGKILL)
        poll(cluster, lambda: cluster.finished)
    finally:
        cluster.close()
    assert cluster.failures == 1
    check(folder, exactly)


@pytest.mark.slow
def test_records_in_a_loop_are_resumed(folder: Path) -> None:
    """Breaks when records that are in a loop when all processes are killed are not in the checkpoints."""
    for _ in range(2):
        cluster = Cluster(flow_of(folder, rate=1000).check(), 2, checkpoint_s=0.1, checkpoint=folder / "saved")
        try:
            poll(cluster, lambda c=cluster: c.metrics()["again"].received > 300)  # type: ignore[misc]
            for pid in cluster.pids.values():
                os.kill(pid, signal.SIGKILL)
        finally:
            cluster.close()
    cluster = Cluster(flow_of(folder).check(), 3, checkpoint_s=0.1, checkpoint=folder / "saved")
    assert cluster.run().stopped == "finished"
    check(folder, exactly)


@pytest.mark.slow
def test_stop_empties_the_loop(folder: Path) -> None:
    cluster = Cluster(flow_of(folder, rate=250).check(), 2, checkpoint_s=0.1, checkpoint=folder / "saved")
    poll(cluster, lambda: cluster.metrics()["again"].received > 100)
    cluster.stop()
    assert cluster.run().stopped == "stopped"
    assert 0 < len(lines(folder / "done")) < 2 * COUNT and not lines(folder / "counts")
    assert flow_of(folder).run(workers=2, checkpoint=folder / "saved", every=0.1, progress=False).stopped == "finished"
    check(folder, exactly)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mvc", "pvc", "hti", "nch"])
def test_an_update_of_an_operator_in_a_loop(folder: Path, strategy: str) -> None:
    """Records take the new version when they return at the latest, and none is lost."""
    cluster = Cluster(flow_of(folder, rate=250).check(), 2, checkpoint_s=0.1)
    try:
        poll(cluster, lambda: cluster.metrics()["again"].received > 200)
        cluster.update(flow_of(folder, twice, rate=250).check(), Strategy(strategy))
        poll(cluster, lambda: cluster.finished)
    finally:
        cluster.close()
    [report] = cluster.updates
    assert report.state == "complete" and report.lost == 0
    check(folder, lambda n: set(range((max(n, 1) + 1) // 2, max(n, 1) + 1)), versions=2)
    turns = [row["turns"] for row in lines(folder / "done") if int(row["id"].split("-")[1]) % 9 == 8]
    assert 4 <= min(turns) < 8  # the last ones began with the new version


def test_a_loop_that_another_operator_closes(folder: Path) -> None:
    flow = gf.stream.Flow("around")
    rows = flow.source(gf.stream.read_json_lines(str(folder / "in")), time="at")
    loop = flow.loop("again")
    loop.close(rows.union(loop, name="all").filter(lambda row: False, name="never"))
    rows.sink(gf.stream.write_json_lines(folder / "out"))
    cluster = Cluster(flow_of(folder, rate=100).check(), 2)
    try:
        with pytest.raises(InputError, match="flow around: another operator closes a loop; stop the flow with"):
            cluster.update(flow.check())
    finally:
        cluster.close()


def test_event_times_in_a_loop_need_one_worker(folder: Path) -> None:
    flow = gf.stream.Flow("around")
    loop = flow.loop("again")
    rows = flow.source(gf.stream.read_json_lines(str(folder / "in"))).union(loop).event_time("at", name="at")
    loop.close(rows.filter(lambda row: False))
    rows.key_by("user").count().sink(gf.stream.write_json_lines(folder / "out"))
    with pytest.raises(InputError, match="operator at: set the event time before the loop, or run with --workers 1"):
        flow.run(workers=2, progress=False)
