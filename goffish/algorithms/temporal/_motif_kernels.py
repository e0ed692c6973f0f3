"""Counting triples of time-stamped edges that make a triangle within a window."""

from __future__ import annotations

import numpy as np
from numba import njit

_LABELS = 6


@njit(cache=True, nogil=True)
def count_triangles(offsets, targets, pair_offsets, times, order, forward, within, found):
    """Add up, for every static triangle, the ordered triples of its events that lie within the window.

    Vertices are ordered; `targets` are the later neighbours of each, ascending. The events of pair p are rows
    ``pair_offsets[p] : pair_offsets[p + 1]`` of `times`, of `order` (which breaks ties) and of `forward` (whether the
    event goes from the earlier vertex to the later one). ``found[a, b, c]`` counts events of the labels a, b and c
    after one another; the label of an event is twice its side of the triangle (of the vertices 01, 02, 12), plus 1
    backwards.
    The counters are those of Paranjape, Benson & Leskovec, WSDM 2017, Algorithm 1.
    """
    sides = np.empty(3, np.int64)
    for u in range(offsets.size - 1):
        for p in range(offsets[u], offsets[u + 1]):
            v = targets[p]
            i, j = offsets[u], offsets[v]
            while i < offsets[u + 1] and j < offsets[v + 1]:
                if targets[i] < targets[j]:
                    i += 1
                elif targets[i] > targets[j]:
                    j += 1
                else:
                    sides[0], sides[1], sides[2] = p, i, j
                    _count(sides, pair_offsets, times, order, forward, within, found)
                    i += 1
                    j += 1


@njit(cache=True, nogil=True)
def _count(sides, pair_offsets, times, order, forward, within, found):
    """One triangle: its events in the order of time, with the counts of what is still in the window."""
    total = 0
    for k in range(3):
        total += pair_offsets[sides[k] + 1] - pair_offsets[sides[k]]
    label, when = np.empty(total, np.int64), np.empty(total, np.int64)
    at = np.empty(3, np.int64)
    for k in range(3):
        at[k] = pair_offsets[sides[k]]
    for e in range(total):
        best = -1
        for k in range(3):
            row = at[k]
            if row == pair_offsets[sides[k] + 1]:
                continue
            if best < 0:
                best = k
                continue
            other = at[best]
            if times[row] < times[other] or (times[row] == times[other] and order[row] < order[other]):
                best = k
        row = at[best]
        label[e] = 2 * best + (0 if forward[row] else 1)
        when[e] = times[row]
        at[best] += 1
    ones, twos = np.zeros(_LABELS, np.int64), np.zeros((_LABELS, _LABELS), np.int64)
    first = 0
    for e in range(total):
        while when[e] - when[first] > within:
            gone = label[first]
            ones[gone] -= 1
            for b in range(_LABELS):
                twos[gone, b] -= ones[b]
            first += 1
        now = label[e]
        for a in range(_LABELS):
            if a >> 1 == now >> 1:
                continue
            for b in range(_LABELS):
                if b >> 1 != now >> 1 and b >> 1 != a >> 1:
                    found[a, b, now] += twos[a, b]
        for a in range(_LABELS):
            twos[a, now] += ones[a]
        ones[now] += 1
