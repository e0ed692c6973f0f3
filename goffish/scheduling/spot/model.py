"""Spot markets: machine types with bids and price chains, billing, delays, and a local machine.

See docs/specs/spot.md, sections 2 and 6.14. Work is in units, time in slots, money in dollars.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import Automaton, Rule, automaton
from goffish.cloud.prices import ANY_PRICE
from goffish.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tolerance of the sum of a row of probabilities.
ROW_SLACK = 1e-9
#: Maximum number of choices, which are stored in a byte with waiting and the local machine.
MOST_CHOICES = 250


class Rules(NamedTuple):
    """One entry for each choice; rows 0 and 1 of automata: spot, on demand.

    `checkpoint` is the longest checkpoint; `saves`, shape (n,), are those with 1, 2, ... units left, the last one also
    with more. `penalty` is infinite where the deadline is hard.
    """

    spot: NDArray[np.bool_]
    speed: Ints
    kind: Ints
    bid: Floats
    fixed: Floats
    follow: Ints
    step: Floats
    release: Floats
    revoke: Floats
    priced: Ints
    startup: int
    checkpoint: int
    notice: bool
    local_speed: int
    move_slots: int
    move_cost: float
    saves: Ints
    startup_billed: bool
    penalty: float


@dataclass(frozen=True, eq=False)
class SpotClass:
    """A machine type, and the Markov chain of its spot price.

    Attributes
    ----------
    name : str
    speed : int
        Units of work in a slot.
    on_demand : float
        On-demand price of an hour.
    edges : float64, shape (bins - 1,)
        Ascending; the bin of a price is the number of edges strictly below it.
    levels : float64, shape (bins,)
        Mean price in each bin, used for costs only.
    chain : float64, shape (states, states)
        Probability that a state is followed by another a slot later. A state is a bin; with `ages`, state
        ``bin * ages + age`` is a bin that was entered `age` slots ago, the last age meaning that or longer.
    covers : int64, shape (bids,)
        The highest bin covered by each bid, ascending. The bid is the upper edge of that bin.
    hazard : float
        Probability of a spot interruption in a slot at any price.
    ages : int
        Greater than 1 for a semi-Markov chain, in which leaving a bin depends on the time that the price has been in
        it.
    """

    name: str
    speed: int
    on_demand: float
    edges: Floats
    levels: Floats
    chain: Floats
    covers: Ints
    hazard: float = 0.0
    ages: int = 1

    def __post_init__(self) -> None:
        bins = self.levels.size
        if self.speed < 1 or not self.on_demand >= 0 or not np.isfinite(self.on_demand):
            raise InputError(f"machine type {self.name}: speed must be at least 1, and on_demand at least 0")
        if self.ages < 1:
            raise InputError(f"machine type {self.name}: ages = {self.ages}: must be at least 1")
        if not bins or self.edges.shape != (bins - 1,) or self.chain.shape != (self.states, self.states):
            raise InputError(
                f"machine type {self.name}: {bins} levels require {bins - 1} edges, and a chain of size {self.states}"
            )
        if (np.diff(self.edges) <= 0).any() or not np.isfinite(self.levels).all() or (self.levels < 0).any():
            raise InputError(f"machine type {self.name}: edges must ascend, and levels must be 0 or more")
        if (self.chain < 0).any() or not (np.abs(self.chain.sum(axis=1) - 1.0) <= ROW_SLACK).all():
            raise InputError(f"machine type {self.name}: rows of the chain must sum to 1, without negative entries")
        if (self.chain[~ageing(bins, self.ages)] > 0).any():
            raise InputError(
                f"machine type {self.name}: ages must increase by 1 per slot, and bins be entered with age 0"
            )
        if (np.diff(self.covers) <= 0).any() or (self.covers < 0).any() or (self.covers >= bins).any():
            raise InputError(f"machine type {self.name}: covers must be bins in ascending order")
        if not 0 <= self.hazard <= 1:
            raise InputError(f"machine type {self.name}: hazard = {self.hazard:g}: must be 0 to 1")

    @property
    def bins(self) -> int:
        """Number of bins of its price."""
        return self.levels.size

    @property
    def states(self) -> int:
        """Number of states of its price: bins, each with its ages."""
        return self.levels.size * self.ages

    @property
    def bids(self) -> Floats:
        """Price of each bid; infinite if it covers all bins."""
        return np.append(self.edges, np.inf)[self.covers]

    @property
    def by_availability(self) -> bool:
        """Whether it is available or not, without bids."""
        return self.edges.size == 1 and float(self.edges[0]) == ANY_PRICE

    @property
    def without_bids(self) -> bool:
        """Whether its spot machines are not bid for: by availability, or at a constant price."""
        return self.by_availability or self.bins == 1

    def bins_of(self, prices: Floats) -> Ints:
        """Bin of each price."""
        return np.searchsorted(self.edges, prices, "left").astype(np.int64)

    @cached_property
    def stationary(self) -> Floats:
        """Share of time in each state in the long run."""
        return long_run(self.chain)


@dataclass(frozen=True)
class Local:
    """A local machine: free to use, but the data must be moved there.

    Attributes
    ----------
    speed : int
        Units of work in a slot.
    move_slots : int
        Slots from the decision until the job runs on it.
    move_cost : float
        Cost of moving the data out of the cloud.
    """

    speed: int
    move_slots: int = 1
    move_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.speed < 1 or self.move_slots < 1 or not self.move_cost >= 0:
            raise InputError("local machine: speed and move_slots must be at least 1, and move_cost 0 or more")


@dataclass(frozen=True, eq=False)
class Market:
    """A market: all inputs of a table besides its bounds.

    Choices are numbered: all bids of the first machine type, ascending, then of the next type; then each type on
    demand.

    Attributes
    ----------
    classes : tuple of SpotClass
    slots_per_hour : int
    unit : float
        Core-hours of a unit of work.
    spot_billing, on_demand_billing : str
        Rules of `billing.automaton`.
    charge_revoked : bool
        With hourly rules: whether the hour of an interruption is charged.
    startup_slots : int
        At least 1.
    checkpoint_slots : int or tuple of int
        At least 1; entry ``c - 1`` of a tuple is for `c` remaining units at its start, the last one also for more
        (§2.4).
    notice : bool
        Whether an interrupted job resumes from its progress at the start of the slot.
    local : Local, optional
    startup_billed : bool
        Whether start-up is charged, so that the billed hour begins with it (EC2 today).
    late_penalty : float, optional
        Penalty for each unit of work left at the deadline, when the machine is released (O-14); default: the deadline
        is hard, and no action may risk it.
    joint_chain : float64, shape (joint states, joint states), optional
        Chain of all prices together (O-15); default: prices move independently.
    """

    classes: tuple[SpotClass, ...]
    slots_per_hour: int = 6
    unit: float = 1.0 / 3.0
    spot_billing: Rule = "hourly"
    on_demand_billing: Rule = "hourly"
    charge_revoked: bool = False
    startup_slots: int = 1
    checkpoint_slots: int | tuple[int, ...] = 1
    notice: bool = False
    local: Local | None = None
    startup_billed: bool = False
    late_penalty: float | None = None
    joint_chain: Floats | None = None
    spot: Automaton = field(init=False, repr=False)
    on_demand: Automaton = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = [c.name for c in self.classes]
        if not names or len(set(names)) < len(names):
            raise InputError("a market requires at least one machine type, and unique names")
        if self.startup_slots < 1 or not self.saves.size or self.saves.min() < 1:
            raise InputError("startup_slots and checkpoint_slots must be at least 1")
        if self.late_penalty is not None and not 0 <= self.late_penalty < np.inf:
            raise InputError(f"late_penalty = {self.late_penalty:g}: must be 0 or more, and finite")
        if self.startup_billed and self.spot_billing == "hourly_start" and self.startup_slots > 1:
            raise InputError(f"startup_billed with hourly_start: requires startup_slots = 1, not {self.startup_slots}")
        if not self.unit > 0:
            raise InputError(f"unit = {self.unit:g}: must be greater than 0 core-hours")
        spot = automaton(self.spot_billing, self.slots_per_hour, charge_revoked=self.charge_revoked)
        object.__setattr__(self, "spot", spot)
        object.__setattr__(self, "on_demand", automaton(self.on_demand_billing, self.slots_per_hour))
        if self.joint_chain is not None:
            joint, shape = self.joint_chain, (self.joint_states,) * 2
            if joint.shape != shape or (joint < 0).any() or not (np.abs(joint.sum(axis=1) - 1.0) <= ROW_SLACK).all():
                raise InputError(
                    f"joint_chain: expected shape {shape}, and rows that sum to 1 without negative entries"
                )
        if self.choices > MOST_CHOICES:
            raise InputError(f"{self.choices} bids and machine types; at most {MOST_CHOICES} are possible")

    @cached_property
    def choices(self) -> int:
        """Number of pairs of machine type and bid, plus machine types on demand."""
        return sum(c.covers.size + 1 for c in self.classes)

    @cached_property
    def saves(self) -> Ints:
        """Slots of a checkpoint with 1, 2, ... remaining units; the last entry also for more."""
        given = self.checkpoint_slots
        found = list(given) if isinstance(given, tuple) else [given]
        while len(found) > 1 and found[-1] == found[-2]:
            found.pop()
        return np.array(found, np.int64)

    @cached_property
    def longest_checkpoint(self) -> int:
        """Slots of the longest checkpoint."""
        return int(self.saves.max())

    @cached_property
    def sizes(self) -> Ints:
        """Number of price states of each machine type."""
        return np.array([c.states for c in self.classes], np.int64)

    @cached_property
    def joint_states(self) -> int:
        """Number of joint price states."""
        return int(self.sizes.prod())

    @cached_property
    def own_states(self) -> Ints:
        """State of each type in each joint state, shape (classes, joint states); the last type changes fastest."""
        return np.stack(np.unravel_index(np.arange(self.joint_states), tuple(self.sizes))).astype(np.int64)

    @cached_property
    def joint_bins(self) -> Ints:
        """Bin of each machine type in each joint state, shape (classes, joint states)."""
        return self.own_states // np.array([c.ages for c in self.classes], np.int64)[:, None]

    @cached_property
    def stationary(self) -> Floats:
        """Share of time in each joint state in the long run."""
        if self.joint_chain is not None:
            return long_run(self.joint_chain)
        found: Floats = np.ones(1)
        for one in self.classes:
            found = np.asarray(np.kron(found, one.stationary), np.float64)
        return found

    @cached_property
    def aged(self) -> bool:
        """Whether any price state includes an age."""
        return any(one.ages > 1 for one in self.classes)

    def joint(self, prices: Floats, ages: Ints | None = None) -> Ints:
        """Joint state of prices, shape (..., classes), and of the slots for which each has been in its bin.

        Raises
        ------
        InputError
            If ages are missing and the market is `aged`.
        """
        if ages is None and self.aged:
            raise InputError(
                "ages: required, as the price chains depend on the slots that prices have been in their bins"
            )
        found = np.zeros(prices.shape[:-1], np.int64)
        for at, one in enumerate(self.classes):
            found = found * one.states + one.bins_of(prices[..., at]) * one.ages
            if ages is not None and one.ages > 1:
                found += np.minimum(ages[..., at], one.ages - 1)
        return found

    def ages_of(self, prices: Floats) -> Ints:
        """Slots since the price of each type entered its bin, shape (slots, classes), from prices at slot starts.

        Counted from the first slot, up to the highest age of the chains.
        """
        found = np.empty(prices.shape, np.int64)
        for kind, one in enumerate(self.classes):
            found[:, kind] = np.minimum(slots_inside(one.bins_of(prices[:, kind])), one.ages - 1)
        return found

    def spot_choice(self, kind: int, bid: int) -> int:
        """Choice of a bid of a machine type."""
        if not 0 <= kind < len(self.classes) or not 0 <= bid < self.classes[kind].covers.size:
            raise InputError(f"unknown bid {bid} of machine type {kind}")
        return sum(c.covers.size for c in self.classes[:kind]) + bid

    def on_demand_choice(self, kind: int) -> int:
        """Choice of a machine type on demand."""
        if not 0 <= kind < len(self.classes):
            raise InputError(f"unknown machine type {kind}")
        return sum(c.covers.size for c in self.classes) + kind

    @cached_property
    def rules(self) -> Rules:
        """Convert the market to columns."""
        return _rules_of(self)

    def units(self, core_hours: float) -> int:
        """Work in units, rounded up."""
        return units_left(core_hours, self.unit)

    def least_slots(self, work: int) -> int:
        """The shortest deadline that can be kept whatever the prices (§3.2, `feasible`)."""
        cloud = self.startup_slots + -(-work // max(c.speed for c in self.classes))
        if self.local is None:
            return cloud
        return min(cloud, self.local.move_slots + -(-work // self.local.speed))

    def fingerprint(self) -> dict[str, Any]:
        """All inputs of a table besides its bounds, in a fixed order (§3.4)."""
        fields = ("slots_per_hour", "unit", "spot_billing", "on_demand_billing", "charge_revoked", "startup_slots")
        found: dict[str, Any] = {name: getattr(self, name) for name in fields}
        found["checkpoint_slots"] = self.saves.tolist()
        found |= {name: getattr(self, name) for name in ("notice", "startup_billed", "late_penalty")}
        local = self.local
        found["local"] = None if local is None else [local.speed, local.move_slots, local.move_cost]
        found["classes"] = [c.name for c in self.classes]
        for one in self.classes:
            for name in ("speed", "on_demand", "hazard", "ages"):
                found[f"{one.name}: {name}"] = getattr(one, name)
            for name in ("edges", "levels", "chain", "covers"):
                found[f"{one.name}: {name}"] = getattr(one, name).tolist()
        found["joint_chain"] = None if self.joint_chain is None else self.joint_chain.tolist()
        return found


def slots_inside(bins: Ints) -> Ints:
    """Slots since the bin of each slot was entered, counted from the first slot."""
    at = np.arange(bins.size)
    return np.asarray(at - np.maximum.accumulate(np.where(np.append(True, bins[1:] != bins[:-1]), at, 0)), np.int64)


def long_run(chain: Floats) -> Floats:
    """Share of time in each state of a chain in the long run."""
    size = len(chain)
    system = np.vstack((chain.T - np.eye(size), np.ones(size)))
    found = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0].clip(min=0.0)
    return np.asarray(found / found.sum(), np.float64)


def ageing(bins: int, ages: int) -> NDArray[np.bool_]:
    """Possible steps between states ``bin * ages + age``: one slot older, or into another bin."""
    kind, age = np.divmod(np.arange(bins * ages), ages)
    same = kind[:, None] == kind[None, :]
    older = np.minimum(age + 1, ages - 1)[:, None] == age[None, :]
    return np.asarray(np.where(same, older, age[None, :] == 0))


def chain_of(leave: float | Floats, goes: Floats) -> Floats:
    """Chain of leaving bins with a probability and a distribution of the next bin: ``(1 - alpha) I + alpha f`` (Eq. 1).

    The diagonal of `goes`, shape (bins, bins), is ignored; its rows are normalized.
    """
    bins = len(goes)
    if bins == 1:
        return np.ones((1, 1))
    off = np.where(np.eye(bins, dtype=bool), 0.0, goes)
    if not (off.sum(axis=1) > 0).all():
        raise InputError("chain: every bin must have a successor other than itself")
    alpha = np.broadcast_to(np.asarray(leave, np.float64), (bins,))[:, None]
    return np.asarray((1 - alpha) * np.eye(bins) + alpha * off / off.sum(axis=1, keepdims=True), np.float64)


def units_left(core_hours: float, unit: float) -> int:
    """Work in units of `unit` core-hours, rounded up, except for numerical errors (§3.5); at least one for any work."""
    if not 0 <= core_hours < np.inf or not unit > 0:
        raise InputError(f"core_hours = {core_hours:g}, unit = {unit:g}: must be 0 or more, and greater than 0")
    return max(int(core_hours > 0), int(np.ceil(core_hours / unit - 1e-9)))


def work_units(cores: list[int], slots_per_hour: int) -> tuple[list[int], float]:
    """Speed of machine types in units per slot, and core-hours of a unit: the greatest common divisor (§2.2)."""
    if not cores or min(cores) < 1:
        raise InputError("cores: each machine type requires at least one")
    unit = int(np.gcd.reduce(np.array(cores)))
    return [c // unit for c in cores], unit / slots_per_hour


def _rules_of(market: Market) -> Rules:
    """The columns of a market."""
    spot = [(kind, bid) for kind, c in enumerate(market.classes) for bid in c.bids.tolist()]
    offers = spot + [(kind, np.inf) for kind in range(len(market.classes))]
    kinds = np.array([kind for kind, _ in offers], np.int64)
    automata = (market.spot, market.on_demand)
    states = max(a.states for a in automata)
    prices = np.array([c.on_demand for c in market.classes])
    local = market.local
    return Rules(
        np.arange(len(offers)) < len(spot),
        np.array([c.speed for c in market.classes], np.int64)[kinds],
        kinds,
        np.array([bid for _, bid in offers], np.float64),
        prices[kinds],
        np.stack([np.pad(a.follow, (0, states - a.states)) for a in automata]),
        np.stack([np.pad(a.step, (0, states - a.states)) for a in automata]),
        np.stack([np.pad(a.release, (0, states - a.states)) for a in automata]),
        np.stack([np.pad(a.revoke, (0, states - a.states)) for a in automata]),
        np.array([a.priced for a in automata], np.int64),
        market.startup_slots,
        market.longest_checkpoint,
        market.notice,
        local.speed if local else 0,
        local.move_slots if local else 0,
        local.move_cost if local else 0.0,
        market.saves,
        market.startup_billed,
        np.inf if market.late_penalty is None else market.late_penalty,
    )
