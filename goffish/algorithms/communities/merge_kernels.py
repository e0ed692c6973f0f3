"""From labels to the next level: renumbering, member lists and the collapsed graph."""

from __future__ import annotations

import numpy as np

from goffish.kernels.barrier import prefetch
from goffish.kernels.compile import kernel

AHEAD = np.uint64(12)  # arcs: far enough for the label of a neighbor to arrive
LINE = np.uint64(16)  # numbers of four bytes in a cache line


@kernel
def renumber(labels, number):
    """Number the labels in use 0, 1, … by first appearance, in place; gives how many there are.

    `number` is scratch space with one element per possible label.
    """
    number[:] = 0
    count = number[:1].sum()
    for v in range(labels.size):
        c = labels[v]
        met = number[c]
        # Whether a label is new is anybody's guess: without a branch.
        new = met == 0
        count += new
        met += count * new
        number[c] = met
        labels[v] = met - 1
    return count


@kernel
def list_members(offsets, labels, order, members):
    """Fill `members` (see `levels.Members`; zeros before) in `order`; with an empty one ascending."""
    starts, vertices, space = members
    for v in range(labels.size):
        c = labels[v]
        starts[c + 1] += 1
        space[c + 1] += offsets[v + 1] - offsets[v]
    for c in range(1, starts.size):
        starts[c] += starts[c - 1]
        space[c] += space[c - 1]
    for i in range(labels.size):
        v = order[i] if order.size else i
        c = labels[v]
        vertices[starts[c]] = v
        starts[c] += 1
    for c in range(starts.size - 1, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0


@kernel
def merge_rows(arcs, labels, members, widest, first, last, begin, merged, loops):
    """Rows `first` to `last` of the collapsed graph, none with more than `widest` arcs, from arc `begin` on.

    `merged` receives sizes of rows in the place of offsets. The weight inside a community goes to `loops`.
    """
    offsets, targets, weights = arcs
    starts, vertices, _ = members
    sizes, out, out_weights = merged
    weighted = weights.size > 0
    count = starts.size - 1
    sums = np.zeros(count, out_weights.dtype)
    none = sums.sum()
    keys = np.empty(min(widest, count) + 1, out.dtype)
    end, size = starts[last], np.uint64(targets.size)
    kept = begin
    for c in range(first, last):
        met = 0
        for i in range(starts[c], starts[c + 1]):
            v = vertices[i]
            # Rows lie anywhere: have the next ones on their way, two cache lines of each.
            if i + 16 < end:
                prefetch(offsets, vertices[i + 16])
                ahead = offsets[vertices[i + 8]]
                prefetch(targets, ahead)
                prefetch(targets, ahead + LINE)
            if weighted:
                for e in range(offsets[v], offsets[v + 1]):
                    if e + AHEAD < size:
                        prefetch(labels, targets[e + AHEAD])
                    d = labels[targets[e]]
                    before = sums[d]
                    keys[met] = d
                    met += before == none
                    sums[d] = before + weights[e]
            else:
                for e in range(offsets[v], offsets[v + 1]):
                    if e + AHEAD < size:
                        prefetch(labels, targets[e + AHEAD])
                    d = labels[targets[e]]
                    before = sums[d]
                    keys[met] = d
                    met += before == none
                    sums[d] = before + 1
        row = kept
        for i in range(met):
            d = keys[i]
            if d == c:
                loops[c] += sums[d]
            else:
                out[kept] = d
                out_weights[kept] = sums[d]
                kept += 1
            sums[d] = none
        sizes[c] = kept - row


@kernel
def look_up(values, places, out):
    """``out = values[places]`` without a copy of the places."""
    for i in range(places.size):
        out[i] = values[places[i]]


@kernel
def add_up(labels, values, sums):
    """Sum `values` by label into `sums`."""
    for v in range(labels.size):
        sums[labels[v]] += values[v]


@kernel
def row_sums(offsets, weights, sums):
    for v in range(offsets.size - 1):
        total = 0.0
        for e in range(offsets[v], offsets[v + 1]):
            total += weights[e]
        sums[v] += total


@kernel
def merge_directions(out, into, offsets, targets, weights, loops):
    """Add up the rows of a directed graph and of its reverse, both ascending, without loops and sums of 0.

    Parameters
    ----------
    out, into : Csr
        Without weights every arc counts 1.
    offsets : int64, shape (n + 1,)
        Receives where rows begin.
    targets, weights : shape (twice the arcs,)
        Receive the rows, one after the other.
    loops : shape (n,)
        Receives the sums of loops; 0 before.
    """
    end = 0
    for v in range(offsets.size - 1):
        a, b = out.offsets[v], into.offsets[v]
        last_a, last_b = out.offsets[v + 1], into.offsets[v + 1]
        first = end
        while a < last_a or b < last_b:
            if b == last_b or (a < last_a and out.targets[a] <= into.targets[b]):
                target, weight = out.targets[a], out.weights[a] if out.weights.size else 1.0
                a += 1
            else:
                target, weight = into.targets[b], into.weights[b] if into.weights.size else 1.0
                b += 1
            if target == v:
                loops[v] += weight
            elif end > first and targets[end - 1] == target:
                weights[end - 1] += weight
            else:
                targets[end], weights[end] = target, weight
                end += 1
        if out.weights.size:
            kept = first
            for e in range(first, end):
                if weights[e] != 0.0:
                    targets[kept], weights[kept] = targets[e], weights[e]
                    kept += 1
            end = kept
        offsets[v + 1] = end


@kernel
def widest_row(offsets):
    widest = offsets[0]
    for v in range(offsets.size - 1):
        widest = max(widest, offsets[v + 1] - offsets[v])
    return widest


@kernel
def has_foreign_neighbour(arcs, labels, first, last, flags):
    """Which of the vertices `first` to `last` have a neighbor of another label."""
    offsets, targets, _ = arcs
    for v in range(first, last):
        flags[v] = 0
        own = labels[v]
        for e in range(offsets[v], offsets[v + 1]):
            if labels[targets[e]] != own:
                flags[v] = 1
                break


@kernel
def inside_weight(arcs, labels, first, last, space):
    """Put the weight of the arcs in rows `first` to `last` that stay in their community into ``space[0]``."""
    offsets, targets, weights = arcs
    weighted = weights.size > 0
    total = space[0]
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
    space[0] = total
