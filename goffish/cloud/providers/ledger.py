"""Requests and releases of machines and their cost; shared by all providers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.spot_market import SpotMarket
from goffish.errors import InputError


@dataclass
class Ledger:
    """Times are seconds on the provider's clock; ids count from 0 in the order of the requests.

    Attributes
    ----------
    catalogue : Catalogue
    began : float
        Start of the provider; spot prices are relative to it.
    since : float, optional
        Time of the spot prices at that moment, in seconds since 1970 (UTC); default: the earliest time that all traces
        cover.
    """

    catalogue: Catalogue
    began: float = 0.0
    since: float | None = None
    kinds: list[int] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    stopped: list[float | None] = field(default_factory=list)
    market: SpotMarket = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.market = SpotMarket(self.catalogue, self.since)

    def start(self, kind: int, now: float) -> int:
        """Record a request and return the machine's id."""
        if not 0 <= kind < len(self.catalogue.classes):
            raise InputError(f"unknown machine type {kind}: the catalogue has {len(self.catalogue.classes)}")
        running = sum(stop is None and not self.taken(at, now) for at, stop in enumerate(self.stopped))
        if self.catalogue.limit is not None and running >= self.catalogue.limit:
            raise InputError(f"the catalogue allows {self.catalogue.limit} machines at a time")
        self.kinds.append(kind)
        self.started.append(now)
        self.stopped.append(None)
        return len(self.kinds) - 1

    def stop(self, machine: int, now: float) -> None:
        """Record the release or loss of a machine; the first call counts."""
        self.check(machine)
        if self.stopped[machine] is None:
            self.stopped[machine] = now

    def check(self, machine: int) -> None:
        """Raise `InputError` for a machine that was never requested."""
        if not 0 <= machine < len(self.kinds):
            raise InputError(f"unknown machine {machine}: {len(self.kinds)} were requested")

    def elapsed(self, machine: int, now: float) -> float:
        """Charged seconds before rounding."""
        return self.end(machine, now) - self.started[machine]

    def end(self, machine: int, now: float) -> float:
        """Time of the release or loss of a machine, or `now`."""
        stop = self.stopped[machine]
        return min(now if stop is None else stop, self._taken_at(machine))

    def taken(self, machine: int, now: float) -> bool:
        """Whether a spot machine was interrupted because its price exceeded its bid."""
        return self._taken_at(machine) <= self.end(machine, now)

    def spent(self, now: float) -> float:
        """Cost of all machines so far."""
        ids = range(len(self.kinds))
        return float(
            self.market.rents(
                np.array(self.kinds, np.int64),
                np.array(self.started) - self.began,
                np.array([self.end(machine, now) for machine in ids]) - self.began,
                np.array([self.taken(machine, now) for machine in ids], np.bool_),
            ).sum()
        )

    def _taken_at(self, machine: int) -> float:
        return self.began + self.market.taken_s(self.kinds[machine], self.started[machine] - self.began)
