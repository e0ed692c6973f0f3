"""Numba kernels of one Louvain level on half-edge rows: moves, collapse, orders, connected pieces.

Rows never hold loops: those are a column of their own (A_ii, twice the loop's weight). The arcs of vertex i are
``starts[i] … ends[i]``. An empty weight array means that every arc weighs 1.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def row_sums(starts, ends, weights, loops, degree):
    """Weighted degrees: the row's weights, and the loop entry."""
    for i in range(starts.size):
        total = float(ends[i] - starts[i])
        if weights.size:
            total = 0.0
            for e in range(starts[i], ends[i]):
                total += weights[e]
        degree[i] = total + loops[i]


@njit(cache=True, nogil=True)
def count_loops(offsets, targets):
    """Arcs whose ends are equal."""
    count = 0
    for i in range(offsets.size - 1):
        for e in range(offsets[i], offsets[i + 1]):
            if targets[e] == i:
                count += 1
    return count


@njit(cache=True, nogil=True)
def count_row_arcs(offsets, targets, count):
    """Add the arcs of every row that are no loops to ``count[row + 1]``."""
    for i in range(offsets.size - 1):
        for e in range(offsets[i], offsets[i + 1]):
            if targets[e] != i:
                count[i + 1] += 1


@njit(cache=True, nogil=True)
def fill_row_arcs(offsets, targets, weights, factor, cursor, out_targets, out_weights, loops):
    """Append the arcs of every row at its cursor; a loop adds `factor` times its weight to the loop column."""
    for i in range(offsets.size - 1):
        at = cursor[i]
        for e in range(offsets[i], offsets[i + 1]):
            weight = weights[e] if weights.size else 1.0
            if targets[e] == i:
                loops[i] += factor * weight
                continue
            out_targets[at] = targets[e]
            if out_weights.size:
                out_weights[at] = weight
            at += 1
        cursor[i] = at


@njit(cache=True, nogil=True)
def move_vertices(
    starts, ends, targets, weights, order, degree, two_m, resolution, eps, max_passes, label, tot,
):  # fmt: skip
    """Passes of greedy moves over all vertices in one fixed order; changes `label` and `tot`.

    A vertex leaves its community only for a gain above 1e-12 of its degree, which lies over the rounding error of
    any weights; of equal candidates the first in the row wins. Returns (passes, moves, gain in modularity).
    """
    n = order.size
    weight_to = np.zeros(tot.size)
    keys = np.empty(tot.size, label.dtype)
    total_gain, moves, passes = 0.0, 0, 0
    while passes < max_passes:
        gain, moved = 0.0, 0
        for at in range(n):
            i = order[at]
            k = degree[i]
            own = label[i]
            found = 0
            for e in range(starts[i], ends[i]):
                weight = weights[e] if weights.size else 1.0
                if weight == 0.0:
                    continue
                c = label[targets[e]]
                if weight_to[c] == 0.0:
                    keys[found] = c
                    found += 1
                weight_to[c] += weight
            share = resolution * k / two_m
            stay = weight_to[own] - (tot[own] - k) * share
            best, chosen = stay + 1e-12 * k, own
            for j in range(found):
                c = keys[j]
                if c != own:
                    g = weight_to[c] - tot[c] * share
                    if g > best:
                        best, chosen = g, c
                weight_to[c] = 0.0
            weight_to[own] = 0.0
            if chosen != own:
                tot[own] -= k
                tot[chosen] += k
                label[i] = chosen
                gain += best - stay
                moved += 1
        passes += 1
        gain *= 2.0 / two_m
        total_gain += gain
        moves += moved
        if moved == 0 or gain <= eps:
            break
    return passes, moves, total_gain


@njit(cache=True, nogil=True)
def compact_labels(label, size, out):
    """Renumber the labels in use 0 … N-1 in increasing order; returns N."""
    number = np.full(size, -1, np.int64)
    for i in range(label.size):
        number[label[i]] = 0
    count = 0
    for c in range(size):
        if number[c] == 0:
            number[c] = count
            count += 1
    for i in range(label.size):
        out[i] = number[label[i]]
    return count


@njit(cache=True, nogil=True)
def collapse_rows(starts, ends, targets, weights, loops, label, count):
    """One vertex per label: merged rows in the order in which neighbours are met, and loop entries.

    Returns (offsets, targets, weights, loops).
    """
    first = np.zeros(count + 1, np.int64)
    arcs = 0
    for i in range(label.size):
        first[label[i] + 1] += 1
        arcs += ends[i] - starts[i]
    for c in range(count):
        first[c + 1] += first[c]
    cursor = first[:-1].copy()
    members = np.empty(label.size, np.int64)
    for i in range(label.size):
        members[cursor[label[i]]] = i
        cursor[label[i]] += 1
    offsets = np.zeros(count + 1, np.int64)
    out_targets, out_weights = np.empty(arcs, targets.dtype), np.empty(arcs)
    out_loops = np.zeros(count)
    weight_to, slot = np.zeros(count), np.full(count, -1, np.int64)
    size = 0
    for c in range(count):
        begin = size
        inside = 0.0
        for m in range(first[c], first[c + 1]):
            i = members[m]
            inside += loops[i]
            for e in range(starts[i], ends[i]):
                d = label[targets[e]]
                weight = weights[e] if weights.size else 1.0
                if d == c:
                    inside += weight
                    continue
                if slot[d] < begin:
                    slot[d] = size
                    out_targets[size] = d
                    size += 1
                    weight_to[d] = 0.0
                weight_to[d] += weight
        for j in range(begin, size):
            out_weights[j] = weight_to[out_targets[j]]
        out_loops[c] = inside
        offsets[c + 1] = size
    return offsets, out_targets[:size].copy(), out_weights[:size].copy(), out_loops


@njit(cache=True, nogil=True)
def split_labels(starts, ends, targets, label, piece):
    """Number the connected pieces of every label by their first vertex; returns how many there are.

    Arcs to targets at or above ``starts.size`` are not followed.
    """
    n = starts.size
    piece[:n] = -1
    stack = np.empty(n, np.int64)
    count = 0
    for root in range(n):
        if piece[root] >= 0:
            continue
        piece[root] = count
        stack[0] = root
        top = 1
        while top:
            top -= 1
            i = stack[top]
            for e in range(starts[i], ends[i]):
                j = targets[e]
                if j < n and piece[j] < 0 and label[j] == label[i]:
                    piece[j] = count
                    stack[top] = j
                    top += 1
        count += 1
    return count


@njit(cache=True, nogil=True)
def neighbour_order(starts, ends, targets, by_degree, order):
    """Scan by decreasing degree and queue the neighbours of each vertex, by increasing id, where not queued yet."""
    n = by_degree.size
    queued = np.zeros(n, np.bool_)
    count = 0
    for at in range(n):
        i = by_degree[at]
        for j in np.sort(targets[starts[i] : ends[i]]):
            if not queued[j]:
                queued[j] = True
                order[count] = j
                count += 1
    for i in range(n):
        if not queued[i]:
            order[count] = i
            count += 1


@njit(cache=True, nogil=True)
def pair_rows(row, column, weight, count):
    """Rows from (row, column, weight) triples in their order; pairs of equal ends go to the loop column.

    Returns (offsets, targets, weights, loops); several triples for one entry stay apart.
    """
    offsets = np.zeros(count + 1, np.int64)
    for i in range(row.size):
        if row[i] != column[i]:
            offsets[row[i] + 1] += 1
    for c in range(count):
        offsets[c + 1] += offsets[c]
    cursor = offsets[:-1].copy()
    targets, weights = np.empty(offsets[count], np.int32), np.empty(offsets[count])
    loops = np.zeros(count)
    for i in range(row.size):
        if row[i] == column[i]:
            loops[row[i]] += weight[i]
        else:
            targets[cursor[row[i]]] = column[i]
            weights[cursor[row[i]]] = weight[i]
            cursor[row[i]] += 1
    return offsets, targets, weights, loops
