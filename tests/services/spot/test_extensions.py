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

from goffish.errors import InputError, StoreError
from goffish.services.spot.clairvoyant import lower_bounds
from goffish.services.spot.files import fingerprint_digest, open_table, write_table
from goffish.services.spot.heuristics import Heuristic, on_demand_cost
from goffish.services.spot.job import (
    CHECKPOINT,
    RELEASE,
    REVOKED,
    START,
    Run,
    Status,
    advance,
    run_job,
    settle,
    slots_left,
)
from goffish.services.spot.model import Market, SpotClass, chain_of, midpoints, units_left
from goffish.services.spot.prices import SlotPrices
from goffish.services.spot.replay import replay, simulate_prices
from goffish.services.spot.table import Table, build_table
from tests.services.spot.spot_cases import (
    ages_of,
    bellman,
    best_by_trial,
    exact_cost,
    joint_states,
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


def _compare_with_recursion(seed: int) -> None:
    market = rich_market(seed)
    work, slots = 3, 6
    table, value = build_table(market, work, slots), bellman(market)
    for left in range(slots + 1):
        for at, p in enumerate(joint_states(market)):
            for c in range(work + 1):
                found, expected = float(table.values[left, at, c]), value(left, c, p)
                assert found == expected or abs(found - expected) < SLACK, (seed, left, p, c)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_equals_direct_recursion(seed: int) -> None:
    """§7.1, 6: breaks with any error in the Bellman equations of what was added, alone or together."""
    _compare_with_recursion(seed)


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=600, deadline=None)
def test_equals_direct_recursion_more_often(seed: int) -> None:
    """The same on as many markets as the specification asks for."""
    _compare_with_recursion(seed)


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


def _off_model(market: Market, seed: int, slots: int) -> SlotPrices:
    rng = np.random.default_rng(seed)
    prices = SlotPrices.of_path(rng.uniform(0, 0.6, (slots + 1, len(market.classes))))
    return SlotPrices(prices.prices, prices.peaks + 0.1 * (rng.random(prices.peaks.shape) < 0.2))


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
            assert run.cost == pytest.approx(_bill_of(market, run, prices, first, slots), abs=1e-12)
        assert not (hard and found.missed)


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


def _bill_of(market: Market, run: Run, prices: SlotPrices, first: int, slots: int) -> float:
    """§7.1, 9: what a run cost, from the list of its machines: which one, when, and who ended it."""
    now = [prices.prices[first + entry.slot] for entry in run.log]
    after = [prices.prices[first + entry.slot + 1] for entry in run.log if entry.slot < prices.slots - first]
    total, used, begun = 0.0, [], -1
    for at, entry in enumerate(run.log):
        status = entry.status
        follows = run.log[at + 1].status if at + 1 < len(run.log) else None
        if status.state == 0 and entry.action == 5 and market.local is not None:
            total += market.local.move_cost
        asked = status.state == 0 and entry.action >= START and entry.event != 2
        if asked:
            used, begun = [], entry.action - START
        if not asked and status.choice < 0:
            continue
        starting = asked or status.state == 1
        if entry.action not in (RELEASE, 4) and (not starting or market.startup_billed):
            used.append(at)
        gone = follows is None and not run.finished
        finished = follows is None and run.finished > 0
        if entry.action == RELEASE or entry.event == REVOKED or finished or gone:
            ended = "user" if entry.action == RELEASE else "provider" if entry.event == REVOKED else "end"
            at_end = prices.prices[first + slots] if gone and ended == "end" else None
            total += _machine(market, begun, used, ended, now, after, now[at] if ended == "user" else at_end)
            begun = -1
    if not run.finished and market.late_penalty is not None:
        # Replayed to its deadline: what is left then is in the last entry, and what its slot did.
        total += market.late_penalty * _left_at_end(market, run)
    return total


def _left_at_end(market: Market, run: Run) -> int:
    last = run.log[-1]
    status, saved = last.status, last.status.saved
    if last.event == REVOKED:
        return status.work if market.notice and status.state in (2, 3) else saved
    if status.state == 2 and last.action == 1:
        return status.work - int(market.rules.speed[status.choice])
    if status.state == 5:
        assert market.local is not None
        return status.work - market.local.speed
    return saved if status.state in (0, 1, 4) else status.work


def _machine(
    market: Market, choice: int, used: list[int], ended: str, now: list[Any], after: list[Any], at_end: Any
) -> float:
    """Bill of a machine by the words of §2.7; `used`: places in the log of its slots that are billed."""
    spot, kind, hour = bool(market.rules.spot[choice]), int(market.rules.kind[choice]), market.slots_per_hour
    rule = market.spot_billing if spot else market.on_demand_billing

    def at(prices: Any) -> float:
        return float(prices[kind]) if spot else market.classes[kind].on_demand

    whole, cut = divmod(len(used), hour)
    taken = ended == "provider" and bool(used)
    if rule == "per_second":
        return sum(at(now[k]) for k in used) / hour
    if rule == "first_hour_free":
        if taken and len(used) <= hour:
            return 0.0
        if whole:
            return at(now[used[hour - 1]]) + sum(at(now[k]) for k in used[hour:]) / hour
        last = at_end if at_end is not None else now[used[-1]] if used else None
        return cut / hour * at(last) if cut else 0.0
    hours = [used[k : k + hour] for k in range(0, len(used), hour)]
    total = 0.0
    for number, slots in enumerate(hours):
        last = number == len(hours) - 1
        if last and taken:
            price = now[slots[0]] if rule == "hourly_start" else now[slots[-1]]
            total += at(price) * (spot and market.charge_revoked)
        elif rule == "hourly_start":
            total += at(now[slots[0]])
        elif last and len(slots) < hour and at_end is not None:
            total += at(at_end)
        else:
            total += at(after[slots[-1]])
    return total


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


def test_a_soft_deadline_by_hand() -> None:
    """One unit, two slots, nothing saved in time: on demand it costs 0.13, waiting the penalty."""
    for penalty, expected in ((0.05, 0.05), (0.12, 0.12), (0.2, 0.13)):
        table = build_table(_with(tiny(), late_penalty=penalty), 2, 4)
        assert table.values[2, 1, 1] == pytest.approx(expected)
        found = replay(table, 1, 2, SlotPrices.of_path(np.full((9, 1), 0.5)))
        assert found.costs == pytest.approx(expected) and found.missed == (7 if expected < 0.13 else 0)


@pytest.mark.parametrize(("rule", "hours"), [("hourly", 2.0), ("per_second", 7 / 6), ("first_hour_free", 7 / 6)])
def test_start_up_that_is_billed(rule: Any, hours: float) -> None:
    """§6.1 in closed form: 6 slots of work after one of start-up are 7 billed ones; also that of the heuristics."""
    market = _with(reference(names="medium"), spot_billing=rule, on_demand_billing=rule, startup_billed=True)
    prices = SlotPrices.of_path(np.full((30, 1), 9.0))
    assert on_demand_cost(market, 6, 0) == pytest.approx(hours * 0.13)
    for policy in (build_table(market, 6, 9), Heuristic(market, "h3", 6, 0, 1, 3.0)):
        assert replay(policy, 6, 9, prices).costs == pytest.approx(hours * 0.13)
    with pytest.raises(InputError, match="only for a start-up of one slot, not of 2"):
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
    with pytest.raises(InputError, match="give their ages"):
        table.decide(8, Status(0, 3, 3), [0.02])
    assert table.decide(8, Status(0, 3, 3), [0.3], [0]) == 0
    share = market.stationary[:3] / market.stationary[:3].sum()
    assert table.expected_cost(3, 8, [0.02]) == pytest.approx(share @ table.values[8, :3, 3])


@given(st.floats(0.01, 20), st.floats(0, 9e4), st.floats(0, 0.999), st.floats(0, 0.999), st.integers(0, 3))
def test_rounding_at_run_time(core_hours: float, span: float, more: float, later: float, margin: int) -> None:
    """§7.1, 11: work and time within a unit and a slot decide alike, and what is feasible rounded is so exactly."""
    market = reference()
    work, left = units_left(core_hours, market.unit), slots_left(1e6 + span, 1e6, 600.0, margin)
    grown = core_hours + more * (work * market.unit - core_hours)
    passed = later * max(0.0, (1e6 + span - 1e6) - 600.0 * (left + margin))
    assert units_left(grown, market.unit) == work
    if left:
        assert slots_left(1e6 + span, 1e6 + passed * 0.999, 600.0, margin) == left
    assert work * market.unit >= core_hours - 1e-9 and (left == 0 or 600.0 * (left + margin) <= span + 1e-6)
    if work >= 1 and left >= market.least_slots(work):
        exact = market.startup_slots + core_hours / market.unit / 2
        assert span / 600.0 >= exact - 1e-6


def test_run_time_helpers() -> None:
    """By hand; and O-9: a start-up that takes longer is waited for, whatever is left."""
    assert [slots_left(3600, now, 600, 1) for now in (0, 0.1, 600, 2400, 3000, 9000)] == [5, 4, 4, 1, 0, 0]
    assert slots_left(0.3, 0, 0.1) == 2 and slots_left(7200, 0, 600) == 12
    assert [units_left(x, 1 / 3) for x in (8, 8.01, 0, 7.99)] == [24, 25, 0, 24]
    for arguments, match in (((np.inf, 0, 600), "finite"), ((1, 0, 0), "more than 0"), ((1, 0, 1, -1), "0 or more")):
        with pytest.raises(InputError, match=match):
            slots_left(*arguments)
    with pytest.raises(InputError, match="core-hours in units"):
        units_left(-1, 1)
    for market in (reference(startup_slots=2), _with(reference(), startup_billed=True)):
        table = build_table(market, 6, 20)
        for left in range(20, 0, -1):
            for choice in range(market.choices):
                assert table.decide(left, Status(1, 6, 6, choice, 0, 1), [0.014, 0.028]) == 0


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
        with pytest.raises(StoreError, match=f"another market: {name} is .* there, .* here"):
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
        ({"checkpoint_slots": ()}, "at least one slot"),
        ({"checkpoint_slots": (2, 0)}, "at least one slot"),
        ({"late_penalty": -0.1}, "late_penalty = -0.1"),
        ({"late_penalty": np.inf}, "late_penalty = inf"),
        ({"joint_chain": np.eye(3)}, "needs the shape"),
        ({"joint_chain": np.full((2, 2), 0.6)}, "sum 1"),
    ):
        with pytest.raises(InputError, match=match):
            _with(market, **changes)
    one = _semi().classes[0]
    with pytest.raises(InputError, match="grows older slot by slot"):
        replace(one, chain=np.full((6, 6), 1 / 6))
    with pytest.raises(InputError, match="ages = 0"):
        replace(one, ages=0)
    assert chain_of(0.5, np.ones((2, 2))).tolist() == [[0.5, 0.5], [0.5, 0.5]]


#: Run in a process of its own, whose greatest memory is that of the table.
LARGE = """
import resource
from goffish.services.spot.table import build_table
from tests.services.spot.spot_cases import reference
table = build_table(reference(), 192, 432)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, table.bytes)
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
