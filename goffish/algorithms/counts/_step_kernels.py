"""Kernels for triangle counting and core numbers inside sub-graphs."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def split_rows(offsets, targets, middle):
    """First remote arc of every row."""
    for v in range(offsets.size - 1):
        low, high = offsets[v], offsets[v + 1]
        while low < high:
            at = (low + high) >> 1
            if targets[at] >= 0:
                low = at + 1
            else:
                high = at
        middle[v] = low


@njit(cache=True, nogil=True)
def local_triangles(subgraph_offsets, remote_offsets, offsets, middle, targets, count, remote_count):
    """Triangles with at least two corners in one sub-graph.

    Every edge u < v inside the sub-graph is closed by the common local neighbours w > v and by the common remote neighbours;
    `count` is by vertex, `remote_count` by row of the remote table (a corner that its owner must be told about).
    """
    for s in range(subgraph_offsets.size - 1):
        low = subgraph_offsets[s]
        size = subgraph_offsets[s + 1] - low
        remote = remote_offsets[s]
        mark = np.full(size, -1, np.int64)
        remote_mark = np.full(remote_offsets[s + 1] - remote, -1, np.int64)
        for u in range(size):
            for i in range(offsets[low + u], middle[low + u]):
                mark[targets[i]] = u
            for i in range(middle[low + u], offsets[low + u + 1]):
                remote_mark[~targets[i]] = u
            previous = -1
            for i in range(offsets[low + u], middle[low + u]):
                v = targets[i]
                if v <= u or v == previous:
                    continue
                previous = v
                last = -1
                for j in range(offsets[low + v], middle[low + v]):
                    w = targets[j]
                    if w > v and w != last and mark[w] == u:
                        count[low + u] += 1
                        count[low + v] += 1
                        count[low + w] += 1
                    last = w
                last = 0
                for j in range(middle[low + v], offsets[low + v + 1]):
                    r = ~targets[j]
                    if targets[j] != last and remote_mark[r] == u:
                        count[low + u] += 1
                        count[low + v] += 1
                        remote_count[remote + r] += 1
                    last = targets[j]


@njit(cache=True, nogil=True)
def remote_wedges(
    subgraph_offsets, remote_offsets, remote_vertex, remote_subgraph, offsets, middle, targets, start,
    asked, far, origin,
):  # fmt: skip
    """Wedges u - v - w with three different sub-graphs and v < u < w (partitioned numbers).

    With empty output arrays the wedges are only counted. Each one is a question to the owner of u: are you a
    neighbour of w?
    """
    count = 0
    for s in range(subgraph_offsets.size - 1):
        remote = remote_offsets[s]
        for v in range(subgraph_offsets[s], subgraph_offsets[s + 1]):
            for i in range(middle[v], offsets[v + 1]):
                a = remote + ~targets[i]
                if remote_vertex[a] < start + v or (i > middle[v] and targets[i] == targets[i - 1]):
                    continue
                for j in range(middle[v], offsets[v + 1]):
                    b = remote + ~targets[j]
                    if remote_vertex[b] <= remote_vertex[a] or remote_subgraph[a] == remote_subgraph[b]:
                        continue
                    if j > middle[v] and targets[j] == targets[j - 1]:
                        continue
                    if asked.size:
                        asked[count] = a
                        far[count] = remote_vertex[b]
                        origin[count] = start + v
                    count += 1
    return count


@njit(cache=True, nogil=True)
def close_wedges(
    vertex, far, origin, subgraph, remote_offsets, remote_vertex, offsets, middle, targets,
    count, remote_count,
):  # fmt: skip
    """Answer the questions of `remote_wedges`: count the triangle at all three corners if the edge exists."""
    for i in range(vertex.size):
        if far[i] < 0:
            continue
        u = vertex[i]
        begin, end = remote_offsets[subgraph[i]], remote_offsets[subgraph[i] + 1]
        w = begin + np.searchsorted(remote_vertex[begin:end], far[i])
        if w >= end or remote_vertex[w] != far[i]:
            continue
        code = ~(w - begin)
        for j in range(middle[u], offsets[u + 1]):
            if targets[j] == code:
                count[u] += 1
                remote_count[w] += 1
                remote_count[begin + np.searchsorted(remote_vertex[begin:end], origin[i])] += 1
                break


@njit(cache=True, nogil=True)
def distinct_degrees(subgraph_offsets, offsets, targets, degree):
    """Number of distinct neighbours of each vertex, itself excluded."""
    for s in range(subgraph_offsets.size - 1):
        low = subgraph_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            for i in range(offsets[v], offsets[v + 1]):
                if (i == offsets[v] or targets[i] != targets[i - 1]) and targets[i] != v - low:
                    degree[v] += 1


@njit(cache=True, nogil=True)
def lower_cores(
    active, first_step, subgraph_offsets, remote_offsets, offsets, targets, touched_offsets, touched,
    core, remote_core, changed,
):  # fmt: skip
    """Lower core estimates until every vertex has as many neighbours of at least its own estimate.

    Starts from the neighbours of the remote vertices in `touched` (rows of the remote table, grouped by sub-graph), or from
    every vertex in the first superstep. Sets ``changed[v]``.
    """
    biggest = 0
    for a in range(active.size):
        biggest = max(biggest, subgraph_offsets[active[a] + 1] - subgraph_offsets[active[a]])
    queue = np.empty(biggest, np.int64)
    waiting = np.zeros(biggest, np.bool_)
    tally = np.zeros(16, np.int64)
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        size = subgraph_offsets[s + 1] - low
        touched_here = touched[touched_offsets[s] : touched_offsets[s + 1]]
        fresh = np.zeros(remote_offsets[s + 1] - remote, np.bool_)
        for r in touched_here:
            fresh[r - remote] = True
        length = 0
        for v in range(size):
            start_it = first_step
            if not start_it and touched_here.size:
                i = offsets[low + v + 1] - 1
                while i >= offsets[low + v] and targets[i] < 0:
                    if fresh[~targets[i]]:
                        start_it = True
                        break
                    i -= 1
            if start_it:
                queue[length] = v
                waiting[v] = True
                length += 1
        head = 0
        while length > 0:
            v = queue[head]
            head = head + 1 if head + 1 < size else 0
            length -= 1
            waiting[v] = False
            old = core[low + v]
            if old + 1 > tally.size:
                tally = np.zeros(2 * (old + 1), np.int64)
            tally[: old + 1] = 0
            previous = v
            for i in range(offsets[low + v], offsets[low + v + 1]):
                t = targets[i]
                if t == v or (i > offsets[low + v] and t == previous):
                    continue
                previous = t
                k = core[low + t] if t >= 0 else remote_core[remote + ~t]
                tally[min(k, old)] += 1
            new, above = old, tally[old]
            while new > 0 and above < new:
                new -= 1
                above += tally[new]
            if new < old:
                core[low + v] = new
                changed[low + v] = True
                for i in range(offsets[low + v], offsets[low + v + 1]):
                    t = targets[i]
                    if t < 0:
                        break
                    if not waiting[t] and core[low + t] > new:
                        waiting[t] = True
                        tail = head + length
                        queue[tail if tail < size else tail - size] = t
                        length += 1


@njit(cache=True, nogil=True)
def core_news(
    changed, subgraph_offsets, remote_offsets, remote_subgraph, offsets, middle, targets, vertex, target
):
    """(vertex, neighbouring sub-graph) pairs to tell about changed estimates, each pair once.

    Returns their number; with empty output arrays they are only counted.
    """
    count = 0
    told = np.empty(16, np.int64)
    for s in range(subgraph_offsets.size - 1):
        remote = remote_offsets[s]
        for v in range(subgraph_offsets[s], subgraph_offsets[s + 1]):
            if not changed[v]:
                continue
            degree = offsets[v + 1] - middle[v]
            if degree > told.size:
                told = np.empty(2 * degree, np.int64)
            for i in range(degree):
                told[i] = remote_subgraph[remote + ~targets[middle[v] + i]]
            told[:degree].sort()
            for i in range(degree):
                if i == 0 or told[i] != told[i - 1]:
                    if vertex.size:
                        vertex[count] = v
                        target[count] = told[i]
                    count += 1
    return count
