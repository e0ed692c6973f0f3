"""Paths along time-stamped edges: earliest arrival, latest departure, fastest, and of fewest edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.labels import as_id_column, number_labels
from goffish.temporal import sweep_kernels as kernels

Integers = NDArray[np.integer[Any]]
Kind = Literal["earliest-arrival", "latest-departure", "fastest", "fewest-hops"]

_CODES = {"earliest-arrival": kernels.EARLIEST, "latest-departure": kernels.EARLIEST, "fastest": kernels.FASTEST,
          "fewest-hops": kernels.HOPS}  # fmt: skip
_FAR = np.iinfo(np.int64).max
#: Times stay clear of the ends of the integers, so that sums of two of them do.
_LARGEST = 2**60


@dataclass(frozen=True, eq=False)
class TemporalPaths:
    """Best paths from, or to, one vertex.

    Attributes
    ----------
    kind : str
    table : pyarrow.Table
        One row per vertex: ``vertex``, and ``arrival``, ``departure``, ``duration`` or ``hops``; null where there is no
        path.
    """

    kind: Kind
    table: pa.Table
    _labels: pa.Array
    _edges: tuple[Integers, Integers, NDArray[np.int64]]
    _edge_in: NDArray[np.int64]
    _via: NDArray[np.int64]

    def path(self, vertex: int | str) -> list[tuple[Any, Any, int]]:
        """The edges of the best path to (of ``latest-departure``: from) a vertex: source, target and departure.

        Raises
        ------
        InputError
            There is no such vertex, or no path.
        """
        at = self._labels.index(pa.scalar(vertex, self._labels.type)).as_py()
        if at < 0:
            raise InputError(f"unknown vertex {vertex!r}")
        found, edge = [], int(self._edge_in[at])
        if edge < 0:
            if self.table.column(1)[at].as_py() is None:
                raise InputError(f"there is no path for vertex {vertex!r}")
            return []
        src, dst, begin = self._edges
        while edge >= 0:
            found.append((self._labels[int(src[edge])].as_py(), self._labels[int(dst[edge])].as_py(), int(begin[edge])))
            edge = int(self._via[edge])
        return found if self.kind == "latest-departure" else found[::-1]


def temporal_paths(
    source: Any,
    target: Any,
    time: Any,
    vertex: int | str,
    kind: Kind = "earliest-arrival",
    *,
    duration: Any = 0,
    start: int | None = None,
    end: int | None = None,
    directed: bool = True,
) -> TemporalPaths:
    """Best time-respecting paths: each edge is taken at its time, and not before the one ahead of it has been passed.

    One sweep over the edges in the order of time (the problems are those of Wu et al., "Path problems in temporal
    graphs", VLDB 2014): O(m log m) for m edges.

    Parameters
    ----------
    source, target : arrays of labels
        Of the time-stamped edges.
    time : integer array
        When each edge can be taken.
    vertex : int or str
        Where the paths begin; for ``latest-departure``, where they end.
    kind : {"earliest-arrival", "latest-departure", "fastest", "fewest-hops"}
    duration : int or integer array
        What an edge takes, at least 0, in the unit of the times.
    start, end : int, optional
        Paths leave at `start` or later and have arrived at `end`; default: the whole time.
    directed : bool
        Whether edges can be taken from source to target only.

    Raises
    ------
    InputError
        Columns of different lengths, a duration below 0, an unknown vertex or kind, times beyond 2^60.
    """
    if kind not in get_args(Kind):
        raise InputError(f"kind={kind!r}: choose one of {', '.join(get_args(Kind))}")
    labels, src, dst, begin = event_columns(source, target, time)
    took = _whole("duration", duration)
    if took.size and took.min() < 0:
        raise InputError(f"duration={int(took.min())}: at least 0")
    if took.ndim and took.shape != begin.shape:
        raise InputError(f"duration has {took.size} rows, time {begin.size}")
    took = np.broadcast_to(took, begin.shape)
    at = labels.index(pa.scalar(vertex, labels.type)).as_py() if len(labels) else -1
    if at < 0:
        raise InputError(f"unknown vertex {vertex!r}: no edge begins or ends there")
    if not directed:
        src, dst = np.concatenate((src, dst)), np.concatenate((dst, src))
        begin, took = np.tile(begin, 2), np.tile(took, 2)
    finish = begin + took
    first = int(begin.min()) if start is None else int(start)
    last = int(finish.max()) if end is None else int(end)
    backwards = kind == "latest-departure"
    if backwards:
        events = kernels.Events(dst, src, -finish, -begin, _order(-finish), _order(-begin))
        first, last = -last, -first
    else:
        events = kernels.Events(src, dst, begin, finish, _order(begin), _order(finish))
    value, edge_in, via = np.empty(len(labels), np.int64), np.empty(len(labels), np.int64), np.empty(src.size, np.int64)
    kernels.sweep(_CODES[kind], at, first, last, events, value, edge_in, via)
    none = value == _FAR
    if backwards:
        value = np.where(none, 0, -value)
    name = {"earliest-arrival": "arrival", "latest-departure": "departure", "fastest": "duration"}.get(kind, "hops")
    table = pa.table({"vertex": labels, name: pa.array(value, mask=none)})
    return TemporalPaths(kind, table, labels, (src, dst, begin), edge_in, via)


def event_columns(source: Any, target: Any, time: Any) -> tuple[pa.Array, Integers, Integers, NDArray[np.int64]]:
    """Labels of the vertices, ascending, and of each time-stamped edge the numbers of its ends and its time.

    Raises
    ------
    InputError
        Columns of different lengths, times that are not whole numbers or beyond 2^60.
    """
    when = _whole("time", time)
    ends = [as_id_column(column, name) for name, column in (("source", source), ("target", target))]
    if not len(ends[0]) == len(ends[1]) == when.size:
        told = f"{len(ends[0])}, {len(ends[1])} and {when.size} rows"
        raise InputError(f"source, target and time have {told}: one per edge each")
    (src, dst), labels, n = number_labels(*ends)
    return pa.array(np.arange(n)) if labels is None else labels, src, dst, when


def _order(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows in the order of time, which events mostly are in."""
    if bool((times[1:] >= times[:-1]).all()):
        return np.arange(times.size)
    return np.argsort(times, kind="stable")


def _whole(name: str, given: Any) -> NDArray[np.int64]:
    values = np.asarray(given)
    if values.size and values.dtype.kind not in "iu":
        raise InputError(f"{name} holds {values.dtype}: whole numbers")
    if values.size and max(abs(int(values.min())), abs(int(values.max()))) > _LARGEST:
        raise InputError(f"{name}: at most 2^60")
    return values.astype(np.int64, copy=False)
