"""What operators with a key send to other workers: it is held until a checkpoint contains it.

An operator that fails is repeated from a checkpoint, in which records of several lanes can come in another order. What
it had sent after that checkpoint would not match what it sends then.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from goffish.streaming.ring.ranges import Positions
from goffish.streaming.ring.sender import Lane
from goffish.streaming.runtime.packing import Records
from goffish.streaming.runtime.plan import Mark


class Sent(NamedTuple):
    """What was sent between two checkpoints.

    Attributes
    ----------
    serial : int
        Number of the second one.
    mark : Mark
        Progress of the lane after it.
    parts : bytes
        Pickle of a list of (number of the last message before, positions, records), which only a worker that takes the
        lane over needs.
    """

    serial: int
    mark: Mark
    parts: bytes


class OutputCopy(NamedTuple):
    """What checkpoints hold of an output; all that is sent is counted from 0.

    Attributes
    ----------
    life, number : int
        Life of the lane, and the number of its last message.
    first : int
        The first that is still needed.
    begin : int
        First of `sent`; more than `first` if copies have those between.
    sent : tuple of Sent
    """

    life: int = 0
    number: int = 0
    first: int = 0
    begin: int = 0
    sent: tuple[Sent, ...] = ()

    def after(self, earlier: OutputCopy) -> OutputCopy:
        """Return the copy that follows from an earlier one; incomplete if the rest is still to come."""
        if self.begin == self.first or earlier.begin + len(earlier.sent) != self.begin:
            return self
        begin = max(self.first, earlier.begin)
        return self._replace(begin=begin, sent=earlier.sent[begin - earlier.begin :] + self.sent)

    @property
    def entries(self) -> dict[int | None, Any]:
        """Values for a checkpoint in a folder, each of which is written once."""
        return {None: self._replace(begin=self.first, sent=()), **dict(enumerate(self.sent, self.begin))}

    @classmethod
    def read(cls, entries: Mapping[int | None, Any]) -> OutputCopy:
        """Return the copy of the values of all checkpoints; those that later ones do not need may be among them."""
        head: OutputCopy = entries[None]
        places = sorted(place for place in entries if place is not None and place >= head.first)
        return head._replace(sent=tuple(entries[place] for place in places))


class Output:
    """The lane of what the operators of a worker with a key send.

    Parameters
    ----------
    lane : Lane
    mark : Mark
        Its progress until now.
    copy : OutputCopy, optional
        Of a worker that is gone: it sends nothing after that.

    Attributes
    ----------
    mark : Mark
        Progress of what was released.
    number : int
        Of the last message that was sealed or sent.
    held : int
        Messages that are not in a checkpoint.
    closing : bool
        Whether the last mark of a worker that is gone is still to be sealed.
    sealed_mark : Mark or None
        The last one.
    """

    def __init__(self, lane: Lane, mark: Mark, copy: OutputCopy | None = None) -> None:
        self.lane, self.mark = lane, mark
        self.closing = copy is not None
        copy = copy or OutputCopy()
        assert copy.begin == copy.first, "a part of the copy is missing"
        self.number, self._first, self._acknowledged = copy.number, copy.first, 0
        self.held = 0
        self._parts: list[tuple[int, Positions, Records]] = []
        self._sealed = deque(copy.sent)  # not acknowledged by all nodes
        self._unreleased = deque(pickle.loads(sent.parts) for sent in copy.sent)
        self._copied = copy.first
        self.sealed_mark: Mark | None = None

    @property
    def empty(self) -> bool:
        """Whether all nodes have acknowledged everything."""
        return not self._sealed

    @property
    def unacknowledged(self) -> int:
        """Number of messages that some nodes have not acknowledged."""
        return self.held + (self._sealed[-1].mark.number - self._acknowledged if self._sealed else 0)

    def hold(self, positions: Positions, records: Records) -> None:
        """Keep messages until a checkpoint contains them."""
        self._parts.append((self.number + self.held, positions, records))
        self.held += len(records)

    def seal(self, serial: int, mark: Mark) -> None:
        """Make what is held part of a checkpoint, after which the lane has a progress but for its number."""
        parts, self._parts = self._parts, []
        self.number, self.held = self.number + self.held, 0
        self.sealed_mark = mark._replace(number=self.number)
        self._sealed.append(Sent(serial, self.sealed_mark, pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)))
        self._unreleased.append(parts)

    def release(self, serial: int | None) -> Iterator[tuple[Positions, Records]]:
        """Iterate over what is sent once a checkpoint is confirmed; None for all of them."""
        while self._unreleased:
            sent = self._sealed[-len(self._unreleased)]
            if serial is not None and sent.serial > serial:
                return
            for number, positions, records in self._unreleased.popleft():
                self.lane.number = number
                yield positions, records
            self.mark = sent.mark._replace(life=self.lane.life)

    def forget(self, known: int) -> None:
        """Drop what is released and has numbers that all nodes have acknowledged."""
        self._acknowledged = known
        while len(self._sealed) > len(self._unreleased) and self._sealed[0].mark.number <= known:
            self._sealed.popleft()
            self._first += 1

    def copy(self) -> OutputCopy:
        """Return what a copy of this output needs."""
        return OutputCopy(self.lane.life, self.number, self._first, self._first, tuple(self._sealed))

    def added(self, *, whole: bool) -> OutputCopy:
        """Return what copies need that have everything until the last call, or nothing."""
        self._copied = 0 if whole else self._copied
        every = self.copy()
        begin = max(self._copied, self._first)
        self._copied = self._first + len(self._sealed)
        return every._replace(begin=begin, sent=every.sent[begin - self._first :])
