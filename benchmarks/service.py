"""The scheduling service under load and under attack; every section starts a real `goffish serve`.

    python benchmarks/service.py [--only plans clients jobs fuzz faults database disk clock soak] [--seconds 20]

Server and clients share this computer. Times of clients at a given rate count from when a call was due.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
from _service_faults import clock_jumps, database_away, database_locked, disk_full, fuzz, rude_clients
from _service_server import Served, serve

import goffish as gf
from goffish.client import Client

SECTIONS = ("plans", "clients", "jobs", "fuzz", "faults", "database", "disk", "clock", "soak")
_PLAN = "/goffish.v1.PlanningService/Plan"
_SUBMIT = "/goffish.v1.JobService/Submit"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement of plans")
    parser.add_argument("--fuzz", type=int, default=100_000, help="messages")
    parser.add_argument("--soak", type=int, default=108_000, help="calls; the default is an hour of 30 a second")
    given = parser.parse_args()
    print(_harness.machine_line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="service-") as folder:
        room = Path(folder)
        data = room / "data"
        data.mkdir()
        rng = np.random.default_rng(1)
        graph = gf.from_edges(rng.integers(0, 5000, 20_000), rng.integers(0, 5000, 20_000))
        gf.partition(graph, parts=2, method="hash").save(data / "store")
        for section in given.only:
            print(f"\n### {section}\n", flush=True)
            home = room / section
            if section == "plans":
                plans(home, data, given.seconds)
            elif section == "clients":
                clients(home, data, given.seconds)
            elif section == "jobs":
                jobs(home, data)
            elif section == "fuzz":
                with serve(home, data) as served:
                    _table(fuzz(served, given.fuzz))
            elif section == "faults":
                with serve(home, data) as served:
                    _table(rude_clients(served, data))
            elif section == "database":
                _table(database_locked(home, data))
                _table(database_away(room / "away", data))
            elif section == "disk":
                _table(disk_full(home, data))
            elif section == "clock":
                _table(clock_jumps(home, data))
            else:
                soak(home, data, given.soak)


def plans(home: Path, data: Path, seconds: float) -> None:
    """Plans of a dataflow of ten elements, all different: as many as there can be, and at given rates."""
    rows = []
    with serve(home, data) as served:
        _load(served, kind="plan", callers=20, channels=4, seconds=3.0)
        for callers in (1, 20, 200):
            found = _load(served, kind="plan", callers=callers, channels=min(callers, 8), seconds=seconds)
            rows.append([f"{callers} callers, at once", *_told(found)])
        for rate in (250, 500):
            found = _load(served, kind="plan", callers=200, channels=8, seconds=seconds, per_second=rate)
            rows.append([f"{rate} per second", *_told(found)])
    _harness.print_table(["plans of 10 processing elements", "per second", "median, ms", "99 %, ms", "failed"], rows)


def clients(home: Path, data: Path, seconds: float) -> None:
    """A thousand connections at a time, each with calls of its own."""
    rows = []
    with serve(home, data) as served:
        found = _load(served, kind="plan", callers=1000, channels=1000, seconds=seconds)
        rows.append(["1,000 connections, at once", *_told(found)])
        found = _load(served, kind="plan", callers=1000, channels=1000, seconds=seconds, per_second=300)
        rows.append(["1,000 connections, 300 per second", *_told(found)])
        rows.append(["memory of the server, MB", f"{served.memory_mb():.0f}", "", "", ""])
    _harness.print_table(["clients", "per second", "median, ms", "99 %, ms", "failed"], rows)


def jobs(home: Path, data: Path, count: int = 10_000) -> None:
    """Ten thousand jobs in the queue: how fast they are accepted, found, and there again after a kill."""
    rows = []
    with serve(home, data, "--slots", "1") as served:
        found = _load(served, kind="submit", callers=50, channels=4, seconds=600.0, calls=count, key="a")
        rows.append(["jobs accepted", *_told(found)])
        with Client(served.address) as client:
            rows.append(["first page of 100", *_timed(lambda: next(client.list(page_size=100)), 50)])
            label = {"number": str(count // 2)}
            rows.append(["one by its label", *_timed(lambda: list(client.list(labels=label)), 50)])
            begun = time.perf_counter()
            waiting = sum(1 for _ in client.list("queued", page_size=1000))
            rows.append([f"all {waiting:,} that wait", "", f"{(time.perf_counter() - begun) * 1e3:.0f}", "", ""])
        served.kill()
        begun = time.perf_counter()
        served.start()
        rows.append(["answers again after kill -9", "", f"{(time.perf_counter() - begun) * 1e3:.0f}", "", ""])
        with Client(served.address) as client:
            there = sum(1 for _ in client.list(page_size=1000))
            begun, before = time.perf_counter(), _done(client)
            time.sleep(60)
            each = (time.perf_counter() - begun) / max(1, _done(client) - before)
        rows.append([f"jobs there: {there:,}, lost: {count - there}", "", "", "", ""])
        rows.append(["ms from job to job (components, one at a time)", "", f"{each * 1e3:.0f}", "", ""])
    _harness.print_table(["jobs", "per second", "median, ms", "99 %, ms", "failed"], rows)


def soak(home: Path, data: Path, calls: int) -> None:
    """As many calls as an hour brings, as fast as they are answered, with jobs that run; memory after each quarter."""
    with serve(home, data) as served:
        _load(served, kind="plan", callers=50, channels=8, seconds=15.0)
        memory, answered, seconds = [served.memory_mb()], 0, 0.0
        for part in range(4):
            for kind, share in (("plan", calls // 4 - 250), ("submit", 250)):
                found = _load(served, kind=kind, callers=50, channels=8, seconds=3600, calls=share, key=f"s{part}")
                answered, seconds = answered + found["answered"], seconds + found["seconds"]
            memory.append(served.memory_mb())
        with Client(served.address) as client:
            done = _done(client)
    rows = [[f"{answered:,} in {seconds:.0f} s, {done:,} jobs done meanwhile", *(f"{one:.0f}" for one in memory)]]
    _harness.print_table(["calls", "MB at first", "after a quarter", "a half", "three quarters", "all"], rows)


def _load(served: Served, *, kind: str, **given: Any) -> dict[str, Any]:
    body = {"kind": kind, "method": _PLAN if kind == "plan" else _SUBMIT, "per_second": None} | given
    script = Path(__file__).with_name("_service_load.py")
    done = subprocess.run(
        [sys.executable, script, served.address, json.dumps(body)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _told(found: dict[str, Any]) -> list[str]:
    failed = ", ".join(f"{count} {code}" for code, count in found["failed"].items()) or "0"
    per_second = found["answered"] / found["seconds"]
    return [f"{per_second:,.0f}", f"{found['median_ms']:.1f}", f"{found['p99_ms']:.1f}", failed]


def _timed(call: Any, repeats: int) -> list[str]:
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append((time.perf_counter() - begun) * 1e3)
    times.sort()
    return ["", f"{times[len(times) // 2]:.1f}", f"{times[-1]:.1f}", ""]


def _done(client: Client) -> int:
    return sum(1 for _ in client.list("done", page_size=1000))


def _table(rows: list[tuple[str, str]]) -> None:
    _harness.print_table(["what", "found"], [list(row) for row in rows])


if __name__ == "__main__":
    main()
