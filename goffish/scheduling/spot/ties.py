"""Options that cost nearly the same: start and continue rather than wait. See docs/specs/spot.md, section 8.7."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from goffish.scheduling.spot.charges import Charges, charges_of, factors
from goffish.scheduling.spot.job import CHECKPOINT, PROCESS, QUIESCED, RELEASE, RUNNING, START, WAIT, Status
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.table import Table

Floats = NDArray[np.float64]

#: Share of the expected cost below which options are equal. Expected costs are off by far more on unseen prices
#: (section 7.3), and a job that waits for less spends the slack that late starts of machines need.
NEAR = 0.01
#: Codes of `Table.code`, and of a checkpoint that goes on.
_RUN, _SAVE, _LEAVE, _ON = 0, 1, 2, 3

_charges = lru_cache(64)(charges_of)


def prompt(
    table: Table,
    left: int,
    status: Status,
    prices: Sequence[float],
    ages: Sequence[int] | None = None,
    *,
    most: float | None = None,
) -> tuple[int, float]:
    """Return the action of a table, or one that starts a spot machine or keeps one and costs nearly as little.

    Parameters
    ----------
    table : Table
    left : int
        Slots until the deadline.
    status : Status
    prices : sequence of float
        Current price of each machine type.
    ages : sequence of int, optional
        As for `Table.decide`.
    most : float, optional
        Expected cost that the action may add, in dollars; default: `NEAR` of the expected cost.

    Returns
    -------
    (int, float)
        The action, and the expected cost that it adds to that of the table's action.
    """
    action = table.decide(left, status, prices, ages)
    waits, releases = (status.state, action) == (QUIESCED, WAIT), (status.state, action) == (RUNNING, RELEASE)
    if not (waits or releases) or not 0 < left <= table.slots:
        return action, 0.0
    market, joint = table.market, table.joint(prices, ages)
    least = float(table.values[left, joint, status.saved])
    spot = range(market.rules.spot.sum()) if waits else ()
    options = [START + j for j in spot if _charges(market, j).covered[joint]]
    if releases:
        hour = table.hour_of(status)
        least += float(_charges(market, status.choice).release[joint, hour])
        options = [PROCESS, CHECKPOINT]
    if not np.isfinite(least):
        return action, 0.0
    spare = NEAR * least if most is None else most
    lower, ratio = _lowered(market, prices)
    other = table.decide(left, status, lower, ages) if ratio > 1.0 else action
    more = (ratio - 1.0) * least
    if other in options and more <= spare:
        return other, more
    limit = least + spare
    found = [(cost_of(table, left, status, joint, option, limit), option) for option in options]
    cost, option = min(found, default=(np.inf, action))
    return (option, max(0.0, cost - least)) if cost <= limit else (action, 0.0)


def _lowered(market: Market, prices: Sequence[float]) -> tuple[list[float], float]:
    """Return the prices, those hardly above the mean of the bin below as in that bin, and the largest ratio to them.

    Costs are those of the mean price of a bin, which can be several percent more than a price at its lower edge.
    """
    found, ratio = [float(price) for price in prices], 1.0
    for at, one in enumerate(market.classes):
        below = int(one.edges.searchsorted(prices[at])) - 1
        if below >= 0 and found[at] <= (1.0 + NEAR) * one.levels[below]:
            ratio = max(ratio, found[at] / float(one.levels[below]))
            found[at] = float(min(one.levels[below], one.edges[below]))
    return found, ratio


def cost_of(table: Table, left: int, status: Status, joint: int, action: int, most: float = np.inf) -> float:
    """Return the expected cost of an action that takes the slot, if the job follows the table afterwards.

    Parameters
    ----------
    table : Table
    left : int
    status : Status
        Without a machine, or running.
    joint : int
        Joint state of the prices.
    action : int
        A request for a machine, or `PROCESS` or `CHECKPOINT`.
    most : float
        Costs above it are returned as infinity, without further computation.

    Notes
    -----
    The distribution of the job's states is computed slot by slot, until its machine is interrupted or released; the
    rest of the cost is a value of the table. Infinite if the deadline is not guaranteed.
    """
    starts = status.state == QUIESCED
    walk = _Walk(table, action - START if starts else status.choice, most)
    now = np.zeros(table.market.joint_states)
    now[joint] = 1.0
    forced: int | None = None
    if starts:
        hour = int(walk.charges.hours[0, joint])
        for k in reversed(range(table.market.startup_slots)):
            if left < 1 or not walk.safe(left, status.saved):
                return np.inf
            walk.cost += float(now @ walk.charges.startup[k])
            walk.lose(now, left, status.saved)
            now, left = walk.kept(now), left - 1
        masses = {(0, status.saved, status.saved, hour): now}
    else:
        masses = {(0, status.work, status.saved, table.hour_of(status)): now}
        forced = _RUN if action == PROCESS else _SAVE
    while masses and left > 0 and walk.cost <= most:
        masses = walk.slot(masses, left, forced)
        left, forced = left - 1, None
    penalty = table.market.late_penalty
    for (_, work, _, hour), part in masses.items():
        walk.cost += np.inf if penalty is None else float(part @ (penalty * work + walk.charges.release[:, hour]))
    return walk.cost if walk.cost <= most else np.inf


class _Walk:
    """Slots of a job on one machine: the cost so far, and the distribution of its states over the joint prices."""

    def __init__(self, table: Table, choice: int, most: float) -> None:
        self.table, self.choice, self.most, self.cost = table, choice, most, 0.0
        self.market: Market = table.market
        self.charges: Charges = _charges(self.market, choice)
        self.spot, self.speed = bool(self.market.rules.spot[choice]), int(self.market.rules.speed[choice])
        self.sizes = factors(self.market)[1].tolist()

    def safe(self, left: int, saved: int) -> bool:
        """Whether the deadline is kept if the machine is lost in this slot."""
        return not self.spot or bool(np.isfinite(self.table.values[left - 1, 0, saved]))

    def kept(self, now: Floats) -> Floats:
        return self._step(now, self.charges.survive)

    def lose(self, now: Floats, left: int, saved: int) -> None:
        """Add the cost of interruptions in a slot: the value of a job without a machine."""
        if self.spot:
            gone = self._step(now, self.charges.lose)
            hit = gone > 0
            self.cost += float(gone[hit] @ self.table.values[left - 1, hit, saved])

    def _step(self, now: Floats, chains: Floats) -> Floats:
        found = now.reshape(self.sizes)
        for at, size in enumerate(self.sizes):
            found = np.moveaxis(np.tensordot(found, chains[at, :size, :size], (at, 0)), -1, at)
        return np.ascontiguousarray(found).ravel()

    def slot(
        self, masses: dict[tuple[int, int, int, int], Floats], left: int, forced: int | None
    ) -> dict[tuple[int, int, int, int], Floats]:
        """One slot; a state is (slots to go of a checkpoint, work, saved work, hour state)."""
        table, found = self.table, dict[tuple[int, int, int, int], Floats]()
        for state, now in masses.items():
            to_go, work, saved, hour = state
            actions = np.full(now.size, -1)
            for joint in np.flatnonzero(now).tolist():
                code = forced
                if code is None and to_go and not table.code(to_go, left, joint, self.choice, work, saved, hour):
                    code = _ON
                actions[joint] = table.code(0, left, joint, self.choice, work, saved, hour) if code is None else code
            leave = actions == _LEAVE
            self.cost += float(now[leave] @ (self.charges.release[leave, hour] + table.values[left, leave, saved]))
            for action in (_RUN, _SAVE, _ON):
                if (actions == action).any():
                    self._take(found, np.where(actions == action, now, 0.0), left, state, action)
        return found

    def _take(
        self, found: dict[tuple[int, int, int, int], Floats], now: Floats, left: int,
        state: tuple[int, int, int, int], action: int,
    ) -> None:  # fmt: skip
        to_go, work, saved, hour = state
        if not self.safe(left, saved):
            self.cost = np.inf
            return
        self.lose(now, left, work if self.market.notice else saved)
        if action == _RUN and work <= self.speed:
            self.cost += float(now @ self.charges.finish[:, hour])
            return
        self.cost += float(now @ self.charges.charge[:, hour])
        saves = self.market.saves
        further = to_go - 1 if action == _ON else int(saves[min(work, saves.size) - 1]) - 1
        then = (0, work - self.speed, saved) if action == _RUN else (further, work, saved if further else work)
        follow = self.charges.follow[:, hour]
        for after in np.unique(follow[now > 0]).tolist():
            kept, key = self.kept(np.where(follow == after, now, 0.0)), (*then, after)
            if kept.any():
                found[key] = found[key] + kept if key in found else kept
