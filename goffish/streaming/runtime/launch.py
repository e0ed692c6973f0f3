"""Worker processes, as the process that starts them sees them."""

from __future__ import annotations

import json
import selectors
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from goffish.streaming.metrics import Counts
from goffish.streaming.runtime.template import start_copy, start_process

if TYPE_CHECKING:
    from goffish.streaming.ring.options import Options
    from goffish.streaming.runtime.worker import Begin
    from goffish.streaming.topology import Topology
    from goffish.streaming.updates.plan import UpdatePlan
    from goffish.streaming.updates.rollout import Progress

#: Between two reports of a worker, at least.
REPORTS_S = 0.1
#: Unix socket of a folder of workers, to which they connect.
CONTROL = "control"


class Handle(Protocol):
    """A process that was started."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or None if the process has not ended."""

    def kill(self) -> None:
        """End the process at once."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process."""


class Launcher(Protocol):
    """Starts worker processes, here or on machines of a provider."""

    def __call__(self, number: int, command: Sequence[str]) -> Handle:
        """Start a worker."""


class Machines(Launcher, Protocol):
    """Starts worker processes on several hosts."""

    def wait(
        self,
        workers: int,
        report: Callable[[str], None] | None = None,
        stopped: Callable[[], bool] | None = None,
        here: int = 0,
    ) -> None:
        """Wait until so many workers have a place, or until the run is stopped; some at least must be on this host."""

    def begin(self, folder: Path, options: Options, begin: Begin, firsts: Sequence[str]) -> None:
        """Note where the folder of the workers is, and how they run, before the first one starts."""

    def follow(self) -> None:
        """Hand the ring on, which now exists."""

    def alternate(self, workers: Sequence[int], replication: int) -> list[int]:
        """Return workers in an order of the ring in which copies are on other hosts, as far as possible."""

    def choose(self, ring: Sequence[int], among: range, at: int, replication: int, *, here: bool = False) -> int:
        """Choose the host of the next worker, or this one, and return where on the ring it should be."""

    def dismiss(self, ring: Sequence[int], among: Sequence[int], replication: int) -> int:
        """Return the place on the ring of the worker that should leave."""

    def crowded(self, ring: Sequence[int], replication: int) -> int | None:
        """Return a worker that should move to a host with a free slot."""

    def check_workers(self, workers: int) -> None:
        """Raise an error if there cannot be places for so many workers."""

    def reserve(self, workers: int) -> bool:
        """Ask for places for so many workers, and return whether they are there."""

    def is_here(self, worker: int) -> bool:
        """Return whether a worker is on this host."""

    def where(self, worker: int) -> str:
        """Return the address of the host of a worker, also if it has ended."""

    def check(self, new: Topology) -> None:
        """Raise an error if the hosts cannot run a new version of the flow."""

    def deploy(self, plan: UpdatePlan) -> None:
        """Begin to prepare a new version on all hosts."""

    @property
    def progress(self) -> Iterable[Progress]:
        """How far all hosts are with versions."""

    def complete(self, begin: Begin | None) -> None:
        """End an update; None if it was aborted."""


def start_here(number: int, command: Sequence[str]) -> Handle:
    """Start a worker on this machine."""
    if sys.platform == "linux" and command[:2] == [sys.executable, "-m"]:
        return start_copy(command[2:])
    return start_process(command)


def command_of(folder: Path, number: int) -> list[str]:
    """Return the command that runs a worker."""
    return [sys.executable, "-m", "goffish.streaming.runtime.process", str(folder), str(number)]


@dataclass
class WorkerProcess:
    """A worker process and its last report."""

    process: Handle
    control: socket.socket | None = None
    ready: bool = False
    asked: tuple[float, int] = 0.0, -1  # when it was asked for a move, and the view of that time
    reported: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)
    gaps: deque[float] = field(default_factory=lambda: deque([REPORTS_S], maxlen=100))  # between reports
    counts: dict[str, Counts] = field(default_factory=dict)
    saved: float = 0.0  # when its checkpoint was first reported
    input: bytes = b""

    def send(self, **command: Any) -> None:
        """Send a command to a worker that is ready."""
        if self.control is not None:
            with suppress(OSError):  # it has ended, which the caller notices
                self.control.sendall(json.dumps(command).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """Return the reports that have come."""
        if self.control is None:
            return []
        try:
            while data := self.control.recv(1 << 18):
                self.input += data
        except (BlockingIOError, ConnectionError):
            pass
        *lines, self.input = self.input.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the connection, upon which the worker ends."""
        if self.control is not None:
            self.control.close()
            self.control = None


class Controls:
    """Where worker processes connect to the process that has started them."""

    def __init__(self, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / CONTROL))
        self._listener.listen(256)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def wait(self, seconds: float) -> Iterator[tuple[int, socket.socket]]:
        """Wait until a worker connects or reports; iterate over those that connect, with their numbers."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is not self._listener:
                continue
            with suppress(BlockingIOError):
                connection = self._listener.accept()[0]
                connection.settimeout(1.0)
                with connection.makefile("rb", buffering=0) as file:
                    hello = file.readline(64)
                connection.setblocking(False)
                self._selector.register(connection, selectors.EVENT_READ)
                yield int(hello), connection

    def forget(self, connection: socket.socket | None) -> None:
        """Wait for a worker no more."""
        if connection is not None:
            self._selector.unregister(connection)

    def close(self) -> None:
        """Close the socket."""
        self._selector.close()
        self._listener.close()
