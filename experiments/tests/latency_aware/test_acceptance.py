"""Checks of docs/specs/latency-aware.md, sections 7.4 and 7.5, on whole searches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from experiments.latency_aware.ants import ant_system
from experiments.latency_aware.baselines import resource_aware, round_robin
from experiments.latency_aware.exact import optimal_placement
from experiments.latency_aware.generators import paper_problem
from experiments.latency_aware.springs import LatencySpace, Springs
from experiments.latency_aware.throughput import most_throughput, reserved_cpu, throughput_factor
from experiments.tests.latency_aware.test_springs import EMBEDDED, TREE
from goffish.scheduling.policies.latency_aware.ant_system import Ants
from goffish.scheduling.policies.latency_aware.hybrid import hill_climbing, hybrid
from goffish.scheduling.policies.latency_aware.score import Floats, PlacementProblem, evaluate
from tests.scheduling.policies.latency_aware.cases import tiny_problem

RANDOM = [f"R{n}" for n in range(1, 8)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def wide_problem(operators: int = 100, hosts: int = 50) -> PlacementProblem:
    """As many operators and hosts as the deadline is asked for."""
    draw = rng(3)
    edges = [(int(draw.integers(0, b)), b) for b in range(1, operators) for _ in range(2)]
    spots = draw.uniform(0, 10, (hosts, 3))
    return PlacementProblem(
        edges=edges, events=draw.uniform(1, 100, len(edges)), cpu=draw.uniform(5, 18, operators),
        memory=np.full(operators, 128.0), cpu_capacity=draw.choice([30.0, 100.0, 150.0], hosts),
        memory_capacity=draw.choice([768.0, 1024.0, 2048.0], hosts),
        latency_ms=np.linalg.norm(spots[:, None] - spots[None], axis=2),
    )  # fmt: skip


def fastest(call: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of some calls: the computer may do other things."""
    found = []
    for _ in range(times):
        begun = time.monotonic()
        call()
        found.append(time.monotonic() - begun)
    return min(found)


@pytest.mark.slow
def test_deadline() -> None:
    """§7.4: a second and 50 ms for 100 operators on 50 hosts; §7.5 (2): less than a second for 42 without any."""
    problem = wide_problem()
    hill_climbing(tiny_problem(0))
    hybrid(tiny_problem(0), rng())
    searches: list[Callable[[], object]] = [
        lambda: hill_climbing(problem, seconds=1.0),
        lambda: ant_system(problem, rng(), seconds=1.0),
        lambda: hybrid(problem, rng(), seconds=1.0),
    ]
    for search in searches:
        assert fastest(search) <= 1.05
    largest, _ = paper_problem("R7")
    assert fastest(lambda: hybrid(largest, rng())) < 1.0
    # More than linear by hill climbing: 3.5 times the operators of R2 are worth more than 3.5 times the time.
    small, _ = paper_problem("R2")
    times = [fastest(lambda p=one: hill_climbing(p), 9) for one in (small, largest)]  # type: ignore[misc]
    assert times[1] > 3.5 * times[0]


def test_a_second_run_changes_nothing() -> None:
    """§7.4: from its own optimal result the same search goes nowhere else, whatever the ants draw, and if few do."""
    seen, few = 0, Ants(ants=2, iterations=2, colonies=1)
    for seed in range(12):
        problem = tiny_problem(seed)
        first = hybrid(problem, rng(seed))
        best = optimal_placement(problem).score
        if best is None or first.score.value > best.value + 1e-9:
            continue
        seen += 1
        for search in (hybrid, ant_system):
            for ants in (None, few):
                again = search(problem, rng(seed + 1000), first.placement, ants=ants)
                assert again.placement.tolist() == first.placement.tolist()
        assert hill_climbing(problem, first.placement).placement.tolist() == first.placement.tolist()
    assert seen >= 8


def test_latency_is_that_of_the_resource_aware_scheduler_or_less() -> None:
    """§7.5 (4), on most of the random topologies; round robin is far above all of them."""
    wins = {"climb": 0, "hybrid": 0}
    for name in RANDOM:
        problem, topology = paper_problem(name)
        placed = resource_aware(topology, problem)
        assert placed is not None
        storm = evaluate(problem, placed).latency_ms
        spread = evaluate(problem, round_robin(problem.operators, [1] * problem.size)).latency_ms
        climb = hill_climbing(problem).score.latency_ms
        both = float(np.mean([hybrid(problem, rng(seed)).score.latency_ms for seed in range(2)]))
        wins["climb"] += climb <= storm + 1e-9
        wins["hybrid"] += both <= storm + 1e-9
        assert 14.0 <= spread <= 72.5 and max(climb, both) < 0.75 * spread
        assert 1.4 <= min(climb, both) <= max(climb, both) <= 21.5
    assert min(wins.values()) >= 4, wins


@pytest.mark.slow
def test_throughput_at_equal_cpu() -> None:
    """§7.5 (3) on the random graphs, analytic model, one colony as in the paper: all others 1.5 to 3 times round robin;
    hill climbing, hybrid and the resource-aware scheduler within 20 % of their mean; ants behind the hybrid.

    What an event costs in the network is not specified. The bands hold up to 0.05 points for one a second; where it
    costs more, both ours and the hybrid's lead grow beyond them (0.2 points: 3.2 times, five colonies 3.6 times).
    """
    rate, factors = 100.0, dict[float, list[list[float]]]({0.02: [], 0.05: [], 0.2: []})
    for name in RANDOM:
        problem, topology = paper_problem(name, rate=rate)
        base = [round_robin(problem.operators, [1] * problem.size, workers) for workers in range(1, 12)]
        points: list[list[np.ndarray]] = [[], [], [], []]
        for load in (0.25, 0.5, 0.75, 1.0, 1.25):
            loaded = replace(problem, cpu=load * problem.cpu)
            points[0].append(hill_climbing(loaded).placement)
            for seed in range(5):
                found = hybrid(loaded, rng(seed), ants=Ants(colonies=1))
                points[1].append(found.ants.placement)
                points[2].append(found.placement)
            placed = resource_aware(topology, loaded)
            if placed is not None:
                points[3].append(placed)
        for per_event, some in factors.items():
            figures = [
                (
                    [reserved_cpu(problem, x) for x in places],
                    [most_throughput(problem, x, rate, per_event) for x in places],
                )
                for places in (*points, base)
            ]
            some.append([throughput_factor(*one, *figures[-1]) for one in figures[:-1]])
    for per_event, some in factors.items():
        climb, ants, both, storm = (float(one) for one in np.mean(some, axis=0))
        assert min(climb, ants, both, storm) >= 1.5 and ants <= both
        if per_event <= 0.05:
            assert max(climb, ants, both, storm) <= 3.0
            near = np.array([climb, both, storm])
            assert np.abs(near / near.mean() - 1).max() <= 0.2


def errors(latency: Floats, strength: float) -> Floats:
    """Relative errors of all pairs after 60 rounds, five seeds."""
    hosts, found = [str(at) for at in range(len(latency))], []
    for seed in range(5):
        space, draw = LatencySpace(Springs(strength_ms=strength)), rng(seed)
        for _ in range(60):
            space.run_round(hosts, lambda a, b: 2.0 * float(latency[int(a), int(b)]), draw)
        apart = ~np.eye(len(hosts), dtype=bool)
        found.append(np.abs(space.latency_ms(hosts, direct=False) - latency)[apart] / latency[apart])
    return np.concatenate(found)


#: §3.5: median and 90th percentile in per cent, on the tree and for points in space.
SWEEP = {
    0.01: ((14, 29), (19, 41)), 0.05: ((5, 11), (4, 11)), 0.1: ((4, 10), (1, 3)), 0.2: ((4, 10), (0, 1)),
    0.5: ((5, 11), (0, 0)), 1.0: ((11, 39), (0, 0)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("strength", SWEEP)
def test_strength_of_springs(strength: float) -> None:
    """§7.5 (6), the whole sweep; the reference points are not known, ours leave some more pairs behind."""
    for latency, published in zip((TREE, EMBEDDED), SWEEP[strength], strict=True):
        middle, most = 100 * np.quantile(errors(latency, strength), (0.5, 0.9))
        assert abs(middle - published[0]) <= 4.0
        assert abs(most - published[1]) <= max(8.0 if latency is EMBEDDED else 4.0, 0.25 * published[1])
