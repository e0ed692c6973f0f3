"""Messages that a node keeps for positions that another node owns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
        newest: dict[int, int] = {}
        unique = []
        for tuples in sorted(taken, key=lambda t: (t.lane, int(t.numbers[0]) if len(t.numbers) else 0)):
            fresh = tuples.where(tuples.numbers > newest.get(tuples.lane, -1))
            if len(fresh.numbers):
                newest[tuples.lane] = int(fresh.numbers[-1])
                unique.append(fresh)
        return unique

    def _select(self, rows: Callable[[Tuples], NDArray[np.bool_]]) -> None:
        kept = (tuples.where(rows(tuples)) for tuples in self._kept)
        self._kept = [tuples for tuples in kept if len(tuples.numbers)]
