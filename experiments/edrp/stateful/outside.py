"""What a job reads and what leaves it: sources and sinks, in the process of the coordinator."""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from experiments.edrp.stateful.definition import OUTSIDE, Stream, producer_of, task_of
from experiments.edrp.stateful.wire import send

#: Between two sendings.
_TICK_S = 0.005


class Reader(NamedTuple):
    """An executor that reads sources."""

    connection: Connection
    operator: str
    tasks: frozenset[int]


class Sources:
    """All sources of a job; they number what is offered, and keep it while the job is paused.

    Parameters
    ----------
    stream : Stream
    """

    def __init__(self, stream: Stream) -> None:
        self._stream, self._began = stream, time.monotonic()
        self._at = {name: at for at, name in enumerate(stream.sources)}
        self._last = dict.fromkeys(stream.sources, -1)
        self._kept: list[tuple[str, int, str, Any]] = []
        self._readers: list[Reader] = []
        self._open, self._closed = False, False
        # Offering must not wait for a reader that is slow.
        self._lock, self._sending = threading.Lock(), threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def offer(self, source: str, key: str, value: Any) -> None:
        """An item comes to a source."""
        with self._lock:
            self._kept.append((source, self._next(source), key, value))

    def _next(self, source: str) -> int:
        """A number above all before: the time, and which source it is."""
        several = len(self._at)
        now = int((time.monotonic() - self._began) * 1e6) * several + self._at[source]
        self._last[source] = max(now, self._last[source] + several)
        return self._last[source]

    def offered_s(self, number: int) -> float:
        """When an item was offered, on the monotonic clock."""
        return self._began + number // len(self._at) / 1e6

    @property
    def last(self) -> int:
        """The greatest number so far."""
        with self._lock:
            return max(self._last.values())

    def _run(self) -> None:
        while not self._closed:
            time.sleep(_TICK_S)
            with self._sending:
                if self._open:
                    self._send()

    def _send(self) -> None:
        """Send what is kept, in the order of its numbers, and how far that is."""
        with self._lock:
            taken, self._kept = self._kept, []
            marks = {source: self._next(source) for source in self._at}
        messages: list[list[Any]] = [[] for _ in self._readers]
        for source, number, key, value in taken:
            for reader, items in zip(self._readers, messages, strict=True):
                operator = self._stream.of[reader.operator]
                at = task_of(key, operator.tasks)
                if source in operator.inputs and at in reader.tasks:
                    items.append((at, producer_of(source, 0), [number], key, value))
        for reader, items in zip(list(self._readers), messages, strict=True):
            read = self._stream.of[reader.operator].inputs
            known = {producer_of(source, 0): mark for source, mark in marks.items() if source in read}
            self._tell(reader, {"from": OUTSIDE, "items": items, "marks": known})

    def _tell(self, reader: Reader, said: Any) -> None:
        try:
            send(reader.connection, said)
        except OSError:
            self._readers.remove(reader)  # killed

    def pause(self, epoch: int, timeout_s: float) -> bool:
        """Send END-OF-STREAM and keep what is offered; tells whether readers took what was sent before."""
        self._open = False
        if not self._sending.acquire(timeout=timeout_s):
            return False
        try:
            for reader in list(self._readers):
                self._tell(reader, {"from": OUTSIDE, "end": epoch})
        finally:
            self._sending.release()
        return True

    def resume(self, readers: list[Reader] | None = None) -> None:
        """Send what is kept and what comes, to others if they are given."""
        if readers is not None:
            self._readers = readers
        self._open = True

    def close(self) -> None:
        """Send no more."""
        self._closed, self._open = True, False


class Arrival(NamedTuple):
    """An item at a sink.

    Attributes
    ----------
    key : str
    value
    number : list of int
    offered_s, arrived_s : float
        On the monotonic clock.
    """

    key: str
    value: Any
    number: list[int]
    offered_s: float
    arrived_s: float


class Sinks:
    """All sinks of a job; they drop what is there already.

    Parameters
    ----------
    stream : Stream
    sources : Sources

    Attributes
    ----------
    arrivals : mapping from operator to list of Arrival
        In the order in which they came.
    dropped : int
        Items that were there already.
    """

    def __init__(self, stream: Stream, sources: Sources) -> None:
        self._sources = sources
        self.arrivals: dict[str, list[Arrival]] = {name: [] for name in stream.sinks}
        self.dropped = 0
        self._last: dict[str, list[int]] = {}
        self._complete = {
            name: dict.fromkeys((producer_of(name, task) for task in range(stream.of[name].tasks)), -1)
            for name in stream.sinks
        }

    def receive(self, said: Any) -> None:
        """Take a message; not from two threads at once."""
        now = time.monotonic()
        for _, producer, number, key, value in said["items"]:
            if number <= self._last.get(producer, []):
                self.dropped += 1
                continue
            self._last[producer] = number
            came = Arrival(key, value, number, self._sources.offered_s(number[0]), now)
            self.arrivals[producer.rpartition("/")[0]].append(came)
        for producer, complete in said["marks"].items():
            known = self._complete[producer.rpartition("/")[0]]
            known[producer] = max(known[producer], complete)

    def complete(self, operator: str) -> int:
        """Number up to which everything came from an operator."""
        return min(self._complete[operator].values())
