"""Kernels of bipartite graphs, on symmetric, ascending rows; repeated neighbors are passed over."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from goffish.kernels.compile import kernel

#: Length of rows up to which insertion is the fastest way to sort.
_SHORT = 48


class Sides(NamedTuple):
    """Rows of a bipartite graph, and one of its sides.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
    targets : integers, shape (arcs,)
    kept : integers, shape (k,)
        Vertices of the side, ascending.
    members : integers, shape (arcs,)
        Places of the targets in `kept`, of those on the side.
    share : float64, shape (n,)
        What each vertex of the other side adds to the weight between two of its neighbors.
    """

    offsets: NDArray[Any]
    targets: NDArray[Any]
    kept: NDArray[Any]
    members: NDArray[Any]
    share: NDArray[Any]


@kernel(allocates=False)
def two_sides(offsets, targets, side, parent, queue):
    """Divide vertices into sides 0 and 1 without edges inside, breadth first; the first of each component is on 0.

    Parameters
    ----------
    side : int8, shape (n,)
        Filled with -1.
    parent : integers, shape (n,)
        Receives the vertex from which each one was reached; itself for the first of a component.

    Returns
    -------
    u, v : int
        Ends of an edge inside a side, at equal distances from the first vertex of their component; -1 for none.
    """
    for start in range(side.size):
        if side[start] >= 0:
            continue
        side[start], parent[start], queue[0] = 0, start, start
        at, size = 0, 1
        while at < size:
            u = queue[at]
            at += 1
            for i in range(offsets[u], offsets[u + 1]):
                v = targets[i]
                if side[v] < 0:
                    side[v], parent[v], queue[size] = 1 - side[u], u, v
                    size += 1
                elif side[v] == side[u]:
                    return u, v
    return -1, -1


@kernel(allocates=False)
def inside_edge(offsets, targets, mask):
    """The first edge whose ends are both in a set, or both not; twice -1 for none."""
    for u in range(mask.size):
        for i in range(offsets[u], offsets[u + 1]):
            if mask[targets[i]] == mask[u]:
                return u, targets[i]
    return -1, -1


@kernel(allocates=False)
def count_projected(sides, first, last, seen, counts):
    """Numbers of vertices that share neighbors with each of some vertices; `seen` holds -1."""
    offsets, targets = sides.offsets, sides.targets
    for a in range(first, last):
        u, found = sides.kept[a], 0
        for i in range(offsets[u], offsets[u + 1]):
            x = targets[i]
            for j in range(offsets[x], offsets[x + 1]):
                w = sides.members[j]
                if seen[w] != a:
                    seen[w] = a
                    found += w != a
        counts[a] = found


@kernel(allocates=False, inner=True)
def sort_row(values, begin, end, scratch, counts):
    """Sort some numbers that are not negative: short rows by insertion, others by eight bits at a time."""
    if end - begin <= _SHORT:
        for i in range(begin + 1, end):
            value, at = values[i], i
            while at > begin and values[at - 1] > value:
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
        return
    most = values[begin]
    for i in range(begin + 1, end):
        most = max(most, values[i])
    shift = 0
    while most >> shift > 0:
        for digit in range(256):
            counts[digit] = 0
        for i in range(begin, end):
            counts[values[i] >> shift & 255] += 1
        before = 0
        for digit in range(256):
            before, counts[digit] = before + counts[digit], before
        for i in range(begin, end):
            digit = values[i] >> shift & 255
            scratch[counts[digit]] = values[i]
            counts[digit] += 1
        for i in range(begin, end):
            values[i] = scratch[i - begin]
        shift += 8


@kernel(allocates=False)
def fill_projected(sides, first, last, memory, rows, out_targets, out_weights):
    """Rows of some vertices of the projection, ascending.

    Parameters
    ----------
    memory : tuple
        Zeros, shape (k,); scratch of targets, shape (k,), and int64, shape (256,).
    rows : int64, shape (k + 1,)
        Where each row begins.
    """
    offsets, targets = sides.offsets, sides.targets
    none = targets.dtype.type(-1)
    sums, scratch, counts = memory
    for a in range(first, last):
        u, begin = sides.kept[a], rows[a]
        at, before = begin, none
        for i in range(offsets[u], offsets[u + 1]):
            x = targets[i]
            if x == before:
                continue
            before, last_w, share = x, none, sides.share[x]
            for j in range(offsets[x], offsets[x + 1]):
                w = sides.members[j]
                again = w == last_w
                last_w = w
                if w == a or again:
                    continue
                if sums[w] == 0.0:
                    out_targets[at] = w
                    at += 1
                sums[w] += share
        sort_row(out_targets, begin, at, scratch, counts)
        for i in range(begin, at):
            out_weights[i] = sums[out_targets[i]]
            sums[out_targets[i]] = 0.0


@kernel(allocates=False)
def drop_few(offsets, targets, on_side, alpha, degree, gone):
    """Remove the vertices of a side that have less than `alpha` neighbors."""
    for u in range(on_side.size):
        if not on_side[u] or degree[u] >= alpha:
            continue
        gone[u] = True
        before = targets.dtype.type(-1)
        for i in range(offsets[u], offsets[u + 1]):
            if targets[i] != before:
                degree[targets[i]] -= 1
            before = targets[i]


@kernel(allocates=False)
def peel_side(offsets, targets, others, alpha, degree, gone, sorted_by, core):
    """Remove the other side by ascending degree, and vertices of the side that have less than `alpha` neighbors left.

    Parameters
    ----------
    others : int
        Number of vertices of the other side.
    degree : integers, shape (n,)
        Numbers of neighbors that are left, of the vertices of the side.
    sorted_by : tuple
        Vertices in ascending order of `core`, the place of each vertex in it, and where each value starts.
    core : integers, shape (n,)
        Numbers of neighbors that are left, of the other side; the values of both sides on return.
    """
    order, place, starts = sorted_by
    for at in range(others):
        u = order[at]
        level, before = core[u], targets.dtype.type(-1)
        for i in range(offsets[u], offsets[u + 1]):
            x = targets[i]
            if x == before or gone[x]:
                continue
            before = x
            degree[x] -= 1
            if degree[x] >= alpha:
                continue
            gone[x] = True
            core[x] = level
            last = targets.dtype.type(-1)
            for j in range(offsets[x], offsets[x + 1]):
                v = targets[j]
                if v != last and core[v] > level:
                    # Swap v with the first vertex of its value, then move the border past it.
                    k = core[v]
                    front = starts[k]
                    w = order[front]
                    here = place[v]
                    order[front], order[here] = v, w
                    place[v], place[w] = front, here
                    starts[k] = front + 1
                    core[v] = k - 1
                last = v
