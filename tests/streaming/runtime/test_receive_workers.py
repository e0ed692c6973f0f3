"""Records that clients push to several workers: each that was acknowledged counts once, whichever worker is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from goffish import stream
from goffish.streaming.flow import Flow
from goffish.streaming.runtime.cluster import Cluster
from tests.streaming.pushing import free_port, post


def add(total: int, record: dict[str, Any]) -> int:
    return total + record["n"]


def flow_of(folder: Path, port: int) -> Flow:
    flow = Flow("pushed")
    source = stream.receive_http(
        f"127.0.0.1:{port}", journal=folder / "journal", max_body=4096, max_waiting=1 << 20, max_journal=1 << 17
    )
    totals = flow.source(source).key_by("k").reduce(add, initial=0, name="totals")
    totals.sink(stream.write_json_lines(folder / "out"))
    return flow


class Client:
    """Sends records until it is stopped, and repeats each request until it is acknowledged."""

    def __init__(self, port: int) -> None:
        self.sent: Counter[str] = Counter()
        self.requests = 0
        self._port, self._stopped = port, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)  # a test that fails does not wait for it
        self._thread.start()

    def _work(self) -> None:
        rng = random.Random(7)
        while not self._stopped.is_set():
            rows = [{"k": f"k{rng.randrange(20)}", "n": rng.randrange(1, 5)} for _ in range(10)]
            body = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
            while True:
                try:
                    answer = post(self._port, body, Idempotency_Key=f"{self.requests}")
                except (OSError, ValueError):
                    answer = None
                except Exception as error:
                    assert "http.client" in type(error).__module__
                    answer = None
                if answer is not None and answer.status == 200:
                    break
                time.sleep(0.02)
            self.requests += 1
            for row in rows:
                self.sent[row["k"]] += row["n"]

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def totals_of(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for file in folder.glob("part-*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[row["k"]] = max(found.get(row["k"], 0), row["value"])
    return found


def run_until(cluster: Cluster, condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        cluster.poll()
        assert time.monotonic() < end, "the condition does not hold"


def settle(cluster: Cluster, folder: Path, sent: Counter[str]) -> None:
    """Wait until all records are counted, and show that none counts twice."""
    run_until(cluster, lambda: totals_of(folder) == sent)
    end = time.monotonic() + 1.0
    run_until(cluster, lambda: time.monotonic() > end)
    assert totals_of(folder) == sent


@pytest.mark.slow
def test_the_worker_that_receives_is_killed(tmp_path: Path) -> None:
    """Breaks when the journal is trimmed before a checkpoint has what it holds, or read again from the beginning."""
    port = free_port()
    cluster = Cluster(flow_of(tmp_path, port).check(), 2, checkpoint_s=0.1, checkpoint=tmp_path / "ck")
    client = Client(port)
    try:
        run_until(cluster, lambda: min((tmp_path / "journal").glob("*.journal"), default=Path("0")).stem > "0" * 16)
        os.kill(cluster.pids[0], signal.SIGKILL)
        before = client.requests
        run_until(cluster, lambda: client.requests > before + 50)
        client.stop()
        settle(cluster, tmp_path / "out", client.sent)
        assert cluster.failures == 1
    finally:
        client._stopped.set()
        cluster.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_workers_are_killed(tmp_path: Path, seed: int) -> None:
    port, rng = free_port(), random.Random(seed)
    client = Client(port)
    try:
        for last in (False, False, False, True):
            cluster = Cluster(
                flow_of(tmp_path, port).check(), rng.choice((1, 2, 3)), checkpoint_s=0.1, checkpoint=tmp_path / "ck"
            )
            try:
                before, more = client.requests, rng.randrange(1, 200)
                run_until(cluster, lambda: client.requests > before + more)  # noqa: B023
                if last:
                    client.stop()
                    settle(cluster, tmp_path / "out", client.sent)
                else:
                    for pid in cluster.pids.values():
                        os.kill(pid, signal.SIGKILL)
            finally:
                cluster.close()
    finally:
        client._stopped.set()
