"""What a job should do now, from a table, in words and figures. Specification of RTBA, §3.4, §3.5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.spot.comparison import cheapest_on_demand
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

_TEXTS = {
    WAIT: "wait", PROCESS: "go on", CHECKPOINT: "checkpoint", RELEASE: "give the machine back",
    QUIT: "stop the checkpoint", MOVE: "move to the machine of your own",
}  # fmt: skip
#: Other deadlines that are told: so many times the one that there is.
_OTHERS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes
    ----------
    action : int
        Of `job`.
    text : str
    expected_cost : float
        Of what is left; for a job that holds a machine, at most so much (were it given back now).
    on_demand_cost : float
        Of what is left without spot machines.
    deadlines : list of (hours, expected cost)
        With other deadlines, as far as they can be kept and the table reaches.
    """

    action: int
    text: str
    expected_cost: float
    on_demand_cost: float
    deadlines: list[tuple[float, float]]

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "action": self.text,
            "expected_cost": self.expected_cost,
            "on_demand_cost": self.on_demand_cost,
            "deadlines": [{"hours": hours, "expected_cost": cost} for hours, cost in self.deadlines],
        }


def advise(
    table: Table, status: Status, slots: int, prices: Sequence[float], ages: Sequence[int] | None = None
) -> Advice:
    """Say what to do with `slots` left.

    Parameters
    ----------
    table : Table
    status : Status
    slots : int
        Until the deadline.
    prices : sequence of float
        Of the classes, now.
    ages : sequence of int, optional
        Slots for which each price has been in its bin; only semi-Markov chains need them.

    Raises
    ------
    InputError
        If the deadline cannot be kept for certain; the message names the earliest that can.
    """
    market, work = table.market, status.saved
    check_deadline(market, status, slots)
    curve = table.curve(work, prices, ages)
    if slots >= curve.size:
        raise InputError(f"{slots} slots to the deadline: the table ends at {curve.size - 1}")
    action = table.decide(slots, status, prices, ages)
    cost = float(curve[slots])
    if status.state != QUIESCED:
        cost += advance(market, status, RELEASE, prices, prices).money
    hour = market.slots_per_hour
    others = sorted({round(slots * factor) for factor in _OTHERS})
    return Advice(
        action,
        text_of(market, action),
        cost,
        cheapest_on_demand(market, work, slots),
        [(at / hour, float(curve[at])) for at in others if 0 < at < curve.size and np.isfinite(curve[at])],
    )


def check_deadline(market: Market, status: Status, slots: int, margin: int = 0) -> None:
    """Refuse a deadline that cannot be kept, before a table is built for it.

    Parameters
    ----------
    market : Market
    status : Status
    slots : int
        Until the deadline, without the margin.
    margin : int
        Slots before the deadline by which the job is to be done.

    Raises
    ------
    InputError
        The message names the earliest deadline that can be kept.
    """
    # A job that holds a machine may be further than what it has saved; a late one that only costs more is advised.
    sure = status.state == QUIESCED and market.late_penalty is None
    least = market.least_slots(status.saved) if sure else 1
    if slots < least:
        hours = math.ceil(100 * (least + margin) / market.slots_per_hour) / 100
        raise InputError(f"the deadline cannot be promised: {hours:g} hours is the earliest that can")


def text_of(market: Market, action: int) -> str:
    """An action in words."""
    if action < START:
        return _TEXTS[action]
    rules, choice = market.rules, action - START
    name = market.classes[int(rules.kind[choice])].name
    if not rules.spot[choice]:
        return f"start {name} on demand"
    bid = float(rules.bid[choice])
    return f"start {name} on the spot market" + (f", bid {bid:.4g}" if np.isfinite(bid) else "")


def running(market: Market, work: int, saved: int, name: str, bid: float | None, used_s: float) -> Status:
    """A job that runs on a machine.

    Parameters
    ----------
    work, saved : int
        Units left, and from the last checkpoint on.
    name : str
        Class of its machine.
    bid : float, optional
        Default: it is on demand. The nearest bid of the market that is not greater is taken.
    used_s : float
        Seconds of its billed hour so far, 0 to 3600, rounded down to slots.

    Raises
    ------
    InputError
        For an unknown class, a bid below all of the market, or more than an hour.
    """
    if not 0 <= used_s <= 3600:
        raise InputError(f"used_s: {used_s:g}; 0 to 3600 are accepted")
    names = [one.name for one in market.classes]
    if name not in names:
        raise InputError(f"no class {name!r}; there are: {', '.join(names)}")
    kind = names.index(name)
    machine = market.on_demand if bid is None else market.spot
    if bid is None:
        choice = market.on_demand_choice(kind)
    else:
        covered = np.flatnonzero(market.classes[kind].bids <= bid + 1e-9)
        if not covered.size and market.classes[kind].bins > 1:
            bids = ", ".join(f"{b:.4g}" for b in market.classes[kind].bids.tolist())
            raise InputError(f"bid {bid:g} of {name}: the market knows bids of {bids}")
        choice = market.spot_choice(kind, int(covered[-1]) if covered.size else 0)
    hour = 0
    for _ in range(int(used_s * market.slots_per_hour / 3600.0 + 1e-9)):
        hour = int(machine.follow[hour])
    return Status(RUNNING, work, saved, choice, hour, 0, float(market.rules.fixed[choice]) if bid is None else 0.0)
