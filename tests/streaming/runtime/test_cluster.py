"""Worker processes that run a flow: results are those of plain Python, whichever processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.streaming.metrics import Metrics
from goffish.streaming.runtime.cluster import Cluster, run_workers
from goffish.streaming.runtime.launch import command_of, start_here
from tests.streaming.runtime.hosts import workers_of

FLOW = """
import sys
import goffish as gf

def group(row):
    return row | {{"group": int(row["user"][1:]) % 3}}

flow = gf.stream.Flow("groups")
events = flow.source(gf.stream.read_json_lines({source!r}{more}), time="at", lateness="2s")
sums = events.key_by("user").window(gf.stream.tumbling("5s")).sum("n", name="sums")
groups = sums.map(group).key_by("group").window(gf.stream.tumbling("10s")).sum("n", name="groups")
groups.sink(gf.stream.write_json_lines({target!r}))
"""


def group(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"group": int(row["user"][1:]) % 3}


def make_events(folder: Path, records: int) -> dict[tuple[int, str], int]:
    """Write files of events, and return the sums of all groups and windows."""
    rng = random.Random(3)
    expected: dict[tuple[int, str], int] = defaultdict(int)
    folder.mkdir()
    for number in range(3):
        lines = []
        for i in range(records):
            row = {"at": i / 50 + rng.random(), "user": f"u{rng.randrange(30)}", "n": rng.randrange(10)}
            start = int(row["at"] // 10 * 10)
            at = f"1970-01-01T{start // 3600:02}:{start // 60 % 60:02}:{start % 60:02}+00:00"
            expected[int(row["user"][1:]) % 3, at] += row["n"]
            lines.append(json.dumps(row) + "\n")
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return expected


def sums_of(folder: Path) -> dict[tuple[int, str], int]:
    files = sorted(folder.glob("part-*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = {(row["group"], row["window_start"]): row["n"] for row in rows}
    assert len(found) == len(rows)  # each window is written once
    return found


def make_flow(source: Path, target: Path, rate: float | None = None) -> gf.stream.Flow:
    flow = gf.stream.Flow("groups")
    events = flow.source(gf.stream.read_json_lines(str(source), rate=rate), time="at", lateness="2s")
    sums = events.key_by("user").window(gf.stream.tumbling("5s")).sum("n", name="sums")
    groups = sums.map(group).key_by("group").window(gf.stream.tumbling("10s")).sum("n", name="groups")
    groups.sink(gf.stream.write_json_lines(target))
    return flow


@pytest.mark.slow
def test_workers_join_and_leave(tmp_path: Path) -> None:
    """Breaks when records are lost or counted twice while workers come and go, or a number is not reached."""
    rng, expected, count = random.Random(5), defaultdict[str, int](int), 4000
    (tmp_path / "in").mkdir()

    def write(number: int) -> None:
        rows = [{"user": f"u{rng.randrange(40)}", "n": rng.randrange(1, 9)} for _ in range(count)]
        for row in rows:
            expected[row["user"]] += row["n"]
        partial = tmp_path / f"{number}.partial"
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
        partial.rename(tmp_path / "in" / f"{number}.jsonl")

    flow = gf.stream.Flow("totals")
    events = flow.source(gf.stream.read_json_lines(str(tmp_path / "in"), follow=True))
    events.key_by("user").sum("n", name="sums").sink(gf.stream.write_json_lines(tmp_path / "out"))
    cluster = Cluster(flow.check(), 1, checkpoint_s=0.2, checkpoint=tmp_path / "saved")

    def poll_until(done: Callable[[Metrics], bool]) -> None:
        end = time.monotonic() + 120
        while not done(cluster.metrics()):
            assert time.monotonic() < end, cluster.metrics()
            cluster.poll()

    try:
        for number, workers in enumerate((3, 2, 1, 2)):
            write(number)
            cluster.scale(workers)
            poll_until(lambda metrics, n=workers: [one.joined for one in metrics.workers] == [True] * n)  # type: ignore[misc]
        write(4)
        poll_until(lambda metrics: metrics["sums"].received >= 5 * count)
        with pytest.raises(InputError, match="workers = 0: must be 1 to 256"):
            cluster.scale(0)
        cluster.stop()
        metrics = cluster.run()
        assert cluster.failures == 0 and len(cluster.pids) == 2 and metrics.stopped == "stopped"
    finally:
        cluster.close()
    rows = [json.loads(line) for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["user"]] = max(totals.get(row["user"], 0), row["n"])
    assert totals == expected


@pytest.mark.slow
def test_numbers_of_workers_are_not_used_again(tmp_path: Path) -> None:
    """Breaks when a run has a worker with the number of one that has left, whose files sinks would overwrite."""
    (tmp_path / "in").mkdir()

    def flow(step: int) -> gf.stream.Topology:
        made = gf.stream.Flow("totals")
        rows = made.source(gf.stream.read_json_lines(str(tmp_path / "in"), follow=True))
        counted = rows.map(lambda row: row | {"step": step}, name="counted").key_by("user").sum("n", name="sums")
        counted.sink(gf.stream.write_json_lines(tmp_path / "out"))
        return made.check()

    def write(name: str) -> None:
        partial = tmp_path / f"{name}.partial"
        partial.write_text("".join(f'{{"user": "u{n % 40}", "n": 1}}\n' for n in range(2000)))
        partial.rename(tmp_path / "in" / f"{name}.jsonl")

    def poll_until(cluster: Cluster, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not done():
            assert time.monotonic() < end, cluster.metrics()
            cluster.poll()

    def totals() -> dict[str, int]:
        found: dict[str, int] = {}
        for file in (tmp_path / "out").glob("part-*"):
            for row in map(json.loads, file.read_text().splitlines()):
                found[row["user"]] = max(row["n"], found.get(row["user"], 0))
        return found

    saved = tmp_path / "saved" / "workers"
    write("first")
    for step in range(2):
        cluster = Cluster(flow(step), 1, checkpoint_s=0.2, checkpoint=tmp_path / "saved")
        try:
            for workers in (3, 1):
                cluster.scale(workers)
                joined = [True] * workers
                poll_until(cluster, lambda j=joined, c=cluster: [one.joined for one in c.metrics().workers] == j)  # type: ignore[misc]
                write(f"{step}-{workers}")
            poll_until(cluster, lambda n=(150, 250)[step]: totals() == {f"u{user}": n for user in range(40)})  # type: ignore[misc]
            cluster.update(flow(step + 1))
            poll_until(cluster, lambda c=cluster: len(c.updates) == 1)  # type: ignore[misc]
            poll_until(cluster, lambda: len([one for one in saved.iterdir() if one.name.isdigit()]) == 1)
            cluster.stop()
            cluster.run()
        finally:
            cluster.close()
    assert totals() == {f"u{n}": 250 for n in range(40)}


def test_a_worker_is_killed(tmp_path: Path) -> None:
    expected = make_events(tmp_path / "in", 6000)
    flow = make_flow(tmp_path / "in", tmp_path / "out", rate=6000)
    cluster = Cluster(flow.check(), 2, checkpoint_s=0.2)
    try:
        killed = False
        while not cluster.finished:
            cluster.poll()
            if not killed and cluster.metrics().records > 5000:
                os.kill(cluster.pids[1], signal.SIGKILL)
                killed = True
        metrics = cluster.metrics()
    finally:
        cluster.close()
    assert killed
    assert cluster.failures == 1
    assert sums_of(tmp_path / "out") == expected
    assert metrics["groups"].late == 0


def run_flow(folder: Path, workers: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goffish", "stream", "run", str(folder / "flow.py"), "--json"]
    options = ["--checkpoint", str(folder / "saved"), "--every", "0.2", "--workers", str(workers)]
    return subprocess.Popen(command + options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_processes_are_killed(tmp_path: Path, seed: int) -> None:
    """A run with another number of workers continues from the last checkpoints."""
    rng = random.Random(seed)
    expected = make_events(tmp_path / "in", 8000)
    text = FLOW.format(source=str(tmp_path / "in"), target=str(tmp_path / "out"), more=", rate=4000")
    (tmp_path / "flow.py").write_text(text)
    for _ in range(4):
        process = run_flow(tmp_path, rng.choice((2, 3)))
        while len(workers_of(process.pid)) < 2:
            time.sleep(0.05)
        time.sleep(rng.uniform(2, 6))
        for pid in (process.pid, *workers_of(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    out, error = run_flow(tmp_path, 3).communicate()
    assert not error
    assert json.loads(out)["stopped"] == "finished"
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_all_processes_are_killed_after_a_takeover(tmp_path: Path) -> None:
    """What a worker has taken over is part of its own checkpoints."""
    expected = make_events(tmp_path / "in", 8000)
    text = FLOW.format(source=str(tmp_path / "in"), target=str(tmp_path / "out"), more=", rate=3000")
    (tmp_path / "flow.py").write_text(text)
    process = run_flow(tmp_path, 2)
    while not list((tmp_path / "out").glob("part-*")):
        time.sleep(0.05)
    workers = workers_of(process.pid)
    os.kill(workers[1], signal.SIGKILL)
    time.sleep(1.5)
    for pid in (process.pid, *workers_of(process.pid)):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    out, error = run_flow(tmp_path, 2).communicate()
    assert not error
    assert json.loads(out)["stopped"] == "finished"
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("number", "code", "stopped"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_interrupt_and_resume(tmp_path: Path, number: signal.Signals, code: int, stopped: str) -> None:
    expected = make_events(tmp_path / "in", 3000)
    text = FLOW.format(source=str(tmp_path / "in"), target=str(tmp_path / "out"), more=", rate=800")
    (tmp_path / "flow.py").write_text(text)
    process = run_flow(tmp_path, 2)
    while not list((tmp_path / "out").glob("part-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    workers = workers_of(process.pid)
    process.send_signal(number)
    out, error = process.communicate()
    assert process.returncode == code, error
    assert json.loads(out)["stopped"] == stopped
    assert "Traceback" not in error
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    (tmp_path / "flow.py").write_text(text.replace(", rate=800", ""))
    out, error = run_flow(tmp_path, 2).communicate()
    assert not error
    assert json.loads(out)["stopped"] == "finished"
    assert sums_of(tmp_path / "out") == expected


def test_a_worker_that_starts_prints_nothing_when_the_run_ends(tmp_path: Path) -> None:
    process = start_here(0, [sys.executable, "-c", "import time; time.sleep(1)"])
    assert isinstance(process, subprocess.Popen)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "control"))
    worker = subprocess.run(command_of(tmp_path, 0), check=False, capture_output=True, text=True)
    assert (worker.returncode, worker.stdout, worker.stderr) == (1, "", "")


def fail(row: dict[str, Any]) -> dict[str, Any]:
    if row["user"] == "u7":
        raise ValueError("no such user")
    return row


def test_errors_of_functions(tmp_path: Path) -> None:
    make_events(tmp_path / "in", 100)
    flow = gf.stream.Flow("failing")
    flow.source(gf.stream.read_json_lines(str(tmp_path / "in"))).map(fail).key_by("user").count().sink(
        gf.stream.write_json_lines(tmp_path / "out")
    )
    with pytest.raises(JobError, match=r"^operator fail: ValueError: no such user \(record .*u7"):
        flow.run(workers=2)


@pytest.mark.slow
def test_records_that_fail(tmp_path: Path) -> None:
    make_events(tmp_path / "in", 300)
    rows = [json.loads(line) for file in (tmp_path / "in").iterdir() for line in file.read_text().splitlines()]
    bad = sum(row["user"] == "u7" for row in rows)

    def make(most: int | None) -> gf.stream.Flow:
        folder = tmp_path / f"{most}"
        flow = gf.stream.Flow("failing", on_error=gf.stream.write_json_lines(folder / "bad"), max_errors=most)
        good = flow.source(gf.stream.read_json_lines(str(tmp_path / "in"))).map(fail).key_by("user")
        good.reduce(lambda total, row: total + 1, initial=0).sink(gf.stream.write_json_lines(folder / "good"))
        return flow

    metrics = make(None).run(workers=2)
    lines = [line for file in (tmp_path / "None" / "bad").glob("part-*") for line in file.read_text().splitlines()]
    assert len(lines) == bad == metrics["fail"].errors
    with pytest.raises(JobError, match=r"errors, max_errors = 3$"):
        make(3).run(workers=2)


def hang(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(60)
    return row


@pytest.mark.slow
def test_functions_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goffish.streaming.runtime.cluster._HANGS_S", 2.0)
    make_events(tmp_path / "in", 10)
    flow = gf.stream.Flow("hanging")
    events = flow.source(gf.stream.read_json_lines(str(tmp_path / "in"))).map(hang).key_by("user")
    events.count().sink(gf.stream.write_json_lines(tmp_path / "out"))
    with pytest.raises(JobError, match=r"worker \d: no report for 2 s, as a function does not return"):
        flow.run(workers=2)


def test_refused(tmp_path: Path) -> None:
    make_events(tmp_path / "in", 10)
    topology = make_flow(tmp_path / "in", tmp_path / "out").check()
    with pytest.raises(InputError, match="workers = 0: must be 1 to 256"):
        run_workers(topology, 0, 1, None, 1.0, None)
    flow = gf.stream.Flow("kept")
    flow.source(gf.stream.generate(3)).sink(gf.stream.collect(), name="list")
    with pytest.raises(InputError, match=r"operator list: collect\(\) keeps records in memory"):
        flow.run(workers=2)
    make_flow(tmp_path / "in", tmp_path / "other").run(checkpoint=tmp_path / "one")
    with pytest.raises(InputError, match=r"other: has part-\d{8}.jsonl of another run"):
        run_workers(make_flow(tmp_path / "in", tmp_path / "other").check(), 2, 1, None, 1.0, None)
    (tmp_path / "several" / "workers").mkdir(parents=True)
    with pytest.raises(InputError, match="checkpoint of a run with several workers; resume it with --workers 2"):
        make_flow(tmp_path / "in", tmp_path / "other2").run(checkpoint=tmp_path / "several")
    with pytest.raises(InputError, match="checkpoint of a run in one process; resume it with --workers 1"):
        run_workers(topology, 2, 1, tmp_path / "one", 1.0, None)


@pytest.mark.slow
def test_a_machine_that_is_going_to_end(tmp_path: Path) -> None:
    """A worker that gets SIGTERM gives its positions to a new one before it ends, and nothing is replayed."""
    expected = make_events(tmp_path / "in", 1000)
    cluster = Cluster(make_flow(tmp_path / "in", tmp_path / "out", rate=400).check(), 2, checkpoint_s=0.2)
    try:
        end = time.monotonic() + 60
        while cluster.metrics().records < 1000 and time.monotonic() < end:
            cluster.poll()
        noticed = sorted(cluster.pids)[0]
        os.kill(cluster.pids[noticed], signal.SIGTERM)
        while noticed in cluster.pids and time.monotonic() < end:
            cluster.poll()
        assert noticed not in cluster.pids
        cluster.run()
        assert cluster.failures == 0 and len(cluster.pids) == 2
    finally:
        cluster.close()
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_worker_is_killed_before_others_begin(tmp_path: Path) -> None:
    """Breaks when a failure counts before what the worker had sent is read, from connections that wait as well."""
    expected = make_events(tmp_path / "in", 6000)
    cluster = Cluster(make_flow(tmp_path / "in", tmp_path / "out", rate=6000).check(), 2, checkpoint_s=0.2)
    try:
        slow, killed = cluster.pids[0], cluster.pids[1]
        os.kill(slow, signal.SIGSTOP)
        end = time.monotonic() + 60
        while cluster.metrics().records < 3000 and time.monotonic() < end:
            cluster.poll()
        os.kill(killed, signal.SIGKILL)
        while killed in cluster.pids.values() and time.monotonic() < end:
            cluster.poll()
        os.kill(slow, signal.SIGCONT)
        cluster.run()
        assert cluster.failures == 1
    finally:
        cluster.close()
    assert sums_of(tmp_path / "out") == expected
