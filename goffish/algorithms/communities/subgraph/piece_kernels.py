"""Numba kernels of the partitioned Louvain: one partition's rows, its boundary, and moves between global labels.

Vertices of a piece are *positions* 0 … n-1 (its vertices by their number in the graph as read); ghosts follow as
n … n+g-1. The arcs of a row lead to positions first (``starts … middle``), then to ghosts (``middle … ends``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class PieceRows(NamedTuple):
    """The arcs of a `pieces.Piece`, whose fields these are."""

    starts: NDArray[np.int64]
    middle: NDArray[np.int64]
    ends: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float64]


class Degrees(NamedTuple):
    """Weighted degrees, or their totals over labels; `into` is empty where directions do not count."""

    out: NDArray[np.float64]
    into: NDArray[np.float64]


@kernel
def far_arcs(subgraph_offsets, offsets, targets, remote_offsets):
    """The arcs that leave subgraphs, in their order: (vertex, row of the remote table, arc)."""
    count = 0
    for e in range(offsets[0], offsets[-1]):
        count += targets[e] < 0
    source, remote, arc = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    at = 0
    for s in range(subgraph_offsets.size - 1):
        for v in range(subgraph_offsets[s], subgraph_offsets[s + 1]):
            for e in range(offsets[v], offsets[v + 1]):
                if targets[e] < 0:
                    source[at], remote[at], arc[at] = v, remote_offsets[s] + ~targets[e], e
                    at += 1
    return source, remote, arc


@kernel
def fill_far(rows, far, weights, cursor, out_targets, out_weights):
    """Append single arcs at the rows' cursors, in their order."""
    for i in range(rows.size):
        at = cursor[rows[i]]
        out_targets[at] = far[i]
        if out_weights.size:
            out_weights[at] = weights[i]
        cursor[rows[i]] = at + 1


@kernel
def boundary_pairs(middle, ends, targets, ghost_partition, partitions):
    """Distinct (position, neighboring partition) pairs by position: two arrays."""
    n = middle.size
    size = 0
    for v in range(n):
        size += ends[v] - middle[v]
    position, partition = np.empty(size, np.int64), np.empty(size, np.int64)
    seen = np.full(partitions, -1, np.int64)
    count = 0
    for v in range(n):
        for e in range(middle[v], ends[v]):
            p = ghost_partition[targets[e] - n]
            if seen[p] != v:
                seen[p] = v
                position[count] = v
                partition[count] = p
                count += 1
    return position[:count].copy(), partition[:count].copy()


@kernel
def local_rows(starts, middle, targets, weights, zeros, out_offsets, out_targets, out_weights):
    """The arcs inside the partition, row after row without gaps; arcs of weight 0 only with `zeros`."""
    size = 0
    for v in range(starts.size):
        for e in range(starts[v], middle[v]):
            if weights.size:
                if weights[e] == 0.0 and not zeros:
                    continue
                out_weights[size] = weights[e]
            out_targets[size] = targets[e]
            size += 1
        out_offsets[v + 1] = size
    return size


@kernel
def contested(starts, ends, targets, weights, label):
    """Whether more of each row's weight goes to other labels than to its own (loops apart)."""
    found = np.empty(starts.size, np.bool_)
    for v in range(starts.size):
        own = other = 0.0
        for e in range(starts[v], ends[v]):
            weight = weights[e] if weights.size else 1.0
            if label[targets[e]] == label[v]:
                own += weight
            else:
                other += weight
        found[v] = other > own
    return found


@kernel
def arcs_between(starts, middle, ends, targets, label):
    """Arcs that do not stay inside a label, cut ones included: at most so many rows go to the master."""
    count = 0
    for v in range(starts.size):
        count += ends[v] - middle[v]
        for e in range(starts[v], middle[v]):
            if label[targets[e]] != label[v]:
                count += 1
    return count


@kernel
def inside_weights(rows, starts, ends, targets, weights, loops, label, inside):
    """Weight of each listed row that stays in its label, the loop included."""
    for at in range(rows.size):
        v = rows[at]
        total = loops[v]
        for e in range(starts[v], ends[v]):
            if label[targets[e]] == label[v]:
                total += weights[e] if weights.size else 1.0
        inside[v] = total


@kernel
def touch_neighbours(middle, ends, targets, changed, fresh, dirty):
    """Mark the rows that have an arc to a changed ghost."""
    n = middle.size
    for v in range(n):
        for e in range(middle[v], ends[v]):
            if changed[targets[e] - n]:
                fresh[v] = True
                dirty[v] = True
                break


@kernel
def labels_around(rows, starts, ends, targets, label, wanted):
    """Mark the labels of the listed rows and of their neighbors."""
    for at in range(rows.size):
        v = rows[at]
        wanted[label[v]] = True
        for e in range(starts[v], ends[v]):
            wanted[label[targets[e]]] = True


@kernel
def move_between_labels(active, piece, degrees, scale, upward, sweeps, label, totals, fresh, dirty):
    """Move vertices between global labels: live labels of positions, stale ones of ghosts; returns the moves.

    A vertex with ghosts only moves to a smaller label, or with `upward` only to a larger one, so that two
    partitions never swap labels. ``totals`` are NaN for labels not requested, which attract and release no vertices.
    `scale` is the factor of the null model, see `levels.Level.scale`.
    Rows that a move touches are visited again in the next sweep, and marked `fresh` and `dirty`.
    """
    starts, middle, ends, targets, weights = piece
    degree, in_degree = degrees
    tot, tot_in = totals
    directed = in_degree.size > 0
    n = starts.size
    weight_to = np.zeros(tot.size)
    keys = np.empty(tot.size, np.int64)
    queued = np.zeros(n, np.bool_)
    rows = active
    moves = 0
    for _ in range(sweeps):
        for at in range(rows.size):
            v = rows[at]
            queued[v] = False
            k, own = degree[v], label[v]
            found = 0
            for e in range(starts[v], ends[v]):
                weight = weights[e] if weights.size else 1.0
                if weight == 0.0:
                    continue
                c = label[targets[e]]
                if weight_to[c] == 0.0:
                    keys[found] = c
                    found += 1
                weight_to[c] += weight
            share, k_in, share_in = scale * k, 0.0, 0.0
            stay = weight_to[own]
            if directed:
                k_in = in_degree[v]
                share_in = scale * k_in
                stay -= (tot_in[own] - k_in) * share + (tot[own] - k) * share_in
            else:
                stay -= (tot[own] - k) * share
            best, chosen = stay + 1e-12 * (k + k_in), own
            bound = ends[v] > middle[v]
            for j in range(found):
                c = keys[j]
                if c != own and (not bound or (c > own) == upward):
                    if directed:
                        g = weight_to[c] - (tot_in[c] * share + tot[c] * share_in)
                    else:
                        g = weight_to[c] - tot[c] * share
                    if g > best or (g == best and chosen != own and c < chosen):
                        best, chosen = g, c
                weight_to[c] = 0.0
            weight_to[own] = 0.0
            if chosen == own:
                continue
            tot[own] -= k
            tot[chosen] += k
            if directed:
                tot_in[own] -= k_in
                tot_in[chosen] += k_in
            label[v] = chosen
            moves += 1
            fresh[v] = True
            dirty[v] = True
            for e in range(starts[v], middle[v]):
                u = targets[e]
                fresh[u] = True
                dirty[u] = True
                if label[u] != chosen:
                    queued[u] = True
        rows = np.flatnonzero(queued)
        if rows.size == 0:
            break
    return moves


@kernel
def label_changes(rows, before, label, degree, size):
    """Change of the total degree of every label that the listed rows left or joined: (labels, changes)."""
    change = np.zeros(size)
    touched = np.zeros(size, np.bool_)
    for at in range(rows.size):
        v = rows[at]
        change[before[v]] -= degree[v]
        change[label[v]] += degree[v]
        touched[before[v]] = True
        touched[label[v]] = True
    labels = np.flatnonzero(touched)
    return labels, change[labels]


@kernel
def label_rows(starts, ends, targets, weights, loops, label, present, number, upper):
    """The partition's part of the matrix between labels, by row of `present`, neighbors in the order they are met.

    ``number[label]`` is the label's index in `present`. Returns (row labels, column labels, weights); every present
    label has first of all an entry with itself. With `upper`, only entries with larger labels follow.
    """
    n, count = starts.size, present.size
    first = np.zeros(count + 1, np.int64)
    arcs = 0
    for v in range(n):
        first[number[label[v]] + 1] += 1
        arcs += ends[v] - starts[v]
    for c in range(count):
        first[c + 1] += first[c]
    cursor = first[:-1].copy()
    members = np.empty(n, np.int64)
    for v in range(n):
        c = number[label[v]]
        members[cursor[c]] = v
        cursor[c] += 1
    row, column, weight = np.empty(arcs + count, np.int64), np.empty(arcs + count, np.int64), np.zeros(arcs + count)
    slot = np.full(number.size, -1, np.int64)
    size = 0
    for c in range(count):
        begin = size
        row[size] = column[size] = present[c]
        slot[present[c]] = size
        size += 1
        for m in range(first[c], first[c + 1]):
            v = members[m]
            weight[begin] += loops[v]
            for e in range(starts[v], ends[v]):
                d = label[targets[e]]
                if upper and d < present[c]:
                    continue
                if slot[d] < begin:
                    slot[d] = size
                    row[size] = present[c]
                    column[size] = d
                    weight[size] = 0.0
                    size += 1
                weight[slot[d]] += weights[e] if weights.size else 1.0
    return row[:size].copy(), column[:size].copy(), weight[:size].copy()
