"""What mappers and nodes of a ring send to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.ring.ranges import NOTHING, Positions, Ranges

Longs = NDArray[np.int64]


class Column(Protocol):
    """Payload of messages: anything with rows that can be picked and joined."""

    def take(self, rows: Longs, /) -> Self:
        """Return some of the rows."""

    def joins(self, other: Self, /) -> bool:
        """Whether rows of both can be one column."""

    def joined(self, others: Sequence[Self], /) -> Self:
        """Return the rows of this column and of others."""

    def __len__(self) -> int: ...


class Tuples(NamedTuple):
    """Keyed messages of one lane, such as a partition of a source, in their order.

    Attributes
    ----------
    lane, life, epoch : int
        Lane; number of its restarts; the sender's view of the ring.
    numbers : int64, shape (n,)
        Sequence numbers within the lane, increasing.
    stamps : int64, shape (n,)
        Clock of the sender, in microseconds.
    positions : uint64, shape (n,)
        Ring position of each key.
    payload : Column
        n rows.
    """

    lane: int
    life: int
    epoch: int
    numbers: Longs
    stamps: Longs
    positions: Positions
    payload: Any

    def take(self, rows: Longs) -> Tuples:
        """Return some of the messages."""
        return Tuples(
            self.lane,
            self.life,
            self.epoch,
            self.numbers[rows],
            self.stamps[rows],
            self.positions[rows],
            self.payload.take(rows),
        )

    @staticmethod
    def join(parts: Sequence[Tuples]) -> Tuples:
        """Return the messages of several parts of a lane."""
        first, others = parts[0], parts[1:]
        return Tuples(
            first.lane,
            first.life,
            first.epoch,
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.stamps for part in parts]),
            np.concatenate([part.positions for part in parts]),
            first.payload.joined([part.payload for part in others]),
        )

    def where(self, mask: NDArray[np.bool_]) -> Tuples:
        """Return the messages that a mask selects."""
        return self if mask.all() else self.take(np.flatnonzero(mask))


class Marker(NamedTuple):
    """All messages of a mapper after this one follow its view of version `epoch`."""

    mapper: int
    epoch: int


class Signal(NamedTuple):
    """Something that takes effect after all earlier messages of a mapper, and before all later ones.

    Attributes
    ----------
    mapper, epoch : int
        Sender, and its view of the ring.
    content : object
        Such as a watermark.
    """

    mapper: int
    epoch: int
    content: Any


class Progress(NamedTuple):
    """Which messages the state of some positions contains.

    Attributes
    ----------
    ranges : Ranges
    marks : int64, shape (threads,)
        Greatest time stamp that each thread has processed, in microseconds.
    vectors : mapping of int to int64 of shape (threads,)
        Last sequence number of each lane that each thread has processed.
    context : object
        What the state had been signalled.
    """

    ranges: Ranges
    marks: Longs
    vectors: dict[int, Longs]
    context: Any = None


class Checkpoint(NamedTuple):
    """Changes of a node's state since its checkpoint before, for a node that holds a copy.

    Attributes
    ----------
    epoch, number, serial : int
        View of the sender; number of the checkpoint among those to this receiver, and among all of the sender.
    pieces : tuple of Progress
    deltas : tuple
        Changed entries.
    full : Ranges
        Positions of which the deltas hold the whole state, and after which the receiver's copy is complete.
    replaced : Ranges
        Positions of which the deltas hold the whole state, because the sender has just taken them over.
    handoff : Ranges
        Positions that the sender has stopped processing.
    waiting : tuple of Tuples
        Messages for the positions of `full` that the sender has not processed yet.
    """

    epoch: int
    number: int
    serial: int
    pieces: tuple[Progress, ...]
    deltas: tuple[Any, ...]
    full: Ranges = NOTHING
    replaced: Ranges = NOTHING
    handoff: Ranges = NOTHING
    waiting: tuple[Tuples, ...] = ()


class Copied(NamedTuple):
    """The receiver's checkpoint of this serial number has arrived."""

    epoch: int
    serial: int


class Heartbeat(NamedTuple):
    """Sent to the next node clockwise."""

    epoch: int


class Ping(NamedTuple):
    """Asks for a Pong."""

    epoch: int


class Pong(NamedTuple):
    """Answer to a Ping."""

    epoch: int


class SyncRequest(NamedTuple):
    """The sender's copy of these positions is incomplete after the checkpoint of this number."""

    epoch: int
    ranges: Ranges
    number: int


class SyncDone(NamedTuple):
    """The sender's copy of these positions is complete."""

    epoch: int
    ranges: Ranges


class BalanceRequest(NamedTuple):
    """Asks the next node clockwise to take positions of the sender over.

    Attributes
    ----------
    epoch, origin, hop : int
        View of the sender; node that is overloaded; number of requests since.
    leaves : bool
        Take all of its positions, as the sender is to leave.
    cpu : float
        CPU utilisation of the sender.
    """

    epoch: int
    origin: int
    hop: int
    leaves: bool = False
    cpu: float = 0.0


class BalanceReply(NamedTuple):
    """Answer to a BalanceRequest: "accept", "busy" or "full"."""

    epoch: int
    answer: str


Message = (
    Tuples
    | Marker
    | Signal
    | Checkpoint
    | Copied
    | Heartbeat
    | Ping
    | Pong
    | SyncRequest
    | SyncDone
    | BalanceRequest
    | BalanceReply
)
