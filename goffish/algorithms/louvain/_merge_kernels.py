"""From labels to the next level: renumbering, member lists and the collapsed graph."""

from __future__ import annotations

import numpy as np
from numba import njit

from goffish.graph._barrier_kernels import prefetch


@njit(cache=True, nogil=True)
def renumber(labels, number):
    """Number the labels in use 0, 1, … by first appearance, in place; gives how many there are.

    `number` is scratch space with one element per possible label.
    """
    number[:] = 0
    count = 0
    for v in range(labels.size):
        c = labels[v]
        if number[c] == 0:
            count += 1
            number[c] = count
        labels[v] = number[c] - 1
    return count


@njit(cache=True, nogil=True)
def list_members(labels, order, starts, members):
    """Put the vertices of community c into ``members[starts[c]:starts[c + 1]]``, in `order` (empty: ascending)."""
    for v in range(labels.size):
        starts[labels[v] + 1] += 1
    for c in range(1, starts.size):
        starts[c] += starts[c - 1]
    for i in range(labels.size):
        v = order[i] if order.size else i
        c = labels[v]
        members[starts[c]] = v
        starts[c] += 1
    for c in range(starts.size - 1, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0


@njit(cache=True, nogil=True)
def room_for_rows(offsets, starts, members, room):
    """Where each community's row may begin so that no row can run into the next one."""
    room[0] = 0
    for c in range(starts.size - 1):
        arcs = 0
        for i in range(starts[c], starts[c + 1]):
            v = members[i]
            arcs += offsets[v + 1] - offsets[v]
        room[c + 1] = room[c] + arcs


@njit(cache=True, nogil=True)
def merge_rows(offsets, targets, weights, labels, starts, members, room, first, last, out, out_weights, sizes, loops):
    """Rows `first` to `last` of the collapsed graph, one after the other from ``out[room[first]]`` on.

    The weight inside a community goes to `loops`.
    """
    weighted = weights.size > 0
    count = starts.size - 1
    sums = np.zeros(count, out_weights.dtype)
    none = sums.sum()
    keys = np.empty(count + 1, out.dtype)
    end = starts[last]
    kept = room[first]
    for c in range(first, last):
        met = 0
        for i in range(starts[c], starts[c + 1]):
            v = members[i]
            # Rows lie anywhere: have the next ones on their way.
            if i + 16 < end:
                prefetch(offsets, members[i + 16])
                prefetch(targets, offsets[members[i + 8]])
            if weighted:
                for e in range(offsets[v], offsets[v + 1]):
                    d = labels[targets[e]]
                    before = sums[d]
                    keys[met] = d
                    met += before == none
                    sums[d] = before + weights[e]
            else:
                for e in range(offsets[v], offsets[v + 1]):
                    d = labels[targets[e]]
                    before = sums[d]
                    keys[met] = d
                    met += before == none
                    sums[d] = before + 1
        begin = kept
        for i in range(met):
            d = keys[i]
            if d == c:
                loops[c] += sums[d]
            else:
                out[kept] = d
                out_weights[kept] = sums[d]
                kept += 1
            sums[d] = none
        sizes[c] = kept - begin


@njit(cache=True, nogil=True)
def look_up(values, places, out):
    """``out = values[places]`` without a copy of the places."""
    for i in range(places.size):
        out[i] = values[places[i]]


@njit(cache=True, nogil=True)
def add_up(labels, values, sums):
    """Sum `values` by label into `sums`."""
    for v in range(labels.size):
        sums[labels[v]] += values[v]


@njit(cache=True, nogil=True)
def row_sums(offsets, weights, sums):
    for v in range(offsets.size - 1):
        total = 0.0
        for e in range(offsets[v], offsets[v + 1]):
            total += weights[e]
        sums[v] += total


@njit(cache=True, nogil=True)
def widest_row(offsets):
    widest = offsets[0]
    for v in range(offsets.size - 1):
        widest = max(widest, offsets[v + 1] - offsets[v])
    return widest


@njit(cache=True, nogil=True)
def has_foreign_neighbour(offsets, targets, labels, flags):
    """Which vertices have a neighbour of another label."""
    for v in range(labels.size):
        flags[v] = 0
        own = labels[v]
        for e in range(offsets[v], offsets[v + 1]):
            if labels[targets[e]] != own:
                flags[v] = 1
                break


@njit(cache=True, nogil=True)
def inside_weight(offsets, targets, weights, labels, first, last, room):
    """Put the weight of the arcs in rows `first` to `last` that stay in their community into ``room[0]``."""
    weighted = weights.size > 0
    total = room[0]
    for v in range(first, last):
        own = labels[v]
        if weighted:
            for e in range(offsets[v], offsets[v + 1]):
                if labels[targets[e]] == own:
                    total += weights[e]
        else:
            count = 0
            for e in range(offsets[v], offsets[v + 1]):
                count += labels[targets[e]] == own
            total += count
    room[0] = total
