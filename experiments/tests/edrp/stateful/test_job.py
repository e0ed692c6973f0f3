"""Reconfigurations of real processes under load (docs/specs/edrp.md, sections 3.6 and 7.6)."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import pytest

from experiments.edrp.stateful.definition import Deployment, Executor, spread
from experiments.edrp.stateful.job import Job
from goffish.cloud.providers import LocalMachines
from goffish.errors import InputError, JobError

from .runs import COUNTS, Load, executors, kill, machines_of, started

FIRST: Deployment = spread(COUNTS, {"check": [0], "count": [0, 1]})


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalMachines, Path]]:
    """Machines 0 and 1, for the whole module."""
    folder = tmp_path_factory.mktemp("machines")
    with machines_of(folder, 2) as (provider, found):
        assert found == [0, 1]
        yield provider, folder


def places(folder: Path) -> dict[str, set[int]]:
    """On which machines executors of each operator really run: an executor works in its machine's folder."""
    found: dict[str, set[int]] = {}
    for process in executors():
        operator = process.cmdline()[-1].split(".")[0]
        home = Path(process.cwd())
        assert home.parent == folder
        found.setdefault(operator, set()).add(int(home.name.removeprefix("machine-")))
    return found


def in_store(folder: Path) -> list[tuple[int, str]]:
    """Reconfiguration and task of every export in the data store."""
    with closing(sqlite3.connect(next(folder.glob("*.sqlite")))) as store:
        return sorted(store.execute("SELECT epoch, task FROM exports"))


def drawn(rng: np.random.Generator) -> Deployment:
    return spread(COUNTS, {o.name: rng.integers(0, 2, rng.integers(1, o.tasks + 1)).tolist() for o in COUNTS.operators})


def random_reconfigurations(provider: LocalMachines, folder: Path, count: int) -> None:
    rng = np.random.default_rng(4)
    with Job(COUNTS, provider, folder) as job:
        job.start(FIRST)
        load = Load(job)
        with load.running():
            for _ in range(count):
                time.sleep(0.1)
                wanted = drawn(rng)
                assert job.reconfigure(wanted).outcome == "done"
                assert sorted(job.deployment) == sorted(wanted)
        load.check("count", COUNTS.sources)
        assert job.dropped == 0
        assert {name: {e.machine for e in wanted if e.operator == name} for name in COUNTS.of} == places(folder)


def test_counts_and_order_survive_reconfigurations(machines: tuple[LocalMachines, Path]) -> None:
    """§7.6, first point; breaks when items are lost, doubled or overtake each other while state moves."""
    random_reconfigurations(*machines, 2)
    assert not executors()


@pytest.mark.slow
def test_counts_and_order_survive_many_reconfigurations(machines: tuple[LocalMachines, Path]) -> None:
    random_reconfigurations(*machines, 25)


def test_state_goes_where_it_is_needed(machines: tuple[LocalMachines, Path]) -> None:
    """Tasks that stay use their machine's swap area, others the data store; earlier exports are forgotten."""
    provider, folder = machines
    stored: list[list[tuple[int, str]]] = []

    def look(step: str) -> None:
        if step == "barrier A":
            stored.append(in_store(folder))

    with Job(COUNTS, provider, folder, watch=look) as job:
        with pytest.raises(AuthenticationError):
            Client(("127.0.0.1", job._door.port), authkey=b"guessed")
        job.start(FIRST)
        load = Load(job)
        load.send(200)
        # Tasks 0 and 2 stay on machine 0, 1 and 3 on machine 1.
        moved = (FIRST[0], Executor("count", 0, (0, 1)), Executor("count", 1, (2, 3)))
        assert job.reconfigure(moved).outcome == "done"
        swap = f"swap-{job._name}"
        names = [sorted(f.name for f in (folder / f"machine-{m}" / swap).iterdir()) for m in (0, 1)]
        assert names == [["1-check-0.json", "1-check-1.json", "1-count-0.json"], ["1-count-3.json"]]
        load.send(200)
        assert job.reconfigure(FIRST).outcome == "done"
        names = [sorted(f.name for f in (folder / f"machine-{m}" / swap).iterdir()) for m in (0, 1)]
        assert names[1] == ["2-count-3.json"]
        load.check("count", COUNTS.sources)
        assert job.dropped == 0
    assert stored == [
        [(1, "count/1"), (1, "count/2")],
        [(1, "count/1"), (1, "count/2"), (2, "count/1"), (2, "count/2")],
    ]
    assert not list(folder.glob("job-*"))


def test_kill_between_barriers_rolls_back(machines: tuple[LocalMachines, Path]) -> None:
    """§7.6, third point; breaks when the old deployment or its state does not come back, or sources do not keep."""
    provider, folder = machines
    extra = started(provider, 1)[0]
    steps: list[str] = []
    victims = {2: lambda: kill(job, "count"), 4: lambda: provider.fail(extra)}

    def watch(step: str) -> None:
        steps.append(step)
        if step == "started":
            victims.get(steps.count("started"), lambda: None)()

    with Job(COUNTS, provider, folder, watch=watch) as job:
        load = Load(job)
        job.start(FIRST)
        with load.running():
            for victim in ("worker", "machine"):
                counted = len(job.arrivals("count"))
                while len(job.arrivals("count")) < counted + 20:
                    time.sleep(0.01)
                found = job.reconfigure(spread(COUNTS, {"check": [1], "count": [extra, 0, 0]}))
                assert found.outcome == "rolled back" and "before it was" in found.reason, victim
                assert steps[-6:] == ["paused", "barrier A", "started", "rolled back", "started", "resumed"]
                assert job.deployment == FIRST
        load.send(100)
        assert job.reconfigure(spread(COUNTS, {"check": [1], "count": [1]})).outcome == "done"
        load.check("count", COUNTS.sources)
        assert job.dropped == 0
        with pytest.raises(InputError, match=f"machine {extra} is failed"):
            job.reconfigure(spread(COUNTS, {"check": [extra], "count": [1]}))


def test_late_barriers_and_lost_state(machines: tuple[LocalMachines, Path]) -> None:
    """A barrier that is not reached is called off; one that exported may be gone; what has no export is lost."""
    provider, folder = machines
    stopped = 0

    def watch(step: str) -> None:
        """Once the others have exported, kill one of them, and let the one that is late go on."""
        if step == "paused" and job.timeout_s > 1:
            until = time.monotonic() + 10
            while not (folder / f"machine-0/swap-{job._name}/2-check-1.json").exists():
                assert time.monotonic() < until
                time.sleep(0.01)
            kill(job, "check")
            os.kill(stopped, signal.SIGCONT)

    with Job(COUNTS, provider, folder, watch=watch) as job:
        job.start(FIRST)
        job.timeout_s = 0.5
        load = Load(job)
        load.send(100)
        stopped = kill(job, "check", signal.SIGSTOP)
        found = job.reconfigure(spread(COUNTS, {"check": [1], "count": [1]}))
        assert found.outcome == "called off" and "not at barrier A within 0.5 s" in found.reason
        assert found.down_s >= 0.5
        os.kill(stopped, signal.SIGCONT)
        load.send(100)
        load.check("count", COUNTS.sources)
        assert job.deployment == FIRST and job.dropped == 0
        job.timeout_s, stopped = 10.0, kill(job, "count", signal.SIGSTOP)
        assert job.reconfigure(FIRST).outcome == "done"
        load.check("count", COUNTS.sources)
        job.timeout_s = 0.5
        kill(job, "check")
        load.send(10)
        until = time.monotonic() + 10
        while not job.lost():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert job.lost() == [("check", 0), ("check", 1)] and not job.settle(timeout_s=0.1)
        with pytest.raises(JobError, match="task 0 of check has no executor any more"):
            job.reconfigure(FIRST)
    with pytest.raises(InputError, match="timeout_s = 0"):
        Job(COUNTS, provider, folder, timeout_s=0)
    with Job(COUNTS, provider, folder) as job, pytest.raises(InputError, match="machine 99 is not there"):
        job.start(spread(COUNTS, {"check": [99], "count": [0]}))
    assert not list(folder.glob("job-*"))
