"""What every provider of machines can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from goffish.cloud.catalogue import Catalogue

State = Literal["starting", "running", "stopped", "failed"]


class Task(NamedTuple):
    """A command on a machine.

    Attributes
    ----------
    machine, number : int
    """

    machine: int
    number: int


class Provider(Protocol):
    """Starts and stops machines of a catalogue and runs commands on them."""

    @property
    def catalogue(self) -> Catalogue:
        """What can be asked for."""
        ...

    def start(self, kind: int) -> int:
        """Ask for a machine of a class; gives its id. It is ``starting`` until it can run something."""
        ...

    def stop(self, machine: int) -> None:
        """Give a machine back; what runs on it ends."""
        ...

    def states(self) -> Mapping[int, State]:
        """Of every machine that was asked for."""
        ...

    def spent(self) -> float:
        """Cost so far, by the catalogue's prices and billing."""
        ...

    def submit(self, machine: int, command: Sequence[str]) -> Task:
        """Run a command on a machine that is running."""
        ...

    def exit_code(self, task: Task) -> int | None:
        """Of a command; ``None`` while it runs. That of a command whose machine is gone is -9."""
        ...
