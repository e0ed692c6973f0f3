"""The side of a mapper: which nodes get which messages."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from goffish.streaming.ring.messages import Longs, Marker, Signal, Tuples
from goffish.streaming.ring.ranges import Positions
from goffish.streaming.ring.view import View


@dataclass
class Lane:
    """A sequence of messages that can be sent again from earlier positions, such as a partition of a source.

    Attributes
    ----------
    lane : int
        Its id.
    life : int
        Number of restarts.
    number : int
        Sequence number of the last message; one that restarts at a position of its source continues with the number
        that it had there.
    """

    lane: int
    life: int = 0
    number: int = 0


class Sender:
    """Multicasts keyed messages to owners, secondaries and shadows.

    Parameters
    ----------
    mapper : int
        Id of the sender, one of ``view.senders``.
    view : View
    """

    def __init__(self, mapper: int, view: View) -> None:
        self.mapper, self.view = mapper, view

    def start(self) -> list[tuple[int, Marker]]:
        """Return the first message to each node."""
        return [(node, Marker(self.mapper, self.view.epoch)) for node in self.view.receivers]

    def signal(self, content: Any) -> list[tuple[int, Signal]]:
        """Return the signal for each node."""
        return [(node, Signal(self.mapper, self.view.epoch, content)) for node in self.view.receivers]

    def send(self, lane: Lane, positions: Positions, payload: Any, stamps: Longs) -> list[tuple[int, Tuples]]:
        """Return the messages to each node.

        Parameters
        ----------
        lane : Lane
        positions : uint64, shape (n,)
        payload : Column
            n rows.
        stamps : int64, shape (n,)
            Time now, in microseconds.
        """
        count = len(positions)
        numbers = np.arange(lane.number + 1, lane.number + 1 + count)
        lane.number += count
        tuples = Tuples(lane.lane, lane.life, self.view.epoch, numbers, stamps, positions, payload)
        sent = [(node, part) for owner, part in self._by_owner(tuples) for node in self.view.holders[owner]]
        for node, ranges in self.view.shadows.items():
            part = tuples.where(ranges.contains(positions))
            if len(part.numbers):
                sent.append((node, part))
        return sent

    def _by_owner(self, tuples: Tuples) -> list[tuple[int, Tuples]]:
        """Return the messages of each owner; what several nodes receive is the same object."""
        owners = self.view.owners(tuples.positions)
        first = int(owners[0]) if len(owners) else 0
        if (owners == first).all():
            return [(first, tuples)] if len(owners) else []
        order = np.argsort(owners, kind="stable")
        ordered = owners[order]
        bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
        return [(int(ordered[begin]), tuples.take(order[begin:end])) for begin, end in itertools.pairwise(bounds)]

    def follow(self, view: View) -> list[tuple[int, Marker]]:
        """Use a newer view, and return the marker for each node."""
        if view.epoch <= self.view.epoch:
            return []
        self.view = view
        return self.start()
