"""The strategy table (RTBA): what to do next, and what the rest costs, for every job within its bounds.

Specification of RTBA, §3.2 to §3.4. It is indexed by the slots left, so it serves all deadlines and sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.services.spot import _table_kernels as kernels
from goffish.services.spot.billing import AT_START_OF_HOUR
from goffish.services.spot.charges import Charges, chains, charges_of
from goffish.services.spot.job import (
    CHECKPOINT,
    CHECKPOINTING,
    LOCAL_STATE,
    MIGRATING,
    MOVE,
    PROCESS,
    QUIESCED,
    QUIT,
    RELEASE,
    RUNNING,
    START,
    WAIT,
    Status,
)
from goffish.services.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

#: Bytes of actions beyond which a table is refused.
MOST_BYTES = 16 * 2**30


class Layout(NamedTuple):
    """Where the actions of each choice are in the flat arrays: ``[slots left][joint price][row / 4]`` from `offset`."""

    states: Ints
    row_bytes: Ints
    offset: Ints
    saving_offset: Ints


@dataclass(frozen=True, eq=False)
class Table:
    """A strategy for all jobs of at most `work` units with at most `slots` slots left.

    Attributes
    ----------
    market : Market
    work, slots : int
    values : float64, shape (slots + 1, joint prices, work + 1)
        Expected money where no machine is held; infinite where the deadline cannot be kept for certain.
    idle_actions : uint8, shape (slots + 1, joint prices, work + 1)
    running_actions, saving_actions : uint8
        Two bits for each state of running and checkpointing machines, see `Layout`.
    last : tuple of float64 arrays
        For each choice: values of running, checkpointing and starting machines with `slots` left, to build on.
    """

    market: Market
    work: int
    slots: int
    values: Floats
    idle_actions: Bytes
    running_actions: Bytes
    saving_actions: Bytes
    last: tuple[tuple[Floats, Floats, Floats], ...]

    @cached_property
    def layout(self) -> Layout:
        """Of the actions of running and checkpointing machines."""
        return _layout(self.market, [c.shape[1] for c in self._follows], self.work, self.slots)

    @cached_property
    def _follows(self) -> list[Ints]:
        return [charges_of(self.market, j).follow for j in range(self.market.choices)]

    @property
    def bytes(self) -> int:
        """Memory of the values and actions, without the layer that is kept to build on."""
        parts = (self.values, self.idle_actions, self.running_actions, self.saving_actions)
        return sum(part.nbytes for part in parts)

    def _check(self, work: int, slots: int) -> None:
        if not 0 <= work <= self.work or not 0 <= slots <= self.slots:
            raise InputError(
                f"a job of {work} units with {slots} slots: the table ends at {self.work} units and {self.slots} slots"
            )

    def _weights(self, prices: Sequence[float] | None) -> Floats:
        if prices is None:
            return self.market.stationary
        found = np.zeros(self.market.joint_states)
        found[self.market.joint(self._prices(prices))] = 1.0
        return found

    def _prices(self, prices: Sequence[float]) -> Floats:
        found = np.asarray(prices, np.float64)
        if found.shape != (len(self.market.classes),):
            raise InputError(f"{len(self.market.classes)} prices are needed, one for each class, not {found.size}")
        return found

    def expected_cost(self, work: int, slots: int, prices: Sequence[float] | None = None) -> float:
        """Expected money of a job of `work` units with `slots` left; infinite if its deadline cannot be kept.

        `prices`: now, one for each class; default: averaged over the long run.
        """
        self._check(work, slots)
        return float(self.curve(work, prices)[slots])

    def curve(self, work: int, prices: Sequence[float] | None = None) -> Floats:
        """Expected money by the slots left, shape (slots + 1,)."""
        self._check(work, 0)
        weights = self._weights(prices)
        found = self.values[:, :, work]
        # Whether a deadline can be kept does not depend on the prices.
        return np.where(np.isfinite(found[:, 0]), np.where(np.isfinite(found), found, 0.0) @ weights, np.inf)

    def min_deadline(self, work: int, budget: float, prices: Sequence[float] | None = None) -> int | None:
        """The fewest slots in which a job is expected to cost no more than a budget; `None` if none do."""
        within = np.flatnonzero(self.curve(work, prices) <= budget + kernels.TIE)
        return int(within[0]) if within.size else None

    def cliffs(self, work: int, prices: Sequence[float] | None = None) -> list[tuple[int, float]]:
        """Deadlines where one slot more is worth the most: ``(slots, 1 - Q(slots) / Q(slots - 1))``, largest first."""
        curve = self.curve(work, prices)
        before, after = curve[:-1], curve[1:]
        known = np.isfinite(before) & (before > 0)
        drop = np.where(known, 1.0 - np.divide(after, before, out=np.ones_like(after), where=known), 0.0)
        order = np.lexsort((np.arange(drop.size), -drop))
        return [(int(at) + 1, float(drop[at])) for at in order if drop[at] > 0]

    def decide(self, left: int, status: Status, prices: Sequence[float]) -> int:
        """The action of `job` to take now, with `left` slots until the deadline.

        `prices`: now, one for each class. Zero-time actions are followed by another look-up.
        """
        state = status.state
        if state in (MIGRATING, LOCAL_STATE):
            return PROCESS if state == LOCAL_STATE else WAIT
        market = self.market
        joint = 0
        for one, price in zip(self._bins, prices, strict=True):
            joint = joint * one[0] + int(one[1].searchsorted(price))
        if state == QUIESCED:
            found = int(self.idle_actions[left, joint, status.saved])
            if found == 0:
                return WAIT
            return START + found - 1 if found <= market.choices else MOVE
        if state == RUNNING:
            code = self._code(self.running_actions, int(self.layout.offset[status.choice]), left, joint, status)
            return (PROCESS, CHECKPOINT, RELEASE)[code]
        if state == CHECKPOINTING:
            offset = int(self.layout.saving_offset[status.choice])
            step = left * (market.checkpoint_slots - 1) + status.left - 1
            return QUIT if self._code(self.saving_actions, offset, step, joint, status) else WAIT
        return WAIT

    @cached_property
    def _bins(self) -> list[tuple[int, Floats]]:
        return [(c.bins, c.edges) for c in self.market.classes]

    def _code(self, actions: Bytes, offset: int, step: int, joint: int, status: Status) -> int:
        hour, states = status.hour, int(self.layout.states[status.choice])
        if hour and self.market.rules.spot[status.choice] and self.market.spot.priced == AT_START_OF_HOUR:
            size, edges = self._bins[int(self.market.rules.kind[status.choice])]
            hour = 1 + (hour - 1) * size + int(edges.searchsorted(status.locked))
        row = (status.saved * (status.saved - 1) // 2 + status.work - 1) * states + hour
        at = offset + (step * self.market.joint_states + joint) * int(self.layout.row_bytes[status.choice])
        return int(actions[at + (row >> 2)]) >> (2 * (row & 3)) & 3


def _layout(market: Market, states: list[int], work: int, slots: int) -> Layout:
    pairs = work * (work + 1) // 2
    row_bytes = [-(-pairs * n // 4) for n in states]
    sizes = np.array([(slots + 1) * market.joint_states * b for b in row_bytes], np.int64)
    offset = np.append(0, np.cumsum(sizes))
    return Layout(
        np.array(states, np.int64), np.array(row_bytes, np.int64), offset, offset * (market.checkpoint_slots - 1)
    )


class _Choice:
    """What is kept of one choice from slot to slot while a table is built."""

    def __init__(self, market: Market, number: int, work: int, last: tuple[Floats, Floats, Floats] | None) -> None:
        self.charges: Charges = charges_of(market, number)
        self.spot = bool(market.rules.spot[number])
        self.speed = int(market.rules.speed[number])
        self.notice = market.notice
        self.sizes = market.sizes
        joint, states = market.joint_states, self.charges.states
        pairs = work * (work + 1) // 2
        rows = pairs * states
        self.running = np.full((joint, rows), np.inf)
        self.saving = np.full((market.checkpoint_slots - 1, joint, rows), np.inf)
        self.starting = np.full((market.startup_slots - 1, joint, work + 1), np.inf)
        if last is not None:
            self.running[:], self.saving[:], self.starting[:] = last
        self.expected, self._spare = np.empty_like(self.running), np.empty_like(self.running)
        self.expected_saving = np.empty_like(self.saving)
        self.lost, self._little = np.empty((joint, work + 1)), np.empty((joint, work + 1))
        self.ventures = np.empty((market.startup_slots, joint, work + 1))

    def expect(self, idle: Floats, feasible: NDArray[np.bool_]) -> None:
        """Expectations of what the last slot left; the value of asking for this machine is `ventures[-1]`."""
        charges = self.charges
        kernels.expect(self.running, self.expected, self._spare, charges.survive, self.sizes)
        for k in range(len(self.saving)):
            kernels.expect(self.saving[k], self.expected_saving[k], self._spare, charges.survive, self.sizes)
        if self.spot:
            # What may be lost only counts where the guard allows it to be: there, no value is infinite.
            kernels.expect(np.where(feasible, idle, 0.0), self.lost, self._little, charges.lose, self.sizes)
        else:
            self.lost[:] = 0.0
        starting = np.empty_like(self.starting)
        for k in range(len(starting)):
            kernels.expect(self.starting[k], starting[k], self._little, charges.survive, self.sizes)
        kernels.entered(self.expected, starting, self.lost, feasible, self.spot, charges.states, self.ventures)
        self.starting[:] = self.ventures[:-1]

    def decide(self, idle: Floats, feasible: NDArray[np.bool_], actions: Bytes, saving_actions: Bytes) -> None:
        """Values and actions of this slot."""
        charges = self.charges
        kernels.decide(
            self.expected, self.expected_saving, self.lost, idle, feasible, charges.follow, charges.charge,
            charges.finish, charges.release, self.speed, self.spot, self.notice, self.running, self.saving,
            actions, saving_actions,
        )  # fmt: skip


def build_table(market: Market, work: int, slots: int, *, threads: int = 2, extends: Table | None = None) -> Table:
    """Build the table (BUILD): finite-horizon dynamic programming, slot by slot from the deadline backwards.

    Parameters
    ----------
    market : Market
    work : int
        Units of the largest job.
    slots : int
        Longest time to a deadline.
    threads : int
        Results do not depend on it.
    extends : Table, optional
        A table of the same market and work with fewer slots; only the rest is computed.

    Raises
    ------
    InputError
        If bounds are below 1, the table would take more than `MOST_BYTES`, or `extends` does not fit.
    """
    if work < 1 or slots < 1 or threads < 1:
        raise InputError(f"work = {work}, slots = {slots}, threads = {threads}: all must be at least 1")
    if extends is not None and (
        extends.work != work or extends.slots > slots or extends.market.fingerprint() != market.fingerprint()
    ):
        raise InputError("a table can only be extended to more slots, for the same market and work")
    parts = [_Choice(market, j, work, None if extends is None else extends.last[j]) for j in range(market.choices)]
    layout = _layout(market, [part.charges.states for part in parts], work, slots)
    total = int(layout.offset[-1]) * market.checkpoint_slots
    if total > MOST_BYTES:
        raise InputError(f"the table would take {total / 2**30:.1f} GB; take longer slots, or fewer bids")
    joint = market.joint_states
    values = np.full((slots + 1, joint, work + 1), np.inf)
    values[0, :, 0] = 0.0
    idle_actions = np.zeros((slots + 1, joint, work + 1), np.uint8)
    running = np.zeros(int(layout.offset[-1]), np.uint8)
    saving = np.zeros(int(layout.saving_offset[-1]), np.uint8)
    views = [_views(running, saving, layout, market, slots, j) for j in range(market.choices)]
    first = 1
    if extends is not None:
        first = extends.slots + 1
        values[:first], idle_actions[:first] = extends.values, extends.idle_actions
        for j, mine in enumerate(views):
            old = _views(extends.running_actions, extends.saving_actions, extends.layout, market, extends.slots, j)
            mine[0][:first], mine[1][:first] = old
    everything = chains(market)
    covered = np.stack([part.charges.covered for part in parts])
    with ThreadPoolExecutor(threads) as pool:
        for left in range(first, slots + 1):
            before = values[left - 1]
            feasible = np.isfinite(before[0])
            list(pool.map(lambda part, b=before, f=feasible: part.expect(b, f), parts))
            waiting, spare = np.empty_like(before), np.empty_like(before)
            kernels.expect(before, waiting, spare, everything, market.sizes)
            ventures = np.stack([part.ventures[-1] for part in parts])
            kernels.choose(
                waiting, ventures, covered, _local_costs(market, work, left), values[left], idle_actions[left]
            )

            def settle(j: int, left: int = left, feasible: Any = feasible) -> None:
                parts[j].decide(values[left], feasible, views[j][0][left], views[j][1][left])

            list(pool.map(settle, range(market.choices)))
    last = tuple((part.running, part.saving, part.starting) for part in parts)
    return Table(market, work, slots, values, idle_actions, running, saving, last)


def _views(running: Bytes, saving: Bytes, layout: Layout, market: Market, slots: int, j: int) -> tuple[Bytes, Bytes]:
    """Actions of a choice by slots left, and of its checkpoints by slots left and slots to go."""
    joint, width = market.joint_states, int(layout.row_bytes[j])
    mine = running[layout.offset[j] : layout.offset[j + 1]].reshape(slots + 1, joint, width)
    longer = market.checkpoint_slots - 1
    span = saving[layout.saving_offset[j] : layout.saving_offset[j + 1]]
    return mine, span.reshape(slots + 1, longer, joint, width)


def _local_costs(market: Market, work: int, left: int) -> Floats:
    """Of going to the local machine with so many slots left, by work."""
    if market.local is None:
        return np.full(work + 1, np.inf)
    slots = -(-np.arange(work + 1) // market.local.speed)
    return np.where(slots <= left - market.local.move_slots, market.local.move_cost, np.inf)
