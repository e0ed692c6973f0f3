"""Sets of ring positions, as half-open ranges of unsigned 64-bit integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Number of positions on the ring.
CIRCLE = 1 << 64

Positions = NDArray[np.uint64]


@dataclass(frozen=True)
class Ranges:
    """A set of positions.

    Attributes
    ----------
    parts : tuple of (int, int)
        Ranges ``[start, stop)`` with ``0 <= start < stop <= 2**64``, ascending and disjoint.

    Examples
    --------
    >>> Ranges.arc(10, 20) - Ranges.arc(12, 15)
    Ranges(parts=((10, 12), (15, 20)))
    >>> Ranges.arc(20, 10).size == CIRCLE - 10
    True
    """

    parts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def arc(cls, start: int, stop: int) -> Ranges:
        """Return the positions clockwise from `start` to just before `stop`; the whole circle if they are equal."""
        if start < stop:
            return cls(((start, stop),))
        return cls(tuple(part for part in ((0, stop), (start, CIRCLE)) if part[0] < part[1])).merged()

    @classmethod
    def union(cls, sets: Iterable[Ranges]) -> Ranges:
        """Return all positions of several sets."""
        return cls(tuple(sorted(part for one in sets for part in one.parts))).merged()

    def merged(self) -> Ranges:
        """Return the same set with adjacent and overlapping parts joined; parts must be ascending by start."""
        joined: list[tuple[int, int]] = []
        for start, stop in self.parts:
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            else:
                joined.append((start, stop))
        return Ranges(tuple(joined))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.parts)

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.union((self, other))

    def __and__(self, other: Ranges) -> Ranges:
        cuts = ((max(a, c), min(b, d)) for a, b in self.parts for c, d in other.parts)
        return Ranges(tuple(sorted(cut for cut in cuts if cut[0] < cut[1])))

    def __sub__(self, other: Ranges) -> Ranges:
        gaps, start = [], 0
        for a, b in other.parts:
            gaps.append((start, a))
            start = b
        gaps.append((start, CIRCLE))
        return self & Ranges(tuple(gap for gap in gaps if gap[0] < gap[1]))

    @property
    def size(self) -> int:
        """Number of positions."""
        return sum(stop - start for start, stop in self.parts)

    @cached_property
    def _edges(self) -> tuple[Positions, Positions]:
        starts = np.array([start for start, _ in self.parts], dtype=np.uint64)
        return starts, np.array([stop - 1 for _, stop in self.parts], dtype=np.uint64)

    def contains(self, positions: Positions) -> NDArray[np.bool_]:
        """Return for each position whether it is in the set."""
        if not self.parts:
            return np.zeros(len(positions), dtype=np.bool_)
        starts, lasts = self._edges
        if len(starts) == 1:
            alone: NDArray[np.bool_] = (positions >= starts[0]) & (positions <= lasts[0])
            return alone
        part = np.searchsorted(starts, positions, side="right") - 1
        inside: NDArray[np.bool_] = (part >= 0) & (positions <= lasts[np.maximum(part, 0)])
        return inside


NOTHING = Ranges()
EVERYTHING = Ranges(((0, CIRCLE),))
