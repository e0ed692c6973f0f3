"""One sweep over the departures and arrivals of time-stamped edges, in the order of time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel

EARLIEST, FASTEST, HOPS = 0, 1, 2


class Events(NamedTuple):
    """Time-stamped edges; times and places in an order are int64.

    Attributes
    ----------
    source, target
        Vertices.
    begin, finish
        Times of departure and arrival.
    by_begin, by_finish
        Edges in the order of either.
    """

    source: NDArray[np.integer[Any]]
    target: NDArray[np.integer[Any]]
    begin: NDArray[np.int64]
    finish: NDArray[np.int64]
    by_begin: NDArray[np.int64]
    by_finish: NDArray[np.int64]


@kernel
def sweep(kind, source, first, last, events, value, edge_in, via):
    """Best paths from `source` that leave at `first` or later and end at `last` or earlier.

    At every moment only one path to each vertex counts, of those that have arrived: any (earliest), the one that left
    last (fastest), or the one of fewest edges. `value`, per vertex, is the arrival, the duration or the number of
    edges; `edge_in` the edge by which it came, -1 for none, and ``via[e]`` the edge by which the best path came to
    where edge e begins. Edges that take no time are followed until nothing changes, within one moment.
    """
    edge_source, edge_target, begin, finish, by_begin, by_finish = events
    n = value.size
    far = np.iinfo(np.int64).max
    state = np.full(n, far)  # arrival, minus the start, or edges: less is better, of the paths that have arrived
    entered = np.full(n, -1)
    carried = np.full(edge_source.size, far)
    value[:] = far
    edge_in[:] = -1
    via[:] = -1
    value[source] = first if kind == EARLIEST else 0
    state[source] = 0 if kind == HOPS else first
    d = a = 0
    while d < by_begin.size and begin[by_begin[d]] < first:
        d += 1
    while d < by_begin.size or a < by_finish.size:
        # Arrivals come before departures of the same moment.
        now = far
        if d < by_begin.size:
            now = begin[by_begin[d]]
        if a < by_finish.size:
            now = min(now, finish[by_finish[a]])
        if now > last:
            break
        while a < by_finish.size and finish[by_finish[a]] == now:
            e = by_finish[a]
            a += 1
            if begin[e] < now and carried[e] < far:
                _arrive(kind, source, e, edge_target[e], now, carried, state, entered, value, edge_in)
        start = d
        while d < by_begin.size and begin[by_begin[d]] == now:
            d += 1
        again = True
        while again:
            again = False
            for i in range(start, d):
                e = by_begin[i]
                u = edge_source[e]
                took = _taken(kind, source, u, now, state)
                if took < carried[e]:
                    carried[e] = took
                    via[e] = -1 if u == source else entered[u]
                    if finish[e] == now and _arrive(
                        kind, source, e, edge_target[e], now, carried, state, entered, value, edge_in
                    ):
                        again = True


@kernel
def _taken(kind, source, u, now, state):
    """What an edge that leaves vertex u now carries: nothing (the largest number), or the state behind it."""
    if u == source:
        return 1 if kind == HOPS else (-now if kind == FASTEST else 0)
    if state[u] == np.iinfo(np.int64).max:
        return state[u]
    return state[u] + 1 if kind == HOPS else state[u]


@kernel
def _arrive(kind, source, e, v, now, carried, state, entered, value, edge_in):
    """Take over a path that arrives if it is better than those before; gives whether it is."""
    if v == source or carried[e] >= state[v]:
        return False
    state[v] = carried[e]
    entered[v] = e
    found = now if kind == EARLIEST else (now + carried[e] if kind == FASTEST else carried[e])
    if found < value[v]:
        value[v] = found
        edge_in[v] = e
    return True
