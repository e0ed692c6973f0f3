"""When machines were asked for and given back, and what that costs; the same for every provider."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from goffish.errors import InputError
from goffish.services.cloud.billing import rent
from goffish.services.cloud.catalogue import Catalogue


@dataclass
class Ledger:
    """Times are seconds on the provider's clock; ids count from 0 in the order of the requests."""

    catalogue: Catalogue
    kinds: list[int] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    stopped: list[float | None] = field(default_factory=list)

    def start(self, kind: int, now: float) -> int:
        """Note a request; gives the machine's id."""
        if not 0 <= kind < len(self.catalogue.classes):
            raise InputError(f"no machine class {kind}: the catalogue has {len(self.catalogue.classes)}")
        running = sum(stop is None for stop in self.stopped)
        if self.catalogue.limit is not None and running >= self.catalogue.limit:
            raise InputError(f"the catalogue allows {self.catalogue.limit} machines at a time")
        self.kinds.append(kind)
        self.started.append(now)
        self.stopped.append(None)
        return len(self.kinds) - 1

    def stop(self, machine: int, now: float) -> None:
        """Note that a machine was given back, or lost; the first time counts."""
        self.check(machine)
        if self.stopped[machine] is None:
            self.stopped[machine] = now

    def check(self, machine: int) -> None:
        """Raise `InputError` for a machine that was never asked for."""
        if not 0 <= machine < len(self.kinds):
            raise InputError(f"no machine {machine}: {len(self.kinds)} were asked for")

    def elapsed(self, machine: int, now: float) -> float:
        """Seconds that are paid for, before they are rounded."""
        stop = self.stopped[machine]
        return (now if stop is None else stop) - self.started[machine]

    def spent(self, now: float) -> float:
        """Price of all machines so far."""
        ids = range(len(self.kinds))
        prices = self.catalogue.prices[self.kinds] if self.kinds else 0.0
        elapsed = np.array([self.elapsed(machine, now) for machine in ids])
        return float(rent(elapsed, prices, self.catalogue.billing).sum())
