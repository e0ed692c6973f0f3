"""Timing, the machine line and Markdown tables for the benchmarks."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# OpenMP peers spin while they wait and collapse on a machine shared with other work. This has
# to be set before any of them is imported, hence here, in the module that every benchmark imports first.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the best and the median wall time, and the CPU time of the cheapest call."""

    wall: float
    median: float
    cpu: float


def measure(call: Callable[[], Any], repeats: int = 7, warmup: int = 1, budget: float = 20.0) -> Timing:
    """Time `call`; stops early after `budget` seconds, with three calls at least."""
    return measure_together({"": call}, repeats, warmup, budget)[""]


def measure_together(
    calls: dict[str, Callable[[], Any]], repeats: int = 7, warmup: int = 1, budget: float = 40.0
) -> dict[str, Timing]:
    """Time several calls round-robin, so that other work on the machine hits all of them alike."""
    for call in calls.values():
        for _ in range(warmup):
            call()
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    started = time.perf_counter()
    for done in range(repeats):
        if done >= 3 and time.perf_counter() - started > budget:
            break
        for name, call in calls.items():
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    return {name: Timing(min(walls[name]), statistics.median(walls[name]), min(cpus[name])) for name in calls}


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def machine_line(peers: Sequence[str] = ()) -> str:
    """Command, date, processor, cores, load, interpreter and package versions on one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numba", "numpy", *peers))
    load, policy = os.getloadavg()[0], os.environ["OMP_WAIT_POLICY"]
    command = shlex.join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    return (
        f"`{command}`, {datetime.date.today()}: {model}, {cores} cores, load {load:.1f}, "
        f"Python {platform.python_version()}, {versions}; "
        f"OMP_WAIT_POLICY={policy}"
    )


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A GitHub-flavoured Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + "|".join("---" for _ in header) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def milliseconds(timing: Timing) -> str:
    """``wall (median; cpu)`` in milliseconds."""
    return f"{timing.wall * 1e3:.2f} ({timing.median * 1e3:.2f}; {timing.cpu * 1e3:.2f})"


def best_peer(timings: dict[str, Timing], ours: Iterable[str], peers: Iterable[str]) -> tuple[float, str]:
    """How many times as fast our best entry is as the best peer, and that peer's name (best wall times)."""
    peer = min(peers, key=lambda name: timings[name].wall)
    return timings[peer].wall / min(timings[name].wall for name in ours), peer
