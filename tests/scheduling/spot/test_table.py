"""The strategy table: equality with direct recursion, and the invariants of docs/specs/spot.md, section 7.1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.scheduling.spot.heuristics import on_demand_cost
from goffish.scheduling.spot.job import Status
from goffish.scheduling.spot.model import Local, Market, units_left
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_cases import (
    assert_equals_recursion,
    exact_cost,
    joint_states,
    prices_of,
    random_market,
    tiny,
)

SEEDS = st.integers(0, 2**32 - 1)
SLACK = 1e-12


@given(SEEDS)
def test_equals_direct_recursion(seed: int) -> None:
    """§7.1, 6: breaks with any error in the Bellman equations, on any billing rule and extra."""
    assert_equals_recursion(random_market(seed), 3, 7)


@pytest.mark.slow
@given(SEEDS)
def test_equals_direct_recursion_more_often(seed: int) -> None:
    """The same on many more markets."""
    assert_equals_recursion(random_market(seed), 3, 7)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_actions_are_worth_their_values(seed: int) -> None:
    """Acting by the look-ups costs what the table says: breaks when an action is stored or read wrongly."""
    market = random_market(seed)
    table = build_table(market, 4, 9)
    for at, p in enumerate(joint_states(market)):
        found, expected = exact_cost(market, table, 4, 9, p), float(table.values[9, at, 4])
        assert found == expected or found == pytest.approx(expected, abs=SLACK)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_feasibility_and_order(seed: int) -> None:
    """§7.1, 1 to 3: finite where it must be, whatever the price; more time never hurts, more work never helps."""
    market = random_market(seed)
    work, slots = 5, 12
    table = build_table(market, work, slots)
    for left in range(slots + 1):
        for c in range(1, work + 1):
            assert np.isfinite(table.values[left, :, c]).all() == (left >= market.least_slots(c))
            assert np.isfinite(table.values[left, :, c]).any() == (left >= market.least_slots(c))
            for kind, one in enumerate(market.classes):
                if left >= market.startup_slots + -(-c // one.speed):
                    assert (table.values[left, :, c] <= on_demand_cost(market, c, kind) + SLACK).all()
    assert (table.values[1:] <= table.values[:-1] + SLACK).all()
    assert (table.values[:, :, :-1] <= table.values[:, :, 1:] + SLACK).all()


def test_equal_to_on_demand_where_there_is_no_choice() -> None:
    """§7.1, 3: breaks when the tightest deadline is not met on demand only."""
    market = tiny()
    table = build_table(market, 3, 8)
    for c in (1, 2, 3):
        assert table.values[market.least_slots(c), :, c] == pytest.approx(on_demand_cost(market, c, 0))


def _codes(table: Table, j: int, work: int, slots: int) -> np.ndarray:
    """Actions of all layers with up to `slots` left, of all saved and remaining work up to `work`."""
    actions, joint = table.actions, table.market.joint_states
    places = np.arange(actions.base[j], actions.base[j + 1])
    found = np.zeros((slots + 1, places.size, work), np.uint8)
    for at, place in enumerate(places):
        for run in range(actions.first[place], actions.first[place + 1]):
            word = actions.words[actions.number[run]]
            codes = [int(word[c // 32]) >> 2 * (c % 32) & 3 for c in range(work)]
            found[actions.since[run] :, at] = codes
    layers = table.market.longest_checkpoint
    shape = (slots + 1, layers * joint, table.work, int(actions.states[j]), work)
    return found.reshape(shape)[:, :, :work]


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_smaller_tables_are_corners(seed: int) -> None:
    """§7.1, 4, bit for bit: breaks when a value depends on the bounds, on the threads or on where building resumed."""
    market = random_market(seed)
    small, large = build_table(market, 3, 6), build_table(market, 5, 10, threads=1)
    assert np.array_equal(small.values, large.values[:7, :, :4])
    assert np.array_equal(small.idle_actions, large.idle_actions[:7, :, :4])
    for j in range(market.choices):
        assert np.array_equal(_codes(small, j, 3, 6), _codes(large, j, 3, 6))
    grown = build_table(market, 3, 10, extends=small)
    again = build_table(market, 3, 10)
    assert np.array_equal(grown.values, again.values) and np.array_equal(grown.idle_actions, again.idle_actions)
    for mine, other in zip(grown.actions, again.actions, strict=True):
        assert np.array_equal(mine, other)


def _values(market: Market) -> np.ndarray:
    return build_table(market, 4, 9).values


@given(SEEDS)
@settings(max_examples=25, deadline=None)
@pytest.mark.slow
def test_more_choices_never_cost_more(seed: int) -> None:
    """§7.1, 5: breaks when a bid, a local machine, notice, faster operations or lower prices make a job dearer."""
    market = random_market(seed, notice=False, local=None)
    plain = _values(market)
    first = market.classes[0]
    if first.covers.size:
        fewer = (replace(first, covers=first.covers[1:]), *market.classes[1:])
        assert (plain <= _values(_with(market, classes=fewer)) + SLACK).all()
    assert (_values(_with(market, local=Local(1, 1, 0.01))) <= plain + SLACK).all()
    assert (_values(_with(market, notice=True)) <= plain + SLACK).all()
    for name in ("startup_slots", "checkpoint_slots"):
        slower = _with(market, **{name: getattr(market, name) + 1})
        assert (plain <= _values(slower) + SLACK).all()
    dearer = (replace(first, levels=first.levels * 1.2), *market.classes[1:])
    assert (plain <= _values(_with(market, classes=dearer)) + SLACK).all()


def _with(market: Market, **changes: object) -> Market:
    return replace(market, **changes)  # type: ignore[arg-type]


def test_what_is_refused() -> None:
    """Breaks when a question beyond the table is answered with something else's numbers."""
    table = build_table(tiny(), 3, 8)
    for work, slots in ((4, 8), (3, 9), (-1, 3)):
        with pytest.raises(InputError, match="the table covers up to 3 core-hours and 4 h"):
            table.expected_cost(work, slots)
    with pytest.raises(InputError, match="prices: expected 1, one for each machine type, found 2"):
        table.expected_cost(1, 5, [0.1, 0.2])
    with pytest.raises(InputError, match="at least 1"):
        build_table(tiny(), 0, 5)
    with pytest.raises(InputError, match="extends: requires the same market and work, and fewer slots"):
        build_table(tiny("per_second"), 3, 9, extends=table)
    assert prices_of(table.market, (0,)) == [0.02] and table.decide(8, Status(6, 0, 0), [0.02]) == 0


@pytest.mark.parametrize("rule", ["hourly", "per_second", "hourly_start"])
@pytest.mark.parametrize("hour", [1, 2, 6])
def test_prices_on_demand(rule: str, hour: int) -> None:
    """Equal to the charges slot by slot, and computed at once for any work."""
    market = replace(tiny(), slots_per_hour=hour, on_demand_billing=rule, startup_billed=rule == "per_second")
    for work in range(1, 20):
        slots = work + market.startup_billed
        hours = slots / hour if rule == "per_second" else -(-slots // hour)
        assert on_demand_cost(market, work, 0) == pytest.approx(hours * 0.13)
    assert on_demand_cost(market, 10**15, 0) == pytest.approx(10**15 / hour * 0.13)


def test_any_work_is_at_least_a_unit() -> None:
    assert units_left(1e-300, 0.5) == 1 == units_left(0.5 + 1e-12, 0.5)
    assert units_left(0.0, 0.5) == 0
