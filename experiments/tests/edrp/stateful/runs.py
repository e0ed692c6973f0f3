"""Machines, load and what is expected of every run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil

from experiments.edrp.stateful.definition import Operator, Stream
from experiments.edrp.stateful.job import Job
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import LocalMachines

CATALOGUE = read_catalogue("ec2-2013")
KIND = CATALOGUE.number("m3.xlarge")
#: Two sources, stateless tasks, and tasks that count.
COUNTS = Stream(("left", "right"), (Operator("check", "pass", ("left", "right"), 2),
                                    Operator("count", "count", ("check",), 4)), ("count",))  # fmt: skip


def started(provider: LocalMachines, count: int) -> list[int]:
    """Machines that run."""
    machines = [provider.start(KIND) for _ in range(count)]
    until = time.monotonic() + 30
    while any(provider.states()[machine] != "running" for machine in machines):
        assert time.monotonic() < until
        time.sleep(0.01)
    return machines


def executors() -> list[psutil.Process]:
    """Processes of executors of this process's machines; zombies are gone."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE and "stateful.executor" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill(job: Job, operator: str, how: signal.Signals = signal.SIGKILL) -> int:
    """Kill one executor of an operator, once there is one; gives its process id."""
    until = time.monotonic() + 10
    while True:
        for pid, executor in job.processes().items():
            if executor.operator == operator:
                os.kill(pid, how)
                return pid
        assert time.monotonic() < until
        time.sleep(0.005)


class Load:
    """Items for all sources, in turn; keys of a source are its own, so counts by key do not depend on timing."""

    def __init__(self, job: Job, rate: float = 300.0, keys: int = 13) -> None:
        self._job, self._rate, self._keys = job, rate, keys
        self.sent: dict[str, list[str]] = {source: [] for source in job.stream.sources}
        self._stop = threading.Event()
        self._turn = 0

    def send(self, items: int) -> None:
        for _ in range(items):
            names = self._job.stream.sources
            source, self._turn = names[self._turn % len(names)], self._turn + 1
            key = f"{source}-{self._turn * 7 % self._keys}"
            self.sent[source].append(key)
            self._job.send(source, key, self._turn)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send in the background."""

        def work() -> None:
            begun, done = time.monotonic(), 0
            while not self._stop.wait(0.004):
                due = int((time.monotonic() - begun) * self._rate)
                self.send(due - done)
                done = due

        self._stop.clear()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def check(self, operator: str, sources: Sequence[str], settles_s: float = 20.0) -> None:
        """What an undisturbed run of an operator that counts gives: all, once, and by key in order."""
        assert self._job.settle([operator], settles_s), f"{operator} did not settle"
        arrivals = self._job.arrivals(operator)
        expected = Counter(key for source in sources for key in self.sent[source])
        assert Counter(arrival.key for arrival in arrivals) == expected
        for key in expected:
            some = [arrival for arrival in arrivals if arrival.key == key]
            assert [arrival.value for arrival in some] == list(range(1, len(some) + 1))
            assert all(a.number < b.number for a, b in pairwise(some))


@contextmanager
def machines_of(folder: Path, count: int) -> Iterator[tuple[LocalMachines, list[int]]]:
    """A provider with machines; when they are gone, so is everything on them."""
    with LocalMachines(CATALOGUE, folder=folder) as provider:
        yield provider, started(provider, count)
    until = time.monotonic() + 5
    while (left := executors()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not left
