"""Replay of policies on price traces: one job from every start slot, its cost and its states.

See docs/specs/spot.md, sections 3.5, 4.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot import replay_kernels as kernels
from goffish.scheduling.spot.heuristics import Heuristic, not_feasible
from goffish.scheduling.spot.job import STATE_NAMES
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Replay:
    """Results of the jobs.

    Attributes
    ----------
    costs : float64, shape (runs,)
    finished : int64, shape (runs,)
        Slot at whose end each job finished, counted from 1; 0 if the deadline was missed. In that case `costs` includes
        the market's `late_penalty`, if it has one.
    losses, checkpoints : int64, shape (runs,)
        Number of interruptions, including those during start-up; number of started checkpoints.
    rented, on_demand : int64, shape (runs,)
        Slots of running or checkpointing on a rented machine, and the part on demand.
    states : int64, shape (slots + 1, 7)
        Jobs in each state (`job.STATE_NAMES`) at the start of each slot, and at the deadline; no rows if unknown.
    """

    costs: Floats
    finished: Ints
    losses: Ints
    checkpoints: Ints
    rented: Ints
    on_demand: Ints
    states: Ints

    @property
    def mean_cost(self) -> float:
        """Mean cost of all runs."""
        return float(self.costs.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean, for independent runs."""
        return float(self.costs.std(ddof=1) / np.sqrt(self.costs.size)) if self.costs.size > 1 else 0.0

    @property
    def missed(self) -> int:
        """Deadlines."""
        return int((self.finished == 0).sum())


def strategy_of(table: Table) -> kernels.Strategy:
    """Convert a table to the columns that the kernels read."""
    classes = table.market.classes
    widest = max(c.edges.size for c in classes)
    edges = np.stack([np.pad(c.edges, (0, widest - c.edges.size), constant_values=np.inf) for c in classes])
    bins = np.array([c.bins for c in classes], np.int64)
    return kernels.Strategy(table.idle_actions, *table.actions, bins, edges)


def no_strategy() -> kernels.Strategy:
    """Placeholder of a table for heuristics."""
    none, small = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return kernels.Strategy(
        np.zeros((0, 0, 0), np.uint8), none, none, none, small, small, np.zeros((0, 0), np.uint64), none,
        np.zeros((0, 0)),
    )  # fmt: skip


def replay(
    policy: Table | Heuristic,
    work: int,
    slots: int,
    prices: SlotPrices,
    starts: Ints | None = None,
    *,
    threads: int = 2,
) -> Replay:
    """Run a job from each start slot over a price trace.

    Parameters
    ----------
    policy : Table or Heuristic
    work : int
        Units of work; for a heuristic, that of its jobs.
    slots : int
        Slots until the deadline.
    prices : SlotPrices
        Prices of the machine types of the market, in their order.
    starts : int64, shape (runs,), optional
        Default: every slot whose deadline is within the prices.
    threads : int
        Number of threads; results do not depend on it.

    Raises
    ------
    InputError
        If the deadline is hard and cannot be guaranteed, or a start does not fit into the prices or the table.
    """
    market = policy.market
    begin = np.arange(prices.slots - slots + 1) if starts is None else np.asarray(starts, np.int64)
    if not begin.size or begin.min() < 0 or begin.max() + slots > prices.slots:
        hour = market.slots_per_hour
        raise InputError(f"runs of {slots / hour:.4g} h exceed the history of {prices.slots / hour:.4g} h")
    if prices.prices.shape[1] != len(market.classes):
        raise InputError(f"prices: expected {len(market.classes)} machine types, found {prices.prices.shape[1]}")
    _check_job(policy, market, work, slots)
    table = isinstance(policy, Table)
    strategy = strategy_of(policy) if isinstance(policy, Table) else no_strategy()
    plan = policy.plan if isinstance(policy, Heuristic) else kernels.HeuristicSettings(0, -1, 0, work, np.inf)
    joints = market.joint(prices.prices, market.ages_of(prices.prices)) if table else np.zeros(0, np.int64)
    found = np.empty((begin.size, 6))
    pieces = np.array_split(np.arange(begin.size), threads)
    counts = np.zeros((threads, slots + 1, len(STATE_NAMES)), np.int64)

    def part(number: int) -> None:
        if pieces[number].size:
            rows = slice(int(pieces[number][0]), int(pieces[number][-1]) + 1)
            kernels.replay(
                table, strategy, plan, market.rules, slots, begin[rows], prices.prices, prices.peaks, joints,
                found[rows], counts[number],
            )  # fmt: skip

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, range(threads)))
    done, losses, saves, rented, dear = found[:, kernels.DONE :].astype(np.int64).T
    return Replay(found[:, kernels.COST].copy(), done, losses, saves, rented, dear, counts.sum(axis=0))


def _check_job(policy: Table | Heuristic, market: Market, work: int, slots: int) -> None:
    """Refuse a job whose deadline cannot be kept."""
    if isinstance(policy, Table):
        possible, least = np.isfinite(policy.expected_cost(work, slots)), market.least_slots(work)
    else:
        if work != policy.work:
            raise InputError(f"work = {work}: the heuristic is for jobs of {policy.work} units")
        if policy.slots not in (0, slots):
            raise InputError(f"slots = {slots}: the heuristic is for deadlines of {policy.slots} slots")
        least = policy.least_slots
        possible = slots >= least or market.late_penalty is not None
    if not possible:
        raise InputError(not_feasible(market, work, slots / market.slots_per_hour, least))
