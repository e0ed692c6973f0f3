"""Spot markets of the server, and advice for jobs on spot machines."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.v1 import catalog_pb2, planning_pb2

if TYPE_CHECKING:
    from goffish.cloud.prices import SlotPrices
    from goffish.scheduling.spot.fitting import Fitted
    from goffish.scheduling.spot.job import Status
    from goffish.scheduling.spot.model import Market
    from goffish.scheduling.spot.table import Table
    from goffish.scheduling.spot.trials import Trials

_log = logging.getLogger(__name__)
#: Cached markets, and limits of strategy tables. A value (`sizes.values_of_slot`) takes about 6 nanoseconds and 0.08
#: bytes to build: the largest table takes two minutes and 1.6 GB.
_MARKETS, _MOST_UNITS, _MOST_SLOTS, _MOST_VALUES = 8, 1500, 3000, 20_000_000_000
#: Largest table with trials, which build two more.
_MOST_TRIED = _MOST_VALUES // 3
_MOST_HOURS = 1e6


class Markets:
    """Spot markets in a folder, written by ``goffish spot fit``; named by their files.

    Parameters
    ----------
    folder : Path, optional
        Folder of market files.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._fitted = lru_cache(_MARKETS)(self._open)

    @property
    def names(self) -> list[str]:
        """Names of the markets."""
        return [] if self._folder is None else sorted(path.stem for path in self._folder.glob("*.json"))

    def _open(self, name: str) -> Fitted:
        from goffish.scheduling.spot.fitting import read_fitted

        assert self._folder is not None
        return read_fitted(str(self._folder / f"{name}.json"))

    def prepare(self) -> None:
        """Load libraries, compiled functions and prices before the first request.

        Otherwise the first request would delay all others. Invalid markets are logged.
        """
        from goffish.scheduling.spot.advice import running
        from goffish.scheduling.spot.fitting import prices_of
        from goffish.scheduling.spot.job import RELEASE, advance

        for name in self.names[:_MARKETS]:
            try:
                fitted = self._fitted(name)
                prices, _ = prices_of(fitted, {})
            except InputError as error:
                _log.warning("market %s: %s", name, error)
            else:
                status = running(fitted.market, 1, 1, fitted.market.classes[0].name, None, 0.0)
                advance(fitted.market, status, RELEASE, prices, prices)

    def messages(self) -> list[catalog_pb2.Market]:
        """Return all markets as messages."""
        found = []
        for name in self.names:
            fitted = self._fitted(name)
            made = catalog_pb2.Market(
                name=name, estimator=fitted.estimator, unit_core_hours=fitted.market.unit, slot_s=fitted.slot_s
            )
            for one in fitted.market.classes:
                shown = made.classes.add(name=one.name, speed=one.speed, on_demand_per_hour=one.on_demand)
                if one.by_availability:
                    shown.spot_price_per_hour = float(one.levels[0])
                else:
                    shown.bids.extend(one.bids.tolist())
            found.append(made)
        return found

    def read(self, request: planning_pb2.AdviseSpotRequest) -> Asked:
        """Read and check a request for advice.

        Raises
        ------
        InputError
        """
        from goffish.scheduling.spot.advice import check_deadline
        from goffish.scheduling.spot.fitting import doubts, prices_of
        from goffish.scheduling.spot.job import slots_left, submitted

        if request.market not in self.names:
            known = ", ".join(self.names) or "none (goffish serve --markets)"
            raise InputError(f"market: unknown {request.market[:80]!r}; markets: {known}")
        for field in ("core_hours", "hours"):
            if not 0 < getattr(request, field) <= _MOST_HOURS:
                accepted = f"must be more than 0 and at most {_MOST_HOURS:,.0f}"
                raise InputError(f"{field}: {getattr(request, field):g}; {accepted}")
        fitted = self._fitted(request.market)
        market = fitted.market
        work = market.units(request.core_hours)
        status = submitted(work)
        if request.HasField("running"):
            job = request.running
            if not 0 <= job.saved_core_hours <= _MOST_HOURS:
                accepted = f"must be 0 to {_MOST_HOURS:,.0f}"
                raise InputError(f"running.saved_core_hours: {job.saved_core_hours:g}; {accepted}")
            saved = market.units(job.saved_core_hours)
            if saved < work:
                accepted = f"must be at least core_hours, {request.core_hours:g}"
                what = "the work from the last checkpoint, or from the start of a job without one"
                raise InputError(f"running.saved_core_hours: {job.saved_core_hours:g}; {accepted}: {what}")
            status = _running(market, work, saved, job)
        slots = slots_left(request.hours * 3600.0, 0.0, fitted.slot_s, 0)
        if status.saved > _MOST_UNITS:
            field = "core_hours" if work > _MOST_UNITS else "running.saved_core_hours"
            raise InputError(f"{field}: at most {_MOST_UNITS * market.unit:g} are supported in this market")
        try:
            check_deadline(market, status, slots, hours=request.hours)
        except InputError as error:
            raise InputError(f"hours: {error}") from None
        units = max(work, status.saved, 1)
        most = _most_slots(market, units)
        if slots > most:
            least = market.least_slots(units)
            if most < least:
                raise InputError(_too_large(request, market))
            hours = most * fitted.slot_s / 3600
            limit = f"at most {hours:.4g} are supported for {request.core_hours:g} core-hours in this market"
            raise InputError(f"hours: {limit}")
        prices, ages = prices_of(fitted, dict(request.prices), dict(request.available))
        return Asked((request.market, status.saved, slots), fitted, status, prices, ages, doubts(fitted, prices))


def _running(market: Market, work: int, saved: int, job: planning_pb2.RunningJob) -> Status:
    """Return the status of a running job; errors name the field."""
    from goffish.scheduling.spot.advice import running

    name, names = getattr(job, "class"), [one.name for one in market.classes]
    if name not in names:
        raise InputError(f"running.class: unknown machine type {name[:80]!r}; accepted: {', '.join(names)}")
    if not 0 <= job.used_s <= 3600:
        raise InputError(f"running.used_s: {job.used_s:g}; must be 0 to 3600")
    bid = job.bid if job.HasField("bid") else math.inf if job.spot else None
    try:
        return running(market, work, saved, name, bid, job.used_s)
    except InputError as error:
        rest = "; set running.spot instead" if market.classes[names.index(name)].without_bids else ""
        raise InputError(f"running.bid: {error}{rest}") from None


def _most_slots(market: Market, units: int) -> int:
    """Return the maximum number of slots to the deadline of a strategy table."""
    from goffish.scheduling.spot.sizes import values_of_slot

    return min(_MOST_SLOTS, _MOST_VALUES // values_of_slot(market, units))


def _too_large(request: planning_pb2.AdviseSpotRequest, market: Market) -> str:
    """Return the error message for a job that is too large to plan."""
    for units in range(_MOST_UNITS, 0, -1):
        if _most_slots(market, units) >= market.least_slots(units):
            most = units * market.unit
            return f"core_hours: {request.core_hours:g}; at most {most:.4g} are supported in this market"
    return f"market: {request.market} has too many states for planning; choose another market"


class Asked(NamedTuple):
    """Validated request for advice.

    Attributes
    ----------
    key : (str, int, int)
        Key of the strategy table: name of the market, units of work, and slots to the deadline.
    fitted : Fitted
    status, prices, ages
        Arguments of `goffish.scheduling.spot.advice.advise`.
    notes : list of str
        Reasons for which the advice may not hold.
    """

    key: tuple[str, int, int]
    fitted: Fitted
    status: Status
    prices: Sequence[float]
    ages: Sequence[int] | None
    notes: list[str]

    def answer(self, strategy: Strategy) -> planning_pb2.AdviseSpotResponse:
        """Return the recommended action.

        Raises
        ------
        InputError
            The deadline cannot be met.
        """
        from goffish.scheduling.spot.advice import advise

        found = advise(
            strategy.table, self.status, self.key[2], self.prices, self.ages, trials=strategy.trials,
            history=strategy.history,
        )  # fmt: skip
        answer = planning_pb2.AdviseSpotResponse(action=found.text, expected_cost=found.expected_cost, currency="USD")
        if math.isfinite(found.on_demand_cost):
            answer.on_demand_cost = found.on_demand_cost
        for hours, cost in found.deadlines:
            answer.deadlines.add(hours=hours, expected_cost=cost)
        _decide(answer, self.fitted.market, found.action)
        answer.policy = "rtba" if found.choice is None else found.choice.name
        answer.notes.extend([*found.notes, *self.notes])
        outlook = None if found.choice is None else found.choice.outlook
        if outlook is not None:
            answer.without_on_demand, answer.without_interruption = outlook[2:4]
            if math.isfinite(outlook.high):
                answer.low_cost, answer.high_cost = outlook.low, outlook.high
        return answer


class Strategy(NamedTuple):
    """What advice for jobs of one size and deadline is based on.

    Attributes
    ----------
    table : Table
    trials : Trials, optional
        None if they would take too long.
    history : SlotPrices, optional
        Prices of the trials.
    """

    table: Table
    trials: Trials | None
    history: SlotPrices | None

    @property
    def bytes(self) -> int:
        """Bytes of the arrays."""
        kept = [] if self.trials is None else [part for part in self.trials if isinstance(part, np.ndarray)]
        kept += [] if self.history is None else [self.history.prices, self.history.peaks]
        return self.table.bytes + sum(part.nbytes for part in kept)


def strategy(fitted: Fitted, work: int, slots: int) -> Strategy:
    """Build a strategy table, without the data required to extend it, and run trials if the table is small."""
    from goffish.scheduling.spot.choice import history_trials
    from goffish.scheduling.spot.sizes import values_of_slot
    from goffish.scheduling.spot.table import build_table

    market = fitted.market
    table = replace(build_table(market, work, slots, threads=1), last=())
    if values_of_slot(market, work) * slots > _MOST_TRIED:
        return Strategy(table, None, None)
    history = fitted.history()
    return Strategy(table, history_trials(market, history, work, slots, threads=1), history)


def _decide(answer: planning_pb2.AdviseSpotResponse, market: Market, action: int) -> None:
    """Set the machine-readable decision; actions of `goffish.scheduling.spot.job` have the same order."""
    from goffish.cloud.prices import ANY_PRICE
    from goffish.scheduling.spot.job import START

    answer.decision = planning_pb2.SpotAction.ValueType(min(action, START) + planning_pb2.SPOT_ACTION_WAIT)
    if action < START:
        return
    rules, choice = market.rules, action - START
    setattr(answer, "class", market.classes[int(rules.kind[choice])].name)
    answer.on_demand = not rules.spot[choice]
    if rules.spot[choice] and rules.bid[choice] < ANY_PRICE:
        answer.bid = float(rules.bid[choice])
