"""Advice for a job from a table, as text and numbers. See docs/specs/spot.md, sections 3.4, 3.5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from goffish.cloud.prices import ANY_PRICE, SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot.choice import Choice, choose
from goffish.scheduling.spot.comparison import cheapest_on_demand
from goffish.scheduling.spot.heuristics import Heuristic, not_feasible
from goffish.scheduling.spot.job import (
    CHECKPOINT,
    MOVE,
    PROCESS,
    QUIESCED,
    QUIT,
    RELEASE,
    RUNNING,
    START,
    WAIT,
    Status,
    advance,
)
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.table import Table
from goffish.scheduling.spot.ties import prompt
from goffish.scheduling.spot.trials import Trials

_TEXTS = {
    WAIT: "wait", PROCESS: "continue", CHECKPOINT: "checkpoint", RELEASE: "release the machine",
    QUIT: "cancel the checkpoint", MOVE: "move to the local machine",
}  # fmt: skip
#: Other deadlines in the answer, as multiples of the given one.
_OTHERS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Advice:
    """Advice for a job.

    Attributes
    ----------
    action : int
        An action of `job`; of options that cost nearly the same, one that starts or keeps a machine (`ties.prompt`).
    text : str
    expected_cost : float
        Expected cost of the remaining work; for a job that holds a machine, an upper bound (as if it were released
        now, unless it is too late for another machine).
    on_demand_cost : float
        Cost of the remaining work without spot machines.
    deadlines : list of (hours, expected cost)
        Other deadlines that can be kept and are within the table.
    choice : Choice, optional
        The policy of the action, if it was chosen by trials; otherwise it is the table's.
    guaranteed : bool
        Whether the deadline is kept at any prices; if not, it is unless the spot machine that the job runs on is
        interrupted. Other machines would be late then, and the cost is that of this one at constant prices.
    """

    action: int
    text: str
    expected_cost: float
    on_demand_cost: float
    deadlines: list[tuple[float, float]]
    choice: Choice | None = None
    guaranteed: bool = True

    @property
    def notes(self) -> list[str]:
        """Conditions under which the action keeps the deadline."""
        late = "too late for another machine: the deadline is missed if this spot machine is interrupted"
        return [] if self.guaranteed else [late]

    def to_json(self) -> dict[str, Any]:
        """Return the advice as JSON-compatible data."""
        return {
            "action": self.text,
            "expected_cost": self.expected_cost,
            "on_demand_cost": self.on_demand_cost,
            "deadlines": [{"hours": hours, "expected_cost": cost} for hours, cost in self.deadlines],
            "guaranteed": self.guaranteed,
        } | ({"policy": "rtba"} if self.choice is None else self.choice.to_json())


def advise(
    table: Table,
    status: Status,
    slots: int,
    prices: Sequence[float],
    ages: Sequence[int] | None = None,
    *,
    trials: Trials | None = None,
    history: SlotPrices | None = None,
    seed: int = 0,
) -> Advice:
    """Advise the next action with `slots` left.

    Parameters
    ----------
    table : Table
    status : Status
    slots : int
        Slots until the deadline.
    prices : sequence of float
        Current price of each machine type.
    ages : sequence of int, optional
        Slots for which each price has been in its bin; required by semi-Markov chains only.
    trials : Trials, optional
        Trials of this work and these slots (`choice.history_trials`), to choose the policy; default: the table. A job
        that holds a machine follows the table.
    history : SlotPrices, optional
        Prices of the trials; required by `trials`.
    seed : int
        Seed of `choice.choose`.

    Raises
    ------
    InputError
        If the deadline cannot be guaranteed; the message names the earliest possible one.
    """
    market, work = table.market, status.saved
    check_deadline(market, status, slots)
    curve = table.curve(work, prices, ages)
    if slots >= curve.size:
        hour = market.slots_per_hour
        raise InputError(f"deadline in {slots / hour:.4g} h: the table covers up to {(curve.size - 1) / hour:.4g} h")
    cost = float(curve[slots])
    choice = None
    if trials is not None and history is not None:
        choice = choose(table, trials, history, cost, seed=seed, idle=status.state == QUIESCED)
    rule: Table | Heuristic = table if choice is None else choice.rule
    if isinstance(rule, Table):
        action, _ = prompt(rule, slots, status, prices, ages)
    else:
        action = rule.decide(slots, status, prices, ages)
    guaranteed = True
    # A machine that runs while no others are available has a price.
    paid = [
        float(one.levels[0]) if one.by_availability else price
        for one, price in zip(market.classes, prices, strict=True)
    ]
    if status.state != QUIESCED:
        cost += advance(market, status, RELEASE, paid, paid).money
    if not np.isfinite(cost):
        # Too late for another machine: the job finishes on its own one.
        action, cost = PROCESS, _cost_of_staying(market, status, paid)
        guaranteed = not market.rules.spot[status.choice]
    hour = market.slots_per_hour
    others = sorted({round(slots * factor) for factor in _OTHERS})
    return Advice(
        action,
        text_of(market, action),
        cost,
        cheapest_on_demand(market, work, slots),
        [(at / hour, float(curve[at])) for at in others if 0 < at < curve.size and np.isfinite(curve[at])],
        choice,
        guaranteed,
    )


def check_deadline(market: Market, status: Status, slots: int, margin: int = 0, *, hours: float | None = None) -> None:
    """Refuse a deadline that cannot be kept, before a table is built for it.

    Parameters
    ----------
    market : Market
    status : Status
    slots : int
        Slots until the deadline, without the margin.
    margin : int
        Slots between the end of the job and the deadline.
    hours : float, optional
        Hours until the deadline, for the message; default: `slots` and `margin`.

    Raises
    ------
    InputError
        If the deadline cannot be kept; the message names the earliest possible one.
    """
    least, work, held = market.least_slots(status.saved), status.saved, False
    if status.state == RUNNING:
        # It may be ahead of its last checkpoint.
        stay = _slots_of(market, status)
        least, work, held = min(least, stay), status.work, stay < least
    if market.late_penalty is not None:
        # A soft deadline may be missed at a cost.
        least = 1
    if slots < least:
        given = (slots + margin) / market.slots_per_hour if hours is None else hours
        raise InputError(not_feasible(market, work, given, least, margin, held=held))


def _slots_of(market: Market, status: Status) -> int:
    """Slots in which a running job finishes on its machine."""
    return -(-status.work // int(market.rules.speed[status.choice]))


def _cost_of_staying(market: Market, status: Status, prices: Sequence[float]) -> float:
    """Cost of a running job that finishes on its machine at constant prices."""
    cost = 0.0
    for _ in range(_slots_of(market, status)):
        status, money, *_ = advance(market, status, PROCESS, prices, prices, [0.0] * len(prices))
        cost += money
    return cost


def text_of(market: Market, action: int) -> str:
    """Describe an action in words."""
    if action < START:
        return _TEXTS[action]
    rules, choice = market.rules, action - START
    name = market.classes[int(rules.kind[choice])].name
    if not rules.spot[choice]:
        return f"start {name} on demand"
    bid = float(rules.bid[choice])
    return f"start {name} on the spot market" + (f", bid {bid:.4g}" if bid < ANY_PRICE else "")


def running(market: Market, work: int, saved: int, name: str, bid: float | None, used_s: float) -> Status:
    """Status of a job that runs on a machine.

    Parameters
    ----------
    work, saved : int
        Remaining units, now and from the last checkpoint.
    name : str
        Type of its machine.
    bid : float, optional
        Bid of the machine; default: it is on demand. The highest bid of the market that does not exceed it is used.
    used_s : float
        Seconds of its billed hour so far, 0 to 3600, rounded down to slots.

    Raises
    ------
    InputError
        If the machine type is unknown, the bid is not a number or below all bids of the market, or there are no bids;
        or `used_s` exceeds an hour.
    """
    if not 0 <= used_s <= 3600:
        raise InputError(f"used_s: {used_s:g}; must be 0 to 3600")
    names = [one.name for one in market.classes]
    if name not in names:
        raise InputError(f"unknown machine type {name!r}; accepted: {', '.join(names)}")
    kind = names.index(name)
    machine = market.on_demand if bid is None else market.spot
    if bid is None:
        choice = market.on_demand_choice(kind)
    else:
        one = market.classes[kind]
        covered = np.flatnonzero(one.bids <= bid + 1e-9)
        if one.without_bids and bid < np.inf:
            raise InputError(f"bid {bid:g} of {name}: this market has no bids")
        if not covered.size and one.bins > 1:
            bids = ", ".join(f"{b:.4g}" for b in one.bids.tolist())
            raise InputError(f"bid {bid:g} of {name}: below the bids of the market, {bids}")
        choice = market.spot_choice(kind, int(covered[-1]) if covered.size else 0)
    hour = 0
    for _ in range(int(used_s * market.slots_per_hour / 3600.0 + 1e-9)):
        hour = int(machine.follow[hour])
    return Status(RUNNING, work, saved, choice, hour, 0, float(market.rules.fixed[choice]) if bid is None else 0.0)
