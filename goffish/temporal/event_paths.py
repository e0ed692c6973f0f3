"""Paths along time-stamped edges: earliest arrival, latest departure, fastest, and of fewest edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.labels import as_id_column, number_labels
from goffish.notebook import MOST_ROWS, rows_html
from goffish.temporal import sweep_kernels as kernels

Integers = NDArray[np.integer[Any]]
PathKind = Literal["earliest-arrival", "latest-departure", "fastest", "fewest-hops"]

#: What a kernel optimizes for each kind of paths, and the name of the result.
CODES = {"earliest-arrival": kernels.EARLIEST, "latest-departure": kernels.EARLIEST, "fastest": kernels.FASTEST,
         "fewest-hops": kernels.HOPS}  # fmt: skip
COLUMNS = {"earliest-arrival": "arrival", "latest-departure": "departure", "fastest": "duration", "fewest-hops": "hops"}
#: Stands for "no path" among integers.
FAR = np.iinfo(np.int64).max
#: Times stay clear of the ends of the integers, so that sums of two of them do.
_LARGEST = 2**60


class TimedEdges(NamedTuple):
    """Edges between numbered vertices: departure from the source, and arrival at the target."""

    source: Integers
    target: Integers
    begin: NDArray[np.int64]
    finish: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TemporalPaths:
    """Best paths from, or to, one vertex; returned by `temporal_paths`.

    Attributes
    ----------
    kind : str
        What the paths optimize.
    table : pyarrow.Table
        One row per vertex: ``vertex``, and ``arrival``, ``departure``, ``duration`` or ``hops``; null if there is no
        path.
    """

    kind: PathKind
    table: pa.Table
    _labels: pa.Array
    _edges: TimedEdges
    _edge_in: NDArray[np.int64]
    _via: NDArray[np.int64]

    def __repr__(self) -> str:
        names = self.table.column_names
        reached = self.table.num_rows - self.table.column(1).null_count
        return f"TemporalPaths({self.kind}: {self.table.num_rows:,} rows of {names}; reached={reached})"

    def _repr_html_(self) -> str:
        first = self.table.slice(0, MOST_ROWS)
        rows = list(zip(*(column.to_pylist() for column in first.columns), strict=True))
        return rows_html(self.table.column_names, rows, self.table.num_rows)

    def path(self, vertex: int | str) -> list[tuple[Any, Any, int]]:
        """Return the edges of the best path to a vertex (of "latest-departure": from it).

        Parameters
        ----------
        vertex : int or str
            Vertex label.

        Returns
        -------
        list of tuple
            (source, target, departure) of each edge.

        Raises
        ------
        InputError
            If the vertex is unknown or has no path.
        """
        at = self._labels.index(pa.scalar(vertex, self._labels.type)).as_py()
        if at < 0:
            raise InputError(f"unknown vertex {vertex!r}")
        found, edge = [], int(self._edge_in[at])
        if edge < 0:
            if self.table.column(1)[at].as_py() is None:
                raise InputError(f"vertex {vertex!r} has no path")
            return []
        src, dst, begin, _ = self._edges
        while edge >= 0:
            found.append((self._labels[int(src[edge])].as_py(), self._labels[int(dst[edge])].as_py(), int(begin[edge])))
            edge = int(self._via[edge])
        return found if self.kind == "latest-departure" else found[::-1]


def temporal_paths(
    source: Any,
    target: Any,
    time: Any,
    vertex: int | str,
    kind: PathKind = "earliest-arrival",
    *,
    duration: Any = 0,
    start: int | None = None,
    end: int | None = None,
    directed: bool = True,
) -> TemporalPaths:
    """Find the best time-respecting paths from or to one vertex along time-stamped edges.

    In a time-respecting path, each edge is taken at its time, after the arrival of the previous edge.

    Parameters
    ----------
    source, target : array-like of int or str, shape (m,)
        Labels of the ends of each edge.
    time : array-like of int, shape (m,)
        Time at which each edge can be taken, at most 2^60 in absolute value.
    vertex : int or str
        Start of the paths; with "latest-departure", their end.
    kind : {"earliest-arrival", "latest-departure", "fastest", "fewest-hops"}
        What to optimize [default: "earliest-arrival"].
    duration : int or array-like of int
        Travel time of the edges, at least 0, in the unit of `time` [default: 0].
    start, end : int, optional
        Earliest departure and latest arrival [default: unlimited].
    directed : bool
        Whether edges can be taken from source to target only [default: True].

    Returns
    -------
    TemporalPaths
        ``table`` has the columns ``vertex`` and ``arrival``, ``departure``, ``duration`` or ``hops``, by `kind` (null
        without a path); ``path(vertex)`` returns the edges of one path.

    Raises
    ------
    InputError
        If columns differ in length, a duration is negative, the vertex or `kind` is unknown, or a time exceeds 2^60.

    Notes
    -----
    One sweep over the edges in the order of time: O(m log m) for m edges.

    References
    ----------
    H. Wu et al., "Path problems in temporal graphs", VLDB 2014.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.temporal_paths([1, 2], [2, 3], [5, 7], 1)
    >>> found.table.to_pydict()
    {'vertex': [1, 2, 3], 'arrival': [5, 5, 7]}
    >>> found.path(3)
    [(1, 2, 5), (2, 3, 7)]
    """
    if kind not in get_args(PathKind):
        raise InputError(f"kind={kind!r}: choose one of {', '.join(get_args(PathKind))}")
    labels, src, dst, begin = event_columns(source, target, time)
    took = durations(duration)
    if took.ndim and took.shape != begin.shape:
        raise InputError(f"duration has {took.size} rows, time {begin.size}")
    at = labels.index(pa.scalar(vertex, labels.type)).as_py() if len(labels) else -1
    if at < 0:
        raise InputError(f"unknown vertex {vertex!r}: no edge starts or ends at it")
    edges = TimedEdges(src, dst, begin, begin + took)
    if not directed:
        edges = both_ways(edges)
    value, edge_in, via = best_paths(edges, len(labels), at, kind, start, end)
    table = pa.table({"vertex": labels, COLUMNS[kind]: value})
    return TemporalPaths(kind, table, labels, edges, edge_in, via)


def both_ways(edges: TimedEdges) -> TimedEdges:
    """Edges that can be taken from their targets to their sources, too."""
    ends = np.concatenate((edges.source, edges.target)), np.concatenate((edges.target, edges.source))
    return TimedEdges(*ends, np.tile(edges.begin, 2), np.tile(edges.finish, 2))


def best_paths(
    edges: TimedEdges, vertices: int, at: int, kind: PathKind, start: int | None, end: int | None
) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return for each vertex what the best path gives (null: none) and its last edge, and the edge before each edge.

    Parameters
    ----------
    edges : TimedEdges
        At least one.
    vertices : int
    at : int
        Vertex that the paths start from; with "latest-departure", where they end.
    kind, start, end
        As for `temporal_paths`.
    """
    source, target, begin, finish = edges
    first = int(begin.min()) if start is None else int(start)
    last = int(finish.max()) if end is None else int(end)
    backwards = kind == "latest-departure"
    if backwards:
        events = kernels.Events(target, source, -finish, -begin, _order(-finish), _order(-begin))
        first, last = -last, -first
    else:
        events = kernels.Events(source, target, begin, finish, _order(begin), _order(finish))
    value, edge_in, via = np.empty(vertices, np.int64), np.empty(vertices, np.int64), np.empty(source.size, np.int64)
    kernels.sweep(CODES[kind], at, first, last, events, value, edge_in, via)
    return as_values(value, kind), edge_in, via


def as_values(value: NDArray[np.int64], kind: PathKind) -> pa.Array:
    """What kernels found, in the times of the events: those of "latest-departure" run backwards; null for no path."""
    none = value == FAR
    return pa.array(np.where(none, 0, -value) if kind == "latest-departure" else value, mask=none)


def event_columns(source: Any, target: Any, time: Any) -> tuple[pa.Array, Integers, Integers, NDArray[np.int64]]:
    """Labels of the vertices, ascending, and of each time-stamped edge the numbers of its ends and its time.

    Raises
    ------
    InputError
        Columns of different lengths, times that are not whole numbers or beyond 2^60.
    """
    when = whole_numbers("time", time)
    ends = [as_id_column(column, name) for name, column in (("source", source), ("target", target))]
    if not len(ends[0]) == len(ends[1]) == when.size:
        rows = f"{len(ends[0])}, {len(ends[1])} and {when.size} rows"
        raise InputError(f"source, target and time have {rows}; expected one row per edge in each")
    (src, dst), labels, n = number_labels(*ends)
    return pa.array(np.arange(n)) if labels is None else labels, src, dst, when


def _order(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows in the order of time, which events mostly are in."""
    if bool((times[1:] >= times[:-1]).all()):
        return np.arange(times.size)
    return np.argsort(times, kind="stable")


def durations(given: Any, name: str = "duration") -> NDArray[np.int64]:
    """Travel times, which are whole numbers of at least 0."""
    took = whole_numbers(name, given)
    if took.size and took.min() < 0:
        raise InputError(f"{name}={int(took.min())}: must be at least 0")
    return took


def whole_numbers(name: str, given: Any) -> NDArray[np.int64]:
    """Integers of at most 2^60 in absolute value."""
    values = np.asarray(given)
    if values.size and values.dtype.kind not in "iu":
        raise InputError(f"{name} holds {values.dtype}; expected integers")
    if values.size and max(abs(int(values.min())), abs(int(values.max()))) > _LARGEST:
        raise InputError(f"{name}: values must be at most 2^60")
    return values.astype(np.int64, copy=False)
