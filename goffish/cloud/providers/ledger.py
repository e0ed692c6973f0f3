"""Requests of machines that exist on this computer only, and what they cost by the prices of a catalogue."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from goffish.cloud.catalogue import SPOT_FIELDS, Catalogue
from goffish.cloud.prices import ANY_PRICE
from goffish.cloud.providers.protocol import CapacityError, Machine, Offer, Request, State
from goffish.cloud.spot_market import SpotMarket
from goffish.errors import InputError


@dataclass
class _Entry:
    """A request, its machine type among those of the market, when it will be taken back, and its state."""

    request: Request
    kind: int
    requested_s: float
    taken_s: float
    state: State = "pending"
    reason: str = ""
    ended_s: float | None = None
    exit_code: int | None = None


class Ledger:
    """Requests, by numbers that count from 0.

    Parameters
    ----------
    catalogue : Catalogue
        Machine types of the market "spot" can be requested on demand as well.
    since : float, optional
        Start of the spot prices in seconds since 1970 (UTC); default: the earliest time that all traces cover.
    notice_s : float
        Seconds from the announcement until a spot machine is taken back.
    """

    def __init__(self, catalogue: Catalogue, since: float | None = None, notice_s: float = 0.0) -> None:
        self.catalogue, self._notice_s = catalogue, notice_s
        self._prices = SpotMarket(catalogue, since)
        self._entries: list[_Entry] = []
        # Machine types with their market and maximum price, as they were requested.
        self._kinds: dict[tuple[str, str, float | None], int] = {}
        self._market = self._prices

    def request(self, request: Request, now: float) -> tuple[int, bool]:
        """Return the number of a request, and whether it is new.

        Raises
        ------
        CapacityError
            As many machines as the catalogue allows run, or the price is above the maximum.
        InputError
            There is no such machine type.
        """
        for number, entry in enumerate(self._entries):
            if entry.request.token == request.token:
                return number, False
        self.look(now)
        kind = self._kind(request)
        running, most = sum(one.ended_s is None for one in self._entries), self.catalogue.limit
        if most is not None and running >= most:
            raise CapacityError(f"the catalogue allows {most} machines at a time")
        taken_s = self._market.taken_s(kind, now)
        if taken_s <= now:
            price = self._market.priced(now).classes[kind].price_per_hour
            text = f"costs {price:.4g} per hour" if price < ANY_PRICE else "is not available"
            raise CapacityError(f"{request.machine_type} on the spot market: {text}")
        if self._notice_s and taken_s - self._notice_s <= now:
            # It would get its notice before its command can heed it.
            raise CapacityError(f"{request.machine_type} on the spot market: is about to be taken back")
        self._entries.append(_Entry(request, kind, now, taken_s))
        return len(self._entries) - 1, True

    def _kind(self, request: Request) -> int:
        """Return the number of a machine type with its market and maximum price."""
        given = next((one for one in self.catalogue.classes if one.name == request.machine_type), None)
        if given is None:
            names = ", ".join(one.name for one in self.catalogue.classes)
            raise InputError(f"machine type {request.machine_type!r}: unknown; the catalogue has {names}")
        change: dict[str, Any] = {}
        if request.market == "spot":
            if given.market != "spot":
                raise InputError(f"machine type {given.name}: has no spot market in the catalogue")
            if given.availability is None:
                change = {"bid": request.max_price or given.price_per_hour}
        elif given.market == "spot":
            change = {"market": "on-demand", **dict.fromkeys(SPOT_FIELDS)}
        key = given.name, request.market, change.get("bid")
        if key not in self._kinds:
            number = len(self._kinds)
            before = self._market.catalogue.classes if number else ()
            made = given.model_copy(update=change | {"name": f"{given.name}:{number}"})
            self._market = SpotMarket(self.catalogue.with_classes((*before, made)), self._prices.since)
            self._kinds[key] = number
        return self._kinds[key]

    def look(self, now: float) -> list[int]:
        """Note the machines that have been taken back; return their numbers."""
        taken = []
        for number, entry in enumerate(self._entries):
            if entry.ended_s is None and entry.taken_s <= now:
                price = self._market.priced(entry.taken_s).classes[entry.kind].price_per_hour
                why = "the price exceeds the maximum" if price < ANY_PRICE else "no capacity is left"
                self._end(entry, "interrupted", entry.taken_s, why)
                taken.append(number)
        return taken

    def end(self, number: int, state: State, now: float, reason: str = "", exit_code: int | None = None) -> None:
        """Note the end of a machine; the first one counts."""
        self.look(now)
        if self._entries[number].ended_s is None:
            self._end(self._entries[number], state, now, reason, exit_code)

    @staticmethod
    def _end(entry: _Entry, state: State, at: float, reason: str = "", exit_code: int | None = None) -> None:
        entry.state, entry.ended_s, entry.reason, entry.exit_code = state, at, reason, exit_code

    def run(self, number: int) -> None:
        """Note that the command of a machine runs."""
        if self._entries[number].ended_s is None:
            self._entries[number].state = "running"

    def number(self, id: str) -> int:
        """Return the number of a machine by its id.

        Raises
        ------
        InputError
            It was never requested.
        """
        if not id.isdecimal() or int(id) >= len(self._entries):
            raise InputError(f"machine {id!r}: unknown; {len(self._entries)} were requested")
        return int(id)

    @property
    def open(self) -> list[int]:
        """Numbers of the machines that have not ended."""
        return [number for number, entry in enumerate(self._entries) if entry.ended_s is None]

    def machine(self, number: int, now: float) -> Machine:
        """Return the state of a machine."""
        entry = self._entries[number]
        one = entry.request
        return Machine(
            id=str(number), machine_type=one.machine_type, market=one.market, zone=one.zone or "", state=entry.state,
            reason=entry.reason, tags=one.tags, requested_s=entry.requested_s, started_s=entry.requested_s,
            ended_s=entry.ended_s, exit_code=entry.exit_code,
            notice_s=entry.taken_s if self.announced(number, now) else None, address="127.0.0.1",
        )  # fmt: skip

    def announced(self, number: int, now: float) -> bool:
        """Whether it has been announced that a machine will be taken back."""
        return bool(self._notice_s) and self._entries[number].taken_s - self._notice_s <= now

    def machines(self, tags: Mapping[str, str], now: float) -> list[Machine]:
        """Return the machines with some tags."""
        self.look(now)
        return [
            self.machine(number, now)
            for number, entry in enumerate(self._entries)
            if tags.items() <= entry.request.tags.items()
        ]

    def offers(self, now: float) -> list[Offer]:
        """Return the machine types and their prices at a time."""
        found = []
        for given, priced in zip(self.catalogue.classes, self._prices.priced(now).classes, strict=True):
            found.append(Offer(given.name, "on-demand", given.zone or "", given.price_per_hour, True))
            if given.market == "spot":
                price = priced.price_per_hour
                found.append(Offer(given.name, "spot", given.zone or "", price, price < ANY_PRICE))
        return found

    def costs(self, ids: Collection[str], now: float) -> list[float]:
        """Return what machines have cost."""
        self.look(now)
        entries = [self._entries[self.number(one)] for one in ids]
        costs: list[float] = self._market.rents(
            np.array([entry.kind for entry in entries], np.int64),
            np.array([entry.requested_s for entry in entries]),
            np.array([now if entry.ended_s is None else entry.ended_s for entry in entries]),
            np.array([entry.state == "interrupted" for entry in entries], np.bool_),
        ).tolist()
        return costs
