"""Jobs slot by slot, and policies on price traces: money, deadlines, agreement with the table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.spot.paths import simulate_prices
from goffish.cloud.prices import SlotPrices, trace_of
from goffish.errors import InputError
from goffish.scheduling.spot.comparison import lower_bounds
from goffish.scheduling.spot.heuristics import Heuristic, lifetime_interval, mean_lifetime, young_interval
from goffish.scheduling.spot.job import (
    CHECKPOINT,
    FINISHED,
    RELEASE,
    REVOKED,
    Status,
    advance,
    run_job,
    submitted,
)
from goffish.scheduling.spot.replay import replay
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_cases import (
    best_by_trial,
    exact_cost,
    joint_states,
    path_prices,
    random_market,
    reference,
)

SEEDS = st.integers(0, 2**32 - 1)
KINDS = ("h1", "h2", "h3")


@cache
def _reference_table(slots: int = 72) -> Table:
    return build_table(reference(), 24, slots)


@pytest.mark.parametrize("slots", [18, 24, 36, 72])
@pytest.mark.slow
def test_table_against_simulation(slots: int) -> None:
    """§7.3, E1: the table's value is within the 99 % interval of 20 000 runs, and none is late."""
    table = _reference_table()
    prices, starts = simulate_prices(table.market, slots, 20_000, np.random.default_rng(slots))
    found = replay(table, 24, slots, prices, starts)
    assert abs(found.mean_cost - table.expected_cost(24, slots)) <= 2.576 * found.error and not found.missed


def test_hazards_are_simulated() -> None:
    """§6.14: breaks when machines are taken away more or less often than the model says, or only below some bids."""
    market = reference(hazard=0.05)
    # A bid that covers everything: only the hazard takes such a machine.
    market = replace(market, classes=tuple(replace(c, covers=np.array([1, 4])) for c in market.classes))
    table = build_table(market, 12, 30)
    prices, starts = simulate_prices(market, 30, 20_000, np.random.default_rng(5))
    found = replay(table, 12, 30, prices, starts)
    assert abs(found.mean_cost - table.expected_cost(12, 30)) <= 2.576 * found.error


@pytest.mark.slow
def test_heuristics_against_the_prototype() -> None:
    """§7.4 (b), 8 h, medium: the exact costs .54648, .44637, .36641 are within 99 % of the replay."""
    market = reference()
    prices, starts = simulate_prices(market, 48, 20_000, np.random.default_rng(8))
    for kind, exact in zip(KINDS, (0.54648, 0.44637, 0.36641), strict=True):
        found = replay(Heuristic(market, kind, 24, 0, 1, 15.0), 24, 48, prices, starts)  # type: ignore[arg-type]
        assert abs(found.mean_cost - exact) <= 2.576 * found.error and not found.missed


@given(SEEDS)
@settings(max_examples=20, deadline=None)
@pytest.mark.slow
def test_heuristics_never_beat_the_table(seed: int) -> None:
    """§7.1, 7: exact costs of all heuristics, all classes and bids; breaks when the table misses a better action."""
    market = random_market(seed)
    table = build_table(market, 3, 8)
    for kind, one in enumerate(market.classes):
        for bid in range(one.covers.size):
            for name in KINDS:
                rule = Heuristic(market, name, 3, kind, bid, 2.0)  # type: ignore[arg-type]
                for p in joint_states(market)[::2]:
                    at = joint_states(market).index(p)
                    cost = exact_cost(market, rule, 3, 8, p)
                    assert rule.least_slots > 8 or np.isfinite(cost)
                    assert cost >= table.values[8, at, 3] - 1e-12


def _adversaries(rng: np.random.Generator, slots: int) -> list[np.ndarray]:
    """Two classes' paths, off the model: jumps at each slot, permanently high, alternating, noise; a row each."""
    low, high = np.array([0.013, 0.026]), np.array([9.0, 9.0])
    paths = [np.where(np.arange(slots + 1)[:, None] >= at, high, low) for at in range(slots + 1)]
    paths += [np.where(np.arange(slots + 1)[:, None] < at, high, low) for at in range(0, slots + 1, 3)]
    paths += [np.where(np.arange(slots + 1)[:, None] % k < k // 2, low, high) for k in (2, 3, 5, 7)]
    paths += [np.where(np.arange(slots + 1)[:, None] % k == at, high, low) for k in range(3, 12) for at in range(k)]
    paths += [np.exp(rng.normal(-3.5, 1.5, (slots + 1, 2))) for _ in range(200)]
    jumps = rng.random((2500, slots + 1, 2)) < rng.uniform(0, 0.4, (2500, 1, 1))
    paths += list(np.where(jumps, rng.choice([0.014, 0.03, 0.1, 9.0], jumps.shape), low))
    return paths


@pytest.mark.parametrize("slots", [13, 17, 26, 40])
def test_no_deadline_is_missed(slots: int) -> None:
    """§7.1, 8: over 10 000 paths in all, also adversarial ones; breaks when the guard or a critical point is off."""
    table = _reference_table()
    paths = _adversaries(np.random.default_rng(slots), slots)
    flat = np.concatenate(paths)
    prices, starts = path_prices(flat), np.arange(len(paths)) * (slots + 1)
    found = replay(table, 24, slots, prices, starts)
    assert not found.missed and found.states[-1, FINISHED] == len(paths)
    for kind in KINDS:
        for number in (0, 1):
            rule = Heuristic(table.market, kind, 24, number, 1, 5.0)  # type: ignore[arg-type]
            if rule.least_slots <= slots:
                assert not replay(rule, 24, slots, prices, starts).missed


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_replay_is_run_job(seed: int) -> None:
    """The kernels decide and count as the single run with its log does, on random markets and prices off the model."""
    market = random_market(seed)
    rng = np.random.default_rng(seed)
    prices = path_prices(rng.uniform(0, 0.6, (26, len(market.classes))))
    policies: list[Table | Heuristic] = [build_table(market, 3, 10)]
    if market.classes[0].covers.size:
        policies += [Heuristic(market, kind, 3, 0, 0, 1.0) for kind in KINDS]  # type: ignore[arg-type]
    for policy in policies:
        if isinstance(policy, Heuristic) and policy.least_slots > 10:
            continue
        found = replay(policy, 3, 10, prices)
        for first in range(16):
            run = run_job(market, policy, 3, 10, prices, first)
            assert found.costs[first] == run.cost and found.finished[first] == run.finished > 0
            assert found.losses[first] == sum(entry.event == REVOKED for entry in run.log)
            assert found.checkpoints[first] == sum(entry.action == CHECKPOINT for entry in run.log)
        assert (found.states.sum(axis=1) == 16).all()
        assert found.states[-1, FINISHED] == 16 and (np.diff(found.states[:, FINISHED]) >= 0).all()


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_money_of_a_run(seed: int) -> None:
    """§7.1, 9: the hourly bill, added up anew from which machine was held when, and who ended it."""
    table = _reference_table(40)
    market, rng = table.market, np.random.default_rng(seed)
    prices = path_prices(rng.choice([0.013, 0.02, 0.05, 0.2], (41, 2)) * [1, 2])
    for policy in (table, Heuristic(market, "h3", 24, 1, 2, 4.0)):
        run = run_job(market, policy, 24, 40, prices)
        total, used, held = 0.0, 0, -1
        for entry, after in zip(run.log, [e.status for e in run.log[1:]] + [Status(FINISHED, 0, 0)], strict=True):
            price = prices.prices[:, market.rules.kind[held]]
            flat = None if market.rules.spot[held] else market.rules.fixed[held]
            if entry.action == RELEASE:
                total += (used % 6 > 0) * (price[entry.slot] if flat is None else flat)
            elif held >= 0 and entry.status.state in (2, 3) and entry.event != REVOKED:
                used += 1
                ends = used % 6 == 0 or after.state == FINISHED
                total += ends * (price[entry.slot + 1] if flat is None else flat)
            if after.choice != held:
                used, held = 0, after.choice
        assert run.cost == pytest.approx(total) and run.finished


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_clairvoyant(seed: int) -> None:
    """Against trying all actions slot by slot, and as a bound of the table's runs."""
    market = random_market(seed)
    rng = np.random.default_rng(seed)
    prices = path_prices(rng.uniform(0, 0.6, (13, len(market.classes))))
    prices = SlotPrices(prices.prices, prices.peaks + 0.1 * (rng.random(prices.peaks.shape) < 0.2))
    bound = lower_bounds(market, 3, 7, prices, np.arange(7, 13))
    for at, end in enumerate((7, 8)):
        for left in (4, 7):
            tried = best_by_trial(market, 3, left, prices, end)
            assert bound[at, left] == tried or bound[at, left] == pytest.approx(tried, abs=1e-12)
    if market.least_slots(3) <= 7:
        found = replay(build_table(market, 3, 7), 3, 7, prices)
        assert (bound[:, 7] <= found.costs + 1e-12).all()


def test_intervals() -> None:
    """§3.6, §7.4 (j): lifetimes by hand, Young's 5.4 units, and that a bid's period is not cut by changes within it."""
    trace = trace_of(600.0 * np.array([0, 2, 3, 5, 9, 10]), [0.02, 0.01, 0.9, 0.02, 0.9, 0.9])
    assert mean_lifetime(trace, 0.02, 600) == pytest.approx((3 + 4) / 2)
    assert mean_lifetime(trace, 0.001, 600) == 0.0
    assert young_interval(14.6, 1, 1) == pytest.approx(5.4, abs=0.01)
    assert lifetime_interval(14.6, 2) == pytest.approx(29.2) and lifetime_interval(0, 2) == 1.0


def test_what_is_refused() -> None:
    """Breaks when a job that cannot be kept is run, or a policy is asked for something it is not for."""
    table = _reference_table(40)
    prices = path_prices(np.full((60, 2), 0.01))
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (
            table,
            (24, 12, prices),
            r"^8 core-hours within 2 h: not feasible; the earliest possible end is in 2\.17 h, on demand for \$0\.52$",
        ),
        (
            table,
            (25, 40, prices),
            r"^8\.333 core-hours within 6\.667 h: the table covers up to 8 core-hours and 6\.667 h$",
        ),
        (table, (24, 40, prices, np.array([20])), r"^runs of 6\.667 h exceed the history of 9\.833 h$"),
        (table, (24, 40, path_prices(np.ones((60, 1)))), "prices: expected 2 machine types, found 1"),
        (Heuristic(table.market, "h1", 24), (24, 20, prices), r"in 4\.17 h, on demand"),
        (Heuristic(table.market, "h1", 20), (24, 40, prices), "jobs of 20 units"),
    ]
    for policy, given_, match in cases:
        with pytest.raises(InputError, match=match):
            replay(policy, *given_)
    with pytest.raises(InputError, match="action 2: not possible in state quiesced"):
        advance(table.market, submitted(3), CHECKPOINT, [1, 1], [1, 1])
    with pytest.raises(
        InputError, match="unknown heuristic 'h4'; accepted: on-demand, h1, h2, h3, greedy, eager, uniform-progress"
    ):
        Heuristic(table.market, "h4", 24)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown bid 4 of machine type 0"):
        Heuristic(table.market, "h1", 24, 0, 4)
    with pytest.raises(InputError, match="slots 20 to 60 exceed the prices, which end at slot 59"):
        run_job(table.market, table, 24, 40, prices, 20)
    with pytest.raises(InputError, match="deadlines must be"):
        lower_bounds(table.market, 24, 40, prices, np.array([39]))
