"""Checkpoints by remaining work, billed start-up, joint and semi-Markov chains, soft deadlines: all of it together."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.spot.paths import midpoints, simulate_prices
from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError, StoreError
from goffish.scheduling.spot.comparison import lower_bounds
from goffish.scheduling.spot.files import fingerprint_digest, open_table, write_table
from goffish.scheduling.spot.heuristics import Heuristic, on_demand_cost
from goffish.scheduling.spot.job import (
    CHECKPOINT,
    Status,
    advance,
    run_job,
    settle,
)
from goffish.scheduling.spot.model import Market, SpotClass, chain_of
from goffish.scheduling.spot.replay import replay
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_bills import bill_of
from tests.scheduling.spot.spot_cases import (
    ages_of,
    assert_equals_recursion,
    best_by_trial,
    exact_cost,
    joint_states,
    path_prices,
    prices_of,
    random_market,
    reference,
    rich_market,
    tiny,
)

SEEDS = st.integers(0, 2**32 - 1)
KINDS = ("h1", "h2", "h3")
SLACK = 1e-12


def _with(market: Market, **changes: Any) -> Market:
    return replace(market, **changes)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
@pytest.mark.slow
def test_equals_direct_recursion(seed: int) -> None:
    """§7.1, 6: breaks with any error in the Bellman equations of what was added, alone or together."""
    assert_equals_recursion(rich_market(seed), 3, 6)


@pytest.mark.slow
@given(SEEDS)
def test_equals_direct_recursion_more_often(seed: int) -> None:
    """The same on many more markets."""
    assert_equals_recursion(rich_market(seed), 3, 6)


@given(SEEDS)
@settings(max_examples=12, deadline=None)
def test_actions_are_worth_their_values(seed: int) -> None:
    """Acting by the look-ups costs what the table says: breaks when an action is stored or read wrongly."""
    market = rich_market(seed)
    table = build_table(market, 3, 7)
    for at, p in enumerate(joint_states(market)[:6]):
        found, expected = exact_cost(market, table, 3, 7, p), float(table.values[7, at, 3])
        assert found == expected or found == pytest.approx(expected, abs=SLACK)
        mean = table.expected_cost(3, 7, prices_of(market, p), ages_of(market, p))
        assert mean == pytest.approx(expected, abs=SLACK) or mean == expected
    if market.classes[0].covers.size:
        p = joint_states(market)[0]
        for kind in KINDS:
            # §7.1, 7, also where the deadline is soft.
            rule = Heuristic(market, kind, 3, 0, 0, 1.0)  # type: ignore[arg-type]
            assert exact_cost(market, rule, 3, 7, p) >= table.values[7, 0, 3] - SLACK


def _off_model(market: Market, seed: int, slots: int) -> SlotPrices:
    rng = np.random.default_rng(seed)
    prices = path_prices(rng.uniform(0, 0.6, (slots + 1, len(market.classes))))
    return SlotPrices(prices.prices, prices.peaks + 0.1 * (rng.random(prices.peaks.shape) < 0.2))


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_replay_is_run_job(seed: int) -> None:
    """Also missed deadlines and what they cost; §7.1, 8: none is missed that is hard, by the table or H1 to H3."""
    market = rich_market(seed)
    prices = _off_model(market, seed, 25)
    policies: list[Table | Heuristic] = [build_table(market, 3, 10)]
    if market.classes[0].covers.size:
        policies += [Heuristic(market, kind, 3, 0, 0, 1.0) for kind in KINDS]  # type: ignore[arg-type]
    hard = market.late_penalty is None
    for policy, slots in product(policies, (10,) if hard else (10, 4)):
        if hard and (policy.least_slots if isinstance(policy, Heuristic) else market.least_slots(3)) > slots:
            continue
        found = replay(policy, 3, slots, prices)
        for first in range(16):
            run = run_job(market, policy, 3, slots, prices, first)
            assert found.costs[first] == run.cost and found.finished[first] == run.finished
            assert run.cost == pytest.approx(bill_of(market, run, prices, first, slots), abs=1e-12)
        assert not (hard and found.missed)


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_clairvoyant(seed: int) -> None:
    """Against trying all actions slot by slot, and as a bound of the table's runs."""
    market = rich_market(seed)
    prices = _off_model(market, seed, 12)
    bound = lower_bounds(market, 3, 7, prices, np.arange(7, 13))
    for left in (0, 4, 6):
        tried = best_by_trial(market, 3, left, prices, 7)
        assert bound[0, left] == tried or bound[0, left] == pytest.approx(tried, abs=1e-12)
    if market.least_slots(3) <= 7 or market.late_penalty is not None:
        found = replay(build_table(market, 3, 7), 3, 7, prices)
        assert (bound[:, 7] <= found.costs + 1e-12).all()


@given(SEEDS)
@settings(max_examples=12, deadline=None)
def test_order(seed: int) -> None:
    """§7.1, 5: a soft deadline is never dearer than a hard one, nor a smaller penalty, nor shorter checkpoints."""
    market = rich_market(seed, late_penalty=None)
    saves = market.checkpoint_slots
    assert isinstance(saves, tuple)
    values = {penalty: build_table(_with(market, late_penalty=penalty), 3, 7).values for penalty in (0.1, 0.3, None)}
    assert (values[0.1] <= values[0.3] + SLACK).all() and (values[0.3] <= values[None] + SLACK).all()
    assert values[0.1][0, 0] == pytest.approx(0.1 * np.arange(4))
    for at in range(len(saves)):
        longer = tuple(slots + (k == at) for k, slots in enumerate(saves))
        slower = build_table(_with(market, checkpoint_slots=longer), 3, 7).values
        assert (values[None] <= slower + SLACK).all()
    assert np.isfinite(values[None]).all(axis=1)[:, 3].tolist() == [t >= market.least_slots(3) for t in range(8)]


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_great_penalties_are_hard_deadlines(seed: int) -> None:
    """O-14: where each machine may be taken in each slot, no risk is worth a penalty without bounds.

    Elsewhere it may be: the guard of a hard deadline is also against losses of probability 0, and does not rely on the
    notice of a loss.
    """
    market = random_market(seed, notice=False)
    rng = np.random.default_rng(seed)
    classes = tuple(
        replace(one, hazard=0.2, chain=0.5 * rng.dirichlet(np.ones(one.bins), one.bins) + 0.5 / one.bins)
        for one in market.classes
    )
    hard = build_table(_with(market, classes=classes), 3, 7)
    soft = build_table(_with(market, classes=classes, late_penalty=1e9), 3, 7)
    kept = np.isfinite(hard.values)
    assert soft.values[kept] == pytest.approx(hard.values[kept], abs=1e-9)
    assert (soft.values[~kept] > 1e3).all()


@pytest.mark.parametrize("startup", [1, 2])
def test_machines_that_are_always_taken(startup: int) -> None:
    """The guard, where nothing that survives says that a loss is fatal: on demand is all there is."""
    one = replace(tiny().classes[0], hazard=1.0)
    market = _with(tiny(), classes=(one,), startup_slots=startup)
    values = build_table(market, 3, 8).values
    for c in (1, 2, 3):
        assert (np.isfinite(values[:, :, c]) == (np.arange(9) >= market.least_slots(c))[:, None]).all()
        assert values[market.least_slots(c) :, :, c] == pytest.approx(on_demand_cost(market, c, 0))


def test_a_soft_deadline_by_hand() -> None:
    """One unit, two slots, nothing saved in time: on demand it costs 0.13, waiting the penalty."""
    for penalty, expected in ((0.05, 0.05), (0.12, 0.12), (0.2, 0.13)):
        table = build_table(_with(tiny(), late_penalty=penalty), 2, 4)
        assert table.values[2, 1, 1] == pytest.approx(expected)
        found = replay(table, 1, 2, path_prices(np.full((9, 1), 0.5)))
        assert found.costs == pytest.approx(expected) and found.missed == (7 if expected < 0.13 else 0)


@pytest.mark.parametrize(("rule", "hours"), [("hourly", 2.0), ("per_second", 7 / 6), ("first_hour_free", 7 / 6)])
def test_start_up_that_is_billed(rule: Any, hours: float) -> None:
    """§6.14 in closed form: 6 slots of work after one of start-up are 7 billed ones; also that of the heuristics."""
    market = _with(reference(names="medium"), spot_billing=rule, on_demand_billing=rule, startup_billed=True)
    prices = path_prices(np.full((30, 1), 9.0))
    assert on_demand_cost(market, 6, 0) == pytest.approx(hours * 0.13)
    for policy in (build_table(market, 6, 9), Heuristic(market, "h3", 6, 0, 1, 3.0)):
        assert replay(policy, 6, 9, prices).costs == pytest.approx(hours * 0.13)
    with pytest.raises(InputError, match="startup_billed with hourly_start: requires startup_slots = 1, not 2"):
        _with(market, spot_billing="hourly_start", startup_slots=2)


def test_checkpoints_by_remaining_work() -> None:
    """§2.4: slot by slot; and a machine held at a deadline that is missed: what is left, and its open hour (O-14)."""
    market = _with(tiny(), checkpoint_slots=(1, 3, 2, 2, 2), late_penalty=0.5)
    assert market.saves.tolist() == [1, 3, 2] and market.longest_checkpoint == 3
    for work, slots in ((1, 1), (2, 3), (3, 2), (4, 2), (9, 2)):
        status, taken = Status(2, work, 10, 1), 0
        while status.saved == 10:
            status, taken = advance(market, status, CHECKPOINT if taken == 0 else 0, [0.5], [0.5]).status, taken + 1
        assert taken == slots and status.state == 2
    assert settle(market, Status(2, 3, 4, 1, 1), [0.9]) == pytest.approx(1.5 + 0.13)
    assert settle(market, Status(2, 3, 4, 0, 1), [0.9]) == pytest.approx(1.5 + 0.9)
    assert settle(market, Status(2, 3, 4, 0, 0), [0.9]) == settle(market, Status(0, 3, 3), [0.9]) == 1.5
    assert settle(tiny(), Status(2, 3, 4, 0, 1), [0.9]) == 0.0


@cache
def _joint() -> Market:
    market = reference(names="medium large", covers=[1, 3])
    first, second = market.classes
    return _with(market, joint_chain=np.kron(first.chain, second.chain))


def test_joint_chains() -> None:
    """O-15: the product is the classes' own chains; where both move alike, a second class is no refuge."""
    market = _joint()
    table = build_table(market, 12, 40)
    alone = build_table(_with(market, joint_chain=None), 12, 40)
    assert table.values == pytest.approx(alone.values, abs=1e-12)
    assert market.stationary == pytest.approx(_with(market, joint_chain=None).stationary, abs=1e-9)
    levels, chain = np.array([0.01, 0.9]), np.array([[0.9, 0.1], [0.4, 0.6]])
    one = SpotClass("a", 1, 0.2, midpoints(levels), levels, chain, np.array([0]))
    both = Market((one, replace(one, name="b")), unit=1.0)
    alike = np.zeros((4, 4))
    alike[:, [0, 3]] = np.repeat(chain, 2, axis=0)
    joint = build_table(_with(both, joint_chain=alike), 4, 12).values[:, [0, 3]]
    assert joint == pytest.approx(build_table(Market((one,), unit=1.0), 4, 12).values, abs=1e-12)
    assert (build_table(both, 4, 12).values[:, [0, 3]] <= joint + SLACK).all()
    prices, starts = simulate_prices(_with(both, joint_chain=alike), 12, 200, np.random.default_rng(1))
    bins = np.stack([one.bins_of(prices.prices[:, k]) for k in (0, 1)])
    inside = np.setdiff1d(np.arange(bins.shape[1]), starts)
    assert (bins[0, inside] == bins[1, inside]).all() and 0 < bins.mean() < 1


def _semi() -> Market:
    """One class whose spikes last two slots for certain."""
    levels = np.array([0.02, 0.3])
    leave = [[0.2, 0.1, 0.02], [0.0, 1.0, 1.0]]
    chain = np.zeros((6, 6))
    for b in (0, 1):
        for age in range(3):
            chain[3 * b + age, 3 * (1 - b)] = leave[b][age]
            chain[3 * b + age, 3 * b + min(2, age + 1)] = 1 - leave[b][age]
    one = SpotClass("semi", 1, 0.13, midpoints(levels), levels, chain, np.array([0]), ages=3)
    return Market((one,), unit=1.0)


@pytest.mark.parametrize("joint", [False, True])
def test_ages_against_simulation(joint: bool) -> None:
    """The table's value is within the 99 % interval of replays, which count the ages themselves."""
    market = _semi()
    if joint:
        market = _with(market, joint_chain=market.classes[0].chain)
    table = build_table(market, 6, 14)
    prices, starts = simulate_prices(market, 14, 20_000, np.random.default_rng(3))
    found = replay(table, 6, 14, prices, starts)
    assert abs(found.mean_cost - table.expected_cost(6, 14)) <= 2.576 * found.error and not found.missed
    # What is before each path tells the ages of its first prices.
    begin = market.joint(prices.prices, market.ages_of(prices.prices))[starts]
    share = np.bincount(begin, minlength=6) / starts.size
    spread = np.sqrt(market.stationary * (1 - market.stationary) / starts.size)
    assert (np.abs(share - market.stationary) <= 4 * spread + 1e-12).all()
    # A price that has just fallen is less safe than one that has been low for long.
    assert table.expected_cost(6, 14, [0.02], [0]) > table.expected_cost(6, 14, [0.02], [2]) + 0.001


def test_ages_of_prices() -> None:
    """By hand; breaks when ages go on over a change of bins, or beyond what the chain distinguishes."""
    market = _semi()
    prices = np.array([0.02, 0.03, 0.3, 0.31, 0.3, 0.3, 0.02])[:, None]
    assert market.ages_of(prices)[:, 0].tolist() == [0, 1, 0, 1, 2, 2, 0]
    assert market.joint(prices, market.ages_of(prices)).tolist() == [0, 1, 3, 4, 5, 5, 0]
    assert market.joint(prices[:1], np.array([[9]])).tolist() == [2]
    table = build_table(market, 3, 8)
    with pytest.raises(
        InputError, match="ages: required, as the price chains depend on the slots that prices have been"
    ):
        table.decide(8, Status(0, 3, 3), [0.02])
    assert table.decide(8, Status(0, 3, 3), [0.3], [0]) == 0
    share = market.stationary[:3] / market.stationary[:3].sum()
    assert table.expected_cost(3, 8, [0.02]) == pytest.approx(share @ table.values[8, :3, 3])


def test_files(tmp_path: Path) -> None:
    """Each addition is part of the fingerprint and comes back; alike checkpoints have one spelling."""
    plain = _with(_joint(), joint_chain=None)
    path = tmp_path / "t.spot"
    write_table(path, build_table(plain, 2, 4))
    one = plain.classes[0]
    aged = replace(one, ages=2, chain=np.kron(one.chain, [[0.0, 0.0], [0.0, 0.0]]) + _ageing(one.chain))
    others = {
        "startup_billed": _with(plain, startup_billed=True),
        "late_penalty": _with(plain, late_penalty=0.1),
        "checkpoint_slots": _with(plain, checkpoint_slots=(1, 2)),
        "joint_chain": _joint(),
        "medium: ages": _with(plain, classes=(aged, plain.classes[1])),
    }
    for name, other in others.items():
        with pytest.raises(StoreError, match=f"another market: {name} is .* in the table, .* in the market"):
            open_table(path, other)
        write_table(tmp_path / "o.spot", build_table(other, 2, 4))
        again = open_table(tmp_path / "o.spot")
        assert fingerprint_digest(again.market) == fingerprint_digest(other) != fingerprint_digest(plain)
        assert np.array_equal(again.values, build_table(again.market, 2, 4).values)
    assert fingerprint_digest(_with(plain, checkpoint_slots=(1, 1))) == fingerprint_digest(plain)


def _ageing(chain: np.ndarray) -> np.ndarray:
    """A chain with two ages that do not matter."""
    found = np.zeros((2 * len(chain),) * 2)
    for a in range(len(chain)):
        for b in range(len(chain)):
            found[2 * a : 2 * a + 2, 2 * b + (a == b)] = chain[a, b]
    return found


def test_what_is_refused() -> None:
    """One clear line for each thing that cannot be."""
    market = tiny()
    for changes, match in (
        ({"checkpoint_slots": ()}, "startup_slots and checkpoint_slots must be at least 1"),
        ({"checkpoint_slots": (2, 0)}, "startup_slots and checkpoint_slots must be at least 1"),
        ({"late_penalty": -0.1}, "late_penalty = -0.1"),
        ({"late_penalty": np.inf}, "late_penalty = inf"),
        (
            {"joint_chain": np.eye(3)},
            r"joint_chain: expected shape \(2, 2\), and rows that sum to 1 without negative entries",
        ),
        (
            {"joint_chain": np.full((2, 2), 0.6)},
            r"joint_chain: expected shape \(2, 2\), and rows that sum to 1 without negative entries",
        ),
    ):
        with pytest.raises(InputError, match=match):
            _with(market, **changes)
    one = _semi().classes[0]
    with pytest.raises(
        InputError, match="machine type semi: ages must increase by 1 per slot, and bins be entered with age 0"
    ):
        replace(one, chain=np.full((6, 6), 1 / 6))
    with pytest.raises(InputError, match="ages = 0"):
        replace(one, ages=0)
    assert chain_of(0.5, np.ones((2, 2))).tolist() == [[0.5, 0.5], [0.5, 0.5]]


#: Run in a process of its own, whose greatest memory is that of the table.
LARGE = """
import re
from pathlib import Path
from goffish.scheduling.spot.table import build_table
from tests.scheduling.spot.spot_cases import reference
table = build_table(reference(), 192, 432)
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]  # ru_maxrss has the parent's peak
print(peak, table.bytes)
print(*(value.hex() for value in table.values[72, :, 24].tolist()))
"""


@pytest.mark.slow
def test_a_large_table() -> None:
    """64 core-hours within 72 h, in less than 1 GiB; its corner is that of a small table, bit for bit."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    sizes, values = done.stdout.splitlines()
    kilobytes, size = map(int, sizes.split())
    small = build_table(reference(), 24, 72).values[72, :, 24]
    assert [float.fromhex(value) for value in values.split()] == small.tolist()
    assert kilobytes < 2**20 and size < 2**28
