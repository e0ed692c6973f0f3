"""A job that may run in one of several zones: which zone to ask, and what that costs.

The same class is offered in each zone, with its own prices. A job that holds no machine may ask in any zone; if its
data is in another one, the machine starts later and the transfer costs money. Three ways to choose:

* by cost: one table for each zone; the zone whose table expects the least, the move included;
* by a bandit, where the tables are not trusted: epsilon-greedy or UCB1 on how much of the price on demand the spot
  machines of a zone have saved in each slot (work that was kept, less what was paid), with the deadline rule of a
  heuristic or peer. Each job learns by itself;
* the first zone that has a spot machine, the one where the data is before all others.

No deadline is missed, moves included: a zone is only asked if the start-up there, the move, and what follows on demand
in that zone fit into the slots left. Extension of docs/specs/spot.md, section 1 (choice of data centre is out of its
scope); bandits as in SkyPilot's simulation of recovery policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.spot import _zone_kernels as kernels
from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot import replay_kernels as columns
from goffish.scheduling.spot.comparison import lower_bounds
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.job import STATE_NAMES
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.replay import Replay, no_strategy, strategy_of
from goffish.scheduling.spot.table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Choice = Literal["first", "epsilon-greedy", "ucb"]


@dataclass(frozen=True, eq=False)
class Zones:
    """Policies of the same class in several zones.

    Attributes
    ----------
    policies : tuple of Table, or tuple of Heuristic
        One for each zone, of markets of one class that differ in prices only; heuristics of one kind and work.
    move_slots : int
        By which a start-up is longer in another zone than that of the data.
    move_cost : float
        Of moving the data.
    choice : {"first", "epsilon-greedy", "ucb"}
        How heuristics choose; tables choose by cost.
    epsilon : float
        Share of choices of epsilon-greedy that are made at random.
    home : int
        Zone of the data at submission; -1: the first machine may start anywhere without a move.
    """

    policies: tuple[Table, ...] | tuple[Heuristic, ...]
    move_slots: int = 0
    move_cost: float = 0.0
    choice: Choice = "ucb"
    epsilon: float = 0.1
    home: int = -1

    def __post_init__(self) -> None:
        if not self.policies or len({type(policy) for policy in self.policies}) > 1:
            raise InputError("zones need at least one policy, and either tables or heuristics")
        if self.choice not in get_args(Choice):
            raise InputError(f"no choice {self.choice!r}; there are: {', '.join(get_args(Choice))}")
        if self.move_slots < 0 or not 0 <= self.move_cost < np.inf or not 0 <= self.epsilon <= 1:
            raise InputError("move_slots and move_cost must be 0 or more, and epsilon a probability")
        if not -1 <= self.home < len(self.policies):
            raise InputError(f"home = {self.home}: there are {len(self.policies)} zones")
        same = {
            (m.slots_per_hour, m.unit, m.startup_slots, tuple(m.saves), m.notice, m.classes[0].speed)
            for m in self.markets
        }
        if len(same) > 1 or any(len(m.classes) > 1 for m in self.markets):
            raise InputError("the markets of the zones must have one class each, and differ in prices only")
        jobs = {(p.kind, p.work, p.slots) for p in self.policies if isinstance(p, Heuristic)}
        if len(jobs) > 1:
            raise InputError("the heuristics of the zones must be of one kind, work and deadline")

    @property
    def markets(self) -> tuple[Market, ...]:
        """Of the zones."""
        return tuple(policy.market for policy in self.policies)


def replay_zones(
    zones: Zones,
    work: int,
    slots: int,
    prices: SlotPrices,
    starts: Ints | None = None,
    *,
    rng: np.random.Generator | None = None,
    threads: int = 2,
) -> tuple[Replay, Ints]:
    """Run a job from each start slot over the prices of all zones.

    Parameters
    ----------
    zones : Zones
    work : int
        Units.
    slots : int
        Until the deadline.
    prices : SlotPrices
        A column for each zone.
    starts : int64, shape (runs,), optional
        Default: every slot from which the deadline is within the prices.
    rng : numpy.random.Generator, optional
        For epsilon-greedy, which needs one.
    threads : int
        Results do not depend on it.

    Returns
    -------
    Replay
    int64, shape (runs,)
        How often the data of each job was moved.

    Raises
    ------
    InputError
        If the deadline cannot be kept for certain, or something does not fit together.
    """
    begin = np.arange(prices.slots - slots + 1) if starts is None else np.asarray(starts, np.int64)
    if not begin.size or begin.min() < 0 or begin.max() + slots > prices.slots:
        raise InputError(f"runs of {slots} slots do not fit into prices of {prices.slots}")
    if prices.prices.shape[1] != len(zones.policies):
        raise InputError(f"prices of {len(zones.policies)} zones are needed, not of {prices.prices.shape[1]}")
    _check_job(zones, work, slots)
    random = isinstance(zones.policies[0], Heuristic) and zones.choice == "epsilon-greedy"
    if random and rng is None:
        raise InputError("epsilon-greedy needs a generator of random numbers")
    draws = rng.random((begin.size, slots, 2)) if random and rng is not None else np.zeros((begin.size, 0, 2))
    by_table, count = isinstance(zones.policies[0], Table), len(zones.policies)
    # Kernels are compiled for 2, 4, 8, ... zones only; what stands for the others is not looked at.
    padded = [zones.policies[min(at, count - 1)] for at in range(max(2, 1 << (count - 1).bit_length()))]
    strategies, values, plans = zip(*(_columns(policy, work) for policy in padded), strict=True)
    rules = tuple(policy.market.rules for policy in padded)
    joints = np.stack([_states(market, prices.prices[:, [zone]]) for zone, market in enumerate(zones.markets)], axis=1)
    found, trips = np.empty((begin.size, 6)), np.empty(begin.size, np.int64)
    pieces = np.array_split(np.arange(begin.size), threads)
    counts = np.zeros((threads, slots + 1, len(STATE_NAMES)), np.int64)

    def part(number: int) -> None:
        if pieces[number].size:
            rows = slice(int(pieces[number][0]), int(pieces[number][-1]) + 1)
            kernels.replay(
                count, by_table, strategies, values, plans, rules, zones.move_slots, float(zones.move_cost),
                zones.markets[0].slots_per_hour, zones.home, get_args(Choice).index(zones.choice),
                float(zones.epsilon), work, slots, begin[rows], prices.prices, prices.peaks, joints, draws[rows],
                found[rows], counts[number], trips[rows],
            )  # fmt: skip

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, range(threads)))
    done, losses, saves, rented, dear = found[:, columns.DONE :].astype(np.int64).T
    return Replay(found[:, columns.COST].copy(), done, losses, saves, rented, dear, counts.sum(axis=0)), trips


def best_fixed_zone(
    markets: Sequence[Market], work: int, slots: int, prices: SlotPrices, ends: Ints, *, threads: int = 2
) -> tuple[Floats, Ints]:
    """What jobs would have cost with all prices known, in the one zone that was best for each.

    Parameters
    ----------
    markets : sequence of Market
        One for each zone.
    work, slots : int
    prices : SlotPrices
        A column for each zone.
    ends : int64, shape (runs,)
        Deadlines, as for `lower_bounds`.
    threads : int

    Returns
    -------
    float64, shape (runs,)
        Least money. It bounds jobs that stay in one zone; those that move may cost less.
    int64, shape (runs,)
        The zone.
    """
    if prices.prices.shape[1] != len(markets):
        raise InputError(f"prices of {len(markets)} zones are needed, not of {prices.prices.shape[1]}")
    bounds = np.stack(
        [
            lower_bounds(market, work, slots, of_zone(prices, zone), ends, threads=threads)[:, slots]
            for zone, market in enumerate(markets)
        ]
    )
    return bounds.min(axis=0), bounds.argmin(axis=0).astype(np.int64)


def of_zone(prices: SlotPrices, zone: int) -> SlotPrices:
    """The column of one zone."""
    one = slice(zone, zone + 1)
    return SlotPrices(np.ascontiguousarray(prices.prices[:, one]), np.ascontiguousarray(prices.peaks[:, one]))


def _columns(policy: Table | Heuristic, work: int) -> tuple[columns.Strategy, Floats, columns.HeuristicSettings]:
    """What the kernel reads of a policy; of a table no plan, of a heuristic no strategy."""
    if isinstance(policy, Table):
        return strategy_of(policy), policy.values, columns.HeuristicSettings(0, -1, 0, work, np.inf)
    return no_strategy(), np.zeros((0, 0, 0)), policy.plan


def _states(market: Market, prices: Floats) -> Ints:
    return market.joint(prices, market.ages_of(prices))


def _check_job(zones: Zones, work: int, slots: int) -> None:
    """Refuse a job whose deadline cannot be kept."""
    least = zones.markets[0].least_slots(work)
    for policy in zones.policies:
        if isinstance(policy, Table):
            possible = bool(np.isfinite(policy.expected_cost(work, slots)))
        else:
            if work != policy.work or policy.slots not in (0, slots):
                job = f"{policy.work} units and {policy.slots} slots"
                raise InputError(f"the heuristics are for jobs of {job}, not {work} and {slots}")
            least = policy.least_slots
            possible = slots >= least
        if not possible:
            raise InputError(
                f"{work} units within {slots} slots are not feasible; the earliest possible end is {least} slots"
            )
