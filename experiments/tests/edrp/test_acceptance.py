"""Checks of docs/specs/edrp.md, sections 7.2, 7.5, 3.3 and 6.14, beyond single instances."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.edrp.evaluation import CONFIGURATIONS, solve_near
from experiments.edrp.generators import random_problem, scalability_problem
from experiments.edrp.loop import Planner
from goffish.errors import InputError
from goffish.scheduling.dataflow.hosts import host_columns
from goffish.scheduling.policies.edrp.candidates import all_candidates, near_candidates, program_size
from goffish.scheduling.policies.edrp.linear import Solver
from goffish.scheduling.policies.edrp.problem import Bounds, Problem, Weights, metrics
from goffish.scheduling.policies.edrp.program import solve
from tests.scheduling.policies.edrp.test_program import EXACT, chain, running


def size(problem: Problem, near: bool) -> int:
    found = near_candidates(problem) if near else all_candidates(problem)
    return program_size(found, problem.flow.pred, problem.targets)


def test_sizes_of_the_largest_published_programs() -> None:
    """§7.2 (2): the counts that are left; and from one replica each the restricted program hardly grows with k."""
    for hosts, most, count, published in ((24, 2, 453_276, 453.3), (12, 3, 848_706, 848.7)):
        assert size(scalability_problem(hosts, most, np.random.default_rng(0)), False) == count
        assert abs(count / 1e3 - published) < 0.06
    for hosts in (8, 16, 24):
        sizes = []
        for most in (2, 3, 4):
            problem = scalability_problem(hosts, most, np.random.default_rng(0))
            now = np.zeros((problem.size, hosts), np.int64)
            now[:, 0] = 1
            sizes.append(size(problem.change(current=now), True))
        m, n = 2 * hosts, hosts
        # The formula of section 4 with 2n deployments of each operator that may grow.
        assert sizes == [4 * m * m + (4 * n + 5) * m + n * n + 3 * n] * 3


def with_another_host(problem: Problem, rng: np.random.Generator) -> Problem:
    """One more host, like the first but for its name, links that are short, and that it is fast and free."""
    found, n = problem.hosts, problem.hosts.size

    def wider(matrix: np.ndarray, high: float) -> np.ndarray:
        rows = rng.uniform(0, high, (n + 1, n + 1))
        rows[:n, :n] = matrix
        return rows

    each = {name: value for name, value in vars(found).items() if isinstance(value, np.ndarray) and value.ndim == 1}
    more = {name: np.append(value, value[0]) for name, value in each.items()}
    more["speeds"][n], more["cores"][n] = 3.0, 9.0
    hosts = host_columns(
        [*found.names, "more"], **more,
        latency_ms=wider(found.latency_ms, 1), traffic_prices=wider(found.traffic_prices, 0.001),
    )  # fmt: skip
    link = problem.link_availability
    wide_links = None
    if link is not None:
        wide_links = np.ones((n + 1, n + 1))
        wide_links[:n, :n] = link
    price = None if problem.host_price is None else np.append(problem.host_price, 0.0)
    now = None if problem.current is None else np.pad(problem.current, ((0, 0), (0, 1)))
    return problem.change(hosts=hosts, current=now, host_price=price, link_availability=wide_links)


def test_more_hosts_and_wider_bounds_are_never_worse() -> None:
    """§7.5; a bound also divides, so that it is relaxed where its metric has no weight."""
    rng, better = np.random.default_rng(17), [0, 0, 0]
    for _ in range(8):
        problem, found = running(rng)
        more = solve(with_another_host(problem, rng), solver=EXACT).metrics
        assert more is not None and more.objective <= found.metrics.objective + 1e-7
        first = problem.change(current=None, weights=Weights(0.5, 0.5, 0.0))
        with_more = with_another_host(first, rng)
        one, two = solve(first, solver=EXACT).metrics, solve(with_more, solver=EXACT).metrics
        assert one is not None and two is not None and two.objective <= one.objective + 1e-7
        better[0] += two.objective < one.objective - 1e-6
        b = first.bounds
        for at, weights in ((1, Weights(0.0, 1.0, 0.0)), (2, Weights(1.0, 0.0, 0.0))):
            loose = solve(first.change(weights=weights), solver=EXACT).metrics
            assert loose is not None
            # A bound that the optimum just breaks.
            response, price = (0.999 * loose.response_s, b.price) if at == 1 else (b.response_s, 0.999 * loose.price)
            bounds = Bounds(response, price, b.downtime_s, b.availability)
            tight = solve(first.change(weights=weights, bounds=bounds), solver=EXACT).metrics
            assert tight is None or tight.objective >= loose.objective - 1e-7
            better[at] += tight is not None and tight.objective > loose.objective + 1e-6
    assert min(better) >= 1, better


def test_only_what_stays_costs_no_downtime() -> None:
    """§7.5: a downtime of 0 if and only if nothing changes; of at least the synchronisation else. Both variants."""
    rng, changed = np.random.default_rng(4), 0
    for _ in range(80):
        problem = random_problem(rng, elements=3, hosts=3, most=3)
        assert problem.current is not None
        plan = problem.current.copy()
        for row in plan[: int(rng.integers(0, 3))]:
            row[:] = 0
            np.add.at(row, rng.integers(0, 3, int(rng.integers(1, 4))), 1)
        same = np.array_equal(plan, problem.current)
        changed += not same
        downtime = metrics(problem, plan).downtime_s
        assert downtime == 0.0 if same else downtime >= problem.reconfiguration.sync_s > 0
    assert 30 < changed < 80


def test_one_step_is_enough_where_the_optimum_is_one_step_away() -> None:
    """§7.5: r-EDRP then is EDRP; and never better."""
    rng, near, far = np.random.default_rng(23), 0, 0
    while near < 8 or far < 2:
        problem, found = running(rng)
        gone = np.clip(problem.current - found.counts, 0, None).sum(axis=1)
        come = np.clip(found.counts - problem.current, 0, None).sum(axis=1)
        step = solve_near(problem, solver=EXACT).metrics
        if max(gone.max(), come.max()) <= 1:
            assert step is not None and step.objective == pytest.approx(found.metrics.objective, abs=1e-7)
            near += bool((gone + come).any())
        else:
            assert step is None or step.objective >= found.metrics.objective - 1e-7
            far += 1


def test_what_is_worse_than_to_stay_is_not_taken() -> None:
    """§3.3: a search that is stopped with a worse solution than the current one keeps that, with its gap."""
    now = np.array([[1, 0], [1, 0]])
    problem = chain(2, weights=Weights(0.3, 0.3, 0.4), current=now)
    moved = np.array([[0, 1], [0, 1]])
    assert metrics(problem, moved).feasible and metrics(problem, moved).objective > metrics(problem, now).objective
    for limit in ({"time_limit_s": 0.0}, {"nodes": 0}):
        found = solve(problem, start=moved, solver=Solver(gap=0.0, reduce=False, **limit))  # type: ignore[arg-type]
        assert found.status == "kept" and found.counts is not None and found.metrics is not None
        assert np.array_equal(found.counts, now) and found.metrics.objective == pytest.approx(0.36)
        assert found.bound <= 0.36 and found.gap > 0


def test_too_large_a_program_gives_way_to_one_step() -> None:
    """§6.14: EDRP refuses, and the controller goes on with r-EDRP."""
    problem = scalability_problem(5, 2, np.random.default_rng(0), rate=110.0)
    now = np.zeros((problem.size, 5), np.int64)
    now[np.arange(problem.size), np.arange(problem.size) // 2] = 1
    problem = problem.change(current=now, weights=CONFIGURATIONS["balanced"], bounds=Bounds(0.4, 30.0, 7.5))
    small = Solver(gap=0.2, most_variables=700, reduce=False)
    with pytest.raises(InputError, match="at most 700 are solved"):
        solve(problem, solver=small)
    counts, how = Planner("full", solver=small).plan(problem)
    wanted = solve_near(problem, solver=small).metrics
    assert how == "near" and wanted is not None
    assert metrics(problem, counts).objective == pytest.approx(wanted.objective, abs=1e-6)
