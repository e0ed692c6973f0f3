"""A word count on a ring in virtual time: the nodes of the package, with processor times for what they do.

A host has one processor. It receives messages before it processes records, and everything takes the time that `Costs`
state: messages, records that are read or kept for another node, records that are counted, entries of a state that are
captured or installed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.ring.costs import Costs
from goffish.streaming.ring.messages import Checkpoint, Longs, Message, Tuples
from goffish.streaming.ring.node import Event, Node
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import CIRCLE, Positions, Ranges
from goffish.streaming.ring.sender import Lane, Sender
from goffish.streaming.ring.view import Member, MemoryRegistry, View

#: Ids of mappers begin here.
MAPPERS = 1000
#: Delay of a message, uniform, in seconds.
LATENCY = (1e-4, 1e-3)
_TICK_S, _LOAD_S = 0.01, 0.5


class Events:
    """Actions in virtual time, those of one moment in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._planned: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Plan an action."""
        heapq.heappush(self._planned, (time, next(self._order), action))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._planned and self._planned[0][0] <= until:
            self.now, _, action = heapq.heappop(self._planned)
            action()
        self.now = until


@dataclass
class Words:
    """Payload: the number of each word."""

    words: Longs

    def take(self, rows: Longs) -> Words:
        return Words(self.words[rows])

    def joins(self, other: Words) -> bool:
        return True

    def joined(self, others: Sequence[Words]) -> Words:
        return Words(np.concatenate([one.words for one in (self, *others)]))

    def __len__(self) -> int:
        return len(self.words)


_Counts = tuple[Longs, Longs]


class WordCounts:
    """State: how often each word was seen, for own words and for copies.

    Parameters
    ----------
    vocabulary : uint64 array
        Position of each word.

    Attributes
    ----------
    moved : int
        Entries that were captured or installed since the owner of this object has set it to 0.
    """

    def __init__(self, vocabulary: Positions) -> None:
        self._vocabulary = vocabulary
        self.counts = np.zeros(len(vocabulary), dtype=np.int64)
        self._changed = np.zeros(len(vocabulary), dtype=np.bool_)
        self.moved = 0

    def apply(self, tuples: Tuples, context: Any) -> None:
        words = tuples.payload.words
        np.add.at(self.counts, words, 1)
        self._changed[words] = True

    def signal(self, mapper: int, content: Any) -> None: ...

    def context(self) -> None:
        return None

    def reached(self, lane: int) -> int:
        return 0

    def resume(self) -> None: ...

    def collect(self) -> _Counts:
        found = np.flatnonzero(self._changed)
        self._changed[:] = False
        return self._captured(found)

    def extract(self, ranges: Ranges) -> _Counts:
        return self._captured(np.flatnonzero(ranges.contains(self._vocabulary) & (self.counts > 0)))

    def _captured(self, found: Longs) -> _Counts:
        self.moved += len(found)
        return found, self.counts[found]

    def install(self, delta: _Counts, ranges: Ranges) -> None:
        words, counts = delta
        inside = ranges.contains(self._vocabulary[words])
        self.counts[words[inside]] = counts[inside]
        self.moved += int(inside.sum())

    def activate(self, ranges: Ranges, lost: Collection[int]) -> None: ...

    def deactivate(self, ranges: Ranges) -> None: ...

    def discard(self, ranges: Ranges) -> None:
        gone = ranges.contains(self._vocabulary)
        self.counts[gone] = 0
        self._changed[gone] = False


def zipf(words: int, exponent: float = 1.05) -> NDArray[np.float64]:
    """Return the shares of words in a text, by rank; 0 as the exponent makes them equal."""
    shares: NDArray[np.float64] = np.arange(2.0, words + 2.0) ** -exponent
    shares /= shares.sum()
    return shares


@dataclass
class Host:
    """A node with its processor."""

    node: Node
    state: WordCounts
    inbox: deque[tuple[int, Message]] = field(default_factory=deque)
    waiting: int = 0  # records in the inbox
    busy: bool = False
    owed: float = 0.0  # seconds of work that the next step takes longer
    occupied: float = 0.0
    done: int = 0  # records that were counted
    checkpointed: float = 0.0
    load: deque[tuple[float, float]] = field(default_factory=deque)

    @property
    def backlog(self) -> int:
        """Records that have arrived and are not counted."""
        return self.waiting + self.node.queued


class Ring(Events):
    """A word count on a ring.

    Parameters
    ----------
    nodes, replication : int
    costs : Costs
    options : Options
    shares : float64 array
        Share of each word in the text.
    mappers : int
    quantum : int
        Greatest number of records that a host processes before it looks for messages.
    seed : int

    Attributes
    ----------
    events : list of (int, Event)
        What nodes have reported, with the time at which the processor had done it.
    sent : int64 array
        Number of times that each word was sent.
    """

    def __init__(
        self,
        nodes: int,
        replication: int,
        costs: Costs,
        *,
        options: Options,
        shares: NDArray[np.float64],
        mappers: int = 3,
        quantum: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._random, self.draw = random.Random(seed), np.random.default_rng(seed)
        self.costs, self.options, self.shares, self._quantum = costs, options, shares, quantum
        self._bounds = np.cumsum(shares)
        self._bounds /= self._bounds[-1]
        self.vocabulary = self.draw.integers(0, CIRCLE, len(shares), dtype=np.uint64)
        names = range(MAPPERS, MAPPERS + mappers)
        members = tuple(Member(node, node * CIRCLE // nodes) for node in range(nodes))
        self.registry = MemoryRegistry(View(1, members, replication, frozenset(names)))
        self.hosts: dict[int, Host] = {}
        self.dead: set[int] = set()
        self.events: list[tuple[int, Event]] = []
        self.sent = np.zeros(len(shares), dtype=np.int64)
        self._last: dict[tuple[int, int], float] = {}
        for node in range(nodes):
            self.add(node)
        self._senders = {name: Sender(name, self.registry.read()) for name in names}
        self._lanes = {name: Lane(name) for name in names}
        for name, sender in self._senders.items():
            self._post(name, sender.start())

    def add(self, number: int) -> None:
        """Start a host; its node waits for positions if it is not on the ring."""
        state = WordCounts(self.vocabulary)
        self.hosts[number] = Host(Node(number, self.registry, state, self.options, self.now), state)
        self.at(self.now + self._random.random() * _TICK_S, partial(self._tick, number))

    def kill(self, number: int) -> None:
        """Let a host fail."""
        self.dead.add(number)

    @property
    def view(self) -> View:
        """The newest view."""
        return self.registry.read()

    def share(self, number: int) -> float:
        """Return the share of the text whose words a node owns."""
        return float(self.shares[self.view.interval(number).contains(self.vocabulary)].sum())

    def count(self) -> NDArray[np.int64]:
        """Return how often each word counts in the states of the owners."""
        owners = self.view.owners(self.vocabulary)
        counts = np.zeros(len(owners), dtype=np.int64)
        for number in set(owners.tolist()) - self.dead:
            mine = owners == number
            counts[mine] = self.hosts[number].state.counts[mine]
        return counts

    # Mappers.

    def emit(self, rate: Callable[[float], float], every_s: float = 0.01) -> None:
        """Let the mappers send words at a rate, in records per second, that depends on time."""
        for name in self._senders:
            self.at(self.now + self._random.random() * every_s, partial(self._emit, name, rate, every_s))

    def _emit(self, name: int, rate: Callable[[float], float], every_s: float) -> None:
        self.send(name, int(self.draw.poisson(rate(self.now) * every_s / len(self._senders))))
        self.at(self.now + every_s, partial(self._emit, name, rate, every_s))

    def send(self, name: int, count: int) -> None:
        """Let a mapper send words."""
        sender = self._senders[name]
        for view in self.registry.since(sender.view.epoch):
            self._post(name, sender.follow(view))
        if count:
            words = np.searchsorted(self._bounds, self.draw.random(count), side="right")
            np.add.at(self.sent, words, 1)
            stamps = np.full(count, round(self.now * 1e6))
            self._post(name, sender.send(self._lanes[name], self.vocabulary[words], Words(words), stamps))

    # Hosts.

    def _post(self, sender: int, messages: Iterable[tuple[int, Any]]) -> None:
        for receiver, message in messages:
            arrival = max(self.now + self._random.uniform(*LATENCY), self._last.get((sender, receiver), 0.0) + 1e-9)
            self._last[sender, receiver] = arrival
            self.at(arrival, partial(self._arrive, sender, receiver, message))

    def _arrive(self, sender: int, receiver: int, message: Message) -> None:
        if receiver in self.dead:
            return
        host = self.hosts[receiver]
        host.inbox.append((sender, message))
        if isinstance(message, Tuples):
            host.waiting += len(message.numbers)
        self._step(receiver)

    def _step(self, number: int) -> None:
        """Let an idle processor do the next thing."""
        host = self.hosts[number]
        if host.busy or number in self.dead:
            return
        seconds, host.owed = host.owed, 0.0
        if host.inbox:
            sender, message = host.inbox.popleft()
            seconds += self._received(host, sender, message)
        elif count := host.node.work(0, self.now, self._quantum):
            host.done += count
            seconds += count * self.costs.count_s
        elif not seconds and not host.node.outbox:
            return
        seconds += self._moved(host)
        host.busy = True
        host.occupied += seconds
        self.at(self.now + seconds, partial(self._finish, number))

    def _received(self, host: Host, sender: int, message: Message) -> float:
        seconds = self.costs.message_s
        if isinstance(message, Tuples):
            size = len(message.numbers)
            own = int(host.node.owned.contains(message.positions).sum())
            host.waiting -= size
            seconds += own * self.costs.read_s + (size - own) * self.costs.keep_s
        host.node.receive(sender, message, self.now)
        return seconds

    def _moved(self, host: Host) -> float:
        """Return the time that the entries of a state have taken."""
        moved, host.state.moved = host.state.moved, 0
        return moved * self.costs.entry_s

    def _finish(self, number: int) -> None:
        host = self.hosts[number]
        host.busy = False
        if number in self.dead:
            return
        self._flush(number, host)
        self._step(number)

    def _flush(self, number: int, host: Host) -> None:
        self.events += [(number, event._replace(time=self.now)) for event in host.node.events]
        host.node.events.clear()
        out, host.node.outbox = host.node.outbox, []
        if any(isinstance(message, Checkpoint) for _, message in out):
            host.checkpointed = self.now
        self._post(number, out)

    def _tick(self, number: int) -> None:
        if number in self.dead:
            return
        host = self.hosts[number]
        host.load.append((self.now, host.occupied))
        while host.load[0][0] < self.now - _LOAD_S:
            host.load.popleft()
        (begun, before), (end, after) = host.load[0], host.load[-1]
        host.node.cpu = min(1.0, (after - before) / (end - begun)) if end > begun else 0.0
        host.node.tick(self.now)
        host.owed += self._moved(host)
        if not host.busy:
            self._flush(number, host)
        self._step(number)
        self.at(self.now + _TICK_S * self._random.uniform(0.9, 1.1), partial(self._tick, number))

    def times(self, kind: str, node: int | None = None) -> list[float]:
        """Return the times of all events of a kind, of all nodes or of one."""
        return [event.time for number, event in self.events if event.kind == kind and node in (None, number)]
