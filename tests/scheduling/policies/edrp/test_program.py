"""The program against exhaustive search, its anchors, and what must hold of any optimum.

See docs/specs/edrp.md, sections 7.1 to 7.5.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.edrp.evaluation import CONFIGURATIONS, downtimes, overloaded, restarts, solve_near
from experiments.edrp.generators import (
    fifteen_hosts,
    random_problem,
    reference_problem,
    scalability_problem,
)
from experiments.edrp.latency import Curve
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.hosts import host_columns
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.edrp.candidates import (
    all_candidates,
    multiset_count,
    multisets,
    near_candidates,
    neighbours,
    program_size,
    twins,
    without_dominated,
)
from goffish.scheduling.policies.edrp.heuristic import local_search
from goffish.scheduling.policies.edrp.linear import Solver
from goffish.scheduling.policies.edrp.problem import Bounds, Problem, Reconfiguration, Weights, metrics, problem_of
from goffish.scheduling.policies.edrp.program import Program, solve

from .oracle import Oracle
from .test_metrics import hosts

EXACT = Solver(gap=1e-9)


def small(rng: np.random.Generator) -> Problem:
    elements = int(rng.integers(2, 5))
    return random_problem(
        rng, elements=elements, hosts=int(rng.integers(2, 4 if elements < 4 else 3)), most=3 if elements < 3 else 2,
        running=bool(rng.random() < 0.75),
    )  # fmt: skip


def test_multisets_and_neighbours() -> None:
    """§7.2(1); breaks when the empty multiset counts, or two steps pass for one."""
    for n, k in ((3, 2), (4, 3), (8, 2), (2, 4)):
        rows = multisets(range(n), k, n)
        assert len(rows) == multiset_count(n, k) == math.comb(n + k, k) - 1 == len(np.unique(rows, axis=0))
        assert (np.diff(rows.sum(axis=1)) >= 0).all() and rows.min() == 0 and rows.sum(axis=1).min() == 1
    sizes = [([0], 2, 16), ([0, 0], 2, 9), ([0, 1], 2, 17), ([0], 3, 16), ([0, 0, 1], 3, 17), ([0, 1, 2], 3, 25)]
    for held, most, size in [*sizes, ([0, 1, 2], 4, 33)]:
        now = np.bincount(held, minlength=8)
        near = neighbours(now, range(8), most)
        some = [
            r for r in multisets(range(8), most, 8) if np.clip(r - now, 0, 9).sum() <= 1 >= np.clip(now - r, 0, 9).sum()
        ]
        assert len(near) == size and {r.tobytes() for r in near} == {r.tobytes() for r in some}


def test_sizes_of_the_published_programs() -> None:
    """§7.2(2): the formula's counts; the published table is within 60 variables of them."""
    table = [(8, 2, 9460), (12, 2, 37350), (16, 2, 103208), (20, 2, 231610), (8, 3, 113740), (8, 4, 994510)]
    for n, k, count in table:
        problem = scalability_problem(n, k, np.random.default_rng(0))
        found = program_size(all_candidates(problem), problem.flow.pred, problem.targets)
        assert found == count


@pytest.mark.slow
@pytest.mark.parametrize("instances", [50, pytest.param(220, marks=pytest.mark.slow)])
def test_program_finds_what_exhaustive_search_does(instances: int) -> None:
    """§7.1: 220 instances of all variants, feasible or not, with and without reductions; r-EDRP on those that run.

    Also: y is whole though it is not asked to be, metrics are those of the program, and r-EDRP is never better.
    """
    rng, found = np.random.default_rng(11), Counter[str]()
    for at in range(instances):
        problem = small(rng)
        oracle = Oracle(problem)
        solution = solve(problem, solver=Solver(gap=1e-9, reduce=at % 2 == 0), calm=at % 5 == 0)
        best = oracle.best()
        assert (solution.counts is None) == math.isinf(best)
        found["feasible"] += solution.counts is not None
        if solution.metrics is not None:
            assert solution.status == "optimal" and solution.metrics.feasible
            assert solution.metrics.objective == pytest.approx(best, abs=1e-6)
            assert solution.bound <= best + 1e-6
        if problem.current is not None:
            near, nearest = solve_near(problem, solver=EXACT), oracle.best(near=True)
            assert (near.counts is None) == math.isinf(nearest)
            if near.metrics is not None:
                found["near"] += 1
                assert near.metrics.objective == pytest.approx(nearest, abs=1e-6) and nearest >= best - 1e-9
    assert found["feasible"] >= instances // 3 and found["near"] >= instances // 8


def chain(cores: float, **fields: Any) -> Problem:
    """The worked instance of §7.2(5)."""
    needs = {"code_mb": 0.3, "most_instances": 2}
    elements = [{"id": "i", "cost": 1 / 120, "needs": needs}, {"id": "j", "cost": 1 / 150, "needs": needs}]
    flow = compile_flow(Dataflow.model_validate({"elements": elements, "edges": [["i", "j"]], "inputs": {"i": 100}}))
    return problem_of(flow, hosts(cores, latency_ms=10), bounds=Bounds(0.1, 4, 5), **fields)


@pytest.mark.parametrize(
    ("weights", "two", "three"),
    [((0.4, 0.4, 0.2), 0.48, 0.467143), ((0.45, 0.45, 0.1), 0.54, 0.506786), ((0.3, 0.3, 0.4), 0.36, 0.36)],
)
def test_worked_instance(weights: tuple[float, ...], two: float, three: float) -> None:
    """§7.2(5) to the digit; breaks when downtime, cost or delay is weighed otherwise."""
    for cores, value, response in ((2, 0.596429, 0.0442857), (3, 0.546429, 0.0342857)):
        first = solve(chain(cores), solver=EXACT).metrics
        assert first is not None and first.objective == pytest.approx(value, abs=5e-7)
        assert first.response_s == pytest.approx(response, abs=5e-8) and first.price == 3
    for cores, value in ((2, two), (3, three)):
        now = np.array([[1, 0], [1, 0]])
        found = solve(chain(cores, weights=Weights(*weights), current=now), solver=EXACT)
        assert found.metrics is not None and found.counts is not None
        assert found.metrics.objective == pytest.approx(value, abs=5e-7)
        grown = cores == 3 and weights != (0.3, 0.3, 0.4)
        assert found.counts.tolist() == [[2, 0], [1, 0]] if grown else np.array_equal(found.counts, now)
        assert found.metrics.downtime_s == pytest.approx(0.75 if grown else 0.0)


#: Hosts of the elements in anchor A; metronome is the fifth here.
ANCHOR_A = {"source": 4, "parser": 4, "filter": 13, "route": 10, "metronome": 13, "count": 0, "partial": 0, "global": 8}


def anchor() -> np.ndarray:
    counts = np.zeros((8, 15), np.int64)
    for row, host in enumerate(ANCHOR_A.values()):
        counts[row, host] = 1
    return counts


@pytest.mark.slow
def test_first_anchor() -> None:
    """§7.3, A: the metrics of the published deployment, and that nothing better is found."""
    assert fifteen_hosts().latencies_s[~np.eye(15, dtype=bool)].mean() == pytest.approx(0.032, abs=5e-5)
    problem = reference_problem(70, Weights(0.5, 0.5, 0.0), most=1)
    assert problem.flow.names == tuple(ANCHOR_A)
    told = metrics(problem, anchor())
    assert told.objective == pytest.approx(0.338812, abs=6e-7)
    assert (told.response_s, told.price) == pytest.approx((0.07188, 8.0063), abs=5e-5)
    searched = local_search(problem, np.random.default_rng(0))
    assert searched is not None and np.array_equal(searched, anchor())


def test_first_anchor_is_the_optimum() -> None:
    """§7.3, A, by the program."""
    found = solve(reference_problem(70, Weights(0.5, 0.5, 0.0), most=1), solver=EXACT)
    assert found.counts is not None and np.array_equal(found.counts, anchor())
    assert found.bound == pytest.approx(0.338812, abs=6e-7)


@pytest.mark.parametrize(
    ("rate", "name", "objective", "response", "price", "downtime"),
    [
        (110, "balanced", 0.267479, 0.07838, 9.0769, 0.79411), (200, "balanced", 0.355098, 0.12325, 10.1458, 0.79411),
        (110, "baseline", 0.375211, 0.07838, 9.0769, None), (115, "cost", 0.223292, None, 9.0471, 0.79406),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_anchors_of_the_restricted_problem(
    rate: float, name: str, objective: float, response: float | None, price: float, downtime: float | None
) -> None:
    """§7.3, B to E, to the digit; of E the response time has no weight, so only its bound holds."""
    problem = reference_problem(rate, CONFIGURATIONS[name], current=anchor())
    found = solve_near(problem, solver=EXACT)
    assert found.metrics is not None and found.counts is not None and found.status == "optimal"
    assert found.metrics.objective == pytest.approx(objective, abs=6e-7)
    assert found.metrics.price == pytest.approx(price, abs=5e-5)
    assert response is None or found.metrics.response_s == pytest.approx(response, abs=5e-6)
    assert downtime is None or found.metrics.downtime_s == pytest.approx(downtime, abs=5e-6)
    if (rate, name) == (110, "balanced"):
        assert found.counts[6].tolist() == [2] + [0] * 14 and found.counts[5, 0] == 0
    assert 4000 < found.variables < 5000


def running(rng: np.random.Generator) -> tuple[Problem, Any]:
    """A feasible instance that runs, all weights above 0, and its optimum."""
    while True:
        problem = random_problem(rng, elements=3, hosts=3, most=2)
        problem = problem.change(weights=Weights(0.4, 0.4, 0.2))
        found = solve(problem, solver=EXACT)
        if found.metrics is not None:
            return problem, found


@pytest.mark.slow
def test_properties_of_optima() -> None:
    """§7.5; breaks when more room is worse, what is optimal is left, or a dearer downtime is longer."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        problem, found = running(rng)
        value = found.metrics.objective
        roomy = replace(problem.hosts, cores=problem.hosts.cores + 1)
        limits = problem.bounds
        # Bounds divide as well: a relaxed bound is made neutral by its weight.
        for easier in (problem.change(hosts=roomy), problem.change(most=problem.most + 1)):
            better = solve(easier, solver=EXACT).metrics
            assert better is not None and better.objective <= value + 1e-7
        dear = solve(problem.change(weights=problem.weights.with_downtime(0.8)), solver=EXACT).metrics
        assert dear is not None and dear.downtime_s <= found.metrics.downtime_s + 1e-6
        stays = problem.change(current=found.counts)
        again = solve(stays, solver=EXACT)
        assert np.array_equal(again.counts, found.counts) and again.metrics.downtime_s == 0
        assert solve_near(stays, solver=EXACT).metrics.objective == pytest.approx(again.metrics.objective, abs=1e-7)
        wide = problem.change(
            bounds=Bounds(limits.response_s, limits.price, 2 * limits.downtime_s, limits.availability)
        )
        wider = solve(wide.change(weights=Weights(0.5, 0.5, 0.0)), solver=EXACT).metrics
        tight = solve(problem.change(weights=Weights(0.5, 0.5, 0.0)), solver=EXACT).metrics
        assert wider is not None and tight is not None and wider.objective <= tight.objective + 1e-7
        storm = problem.change(reconfiguration=Reconfiguration(storm=True))
        moved = storm.current.copy()
        moved[0] = np.roll(moved[0], 1)
        if not np.array_equal(moved, storm.current):
            assert metrics(storm, moved).downtime_s >= restarts(storm).max() > 0
            assert downtimes(storm, moved)[1:].max() == 0


def test_metrics_are_those_of_the_program_and_y_is_whole() -> None:
    """§7.5 and §3.2; breaks when r, C or t of the columns is another than that of the places."""
    from goffish.scheduling.policies.edrp.candidates import usable
    from goffish.scheduling.policies.edrp.linear import run

    rng = np.random.default_rng(8)
    for _ in range(10):
        problem, found = running(rng)
        program = Program(problem, usable(problem, all_candidates(problem)), False)
        values = run(program.linear, EXACT).values
        assert values is not None
        told = metrics(problem, program.counts_of(values))
        assert values[program.r][0] * problem.bounds.response_s == pytest.approx(told.response_s, abs=1e-6)
        assert values[program.t][0] * problem.bounds.downtime_s == pytest.approx(told.downtime_s, abs=1e-6)
        y = np.concatenate([values[columns] for columns in program.y])
        assert np.abs(y - y.round()).max() < 1e-9
        # The columns that a search begins with are a solution of the same cost.
        columns = program.columns_of(found.counts)
        assert columns is not None
        assert program.linear.cost @ columns == pytest.approx(found.metrics.objective, abs=1e-9)


def test_reductions_leave_an_optimum() -> None:
    """Twins and dominated candidates go, and nothing is lost; breaks when hosts that differ pass for twins."""
    cloud = host_columns(list("abcde"), cores=2, startup_s=0.5, speeds=[1, 1, 1, 1, 0.5], latency_ms=5)
    flow = chain(2).flow
    flat = Curve(np.array([0.0, 50.0, 130.0]), np.array([0.01, 0.02, 0.02]))
    made = problem_of(flow, cloud, latencies=[flat, flat], bounds=Bounds(0.1, 4, 5), host_price=np.full(5, 0.3))
    assert twins(made) == [[0, 1, 2, 3]]
    assert twins(made.change(current=np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]))) == [[2, 3]]
    every = all_candidates(made)
    # Both in one place are dominated by one alone, wherever one is fast enough for all of the load.
    assert len(without_dominated(made, every)[0]) < len(every[0]) == 20
    plain, reduced = (solve(made, solver=Solver(gap=1e-9, reduce=reduce)) for reduce in (False, True))
    assert plain.metrics is not None and reduced.metrics is not None
    assert plain.metrics.objective == pytest.approx(reduced.metrics.objective, abs=1e-7)
    assert reduced.solved < plain.solved == plain.variables == reduced.variables


def local_near(problem: Problem) -> np.ndarray:
    """A feasible deployment one step away, by growing what cannot keep up."""
    counts = anchor()
    counts[6, 0] = 2
    counts[5, 0], counts[5, 14] = 0, 1
    assert metrics(problem, counts).feasible
    return counts


@pytest.mark.slow
def test_overload_relaxed_bounds_and_limits() -> None:
    """§3.4 and §3.7; breaks when bounds are relaxed unasked, rooms with them, or a limit gives a worse plan."""
    problem = reference_problem(230, CONFIGURATIONS["balanced"], current=anchor())
    assert solve_near(problem, solver=EXACT).status == "infeasible"
    assert overloaded(problem) == [6]
    eager = reference_problem(150, CONFIGURATIONS["balanced"], current=anchor()).change(
        bounds=Bounds(response_s=0.05, price=30.0, downtime_s=7.5)
    )
    assert solve_near(eager, solver=EXACT).counts is None
    soft = solve_near(eager, solver=Solver(gap=1e-3), relaxed=True)
    assert soft.metrics is not None and soft.counts is not None and soft.metrics.response_s > 0.05
    assert (soft.counts.sum(axis=0) <= 2).all()
    hard = reference_problem(200, CONFIGURATIONS["balanced"], current=anchor())
    limited = solve_near(hard, start=local_near(hard), solver=Solver(gap=0.0, time_limit_s=0.0))
    assert limited.status == "limit" and limited.metrics is not None and limited.metrics.feasible
    with pytest.raises(InputError, match="at most 10 are solved"):
        solve(chain(8), solver=Solver(most_variables=10))
    with pytest.raises(InputError, match="the restricted problem requires a current deployment"):
        near_candidates(chain(2))
    with pytest.raises(InputError, match="at most 10 are listed"):
        all_candidates(scalability_problem(8, 2, np.random.default_rng(0)), limit=10)
