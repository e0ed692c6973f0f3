"""The online scheduler's rule (docs/specs/latency-aware.md, sections 3.1, 7.5), and what it is fed (§2.3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.latency_aware.generators import paper_problem
from experiments.latency_aware.online import Running, SchedulerSettings, changed, cpu_demand, schedule, smoothed
from experiments.latency_aware.throughput import most_throughput, reserved_cpu, throughput_factor
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.ant_system import Ants
from goffish.scheduling.policies.latency_aware.policy import worth_it
from goffish.scheduling.policies.latency_aware.score import PlacementProblem, evaluate
from tests.scheduling.policies.latency_aware.cases import chain_of_three

RULES = SchedulerSettings(ants=Ants(iterations=40, stall=20))


def named(problem: PlacementProblem, place: list[int]) -> tuple[str, ...]:
    return tuple(problem.hosts[host] for host in place)


def turn(problem: PlacementProblem, running: Running | None, now: float):  # type: ignore[no-untyped-def]
    return schedule(problem, running, now, np.random.default_rng(0), RULES)


def test_reasons() -> None:
    """First, young, unchanged, changed without a gain, and placed anew."""
    problem = chain_of_three()
    first = turn(problem, None, 0.0)
    assert first.reason == "first"
    assert evaluate(problem, [problem.hosts.index(h) for h in first.running.hosts]).value == pytest.approx(1.8333373)
    assert turn(problem, first.running, 29.0).reason == "young"
    assert turn(problem, first.running, 30.0).reason == "unchanged"
    more = replace(problem, cpu=problem.cpu * 1.15)
    idle = turn(more, first.running, 30.0)
    assert idle.reason == "no gain"
    assert idle.running.hosts == first.running.hosts
    assert idle.running.since_s == 0.0
    assert idle.running.problem is more
    roomy = replace(problem, cpu_capacity=np.array([130.0, 130.0]))
    bad = Running(named(problem, [0, 1, 0]), 0.0, problem)
    assert turn(roomy, bad, 40.0).reason == "unchanged"
    less = replace(roomy, cpu=problem.cpu * 0.8)
    moved = turn(less, bad, 40.0)
    assert moved.reason == "placed"
    assert moved.running.since_s == 40.0
    assert len(set(moved.running.hosts)) == 1
    assert moved.score is not None
    assert moved.score.value == pytest.approx(0.5)


def test_a_violation_is_acted_on_though_little_changed() -> None:
    """Limits at 95 points: 3 of 31.6 fit, 3 of 31.7 do not (§2.5)."""
    problem = replace(chain_of_three(), cpu=np.full(3, 31.6))
    running = turn(problem, None, 0.0).running
    over = replace(problem, cpu=np.full(3, 31.7))
    assert not changed(problem, over, RULES)
    assert turn(over, running, 40.0).reason == "placed"


def test_a_lost_host_is_left_at_once() -> None:
    """Though the placement is young; the others stay where they are if that is good."""
    problem, _ = paper_problem("R2")
    running = turn(problem, None, 0.0).running
    gone = running.hosts[-1]
    left = [at for at, name in enumerate(problem.hosts) if name != gone]
    fewer = replace(
        problem, cpu_capacity=problem.cpu_capacity[left], memory_capacity=problem.memory_capacity[left],
        latency_ms=problem.latency_ms[np.ix_(left, left)], allowed=problem.may[:, left],
        hosts=tuple(problem.hosts[at] for at in left),
    )  # fmt: skip
    found = turn(fewer, running, 5.0)
    assert found.reason == "placed"
    assert gone not in found.running.hosts
    assert found.score is not None
    assert found.score.violations == 0


def test_what_counts_as_a_change() -> None:
    """Demands by more than 10 %, latencies by more than 20 %, hosts; their order does not matter."""
    problem = chain_of_three()
    for factor, yes in ((1.09, False), (1.11, True), (0.89, True)):
        assert changed(problem, replace(problem, cpu=problem.cpu * factor), RULES) is yes
    for factor, yes in ((1.19, False), (1.21, True)):
        assert changed(problem, replace(problem, latency_ms=problem.latency_ms * factor), RULES) is yes
    assert changed(problem, replace(problem, hosts=("0", "2")), RULES)
    assert not changed(problem, replace(problem, hosts=("1", "0")), RULES)


def test_hysteresis() -> None:
    """1 % of the score, or fewer violations whatever the score."""
    problem = chain_of_three()
    score = evaluate(problem, [0, 1, 0])
    assert not worth_it(score, score._replace(value=score.value * 0.991), 0.01)
    assert worth_it(score, score._replace(value=score.value * 0.99), 0.01)
    assert not worth_it(score, score, 0.0)
    assert worth_it(score._replace(violations=2), score._replace(value=9.0, violations=1), 0.01)
    assert not worth_it(score, score._replace(value=0.1, violations=1), 0.01)


def test_adaptation() -> None:
    """§7.5 (5): hosts in use rise and fall with the load, and nothing moves while it stays the same."""
    problem, _ = paper_problem("R2")
    running, used, moves = None, [], 0
    for now in range(0, 1200, 10):
        load = 2.0 if 300 <= now < 900 else 1.0
        before = running
        running = turn(replace(problem, cpu=problem.cpu * load), running, float(now)).running
        moves += before is not None and running.hosts != before.hosts
        used.append(len(set(running.hosts)))
    assert used[29] < used[89]
    assert used[-1] == used[29]
    assert moves == 2


def test_demand() -> None:
    """§2.3: a thread takes a core at most; as printed, the whole host; a saturated one by what it leaves undone."""
    assert cpu_demand([0.5, 1.0], [30.0, 150.0]).tolist() == [15.0, 100.0]
    assert cpu_demand([0.5, 1.0], [30.0, 150.0], one_thread=False).tolist() == [15.0, 150.0]
    found = cpu_demand([0.9, 1.0, 1.0], [100.0] * 3, arriving=[20.0, 20.0, 5.0], processed=[10.0, 10.0, 10.0])
    assert found.tolist() == [90.0, 200.0, 100.0]


def test_smoothing() -> None:
    first = smoothed(None, [20.0, np.nan])
    assert first.tolist() == [20.0, 10.0]
    assert smoothed(first, [40.0, np.nan]).tolist() == [30.0, 10.0]


def test_throughput_by_hand() -> None:
    """40 points at a rate of 100: two of them on 100 points leave 125; remote events cost both ends."""
    problem = chain_of_three()
    assert most_throughput(problem, [0, 0, 1], 100.0) == pytest.approx(125.0)
    assert most_throughput(problem, [0, 0, 1], 100.0, 0.4) == pytest.approx(100.0)
    assert most_throughput(problem, [0, 1, 0], 100.0, 0.4) == pytest.approx(100 * 100 / (80 + 60))
    assert reserved_cpu(problem, [0, 0, 1]) == 200.0
    assert throughput_factor([50.0, 150.0, 400.0], [2.0, 4.0, 6.0], [300.0, 100.0], [3.0, 1.0]) == pytest.approx(
        (2 / 1 + 4 / 1.5 + 6 / 3) / 3
    )
    with pytest.raises(InputError):
        most_throughput(problem, [0, 0, 1], 0.0)


def test_heuristics() -> None:
    for heuristic in ("hill-climbing", "ant-system", "hybrid"):
        rules = SchedulerSettings(heuristic=heuristic)  # type: ignore[arg-type]
        found = schedule(chain_of_three(), None, 0.0, np.random.default_rng(0), rules)
        assert found.score is not None
        assert found.score.value == pytest.approx(1.8333373)
    with pytest.raises(InputError, match="heuristic = 'best'"):
        SchedulerSettings(heuristic="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gain"):
        SchedulerSettings(gain=-1.0)
