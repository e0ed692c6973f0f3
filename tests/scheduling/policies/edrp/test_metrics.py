"""Metrics: the values and the formulas of docs/specs/edrp.md, word by word."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.edrp.evaluation import downtimes, restarts, transferred
from experiments.edrp.generators import random_problem
from experiments.edrp.latency import fit_latency
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.hosts import HostColumns, host_columns
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.edrp.candidates import multisets
from goffish.scheduling.policies.edrp.problem import (
    Bounds,
    Problem,
    Queue,
    Reconfiguration,
    Weights,
    metrics,
    problem_of,
)

from .oracle import Oracle, bag


def hosts(cores: float = 8, count: int = 2, **fields: Any) -> HostColumns:
    names = [f"h{at}" for at in range(count)]
    return host_columns(names, cores=cores, startup_s=0.5, store_latency_ms=5, to_store=100, from_store=100, **fields)


def pair(before: list[int], state_mb: float, **change: Any) -> Problem:
    """Two elements of code 300 KB; the second one is on host 0."""
    needs = {"state_mb": state_mb, "code_mb": 0.3, "most_instances": 4}
    elements = [{"id": name, "cost": 0.001, "needs": needs} for name in "ij"]
    flow = compile_flow(Dataflow.model_validate({"elements": elements, "edges": [["i", "j"]], "inputs": {"i": 1}}))
    return problem_of(flow, hosts(), current=np.array([before, [1, 0]]), reconfiguration=Reconfiguration(**change))


A, B, AA, AB, BB = [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]


@pytest.mark.parametrize(
    ("before", "after", "recommended", "literal", "stateless"),
    [
        (A, B, 0.79411, 0.79411, 0.78400), (A, AA, 0.75, 0.25, 0.75), (A, AB, 0.79406, 0.79406, 0.784),
        (A, BB, 0.79411, 0.79411, 0.784), (AB, A, 0.27011, 0.27011, 0.25), (AA, A, 0.25, 0.25, 0.25),
        (AB, BB, 0.77011, 0.77011, 0.75), (AA, AB, 0.79406, 0.79406, 0.784),
    ],
)  # fmt: skip
def test_downtime_table(
    before: list[int], after: list[int], recommended: float, literal: float, stateless: float
) -> None:
    """§2.6 to the digit; breaks when a share of state, a start, or a transfer of nothing counts otherwise."""
    wanted = np.array([after, [1, 0]])
    assert downtimes(pair(before, 1376e-6), wanted)[0] == pytest.approx(recommended, abs=5e-6)
    assert downtimes(pair(before, 1376e-6, literal=True), wanted)[0] == pytest.approx(literal, abs=5e-6)
    assert downtimes(pair(before, 0.0), wanted)[0] == pytest.approx(stateless, abs=5e-6)


def test_storm_downtimes() -> None:
    """§7.2(3) to the digit; breaks when code counts once an element, phases overlap, or one replica restarts alone."""
    storm = {"sync_s": 6.0, "storm": True}
    problem = pair(A, 1376e-6, **storm)
    for after, seconds in ((B, 6.57822), (AB, 6.57817), (AA, 7.00002)):
        assert downtimes(problem, np.array([after, A]))[0] == pytest.approx(seconds, abs=5e-6)
        assert metrics(problem, np.array([after, A])).downtime_s == pytest.approx(seconds, abs=5e-6)
    assert restarts(problem)[0] == pytest.approx(6.50002, abs=5e-6)
    printed = pair(A, 1376e-6, literal=True, **storm)
    assert downtimes(printed, np.array([AA, A]))[0] == 6.0
    assert metrics(printed, np.array([AA, A])).downtime_s == pytest.approx(6.50002, abs=5e-6)
    assert metrics(problem, np.array([A, A])).downtime_s == 0.0


def test_state_is_conserved() -> None:
    """§7.2(4): what goes up comes down for every pair; as printed it does not for 1154 of 4761."""
    rows, wrong = multisets(range(4), 4, 4), 0
    for before, after in product(rows, rows):
        up, down = transferred(before, after)
        assert up == pytest.approx(down, abs=1e-12)
        up, down = transferred(before, after, literal=True)
        wrong += abs(up - down) > 1e-9
    assert len(rows) ** 2 == 4761 and wrong == 1154
    assert transferred(np.array([1, 1, 0, 0]), np.array([0, 1, 1, 1])) == pytest.approx((2 / 3, 2 / 3))


def test_metrics_are_those_of_the_formulas() -> None:
    """Word by word on dictionaries; breaks when multiplicities, paths, pairs, speeds or variants are wrong."""
    rng, finite = np.random.default_rng(3), 0
    for _ in range(150):
        problem = random_problem(rng, elements=int(rng.integers(2, 5)), hosts=3, most=3, running=rng.random() < 0.8)
        counts = np.zeros((problem.size, 3), np.int64)
        for row, allowed, most in zip(counts, problem.allowed, problem.most, strict=True):
            np.add.at(row, rng.choice(np.flatnonzero(allowed), int(rng.integers(1, most + 1))), 1)
        oracle, plan = Oracle(problem), [bag(row) for row in counts]
        told, wanted = metrics(problem, counts), oracle.metrics(plan)
        assert (told.response_s, told.price, told.downtime_s, told.availability) == pytest.approx(wanted, rel=1e-9)
        value = oracle.objective(wanted)
        assert told.feasible == (np.isfinite(value) and oracle.fits(plan))
        if told.feasible:
            finite += 1
            assert told.objective == pytest.approx(value, rel=1e-9)
    assert finite >= 20


def test_queues_and_fitted_curves() -> None:
    """§2.4: closed forms; breaks when a saturated queue looks attractive, or a fit falls or goes on without data."""
    rates = np.array([0.0, 50.0, 99.0, 100.0, 150.0])
    assert Queue(100.0).seconds(rates)[:3] == pytest.approx(1 / (100 - rates[:3]))
    assert Queue(100.0, 0.0).seconds(rates)[1] == pytest.approx(1 / 100 + 50 / (2 * 100 * 50))
    assert Queue(100.0, 2.0).seconds(rates)[1] == pytest.approx(1 / 100 + 50 * 5 / (2 * 100 * 50))
    assert np.isinf(Queue(100.0).seconds(rates)[3:]).all()
    x = np.linspace(10, 90, 9)
    curve = fit_latency(x, 1e-3 + 2e-6 * x**2)
    assert curve.seconds(np.array([35.0, 71.0])) == pytest.approx([1e-3 + 2e-6 * 35**2, 1e-3 + 2e-6 * 71**2], rel=1e-4)
    assert np.isinf(curve.seconds(np.array([90.1]))[0]) and curve.seconds(np.zeros(1)) == curve.seconds(x[:1])
    bumpy = fit_latency(x, 1e-3 * np.array([1, 3, 4, 3.5, 3, 3, 4, 6, 9.0]), 3).seconds(np.linspace(10, 90, 500))
    assert (np.diff(bumpy) >= 0).all() and bumpy.max() == pytest.approx(9e-3, rel=0.1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Weights(0.5, 0.6, 0.0), "weights"), (lambda: Bounds(response_s=0.0), "response_s = 0"),
        (lambda: Bounds(availability=1.0), "availability = 1"), (lambda: Queue(0.0), "rate = 0"),
        (lambda: fit_latency(np.arange(3.0), np.ones(3)), "at least 5"),
        (lambda: pair(A, 0.0).change(skew=0.5), "skew = 0.5"),
        (lambda: pair(A, 0.0).change(current=np.ones((1, 1), np.int64)), "expected (2, 2)"),
        (lambda: metrics(pair(A, 0.0), np.zeros((2, 2), np.int64)), "at least one replica"),
    ],
)  # fmt: skip
def test_one_line_errors(make: Any, told: str) -> None:
    """Breaks when a value that is not accepted is taken, or not named."""
    with pytest.raises(InputError) as error:
        make()
    assert told in str(error.value) and "\n" not in str(error.value)
