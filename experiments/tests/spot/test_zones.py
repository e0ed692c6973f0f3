"""Jobs in several zones: as in one zone, as a plain Python run, never late, and what the choices are worth."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.spot._zone_kernels import UCB, favourite
from experiments.spot.paths import midpoints
from experiments.spot.zones import Zones, best_fixed_zone, of_zone, replay_zones
from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot.comparison import lower_bounds
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.job import (
    FINISHED,
    POSSIBLE,
    QUIESCED,
    RELEASE,
    REVOKED,
    START,
    Status,
    advance,
    submitted,
)
from goffish.scheduling.spot.model import Market, SpotClass
from goffish.scheduling.spot.peers import peer
from goffish.scheduling.spot.replay import replay
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_cases import path_prices, random_market, reference

SEEDS = st.integers(0, 2**32 - 1)
RULES = ("greedy", "eager", "uniform-progress")
CHOICES = ("first", "epsilon-greedy", "ucb")


def _single(seed: int) -> Market:
    """A random market of one class with at least one bid."""
    market = random_market(seed, local=None)
    one = market.classes[0]
    return replace(market, classes=(replace(one, covers=one.covers if one.covers.size else np.array([0])),))


def _like(market: Market, seed: int) -> Market:
    """The same class in another zone: other prices and chain."""
    one, rng = market.classes[0], np.random.default_rng(seed)
    levels = np.sort(rng.uniform(0.01, 0.6, one.bins)) + 0.01 * np.arange(one.bins)
    chain = rng.dirichlet(np.ones(one.bins), one.bins)
    other = replace(one, levels=levels, edges=midpoints(levels), chain=chain, on_demand=one.on_demand * 1.1)
    return replace(market, classes=(other,))


def _rules(markets: list[Market], kind: Any, work: int, slots: int) -> tuple[Heuristic, ...]:
    return tuple(peer(market, kind, work, slots, lifetime=2.0) for market in markets)


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_one_zone_is_the_plain_replay(seed: int) -> None:
    """Bit for bit, for tables and rules, whatever the choice and wherever the data is."""
    market = _single(seed)
    prices = path_prices(np.random.default_rng(seed).uniform(0, 0.6, (40, 1)))
    if market.least_slots(3) > 9:
        return
    policies: list[Any] = [build_table(market, 3, 9), Heuristic(market, "h2", 3), *_all_rules(market)]
    for at, policy in enumerate(policies):
        plain = replay(policy, 3, 9, prices)
        zones = Zones((policy,), 3, 5.0, CHOICES[at % 3], home=at % 2 - 1)  # type: ignore[arg-type]
        found, trips = replay_zones(zones, 3, 9, prices, rng=np.random.default_rng(0))
        for name in ("costs", "finished", "losses", "checkpoints", "rented", "on_demand", "states"):
            assert np.array_equal(getattr(found, name), getattr(plain, name))
        assert not trips.any()


def _all_rules(market: Market) -> list[Heuristic]:
    return [_rules([market], kind, 3, 9)[0] for kind in RULES]


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_data_stays_if_moving_is_dear(seed: int) -> None:
    """As in the zone of the data alone."""
    market = _single(seed)
    markets = [_like(market, seed), market]
    prices = path_prices(np.random.default_rng(seed).uniform(0, 0.6, (30, 2)))
    if market.least_slots(3) > 9:
        return
    sets: list[tuple[Any, ...]] = [tuple(build_table(m, 3, 9) for m in markets)]
    sets += [_rules(markets, kind, 3, 9) for kind in RULES]
    for policies in sets:
        found, trips = replay_zones(Zones(policies, 0, 1e6, home=1), 3, 9, prices)
        plain = replay(policies[1], 3, 9, of_zone(prices, 1))
        assert np.array_equal(found.costs, plain.costs) and not trips.any()


def _run(zones: Zones, work: int, slots: int, prices: SlotPrices, first: int) -> tuple[float, bool, int]:
    """The same in plain Python, by `job.advance` and `decide`; not for epsilon-greedy."""
    status, cost, slot, home, zone, trips = submitted(work), 0.0, 0, zones.home, max(zones.home, 0), 0
    seen, gained = [0] * len(zones.policies), [0.0] * len(zones.policies)
    spot: tuple[int, float, int] | None = None
    while slot < slots and status.state != FINISHED:
        at, left = first + slot, slots - slot
        policies: Any = zones.policies
        asked: int | None = None
        if status.state == QUIESCED:
            options = []
            for z, policy in enumerate(policies):
                away = home not in (-1, z)
                rest, price = left - zones.move_slots * away, [float(prices.prices[at, z])]
                if isinstance(policy, Table):
                    if rest >= 0 and np.isfinite(policy.expected_cost(status.saved, rest, price)):
                        money = policy.expected_cost(status.saved, rest, price) + zones.move_cost * away
                        options.append((money, away, z, policy.decide(rest, status, price)))
                else:
                    one = policy.market.classes[0]
                    usual = -(-status.saved // one.speed) * one.on_demand / policy.market.slots_per_hour
                    lost = zones.move_cost / usual * away
                    wants = policy.decide(rest, status, price)
                    if wants != START + policy.plan.spot or (lost and lost >= 1 - price[0] / one.on_demand):
                        continue
                    score = 1e9 if not seen[z] else gained[z] / seen[z] + np.sqrt(2 * np.log(sum(seen)) / seen[z])
                    score = float(z == home) if zones.choice == "first" else score
                    score -= lost if seen[z] or zones.choice == "first" else 0.0
                    options.append((-score, False, z, wants))
            if options:
                _, _, zone, asked = min(options)
            else:
                zone = max(home, 0)
        policy, market = policies[zone], policies[zone].market
        price = [float(prices.prices[at, zone])]
        hopeless = status.state == QUIESCED and asked is None
        action = policy.decide(left, status, [np.inf] if hopeless else price) if asked is None else asked
        if status.state == QUIESCED and action >= START:
            spent = cost
            if home not in (-1, zone):
                market = replace(market, startup_slots=market.startup_slots + zones.move_slots)
                cost, trips = cost + zones.move_cost, trips + 1
            home = zone
            spot = (status.saved, spent, slot) if market.rules.spot[action - START] else None
        after, peak = prices.prices[at + 1, [zone]], prices.peaks[at, [zone]]
        step = advance(market, status, action, price, after.tolist(), peak.tolist())
        cost, status, slot = cost + step.money, step.status, slot + (not step.timeless)
        if spot and (step.event == REVOKED or step.timeless) and status.state == QUIESCED:
            saved, paid, begun = spot
            one = market.classes[0]
            usual = max(1, slot - begun) * one.on_demand / market.slots_per_hour
            value = (saved - status.work) / one.speed * one.on_demand / market.slots_per_hour
            seen[zone] += 1
            gained[zone] += min(1.0, max(0.0, (value - (cost - paid)) / usual))
            spot = None
    return cost, status.state == FINISHED, trips


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_against_plain_python(seed: int) -> None:
    """Costs, ends and moves of two zones, tables and rules, moves of all lengths and prices."""
    rng = np.random.default_rng(seed)
    market = _single(seed)
    markets = [market, _like(market, seed + 1)]
    prices = path_prices(rng.uniform(0, 0.5, (26, len(markets))))
    prices = SlotPrices(prices.prices, prices.peaks + 9.0 * (rng.random(prices.peaks.shape) < 0.1))
    slots = 12
    if market.least_slots(4) > slots:
        return
    sets: list[tuple[Any, ...]] = [tuple(build_table(m, 4, slots) for m in markets)]
    sets += [_rules(markets, kind, 4, slots) for kind in RULES]
    for policies in sets:
        zones = Zones(
            policies, int(rng.integers(0, 3)), float(rng.choice([0.0, 0.02])), "ucb" if rng.random() < 0.7 else "first",
            home=int(rng.integers(-1, len(markets))),
        )  # fmt: skip
        found, trips = replay_zones(zones, 4, slots, prices)
        for first in range(0, prices.slots - slots + 1, 3):
            cost, done, moved = _run(zones, 4, slots, prices, first)
            assert found.costs[first] == pytest.approx(cost, abs=1e-12)
            assert done and found.finished[first] > 0 and trips[first] == moved


def _known(free: np.ndarray, rng: np.random.Generator) -> tuple[Market, np.ndarray]:
    """A market whose chain knows the future, and its prices: each slot has a price, and with it a state, of its own."""
    price = np.where(free, 0.01, 9.0) + 0.001 * rng.permutation(free.size) / free.size
    order = np.argsort(price)
    levels, rank = price[order], np.argsort(order)
    chain = np.zeros((free.size, free.size))
    chain[rank, np.append(rank[1:], rank[-1])] = 1.0
    covers = np.array([max(0, int(free.sum()) - 1)])
    one = SpotClass("known", 1, 0.05, midpoints(levels), levels, chain, covers)
    return Market((one,), 1, 1.0, spot_billing="per_second", on_demand_billing="per_second"), price


def _least(markets: list[Market], moves: int, move_cost: float, work: int, slots: int, prices: SlotPrices) -> float:
    """The least money of all safe ways to do a job on known prices, by trying every action in every zone."""

    @cache
    def best(left: int, status: Status, zone: int, home: int) -> float:
        if status.state == FINISHED:
            return 0.0
        if left == 0:
            return np.inf
        at, found = slots - left, []
        for z, market in enumerate(markets):
            idle = status.state == QUIESCED
            if not idle and z != zone:
                continue
            for action in (*POSSIBLE[status.state], *(range(START, START + market.choices) if idle else ())):
                one, asks = market, action >= START
                away = asks and home not in (-1, z)
                if away:
                    one = replace(market, startup_slots=market.startup_slots + moves)
                choice = action - START if asks else status.choice
                risky = choice >= 0 and bool(market.rules.spot[choice]) and action != RELEASE
                if risky and left - 1 - moves * away < market.least_slots(status.saved):
                    continue
                now, after = prices.prices[at, [z]].tolist(), prices.prices[at + 1, [z]].tolist()
                step = advance(one, status, action, now, after, prices.peaks[at, [z]].tolist())
                rest = best(left - (not step.timeless), step.status, z, z if asks else home)
                found.append(step.money + move_cost * away + rest)
        return min(found)

    return best(slots, submitted(work), 0, -1)


@given(SEEDS)
@settings(max_examples=12, deadline=None)
def test_choice_by_cost_between_brute_force_and_one_zone(seed: int) -> None:
    """Where the tables know the future: in one zone the least cost there is; in two no more than in the better one,
    no less than by trying everything, which breaks when a move is not paid or takes no time."""
    rng = np.random.default_rng(seed)
    slots, moves, move_cost = 9, int(rng.integers(0, 2)), float(rng.choice([0.0, 0.005]))
    made = [_known(rng.random(slots + 1) < 0.6, rng) for _ in range(2)]
    markets = [market for market, _ in made]
    prices = path_prices(np.stack([row for _, row in made], axis=1))
    tables = tuple(build_table(market, 3, slots) for market in markets)
    found, trips = replay_zones(Zones(tables, moves, move_cost), 3, slots, prices)
    alone = [_least([market], 0, 0.0, 3, slots, of_zone(prices, z)) for z, market in enumerate(markets)]
    for z, table in enumerate(tables):
        assert replay(table, 3, slots, of_zone(prices, z)).costs[0] == pytest.approx(alone[z], abs=1e-9)
    assert _least(markets, moves, move_cost, 3, slots, prices) - 1e-9 <= found.costs[0] <= min(alone) + 1e-9
    assert not found.missed and trips[0] <= 3


def test_two_zones_that_take_turns() -> None:
    """By hand: machines in zone 0 for four slots, then in zone 1; three units, $0.01 a slot, on demand $0.05.

    The data is in zone 0, where the machine is lost after one unit was run and saved; the rest is dear on demand. In
    zone 1 all three cost $0.03 from the fifth slot on. Moving must fit, and cost less than what it saves.
    """
    rng, at = np.random.default_rng(0), np.arange(15)
    made = [_known(at < 4, rng), _known(at >= 4, rng)]
    prices = path_prices(np.stack([row for _, row in made], axis=1))
    tables = tuple(build_table(market, 3, 14) for market, _ in made)
    costs = {}
    for moves, move_cost in ((0, 0.0), (0, 0.02), (0, 1.0), (11, 0.0)):
        found, trips = replay_zones(Zones(tables, moves, move_cost, home=0), 3, 14, prices)
        costs[moves, move_cost] = float(found.costs[0])
        assert trips[0] == (moves == 0 and move_cost < 1)
    assert costs[0, 0.0] == pytest.approx(0.03, abs=0.004)
    assert costs[0, 0.02] == pytest.approx(0.05, abs=0.004)
    assert costs[0, 1.0] == costs[11, 0.0] == replay(tables[0], 3, 14, of_zone(prices, 0)).costs[0] > 0.1


@pytest.mark.parametrize("moves", [0, 3])
def test_no_deadline_is_missed(moves: int) -> None:
    """Zones that come and go independently, together, or one after the other: tables and rules, moves included."""
    market, rng = reference(names="medium"), np.random.default_rng(moves)
    other = replace(market, classes=(replace(market.classes[0], on_demand=0.1),))
    markets = [market, other]
    tables = tuple(build_table(m, 12, 48) for m in markets)
    for slots in (13, 14, 16, 19, 27, 48):
        share = rng.uniform(0.05, 0.95, (600, 1, 1))
        paths = np.where(rng.random((600, slots + 1, 2)) < share, 9.0, 0.01)
        at = np.arange(slots + 1)
        paths[:100] = paths[:100, :, :1]
        for k in range(100):
            # Each time the job has just come to a zone, the machines are in the next one.
            paths[100 + k] = np.where((at[:, None] // (k % 9 + 1)) % 2 == np.arange(2), 0.01, 9.0)
        prices = path_prices(paths.reshape(-1, 2))
        starts = np.arange(600) * (slots + 1)
        for home in (-1, 1):
            sets: list[tuple[Any, ...]] = [tables, *(_rules(markets, kind, 12, slots) for kind in RULES)]
            for number, policies in enumerate(sets):
                zones = Zones(policies, moves, 0.001, CHOICES[(number + slots) % 3], home=home)  # type: ignore[arg-type]
                found, _ = replay_zones(zones, 12, slots, prices, starts, rng=rng)
                assert not found.missed


def test_bandits_learn() -> None:
    """Zone 0 loses every machine in its second slot, zone 1 none in ten: UCB1 and epsilon-greedy keep away from it."""
    market = replace(reference(names="medium", covers=[3]), spot_billing="per_second", on_demand_billing="per_second")
    at = np.arange(1200)
    peaks = np.stack((np.where(at % 2, np.inf, 0.01), np.where(at % 11 == 10, np.inf, 0.01)), axis=1)
    prices = SlotPrices(np.full((1201, 2), 0.01), peaks)
    policies = (peer(market, "greedy", 60, 300, lifetime=4.0),) * 2
    found = {}
    for choice, epsilon in (("first", 0.0), ("epsilon-greedy", 0.1), ("epsilon-greedy", 1.0), ("ucb", 0.0)):
        zones = Zones(policies, choice=choice, epsilon=epsilon)  # type: ignore[arg-type]
        both = [replay_zones(zones, 60, 300, prices, rng=np.random.default_rng(1), threads=n)[0] for n in (1, 3)]
        assert np.array_equal(both[0].costs, both[1].costs)
        found[choice, epsilon] = both[0]
    slow = found["first", 0.0].finished.mean()
    assert found["ucb", 0.0].finished.mean() < 0.8 * slow
    assert found["epsilon-greedy", 0.1].finished.mean() < found["epsilon-greedy", 1.0].finished.mean() < slow
    assert found["ucb", 0.0].mean_cost < found["first", 0.0].mean_cost


def test_random_choices_are_even() -> None:
    """With epsilon = 1 each of the zones that have a machine is asked as often: by the zone's own price."""
    market = replace(reference(names="medium", covers=[3]), spot_billing="per_second", on_demand_billing="per_second")
    prices = path_prices(np.tile([0.012, 0.06], (4000, 1)))
    policies = (peer(market, "greedy", 6, 30),) * 2
    zones = Zones(policies, choice="epsilon-greedy", epsilon=1.0)
    costs = replay_zones(zones, 6, 30, prices, rng=np.random.default_rng(3))[0].costs
    shares = [float(np.isclose(costs, one).mean()) for one in (0.012, 0.06)]
    assert sum(shares) == pytest.approx(1) and abs(shares[0] - 0.5) < 4 * np.sqrt(1 / 4 / 4000)


def test_best_fixed_zone() -> None:
    """The least of the zones' bounds, and that no job of one zone is below its own."""
    market = reference(names="medium")
    prices = path_prices(np.random.default_rng(5).choice([0.01, 2.0], (80, 2), p=[0.9, 0.1]))
    ends = np.arange(30, 79)
    least, zone = best_fixed_zone([market, market], 12, 30, prices, ends)
    bounds = np.stack([lower_bounds(market, 12, 30, of_zone(prices, z), ends)[:, 30] for z in (0, 1)])
    assert np.array_equal(least, bounds.min(axis=0)) and np.array_equal(zone, bounds.argmin(axis=0))
    assert set(zone.tolist()) == {0, 1}


def test_what_is_refused() -> None:
    market = reference(names="medium")
    rule = peer(market, "greedy", 12, 30)
    prices = path_prices(np.full((40, 2), 0.01))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"policies": ()}, "at least one policy"),
        ({"policies": (rule, build_table(market, 3, 9))}, "either tables or heuristics"),
        ({"policies": (rule, peer(market, "eager", 12, 30))}, "of one kind"),
        ({"policies": (rule, peer(replace(market, startup_slots=2), "greedy", 12, 30))}, "differ in prices only"),
        ({"policies": (peer(reference(), "greedy", 12, 30),)}, "one class each"),
        ({"choice": "best"}, "no choice 'best'"),
        ({"move_slots": -1}, "must be 0 or more"),
        ({"home": 2}, "there are 2 zones"),
    ]
    for change, match in cases:
        with pytest.raises(InputError, match=match):
            Zones(**{"policies": (rule, rule), **change})
    runs: list[tuple[Zones, tuple[Any, ...], str]] = [
        (Zones((rule, rule), choice="epsilon-greedy"), (12, 30, prices), "generator"),
        (Zones((rule, rule)), (12, 31, prices), "12 units and 30 slots"),
        (Zones((rule,)), (12, 30, prices), "prices of 1 zones"),
        (Zones((rule, rule)), (12, 30, prices, np.array([20])), "do not fit"),
        (Zones((build_table(market, 12, 20),) * 2), (12, 12, prices), "earliest possible end is 13"),
        (Zones((Heuristic(market, "h1", 12),) * 2), (12, 12, prices), "earliest possible end is 13"),
    ]
    for zones, given_, match in runs:
        with pytest.raises(InputError, match=match):
            replay_zones(zones, *given_)
    with pytest.raises(InputError, match="prices of 1 zones"):
        best_fixed_zone([market], 12, 30, prices, np.array([35]))


def test_ucb_by_hand() -> None:
    """UCB1 after ten and two machines that saved 0.8 and 0: 1.50 against 1.58; after ten and three, against 1.31."""
    market = reference(names="medium")
    plan = peer(market, "greedy", 12, 40).plan
    for count, zone in ((2.0, 1), (3.0, 0)):
        seen, gained = np.array([10.0, count]), np.array([8.0, 0.0])
        now, draw = np.array([0.01, 0.01]), np.zeros(2)
        rest: tuple[Any, ...] = (6, 0, 40, 12, 12, now, seen, gained, draw)
        assert favourite(2, UCB, 0.0, (plan,) * 2, (market.rules,) * 2, 0, 0.0, *rest) == zone
