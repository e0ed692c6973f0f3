"""Simulated machines on a manual clock, for tests of policies and of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers.ledger import Ledger
from goffish.cloud.providers.protocol import State, Task
from goffish.errors import InputError


class SimulatedProvider:
    """Machines on a clock that only `advance` moves.

    Parameters
    ----------
    catalogue : Catalogue
        Its `startup_s` is the start-up time of machines.
    duration_s : callable, optional
        Core-seconds of a reference core per command; default: 0. A command runs on one core of its machine.
    """

    def __init__(self, catalogue: Catalogue, duration_s: Callable[[Sequence[str]], float] | None = None) -> None:
        self._catalogue, self._duration_s = catalogue, duration_s
        self._ledger = Ledger(catalogue)
        self._failed: set[int] = set()
        self._ends: dict[Task, float] = {}
        self.now = 0.0

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        if seconds < 0:
            raise InputError(f"seconds = {seconds}: must be 0 or more")
        self.now += seconds

    def start(self, kind: int) -> int:
        return self._ledger.start(kind, self.now)

    def stop(self, machine: int) -> None:
        self._ledger.stop(machine, self.now)

    def fail(self, machine: int) -> None:
        """Fail a machine; its cost so far remains."""
        self._ledger.stop(machine, self.now)
        self._failed.add(machine)

    def states(self) -> Mapping[int, State]:
        return {machine: self._state(machine) for machine in range(len(self._ledger.kinds))}

    def _state(self, machine: int) -> State:
        if machine in self._failed or self._ledger.taken(machine, self.now):
            return "failed"
        if self._ledger.stopped[machine] is not None:
            return "stopped"
        age = self._ledger.elapsed(machine, self.now)
        return "starting" if age < self._catalogue.startup_s else "running"

    def spent(self) -> float:
        return self._ledger.spent(self.now)

    def submit(self, machine: int, command: Sequence[str]) -> Task:
        self._ledger.check(machine)
        if self._state(machine) != "running":
            raise InputError(f"machine {machine} is {self._state(machine)}: cannot run commands")
        work = self._duration_s(command) if self._duration_s is not None else 0.0
        speed = float(self._catalogue.speeds[self._ledger.kinds[machine]])
        task = Task(machine, len(self._ends))
        self._ends[task] = self.now + work / speed
        return task

    def exit_code(self, task: Task) -> int | None:
        if task not in self._ends:
            raise InputError(f"unknown task {task.number} on machine {task.machine}")
        stop = self._ledger.end(task.machine, self.now)
        if stop < min(self.now, self._ends[task]):
            return -9
        return 0 if self.now >= self._ends[task] else None
