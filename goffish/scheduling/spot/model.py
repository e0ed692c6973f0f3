"""What a job can choose from: machine classes with bids and a price chain each, billing, time costs, a local machine.

See docs/specs/spot.md, sections 2 and 6.14. Work is in units, time in slots, money in dollars.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import Automaton, Rule, automaton
from goffish.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: By how much the sum of a row of probabilities may differ from 1.
ROW_SLACK = 1e-9
#: A choice is stored in a byte, beside waiting and the local machine.
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
    """A machine class, and the Markov chain of its spot price.

    Attributes
    ----------
    name : str
    speed : int
        Units of work in a slot.
    on_demand : float
        Price of an hour on demand.
    edges : float64, shape (bins - 1,)
        Ascending; the bin of a price is the number of edges strictly below it.
    levels : float64, shape (bins,)
        Mean price in each bin, which is used for money only.
    chain : float64, shape (states, states)
        Probability that a state is followed by another a slot later. A state is a bin; with `ages`, state
        ``bin * ages + age`` is a bin that was entered `age` slots ago, the last age meaning that or longer.
    covers : int64, shape (bids,)
        The highest bin that each bid covers, ascending. The bid is the upper edge of that bin.
    hazard : float
        Probability that a spot machine is taken away in a slot whatever the price.
    ages : int
        More than 1 for a semi-Markov chain, in which leaving a bin depends on how long the price has been in it.
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
            raise InputError(f"class {self.name}: its speed must be at least 1 and its price at least 0")
        if self.ages < 1:
            raise InputError(f"class {self.name}: ages = {self.ages}: must be at least 1")
        if not bins or self.edges.shape != (bins - 1,) or self.chain.shape != (self.states, self.states):
            raise InputError(
                f"class {self.name}: {bins} levels need {bins - 1} edges and {self.states} rows and columns"
            )
        if (np.diff(self.edges) <= 0).any() or not np.isfinite(self.levels).all() or (self.levels < 0).any():
            raise InputError(f"class {self.name}: edges must ascend, and levels be 0 or more")
        if (self.chain < 0).any() or not (np.abs(self.chain.sum(axis=1) - 1.0) <= ROW_SLACK).all():
            raise InputError(f"class {self.name}: each row of its chain must have the sum 1 and nothing below 0")
        if (self.chain[~ageing(bins, self.ages)] > 0).any():
            raise InputError(f"class {self.name}: a bin grows older slot by slot, and is entered with age 0")
        if (np.diff(self.covers) <= 0).any() or (self.covers < 0).any() or (self.covers >= bins).any():
            raise InputError(f"class {self.name}: covers must be bins, ascending")
        if not 0 <= self.hazard <= 1:
            raise InputError(f"class {self.name}: hazard = {self.hazard:g} is no probability")

    @property
    def bins(self) -> int:
        """Of its price."""
        return self.levels.size

    @property
    def states(self) -> int:
        """Of its price: bins, each with its ages."""
        return self.levels.size * self.ages

    @property
    def bids(self) -> Floats:
        """Price of each bid; infinite if it covers everything."""
        return np.append(self.edges, np.inf)[self.covers]

    def bins_of(self, prices: Floats) -> Ints:
        """Bin of each price."""
        return np.searchsorted(self.edges, prices, "left").astype(np.int64)

    @cached_property
    def stationary(self) -> Floats:
        """Share of time in each state in the long run."""
        return long_run(self.chain)


@dataclass(frozen=True)
class Local:
    """A machine of one's own: free to use, but the data must get there.

    Attributes
    ----------
    speed : int
        Units of work in a slot.
    move_slots : int
        From the decision until the job runs there.
    move_cost : float
        Of the data that leaves the cloud.
    """

    speed: int
    move_slots: int = 1
    move_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.speed < 1 or self.move_slots < 1 or not self.move_cost >= 0:
            raise InputError("local machine: its speed and the move take at least 1, and moving costs 0 or more")


@dataclass(frozen=True, eq=False)
class Market:
    """Everything a table depends on besides its bounds.

    Choices are numbered: all bids of the first class, ascending, then of the next one; then each class on demand.

    Attributes
    ----------
    classes : tuple of SpotClass
    slots_per_hour : int
    unit : float
        Core-hours of a unit of work.
    spot_billing, on_demand_billing : str
        Rules of `billing.automaton`.
    charge_revoked : bool
        With hourly rules, whether an hour that the provider cuts off is charged.
    startup_slots : int
        At least 1.
    checkpoint_slots : int or tuple of int
        At least 1; of a tuple, entry ``c - 1`` is for `c` units left when it begins, the last one also for more (§2.4).
    notice : bool
        Whether a job whose machine is taken away resumes from where it was at the start of the slot.
    local : Local, optional
    startup_billed : bool
        Whether start-up is charged, so that the billed hour begins with it (EC2 today).
    late_penalty : float, optional
        Money for each unit of work left at the deadline, where the machine is given back (O-14); default: the deadline
        is hard, and nothing is risked that could miss it.
    joint_chain : float64, shape (joint states, joint states), optional
        Of all prices together (O-15); default: each class's price moves by itself.
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
            raise InputError("a market needs at least one class, each with a name of its own")
        if self.startup_slots < 1 or not self.saves.size or self.saves.min() < 1:
            raise InputError("start-up and checkpoint take at least one slot each")
        if self.late_penalty is not None and not 0 <= self.late_penalty < np.inf:
            raise InputError(f"late_penalty = {self.late_penalty:g}: must be 0 or more, and finite")
        if self.startup_billed and self.spot_billing == "hourly_start" and self.startup_slots > 1:
            raise InputError(
                f"startup_billed with hourly_start: only for a start-up of one slot, not of {self.startup_slots}"
            )
        if not self.unit > 0:
            raise InputError(f"unit = {self.unit:g}: must be more than 0 core-hours")
        spot = automaton(self.spot_billing, self.slots_per_hour, charge_revoked=self.charge_revoked)
        object.__setattr__(self, "spot", spot)
        object.__setattr__(self, "on_demand", automaton(self.on_demand_billing, self.slots_per_hour))
        if self.joint_chain is not None:
            joint, shape = self.joint_chain, (self.joint_states,) * 2
            if joint.shape != shape or (joint < 0).any() or not (np.abs(joint.sum(axis=1) - 1.0) <= ROW_SLACK).all():
                raise InputError(f"joint_chain: needs the shape {shape}, rows with the sum 1 and nothing below 0")
        if self.choices > MOST_CHOICES:
            raise InputError(f"{self.choices} choices of bids and classes; at most {MOST_CHOICES} are possible")

    @cached_property
    def choices(self) -> int:
        """Pairs of class and bid, and classes on demand."""
        return sum(c.covers.size + 1 for c in self.classes)

    @cached_property
    def saves(self) -> Ints:
        """Slots of a checkpoint with 1, 2, ... units left; the last entry also for more."""
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
        """States of the price of each class."""
        return np.array([c.states for c in self.classes], np.int64)

    @cached_property
    def joint_states(self) -> int:
        """Of all prices together."""
        return int(self.sizes.prod())

    @cached_property
    def own_states(self) -> Ints:
        """State of each class in each joint state, shape (classes, joint states); the last class changes fastest."""
        return np.stack(np.unravel_index(np.arange(self.joint_states), tuple(self.sizes))).astype(np.int64)

    @cached_property
    def joint_bins(self) -> Ints:
        """Bin of each class in each joint state, shape (classes, joint states)."""
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
        """Whether the state of a price is more than its bin."""
        return any(one.ages > 1 for one in self.classes)

    def joint(self, prices: Floats, ages: Ints | None = None) -> Ints:
        """Joint state of prices, shape (..., classes), and of the slots for which each has been in its bin.

        Raises
        ------
        InputError
            If there are no ages and the market is `aged`.
        """
        if ages is None and self.aged:
            raise InputError("the chains depend on how long prices have been in their bins: give their ages, in slots")
        found = np.zeros(prices.shape[:-1], np.int64)
        for at, one in enumerate(self.classes):
            found = found * one.states + one.bins_of(prices[..., at]) * one.ages
            if ages is not None and one.ages > 1:
                found += np.minimum(ages[..., at], one.ages - 1)
        return found

    def ages_of(self, prices: Floats) -> Ints:
        """Slots since the price of each class entered its bin, shape (slots, classes), from prices at their starts.

        Counted from the first slot, of which nothing earlier is known; and only as far as the chains distinguish.
        """
        at = np.arange(len(prices))
        found = np.empty(prices.shape, np.int64)
        for kind, one in enumerate(self.classes):
            bins = one.bins_of(prices[:, kind])
            entered = np.maximum.accumulate(np.where(np.append(True, bins[1:] != bins[:-1]), at, 0))
            found[:, kind] = np.minimum(at - entered, one.ages - 1)
        return found

    def spot_choice(self, kind: int, bid: int) -> int:
        """Number of a bid of a class."""
        if not 0 <= kind < len(self.classes) or not 0 <= bid < self.classes[kind].covers.size:
            raise InputError(f"no bid {bid} of class {kind}")
        return sum(c.covers.size for c in self.classes[:kind]) + bid

    def on_demand_choice(self, kind: int) -> int:
        """Number of a class on demand."""
        if not 0 <= kind < len(self.classes):
            raise InputError(f"no class {kind}")
        return sum(c.covers.size for c in self.classes) + kind

    @cached_property
    def rules(self) -> Rules:
        """The same as columns."""
        return _rules_of(self)

    def units(self, core_hours: float) -> int:
        """Work in units, rounded up."""
        return units_left(core_hours, self.unit)

    def least_slots(self, work: int) -> int:
        """The shortest deadline that can be kept whatever the prices do (§3.2, `feasible`)."""
        cloud = self.startup_slots + -(-work // max(c.speed for c in self.classes))
        if self.local is None:
            return cloud
        return min(cloud, self.local.move_slots + -(-work // self.local.speed))

    def fingerprint(self) -> dict[str, Any]:
        """All that a table depends on besides its bounds, in a fixed order (§3.4)."""
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


def long_run(chain: Floats) -> Floats:
    """Share of time in each state of a chain in the long run."""
    size = len(chain)
    system = np.vstack((chain.T - np.eye(size), np.ones(size)))
    found = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0].clip(min=0.0)
    return np.asarray(found / found.sum(), np.float64)


def ageing(bins: int, ages: int) -> NDArray[np.bool_]:
    """Steps that are possible between states ``bin * ages + age``: to be a slot older, or to enter another bin."""
    kind, age = np.divmod(np.arange(bins * ages), ages)
    same = kind[:, None] == kind[None, :]
    older = np.minimum(age + 1, ages - 1)[:, None] == age[None, :]
    return np.asarray(np.where(same, older, age[None, :] == 0))


def chain_of(leave: float | Floats, goes: Floats) -> Floats:
    """Chain of a probability to leave a bin and where it goes then: ``(1 - alpha) I + alpha f`` (Eq. 1).

    The diagonal of `goes`, shape (bins, bins), is ignored; its rows are normalised.
    """
    bins = len(goes)
    if bins == 1:
        return np.ones((1, 1))
    off = np.where(np.eye(bins, dtype=bool), 0.0, goes)
    if not (off.sum(axis=1) > 0).all():
        raise InputError("from each bin there must be a way to another one")
    alpha = np.broadcast_to(np.asarray(leave, np.float64), (bins,))[:, None]
    return np.asarray((1 - alpha) * np.eye(bins) + alpha * off / off.sum(axis=1, keepdims=True), np.float64)


def units_left(core_hours: float, unit: float) -> int:
    """Work in units of `unit` core-hours, rounded up, except for what rounding of numbers adds (§3.5)."""
    if not 0 <= core_hours < np.inf or not unit > 0:
        raise InputError(f"{core_hours:g} core-hours in units of {unit:g}: must be 0 or more, and more than 0")
    return int(np.ceil(core_hours / unit - 1e-9))


def work_units(cores: list[int], slots_per_hour: int) -> tuple[list[int], float]:
    """Speed of classes in units a slot, and core-hours of a unit: the greatest common divisor (§2.2)."""
    if not cores or min(cores) < 1:
        raise InputError("each class needs at least one core")
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
