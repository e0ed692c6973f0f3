"""Backlogs that grow: runs whose queues never empty do not meet their goal, whatever their throughput."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from goffish.scheduling.control.records import backlog_grows
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import Fixed, catalogue, chain

Floats = NDArray[np.float64]
HOUR_S, DAY_S, STEP_S = 3600.0, 86_400.0, 300.0


def lindley(rates: Floats, capacity: Floats | float) -> Floats:
    """Queues at the end of each interval: ``q' = max(0, q + (rate - capacity) * interval)``."""
    queue, found = 0.0, []
    for rate, most in zip(rates, np.broadcast_to(capacity, rates.shape), strict=True):
        queue = max(0.0, queue + (rate - most) * STEP_S)
        found.append(queue)
    return np.array(found)


def grows(rates: Floats, capacity: Floats | float) -> bool:
    return backlog_grows(lindley(rates, capacity)[:, None], rates[:, None], STEP_S)


def sine(hours: float, period_s: float, depth: float = 0.5, phase: float = 0.0) -> Floats:
    times = np.arange(0.0, hours * HOUR_S, STEP_S)
    return np.asarray(10.0 * (1 + depth * np.sin(2 * np.pi * (times / period_s + phase))), np.float64)


@pytest.mark.parametrize("capacity", [8.0, 9.5, 9.95])
@pytest.mark.parametrize("steps", [3, 7, 144, 2000])
def test_less_capacity_than_input(capacity: float, steps: int) -> None:
    assert grows(np.full(steps, 10.0), capacity)


@pytest.mark.parametrize("capacity", [9.999, 10.0, 10.1])
def test_enough_capacity(capacity: float) -> None:
    """Breaks when a remainder that no one sees decides; 0.01 % of the input is 4 s in 12 hours."""
    assert not grows(np.full(144, 10.0), capacity)


@pytest.mark.parametrize("phase", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize(("hours", "period_s"), [(12.0, HOUR_S), (48.0, DAY_S), (168.0, DAY_S)])
def test_waves_that_empty(hours: float, period_s: float, phase: float) -> None:
    """The queue of a peak is gone before the next one. Breaks when a run that ends at a peak fails for it."""
    rates = sine(hours, period_s, phase=phase)
    queue = lindley(rates, 10.5)
    assert queue.max() > 0.05 * 10 * period_s and queue[-round(period_s / STEP_S) :].min() == 0
    assert not grows(rates, 10.5)


@pytest.mark.parametrize("phase", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize(("hours", "period_s"), [(12.0, HOUR_S), (168.0, DAY_S)])
def test_waves_that_pile_up(hours: float, period_s: float, phase: float) -> None:
    """Breaks when falling queues at night hide that each day leaves more behind."""
    assert grows(sine(hours, period_s, phase=phase), 9.0)


def test_overload_of_a_part_of_the_run() -> None:
    """Breaks when the verdict ignores the end of a run, or holds the begin against it."""
    rates = np.full(144, 10.0)
    late = np.where(np.arange(144) < 80, 11.0, 8.0)
    early, recovered = np.where(np.arange(144) < 72, 8.0, 11.0), np.where(np.arange(144) < 72, 8.0, 10.0)
    assert grows(rates, late) and not grows(rates, early) and not grows(rates, recovered)


def test_random_arrivals() -> None:
    """Poisson arrivals at 95 % of the capacity: the queue varies, but has a mean."""
    rng = np.random.default_rng(5)
    rates = rng.poisson(2.0 * STEP_S, (100, 288)) / STEP_S
    assert not any(grows(row, 2.0 / 0.95) for row in rates)
    assert all(grows(row, 2.0 * 0.9) for row in rates)


def test_nothing_arrives() -> None:
    queue = np.array([[5.0], [5.0], [5.0]])
    assert not backlog_grows(queue, np.zeros((3, 1)), STEP_S)
    assert not backlog_grows(queue[:1], np.ones((1, 1)), STEP_S)


@pytest.mark.parametrize("engine", ["fluid", "events"])
def test_the_goal_of_a_run_with_a_growing_backlog(engine: str) -> None:
    """10 messages a second, 9 of them processed: throughput 0.9, and 1 message a second more waits.

    Breaks when throughput alone decides, or its definition changes.
    """
    flow = chain(0.1, 0.1, rate=10.0, goal={"throughput": 0.9, "tolerance": 0.05})
    rates = np.tile(flow.rates, (12, 1))
    short, enough = ([{0: 1}, {1: 1}], catalogue(speed=0.9)), ([{0: 1}, {1: 1}], catalogue(speed=1.1))
    runs = [
        simulate(flow, cloud, Fixed(machines), rates, engine=engine, interval_s=100.0).summary  # type: ignore[arg-type]
        for machines, cloud in (short, enough)
    ]
    assert runs[0].omega == pytest.approx(0.9, abs=0.01) and runs[0].throughput_met
    assert runs[0].backlog_grows and not runs[0].valid and runs[0].queue == pytest.approx(1200, rel=0.02)
    assert runs[0].compared == runs[0].profit, "the published comparison is by throughput"
    assert runs[1].throughput_met and not runs[1].backlog_grows and runs[1].valid
