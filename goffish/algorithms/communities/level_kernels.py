"""Numba kernels of the sequential method: rows from graphs and pairs, moves in one order, the collapse.

Rows never hold loops: those are a column of their own (A_ii, twice the loop's weight). An empty weight array means that
every arc weighs 1.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def count_rows(subgraph_offsets, offsets, targets, position, count):
    """Add the arcs inside subgraphs (targets of at least 0), loops excepted, to ``count[position + 1]``."""
    for s in range(subgraph_offsets.size - 1):
        base = subgraph_offsets[s]
        for v in range(base, subgraph_offsets[s + 1]):
            for e in range(offsets[v], offsets[v + 1]):
                if targets[e] >= 0 and base + targets[e] != v:
                    count[position[v] + 1] += 1


@kernel
def fill_rows(
    subgraph_offsets, offsets, targets, weights, factor, position, cursor, out_targets, out_weights, loops,
):  # fmt: skip
    """Append the arcs inside subgraphs at the rows' cursors; a loop adds `factor` times its weight to `loops`."""
    for s in range(subgraph_offsets.size - 1):
        base = subgraph_offsets[s]
        for v in range(base, subgraph_offsets[s + 1]):
            row = position[v]
            at = cursor[row]
            for e in range(offsets[v], offsets[v + 1]):
                if targets[e] < 0:
                    continue
                weight = weights[e] if weights.size else 1.0
                far = base + targets[e]
                if far == v:
                    loops[row] += factor * weight
                    continue
                out_targets[at] = position[far]
                if out_weights.size:
                    out_weights[at] = weight
                at += 1
            cursor[row] = at


@kernel
def move_vertices(arcs, order, degree, two_m, resolution, eps, max_passes, label, tot):
    """Passes of greedy moves over all vertices in one fixed order; changes `label` and `tot`.

    A vertex leaves its community only for a gain above 1e-12 of its degree, which lies over the rounding error of
    any weights; of equal candidates the first in the row wins. Returns (passes, moves, gain in modularity).
    """
    offsets, targets, weights = arcs
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
            for e in range(offsets[i], offsets[i + 1]):
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


@kernel
def rank_values(values, low, number, ranks):
    """Rank of each value among the distinct ones, which are returned, ascending.

    `number` has a place, 0, for every number from `low` to the largest value.
    """
    for i in range(values.size):
        number[values[i] - low] = 1
    count = 0
    for c in range(number.size):
        count += number[c]
    names = np.empty(count, np.int64)
    count = 0
    for c in range(number.size):
        if number[c]:
            names[count] = low + c
            number[c] = count
            count += 1
    for i in range(values.size):
        ranks[i] = number[values[i] - low]
    return names


@kernel
def collapse_rows(arcs, loops, label, members):
    """One vertex per label: merged rows in the order in which neighbors are met, and loop entries.

    Weights and loops are added up one after the other in the order of the `members` (see `levels.Members`) and rows.
    Returns (offsets, targets, weights, loops).
    """
    offsets, targets, weights = arcs
    first, vertices, space = members
    count = first.size - 1
    out_offsets = np.zeros(count + 1, np.int64)
    out_targets, out_weights = np.empty(space[count], targets.dtype), np.empty(space[count])
    out_loops = np.zeros(count)
    weight_to, slot = np.zeros(count), np.full(count, -1, np.int64)
    size = 0
    for c in range(count):
        begin = size
        inside = 0.0
        for m in range(first[c], first[c + 1]):
            i = vertices[m]
            if loops.size:
                inside += loops[i]
            for e in range(offsets[i], offsets[i + 1]):
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
        out_offsets[c + 1] = size
    return out_offsets, out_targets[:size].copy(), out_weights[:size].copy(), out_loops


@kernel
def neighbour_order(offsets, targets, by_degree, order):
    """Scan by decreasing degree and queue the neighbors of each vertex, by increasing id, where not queued yet."""
    n = by_degree.size
    queued = np.zeros(n, np.bool_)
    count = 0
    for at in range(n):
        i = by_degree[at]
        for j in np.sort(targets[offsets[i] : offsets[i + 1]]):
            if not queued[j]:
                queued[j] = True
                order[count] = j
                count += 1
    for i in range(n):
        if not queued[i]:
            order[count] = i
            count += 1


@kernel
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
