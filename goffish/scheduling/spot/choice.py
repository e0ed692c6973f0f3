"""The policy that a job should follow, chosen by trials on the history, and what it may cost.

See docs/specs/spot.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot.comparison import Outcome
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.job import STATE_NAMES
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.replay import Replay
from goffish.scheduling.spot.sizes import MOST_VALUES, values_of_slot
from goffish.scheduling.spot.table import Table
from goffish.scheduling.spot.trials import (
    LEAST_TRIALS,
    TINY,
    Candidate,
    Trials,
    chosen,
    heuristic,
    intervals,
    most_cost,
    refitted,
    shares,
    until,
    walk_forward,
)

Ints = NDArray[np.int64]

#: Name of the policy that follows the trials.
AUTO = "auto"
#: Share of the history before the first trial; number of fits in the rest; trials at most.
BEFORE, FITS, MOST_TRIALS = 0.5, 2, 1000
#: Half-life of the weight of a trial, and age after which it does not count for an interval, in hours.
RECENT_H = 240.0
#: Hours after which `automatic` fits the market again.
REFIT_H = 120


class Outlook(NamedTuple):
    """What a job may cost if it follows a policy, from the trials that ended lately.

    Attributes
    ----------
    low, high : float
        Interval that covers 80 % of the costs, in dollars.
    without_on_demand, without_interruption : float
        Shares of the jobs.
    interruptions : float
        Mean number.
    hours : (float, float, float)
        Hours until completion that 10, 50 and 90 % of the jobs needed at most.
    trials : int
        Number of trials.
    held : float
        Share of the trials whose costs were within their own intervals.
    """

    low: float
    high: float
    without_on_demand: float
    without_interruption: float
    interruptions: float
    hours: tuple[float, float, float]
    trials: int
    held: float


class Choice(NamedTuple):
    """A policy for a job.

    Attributes
    ----------
    candidate : Candidate
    rule : Table or Heuristic
    shares : dict from str to float
        Probability with which a job follows each policy.
    outlook : Outlook, optional
        None with fewer than `trials.LEAST_TRIALS` trials.
    """

    candidate: Candidate
    rule: Table | Heuristic
    shares: dict[str, float]
    outlook: Outlook | None

    @property
    def name(self) -> str:
        """Name of the policy, with the machine type of a heuristic."""
        return name_of(self.rule.market, self.candidate)

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON-compatible data."""
        outlook = self.outlook
        return {
            "policy": self.name,
            "shares": self.shares,
            "outlook": None if outlook is None else outlook._asdict() | {"hours": list(outlook.hours)},
        }


def name_of(market: Market, candidate: Candidate) -> str:
    """Return the name of a candidate."""
    return candidate.policy if candidate.kind < 0 else f"{candidate.policy} {market.classes[candidate.kind].name}"


def history_trials(
    market: Market,
    prices: SlotPrices,
    work: int,
    slots: int,
    *,
    threads: int = 2,
    progress: Callable[[int, int], object] | None = None,
) -> Trials | None:
    """Run trials of a job over the later half of a history.

    None if the deadline cannot be kept, there is no history, or a table would have more than `sizes.MOST_VALUES`.
    """
    first = max(2, int(BEFORE * prices.slots))
    if slots < market.least_slots(work) or first >= prices.slots:
        return None
    if values_of_slot(refitted(market, until(prices, first)), work) * slots > MOST_VALUES:
        return None
    span = max(1, prices.slots - first)
    (found,) = walk_forward(
        market, prices, [(work, slots)], first=first, refit=-(-span // FITS), step=-(-span // MOST_TRIALS),
        threads=threads, progress=progress,
    )  # fmt: skip
    return found


def choose(
    table: Table, trials: Trials, prices: SlotPrices, expected: float, *, seed: int = 0, idle: bool = True
) -> Choice:
    """Choose the policy of a job.

    Parameters
    ----------
    table : Table
        Table of the market that was fitted to the whole history.
    trials : Trials
        From `history_trials`, of the same work and slots.
    prices : SlotPrices
        The history.
    expected : float
        Cost that the table expects now.
    seed : int
        Seed of the draw; jobs that follow one another need different ones for the guarantee of `trials.shares`.
    idle : bool
        Whether the job holds no machine; otherwise it follows the table.
    """
    market = table.market
    recent = RECENT_H * market.slots_per_hour
    share = shares(trials, most_cost(market, trials.slots), half_life=recent)[:, -1]
    at = chosen(share, seed) if idle else 0
    candidate = trials.candidates[at]
    rule = table if at == 0 else heuristic(market, candidate, trials.work, trials.slots, prices)
    named = {name_of(market, one): float(part) for one, part in zip(trials.candidates, share, strict=True)}
    return Choice(candidate, rule, named, outlook(market, trials, at, expected))


def outlook(market: Market, trials: Trials, at: int, expected: float) -> Outlook | None:
    """Return what a job may cost with a candidate, given by its index; None if there are too few trials."""
    recent = RECENT_H * market.slots_per_hour
    counted = trials.starts + trials.slots > trials.end - recent - trials.slots
    if counted.sum() < LEAST_TRIALS:
        return None
    bands = intervals(trials, at, round(recent))
    low, high = bands[:, -1] * expected
    paid = trials.costs[at] / np.maximum(trials.expected, TINY)
    held = ((bands[0, :-1] <= paid) & (paid <= bands[1, :-1]))[counted].mean()
    hours = np.quantile(trials.finished[at, counted], (0.1, 0.5, 0.9)) / market.slots_per_hour
    return Outlook(
        float(low),
        float(min(high, most_cost(market, trials.slots))),
        float((trials.on_demand[at, counted] == 0).mean()),
        float((trials.losses[at, counted] == 0).mean()),
        float(trials.losses[at, counted].mean()),
        (float(hours[0]), float(hours[1]), float(hours[2])),
        int(counted.sum()),
        float(held),
    )


def automatic(market: Market, prices: SlotPrices, work: int, slots: int, starts: Ints, *, threads: int = 2) -> Outcome:
    """Results of jobs that follow the trials, with markets fitted to earlier prices only; a draw for each job.

    Parameters
    ----------
    market : Market
    prices : SlotPrices
        The history, followed by the tested prices.
    work, slots : int
    starts : int64, shape (runs,)
        At equal distances, after the history.
    threads : int

    Raises
    ------
    InputError
        If there is no history before the first start.
    """
    step = int(starts[1] - starts[0]) if starts.size > 1 else 1
    first = int(starts[0] - int(BEFORE * starts[0]) // step * step)
    (found,) = walk_forward(
        market, prices, [(work, slots)], first=first, refit=REFIT_H * market.slots_per_hour, step=step, threads=threads
    )
    share = shares(found, most_cost(market, slots), half_life=RECENT_H * market.slots_per_hour)
    runs = np.flatnonzero(np.isin(found.starts, starts))
    drawn = [chosen(share[:, run], seed) for seed, run in enumerate(runs.tolist())]
    names = ("costs", "finished", "losses", "checkpoints", "rented", "on_demand")
    own = {name: getattr(found, name)[drawn, runs] for name in names}
    return Outcome(AUTO, "all", own["costs"], starts, Replay(**own, states=np.zeros((0, len(STATE_NAMES)), np.int64)))
