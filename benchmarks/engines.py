"""The same jobs on the engines: ``python benchmarks/engines.py [--quick] [--jobs louvain ...] [--graphs NAME ...]``.

Every entry is a command line of its own, timed by the engine's own phases from the first superstep to the answer:
partitioning, starting interpreters, loading compiled code, reading and writing are left out, because they are the same
for all. The answers are compared byte for byte: engines that do not agree end the benchmark. The last column is the share of
the exchange of messages, which is the most that overlapping it with computing could save.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _graphs
import _harness
import numpy as np

from goffish.partition import partition_graph

BIN = Path(sys.executable).parent
PARTS = 8
JOBS: dict[str, list[str]] = {
    "components": [],
    "louvain": ["--seed", "1"],
    "betweenness": ["--pivots", "32", "--seed", "1"],
}


@dataclass(frozen=True)
class Entry:
    """One way to run a job: what comes before ``goffish run``, and the options behind it."""

    name: str
    before: Sequence[str]
    options: Sequence[str]


def mpirun(ranks: int) -> list[str]:
    """The launcher of this environment, free to put as many ranks on a processor as it likes."""
    program = str(BIN / "mpirun")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    root = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "Open MPI" in told else []
    return [program, *root, "-n", str(ranks)]


def entries() -> list[Entry]:
    """The engines to compare, the one that the others are measured against first."""
    found = [
        Entry(f"local, {threads} thread{'s' * (threads > 1)}", [], ["--engine", "local", "--threads", str(threads)])
        for threads in (1, 2)
    ]
    if (BIN / "mpirun").exists():
        found += [
            Entry(f"MPI, {ranks} rank{'s' * (ranks > 1)} of 1 thread", mpirun(ranks), ["--engine", "mpi", "--threads", "1"])
            for ranks in (1, 2)
        ]
    return found


def run(entry: Entry, job: str, store: Path, output: Path) -> dict[str, Any]:
    """Run a job once; its JSON."""
    command = [
        *entry.before, sys.executable, "-m", "goffish", "run", job, str(store), *JOBS[job], *entry.options, "--json", "-o",
        str(output),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    if done.returncode:
        sys.exit(f"{entry.name}, {job}: {done.stderr.strip()}")
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def work_seconds(stats: dict[str, Any]) -> float:
    """Seconds of a run from the first superstep to the last answer."""
    return float(sum(stats["phases"][name] for name in ("init", "compute", "exchange", "result")))


def make_store(name: str, folder: Path) -> Path:
    """A graph cut by METIS, as a store."""
    path = folder / name
    partition_graph(_graphs.load(name), PARTS).save(str(path))
    return path


def compare(graphs: Sequence[str], jobs: Sequence[str], repeats: int) -> None:
    """A table of seconds, and of the speed-up of each entry over one thread of the local engine."""
    ways = entries()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="goffish-bench-") as place:
        folder = Path(place)
        for name in graphs:
            store = make_store(name, folder)
            for job in jobs:
                times: dict[str, list[float]] = {way.name: [] for way in ways}
                answers: dict[str, bytes] = {}
                shares: dict[str, float] = {}
                for _ in range(repeats):
                    for way in ways:
                        output = folder / "answer.arrow"
                        stats = run(way, job, store, output)["stats"]
                        times[way.name].append(work_seconds(stats))
                        answers[way.name] = output.read_bytes()
                        shares[way.name] = stats["phases"]["exchange"] / max(work_seconds(stats), 1e-9)
                if len(set(answers.values())) > 1:
                    sys.exit(f"{job} of {name}: the engines do not agree")
                base = min(times[ways[0].name])
                for way in ways:
                    best, middle = min(times[way.name]), float(np.median(times[way.name]))
                    rows.append(
                        [name, job, way.name, f"{best:.3f} ({middle:.3f})", f"{base / best:.2f}", f"{shares[way.name]:.1%}"]
                    )
    _harness.print_table(["graph", "job", "engine", "seconds (median)", "speed-up", "exchange"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one small graph, once")
    parser.add_argument("--graphs", nargs="*", default=["email-Enron", "lfr-200k"])
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(_harness.machine_line(["pyarrow"]), end="\n\n")
    compare(["email-Enron"] if given.quick else given.graphs, given.jobs, 1 if given.quick else given.repeats)


if __name__ == "__main__":
    main()
