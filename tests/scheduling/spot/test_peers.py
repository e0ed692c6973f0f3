"""The rules of other schedulers: word for word, never late, and in the same replay as the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.job import CHECKPOINT, PROCESS, QUIESCED, RELEASE, RUNNING, START, WAIT, Status, run_job
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import peer
from goffish.scheduling.spot.replay import replay
from tests.scheduling.spot.spot_cases import exact_cost, joint_states, path_prices, random_market, reference

KINDS = ("greedy", "eager", "uniform-progress")
SEEDS = st.integers(0, 2**32 - 1)
#: One class, "medium": spot choice 3 is its highest bid, choice 4 on demand.
SPOT, DEMAND = START + 3, START + 4


def _adversaries(rng: np.random.Generator, slots: int, count: int) -> np.ndarray:
    """Prices of one class, shape (count, slots + 1): random ones, jumps at every slot, always high, alternating."""
    low, high = 0.01, 9.0
    random = np.where(rng.random((count, slots + 1)) < rng.uniform(0.02, 0.9, (count, 1)), high, low)
    at = np.arange(slots + 1)
    jumps = np.where(at >= at[:, None], high, low)
    alternating = [np.where((at // n + k) % 2, high, low) for n in (1, 2, 3, 5) for k in (0, 1)]
    return np.concatenate(
        (random, jumps, jumps[:, ::-1], *(row[None] for row in alternating), np.full((1, slots + 1), high))
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "given_",
    [{}, {"notice": True}, {"startup_slots": 3}, {"checkpoint_slots": 3, "startup_slots": 2}],
    ids=["plain", "notice", "slow start", "slow checkpoint"],
)
def test_no_deadline_is_missed(kind: Any, given_: dict[str, Any]) -> None:
    """Over 10 000 random paths for each kind and market, and adversarial ones; also losses that no price shows."""
    market = reference(names="medium", **given_)
    rng = np.random.default_rng(len(given_))
    for slots in range(market.least_slots(12), 60, 7):
        paths = _adversaries(rng, slots, 1500)
        prices = path_prices(np.ascontiguousarray(paths.reshape(-1, 1)))
        peaks = np.where(rng.random(prices.peaks.shape) < 0.05, np.inf, prices.peaks)
        starts = np.arange(len(paths)) * (slots + 1)
        for lifetime in (2.0, np.inf):
            rule = peer(market, kind, 12, slots, lifetime=lifetime)
            assert not replay(rule, 12, slots, SlotPrices(prices.prices, peaks), starts).missed


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_replay_is_run_job_and_not_below_the_table(seed: int) -> None:
    """The kernels do what the single run does, and no exact cost is below the optimum (by the independent oracle)."""
    market = random_market(seed)
    if not market.classes[0].covers.size:
        return
    rng = np.random.default_rng(seed)
    prices = path_prices(rng.uniform(0, 0.6, (22, len(market.classes))))
    for kind in KINDS:
        rule = peer(market, kind, 3, 9, lifetime=2.0)  # type: ignore[arg-type]
        if rule.least_slots > 9:
            continue
        found = replay(rule, 3, 9, prices)
        for first in range(13):
            run = run_job(market, rule, 3, 9, prices, first)
            assert found.costs[first] == run.cost and found.finished[first] == run.finished > 0


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_exact_costs_are_finite(seed: int) -> None:
    """By the recursion over all futures of random markets, with hazards: an infinite cost would be a miss."""
    market = random_market(seed)
    if not market.classes[0].covers.size:
        return
    for kind in KINDS:
        rule = peer(market, kind, 2, 7, lifetime=1.0)  # type: ignore[arg-type]
        if rule.least_slots <= 7:
            assert all(np.isfinite(exact_cost(market, rule, 2, 7, bins)) for bins in joint_states(market))


def _idle(work: int) -> Status:
    return Status(QUIESCED, work, work)


def _runs(work: int, saved: int, action: int) -> Status:
    return Status(RUNNING, work, saved, action - START)


def test_rules_word_for_word() -> None:
    """§3.3, §3.4, §5.2.2 with d = 1 and a checkpoint of 1: 12 units at 1 a slot, deadline 36."""
    market = reference(names="medium")
    low, high = [0.01], [9.0]
    greedy, eager, uniform = (peer(market, kind, 12, 36) for kind in KINDS)  # type: ignore[arg-type]
    for rule in (greedy, eager, uniform):
        # Spot whenever there is some, and kept while it lives.
        assert rule.decide(36, _idle(12), low) == SPOT
        assert rule.decide(30, _runs(9, 12, SPOT), low) == PROCESS
        # Safety net: 12 + 1 on demand, and room for a start-up, one slot and a checkpoint.
        assert rule.decide(16, _idle(12), low) == SPOT and rule.decide(15, _idle(12), low) == DEMAND
        assert rule.decide(15, _idle(12), high) == DEMAND
        # Work is saved before the last moment, and if there is none the machine is given back.
        assert rule.decide(15, _runs(9, 12, SPOT), low) == PROCESS
        assert rule.decide(14, _runs(9, 12, SPOT), low) == CHECKPOINT
        assert rule.decide(13, _runs(12, 12, SPOT), low) == RELEASE
    assert greedy.decide(30, _idle(12), high) == WAIT and eager.decide(30, _idle(12), high) == DEMAND
    assert all(rule.decide(30, _runs(9, 12, DEMAND), low) == PROCESS for rule in (greedy, eager))
    # e_p(t) = t / 3: at t = 6 two units are due.
    assert uniform.decide(30, _idle(10), high) == WAIT and uniform.decide(30, _idle(11), high) == DEMAND
    assert uniform.decide(36, _idle(12), high) == WAIT and uniform.decide(35, _idle(12), high) == DEMAND
    assert uniform.decide(30, _idle(11), low) == SPOT
    # Hysteresis: after the checkpoint at t = 7, and two start-ups, at t = 9, three are due.
    assert uniform.decide(30, _runs(10, 12, DEMAND), low) == PROCESS
    assert uniform.decide(30, _runs(9, 12, DEMAND), low) == CHECKPOINT
    assert uniform.decide(29, _runs(9, 9, DEMAND), low) == RELEASE
    assert uniform.decide(28, _runs(9, 9, DEMAND), low) == PROCESS
    # To the end if leaving would only lead into the safety net.
    assert uniform.decide(6, _runs(1, 12, DEMAND), low) == CHECKPOINT
    assert uniform.decide(5, _runs(1, 12, DEMAND), low) == PROCESS


def test_checkpoints() -> None:
    """Young's interval and the highest bid; none in between where notice is given; greedy is H3 with both."""
    market = reference(names="medium")
    rule = peer(market, "greedy", 24, 40, lifetime=14.6)
    assert rule.interval == pytest.approx(5.4, abs=0.01) and rule.bid == 3
    assert peer(reference(names="medium", notice=True), "greedy", 24, 40, lifetime=14.6).interval == np.inf
    assert peer(market, "greedy", 24, 40).interval == np.inf
    prices = path_prices(np.random.default_rng(0).choice([0.01, 0.05, 2.0], (400, 1), p=[0.8, 0.1, 0.1]))
    same = [replay(one, 24, 40, prices) for one in (rule, Heuristic(market, "h3", 24, 0, 3, rule.interval))]
    assert np.array_equal(same[0].costs, same[1].costs) and same[0].losses.sum() > 0


def test_what_they_cost() -> None:
    """Where spot is always there all three cost the same; where it is never there, on demand."""
    market = reference(names="medium")
    for price, cost in ((0.01, 0.02), (9.0, 0.26)):
        prices = path_prices(np.full((60, 1), price))
        for kind in KINDS:
            found = replay(peer(market, kind, 12, 40), 12, 40, prices)  # type: ignore[arg-type]
            expected = cost
            if kind == "uniform-progress" and price > 1:
                # It goes on demand and back to idle again and again, each time for a started hour.
                assert found.mean_cost > 0.26 and not found.missed
                continue
            assert found.costs == pytest.approx(expected)


def test_what_is_refused() -> None:
    market: Market = reference(names="medium")
    prices = path_prices(np.full((60, 1), 0.01))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "lazy"}, "unknown heuristic 'lazy'; accepted: greedy, eager, uniform-progress"),
        ({"lifetime": -1.0}, "lifetime = -1"),
        ({"class_number": 2}, "unknown machine type 2"),
        (
            {"kind": "uniform-progress", "slots": 0},
            "slots = 0: uniform progress requires at least 1 slot until the deadline",
        ),
    ]
    for change, match in cases:
        with pytest.raises(InputError, match=match):
            peer(**{"market": market, "kind": "greedy", "work": 12, "slots": 40, **change})
    with pytest.raises(InputError, match="slots = 41: the heuristic is for deadlines of 40 slots"):
        replay(peer(market, "uniform-progress", 12, 40), 12, 41, prices)
