"""Counting triples of time-stamped edges that make a triangle within a window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel

_LABELS = 6


class Neighbours(NamedTuple):
    """Pairs of vertices, each at its vertex of lower degree.

    Attributes
    ----------
    offsets : int64 array
        Row pointers, by vertex.
    targets, pair
        The other vertex, and the number of the pair.
    span : int64, shape (pairs, 2)
        Times of its first and its last event.
    """

    offsets: NDArray[np.int64]
    targets: NDArray[np.integer[Any]]
    pair: NDArray[np.int64]
    span: NDArray[np.int64]


@kernel
def sort_by_pairs(src, dst, time, before, vertices):
    """Stable order of events by their pair of vertices, without directions: two counting sorts; loops are left out.

    `before` is an order of the events, or empty for the one they are in. What belongs to an event moves along, because
    writing here and there is cheaper than reading. Gives the later vertex of each event, its time, and its tag:
    twice its number in the arrays, plus 1 if it goes from the smaller to the larger vertex; and where the events of
    each earlier vertex begin, which comes first.
    """
    by_later, by_earlier = np.zeros(vertices + 1, np.int64), np.zeros(vertices + 1, np.int64)
    for e in range(src.size):
        if src[e] != dst[e]:
            by_later[max(src[e], dst[e]) + 1] += 1
            by_earlier[min(src[e], dst[e]) + 1] += 1
    for v in range(vertices):
        by_later[v + 1] += by_later[v]
        by_earlier[v + 1] += by_earlier[v]
    total, begins = by_later[vertices], by_earlier.copy()
    earlier, half_times, half_tags = np.empty(total, src.dtype), np.empty(total, np.int64), np.empty(total, np.int64)
    for i in range(src.size):
        e = before[i] if before.size else i
        u, v = src[e], dst[e]
        if u == v:
            continue
        at = by_later[max(u, v)]
        by_later[max(u, v)] += 1
        earlier[at], half_times[at], half_tags[at] = min(u, v), time[e], 2 * e + (u < v)
    # Now by_later holds where the events of each later vertex end.
    later, times, tags = np.empty(total, src.dtype), np.empty(total, np.int64), np.empty(total, np.int64)
    i = 0
    for v in range(vertices):
        while i < by_later[v]:
            at = by_earlier[earlier[i]]
            by_earlier[earlier[i]] += 1
            later[at], times[at], tags[at] = v, half_times[i], half_tags[i]
            i += 1
    return begins, later, times, tags


@kernel
def distinct_pairs(begins, later):
    """Both vertices and the first event of each pair, and, last, the number of all events; the pairs of each vertex."""
    vertices = begins.size - 1
    low, high = np.empty(later.size, later.dtype), np.empty(later.size, later.dtype)
    first, degree = np.empty(later.size + 1, np.int64), np.zeros(vertices, np.int64)
    pairs = 0
    for u in range(vertices):
        for i in range(begins[u], begins[u + 1]):
            if i > begins[u] and later[i] == later[i - 1]:
                continue
            low[pairs], high[pairs], first[pairs] = u, later[i], i
            degree[u] += 1
            degree[later[i]] += 1
            pairs += 1
    first[pairs] = later.size
    return low[:pairs], high[:pairs], first[: pairs + 1], degree


@kernel
def neighbours(low, high, first, degree, times):
    """Every pair at its vertex of lower `degree`, of equal ones the first; what `Neighbours` holds."""
    vertices, pairs = degree.size, low.size
    offsets = np.zeros(vertices + 1, np.int64)
    for p in range(pairs):
        offsets[(low[p] if degree[low[p]] <= degree[high[p]] else high[p]) + 1] += 1
    for v in range(vertices):
        offsets[v + 1] += offsets[v]
    free = offsets[:-1].copy()
    targets, pair = np.empty(pairs, low.dtype), np.empty(pairs, np.int64)
    span = np.empty((pairs, 2), np.int64)
    for p in range(pairs):
        u, v = low[p], high[p]
        if degree[u] > degree[v]:
            u, v = v, u
        at = free[u]
        free[u] += 1
        targets[at], pair[at] = v, p
        span[at, 0], span[at, 1] = times[first[p]], times[first[p + 1] - 1]
    return offsets, targets, pair, span


@kernel
def count_triangles(low, high, beside, first, times, tags, limits, middles, found):
    """Add up, for static triangles, the ordered triples of their events that lie within the window.

    Each triangle belongs to its vertex of lowest degree, of which those from `low` to before `high` are looked at.
    `beside` is `Neighbours`; the events of pair p are rows ``first[p] : first[p + 1]`` of `times` and `tags` (see
    `sort_by_pairs`; they break ties). `limits` are the longest time from the first event of a triple to the last one,
    and the earliest time of the last one; `middles`, where not empty, are the vertices that count as those of second
    lowest degree. ``found[a, b, c]`` counts events of the labels a, b and c after one another; the
    label of an event is twice its side of the triangle (of its vertices in ascending order: 01, 02, 12), plus 1
    backwards.
    The counters are those of Paranjape, Benson & Leskovec, WSDM 2017, Algorithm 1.
    """
    offsets, targets, pair, span = beside
    within, since = limits
    mark = np.full(offsets.size - 1, -1, np.int64)
    sides = np.empty(3, np.int64)
    label, when = np.empty(64, np.int64), np.empty(64, np.int64)
    ones, twos = np.zeros(_LABELS, np.int64), np.zeros((_LABELS, _LABELS), np.int64)
    for u in range(low, high):
        if offsets[u + 1] - offsets[u] < 2:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = i
        for i in range(offsets[u], offsets[u + 1]):
            v = np.int64(targets[i])
            if middles.size > 0 and not middles[v]:
                continue
            if not _accompanied(i, offsets[u], offsets[u + 1], span, within):
                continue
            # No triple fits where one side begins too long after another has ended. The times lie in the order in
            # which they are read here, the marks do not.
            soonest, latest = span[i, 0] - within, span[i, 1] + within
            for j in range(offsets[v], offsets[v + 1]):
                if span[j, 0] > latest or span[j, 1] < soonest:
                    continue
                w = np.int64(targets[j])
                k = mark[w]
                if k < 0 or max(span[i, 0], span[j, 0], span[k, 0]) - min(span[i, 1], span[j, 1], span[k, 1]) > within:
                    continue
                if max(span[i, 1], span[j, 1], span[k, 1]) < since:
                    continue
                p, q, r = pair[i], pair[k], pair[j]
                total = first[p + 1] - first[p] + first[q + 1] - first[q] + first[r + 1] - first[r]
                if total > label.size:
                    label, when = np.empty(2 * total, np.int64), np.empty(2 * total, np.int64)
                _name_sides(u, v, w, p, q, r, sides)
                _merge(sides, first, times, tags, label, when)
                _count(total, label, when, limits, ones, twos, found)
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = -1


@kernel
def _accompanied(i, low, high, span, within):
    """Whether another pair of those from `low` to before `high` has events near enough to those of pair i."""
    soonest, latest = span[i, 0] - within, span[i, 1] + within
    k = low
    while k < high and (k == i or span[k, 0] > latest or span[k, 1] < soonest):
        k += 1
    return k < high


@kernel
def _name_sides(u, v, w, p, q, r, sides):
    """The pairs p of u and v, q of u and w, r of v and w, as those of the first two vertices, the outer, the last."""
    least, most = min(u, v, w), max(u, v, w)
    for a, b, side in ((u, v, p), (u, w, q), (v, w, r)):
        here = 0 if max(a, b) != most else (1 if min(a, b) == least else 2)
        sides[here] = side


@kernel
def _merge(sides, first, times, tags, label, when):
    """The events of three pairs in the order of time."""
    a, b, c = first[sides[0]], first[sides[1]], first[sides[2]]
    a_end, b_end, c_end = first[sides[0] + 1], first[sides[1] + 1], first[sides[2] + 1]
    e = 0
    while a < a_end or b < b_end or c < c_end:
        best, row = -1, -1
        if a < a_end:
            best, row = 0, a
        if b < b_end and (row < 0 or _before(b, row, times, tags)):
            best, row = 1, b
        if c < c_end and (row < 0 or _before(c, row, times, tags)):
            best, row = 2, c
        if best == 0:
            a += 1
        elif best == 1:
            b += 1
        else:
            c += 1
        label[e] = 2 * best + 1 - (tags[row] & 1)
        when[e] = times[row]
        e += 1


@kernel
def _before(row, other, times, tags):
    return times[row] < times[other] or (times[row] == times[other] and tags[row] < tags[other])


@kernel
def _count(total, label, when, limits, ones, twos, found):
    """One triangle: `ones` and `twos` (0 before and after) count what is still in the window."""
    within, since = limits
    first = 0
    for e in range(total):
        while when[e] - when[first] > within:
            _leave(label[first], ones, twos)
            first += 1
        now = label[e]
        s = 2 * ((now >> 1) + 1) % _LABELS
        t = 2 * ((now >> 1) + 2) % _LABELS
        if when[e] >= since:
            for a in range(s, s + 2):
                for b in range(t, t + 2):
                    found[a, b, now] += twos[a, b]
                    found[b, a, now] += twos[b, a]
        for a in range(s, s + 2):
            twos[a, now] += ones[a]
        for b in range(t, t + 2):
            twos[b, now] += ones[b]
        ones[now] += 1
    while first < total:
        _leave(label[first], ones, twos)
        first += 1


@kernel
def _leave(gone, ones, twos):
    """Forget the first event, and the pairs that it begins."""
    ones[gone] -= 1
    for b in range(_LABELS):
        if b >> 1 != gone >> 1:
            twos[gone, b] -= ones[b]
