"""The strategy table (RTBA): the next action and the expected cost of every job within its bounds.

See docs/specs/spot.md, sections 3.2 to 3.4. The table is indexed by the slots left, so it covers all deadlines and
sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import AT_START_OF_HOUR
from goffish.errors import InputError
from goffish.scheduling.spot import table_kernels as kernels
from goffish.scheduling.spot._build import Actions, Choice, actions_of, resume
from goffish.scheduling.spot.charges import factors
from goffish.scheduling.spot.job import (
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
from goffish.scheduling.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

#: Maximum bytes of values during a build.
MOST_BYTES = 16 * 2**30


@dataclass(frozen=True, eq=False)
class Table:
    """A strategy for all jobs of at most `work` units with at most `slots` slots left.

    Attributes
    ----------
    market : Market
    work, slots : int
    values : float64, shape (slots + 1, joint prices, work + 1)
        Expected cost without a held machine; infinite if the deadline cannot be guaranteed.
    idle_actions : uint8, shape (slots + 1, joint prices, work + 1)
        0 is to wait, ``j + 1`` to request choice `j`, and the last one the local machine.
    actions : Actions
        With a held machine: continue, save, or release it; during a checkpoint: continue, or cancel.
    last : tuple of float64 arrays
        For each choice: values of running, checkpointing and starting machines with `slots` left, for extensions.
    """

    market: Market
    work: int
    slots: int
    values: Floats
    idle_actions: Bytes
    actions: Actions
    last: tuple[tuple[Floats, Floats, Floats], ...]

    @property
    def bytes(self) -> int:
        """Bytes of the values and actions, without the layer for extensions."""
        parts = (self.values, self.idle_actions, *self.actions)
        return sum(part.nbytes for part in parts)

    def _check(self, work: int, slots: int) -> None:
        if not 0 <= work <= self.work or not 0 <= slots <= self.slots:
            unit, hour = self.market.unit, self.market.slots_per_hour
            raise InputError(
                f"{work * unit:.4g} core-hours within {slots / hour:.4g} h: the table covers up to "
                f"{self.work * unit:.4g} core-hours and {self.slots / hour:.4g} h"
            )

    def _weights(self, prices: Sequence[float] | None, ages: Sequence[int] | None) -> Floats:
        market = self.market
        if prices is None:
            return market.stationary
        now = self._prices(prices)
        if ages is None and market.aged:
            bins = np.array([one.bins_of(now[at]) for at, one in enumerate(market.classes)], np.int64)
            within = (market.joint_bins == bins[:, None]).all(axis=0)
            weights = np.where(within, market.stationary, 0.0)
            # Bins that the chains never reach: all ages are equally likely.
            found = weights if weights.sum() > 0 else within.astype(np.float64)
            return np.asarray(found / found.sum(), np.float64)
        found = np.zeros(market.joint_states)
        found[market.joint(now, None if ages is None else np.asarray(ages, np.int64))] = 1.0
        return found

    def _prices(self, prices: Sequence[float]) -> Floats:
        found = np.asarray(prices, np.float64)
        if found.shape != (len(self.market.classes),):
            raise InputError(
                f"prices: expected {len(self.market.classes)}, one for each machine type, found {found.size}"
            )
        return found

    def expected_cost(
        self, work: int, slots: int, prices: Sequence[float] | None = None, ages: Sequence[int] | None = None
    ) -> float:
        """Expected cost of a job of `work` units with `slots` left; infinite if its deadline cannot be guaranteed.

        `prices`: current price of each machine type; default: the long-run average. `ages`: the slots for which each
        has been in its bin, if the chains depend on it; default: averaged likewise.
        """
        self._check(work, slots)
        return float(self.curve(work, prices, ages)[slots])

    def curve(self, work: int, prices: Sequence[float] | None = None, ages: Sequence[int] | None = None) -> Floats:
        """Expected cost by the slots left, shape (slots + 1,)."""
        self._check(work, 0)
        weights = self._weights(prices, ages)
        found = self.values[:, :, work]
        # Whether a deadline can be kept does not depend on the prices.
        return np.where(np.isfinite(found[:, 0]), np.where(np.isfinite(found), found, 0.0) @ weights, np.inf)

    def min_deadline(
        self, work: int, budget: float, prices: Sequence[float] | None = None, ages: Sequence[int] | None = None
    ) -> int | None:
        """The fewest slots with an expected cost within a budget; `None` if there are none."""
        within = np.flatnonzero(self.curve(work, prices, ages) <= budget + kernels.TIE)
        return int(within[0]) if within.size else None

    def cliffs(
        self, work: int, prices: Sequence[float] | None = None, ages: Sequence[int] | None = None
    ) -> list[tuple[int, float]]:
        """Deadlines with the largest saving by a slot: ``(slots, 1 - Q(slots) / Q(slots - 1))``, largest first."""
        curve = self.curve(work, prices, ages)
        before, after = curve[:-1], curve[1:]
        known = np.isfinite(before) & (before > 0)
        drop = np.where(known, 1.0 - np.divide(after, before, out=np.ones_like(after), where=known), 0.0)
        order = np.lexsort((np.arange(drop.size), -drop))
        return [(int(at) + 1, float(drop[at])) for at in order if drop[at] > 0]

    def decide(self, left: int, status: Status, prices: Sequence[float], ages: Sequence[int] | None = None) -> int:
        """Return the action of `job` with `left` slots until the deadline.

        `prices`: current price of each machine type; `ages`: the slots for which each has been in its bin, required if
        the market is `aged`. Zero-time actions are followed by another look-up. During a start-up, the action is to
        wait, also beyond its slots (O-9).

        Raises
        ------
        InputError
            If ages are required but missing.
        """
        state = status.state
        if state in (MIGRATING, LOCAL_STATE):
            return PROCESS if state == LOCAL_STATE else WAIT
        market, joint = self.market, self.joint(prices, ages)
        if state == QUIESCED:
            found = int(self.idle_actions[left, joint, status.saved])
            if found == 0:
                return WAIT
            return START + found - 1 if found <= market.choices else MOVE
        if state == RUNNING:
            return (PROCESS, CHECKPOINT, RELEASE)[self._code(0, left, joint, status)]
        if state == CHECKPOINTING:
            return QUIT if self._code(status.left, left, joint, status) else WAIT
        return WAIT

    def joint(self, prices: Sequence[float], ages: Sequence[int] | None = None) -> int:
        """Return the joint state of prices and ages, as for `decide`."""
        market, found = self.market, 0
        if market.aged:
            known = None if ages is None else np.asarray(ages, np.int64)
            return int(market.joint(self._prices(prices), known))
        for one, price in zip(self._bins, prices, strict=True):
            found = found * one[0] + int(one[1].searchsorted(price))
        return found

    @cached_property
    def _bins(self) -> list[tuple[int, Floats]]:
        return [(c.bins, c.edges) for c in self.market.classes]

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """First place and hour states of each choice, and its type if its hour states include a price, or -1."""
        rules, bases, states = self.market.rules, self.actions.base.tolist(), self.actions.states.tolist()
        locks = rules.spot & (self.market.spot.priced == AT_START_OF_HOUR)
        return list(zip(bases[:-1], states, np.where(locks, rules.kind, -1).tolist(), strict=True))

    def _code(self, layer: int, left: int, joint: int, status: Status) -> int:
        return self.code(layer, left, joint, status.choice, status.work, status.saved, self.hour_of(status))

    def hour_of(self, status: Status) -> int:
        """Return the hour state of a held machine, which includes the bin of a locked price (`charges_of`)."""
        hour, (_, _, locked) = status.hour, self._places[status.choice]
        if hour and locked >= 0:
            size, edges = self._bins[locked]
            hour = 1 + (hour - 1) * size + int(edges.searchsorted(status.locked))
        return hour

    def code(self, layer: int, left: int, joint: int, choice: int, work: int, saved: int, hour: int) -> int:
        """Return the action with a held machine: 0 to 2 are continue, save and release; in a checkpoint, 1 is cancel.

        `layer`: 0, or the remaining slots of a checkpoint; `joint`: joint state of the prices; `hour`: `hour_of`.
        """
        actions, (base, states, _) = self.actions, self._places[choice]
        row = (layer * self.market.joint_states + joint) * self.work + saved - 1
        at = base + row * states + hour
        begin, end = actions.first[at : at + 2].tolist()
        run = int(actions.since[begin:end].searchsorted(left, "right"))
        if run == 0:
            return 0
        word, place = divmod(work - 1, kernels.IN_WORD)
        return int(actions.words[actions.number[begin + run - 1], word]) >> (2 * place) & 3


def build_table(
    market: Market,
    work: int,
    slots: int,
    *,
    threads: int = 2,
    extends: Table | None = None,
    progress: Callable[[int], object] | None = None,
    most_bytes: int = MOST_BYTES,
) -> Table:
    """Build the table (BUILD): finite-horizon dynamic programming, slot by slot from the deadline backwards.

    Parameters
    ----------
    market : Market
    work : int
        Units of the largest job.
    slots : int
        Longest time to a deadline, in slots.
    threads : int
        Number of threads; results do not depend on it.
    extends : Table, optional
        A table of the same market and work with fewer slots; only the remaining slots are computed.
    progress : callable, optional
        Called after each slot with the number of completed slots.
    most_bytes : int
        Maximum bytes of values during the build.

    Raises
    ------
    InputError
        If bounds are below 1, the values of a slot would take more than `most_bytes`, or `extends` does not fit.
    """
    if work < 1 or slots < 1 or threads < 1:
        raise InputError(f"work = {work}, slots = {slots}, threads = {threads}: all must be at least 1")
    if extends is not None and (
        extends.work != work or extends.slots > slots or extends.market.fingerprint() != market.fingerprint()
    ):
        raise InputError("extends: requires the same market and work, and fewer slots")
    joint, penalty = market.joint_states, market.late_penalty
    hours = sum(_hour_states(market, j) for j in range(market.choices))
    total = 8 * joint * (work * (work + 1) // 2 * hours * market.longest_checkpoint + (slots + 1) * (work + 1))
    if total > most_bytes:
        raise InputError(
            f"the table requires {total / 2**30:.1f} GB to build; use longer slots, larger units or fewer bids"
        )
    parts = [Choice(market, j, work, None if extends is None else extends.last[j]) for j in range(market.choices)]
    values = np.full((slots + 1, joint, work + 1), np.inf)
    values[0] = np.inf if penalty is None else penalty * np.arange(work + 1.0)
    values[0, :, 0] = 0.0
    idle_actions = np.zeros((slots + 1, joint, work + 1), np.uint8)
    first = 1
    if extends is not None:
        first = extends.slots + 1
        values[:first], idle_actions[:first] = extends.values, extends.idle_actions
        resume(parts, extends.actions)
    everything, sizes = factors(market)
    covered = np.stack([part.charges.covered for part in parts])
    waiting, spare = np.empty_like(values[0]), np.empty_like(values[0])
    with ThreadPoolExecutor(threads) as pool:
        for left in range(first, slots + 1):
            before, now = values[left - 1], values[left]
            feasible = np.isfinite(before[0])
            list(pool.map(lambda part, b=before, f=feasible: part.expect(b, f), parts))
            kernels.expect(before, waiting, spare, everything, sizes)
            ventures = np.stack([part.ventures[-1] for part in parts])
            kernels.choose(waiting, ventures, covered, _local_costs(market, work, left), now, idle_actions[left])
            list(pool.map(lambda part, t=left, v=now, f=feasible: part.decide(t, v, f), parts))
            if progress is not None:
                progress(left)
    last = tuple((part.running, part.saving, part.starting) for part in parts)
    return Table(market, work, slots, values, idle_actions, actions_of(parts), last)


def _hour_states(market: Market, choice: int) -> int:
    """Hour states of a choice, as in `charges_of`."""
    if not market.rules.spot[choice]:
        return market.on_demand.states
    if market.spot.priced != AT_START_OF_HOUR:
        return market.spot.states
    return 1 + (market.spot.states - 1) * market.classes[int(market.rules.kind[choice])].bins


def _local_costs(market: Market, work: int, left: int) -> Floats:
    """Cost of moving to the local machine with these slots left, by work."""
    local = market.local
    if local is None:
        return np.full(work + 1, np.inf)
    late = np.maximum(0, np.arange(work + 1) - local.speed * max(0, left - local.move_slots))
    if market.late_penalty is None:
        return np.where(late == 0, local.move_cost, np.inf)
    return np.asarray(local.move_cost + market.late_penalty * late, np.float64)
