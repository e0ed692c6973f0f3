"""Time-respecting paths inside a partition, along the events of one instance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.arrays import make_room
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push
from goffish.temporal.sweep_kernels import EARLIEST, FASTEST, HOPS

_FAR = np.iinfo(np.int64).max


class Departures(NamedTuple):
    """Events that leave the vertices of a partition, by vertex and time.

    Attributes
    ----------
    starts
        Row pointers, by vertex.
    begin, finish
        Times of departure and arrival.
    place
        Where each event leads: vertices of the partition, followed by its table of remote vertices.
    carried
        Best state of a path that takes the event, `FAR` for none; lowered by `follow`.
    """

    starts: NDArray[np.int64]
    begin: NDArray[np.int64]
    finish: NDArray[np.int64]
    place: NDArray[np.int64]
    carried: NDArray[np.int64]


class Marks(NamedTuple):
    """What was found for each place: value of its best path; best state of earlier instances, and up to this one."""

    value: NDArray[np.int64]
    settled: NDArray[np.int64]
    after: NDArray[np.int64]


class Arrivals(NamedTuple):
    """Paths that arrive: where, when, and in what state (less is better: edges, or minus the departure)."""

    place: NDArray[np.int64]
    time: NDArray[np.int64]
    state: NDArray[np.int64]


@kernel
def follow(kind, source, horizon, departures, roots, arrivals, marks):
    """Follow paths from roots, which were there before all events, and from arrivals; gives all that arrive.

    An arrival counts if no path of earlier instances is as good; one up to the `horizon` is there before all events of
    later instances. Paths are taken up in the order of time, so that an event is mostly looked at once; the result does
    not depend on the order.
    """
    starts, begin, finish, place, carried = departures
    vertices = starts.size - 1
    room = max(1024, arrivals.place.size)
    at, time, state = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    keys, items = np.empty(room, np.float64), np.empty(room, np.int64)
    count = size = next_root = 0
    for i in range(arrivals.place.size):
        p, now, better = arrivals.place[i], arrivals.time[i], arrivals.state[i]
        if _arrive(kind, source, horizon, p, now, better, marks):
            at[count], time[count], state[count] = p, now, better
            push(keys, items, size, np.float64(now), count, True)
            size += 1
            count += 1
    while next_root < roots.size or size > 0:
        if next_root < roots.size:
            v = roots[next_root]
            next_root += 1
            since = marks.value[v] if kind == EARLIEST and v != source else -_FAR
            had = marks.settled[v]
        else:
            e = items[0]
            pop(keys, items, size, True)
            size -= 1
            v, since, had = at[e], time[e], state[e]
            if kind == EARLIEST and since > marks.value[v]:
                continue
        low, high = starts[v], starts[v + 1]
        if count + high - low > at.size:
            wanted = count + high - low
            at, time, state = (
                make_room(at, count, wanted),
                make_room(time, count, wanted),
                make_room(state, count, wanted),
            )
        if size + high - low > keys.size:
            keys, items = make_room(keys, size, size + high - low), make_room(items, size, size + high - low)
        for i in range(_first_at(begin, low, high, since), high):
            took = _taken(kind, source, v, begin[i], had)
            if took >= carried[i]:
                break
            carried[i] = took
            p = place[i]
            if not _arrive(kind, source, horizon, p, finish[i], took, marks):
                continue
            at[count], time[count], state[count] = p, finish[i], took
            if p < vertices:
                push(keys, items, size, np.float64(finish[i]), count, True)
                size += 1
            count += 1
    return at[:count], time[:count], state[:count]


@kernel
def _first_at(begin, low, high, since):
    """First row from `low` to before `high` at `since` or later."""
    while low < high:
        middle = (low + high) >> 1
        if begin[middle] < since:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _taken(kind, source, v, now, had):
    """State of a path that leaves `v` now; the source is left anew by every event."""
    if v == source:
        return -now if kind == FASTEST else 1 if kind == HOPS else 0
    return had + 1 if kind == HOPS else had


@kernel
def _arrive(kind, source, horizon, p, now, better, marks):
    """Take over a path that arrives; gives whether it counts."""
    if p == source:
        return False
    if kind == EARLIEST:
        if now >= marks.value[p]:
            return False
        marks.value[p] = now
        marks.settled[p] = better
        return True
    if better >= marks.settled[p]:
        return False
    marks.value[p] = min(marks.value[p], now + better if kind == FASTEST else better)
    if now <= horizon:
        marks.after[p] = min(marks.after[p], better)
    return True


@kernel
def on_front(group, state, keep):
    """Mark the rows that are better than all before them in their group; rows are ordered by group and time."""
    best = _FAR
    for i in range(group.size):
        if i == 0 or group[i] != group[i - 1]:
            best = _FAR
        keep[i] = state[i] < best
        best = min(best, state[i])
