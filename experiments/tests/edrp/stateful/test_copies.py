"""Machines that are killed, and copies that carry on (selective replication, Y13)."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from experiments.edrp.stateful.definition import Deployment, Operator, Stream, spread, with_copies
from experiments.edrp.stateful.job import Job
from goffish.scheduling.policies.replication.availability import Availability

from .runs import Load, machines_of, started

HOSTS = 4
#: Three queries that share operators; each is named by its last operator. `pair` reads items of two sources.
STREAM = Stream(
    ("left", "right"),
    (
        Operator("west", "pass", ("left",), 2), Operator("east", "pass", ("right",)),
        Operator("pair", "count", ("west", "east"), 2), Operator("ones", "count", ("west",)),
        Operator("rest", "count", ("east",), 2),
    ),
    ("pair", "ones", "rest"),
)  # fmt: skip
QUERIES = {
    "pair": ("west", "east", "pair"),
    "ones": ("west", "ones"),
    "rest": ("east", "rest"),
}
SOURCES = {"pair": ("left", "right"), "ones": ("left",), "rest": ("right",)}
PRIMARY = {"west": 0, "east": 1, "pair": 2, "ones": 0, "rest": 3}
#: Selected operators only: `rest` has none.
COPIES = {"west": [1], "east": [2], "pair": [3], "ones": [1]}


def hosts_of(operator: str) -> set[int]:
    return {PRIMARY[operator], *COPIES.get(operator, [])}


def deployment(machine_of: list[int]) -> Deployment:
    primary = spread(STREAM, {name: [machine_of[host]] for name, host in PRIMARY.items()})
    return with_copies(STREAM, primary, {name: [machine_of[h] for h in hosts] for name, hosts in COPIES.items()})


def runs(query: str, dead: set[int]) -> bool:
    """The model of docs/specs/edrp.md, section 2.4."""
    return all(hosts_of(operator) - dead for operator in QUERIES[query])


def days(folder: Path, crashes: list[set[int]], items: int = 60) -> np.ndarray:
    """Which queries ran on each day with these crashes, shape (days, queries); a query that ran lost nothing."""
    found = []
    with machines_of(folder, HOSTS) as (provider, machines):
        day = 0
        while day < len(crashes):
            # Broken queries begin anew; as long as none is, copies are made again of what is left.
            with Job(STREAM, provider, folder) as job:
                job.start(deployment(machines))
                load, broken = Load(job, keys=7), False
                while day < len(crashes) and not broken:
                    dead, day = crashes[day], day + 1
                    load.send(items)
                    for host in sorted(dead):
                        provider.fail(machines[host])
                    load.send(items)
                    up = [job.settle([query], 10.0 if runs(query, dead) else 0.4) for query in QUERIES]
                    for query, works in zip(QUERIES, up, strict=True):
                        if works:
                            load.check(query, SOURCES[query])
                    found.append(up)
                    broken = not all(up) or bool(job.lost())
                    if dead and day < len(crashes):
                        for host, machine in zip(sorted(dead), started(provider, len(dead)), strict=True):
                            machines[host] = machine
                        if not broken:
                            assert job.reconfigure(deployment(machines)).outcome == "done"
                assert job.dropped > 0
    return np.array(found)


def drawn(p: float, count: int, seed: int) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in np.random.default_rng(seed).random((count, HOSTS)) < p]


def expected(crashes: list[set[int]]) -> np.ndarray:
    return np.array([[runs(query, dead) for query in QUERIES] for dead in crashes])


def test_copies_take_over(tmp_path: Path) -> None:
    """Y13, three days; breaks when a copy diverges, does not carry on, is not made again, or items are there twice."""
    crashes = [{0}, {2}, {0, 3}]
    found = days(tmp_path, crashes)
    assert found.tolist() == [[True, True, True]] * 2 + [[True, True, False]]
    assert np.array_equal(found, expected(crashes))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_running_queries_are_as_predicted(tmp_path: Path) -> None:
    """Y13: 200 days, hosts killed with p = 0.1; exact availability from the planner's evaluator."""
    p, count = 0.1, 200
    exact = Availability([p] * HOSTS)
    predicted = np.mean(
        [exact.of({sum(1 << h for h in hosts_of(o)) for o in operators}) for operators in QUERIES.values()]
    )
    crashes = drawn(p, count, seed=13)
    found = days(tmp_path, crashes)
    assert np.array_equal(found, expected(crashes))
    shares = found.mean(axis=1)
    error = shares.std(ddof=1) / np.sqrt(count)
    print(f"running {shares.mean():.4f} +- {error:.4f}, predicted {predicted:.4f}")
    assert abs(shares.mean() - predicted) <= 3 * error


@pytest.mark.slow
def test_moves_and_kills_under_load(tmp_path: Path) -> None:
    """Copies of everything at random places; a machine is killed between, before or after the barriers of each change.

    Breaks when a copy that is ahead of another, or lost while state moves, leaves a gap or a duplicate.
    """
    rng = np.random.default_rng(8)
    outcomes: list[str] = []
    with machines_of(tmp_path, HOSTS) as (provider, machines):
        fatal, victim = "", 0

        def watch(step: str) -> None:
            if step == fatal:
                provider.fail(machines[victim])

        def drawn_deployment() -> Deployment:
            pairs = {o: [machines[h] for h in rng.permutation(HOSTS)[:2]] for o in PRIMARY}
            primary = spread(STREAM, {o: [pair[0]] for o, pair in pairs.items()})
            return with_copies(STREAM, primary, {o: [pair[1]] for o, pair in pairs.items()})

        with Job(STREAM, provider, tmp_path, watch=watch) as job:
            job.start(drawn_deployment())
            load = Load(job, rate=400, keys=7)
            with load.running():
                for turn in range(15):
                    time.sleep(0.2)
                    victim = int(rng.integers(HOSTS))
                    fatal = ("", "paused", "barrier A", "started")[turn % 4]
                    if turn % 5 == 0:
                        provider.fail(machines[victim])
                        fatal, machines[victim] = "", started(provider, 1)[0]
                    outcomes.append(job.reconfigure(drawn_deployment()).outcome)
                    if provider.states()[machines[victim]] != "running":
                        machines[victim] = started(provider, 1)[0]
                    assert not job.lost()
                    # What a roll-back has left of the copies is not enough for the next machine.
                    fatal = ""
                    if outcomes[-1] != "done":
                        assert job.reconfigure(drawn_deployment()).outcome == "done"
            for query in QUERIES:
                load.check(query, SOURCES[query])
            assert job.dropped > 0
    assert {"done", "rolled back"} <= set(outcomes)
