"""Memory and checkpoints of live graphs over time: ``python benchmarks/live_long_run.py``.

Three parts, of which `--parts` names some:

- ``window``: updates add an edge or remove the oldest one in turn, and both vertices and edges are always new ones, so
  that labels come and go; queries have a window. Memory and the tables of labels must not grow once it is full.
- ``replay``: the edges of a graph as large as LiveJournal (4.0 million vertices, 68 million edges, made by R-MAT), with
  no ids, so that edges are named by their ends.
- ``checkpoints``: a live graph in a folder takes updates at some rates in a process that is killed just before a
  checkpoint, when most of the log must be replayed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import _harness
import numpy as np
import psutil
import pyarrow as pa

import goffish as gf
from goffish.streaming.graphs.durable import checkpoint_age

_BATCH = 20_000
_QUERIES = """
DETECT Degree(degree >= 20) WINDOW 3s AS busy;
DETECT Component(min_size: 50) WINDOW 2s AS parts;
DETECT Match(edge:{type = rare}) WINDOW 3s AS rare
"""


def memory() -> float:
    """MiB in use."""
    return float(psutil.Process().memory_info().rss) / 2**20


class Window:
    """Updates that add edges and remove the oldest ones, and vertices without edges: eight of each, and one vertex."""

    def __init__(self, live: int, rate: float) -> None:
        self._live, self._rate = live, rate
        self.count = 0

    def next(self, size: int) -> pa.Table:
        """Return the next updates."""
        number = self.count + np.arange(size)
        self.count += size
        block, place = number // 17, number % 17
        adds, ends = (place % 2 == 0) & (place < 16), place == 16
        edges = 8 * block + place // 2 - np.where(adds, 0, self._live)
        # Ends follow from the id, as removals repeat them; the vertices move on with the edges.
        first = edges // 8
        sources = first + (edges * 2_654_435_761 % 65_521) ** 2 % 20_011
        targets = first + edges * 40_503 % 20_011
        gone = (8 * block - self._live) // 8 - 1  # no edge has this vertex any more
        op = pa.DictionaryArray.from_arrays(
            np.where(ends, 2, np.where(adds, 0, 1)).astype(np.int32), ["+e", "-e", "-v"]
        )
        kind = pa.DictionaryArray.from_arrays((edges % 1000 > 0).astype(np.int32), ["rare", "usual"])
        return pa.table({
            "t": number / self._rate, "op": op, "id": np.where(ends, gone, edges), "src": sources, "dst": targets,
            "type": kind,
        })  # fmt: skip


def window(updates: int) -> None:
    stream = Window(200_000, 100_000.0)
    live = gf.stream.LiveGraph(lateness=0, events=10_000)
    live.submit(_QUERIES)
    rows, begun, at = [], time.perf_counter(), 0.0
    tables = live._engine.tables
    for part in range(1, 21):
        before = stream.count
        while stream.count < updates * part // 20:
            live.feed(stream.next(_BATCH))
        now = time.perf_counter() - begun
        timers = sum(query._view._timers[2] for query in live._engine.queries.all.values())
        rows.append([
            f"{stream.count / 1e6:,.0f}", f"{(stream.count - before) / (now - at) / 1e3:,.0f}",
            f"{live.num_edges / 1e6:,.2f}", f"{tables[0].count / 1e6:,.2f}", f"{tables[1].count / 1e6:,.2f}",
            f"{timers / 1e6:,.2f}", f"{memory():,.0f}",
        ])  # fmt: skip
        print(f"{stream.count:,} updates, {memory():,.0f} MiB", file=sys.stderr)
        at = now
    header = ["million updates", "1,000/s", "million edges", "labels of vertices", "of edges", "timers", "MiB"]
    _harness.print_table(header, rows)
    print(f"\n{live.counts}\n")


def replay(edges: int) -> None:
    rng = np.random.default_rng(5)
    live, begun, done, peak = gf.stream.LiveGraph(lateness=0), time.perf_counter(), 0, 0.0
    rows, size = [], 200_000
    while done < edges:
        sources, targets = _rmat(rng, 22, size)
        op = pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), ["+e"])
        times = (done + 1 + np.arange(size)) * 1e-3
        live.feed(pa.table({"t": times, "op": op, "src": sources, "dst": targets}))
        done += size
        peak = max(peak, memory())
        if done * 10 // edges > (done - size) * 10 // edges:
            rows.append([
                f"{done / 1e6:,.1f}", f"{live.num_vertices / 1e6:,.2f}", f"{live.num_edges / 1e6:,.1f}",
                f"{done / (time.perf_counter() - begun) / 1e3:,.0f}", f"{memory():,.0f}", f"{peak:,.0f}",
            ])  # fmt: skip
    header = ["million records", "million vertices", "million edges", "1,000/s on average", "MiB", "MiB at most"]
    _harness.print_table(header, rows)
    print()


def _rmat(rng: np.random.Generator, scale: int, size: int) -> tuple[Any, Any]:
    """Return random edges of R-MAT with the parameters of Graph 500."""
    sources, targets = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for _ in range(scale):
        down, right = rng.random(size) < 0.24, rng.random(size)
        right = right < np.where(down, 0.05 / 0.24, 0.19 / 0.76)
        sources, targets = 2 * sources + down, 2 * targets + right
    return sources, targets


def checkpoints(rates: list[float]) -> None:
    rows = []
    for rate in rates:
        with tempfile.TemporaryDirectory(prefix="goffish-checkpoints-") as folder:
            command = [sys.executable, __file__, "--child", folder, "--rates", str(rate)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            assert found.returncode == -signal.SIGKILL, found.stderr
            noted = json.loads(found.stdout.splitlines()[-1])
            begun = time.perf_counter()
            live = gf.stream.LiveGraph(lateness=0, state=folder)
            recovery = time.perf_counter() - begun
            assert live.counts["applied"] == noted["applied"]
            live.close()
        age = noted["age"]
        rows.append([
            f"{rate:,.0f}", f"{age:.1f}", f"{noted['expected']:.1f}", f"{age / noted['expected']:.2f}",
            f"{noted['cost']:.2f}", f"{noted['cost'] / age:.1%}", f"{recovery:.1f}",
        ])  # fmt: skip
    header = [
        "updates/s",
        "between checkpoints, s",
        "by the formula",
        "ratio",
        "checkpoint, s",
        "of the time",
        "recovery, s",
    ]
    _harness.print_table(header, rows)


def child(folder: str, rate: float) -> None:
    """Take updates at a rate until the third checkpoint is due, and be killed."""
    stream, at = Window(100_000, rate), list[float]()
    live = gf.stream.LiveGraph(lateness=0, state=folder)
    live.submit(_QUERIES)
    live.feed(stream.next(200_000))
    live.checkpoint()
    live.before_checkpoints(lambda: at.append(time.monotonic()))
    assert live._folder is not None
    policy, size = live._folder.policy, max(1, int(rate / 50))
    begun, first = time.monotonic(), stream.count
    by_formula = 0.0
    while True:
        due = int((time.monotonic() - begun) * rate) - (stream.count - first)
        if due < size:
            time.sleep(size / rate / 4)
            continue
        count = len(at)
        expected = checkpoint_age(policy._rate, policy._volume, policy.cost, policy.replay)
        live.feed(stream.next(min(due, _BATCH)))
        if len(at) > count:
            by_formula = expected
        if len(at) == 2 and time.monotonic() - at[1] > 0.9 * (at[1] - at[0]):
            noted = {
                "age": at[1] - at[0], "expected": by_formula, "cost": policy.cost, "applied": live.counts["applied"]
            }  # fmt: skip
            print(json.dumps(noted), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=["window", "replay", "checkpoints"], help="[default: all]")
    parser.add_argument("--updates", type=int, default=100_000_000, help="of the first part [default: 10^8]")
    parser.add_argument("--edges", type=int, default=68_000_000, help="of the second part [default: 68 million]")
    parser.add_argument("--rates", type=float, nargs="*", default=[1e3, 1e4, 1e5, 2e5], help="of the last part")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.rates[0])
    print(_harness.machine_line(("pyarrow",)))
    print()
    for name, call in (
        ("window", lambda: window(given.updates)), ("replay", lambda: replay(given.edges)),
        ("checkpoints", lambda: checkpoints(given.rates)),
    ):  # fmt: skip
        if name in given.parts:
            call()


if __name__ == "__main__":
    main()
