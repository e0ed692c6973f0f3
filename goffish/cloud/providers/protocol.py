"""The protocol of machine providers."""

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
    """Starts and stops machines of a catalogue, and runs commands on them."""

    @property
    def catalogue(self) -> Catalogue:
        """The machine types that can be requested."""
        ...

    def start(self, kind: int) -> int:
        """Request a machine and return its id. Its state is ``starting`` until it can run commands."""
        ...

    def stop(self, machine: int) -> None:
        """Release a machine; its commands end."""
        ...

    def states(self) -> Mapping[int, State]:
        """State of every requested machine."""
        ...

    def spent(self) -> float:
        """Cost so far, by the prices and billing of the catalogue."""
        ...

    def submit(self, machine: int, command: Sequence[str]) -> Task:
        """Run a command on a running machine."""
        ...

    def exit_code(self, task: Task) -> int | None:
        """Exit code of a command; ``None`` while it runs, -9 if its machine is gone."""
        ...
