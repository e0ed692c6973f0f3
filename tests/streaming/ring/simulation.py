"""Mappers and nodes of a ring in virtual time, with delays, failures and a count of what every message did.

Every message has an id. The state of a key is the list of ids that it has seen, so that loss and repetition are exact.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from goffish.streaming.ring.messages import Longs, Marker, Message, Signal, Tuples
from goffish.streaming.ring.node import Node
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import CIRCLE, Ranges
from goffish.streaming.ring.sender import Lane, Sender
from goffish.streaming.ring.view import Member, MemoryRegistry, View


@dataclass
class Ids:
    """Payload: the id of each message."""

    ids: Longs

    def take(self, rows: Longs) -> Ids:
        return Ids(self.ids[rows])

    def joins(self, other: Ids) -> bool:
        return True

    def joined(self, others: Sequence[Ids]) -> Ids:
        return Ids(np.concatenate([one.ids for one in (self, *others)]))

    def __len__(self) -> int:
        return len(self.ids)


class Seen:
    """State: the ids that each position has seen, in order."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[int, ...]] = {}
        self._changed: set[int] = set()
        self.signals: dict[int, Any] = {}
        self.signalled: Callable[[int, Any], None] = lambda mapper, content: None

    def signal(self, mapper: int, content: Any) -> None:
        self.signals[mapper] = content
        self.signalled(mapper, content)

    def context(self) -> dict[int, Any]:
        return dict(self.signals)

    def apply(self, tuples: Tuples, context: Any) -> None:
        for position, number in zip(tuples.positions.tolist(), tuples.payload.ids.tolist(), strict=True):
            self.entries[position] = (*self.entries.get(position, ()), number)
            self._changed.add(position)

    def reached(self, lane: int) -> int:
        return int(self.signals.get(lane, 0))

    def resume(self) -> None: ...

    def collect(self) -> dict[int, tuple[int, ...]]:
        changed = {position: self.entries[position] for position in self._changed if position in self.entries}
        self._changed.clear()
        return changed

    def extract(self, ranges: Ranges) -> dict[int, tuple[int, ...]]:
        return {position: ids for position, ids in self.entries.items() if _within(position, ranges)}

    def install(self, delta: dict[int, tuple[int, ...]], ranges: Ranges) -> None:
        self.entries |= {position: ids for position, ids in delta.items() if _within(position, ranges)}

    def activate(self, ranges: Ranges, lost: Collection[int]) -> None: ...

    def deactivate(self, ranges: Ranges) -> None: ...

    def discard(self, ranges: Ranges) -> None:
        gone = [position for position in self.entries if _within(position, ranges)]
        for position in gone:
            del self.entries[position]
            self._changed.discard(position)


def _within(position: int, ranges: Ranges) -> bool:
    return any(start <= position < stop for start, stop in ranges)


def evenly(count: int, replication: int, mappers: Iterable[int], zones: int = 1) -> View:
    """Return a ring of nodes 0, 1, … at equal distances."""
    members = (Member(node, node * CIRCLE // count, f"zone {node % zones}") for node in range(count))
    return View(1, tuple(members), replication, frozenset(mappers))


class Ring:
    """A ring under load.

    Parameters
    ----------
    nodes, replication, mappers : int
    options : Options
    seed : int
    rate : float
        Messages per second of each mapper.
    service_s : float or callable
        Time that a message takes; a function gets node, thread and tuples.
    latency_s : (float, float)
        Bounds of the delay of a message.
    skew_s : float
        Greatest difference of a mapper's clock from true time.
    delay : callable, optional
        Extra delay of a channel: ``delay(sender, receiver, message)``.
    """

    def __init__(
        self,
        nodes: int,
        replication: int,
        *,
        mappers: int = 3,
        options: Options | None = None,
        seed: int = 0,
        rate: float = 400.0,
        keys: int = 200,
        service_s: float | Callable[[int, int, Tuples], float] = 2e-4,
        latency_s: tuple[float, float] = (1e-4, 2e-3),
        skew_s: float = 0.0,
        delay: Callable[[int, int, Message], float] | None = None,
        zones: int = 1,
    ) -> None:
        self.random = random.Random(seed)
        self.options = options or Options()
        self.rate, self.service_s, self.latency_s = rate, service_s, latency_s
        self.delay = delay
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._last: dict[tuple[int, int], float] = {}
        self.registry = MemoryRegistry(evenly(nodes, replication, range(1000, 1000 + mappers), zones))
        self.positions = np.array([self.random.randrange(CIRCLE) for _ in range(keys)], dtype=np.uint64)
        self.nodes: dict[int, Node] = {}
        self.dead: set[int] = set()
        self.died: dict[int, float] = {}
        self.sent: dict[int, int] = {}  # id to position
        self.senders: dict[int, Sender] = {}
        self.lanes: dict[int, Lane] = {}
        self.log: dict[int, list[int]] = {}  # ids by mapper and number
        self._cut: dict[tuple[int, int], float] = {}  # when the last message of a mapper's earlier lives arrives
        self._busy: set[tuple[int, int]] = set()
        self.skew = {m: self.random.uniform(-skew_s / 2, skew_s / 2) for m in range(1000, 1000 + mappers)}
        self.emitting = True
        self.lose: Callable[[int, int, Message], bool] = lambda sender, receiver, message: False
        self.watch: Callable[[int, Node, int, Message], None] = lambda *_: None
        self.weights: list[float] | None = None
        for node in range(nodes):
            self.add(node)
        for mapper in self.skew:
            self.senders[mapper] = sender = Sender(mapper, self.registry.read())
            self._post(mapper, sender.start())
            self.log[mapper] = []
            self.lanes[mapper] = Lane(mapper)
            self.at(self.random.random() / rate, partial(self._emit, mapper))
            self.at(self.random.random() * 0.01, partial(self._follow, mapper))

    def add(self, node: int) -> None:
        """Start a node's process."""
        self.nodes[node] = Node(node, self.registry, Seen(), self.options, self.now)
        self.at(self.now + self.random.random() * 0.03, lambda: self._tick(node))

    def kill(self, *nodes: int) -> None:
        """Kill nodes: what they have sent arrives or not, in order."""
        for node in nodes:
            self.dead.add(node)
            self.died[node] = self.now + self.random.choice((0.0, self.latency_s[1]))

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (time, next(self._order), action))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    def drain(self, seconds: float = 8.0) -> None:
        """Send nothing more, and let the nodes finish."""
        self.emitting = False
        self.run(self.now + seconds)

    def _emit(self, mapper: int) -> None:
        if not self.emitting:
            return
        count = self.random.choice((1, 1, 2, 5))
        ids = np.arange(len(self.sent), len(self.sent) + count)
        picked = np.array(self.random.choices(range(len(self.positions)), self.weights, k=count))
        positions = self.positions[picked]
        self.sent.update(zip(ids.tolist(), positions.tolist(), strict=True))
        self.log[mapper] += ids.tolist()
        stamp = round((self.now + self.skew[mapper]) * 1e6)
        sender = self.senders[mapper]
        self._post(mapper, sender.send(self.lanes[mapper], positions, Ids(ids), np.full(count, stamp)))
        self.at(self.now + count * self.random.expovariate(self.rate), lambda: self._emit(mapper))

    def restart(self, mapper: int, behind: int) -> None:
        """Kill a mapper and start it again at an earlier position; what it had sent arrives or not, in order."""
        for node in self.nodes:
            self._cut[mapper, node] = self.now + self.random.uniform(-1, 2) * self.latency_s[1]
            self._last.pop((mapper, node), None)
        old = self.lanes[mapper]
        number = max(0, old.number - behind)
        self.senders[mapper] = sender = Sender(mapper, self.view)
        self.lanes[mapper] = lane = Lane(mapper, old.life + 1, number)
        self._post(mapper, sender.start())
        ids = np.array(self.log[mapper][number:], dtype=np.int64)
        for some in np.array_split(ids, max(1, len(ids) // 3)):
            positions = np.array([self.sent[i] for i in some.tolist()], dtype=np.uint64)
            stamps = np.full(len(some), round((self.now + self.skew[mapper]) * 1e6))
            self._post(mapper, sender.send(lane, positions, Ids(some), stamps))

    def _follow(self, mapper: int) -> None:
        sender = self.senders[mapper]
        for view in self.registry.since(sender.view.epoch):
            self._post(mapper, sender.follow(view))
        self.at(self.now + self.random.uniform(0.002, 0.03), lambda: self._follow(mapper))

    def _post(self, sender: int, messages: Iterable[tuple[int, Any]]) -> None:
        for receiver, message in messages:
            if self.lose(sender, receiver, message):
                continue
            extra = self.delay(sender, receiver, message) if self.delay else 0.0
            arrival = self.now + self.random.uniform(*self.latency_s) + extra
            arrival = max(arrival, self._last.get((sender, receiver), 0.0) + 1e-9)
            self._last[sender, receiver] = arrival
            life = self.lanes[sender].life if sender in self.lanes else 0
            self.at(arrival, partial(self._arrive, sender, receiver, message, life))

    def _arrive(self, sender: int, receiver: int, message: Message, life: int) -> None:
        if receiver in self.dead or receiver not in self.nodes or self.now > self.died.get(sender, np.inf):
            return
        if sender in self.lanes and life < self.lanes[sender].life and self.now > self._cut[sender, receiver]:
            return
        node = self.nodes[receiver]
        self.watch(sender, node, receiver, message)
        if receiver in self.dead:
            return
        node.receive(sender, message, self.now)
        self._after(receiver)

    def _after(self, number: int) -> None:
        node = self.nodes[number]
        out, node.outbox = node.outbox, []
        self._post(number, out)
        for thread in range(self.options.threads):
            if (number, thread) not in self._busy:
                self._serve(number, thread)

    def _serve(self, number: int, thread: int) -> None:
        node = self.nodes[number]
        queue = node._queues[thread]
        tuples = next((item.tuples for item in queue if not isinstance(item, Marker | Signal)), None)
        if tuples is None and not queue:
            return
        taken = 0.0
        if tuples is not None:
            each = self.service_s(number, thread, tuples) if callable(self.service_s) else self.service_s
            taken = each * len(tuples.numbers)
        self._busy.add((number, thread))

        def finish() -> None:
            self._busy.discard((number, thread))
            if number not in self.dead:
                node.work(thread, self.now)
                self._after(number)

        self.at(self.now + taken, finish)

    def _tick(self, number: int) -> None:
        if number in self.dead:
            return
        node = self.nodes[number]
        node.tick(self.now)
        self._after(number)
        self.at(self.now + self.random.uniform(0.02, 0.05), lambda: self._tick(number))

    # What came of it.

    @property
    def view(self) -> View:
        return self.registry.read()

    def events(self, kind: str) -> list[tuple[int, float, Ranges]]:
        """Return node, time and positions of all events of a kind."""
        found = [(n, e.time, e.ranges) for n, node in self.nodes.items() for e in node.events if e.kind == kind]
        return sorted(found, key=lambda event: event[1])

    def counted(self) -> Counter[int]:
        """Return how often each id counts in the states of the owners."""
        counts: Counter[int] = Counter()
        owners = self.view.owners(self.positions).tolist()
        for position, owner in zip(self.positions.tolist(), owners, strict=True):
            if owner not in self.dead:
                counts.update(self.nodes[owner].state.entries.get(position, ()))
        return counts

    @property
    def missing(self) -> set[int]:
        """Ids that no owner has seen."""
        return self.sent.keys() - self.counted().keys()

    @property
    def repeated(self) -> int:
        """Number of times that messages count too often."""
        return sum(count - 1 for count in self.counted().values())
