"""Lateness of a server of a live graph by input rate: ``python benchmarks/live_lateness.py``.

`goffish stream serve` runs in a process with a graph of 20,000 vertices and 100,000 edges; each record adds an edge or
removes the oldest one. First, records are pushed as fast as they are taken: the peak. Then they are pushed when they
are due, at parts of that rate, in requests with all that are due. The lateness of an event is the time from when its
record was due until a subscriber has the event. Above the peak, the client waits for the server, and no record is lost.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import psutil
import pyarrow as pa

from goffish.client import Client, ServiceError

_VERTICES, _EDGES, _MOST = 20_000, 100_000, 20_000
_QUERY = "DETECT Degree(degree >= 10, direction: in) AS q"
_PARTS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.2)


class Stream:
    """Records that add edges and remove the oldest ones in turn."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._ends = (_VERTICES * rng.power(0.4, 65_521)).astype(np.int64), rng.integers(0, _VERTICES, 65_537)
        self.count = 0

    def next(self, times: Any) -> pa.Table:
        """Return the next records, one for each time in seconds."""
        number = self.count + np.arange(len(times))
        self.count += len(times)
        adds = number % 2 == 0
        edges = number // 2 - np.where(adds, 0, _EDGES)
        # The ends follow from the id, as removals repeat them.
        sources, targets = (column[edges % len(column)] for column in self._ends)
        op = pa.DictionaryArray.from_arrays(np.where(adds, 0, 1).astype(np.int32), ["+e", "-e"])
        return pa.table({"t": times, "op": op, "id": edges, "src": sources, "dst": targets})


class Server:
    """`goffish stream serve` in a process, a client that pushes, and one that subscribes."""

    def __init__(self, folder: Path) -> None:
        queries = folder / "queries.cgql"
        queries.write_text(_QUERY + ";\n")
        command = [
            sys.executable, "-m", "goffish", "stream", "serve", str(queries), "--state", str(folder / "state"),
            "--lateness", "0", "--listen", "127.0.0.1:0",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        address = ""
        while not address:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the server has ended")
            found = re.search(r"127\.0\.0\.1:\d+", line)
            address = found[0] if found else ""
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.client, self._reader = Client(address), Client(address)
        self.lateness: list[float] = []
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            for events in self._reader.subscribe("q"):
                now = time.time()
                self.lateness += (now - np.asarray(events["time"].cast(pa.int64())) / 1e6).tolist()
        except ServiceError:
            return  # it was stopped

    @property
    def memory(self) -> float:
        """MiB in use."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    def close(self) -> None:
        """Stop the server."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def peak(server: Server, stream: Stream, seconds: float) -> float:
    """Push as fast as possible, and return records a second."""
    time.sleep(0.2)  # no two records are of the same time
    begun, last, first = time.time(), time.time() - 0.1, stream.count
    while last < begun + seconds:
        now = time.time()
        server.client.push_records(stream.next(np.linspace(last, now, _MOST, endpoint=False)))
        last = now
    return (stream.count - first) / (time.time() - begun)


def steady(server: Server, stream: Stream, rate: float, seconds: float) -> tuple[float, list[float], float]:
    """Push records when they are due; return how many were taken a second, lateness, and most seconds of backlog."""
    begun, done, total, backlog = time.time(), 0, int(rate * seconds), 0.0
    before, at = stream.count, len(server.lateness)
    while done < total:
        due = min(total, int((time.time() - begun) * rate))
        if due <= done:
            time.sleep(max(0.0, min(0.002, (done + 1) / rate - (time.time() - begun))))
            continue
        backlog = max(backlog, (due - done) / rate)
        count = min(due - done, _MOST)
        server.client.push_records(stream.next(begun + np.arange(done, done + count) / rate))
        done += count
    took = time.time() - begun
    time.sleep(0.5)  # the last events
    return (stream.count - before) / took, server.lateness[at:], backlog


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15, help="of each rate [default: 15]")
    seconds = parser.parse_args().seconds
    print(_harness.machine_line(("grpcio", "pyarrow")))
    print()
    with tempfile.TemporaryDirectory(prefix="goffish-lateness-") as folder:
        server, stream = Server(Path(folder)), Stream()
        try:
            peak(server, stream, 5)  # the graph, and all kernels
            most = peak(server, stream, seconds)
            print(f"Peak: {most / 1e3:,.0f} thousand records a second.\n")
            rows = []
            for part in _PARTS:
                time.sleep(1)
                taken, lateness, backlog = steady(server, stream, part * most, seconds)
                p50, p99, worst = 1e3 * np.quantile(lateness, [0.5, 0.99, 1.0])
                rows.append(
                    [f"{part:.0%}", f"{part * most / 1e3:,.0f}", f"{taken / 1e3:,.0f}", f"{len(lateness):,}"]
                    + [f"{value:,.1f}" for value in (p50, p99, worst)]
                    + [f"{1e3 * backlog:,.0f}", f"{server.memory:,.0f}"]
                )
            header = ["of the peak", "rate, 1,000/s", "taken, 1,000/s", "events"]
            _harness.print_table(
                [*header, "lateness p50, ms", "p99, ms", "max, ms", "longest backlog, ms", "memory, MiB"], rows
            )
            counts: dict[str, Any] = dict(server.client.topics().records)
            applied = counts["applied"]
            print(f"\nRecords: {stream.count:,} pushed, {applied:,} applied, {counts['late']:,} late.")
            assert applied == stream.count, counts
        finally:
            server.close()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
