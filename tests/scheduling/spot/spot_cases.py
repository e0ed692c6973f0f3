"""Markets of the golden values of docs/specs/spot.md, section 7.2, random ones, and oracles in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from experiments.spot.paths import midpoints
from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot.job import FINISHED, POSSIBLE, QUIESCED, START, JobPolicy, Status, advance, submitted
from goffish.scheduling.spot.model import Local, Market, SpotClass, chain_of
from goffish.scheduling.spot.table import build_table

INF = float("inf")
FLOWS = {
    "medium": "- .70 .15 .10 .05/.45 - .30 .15 .10/.25 .60 - .10 .05/.10 .60 .20 - .10/.05 .75 .10 .10 -",
    "large": "- .70 .20 .07 .03/.50 - .30 .15 .05/.20 .65 - .10 .05/.10 .60 .20 - .10/.05 .75 .10 .10 -",
}
LEVELS = {"medium": [0.013, 0.014, 0.020, 0.060, 1.5], "large": [0.026, 0.028, 0.040, 0.120, 2.0]}
ALPHA = {"medium": 0.15, "large": 0.12}


def path_prices(prices: np.ndarray) -> SlotPrices:
    """Prices that change at the ends of slots only, shape (slots + 1, classes): the table's model."""
    return SlotPrices(np.ascontiguousarray(prices), np.ascontiguousarray(prices[1:]))


def tiny(rule: str = "hourly", **given: Any) -> Market:
    """§7.2: one class, two levels, one bid."""
    levels = np.array([0.02, 0.50])
    chain = np.array([[0.8, 0.2], [0.5, 0.5]])
    one = SpotClass("tiny", 1, 0.13, midpoints(levels), levels, chain, np.array([0]))
    return Market((one,), 2, 1.0, spot_billing=rule, on_demand_billing=rule, **given)  # type: ignore[arg-type]


def reference(
    covers: list[int] | None = None, hazard: float = 0.0, names: str = "medium large", **given: Any
) -> Market:
    """§7.2: the model "two-class"."""
    classes = []
    for name in names.split():
        levels = np.array(LEVELS[name])
        goes = np.array([[0.0 if x == "-" else float(x) for x in row.split()] for row in FLOWS[name].split("/")])
        speed, price = (1, 0.13) if name == "medium" else (2, 0.26)
        offered = np.array([0, 1, 2, 3] if covers is None else covers)
        chain = chain_of(ALPHA[name], goes)
        classes.append(SpotClass(name, speed, price, midpoints(levels), levels, chain, offered, hazard))
    return Market(tuple(classes), **given)


def random_market(seed: int, **given: Any) -> Market:
    """A tiny market: one or two classes, two or three bins, all billing rules, with and without extras."""
    rng = np.random.default_rng(seed)
    classes = []
    for at in range(int(rng.integers(1, 3))):
        bins = int(rng.integers(2, 4))
        levels = np.sort(rng.uniform(0.01, 0.6, bins)) + 0.01 * np.arange(bins)
        chain = rng.dirichlet(np.ones(bins), bins) * (rng.random((bins, bins)) < 0.8) + 1e-3 * np.eye(bins)
        covers = np.flatnonzero(rng.random(bins) < 0.7)
        hazard = float(rng.choice([0.0, 0.1]))
        chain /= chain.sum(axis=1, keepdims=True)
        price = float(rng.uniform(0.05, 0.4))
        classes.append(
            SpotClass(f"c{at}", int(rng.integers(1, 3)), price, midpoints(levels), levels, chain, covers, hazard)
        )
    rules = ["hourly", "hourly_start", "per_second", "first_hour_free"]
    local = Local(int(rng.integers(1, 3)), int(rng.integers(1, 3)), float(rng.uniform(0, 0.3)))
    found: dict[str, Any] = {
        "slots_per_hour": int(rng.integers(1, 4)),
        "spot_billing": rules[int(rng.integers(4))],
        "on_demand_billing": rules[int(rng.integers(4))],
        "startup_slots": int(rng.integers(1, 3)),
        "checkpoint_slots": int(rng.integers(1, 4)),
        "notice": bool(rng.random() < 0.3),
        "local": local if rng.random() < 0.3 else None,
    }
    found["charge_revoked"] = found["spot_billing"].startswith("hourly") and bool(rng.random() < 0.3)
    return Market(tuple(classes), unit=1.0, **{**found, **given})


def rich_market(seed: int, **given: Any) -> Market:
    """The same with more: ages, joint chains, soft deadlines, start-up that is billed, checkpoints of all lengths."""
    rng = np.random.default_rng([seed, 1])
    plain = random_market(seed, startup_slots=int(rng.integers(1, 4)))
    classes = list(plain.classes)
    for at, one in enumerate(classes):
        ages = int(rng.integers(1, 4)) if one.bins == 2 and len(classes) == 1 else int(rng.integers(1, 3)) * (at == 0)
        if ages > 1:
            classes[at] = replace(one, ages=ages, chain=_aged_chain(rng, one.bins, ages))
    market = replace(plain, classes=tuple(classes))
    found: dict[str, Any] = {
        "checkpoint_slots": tuple(rng.integers(1, 4, int(rng.integers(1, 5))).tolist()),
        "startup_billed": bool(rng.random() < 0.6),
        "late_penalty": float(rng.choice([0.05, 0.3, 2.0])) if rng.random() < 0.4 else None,
    }
    if found["startup_billed"] and market.spot_billing == "hourly_start":
        found["startup_slots"] = 1
    if rng.random() < 0.4:
        size = market.joint_states
        joint = rng.dirichlet(np.ones(size), size) * (rng.random((size, size)) < 0.7) + 1e-3 * np.eye(size)
        found["joint_chain"] = joint / joint.sum(axis=1, keepdims=True)
    return replace(market, **{**found, **given})


def _aged_chain(rng: np.random.Generator, bins: int, ages: int) -> np.ndarray:
    chain = np.zeros((bins * ages,) * 2)
    for b in range(bins):
        for age in range(ages):
            leave, goes = rng.random(), rng.dirichlet(np.ones(bins - 1))
            others = [k for k in range(bins) if k != b]
            for k, share in zip(others, goes, strict=True):
                chain[b * ages + age, k * ages] = leave * share
            chain[b * ages + age, b * ages + min(age + 1, ages - 1)] = 1 - leave
    return chain / chain.sum(axis=1, keepdims=True)


def bin_at(market: Market, kind: int, state: int) -> int:
    return state // market.classes[kind].ages


def prices_of(market: Market, states: tuple[int, ...]) -> list[float]:
    return [float(one.levels[bin_at(market, k, states[k])]) for k, one in enumerate(market.classes)]


def ages_of(market: Market, states: tuple[int, ...]) -> list[int]:
    return [state % one.ages for one, state in zip(market.classes, states, strict=True)]


def joint_states(market: Market) -> list[tuple[int, ...]]:
    return list(product(*(range(one.levels.size * one.ages) for one in market.classes)))


def followers(market: Market, bins: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
    """Next joint states with their probabilities, those that are possible."""
    found, known = [], joint_states(market)
    for at, after in enumerate(known):
        chance = 1.0
        if market.joint_chain is not None:
            chance = float(market.joint_chain[known.index(bins), at])
        else:
            for one, a, b in zip(market.classes, bins, after, strict=True):
                chance *= float(one.chain[a, b])
        if chance > 0:
            found.append((chance, after))
    return found


def bill(rule: str, hour: int, used: int, charged: bool) -> tuple[int, float, float, float]:
    """§2.7 word for word: (next, step, release, revoke)."""
    if rule in ("hourly", "hourly_start"):
        return (used + 1) % hour, float(used == hour - 1), float(used != 0), float(charged)
    if rule == "per_second":
        return 0, 1 / hour, 0.0, 1 / hour
    if used == hour:
        return hour, 1 / hour, 0.0, 1 / hour
    return min(used + 1, hour), float(used == hour - 1), used / hour, 0.0


def bellman(market: Market) -> Callable[[int, int, tuple[int, ...]], float]:
    """Q(slots left, work, joint bins) by direct recursion over §2.6: no arrays, no kernels."""
    spots = [(k, int(cover)) for k, one in enumerate(market.classes) for cover in one.covers]
    choices: list[tuple[int, int | None]] = [*spots, *((k, None) for k in range(len(market.classes)))]
    hour, local = market.slots_per_hour, market.local
    cloud_speed, soft = max(one.speed for one in market.classes), market.late_penalty

    def price(j: int, p: tuple[int, ...]) -> float:
        kind, cover = choices[j]
        one = market.classes[kind]
        return one.on_demand if cover is None else float(one.levels[bin_at(market, kind, p[kind])])

    def rule(j: int) -> str:
        return market.on_demand_billing if choices[j][1] is None else market.spot_billing

    def survives(j: int, p: tuple[int, ...]) -> float:
        kind, cover = choices[j]
        return 1.0 if cover is None else (1 - market.classes[kind].hazard) * covers(j, p)

    def covers(j: int, p: tuple[int, ...]) -> bool:
        kind, cover = choices[j]
        return cover is None or bin_at(market, kind, p[kind]) <= cover

    def saving_time(c: int) -> int:
        given = market.checkpoint_slots
        return given if isinstance(given, int) else given[min(c, len(given)) - 1]

    def feasible(left: int, c: int) -> bool:
        if soft is not None or c == 0 or left >= market.startup_slots + -(-c // cloud_speed):
            return True
        return local is not None and left >= local.move_slots + -(-c // local.speed)

    @cache
    def idle(left: int, c: int, p: tuple[int, ...]) -> float:
        if c == 0:
            return 0.0
        if left == 0:
            return INF if soft is None else soft * c
        found = [sum(q * idle(left - 1, c, n) for q, n in followers(market, p))]
        found += [start(left, market.startup_slots, c, j, 0, 0.0, p) for j in range(len(choices)) if covers(j, p)]
        if local is not None:
            rest = c
            for _ in range(left - local.move_slots):
                rest = max(0, rest - local.speed)
            if rest == 0 or soft is not None:
                found.append(local.move_cost + (0.0 if rest == 0 or soft is None else soft * rest))
        return min(found)

    @cache
    def start(left: int, k: int, c: int, j: int, used: int, locked: float, p: tuple[int, ...]) -> float:
        def then(u: int, x: float, n: tuple[int, ...]) -> float:
            return run(left - 1, c, c, j, u, x, n) if k == 1 else start(left - 1, k - 1, c, j, u, x, n)

        if left == 0 and soft is not None:
            return give_back(j, used, locked, p) + soft * c
        if market.startup_billed:
            # A machine that starts is as one that runs, but nothing is done that could be lost.
            return slot(left, c, c, j, used, locked, p, then)
        if left == 0 or (choices[j][1] is not None and not feasible(left - 1, c)):
            return INF
        total = 0.0
        for q, n in followers(market, p):
            s = survives(j, n)
            if s:
                total += q * s * then(0, 0.0, n)
            if s < 1:
                total += q * (1 - s) * idle(left - 1, c, n)
        return total

    def slot(
        left: int, c: int, saved: int, j: int, used: int, locked: float, p: tuple[int, ...], then: Callable[..., float]
    ) -> float:
        if left == 0 or (choices[j][1] is not None and not feasible(left - 1, saved)):
            return INF
        after, step, _, revoke = bill(rule(j), hour, used, market.charge_revoked)
        locked = price(j, p) if used == 0 else locked
        total = 0.0
        for q, n in followers(market, p):
            s = survives(j, n)
            due = {"hourly": price(j, n), "hourly_start": locked}.get(rule(j), price(j, p))
            if s:
                total += q * s * (step * due + then(after, locked if after else 0.0, n))
            if s < 1:
                lost = revoke * (locked if rule(j) == "hourly_start" else price(j, p))
                total += q * (1 - s) * (lost + idle(left - 1, min(c, saved) if market.notice else saved, n))
        return total

    def give_back(j: int, used: int, locked: float, p: tuple[int, ...]) -> float:
        hours = bill(rule(j), hour, used, False)[2]
        return hours * (locked if rule(j) == "hourly_start" else price(j, p))

    @cache
    def run(left: int, c: int, saved: int, j: int, used: int, locked: float, p: tuple[int, ...]) -> float:
        rest = max(0, c - market.classes[choices[j][0]].speed)
        if left == 0 and soft is not None:
            return give_back(j, used, locked, p) + soft * c

        def going(u: int, x: float, n: tuple[int, ...]) -> float:
            # The end is settled at the price that the rule uses in this slot.
            return run(left - 1, rest, saved, j, u, x, n) if rest else give_back(j, u, x, n if late else p)

        late = rule(j) == "hourly"
        return min(
            slot(left, c, saved, j, used, locked, p, going),
            save(left, saving_time(c), c, saved, j, used, locked, p, False),
            give_back(j, used, locked, p) + idle(left, saved, p),
        )

    @cache
    def save(
        left: int, k: int, c: int, saved: int, j: int, used: int, locked: float, p: tuple[int, ...], quits: bool = True
    ) -> float:
        def then(u: int, x: float, n: tuple[int, ...]) -> float:
            return run(left - 1, c, c, j, u, x, n) if k == 1 else save(left - 1, k - 1, c, saved, j, u, x, n)

        if left == 0 and soft is not None:
            return give_back(j, used, locked, p) + soft * c
        on = slot(left, c, saved, j, used, locked, p, then)
        return min(on, run(left, c, saved, j, used, locked, p)) if quits else on

    return idle


def late(market: Market, status: Status, now: list[float]) -> float:
    """What a job that is not finished costs at its deadline: by the word of O-14."""
    if market.late_penalty is None:
        return INF
    if status.choice < 0:
        return market.late_penalty * status.work
    spot, kind = bool(market.rules.spot[status.choice]), int(market.rules.kind[status.choice])
    rule = market.spot_billing if spot else market.on_demand_billing
    price = (status.locked if rule == "hourly_start" else now[kind]) if spot else market.classes[kind].on_demand
    return market.late_penalty * status.work + bill(rule, market.slots_per_hour, status.hour, False)[2] * price


def best_by_trial(market: Market, work: int, slots: int, prices: SlotPrices, end: int) -> float:
    """Least cost on known prices, from trying all actions slot by slot."""

    @cache
    def best(left: int, status: Status) -> float:
        if status.state == FINISHED:
            return 0.0
        at, found = end - left, []
        if left == 0:
            return late(market, status, prices.prices[end].tolist())
        actions: list[int] = list(POSSIBLE[status.state])
        if status.state == QUIESCED:
            actions += range(START, START + market.choices)
            actions += [5] if market.local else []
        for action in actions:
            now, after = prices.prices[at], prices.prices[at + 1]
            step = advance(market, status, action, now, after, prices.peaks[at])
            found.append(step.money + best(left - (not step.timeless), step.status))
        return min(found)

    return best(slots, submitted(work))


def exact_cost(
    market: Market, policy: JobPolicy, work: int, slots: int, start: tuple[int, ...], begin: Status | None = None
) -> float:
    """Expected cost of a policy under the market's chains, infinite if it may miss the deadline; by `job.advance`."""

    @cache
    def value(left: int, status: Status, p: tuple[int, ...]) -> float:
        if status.state == FINISHED:
            return 0.0
        now = prices_of(market, p)
        if left == 0:
            return late(market, status, now)
        action = policy.decide(left, status, now, ages_of(market, p))
        total = 0.0
        for q, n in followers(market, p):
            after = prices_of(market, n)
            step = advance(market, status, action, now, after)
            if step.timeless:
                return step.money + value(left, step.status, p)
            hazard = 0.0
            held = status.choice if status.choice >= 0 else action - 6
            if held >= 0 and market.rules.spot[held]:
                hazard = market.classes[int(market.rules.kind[held])].hazard
            total += q * (1 - hazard) * (step.money + value(left - 1, step.status, n))
            if hazard:
                taken = advance(market, status, action, now, after, [INF] * len(now))
                total += q * hazard * (taken.money + value(left - 1, taken.status, n))
        return total

    return value(slots, submitted(work) if begin is None else begin, start)


def assert_equals_recursion(market: Market, work: int, slots: int) -> None:
    """All values of a table are those of the plain recursion, to 1e-12."""
    table, value = build_table(market, work, slots), bellman(market)
    for left in range(slots + 1):
        for at, p in enumerate(joint_states(market)):
            for c in range(work + 1):
                found, expected = float(table.values[left, at, c]), value(left, c, p)
                assert found == expected or abs(found - expected) < 1e-12, (left, p, c)
