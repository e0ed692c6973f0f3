"""Numba kernels that turn edge columns into compressed sparse rows."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

MERGE_SUM, MERGE_MIN, MERGE_FIRST = 0, 1, 2


@kernel
def count_arcs(src, dst, mirror, drop_loops, offsets):
    """Count the arcs of each vertex into ``offsets[v + 1]`` and accumulate; returns the loops seen."""
    loops = 0
    for i in range(src.size):
        if src[i] == dst[i]:
            loops += 1
            if drop_loops:
                continue
            offsets[src[i] + 1] += 1
        else:
            offsets[src[i] + 1] += 1
            if mirror:
                offsets[dst[i] + 1] += 1
    for v in range(offsets.size - 1):
        offsets[v + 1] += offsets[v]
    return loops


@kernel
def scatter_arcs(src, dst, mirror, drop_loops, cursor, targets, rows, want_rows):
    """Place both directions of every edge at ``cursor``; `rows` receives the input row of each arc."""
    for i in range(src.size):
        u, v = src[i], dst[i]
        if u == v and drop_loops:
            continue
        at = cursor[u]
        cursor[u] = at + 1
        targets[at] = v
        if want_rows:
            rows[at] = i
        if mirror and u != v:
            at = cursor[v]
            cursor[v] = at + 1
            targets[at] = u
            if want_rows:
                rows[at] = i


@kernel
def count_targets(targets, offsets):
    """In-degrees into ``offsets[v + 1]``, accumulated."""
    for i in range(targets.size):
        offsets[targets[i] + 1] += 1
    for v in range(offsets.size - 1):
        offsets[v + 1] += offsets[v]


@kernel
def transpose_arcs(offsets, targets, rows, want_rows, cursor, out_targets, out_rows):
    """Stable transposition of a CSR structure: every row of the result is sorted by target."""
    for u in range(offsets.size - 1):
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            at = cursor[v]
            cursor[v] = at + 1
            out_targets[at] = u
            if want_rows:
                out_rows[at] = rows[i]


@kernel
def merge_parallel(offsets, targets, rows, want_rows, weights, weighted, how, new_offsets):
    """Merge equal neighbors of each sorted row in place; returns the number of arcs left.

    `weights` is aligned with the arcs. The surviving input row is that of the kept value (``min``: of the
    smallest weight, the first one on ties; otherwise the first).
    """
    out = 0
    begin = offsets[0]
    for u in range(offsets.size - 1):
        end = offsets[u + 1]
        start_out = out
        for i in range(begin, end):
            if out > start_out and targets[out - 1] == targets[i]:
                if weighted:
                    if how == MERGE_SUM:
                        weights[out - 1] += weights[i]
                    elif how == MERGE_MIN and weights[i] < weights[out - 1]:
                        weights[out - 1] = weights[i]
                        if want_rows:
                            rows[out - 1] = rows[i]
            else:
                targets[out] = targets[i]
                if weighted:
                    weights[out] = weights[i]
                if want_rows:
                    rows[out] = rows[i]
                out += 1
        begin = end
        new_offsets[u + 1] = out
    return out


@kernel
def has_parallel(offsets, targets):
    """Whether any sorted row holds a neighbor twice."""
    for u in range(offsets.size - 1):
        for i in range(offsets[u] + 1, offsets[u + 1]):
            if targets[i] == targets[i - 1]:
                return True
    return False


@kernel
def arc_sources(offsets, out):
    """Expand row pointers to the source vertex of every arc."""
    for u in range(offsets.size - 1):
        for i in range(offsets[u], offsets[u + 1]):
            out[i] = u


@kernel
def number_edges(offsets, targets, rows, edge_of_arc):
    """Number the edges of an undirected graph in row order; both arcs of an edge get the same number.

    `rows` distinguishes parallel edges (the input row of each arc). Returns for each edge its arc in the
    row of the smaller end.
    """
    count = 0
    cursor = offsets[:-1].copy()
    first = np.empty(targets.size, np.int64)
    for u in range(offsets.size - 1):
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if v < u:
                continue
            edge_of_arc[i] = count
            if v > u:
                # rows are sorted, so the mirror arcs of v's smaller neighbors come in this same order
                edge_of_arc[cursor[v]] = count
                cursor[v] += 1
            first[count] = i
            count += 1
    return first[:count]


@kernel
def mark_present(ids, base, present):
    """Set ``present[id - base]`` for every id."""
    for i in range(ids.size):
        present[ids[i] - base] = 1


@kernel
def relabel(ids, base, rank, out):
    """``out = rank[ids - base]``."""
    for i in range(ids.size):
        out[i] = rank[ids[i] - base]


@kernel
def select_arcs(offsets, targets, number, chosen, new_offsets, new_targets, rows):
    """Copy the arcs between selected vertices; returns how many there are, and how many of them are loops.

    Parameters
    ----------
    number : integers, shape (n,)
        New numbers of the vertices, ascending; -1 for those that are left out.
    chosen : bool, shape (arcs,) or (0,)
        Arcs that are not left out; all if empty.
    new_offsets, new_targets, rows
        Filled with the new rows, and with the arc that each of theirs was; that is left out if `rows` is empty.
    """
    count, loops, row = 0, 0, 0
    for u in range(number.size):
        if number[u] < 0:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            v = number[targets[i]]
            if v >= 0 and (chosen.size == 0 or chosen[i]):
                new_targets[count] = v
                if rows.size:
                    rows[count] = i
                loops += v == row
                count += 1
        row += 1
        new_offsets[row] = count
    return count, loops


@kernel
def reach(offsets, targets, back_offsets, back_targets, radius, found, queue, count):
    """Mark the vertices within `radius` steps of the first `count` ones of a queue; returns how many there are.

    Rows of `back_offsets` are followed as well, unless it is empty.
    """
    begin, end = 0, count
    for _ in range(radius):
        for at in range(begin, end):
            u = queue[at]
            for i in range(offsets[u], offsets[u + 1]):
                if not found[targets[i]]:
                    found[targets[i]] = True
                    queue[count] = targets[i]
                    count += 1
            if back_offsets.size:
                for i in range(back_offsets[u], back_offsets[u + 1]):
                    if not found[back_targets[i]]:
                        found[back_targets[i]] = True
                        queue[count] = back_targets[i]
                        count += 1
        begin, end = end, count
        if begin == end:
            break
    return count
