"""Partitions of sources that move to workers that join: each record is read once, whichever workers are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster

FILES = 8


def make_flow(source: Path, target: Path) -> gf.stream.Flow:
    flow = gf.stream.Flow("partitions")
    events = flow.source(gf.stream.read_json_lines(str(source), follow=True), name="events")
    events.sink(gf.stream.write_json_lines(target / "all"), name="all")
    events.key_by("user").sum("n", name="sums").sink(gf.stream.write_json_lines(target / "sums"), name="totals")
    return flow


def rows_of(folder: Path) -> list[dict[str, int]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


class Files:
    """Files to which records are added, as evenly as they are read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.sums = folder, 0, Counter[int]()
        folder.mkdir()

    def add(self, count: int) -> None:
        for file in range(FILES):
            with (self.folder / f"{file}.jsonl").open("a") as opened:
                for _ in range(count):
                    self.sums[self.number % 40] += self.number
                    opened.write(json.dumps({"user": self.number % 40, "n": self.number}) + "\n")
                    self.number += 1

    def check(self, target: Path) -> None:
        """Compare what sinks have received with what was written."""
        assert sorted(row["n"] for row in rows_of(target / "all")) == list(range(self.number))
        sums = Counter[int]()
        for row in rows_of(target / "sums"):
            sums[row["user"]] = max(sums[row["user"]], row["n"])
        assert sums == self.sums


def poll_until(cluster: Cluster, done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, cluster.metrics()
        cluster.poll()


def shares(cluster: Cluster) -> list[int]:
    """Return how many partitions each worker reads."""
    reports = [one.report for one in cluster._processes.values()]
    return sorted(report["partitions"]["events"] if report else -1 for report in reports)


slow = pytest.mark.slow


@pytest.mark.parametrize(("workers", "kills"), [(2, 0), pytest.param(3, 1, marks=slow), pytest.param(3, 2, marks=slow)])
def test_workers_that_join_read_partitions(tmp_path: Path, workers: int, kills: int) -> None:
    """Breaks when all partitions stay where they were, or records are lost or read twice as they move."""
    even = [4, 4] if workers == 2 else [2, 3, 3]
    rng, files = random.Random(kills), Files(tmp_path / "in")
    files.add(500)
    flow = make_flow(files.folder, tmp_path / "out")
    cluster = Cluster(flow.check(), 1, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        poll_until(cluster, lambda: cluster.metrics()["events"].received > 100)
        assert shares(cluster) == [FILES]
        cluster.scale(workers)
        for _ in range(kills):
            poll_until(cluster, lambda: cluster.arranged and len(cluster.pids) == workers)
            end = time.monotonic() + rng.uniform(0.0, 1.0)
            poll_until(cluster, lambda end=end: time.monotonic() > end)  # type: ignore[misc]
            files.add(200)
            os.kill(rng.choice(list(cluster.pids.values())), signal.SIGKILL)
            poll_until(cluster, lambda: not cluster.arranged)
        poll_until(cluster, lambda: cluster.arranged and shares(cluster) == even)
        files.add(500)
        poll_until(cluster, lambda: len(rows_of(tmp_path / "out" / "all")) >= files.number)
        cluster.stop()
        cluster.run()
        assert cluster.failures == kills
    finally:
        cluster.close()
    files.check(tmp_path / "out")
