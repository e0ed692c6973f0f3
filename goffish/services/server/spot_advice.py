"""Spot markets that a server knows, and what jobs on them should do."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from goffish.errors import InputError
from goffish.v1 import catalog_pb2, planning_pb2

if TYPE_CHECKING:
    from goffish.services.spot.fitting import Fitted
    from goffish.services.spot.model import Market
    from goffish.services.spot.table import Table

#: Tables that are kept, and how large one may be that a client has built.
_TABLES, _MOST_UNITS, _MOST_SLOTS = 8, 120, 600


class Markets:
    """Markets that ``goffish spot fit`` has written into a folder, by the names of their files.

    Parameters
    ----------
    folder : Path, optional
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._table = lru_cache(_TABLES)(self._build)
        self._read = lru_cache(_TABLES)(self._open)

    @property
    def names(self) -> list[str]:
        """What there is."""
        return [] if self._folder is None else sorted(path.stem for path in self._folder.glob("*.json"))

    def _open(self, name: str) -> Fitted:
        from goffish.services.spot.fitting import read_fitted

        assert self._folder is not None
        return read_fitted(str(self._folder / f"{name}.json"))

    def _build(self, name: str, work: int, slots: int) -> Table:
        from goffish.services.spot.table import build_table

        return build_table(self._read(name).market, work, slots)

    def messages(self) -> list[catalog_pb2.Market]:
        """All of them."""
        found = []
        for name in self.names:
            fitted = self._read(name)
            made = catalog_pb2.Market(
                name=name, estimator=fitted.estimator, unit_core_hours=fitted.market.unit, slot_s=fitted.slot_s
            )
            for one in fitted.market.classes:
                made.classes.add(
                    name=one.name, speed=one.speed, on_demand_per_hour=one.on_demand, bids=one.bids.tolist()
                )
            found.append(made)
        return found

    def advise(self, request: planning_pb2.AdviseSpotRequest) -> planning_pb2.AdviseSpotResponse:
        """What a job should do now.

        Raises
        ------
        InputError
        """
        from goffish.services.spot.advice import advise, running
        from goffish.services.spot.fitting import prices_of
        from goffish.services.spot.job import slots_left, submitted

        if request.market not in self.names:
            known = ", ".join(self.names) or "none; the operator gives --markets"
            raise InputError(f"market: nothing called {request.market[:80]!r}; there are: {known}")
        for field in ("core_hours", "hours"):
            if not 0 < getattr(request, field) <= 1e6:
                raise InputError(f"{field}: {getattr(request, field):g}; more than 0 is needed")
        fitted = self._read(request.market)
        market = fitted.market
        work = market.units(request.core_hours)
        status = submitted(work)
        if request.HasField("running"):
            job = request.running
            saved = market.units(job.saved_core_hours)
            bid = job.bid if job.HasField("bid") else None
            status = running(market, work, saved, getattr(job, "class"), bid, job.used_s)
        slots = slots_left(request.hours * 3600.0, 0.0, fitted.slot_s, 0)
        if max(work, status.saved) > _MOST_UNITS:
            raise InputError(f"core_hours: at most {_MOST_UNITS * market.unit:g} in this market")
        if slots > _MOST_SLOTS:
            raise InputError(f"hours: at most {_MOST_SLOTS * fitted.slot_s / 3600:g} in this market")
        prices, ages = prices_of(fitted, dict(request.prices))
        found = advise(self._table(request.market, status.saved, slots), status, slots, prices, ages)
        answer = planning_pb2.AdviseSpotResponse(
            action=found.text, expected_cost=found.expected_cost, on_demand_cost=found.on_demand_cost, currency="USD"
        )
        for hours, cost in found.deadlines:
            answer.deadlines.add(hours=hours, expected_cost=cost)
        _decide(answer, market, found.action)
        return answer


def _decide(answer: planning_pb2.AdviseSpotResponse, market: Market, action: int) -> None:
    """Tell a program what to do; actions of `goffish.services.spot.job` have the same order."""
    from goffish.services.spot.job import START

    answer.decision = planning_pb2.SpotAction.ValueType(min(action, START) + planning_pb2.SPOT_ACTION_WAIT)
    if action < START:
        return
    rules, choice = market.rules, action - START
    setattr(answer, "class", market.classes[int(rules.kind[choice])].name)
    answer.on_demand = not rules.spot[choice]
    if rules.spot[choice] and math.isfinite(rules.bid[choice]):
        answer.bid = float(rules.bid[choice])
