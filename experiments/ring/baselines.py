"""Upstream backup with acknowledgements, with states in local memory or in an external store.

As in Storm: every root message has an id, and an acker keeps the XOR of the ids of all records that were created and
processed because of it. The source keeps a root until that is zero, and sends it again after a timeout. Keys belong to
reducers by their hash modulo the number of reducers, which is fixed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from experiments.ring.simulation import LATENCY, Events

#: Storm's default.
TIMEOUT_S = 30.0
#: Time until a reducer that has failed is started elsewhere.
RESTART_S = 1.0


class Acker:
    """Finds out when everything that a root has led to is processed."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def update(self, root: int, value: int) -> bool:
        """Add ids that were created or processed, joined by XOR; return whether the root is done."""
        left = self._open.pop(root, 0) ^ value
        if left:
            self._open[root] = left
        return not left


class Buffer:
    """Roots that a source has sent and that are not done.

    Parameters
    ----------
    timeout_s : float
        Time after which a root is sent again.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout = timeout_s
        self._sent: dict[int, tuple[float, int]] = {}  # by attempt: when it is due, and the message

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, root: int, message: int, now: float) -> None:
        """Keep a message that was sent as a root."""
        self._sent[root] = (now + self._timeout, message)

    def done(self, root: int) -> None:
        """Drop a root."""
        self._sent.pop(root, None)

    def due(self, now: float) -> Iterator[int]:
        """Remove and yield the messages that are to be sent again."""
        while self._sent:
            root, (due, message) = next(iter(self._sent.items()))  # the oldest comes first
            if due > now:
                return
            del self._sent[root]
            yield message


class Record(NamedTuple):
    """A word of a message: its place there, its id and that of its root."""

    message: int
    place: int
    word: int
    id: int
    root: int

    @property
    def name(self) -> tuple[int, int]:
        """What identifies the record in all attempts."""
        return self.message, self.place


@dataclass
class Reducer:
    """The records that count in the state of each word, which an external store keeps or the reducer does."""

    state: Counter[tuple[int, int]] = field(default_factory=Counter)
    free_at: float = 0.0
    down_until: float = 0.0
    life: int = 0


class UpstreamBackup(Events):
    """A word count with upstream backup in virtual time, of which every record is followed.

    Parameters
    ----------
    reducers : int
    text : sequence of sequences of int
        Words of each message.
    rate : float
        Messages per second.
    count_s : float
        Time that a reducer takes for a record.
    store_s : float, optional
        Time of reading and writing the state of a word in an external store [default: states are local].
    seed : int
    """

    def __init__(
        self,
        reducers: int,
        text: Sequence[Sequence[int]],
        *,
        rate: float,
        count_s: float,
        store_s: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._text, self._count_s, self._external = text, count_s, store_s is not None
        self._count_s += store_s or 0.0
        self._reducers = [Reducer() for _ in range(reducers)]
        self._acker, self._buffer = Acker(), Buffer()
        self._store: Counter[tuple[int, int]] = Counter()
        #: Records that some reducer has processed.
        self.processed: set[tuple[int, int]] = set()
        self.replayed = 0  # messages
        for number in range(len(text)):
            self.at(number / rate, partial(self._emit, number))
        self.at(0.0, self._tick)

    def _later(self, action: Callable[[], None]) -> None:
        self.at(self.now + self._random.uniform(*LATENCY), action)

    def _emit(self, message: int) -> None:
        root = self._random.getrandbits(64)
        self._buffer.add(root, message, self.now)
        created = 0
        for place, word in enumerate(self._text[message]):
            record = Record(message, place, word, self._random.getrandbits(64), root)
            created ^= record.id
            self._later(partial(self._arrive, record))
        self._later(partial(self._acknowledge, root, created))

    def _arrive(self, record: Record) -> None:
        reducer = self._reducers[record.word % len(self._reducers)]
        if self.now < reducer.down_until:
            return
        reducer.free_at = max(reducer.free_at, self.now) + self._count_s
        self.at(reducer.free_at, partial(self._count, reducer, record, reducer.life))

    def _count(self, reducer: Reducer, record: Record, life: int) -> None:
        if life != reducer.life:
            return  # it was waiting in a reducer that has failed
        (self._store if self._external else reducer.state)[record.name] += 1
        self.processed.add(record.name)
        self._later(partial(self._answer, reducer, record, life))

    def _answer(self, reducer: Reducer, record: Record, life: int) -> None:
        if life == reducer.life:  # otherwise it was not sent yet
            self._acknowledge(record.root, record.id)

    def _acknowledge(self, root: int, value: int) -> None:
        if self._acker.update(root, value):
            self._buffer.done(root)

    def _tick(self) -> None:
        for message in self._buffer.due(self.now):
            self.replayed += 1
            self._emit(message)
        self.at(self.now + 0.1, self._tick)

    def kill(self, number: int) -> None:
        """Let a reducer fail; it starts again elsewhere, without what it had in memory."""
        reducer = self._reducers[number]
        reducer.life += 1
        reducer.state = Counter()
        reducer.free_at = reducer.down_until = self.now + RESTART_S

    @property
    def open(self) -> int:
        """Messages that are not done."""
        return len(self._buffer)

    def counted(self) -> Counter[tuple[int, int]]:
        """Return how often each record counts in the states."""
        return sum((one.state for one in self._reducers), self._store.copy())
