"""A job on rented machines, slot by slot: states, actions, costs. See docs/specs/spot.md, sections 2.5 and 2.6.

Replays, tests and agents use the same step function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot import job_kernels as kernels
from goffish.scheduling.spot.model import Market

Floats = NDArray[np.float64]

QUIESCED, STARTUP, RUNNING, CHECKPOINTING = 0, 1, 2, 3
MIGRATING, LOCAL_STATE, FINISHED = 4, 5, 6
STATE_NAMES = ("quiesced", "start-up", "running", "checkpointing", "migrating", "local", "finished")

#: Actions; ``START + j`` requests choice `j`. `RELEASE` and `QUIT` take no time.
WAIT, PROCESS, CHECKPOINT, RELEASE, QUIT, MOVE, START = 0, 1, 2, 3, 4, 5, 6
#: Additional events of a slot.
NOTHING, REVOKED, REFUSED = 0, 1, 2


class Status(NamedTuple):
    """Status of a job.

    Attributes
    ----------
    state : int
        One of `QUIESCED` to `FINISHED`.
    work, saved : int
        Remaining units, now and from the last checkpoint.
    choice : int
        Choice of the held machine, or -1.
    hour : int
        State of its billed hour.
    left : int
        Remaining slots of a start-up, checkpoint or move.
    locked : float
        Price at the start of its billed hour.
    """

    state: int
    work: int
    saved: int
    choice: int = -1
    hour: int = 0
    left: int = 0
    locked: float = 0.0


class Step(NamedTuple):
    """Result of a slot, or of a zero-time action."""

    status: Status
    money: float
    event: int
    timeless: bool


def submitted(work: int) -> Status:
    """Return a job without a machine and without progress."""
    if work < 1:
        raise InputError(f"work = {work}: must be at least 1 unit")
    return Status(QUIESCED, work, work)


#: Actions that are possible in each state; machines are requested only if none is held.
POSSIBLE = {
    QUIESCED: (WAIT,),
    STARTUP: (WAIT,),
    RUNNING: (PROCESS, CHECKPOINT, RELEASE),
    CHECKPOINTING: (WAIT, QUIT),
    MIGRATING: (WAIT,),
    LOCAL_STATE: (PROCESS,),
}


def advance(
    market: Market,
    status: Status,
    action: int,
    now: Sequence[float],
    after: Sequence[float],
    peaks: Sequence[float] | None = None,
) -> Step:
    """Do one action.

    Parameters
    ----------
    market : Market
    status : Status
    action : int
    now, after : float, shape (classes,)
        Spot prices at the start and at the end of the slot.
    peaks : float, shape (classes,), optional
        Maximum prices in the slot, infinite for an interruption at any bid; default: `after`.

    Raises
    ------
    InputError
        If the action is impossible in this state.
    """
    asks = status.state == QUIESCED and START <= action < START + market.choices
    moves = status.state == QUIESCED and action == MOVE and market.local is not None
    if not asks and not moves and action not in POSSIBLE.get(status.state, ()):
        raise InputError(f"action {action}: not possible in state {STATE_NAMES[status.state]}")
    prices = np.asarray(now, np.float64)
    if action in (RELEASE, QUIT):
        found, money = kernels.leave(market.rules, *status, action, prices)
        return Step(Status(*found), money, NOTHING, True)
    later = np.asarray(after, np.float64)
    greatest = later if peaks is None else np.asarray(peaks, np.float64)
    found, money, event = kernels.advance(market.rules, *status, action, prices, later, greatest)
    return Step(Status(*found), money, event, False)


class JobPolicy(Protocol):
    """Chooses the next action of a job: a table or a heuristic."""

    def decide(self, left: int, status: Status, prices: Sequence[float], ages: Sequence[int] | None = None) -> int:
        """Return the action with `left` slots until the deadline; `ages`: slots since each price entered its bin."""


class Entry(NamedTuple):
    """One action of a run."""

    slot: int
    status: Status
    action: int
    money: float
    event: int


@dataclass
class JobRun:
    """Result of one job.

    Attributes
    ----------
    cost : float
        Cost, including the market's `late_penalty` if the deadline was missed.
    finished : int
        Slot at whose end it finished, counted from 1; 0 if the deadline was missed.
    log : list of Entry
    """

    cost: float = 0.0
    finished: int = 0
    log: list[Entry] = field(default_factory=list)


def run_job(market: Market, policy: JobPolicy, work: int, slots: int, prices: SlotPrices, first: int = 0) -> JobRun:
    """Run one job over a price trace from its slot `first` on, with a log of all actions (AGENT, §3.5)."""
    if first < 0 or first + slots > prices.slots:
        raise InputError(f"slots {first} to {first + slots} exceed the prices, which end at slot {prices.slots}")
    run, status, slot = JobRun(), submitted(work), 0
    ages = market.ages_of(prices.prices)
    while slot < slots and status.state != FINISHED:
        at = first + slot
        action = policy.decide(slots - slot, status, prices.prices[at].tolist(), ages[at].tolist())
        step = advance(market, status, action, prices.prices[at], prices.prices[at + 1], prices.peaks[at])
        run.log.append(Entry(slot, status, action, step.money, step.event))
        run.cost += step.money
        status = step.status
        slot += not step.timeless
    if status.state == FINISHED:
        run.finished = slot
    else:
        run.cost += settle(market, status, prices.prices[first + slots])
    return run


def settle(market: Market, status: Status, now: Sequence[float] | Floats) -> float:
    """Cost of an unfinished job at its deadline: the penalty, and the release of its machine (O-14).

    `now`: prices of the machine types. 0 if the market has no `late_penalty`.
    """
    prices = np.asarray(now, np.float64)
    return float(
        kernels.settle(market.rules, status.state, status.work, status.choice, status.hour, status.locked, prices)
    )


def slots_left(deadline_s: float, now_s: float, slot_s: float, margin_slots: int = 0) -> int:
    """Whole slots until a deadline, minus a margin (§3.5, O-9); 0 if there are none.

    Rounded down. The margin is for start-ups that take longer than expected.

    Raises
    ------
    InputError
        If a time is not finite, the slot is not positive, or the margin is negative.
    """
    span = deadline_s - now_s
    if not np.isfinite(span) or not slot_s > 0 or margin_slots < 0:
        raise InputError(
            f"deadline in {span:g} s, slot_s = {slot_s:g}, margin_slots = {margin_slots}: "
            "must be finite, greater than 0, and 0 or more"
        )
    return max(0, int(span // slot_s) - margin_slots)
