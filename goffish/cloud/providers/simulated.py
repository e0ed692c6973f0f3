"""Simulated machines on a manual clock, for tests of policies and of launchers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers.ledger import Ledger
from goffish.cloud.providers.protocol import Machine, Offer, Request
from goffish.errors import InputError


class SimulatedProvider:
    """Machines on a clock that only `advance` moves.

    Parameters
    ----------
    catalogue : Catalogue
        Its `startup_s` is the start-up time of machines.
    duration_s : callable, optional
        Core-seconds of a reference core per command; default: 0. A command runs on one core of its machine.
    since : float, optional
        Start of the spot prices in seconds since 1970 (UTC); default: the start of the traces.
    notice_s : float
        Seconds from the announcement until a spot machine is taken back.
    """

    def __init__(
        self, catalogue: Catalogue, duration_s: Callable[[Sequence[str]], float] | None = None, *,
        since: float | None = None, notice_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._duration_s = duration_s
        self._ledger = Ledger(catalogue, since, notice_s)
        self._ends: dict[int, float] = {}
        self.now = 0.0

    @property
    def catalogue(self) -> Catalogue:
        return self._ledger.catalogue

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        if seconds < 0:
            raise InputError(f"seconds = {seconds}: must be 0 or more")
        self.now += seconds
        for number in self._ledger.open:
            machine = self._ledger.machine(number, self.now)
            if self.now < machine.requested_s + self.catalogue.startup_s:
                continue
            self._ledger.run(number)
            if (end := self._ends.get(number, float("inf"))) <= self.now:
                self._ledger.end(number, "finished", end, exit_code=0)

    async def offers(self) -> list[Offer]:
        return self._ledger.offers(self.now)

    async def request(self, request: Request) -> Machine:
        number, new = self._ledger.request(request, self.now)
        if new and request.command:
            kinds = [one.name for one in self.catalogue.classes]
            work = 0.0 if self._duration_s is None else self._duration_s(request.command)
            speed = float(self.catalogue.speeds[kinds.index(request.machine_type)])
            self._ends[number] = self.now + self.catalogue.startup_s + work / speed
        self.advance(0.0)
        return self._ledger.machine(number, self.now)

    async def release(self, ids: Collection[str]) -> None:
        for number in [self._ledger.number(one) for one in ids]:
            self._ledger.end(number, "released", self.now)

    def fail(self, id: str) -> None:
        """Fail a machine; its cost so far remains."""
        self._ledger.end(self._ledger.number(id), "failed", self.now, "simulated")

    async def machines(self, tags: Mapping[str, str]) -> list[Machine]:
        return self._ledger.machines(tags, self.now)

    async def costs(self, machines: Sequence[Machine]) -> list[float]:
        return self._ledger.costs([one.id for one in machines], self.now)

    async def close(self) -> None:
        """Release all machines."""
        await self.release([str(number) for number in self._ledger.open])
