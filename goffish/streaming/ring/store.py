"""Messages that a node keeps for positions that another node owns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.ring.messages import Longs, Progress, Tuples
from goffish.streaming.ring.ranges import Positions, Ranges

_MIX = np.uint64(0x9E3779B97F4A7C15)


def thread_of(positions: Positions, threads: int) -> Longs:
    """Return the thread that processes each position: the same on every node, and independent of ranges."""
    if threads == 1:
        return np.zeros(len(positions), dtype=np.int64)
    return ((positions * _MIX >> np.uint64(33)) % np.uint64(threads)).astype(np.int64)


def _in_order(parts: list[Tuples]) -> Iterator[Tuples]:
    """Iterate over the messages of a lane, each once, in the order of their numbers.

    Parts overlap if they were sent to several owners, or again by a lane that has begun again.
    """
    numbers = np.concatenate([tuples.numbers for tuples in parts])
    part = np.repeat(np.arange(len(parts)), [len(tuples.numbers) for tuples in parts])
    row = np.concatenate([np.arange(len(tuples.numbers)) for tuples in parts])
    _, order = np.unique(numbers, return_index=True)
    begins = np.flatnonzero(np.diff(part[order], prepend=-1))
    for rows in np.split(order, begins[1:]):
        if len(rows):
            yield parts[part[rows[0]]].take(row[rows])


class BackupStore:
    """Messages that the checkpoints of their owners do not reflect yet, in order of arrival.

    Parameters
    ----------
    covers : callable
        ``covers(tuples, progress)`` returns which messages a state of some progress contains.
    """

    def __init__(self, covers: Callable[[Tuples, Progress], NDArray[np.bool_]]) -> None:
        self._covers = covers
        self._kept: list[Tuples] = []

    def __len__(self) -> int:
        return sum(len(tuples.numbers) for tuples in self._kept)

    def add(self, tuples: Tuples) -> None:
        """Keep messages."""
        if len(tuples.numbers):
            self._kept.append(tuples)

    def evict(self, pieces: Iterable[Progress]) -> None:
        """Drop messages that a checkpoint reflects."""
        for piece in pieces:
            self._select(lambda t, p=piece: ~(p.ranges.contains(t.positions) & self._covers(t, p)))  # type: ignore[misc]

    def keep(self, ranges: Ranges) -> None:
        """Drop messages outside of some ranges."""
        self._select(lambda tuples: ranges.contains(tuples.positions))

    def take(self, ranges: Ranges) -> list[Tuples]:
        """Remove and return the messages of some ranges, those of each lane once and in their order."""
        taken = [t.where(ranges.contains(t.positions)) for t in self._kept]
        self._select(lambda tuples: ~ranges.contains(tuples.positions))
        lanes: dict[int, list[Tuples]] = {}
        for tuples in taken:
            lanes.setdefault(tuples.lane, []).append(tuples)
        return [tuples for parts in lanes.values() for tuples in _in_order(parts)]

    def _select(self, rows: Callable[[Tuples], NDArray[np.bool_]]) -> None:
        masks = ((tuples, rows(tuples)) for tuples in self._kept)
        # To take no rows would unpack records that are still bytes.
        self._kept = [tuples.where(mask) for tuples, mask in masks if mask.any()]
