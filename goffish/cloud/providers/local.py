"""Machines of this computer, with the prices and interruptions of a catalogue."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers.ledger import Ledger
from goffish.cloud.providers.processes import LocalMachines, Task
from goffish.cloud.providers.protocol import Machine, Offer, Request
from goffish.errors import InputError


class LocalProvider:
    """Provider of real processes on this computer.

    Parameters
    ----------
    catalogue : Catalogue
    reference_share, folder, environment
        As of `LocalMachines`.
    pace : float
        Simulated seconds per real second, for prices and bills.
    since : float, optional
        Start of the spot prices in seconds since 1970 (UTC); default: the start of the traces.
    notice_s : float
        Simulated seconds from SIGTERM until a spot machine is taken back.

    Notes
    -----
    All machines end with this process, and at the latest with `close`.
    """

    def __init__(
        self, catalogue: Catalogue, *, reference_share: float = 1.0, folder: str | Path | None = None,
        pace: float = 1.0, since: float | None = None, notice_s: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if not 0 < pace < float("inf"):
            raise InputError(f"pace = {pace}: must be greater than 0 (simulated seconds per real second)")
        if not 0 <= notice_s < float("inf"):
            raise InputError(f"notice_s = {notice_s}: must be 0 or more (simulated seconds)")
        self._pace, self._began = pace, time.monotonic()
        self._ledger = Ledger(catalogue, since, notice_s)
        self._machines = LocalMachines(
            catalogue, reference_share=reference_share, folder=folder, environment=environment
        )
        self._tasks: list[Task | None] = []
        self._warned = set[int]()

    @property
    def catalogue(self) -> Catalogue:
        return self._ledger.catalogue

    @property
    def now(self) -> float:
        """Simulated seconds since the start of the provider."""
        return (time.monotonic() - self._began) * self._pace

    async def offers(self) -> list[Offer]:
        return self._ledger.offers(self.now)

    async def request(self, request: Request) -> Machine:
        number, new = self._ledger.request(request, self.now)
        if new:
            kinds = [one.name for one in self.catalogue.classes]
            machine = self._machines.start(kinds.index(request.machine_type))
            command = [
                sys.executable if part == "python" and not at else part for at, part in enumerate(request.command)
            ]
            self._tasks.append(self._machines.submit(machine, command, request.environment) if command else None)
        return self._ledger.machine(number, self.now)

    async def release(self, ids: Collection[str]) -> None:
        for number in [self._ledger.number(one) for one in ids]:
            self._machines.stop(number)
            self._ledger.end(number, "released", self.now)

    def fail(self, id: str) -> None:
        """Kill a machine at once, like a power failure."""
        self._machines.fail(self._ledger.number(id))

    async def machines(self, tags: Mapping[str, str]) -> list[Machine]:
        self._look()
        return self._ledger.machines(tags, self.now)

    async def costs(self, machines: Sequence[Machine]) -> list[float]:
        self._look()
        return self._ledger.costs([one.id for one in machines], self.now)

    async def close(self) -> None:
        """Stop all machines."""
        self._machines.close()
        for number in self._ledger.open:
            self._ledger.end(number, "released", self.now)

    def _look(self) -> None:
        """Take machines back whose time has come, and note those that have ended."""
        for number in self._ledger.look(self.now):
            self._machines.fail(number)
        states = self._machines.states()
        for number in self._ledger.open:
            task = self._tasks[number]
            code = None if task is None else self._machines.exit_code(task)
            if states[number] == "failed":
                self._ledger.end(number, "failed", self.now, "its process was killed")
            elif code is not None:
                self._machines.stop(number)
                self._ledger.end(number, "finished", self.now, exit_code=code)
            elif states[number] == "running":
                self._ledger.run(number)
            if number not in self._warned and self._ledger.announced(number, self.now):
                self._warned.add(number)
                self._machines.warn(number)
