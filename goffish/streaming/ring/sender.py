"""The side of a mapper: which nodes get which messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from goffish.streaming.ring.messages import Longs, Marker, Signal, Tuples
from goffish.streaming.ring.ranges import Positions
from goffish.streaming.ring.view import View


class Sender:
    """Numbers keyed messages and multicasts them to owners, secondaries and shadows.

    Parameters
    ----------
    mapper : int
        Id of the sender, one of ``view.mappers``.
    view : View
    number, life : int, optional
        Sequence number of the last message that was sent before, and number of restarts: a mapper that restarts at a
        position of its source continues with the number that it had there.
    """

    def __init__(self, mapper: int, view: View, number: int = 0, life: int = 0) -> None:
        self.mapper, self.view, self.number, self.life = mapper, view, number, life

    def start(self) -> list[tuple[int, Marker]]:
        """Return the first message to each node."""
        return [(node, Marker(self.mapper, self.life, self.view.epoch)) for node in self.view.receivers]

    def signal(self, content: Any) -> list[tuple[int, Signal]]:
        """Return the signal for each node."""
        signal = Signal(self.mapper, self.life, self.view.epoch, content)
        return [(node, signal) for node in self.view.receivers]

    def send(self, positions: Positions, payload: Any, stamps: Longs) -> list[tuple[int, Tuples]]:
        """Return the messages to each node.

        Parameters
        ----------
        positions : uint64, shape (n,)
        payload : Column
            n rows.
        stamps : int64, shape (n,)
            Time now, in microseconds.
        """
        count = len(positions)
        numbers = np.arange(self.number + 1, self.number + 1 + count)
        self.number += count
        tuples = Tuples(self.mapper, self.life, self.view.epoch, numbers, stamps, positions, payload)
        parts = (
            (node, tuples.where(self.view.covered(node).contains(positions))) for node in sorted(self.view.receivers)
        )
        return [(node, part) for node, part in parts if len(part.numbers)]

    def follow(self, view: View) -> list[tuple[int, Marker]]:
        """Use a newer view, and return the marker for each node."""
        if view.epoch <= self.view.epoch:
            return []
        self.view = view
        return self.start()
