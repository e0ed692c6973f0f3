"""What fault tolerance costs, and how long recovery takes: ``python benchmarks/stream_recovery.py``.

A word count as in the published evaluation: workers read lines, split them, and count words by key. Measured are

- the peak with copies of the state on another worker (``replication=1``) and without, for counts in compiled code, a
  Python ``reduce``, a ``process`` class, and a keyed sum of Arrow batches;
- the peak of the same ``process`` with its state in a store: every record is a read and a write of its key, in
  batches. The store is one Redis without copies, or a SQLite file for each worker;
- recovery after a worker is killed with SIGKILL at half of the peak: until its failure is declared, and from then
  until everything is replayed; records that are missing or counted twice in the results.

The peak is the rate between a fifth and four fifths of a run. Runs of different kinds alternate.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.sinks import Sink
from goffish.streaming.topology import Topology

_WORDS, _KEYS, _WINDOW = 10, 10_000, "1s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=3_000_000, help="words of a run")
    parser.add_argument("--arrow-records", type=int, default=20_000_000, help="records of a run with Arrow batches")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a run in which a worker is killed")
    parser.add_argument("--killed", type=int, default=1, help="workers that are killed at once; at most half of all")
    parser.add_argument("--store-batch", type=int, default=1000)
    parser.add_argument("--redis-server", default=shutil.which("redis-server"), help="program [default: SQLite]")
    parser.add_argument("--parts", nargs="+", choices=("peaks", "recovery"), default=("peaks", "recovery"))
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peak = 0.0
        if "peaks" in given.parts:
            peak = peaks(given, folder)
        if "recovery" in given.parts:
            recovery(given, folder, peak)


# Flows.


def line(number: int) -> str:
    """Return a line of words."""
    return " ".join(f"word{(number * 7919 + i * 104_729) % _KEYS}" for i in range(_WORDS))


_LINES = [line(number) for number in range(1000)]


def _line(number: int) -> str:
    return _LINES[number % len(_LINES)]


def words(records: int, workers: int, finish: Callable[[gf.stream.KeyedStream], gf.stream.Stream]) -> Topology:
    """Return a flow that reads lines on every worker, splits them, and does something with the words."""
    flow = gf.stream.Flow("words")
    count = records // _WORDS // workers
    first, *others = (flow.source(gf.stream.generate(_line, count=count), name=f"lines-{n}") for n in range(workers))
    split = (first.union(*others) if others else first).flat_map(str.split, name="split")
    finish(split.key_by(lambda word: word)).sink(Sink())
    return flow.check()


def columns(folder: Path, records: int, workers: int) -> Topology:
    """Return a flow with a keyed sum of Arrow batches."""
    folder.mkdir(exist_ok=True)
    for part in range(workers):
        path = folder / f"{part}.parquet"
        if not path.exists():
            random, count = np.random.default_rng(part), records // workers
            keys, values = random.integers(0, 10 * _KEYS, count), random.integers(0, 1000, count)
            pq.write_table(pa.table({"key": keys, "value": values}), path, row_group_size=1 << 20)
    flow = gf.stream.Flow("columns")
    read = flow.source(gf.stream.read_parquet(folder))
    read.key_by("key").sum("value", name="total").sink(Sink())
    return flow.check()


class Kept:
    """Counts words in the state of the flow."""

    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Callable[[Any], None]) -> None:
        state["total"] = state.get("total", 0) + 1


class Stored:
    """Counts words in a store, which is read and written for each batch of records."""

    def __init__(self, connect: Callable[[], Any], size: int) -> None:
        self._store, self._size = connect(), size
        self._waiting: Counter[str] = Counter()
        self._count = 0

    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Callable[[Any], None]) -> None:
        self._waiting[key] += 1
        self._count += 1
        if self._count >= self._size:
            self._store.add(self._waiting)
            self._waiting, self._count = Counter(), 0


class Redis:
    """The protocol of Redis, as far as it is needed; faster than the package for Python."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._input = self._socket.makefile("rb")

    def _send(self, *arguments: str) -> None:
        parts = [f"${len(one)}\r\n{one}\r\n" for one in arguments]  # texts are ASCII
        self._socket.sendall(f"*{len(parts)}\r\n{''.join(parts)}".encode())

    def add(self, added: Counter[str]) -> None:
        """Read the totals of keys, and write them."""
        self._send("MGET", *added)
        totals = []
        for _ in range(int(self._input.readline()[1:])):
            size = int(self._input.readline()[1:])
            totals.append(int(self._input.read(size + 2)) if size >= 0 else 0)
        pairs = zip(added.items(), totals, strict=True)
        self._send("MSET", *(text for (key, count), total in pairs for text in (key, str(total + count))))
        assert self._input.readline() == b"+OK\r\n"


class Sqlite:
    """A SQLite file of this worker."""

    def __init__(self, folder: str) -> None:
        self._file = sqlite3.connect(f"{folder}/{os.getpid()}.sqlite")
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, total INTEGER) WITHOUT ROWID")

    def add(self, added: Counter[str]) -> None:
        """Read the totals of keys, and write them."""
        keys = list(added)
        found: dict[str, int] = {}
        for at in range(0, len(keys), 500):
            some = keys[at : at + 500]
            marks = ", ".join("?" * len(some))
            found |= dict(self._file.execute(f"SELECT key, total FROM totals WHERE key IN ({marks})", some).fetchall())
        rows = [(key, found.get(key, 0) + count) for key, count in added.items()]
        self._file.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?)", rows)
        self._file.commit()


# Peaks.


def peaks(given: argparse.Namespace, folder: Path) -> float:
    """Print peaks; return that of counts with copies."""
    count, workers = given.records, given.workers
    redis = None if given.redis_server is None else str(folder / "redis.socket")
    connect = functools.partial(Sqlite, str(folder)) if redis is None else functools.partial(Redis, redis)
    store = "SQLite" if redis is None else "Redis"
    arrow = columns(folder / "in", given.arrow_records, workers)
    kept = words(count, workers, lambda keyed: keyed.process(Kept, name="total"))

    def stored(size: int) -> Topology:
        few = count if size > 1 else count // 10
        return words(few, workers, lambda keyed: keyed.process(lambda: Stored(connect, size), name="total"))

    total = lambda total, word: total + 1  # noqa: E731
    runs: dict[str, tuple[Topology, int]] = {}
    for name, flow in (
        ("count", words(count, workers, lambda keyed: keyed.count(name="total"))),
        ("reduce", words(count, workers, lambda keyed: keyed.reduce(total, initial=0, name="total"))),
        ("process", kept),
        ("Arrow sum", arrow),
    ):
        runs |= {f"{name}, r = {r}": (flow, r) for r in (0, 1)}
    runs[f"process, {store}, batches of {given.store_batch:,}"] = (stored(given.store_batch), 0)
    runs[f"process, {store}, record by record"] = (stored(1), 0)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    server = None
    if redis is not None:
        command = [given.redis_server, "--port", "0", "--unixsocket", redis, "--save", "", "--dir", str(folder)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not Path(redis).exists():
            time.sleep(0.05)
    try:
        for _ in range(given.repeats):
            for name, (flow, replication) in runs.items():
                rates[name].append(rate_of(flow, workers, replication))
    finally:
        if server is not None:
            server.kill()
            server.wait()
    found = {name: statistics.median(some) for name, some in rates.items()}
    print(f"\nPeaks with {workers} workers, medians of {given.repeats} runs\n")
    rows = []
    for name, rate in found.items():
        baseline, sign = found["process, r = 1"], "store" if "batches" in name or "record by" in name else "cost"
        before = found[name[:-1] + "0"] if name.endswith("1") else None
        note = f"{1 - rate / before:.1%}" if before else f"{baseline / rate:.1f}x" if sign == "store" else ""
        rows.append((name, f"{rate:,.0f}", note))
    _harness.print_table(("flow", "records/s", "cost of r = 1; or process, r = 1 / this"), rows)
    return found["count, r = 1"]


def rate_of(flow: Topology, workers: int, replication: int) -> float:
    """Return the records per second in the middle of a run."""
    cluster = Cluster(flow, workers, replication=replication)
    seen = [(0.0, 0)]
    try:
        while not cluster.finished:
            cluster.poll()
            seen.append((time.monotonic(), cluster.metrics()["total"].received))
    finally:
        cluster.close()
    total = seen[-1][1]
    times = [next(at for at, count in seen if count >= share * total) for share in (0.2, 0.8)]
    counts = [next(count for _, count in seen if count >= share * total) for share in (0.2, 0.8)]
    return (counts[1] - counts[0]) / (times[1] - times[0])


# Recovery.


class Observed(Cluster):
    """A cluster that keeps the events of its workers."""

    def _note(self, events: list[list[Any]]) -> None:
        self.events = [*getattr(self, "events", []), *events]
        super()._note(events)


def recovery(given: argparse.Namespace, folder: Path, peak: float) -> None:
    """Kill workers under load, and print the times of recovery."""
    if not peak:
        flow = words(given.records, given.workers, lambda keyed: keyed.count(name="total"))
        peak = statistics.median(rate_of(flow, given.workers, 1) for _ in range(3))
    rate = peak / 2
    lost = f"{given.killed} of {given.workers} workers"
    print(f"\nRecovery of {lost} at {rate:,.0f} records/s, half of the peak of count with r = 1\n")
    runs = [killed(given, folder / f"out-{run}", rate) for run in range(given.repeats)]
    columns = ("killed to declared, s", "to replayed, s", "to new copies, s", "lost", "counted twice")
    lines = [("median", [statistics.median(one) for one in zip(*runs, strict=True)])]
    _harness.print_table(
        ("run", *columns),
        (
            (f"{name}", *(f"{value:.3f}" for value in values[:3]), *(f"{value:,.0f}" for value in values[3:]))
            for name, values in [*enumerate(runs, 1), *lines]
        ),
    )


def killed(given: argparse.Namespace, out: Path, rate: float) -> list[float]:
    """Kill workers.

    Returns the seconds until the first failure is declared, and from then until everything is replayed and until there
    are copies of all again; and how many records are missing and counted twice.
    """
    workers, lines = given.workers, rate / _WORDS / given.workers
    count = round(lines * given.seconds)

    def timed(number: int) -> tuple[str, float]:
        return _line(number), 1.7e9 + number / lines

    def at(record: tuple[str, float]) -> float:
        return record[1]

    flow = gf.stream.Flow("killed")
    sources = [
        flow.source(gf.stream.generate(timed, count=count, rate=lines), time=at, name=f"lines-{n}")
        for n in range(workers)
    ]
    split = sources[0].union(*sources[1:]).flat_map(lambda record: record[0].split(), name="split")
    counted = split.key_by(lambda word: word).window(gf.stream.tumbling(_WINDOW)).count(name="total")
    counted.sink(gf.stream.write_json_lines(out))
    cluster = Observed(flow.check(), workers, checkpoint_s=0.5)
    try:
        begun = time.monotonic()
        while time.monotonic() < begun + given.seconds / 2:
            cluster.poll()
        # Every second one on the ring, as neighbors have the copies of each other.
        victims = sorted(cluster.pids)[::-2][: given.killed]
        for victim in victims:
            os.kill(cluster.pids[victim], signal.SIGKILL)
        end = time.monotonic()
        while not cluster.finished:
            cluster.poll()
    finally:
        cluster.close()
    declared = min(when for kind, when, _ in cluster.events if kind == "failure")
    replayed, copied = (
        sorted(when for kind, when, _ in cluster.events if kind == wanted and when >= declared)[len(victims) - 1]
        for wanted in ("replayed", "in sync")
    )
    expected: Counter[str] = Counter()
    for number in range(count):
        expected.update(_line(number).split())
    found: Counter[str] = Counter()
    for path in out.glob("*.jsonl"):
        for text in path.read_text().splitlines():
            row = json.loads(text)
            found[row["key"]] += row["count"]
    expected = Counter({key: workers * total for key, total in expected.items()})
    wrong = [sum((expected - found).values()), sum((found - expected).values())]
    return [declared - end, replayed - declared, copied - declared, *map(float, wrong)]


if __name__ == "__main__":
    main()
