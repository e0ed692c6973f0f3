"""Peak throughput by the number of reducers, with and without copies, and with upstream backup.

A reducer is a node with one thread. Mappers send as fast as the fullest host permits, messages of `Costs.part` records
to each host, and words are equally frequent: a frequent word is a bound for every system that groups by key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.ring.costs import Access, Costs
from experiments.ring.simulation import LATENCY, Events, Ring, zipf
from goffish.streaming.ring.options import Options

#: Words of a message of the source, all of which one root stands for.
WORDS_PER_ROOT = 10
#: Hosts of the external store, however many reducers there are, and copies that it keeps.
STORE_HOSTS, STORE_COPIES = 4, 2
_WORDS, _FULL, _EVERY_S = 20_000, 3, 0.002  # messages


class System(StrEnum):
    """What is compared."""

    NONE = "r = 0"
    ONE = "r = 1"
    TWO = "r = 2"
    BACKUP = "upstream backup"
    STORE_PARTS = "external store, a message at a time"
    STORE = "external store, record by record"


_COPIES = {System.NONE: 0, System.ONE: 1, System.TWO: 2}


class Peak(NamedTuple):
    """Records per second of a system with so many reducers."""

    system: System
    reducers: int
    rate: float


def peak(system: System, reducers: int, costs: Costs, *, seconds: float = 4.0, warm_s: float = 1.0) -> Peak:
    """Return the peak throughput.

    Parameters
    ----------
    system : System
    reducers : int
    costs : Costs
    seconds, warm_s : float
        Time in which records are counted, and before.
    """
    if system in _COPIES:
        options = Options(checkpoint_s=2.0, high=(1 << 30, 2.0), low=(-1, -1.0), detect_s=1e6)
        ring = Ring(
            reducers, _COPIES[system], costs, options=options, shares=zipf(_WORDS, 0.0), mappers=max(1, reducers // 4)
        )
        hosts = ring.hosts.values()
        _feed(ring, costs, lambda: max(host.backlog for host in hosts), partial(_send, ring, costs.part * reducers))
        ring.run(warm_s)
        before = sum(host.done for host in ring.hosts.values())
        ring.run(warm_s + seconds)
        return Peak(system, reducers, (sum(host.done for host in ring.hosts.values()) - before) / seconds)
    store = {System.STORE: costs.store, System.STORE_PARTS: costs.store_part}.get(system)
    backed = _Backed(reducers, costs, store)
    _feed(backed, costs, backed.fullest, backed.send)
    backed.run(warm_s)
    before = backed.done
    backed.run(warm_s + seconds)
    return Peak(system, reducers, (backed.done - before) / seconds)


def _feed(events: Events, costs: Costs, fullest: Callable[[], int], send: Callable[[], None]) -> None:
    """Send another message to each host whenever none has too many records."""
    if fullest() < _FULL * costs.part:
        send()
    events.at(events.now + _EVERY_S, lambda: _feed(events, costs, fullest, send))


def _send(ring: Ring, count: int) -> None:
    names = sorted(ring.view.senders)
    ring.send(names[int(ring.draw.integers(len(names)))], count)


@dataclass
class _Host:
    """Work that waits: seconds, records that are then done, and whether the records are still to be acknowledged."""

    work: deque[tuple[int, bool]] = field(default_factory=deque)
    waiting: int = 0
    busy: bool = False


class _Backed(Events):
    """Reducers with upstream backup; their hosts acknowledge, too. The acker of a root is on any of them."""

    def __init__(self, reducers: int, costs: Costs, store: Access | None) -> None:
        super().__init__()
        self._draw, self._costs, self._store = np.random.default_rng(0), costs, store
        self._shares = np.bincount(self._draw.integers(0, 1 << 62, _WORDS) % reducers, minlength=reducers) / _WORDS
        self._hosts = [_Host() for _ in range(reducers)]
        self._store_free_at = 0.0
        #: Records that were counted.
        self.done = 0

    def fullest(self) -> int:
        """Return the greatest number of records that wait in a host."""
        return max(host.waiting for host in self._hosts)

    def send(self) -> None:
        """Send a message to each host."""
        sizes = self._draw.multinomial(self._costs.part * len(self._hosts), self._shares)
        for host, size in zip(self._hosts, sizes.tolist(), strict=True):
            self._later(partial(self._arrive, host, size, True))

    def _later(self, action: Callable[[], None]) -> None:
        self.at(self.now + self._draw.uniform(*LATENCY), action)

    def _arrive(self, host: _Host, size: int, records: bool) -> None:
        host.work.append((size, records))
        host.waiting += size if records else 0
        self._step(host)

    def _step(self, host: _Host) -> None:
        if host.busy or not host.work:
            return
        size, records = host.work.popleft()
        host.busy = True
        end = self.now + size * (self._costs.read_s + self._costs.count_s if records else self._costs.ack_s)
        if records and self._store is not None:
            # Each write is one for every copy; reads need one of them.
            served = size * self._store.served_s * (1 + STORE_COPIES) / 2 / STORE_HOSTS
            self._store_free_at = max(self._store_free_at, self.now) + served
            end = max(end + size * self._store.waited_s, self._store_free_at)
        self.at(end, partial(self._finish, host, size, records))

    def _finish(self, host: _Host, size: int, records: bool) -> None:
        host.busy = False
        if records:
            host.waiting -= size
            self.done += size
            acker = self._hosts[int(self._draw.integers(len(self._hosts)))]
            # Of the root: what it has created, and that it is done.
            acks = round(size * (1 + 2 / WORDS_PER_ROOT))
            self._later(partial(self._arrive, acker, acks, False))
        self._step(host)


def linearity(peaks: list[Peak]) -> float:
    """Return the throughput of each reducer with the most reducers, as a part of that with the fewest."""
    first, last = min(peaks, key=lambda one: one.reducers), max(peaks, key=lambda one: one.reducers)
    return last.rate / last.reducers / (first.rate / first.reducers)
