"""Walk-forward trials, the guarantee of the choice among candidates, and the coverage of intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot.choice import automatic, outlook
from goffish.scheduling.spot.estimate import recent_class
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import peer
from goffish.scheduling.spot.presets import market_from
from goffish.scheduling.spot.replay import replay
from goffish.scheduling.spot.trials import (
    SAFEGUARD,
    Candidate,
    Trials,
    chosen,
    intervals,
    learning_rate,
    most_cost,
    shares,
    walk_forward,
)

SPOT, GONE = 0.1, 2.0


def slots_of(free: np.ndarray) -> SlotPrices:
    """Machines at 0.1 where there are any; one that runs is lost at the end of its last slot with machines."""
    prices = np.where(free, SPOT, GONE)[:, None]
    return SlotPrices(prices, np.maximum(prices[:-1], prices[1:]))


def market() -> Market:
    one = recent_class(slots_of(np.array([True, False, True])), 0, 1, 1.0, 600.0, name="m")
    made = market_from("no-bid", [one], [1], [1.0])
    return replace(made, spot_billing="per_second", on_demand_billing="per_second", startup_billed=False)


def trials_of(costs: np.ndarray, slots: int = 1, step: int = 1) -> Trials:
    """Trials with given costs."""
    count, jobs = costs.shape
    starts = 10 + step * np.arange(jobs)
    names = tuple(Candidate(f"policy {at}") for at in range(count))
    none = np.zeros(costs.shape, np.int64)
    return Trials(
        names,
        1,
        slots,
        starts,
        costs,
        none,
        none,
        none,
        none,
        none,
        np.ones(jobs),
        10 + step * max(0, jobs - 1) + slots,
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 3.0])
def test_the_rate_solves_its_equation(epsilon: float) -> None:
    rate = learning_rate(epsilon)
    assert rate / (1 - np.exp(-rate)) == pytest.approx(1 + epsilon)
    with pytest.raises(InputError, match="epsilon = 0: must be more than 0"):
        learning_rate(0.0)


@given(
    st.integers(2, 5).flatmap(lambda k: arrays(np.float64, st.tuples(st.just(k), st.integers(1, 120)),
                                               elements=st.floats(0, 1))),
    st.sampled_from([0.1, 0.5, 1.0]),
)  # fmt: skip
def test_bound_of_a_sequence_of_jobs(costs: np.ndarray, epsilon: float) -> None:
    """Whatever the costs; hypothesis looks for the sequence that breaks it."""
    found = trials_of(costs)
    paid = float((shares(found, 1.0, epsilon=epsilon)[:, :-1] * costs).sum())
    constant = (1 + epsilon) / learning_rate(epsilon) * np.log(len(costs) / SAFEGUARD)
    assert paid <= (1 + epsilon) * costs.sum(axis=1).min() + constant + 1e-9


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
@pytest.mark.slow
def test_an_adversary_that_charges_the_leader(epsilon: float) -> None:
    """The cheapest candidate so far always costs 1, the others nothing: a leader alone would pay for every job."""
    count, jobs = 4, 3000
    costs = np.zeros((count, jobs))
    for at in range(jobs):
        share = shares(trials_of(costs[:, :at]), 1.0, epsilon=epsilon)[:, -1]
        costs[int(np.argmax(share)), at] = 1.0
        if at == 300:
            break
    costs = costs[:, :301]
    paid = float((shares(trials_of(costs), 1.0, epsilon=epsilon)[:, :-1] * costs).sum())
    best = costs.sum(axis=1).min()
    assert costs.sum() == 301
    assert paid <= (1 + epsilon) * best + (1 + epsilon) / learning_rate(epsilon) * np.log(count / SAFEGUARD)
    assert paid < 0.75 * costs.sum()


@settings(max_examples=25)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 15)), min_size=2, max_size=30))
@example([(True, 60), (False, 120), (True, 60)])
@example([(True, 3), (False, 5)] * 30)
@pytest.mark.slow
def test_bound_on_prices_that_an_adversary_chose(spells: list[tuple[bool, int]]) -> None:
    """Back-to-back jobs of 4 slots of work within 8 on spells with and without machines; no deadline is missed."""
    free = np.concatenate([np.full(length, value) for value, length in spells] + [np.full(40, True)])
    rules = market()
    (found,) = walk_forward(rules, slots_of(free), [(4, 8)], first=8, refit=24, step=8, threads=1)
    scale = most_cost(rules, 8)
    assert found.costs.max() <= scale
    share = shares(found, scale)
    assert np.allclose(share.sum(axis=0), 1.0)
    paid = float((share[:, :-1] * found.costs).sum())
    constant = 1.5 / learning_rate(0.5) * np.log(len(found.candidates) / SAFEGUARD) * scale
    assert paid <= 1.5 * float(found.costs.sum(axis=1).min()) + constant


def test_trials_see_the_past_only() -> None:
    """Other prices after a moment change nothing that was decided before it."""
    rng = np.random.default_rng(5)
    free = np.repeat(rng.random(100) < 0.6, rng.integers(1, 12, 100))
    other = free.copy()
    other[400:] = ~other[400:]
    results = []
    for path in (free, other):
        (found,) = walk_forward(market(), slots_of(path), [(4, 8)], first=50, refit=50, step=2, threads=1)
        results.append((found, shares(found, 10.0, half_life=100.0), intervals(found, 0, 200)))
    (a, shares_a, bands_a), (b, shares_b, bands_b) = results
    before = np.flatnonzero(a.starts <= 400)
    done = np.flatnonzero(a.starts + 8 <= 400)
    assert before.size > 100 and not np.array_equal(a.costs, b.costs)
    assert np.array_equal(a.costs[:, done], b.costs[:, done])
    assert np.array_equal(shares_a[:, before], shares_b[:, before])
    assert np.array_equal(bands_a[:, before], bands_b[:, before])


def test_the_leader_is_followed() -> None:
    """After enough trials nearly all weight belongs to the cheapest candidate, and follows when that changes."""
    costs = np.concatenate((np.tile([[0.5], [0.4], [0.6]], 500), np.tile([[0.5], [0.4], [0.1]], 1500)), axis=1)
    found = shares(trials_of(costs), 1.0, half_life=100.0)
    assert found[0, 10] > 0.9
    assert found[1, 400] > 0.85
    assert found[2, -1] > 0.9


def test_draws() -> None:
    share = np.array([0.5, 0.3, 0.2])
    drawn = np.bincount([chosen(share, seed) for seed in range(3000)], minlength=3) / 3000
    assert np.abs(drawn - share).max() < 0.03
    assert chosen(np.array([1.0, 0.0]), 3) == 0 and chosen(share, 7) == chosen(share, 7)


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_intervals_cover_their_share(shift: float) -> None:
    """Log-normal costs, whose scale jumps in the middle: 80 % are within in the long run."""
    rng = np.random.default_rng(3)
    costs = np.exp(0.5 * rng.standard_normal((1, 4000)))
    costs[:, 2000:] *= shift
    bands = intervals(trials_of(costs), 0, 300)
    assert np.isinf(bands[1, :20]).all()
    inside = (bands[0, :-1] <= costs[0]) & (costs[0] <= bands[1, :-1])
    assert inside[100:].mean() == pytest.approx(0.8, abs=0.03)
    assert np.isfinite(bands[1, 1000]) and bands[0, 1000] > 0


def test_no_policy_is_close_to_both_rivals_on_one_job() -> None:
    """The two paths of docs/specs/spot.md, section 8: what saves on one of them costs twice as much on the other."""
    rules, work, slots = market(), 200, 400
    rules = replace(rules, notice=True)
    back = np.append(np.full(150, False), np.full(251, True))
    late = np.append(np.full(203, False), np.full(198, True))
    costs = {}
    for name in ("greedy", "uniform-progress"):
        rule = peer(rules, name, work, slots)
        costs[name] = [float(replay(rule, work, slots, slots_of(free)).costs[0]) for free in (back, late)]
    assert costs["greedy"][0] < 0.5 * costs["uniform-progress"][0]
    assert costs["uniform-progress"][1] < 0.7 * costs["greedy"][1]


def test_refused() -> None:
    free = np.tile([True, True, False], 20)
    with pytest.raises(InputError, match="first = 1"):
        walk_forward(market(), slots_of(free), [(4, 8)], first=1, refit=5)
    with pytest.raises(InputError, match="not feasible"):
        walk_forward(market(), slots_of(free), [(8, 8)], first=5, refit=50)
    (none,) = walk_forward(market(), slots_of(free), [(4, 100)], first=5, refit=50)
    assert none.starts.size == 0 and shares(none, 1.0)[:, 0].argmax() == 0
    assert intervals(none, 0, 100).tolist() == [[0.0], [np.inf]]


def test_jobs_that_follow_the_trials() -> None:
    """`automatic` sees the past only, and costs what a candidate costs; without history it is refused."""
    rng = np.random.default_rng(8)
    free = np.repeat(rng.random(200) < 0.7, rng.integers(1, 20, 200))
    starts = np.arange(800, 1200, 4)
    found = automatic(market(), slots_of(free), 4, 8, starts, threads=1)
    (every,) = walk_forward(market(), slots_of(free), [(4, 8)], first=400, refit=720, step=4, threads=1)
    costs = every.costs[:, np.isin(every.starts, starts)]
    assert found.costs.shape == (100,) and (found.costs[None] == costs).any(axis=0).all()
    with pytest.raises(InputError, match="first = 0"):
        automatic(market(), slots_of(free), 4, 8, np.arange(0, 100, 4))


def test_what_a_job_may_cost() -> None:
    """By hand: costs of 0.4 to 1.2, of which a fifth had interruptions and on-demand machines."""
    costs = np.random.default_rng(0).permutation(np.linspace(0.4, 1.2, 100))
    dear = (np.arange(100) % 5 == 0)[None].astype(np.int64)
    found = trials_of(costs[None], slots=8, step=8)._replace(
        expected=np.full(100, 0.8), losses=2 * dear, on_demand=5 * dear, finished=4 + 3 * dear
    )
    told = outlook(market(), found, 0, 0.8)
    assert told is not None and told.trials == 100
    assert told.low == pytest.approx(0.48, abs=0.08) and told.high == pytest.approx(1.12, abs=0.08)
    assert told.held == pytest.approx(0.8, abs=0.1)
    assert (told.without_on_demand, told.without_interruption) == (0.8, 0.8)
    assert told.interruptions == pytest.approx(0.4) and told.hours == pytest.approx((4 / 6, 4 / 6, 7 / 6))
    assert outlook(market(), trials_of(costs[None, :10]), 0, 0.8) is None
