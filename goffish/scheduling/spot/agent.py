"""A running job that observes prices, and fits its market again when they no longer follow it.

See docs/specs/spot.md, section 8.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot.estimate import FLOOR
from goffish.scheduling.spot.job import Status
from goffish.scheduling.spot.model import SpotClass
from goffish.scheduling.spot.table import Table, build_table
from goffish.scheduling.spot.ties import NEAR, prompt
from goffish.scheduling.spot.trials import refitted

_log = logging.getLogger(__name__)
Floats = NDArray[np.float64]
#: Evidence that is an alarm: false ones are at least this many slots apart on average.
ALARM = 10_000.0
#: Observations that the alternative starts with, and share of them that remains after a slot.
STRENGTH, KEPT = 5.0, 0.99
#: Half-life of observations after an alarm, in seconds.
AFTER_ALARM_S = 86_400.0
#: Slots of prices that determine ages.
_LAST = 64


class Evidence:
    """Evidence that the price of a machine type does not follow its chain.

    Parameters
    ----------
    one : SpotClass
    before : sequence of float
        Earlier prices at the starts of slots, which determine its age; they are no evidence.

    Attributes
    ----------
    value : float
        The evidence; 1 is none.
    age : int
        Slots for which the price has been in its bin, up to the highest age of the chain.

    Notes
    -----
    The likelihood ratio of an alternative that learns from the observed slots, to the chain, accumulated from the slot
    where it is largest (CUSUM). It is an e-process: if prices follow the chain, the mean number of slots until it
    exceeds `x` is at least `x` (Shin, Ramdas and Rinaldo, "E-detectors", 2024), whatever the alternative.
    """

    def __init__(self, one: SpotClass, before: Sequence[float] = ()) -> None:
        self._one = one
        share = one.chain @ np.repeat(np.eye(one.bins), one.ages, axis=0)
        self._likely = (1.0 - FLOOR) * share + FLOOR / one.bins
        self._counts = np.zeros((one.bins, one.bins))
        self._bin, self.age = -1, 0
        self.value = 1.0
        for price in before:
            self._enter(int(one.edges.searchsorted(price)))

    def observe(self, price: float) -> float:
        """Add the price at the start of a slot; return the evidence."""
        found = int(self._one.edges.searchsorted(price))
        if self._bin >= 0:
            usual = self._likely[self._bin * self._one.ages + self.age, found]
            counts = self._counts[self._bin]
            learned = (STRENGTH * usual + counts[found]) / (STRENGTH + counts.sum())
            self.value = max(1.0, self.value) * float(learned / usual)
            self._counts *= KEPT
            counts[found] += 1.0
        self._enter(found)
        return self.value

    def _enter(self, found: int) -> None:
        self.age = min(self.age + 1, self._one.ages - 1) if found == self._bin else 0
        self._bin = found


def evidence(one: SpotClass, prices: Floats) -> float:
    """Return the largest evidence in prices at the starts of consecutive slots."""
    found = Evidence(one)
    return max((found.observe(float(price)) for price in prices), default=1.0)


class Agent:
    """The table of a running job; a new one is built when prices do not follow the market.

    Parameters
    ----------
    table : Table
        Table for the job.
    history : SlotPrices
        Prices until its start.
    slots : int
        Slots until the deadline.
    alarm : float
        Evidence that leads to a new fit.
    threads : int
        Threads to build a table.

    Notes
    -----
    Deadlines are kept with any table. A new fit gives observations a half-life of a day, so it follows the prices since
    the change. Machines are started and kept rather than waited for as long as that adds at most `ties.NEAR` of the
    cost expected at the start, over the whole job.
    """

    def __init__(
        self, table: Table, history: SlotPrices, slots: int, *, alarm: float = ALARM, threads: int = 1
    ) -> None:
        self.table = table
        self.alarm = alarm
        self.fits = 0
        self._history, self._threads = history, threads
        self._seen: list[Floats] = []
        self._left = slots + 1
        self._spare: float | None = None
        self._restart()

    def decide(self, left: int, status: Status, prices: Sequence[float], ages: Sequence[int] | None = None) -> int:
        """Return the action of `job` with `left` slots until the deadline; ages are determined from observed prices."""
        now = np.asarray(prices, np.float64)
        if left < self._left:
            # Without observations in between, the price is taken to have lasted.
            self._seen += [now] * (self._left - left if self._seen else 1)
            self._left = left
            found = max(one.observe(float(price)) for one, price in zip(self._evidence, now, strict=True))
            if found > self.alarm * len(self._evidence) and left >= 2:
                self._fit(left, max(status.saved, status.work))
        own = [one.age for one in self._evidence]
        if self._spare is None:
            cost = self.table.expected_cost(status.saved, min(left, self.table.slots), prices, own)
            self._spare = NEAR * cost if np.isfinite(cost) else 0.0
        action, more = prompt(self.table, left, status, prices, own, most=self._spare)
        self._spare -= more
        return action

    def _restart(self) -> None:
        recent = np.concatenate((self._history.prices[:-1], *(one[None] for one in self._seen)))[-_LAST:]
        classes = enumerate(self.table.market.classes)
        self._evidence = [Evidence(one, recent[:, at].tolist()) for at, one in classes]

    def _fit(self, left: int, work: int) -> None:
        """Fit the market to all prices so far, and build a table for the rest of the job."""
        seen = np.stack(self._seen)
        prices = np.concatenate((self._history.prices[:-1], seen))
        peaks = np.concatenate((self._history.peaks, np.maximum(seen[:-1], seen[1:])))
        ages = max(one.ages for one in self.table.market.classes)
        market = refitted(self.table.market, SlotPrices(prices, peaks), half_life_s=AFTER_ALARM_S, ages=ages)
        self.table = replace(build_table(market, work, left, threads=self._threads), last=())
        self.fits += 1
        _log.info("prices no longer follow the market; fitted again with %d slots left", left)
        self._restart()
