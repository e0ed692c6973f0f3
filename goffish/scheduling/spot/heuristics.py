"""Heuristics on one machine type: on demand only, H1 (two-stage), H2 (boundary checkpoint), H3 (rolling checkpoint).

See docs/specs/spot.md, sections 3.6 and 3.7; heuristics of other schedulers are in `peers`. None misses a deadline that
can be kept, whatever the prices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from goffish.cloud.prices import Trace
from goffish.errors import InputError
from goffish.scheduling.spot import replay_kernels as kernels
from goffish.scheduling.spot.job import Status
from goffish.scheduling.spot.model import Market

Kind = Literal["on-demand", "h1", "h2", "h3", "greedy", "eager", "uniform-progress"]


@dataclass(frozen=True, eq=False)
class Heuristic:
    """A heuristic for jobs of one size.

    Attributes
    ----------
    market : Market
    kind : {"on-demand", "h1", "h2", "h3", "greedy", "eager", "uniform-progress"}
        For the last three see `peers.peer`.
    work : int
        Units of the job.
    class_number : int
        Index of the machine type.
    bid : int
        Index of its bid among those of the machine type.
    interval : float
        H3 and later kinds: units of work between two checkpoints.
    slots : int
        Uniform progress: slots from submission to deadline.
    """

    market: Market
    kind: Kind
    work: int
    class_number: int = 0
    bid: int = 0
    interval: float = np.inf
    slots: int = 0
    plan: kernels.HeuristicSettings = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"unknown heuristic {self.kind!r}; accepted: {', '.join(get_args(Kind))}")
        if self.work < 1 or not self.interval > 0:
            raise InputError("work must be at least 1 unit, and interval greater than 0")
        if self.slots < (self.kind == "uniform-progress"):
            raise InputError(f"slots = {self.slots}: uniform progress requires at least 1 slot until the deadline")
        market, number = self.market, self.class_number
        spot = -1 if self.kind == "on-demand" else market.spot_choice(number, self.bid)
        kind, on_demand = get_args(Kind).index(self.kind), market.on_demand_choice(number)
        plan = kernels.HeuristicSettings(kind, spot, on_demand, self.work, float(self.interval), self.slots)
        object.__setattr__(self, "plan", plan)

    @property
    def least_slots(self) -> int:
        """The shortest deadline that the heuristic keeps."""
        return self.market.startup_slots + -(-self.work // self.market.classes[self.class_number].speed)

    def decide(self, left: int, status: Status, prices: Sequence[float], ages: Sequence[int] | None = None) -> int:
        """Return the action of `job` with `left` slots until the deadline; the ages of prices are ignored."""
        return int(
            kernels.heuristic_action(
                self.plan, self.market.rules, left, status.state, status.work, status.saved, status.choice,
                float(prices[self.class_number]),
            )
        )  # fmt: skip


def mean_lifetime(trace: Trace, bid: float, slot_s: float) -> float:
    """Mean length in slots of the periods in which the price does not exceed a bid; 0 if there are none."""
    inside = trace.prices <= bid
    begins = inside & ~np.append(False, inside[:-1])
    if not begins.any():
        return 0.0
    return float(trace.durations()[inside].sum() / begins.sum() / slot_s)


def lifetime_interval(lifetime: float, speed: int) -> float:
    """Work between checkpoints as in the paper: that of one mean lifetime, at least one unit."""
    return max(1.0, lifetime * speed)


def young_interval(lifetime: float, speed: int, checkpoint_slots: int) -> float:
    """Work between checkpoints by Young's formula, ``speed * sqrt(2 * T_C * lifetime)``, at least one unit."""
    return max(1.0, speed * float(np.sqrt(2.0 * checkpoint_slots * lifetime)))


def on_demand_cost(market: Market, work: int, class_number: int) -> float:
    """Price of a job that runs on demand from start to end (§3.7), including start-up if it is billed."""
    one, machine = market.classes[class_number], market.on_demand
    left = -(-work // one.speed) + market.startup_slots * market.startup_billed
    # Charges by hour state, until a state returns; then whole cycles.
    seen, charged = [0], [0.0]
    while len(seen) <= left and seen[-1] not in seen[:-1]:
        charged.append(charged[-1] + float(machine.step[seen[-1]]))
        seen.append(int(machine.follow[seen[-1]]))
    at = len(seen) - 1
    begin = seen.index(seen[-1])
    cycles, rest = divmod(left - at, at - begin) if at > begin else (0, 0)
    hours = charged[at] + cycles * (charged[at] - charged[begin]) + charged[begin + rest] - charged[begin]
    return (hours + float(machine.release[seen[begin + rest]])) * one.on_demand


def not_feasible(market: Market, work: int, hours: float, least: int, margin: int = 0, *, held: bool = False) -> str:
    """Error message for a job whose deadline cannot be kept.

    Parameters
    ----------
    market : Market
    work : int
        Units of the job.
    hours : float
        Hours until the deadline.
    least, margin : int
        Slots until its earliest end, and those between its end and the deadline.
    held : bool
        Whether that is the end on the machine that it runs on.
    """
    end = math.ceil(100 * (least + margin) / market.slots_per_hour - 1e-9) / 100
    able = [at for at, one in enumerate(market.classes) if market.startup_slots + -(-work // one.speed) <= least]
    how = "on the machine that it runs on" if held else "on the local machine"
    if able and not held:
        how = f"on demand for ${min(on_demand_cost(market, work, at) for at in able):.2f}"
    job = f"{work * market.unit:.4g} core-hours within {hours:.4g} h"
    return f"{job}: not feasible; the earliest possible end is in {end:g} h, {how}"
