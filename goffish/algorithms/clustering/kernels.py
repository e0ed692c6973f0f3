"""Triangle and core kernels on symmetric, ascending rows; self-loops and repeated neighbors are passed over."""

from __future__ import annotations

from goffish.kernels.compile import kernel


@kernel
def simple_degrees(offsets, targets, degree):
    """Number of distinct other neighbors of every vertex."""
    for u in range(degree.size):
        before = targets.dtype.type(-1)
        count = 0
        for i in range(offsets[u], offsets[u + 1]):
            if targets[i] != u and targets[i] != before:
                count += 1
            before = targets[i]
        degree[u] = count


@kernel
def orient(offsets, targets, degree, place, out_offsets, out_targets):
    """Keep each edge at its end of smaller (degree, number); the new rows are in the order of that key.

    Parameters
    ----------
    place : integers, shape (n,)
        Position of every vertex in ascending order of degree, ties by number.
    out_offsets, out_targets
        Rows by place; targets are places too.
    """
    n = degree.size
    for u in range(n):
        before = targets.dtype.type(-1)
        count = 0
        for i in range(offsets[u], offsets[u + 1]):
            count += targets[i] != before and place[targets[i]] > place[u]
            before = targets[i]
        out_offsets[place[u] + 1] = count
    for v in range(n):
        out_offsets[v + 1] += out_offsets[v]
    for u in range(n):
        before = targets.dtype.type(-1)
        at = out_offsets[place[u]]
        for i in range(offsets[u], offsets[u + 1]):
            if targets[i] != before and place[targets[i]] > place[u]:
                out_targets[at] = place[targets[i]]
                at += 1
            before = targets[i]


@kernel
def intersection_work(offsets, targets, work):
    """Accumulated number of steps that `count_triangles` takes up to each row."""
    for u in range(offsets.size - 1):
        steps = 0
        for i in range(offsets[u], offsets[u + 1]):
            steps += offsets[targets[i] + 1] - offsets[targets[i]]
        work[u + 1] = work[u] + steps


@kernel
def count_triangles(offsets, targets, first, last, mark, triangles):
    """Triangles whose smallest corner lies in some rows, added at all three corners.

    The forward algorithm (Schank and Wagner, WEA 2005) on marks. `mark` is filled with -1.
    """
    for u in range(first, last):
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = u
        at_u = 0
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            at_v = 0
            for j in range(offsets[v], offsets[v + 1]):
                closed = mark[targets[j]] == u
                triangles[targets[j]] += closed
                at_v += closed
            triangles[v] += at_v
            at_u += at_v
        triangles[u] += at_u


@kernel
def peel(offsets, targets, order, place, starts, core):
    """Core numbers: remove a vertex of least degree again and again, in time linear in the arcs.

    Batagelj and Zaveršnik, An O(m) algorithm for cores decomposition of networks (2003).

    Parameters
    ----------
    order, place : integers, shape (n,)
        Vertices in ascending order of degree, and the position of each vertex in it.
    starts : integers
        Where each degree starts in `order`.
    core : integers, shape (n,)
        Simple degrees on entry, core numbers on return.
    """
    for at in range(order.size):
        u = order[at]
        before = targets.dtype.type(-1)
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if v == before:
                continue
            before = v
            if core[v] > core[u]:
                # Swap v with the first vertex of its degree, then move the border past it.
                k = core[v]
                front = starts[k]
                w = order[front]
                if w != v:
                    here = place[v]
                    order[front], order[here] = v, w
                    place[v], place[w] = front, here
                starts[k] = front + 1
                core[v] = k - 1


@kernel
def sort_by_degree(degree, starts, order, place):
    """Counting sort, stable; `starts` has one entry for every degree and one more, and is zero on entry."""
    for v in range(degree.size):
        starts[degree[v] + 1] += 1
    for k in range(starts.size - 1):
        starts[k + 1] += starts[k]
    for v in range(degree.size):
        at = starts[degree[v]]
        starts[degree[v]] = at + 1
        order[at], place[v] = v, at
    for k in range(starts.size - 1, 0, -1):
        starts[k] = starts[k - 1]
    starts[0] = 0
