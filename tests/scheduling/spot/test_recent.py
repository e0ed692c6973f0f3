"""`recent_class`: prices beyond the training range, recency, and interruptions within slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from goffish.cloud.prices import SlotPrices, trace_of
from goffish.scheduling.spot.estimate import AGE_PRIOR, MOST_STATES, PRIOR, estimate_class, recent_class
from goffish.scheduling.spot.presets import market_from
from goffish.scheduling.spot.table import build_table

DAY = 86_400.0


def slots_of(prices: list[float] | np.ndarray) -> SlotPrices:
    """One machine type whose price changes at the ends of slots."""
    column = np.asarray(prices, np.float64)[:, None]
    return SlotPrices(column, np.maximum(column[:-1], column[1:]))


def test_a_price_a_little_above_the_training_range_is_priced_like_its_neighbors() -> None:
    """Levels of 0.0081 and 0.0098 were trained, on demand 0.067: 0.0105 cost six times as much as 0.0100."""
    times = np.arange(0.0, 30 * DAY, 7200.0)
    trace = trace_of(times, np.where(np.arange(times.size) % 2, 0.0098, 0.0081), "calm")
    market = market_from("ec2-linux", [trace], [1], [0.067], estimator="recent")
    table = build_table(market, 24, 72)
    costs = [table.expected_cost(24, 72, [price], [0]) for price in (0.0095, 0.0100, 0.0105, 0.0115, 0.013, 0.02)]
    assert max(costs[:3]) < 1.5 * min(costs[:3])
    assert costs == sorted(costs) and costs[-1] < 0.5 * 0.067 * 4


@given(arrays(np.float64, st.integers(3, 60), elements=st.floats(0, 5)), st.floats(0.01, 1.0))
def test_any_prices_give_a_valid_chain(prices: np.ndarray, on_demand: float) -> None:
    one = recent_class(slots_of(prices), 0, 1, on_demand, 600.0)
    assert one.states <= max(MOST_STATES, one.bins)
    assert one.bids.tolist() == [on_demand]
    assert (one.chain >= 0).all() and np.allclose(one.chain.sum(axis=1), 1.0)
    inside = np.append(0.0, one.edges) - 1e-9
    assert (one.levels >= inside).all() and (one.levels[:-1] <= one.edges + 1e-9).all()
    table = build_table(market_from("ec2-linux", [one], [1], [on_demand]), 3, 8)
    assert np.isfinite(table.expected_cost(3, 8))


def test_recent_observations_weigh_more() -> None:
    """Half of the time without machines, then half with: the share of time follows the recent half."""
    old_first = np.append(np.full(30 * 144, 2.0), np.full(30 * 144, 0.3))
    calm, scarce = (recent_class(slots_of(path), 0, 1, 1.0, 600.0) for path in (old_first, old_first[::-1]))
    share = [one.stationary.reshape(one.bins, -1).sum(axis=1)[0] for one in (calm, scarce)]
    assert share[0] > 0.9 and share[1] < 0.5


def test_posterior_mean_of_two_bins_by_hand() -> None:
    """Without decay: counts, the prior of the bin with `PRIOR`, and that of each age with `AGE_PRIOR` observations."""
    path = [0.3, 0.3, 2.0, 0.3, 0.3, 0.3, 2.0, 2.0, 0.3]
    one = recent_class(slots_of(path), 0, 1, 1.0, 600.0, half_life_s=1e30)
    stays, leaves = 3.0, 2.0
    prior = np.array([0.99 * stays / 5 + 0.005, 0.99 * leaves / 5 + 0.005])
    usual = (np.array([stays, leaves]) + PRIOR * prior) / (5 + PRIOR)
    fresh = (np.array([2.0, 0.0]) + AGE_PRIOR * usual) / (2.0 + AGE_PRIOR)
    assert one.bins == 2 and one.ages == 8
    # Age 0 of the lower bin was observed in slots 0 and 3, and was never left at once.
    assert one.chain[0, 1] == pytest.approx(fresh[0])
    assert one.chain[0, one.ages] == pytest.approx(fresh[1])


def test_interruptions_within_slots_are_a_hazard() -> None:
    prices = np.full((101, 1), 0.3)
    peaks = np.full((100, 1), 0.3)
    peaks[::10] = 5.0
    one = recent_class(SlotPrices(prices, peaks), 0, 1, 1.0, 600.0, half_life_s=1e30)
    assert one.hazard == pytest.approx(0.1)
    again = recent_class(SlotPrices(prices, peaks), 0, 1, 1.0, 600.0, hazard=0.5, half_life_s=1e30)
    assert again.hazard == pytest.approx(1 - 0.9 * 0.5)


def test_estimate_class_offers_it() -> None:
    trace = trace_of([0.0, 600.0, 1200.0, 4800.0], [0.02, 0.03, 0.02, 0.02], "x")
    one = estimate_class(trace, 2, 0.1, 600.0, estimator="recent")
    assert one.name == "x" and one.speed == 2 and one.bids.tolist() == [0.1]
