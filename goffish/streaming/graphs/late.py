"""When elements and attributes last changed, so that late records do not overwrite what is newer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.batches import FIRST
from goffish.streaming.graphs.late_kernels import STALE
from goffish.streaming.graphs.records import Numbers
from goffish.streaming.graphs.updates import NONE
from goffish.streaming.key_table import longer

_Stamps = NDArray[np.int64]
#: Stamp of what has never changed.
_NEVER = FIRST, 0, -1
_OF_VERTICES, _OF_EDGES = ("added", "removed_vertices"), ("last", "born", "removed_edges")


class Written(NamedTuple):
    """Stamps of the last changes: the last axis has the event time, the number of the stream, and the sequence number.

    Attributes
    ----------
    added, removed_vertices : arrays, shape (vertices, 3)
    last, born, removed_edges : arrays, shape (edges, 3)
        When edges were last added, first added after their last removal, and removed.
    of_vertices, of_edges : arrays, shape (names, elements, 3)
        When attributes were set or removed.
    hidden : Attributes of `state`
        Of edges: values that were set before the record that adds the edge has arrived.
    counts : array, shape (2,)
        As in `late_kernels`.
    """

    added: _Stamps
    removed_vertices: _Stamps
    last: _Stamps
    born: _Stamps
    removed_edges: _Stamps
    of_vertices: _Stamps
    of_edges: _Stamps
    hidden: Any
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, hidden: Any) -> Written:
        """Return space for nothing."""
        none, named = np.zeros((0, 3), np.int64), np.zeros((0, 0, 3), np.int64)
        return cls(none, none, none, none, none, named, named, hidden, np.zeros(2, np.int64))

    @property
    def stale(self) -> int:
        """Updates without effect, as newer ones were applied before."""
        return int(self.counts[STALE])

    def fit(self, of_vertices: tuple[int, int], of_edges: tuple[int, int], hidden: Any) -> Written:
        """Return space for some names and elements, and other space for hidden values."""
        columns: dict[str, _Stamps] = {}
        for names, named, shape in (
            (_OF_VERTICES, "of_vertices", of_vertices), (_OF_EDGES, "of_edges", of_edges),
        ):  # fmt: skip
            size = shape[1]
            columns |= {name: _longer(getattr(self, name), size) for name in names if len(getattr(self, name)) < size}
            column = getattr(self, named)
            if column.shape[:2] != shape:
                columns[named] = np.empty((*shape, 3), np.int64)
                columns[named][:] = _NEVER
                columns[named][: column.shape[0], : column.shape[1]] = column
        return self._replace(**columns, hidden=hidden)

    def forget(self, slots: Numbers, *, edges: bool) -> None:
        """Let elements have no stamps, as their numbers are given to others."""
        for name in _OF_EDGES if edges else _OF_VERTICES:
            column = getattr(self, name)
            column[slots[slots < len(column)]] = _NEVER
        column = self.of_edges if edges else self.of_vertices
        slots = slots[slots < column.shape[1]]
        column[:, slots] = _NEVER
        if edges:
            self.hidden.kinds[:, slots] = NONE

    def recent(self, since: int, *, edges: bool) -> NDArray[np.bool_]:
        """Return which elements have changed since a time; late records may need their stamps."""
        column = self.of_edges if edges else self.of_vertices
        found: NDArray[np.bool_] = column[:, :, 0].max(axis=0, initial=FIRST) >= since
        for name in _OF_EDGES if edges else _OF_VERTICES:
            found |= getattr(self, name)[:, 0] >= since
        return found


def _longer(column: _Stamps, size: int) -> _Stamps:
    """Return a column with space for more elements, which have never changed."""
    found = longer(column.reshape(-1), column.size, 3 * size).reshape(size, 3)
    found[len(column) :] = _NEVER
    return found
