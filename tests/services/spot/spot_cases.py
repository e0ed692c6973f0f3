"""Markets of the specification's golden values, random ones, and oracles in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from goffish.services.spot.job import FINISHED, Policy, Status, advance, submitted
from goffish.services.spot.model import Local, Market, SpotClass, chain_of, midpoints

INF = float("inf")
FLOWS = {
    "medium": "- .70 .15 .10 .05/.45 - .30 .15 .10/.25 .60 - .10 .05/.10 .60 .20 - .10/.05 .75 .10 .10 -",
    "large": "- .70 .20 .07 .03/.50 - .30 .15 .05/.20 .65 - .10 .05/.10 .60 .20 - .10/.05 .75 .10 .10 -",
}
LEVELS = {"medium": [0.013, 0.014, 0.020, 0.060, 1.5], "large": [0.026, 0.028, 0.040, 0.120, 2.0]}
ALPHA = {"medium": 0.15, "large": 0.12}


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


def prices_of(market: Market, bins: tuple[int, ...]) -> list[float]:
    return [float(one.levels[b]) for one, b in zip(market.classes, bins, strict=True)]


def joint_states(market: Market) -> list[tuple[int, ...]]:
    return list(product(*(range(one.bins) for one in market.classes)))


def followers(market: Market, bins: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
    """Next joint bins with their probabilities, those that are possible."""
    found = []
    for after in joint_states(market):
        chance = 1.0
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
    cloud_speed = max(one.speed for one in market.classes)

    def price(j: int, p: tuple[int, ...]) -> float:
        kind, cover = choices[j]
        one = market.classes[kind]
        return one.on_demand if cover is None else float(one.levels[p[kind]])

    def rule(j: int) -> str:
        return market.on_demand_billing if choices[j][1] is None else market.spot_billing

    def survives(j: int, p: tuple[int, ...]) -> float:
        kind, cover = choices[j]
        return 1.0 if cover is None else (1 - market.classes[kind].hazard) * (p[kind] <= cover)

    def feasible(left: int, c: int) -> bool:
        if c == 0 or left >= market.startup_slots + -(-c // cloud_speed):
            return True
        return local is not None and left >= local.move_slots + -(-c // local.speed)

    @cache
    def idle(left: int, c: int, p: tuple[int, ...]) -> float:
        if c == 0:
            return 0.0
        if left == 0:
            return INF
        found = [sum(q * idle(left - 1, c, n) for q, n in followers(market, p))]
        for j, (kind, cover) in enumerate(choices):
            if cover is None or p[kind] <= cover:
                found.append(start(left, market.startup_slots, c, j, p))
        if local is not None and left >= local.move_slots + -(-c // local.speed):
            found.append(local.move_cost)
        return min(found)

    @cache
    def start(left: int, k: int, c: int, j: int, p: tuple[int, ...]) -> float:
        if left == 0 or (choices[j][1] is not None and not feasible(left - 1, c)):
            return INF
        total = 0.0
        for q, n in followers(market, p):
            s = survives(j, n)
            if s:
                total += q * s * (run(left - 1, c, c, j, 0, 0.0, n) if k == 1 else start(left - 1, k - 1, c, j, n))
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
        rest, longest = max(0, c - market.classes[choices[j][0]].speed), market.checkpoint_slots

        def going(u: int, x: float, n: tuple[int, ...]) -> float:
            # The end is settled at the price that the rule uses in this slot.
            return run(left - 1, rest, saved, j, u, x, n) if rest else give_back(j, u, x, n if late else p)

        late = rule(j) == "hourly"
        return min(
            slot(left, c, saved, j, used, locked, p, going),
            save(left, longest, c, saved, j, used, locked, p, False),
            give_back(j, used, locked, p) + idle(left, saved, p),
        )

    @cache
    def save(
        left: int, k: int, c: int, saved: int, j: int, used: int, locked: float, p: tuple[int, ...], quits: bool = True
    ) -> float:
        def then(u: int, x: float, n: tuple[int, ...]) -> float:
            return run(left - 1, c, c, j, u, x, n) if k == 1 else save(left - 1, k - 1, c, saved, j, u, x, n)

        on = slot(left, c, saved, j, used, locked, p, then)
        return min(on, run(left, c, saved, j, used, locked, p)) if quits else on

    return idle


def exact_cost(market: Market, policy: Policy, work: int, slots: int, start: tuple[int, ...]) -> float:
    """Expected cost of a policy under the market's chains, infinite if it may miss the deadline; by `job.advance`."""

    @cache
    def value(left: int, status: Status, p: tuple[int, ...]) -> float:
        if status.state == FINISHED:
            return 0.0
        if left == 0:
            return INF
        now = prices_of(market, p)
        action = policy.decide(left, status, now)
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

    return value(slots, submitted(work), start)
