"""Kernels for triangle counting and core numbers inside subgraphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class Questions(NamedTuple):
    """Wedges u - v - w over three subgraphs, put to the owner of u: int64 each.

    Attributes
    ----------
    asked
        u, as a row of the remote table where the question comes from, as a vertex where it goes to.
    far, origin
        Partitioned numbers of w and v.
    """

    asked: NDArray[np.int64]
    far: NDArray[np.int64]
    origin: NDArray[np.int64]


@kernel
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


@kernel
def local_triangles(rows, middle, count, remote_count):
    """Triangles with at least two corners in one subgraph.

    Every edge u < v inside the subgraph is closed by the common local neighbors w > v and by the common remote
    neighbors; `count` is by vertex, `remote_count` by row of the remote table (a corner whose owner must be notified
    about).
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
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


@kernel
def remote_wedges(
    active, rows, middle, remote_vertex, remote_subgraph, start, degree, remote_degree, done, questions, open_subgraphs
):
    """Wedges u - v - w over three different subgraphs where v comes before u and u before w.

    Vertices are ordered by (degree, partitioned number), which bounds the wedges by m^1.5. Each one is a question to
    the owner of u: are you a neighbor of w? Stops when the output arrays cannot hold the next row; ``done[v]``
    remembers how many of v's remote arcs have had their turn as u, and ``open_subgraphs[s]`` whether any are left.
    Returns the count.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
    asked, far, origin = questions
    count = 0
    for a in range(active.size):
        s = active[a]
        remote = remote_offsets[s]
        for v in range(subgraph_offsets[s], subgraph_offsets[s + 1]):
            first, last = middle[v], offsets[v + 1]
            for i in range(first + done[v], last):
                if count + (last - first) > asked.size and count > 0:
                    open_subgraphs[s] = True
                    break
                done[v] += 1
                u = remote - targets[i] - 1
                if i > first and targets[i] == targets[i - 1]:
                    continue
                if (remote_degree[u], remote_vertex[u]) < (degree[v], start + v):
                    continue
                for j in range(first, last):
                    w = remote - targets[j] - 1
                    if j > first and targets[j] == targets[j - 1]:
                        continue
                    if remote_subgraph[u] == remote_subgraph[w]:
                        continue
                    if (remote_degree[w], remote_vertex[w]) > (remote_degree[u], remote_vertex[u]):
                        asked[count] = u
                        far[count] = remote_vertex[w]
                        origin[count] = start + v
                        count += 1
    return count


@kernel
def widest_tail(offsets, middle):
    """Most remote arcs of any vertex."""
    widest = 0
    for v in range(offsets.size - 1):
        widest = max(widest, offsets[v + 1] - middle[v])
    return widest


@kernel
def close_wedges(questions, subgraph, rows, middle, remote_vertex, count, remote_count):
    """Answer the questions of `remote_wedges`: count the triangle at all three corners if the edge exists.

    The questions of one wedge middle come in a run with ascending `far`, and so do remote tables and rows: each search
    goes on from where the one before ended.
    """
    vertex, far, origin = questions
    _, remote_offsets, offsets, targets = rows
    asked_by = asked_of = -1
    w = low = 0
    for i in range(vertex.size):
        u = vertex[i]
        begin, end = remote_offsets[subgraph[i]], remote_offsets[subgraph[i] + 1]
        if u != asked_of or origin[i] != asked_by:
            asked_of, asked_by = u, origin[i]
            w, low = begin, middle[u]
        w = _gallop(remote_vertex, w, end, far[i])
        if w >= end or remote_vertex[w] != far[i]:
            continue
        low = _gallop_codes(targets, low, offsets[u + 1], w - begin)
        if low < offsets[u + 1] and -targets[low] - 1 == w - begin:
            count[u] += 1
            remote_count[w] += 1
            remote_count[begin + np.searchsorted(remote_vertex[begin:end], asked_by)] += 1


@kernel
def _gallop(values, low, end, wanted):
    """First position from `low` on whose value is at least `wanted`, by doubling steps."""
    step = 1
    while low + step < end and values[low + step] < wanted:
        low += step
        step *= 2
    high = min(low + step, end)
    while low < high:
        at = (low + high) >> 1
        if values[at] < wanted:
            low = at + 1
        else:
            high = at
    return low


@kernel
def _gallop_codes(targets, low, end, wanted):
    """`_gallop` over remote targets, which are stored as ``~index``."""
    step = 1
    while low + step < end and -targets[low + step] - 1 < wanted:
        low += step
        step *= 2
    high = min(low + step, end)
    while low < high:
        at = (low + high) >> 1
        if -targets[at] - 1 < wanted:
            low = at + 1
        else:
            high = at
    return low


@kernel
def distinct_degrees(rows, degree):
    """Number of distinct neighbors of each vertex, itself excluded."""
    subgraph_offsets, _, offsets, targets = rows
    for s in range(subgraph_offsets.size - 1):
        low = subgraph_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            for i in range(offsets[v], offsets[v + 1]):
                if (i == offsets[v] or targets[i] != targets[i - 1]) and targets[i] != v - low:
                    degree[v] += 1


@kernel
def lower_cores(
    active, first_step, rows, middle, touched_offsets, touched, remote_before, remote_core, core, support, changed
):
    """Lower core estimates until every vertex has as many neighbors of at least its own estimate.

    ``support[v]`` counts those neighbors, so a vertex is looked at again only when they have become too few. `touched`
    are the rows of the remote table whose estimates fell (from `remote_before`), grouped by subgraph; in the first
    superstep every vertex is looked at. Sets ``changed[v]``.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
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
        fresh = np.zeros(remote_offsets[s + 1] - remote, np.bool_)
        for i in range(touched_offsets[s], touched_offsets[s + 1]):
            fresh[touched[i] - remote] = True
        length = 0
        for v in range(size):
            if not first_step and touched_offsets[s] < touched_offsets[s + 1]:
                k = core[low + v]
                for i in range(middle[low + v], offsets[low + v + 1]):
                    r = ~targets[i]
                    if i > middle[low + v] and targets[i] == targets[i - 1]:
                        continue
                    if fresh[r] and remote_before[remote + r] >= k > remote_core[remote + r]:
                        support[low + v] -= 1
            if first_step or support[low + v] < core[low + v]:
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
            for i in range(offsets[low + v], offsets[low + v + 1]):
                t = targets[i]
                if t == v or (i > offsets[low + v] and t == targets[i - 1]):
                    continue
                tally[min(core[low + t] if t >= 0 else remote_core[remote + ~t], old)] += 1
            new, above = old, tally[old]
            while above < new:
                new -= 1
                above += tally[new]
            support[low + v] = above
            if new == old:
                continue
            core[low + v] = new
            changed[low + v] = True
            for i in range(offsets[low + v], middle[low + v]):
                t = targets[i]
                if t == v or (i > offsets[low + v] and t == targets[i - 1]):
                    continue
                if old >= core[low + t] > new:
                    support[low + t] -= 1
                    if not waiting[t] and support[low + t] < core[low + t]:
                        waiting[t] = True
                        tail = head + length
                        queue[tail if tail < size else tail - size] = t
                        length += 1


@kernel
def news(changed, rows, middle, remote_subgraph, vertex, target):
    """(vertex, neighboring subgraph) pairs for the vertices whose value changed, each pair once.

    Returns their number; with empty output arrays they are only counted. Remote arcs are sorted, hence their
    subgraphs too.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
    count = 0
    for s in range(subgraph_offsets.size - 1):
        remote = remote_offsets[s]
        for v in range(subgraph_offsets[s], subgraph_offsets[s + 1]):
            if not changed[v]:
                continue
            previous = -1
            for i in range(middle[v], offsets[v + 1]):
                subgraph = remote_subgraph[remote - targets[i] - 1]
                if subgraph != previous:
                    if vertex.size:
                        vertex[count] = v
                        target[count] = subgraph
                    count += 1
                previous = subgraph
    return count
