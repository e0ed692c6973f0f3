"""Markets of availability: their classes, slots, tables and advice."""

from __future__ import annotations

import numpy as np
import pytest

from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE, Trace
from goffish.scheduling.spot.availability import availability_class
from tests.cloud.test_availability import every


def test_chain_of_a_known_process() -> None:
    """Rates of a long two-state path within 3 standard errors."""
    rng = np.random.default_rng(7)
    leave = (0.05, 0.2)
    values, state = [], 1
    for draw in rng.random(60_000):
        values.append(state)
        state = 1 - state if draw < leave[1 - state] else state
    trace = every(600.0, values).trace(0.9)
    for estimator in ("slot", "level"):
        one = availability_class(trace, 2, 3.0, 600.0, 0.9, estimator=estimator)  # type: ignore[arg-type]
        for bin_, rate in enumerate(leave):
            error = np.sqrt(rate * (1 - rate) / max(1, values.count(1 - bin_)))
            assert abs(one.chain[bin_, 1 - bin_] - rate) < 3 * error + 1e-4
        assert one.hazard == 0 and one.bids.tolist() == [ANY_PRICE] and one.levels.tolist() == [0.9, UNAVAILABLE]


@pytest.mark.parametrize("estimator", ["slot", "semi"])
def test_times_without_machines_inside_slots(estimator: str) -> None:
    """Three observations in a slot, of which the chain has the first: half of the slots are interrupted."""
    dips = every(200.0, [1, 1, 1, 1, 0, 1] * 50).trace(0.9)
    one = availability_class(dips, 1, 3.0, 600.0, 0.9, estimator=estimator)  # type: ignore[arg-type]
    assert one.hazard == pytest.approx(0.5, abs=0.01)


def test_never_available_keeps_the_price() -> None:
    trace: Trace = every(600.0, [0] * 9).trace(0.9)
    one = availability_class(trace, 1, 3.0, 600.0, 0.9)
    assert one.levels.tolist() == [0.9, UNAVAILABLE] and one.hazard == 0
