"""Core numbers and triangles that follow changes of single edges.

Vertices are kept in an order in which they can be removed, by ascending core number, so that at most as many neighbors
follow a vertex as its core number says (Zhang, Yu, Zhang and Qin, ICDE 2017). An edge that is added concerns only
vertices from its first end on, and none if few enough neighbors follow it.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import make_room
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push
from goffish.streaming.graphs.row_kernels import ABSENT, put

#: Distance of the labels of two vertices that follow each other, when they are new.
_GAP = 1 << 28
#: States of vertices while an edge is added: in the queue, may have a larger core number, is to be taken back.
_QUEUED, _CANDIDATE, _BACK = 1, 2, 4


# Order of the vertices with one core number.


@kernel(allocates=False)
def _comes_before(cores, u, v):
    if cores.core[u] != cores.core[v]:
        return cores.core[u] < cores.core[v]
    return cores.label[u] < cores.label[v]


@kernel(allocates=False)
def _take(cores, v):
    """Remove a vertex from its list."""
    before, after = cores.preceding[v], cores.following[v]
    if before >= 0:
        cores.following[before] = after
    else:
        cores.head[cores.core[v]] = after
    if after >= 0:
        cores.preceding[after] = before
    else:
        cores.tail[cores.core[v]] = before


@kernel(allocates=False)
def _append(cores, v, k):
    """Make a vertex the last one with a core number."""
    last = cores.tail[k]
    cores.core[v], cores.preceding[v], cores.following[v], cores.tail[k] = k, last, -1, v
    if last >= 0:
        cores.following[last], cores.label[v] = v, cores.label[last] + _GAP
    else:
        cores.head[k], cores.label[v] = v, 0


@kernel(allocates=False)
def _prepend(cores, v, k):
    first = cores.head[k]
    cores.core[v], cores.preceding[v], cores.following[v], cores.head[k] = k, -1, first, v
    if first >= 0:
        cores.preceding[first], cores.label[v] = v, cores.label[first] - _GAP
    else:
        cores.tail[k], cores.label[v] = v, 0


@kernel(allocates=False)
def _insert(cores, v, before):
    """Put a vertex right after another one; return whether other labels have changed (Dietz and Sleator 1987)."""
    after = cores.following[before]
    if after < 0:
        _append(cores, v, cores.core[before])
        return False
    moved = cores.label[after] - cores.label[before] < 2
    if moved:
        steps, one, label = 1, after, cores.label[before]
        while one >= 0 and cores.label[one] - label <= steps * steps:
            one = cores.following[one]
            steps += 1
        space = _GAP * steps if one < 0 else cores.label[one] - label
        one, each = after, space // steps
        for i in range(1, steps):
            cores.label[one] = label + each * i
            one = cores.following[one]
    cores.core[v], cores.preceding[v], cores.following[v] = cores.core[before], before, after
    cores.following[before] = cores.preceding[after] = v
    cores.label[v] = cores.label[before] + (cores.label[after] - cores.label[before]) // 2
    return moved


@kernel(allocates=False)
def begin_cores(cores, order):
    """List vertices in an order in which they can be removed."""
    cores.head[:], cores.tail[:] = -1, -1
    for v in order:
        _append(cores, v, cores.core[v])


@kernel(allocates=False)
def count_later(net, cores, vertices):
    """Count the neighbors that follow each vertex."""
    for v in vertices:
        start, count = net.out.adjacency.starts[v], 0
        for j in range(start, start + net.out.adjacency.sizes[v]):
            count += _comes_before(cores, v, net.out.others[j])
        cores.later[v] = count


# Edges that are added.


@kernel
def _queue(cores, heap, v):
    keys, items, size = heap
    if size == keys.size:
        keys, items = make_room(keys, size, size + 1), make_room(items, size, size + 1)
    push(keys, items, size, cores.label[v], v, False)
    cores.states[v] |= _QUEUED
    return keys, items, size + 1


@kernel
def _take_back(net, cores, v, k, stack):
    """Note that a vertex keeps its core number; those candidates that need it follow it. Return the work."""
    cores.later[v] += cores.earlier[v]
    cores.earlier[v] = 0
    last, count, work, moved = v, 0, 0, False
    start = net.out.adjacency.starts[v]
    work += net.out.adjacency.sizes[v]
    for j in range(start, start + net.out.adjacency.sizes[v]):
        other = net.out.others[j]
        if cores.states[other] & _CANDIDATE:
            cores.later[other] -= 1
            if cores.earlier[other] + cores.later[other] <= k and not cores.states[other] & _BACK:
                cores.states[other] |= _BACK
                stack[count] = other
                count += 1
    at = 0
    while at < count:
        u = stack[at]
        at += 1
        cores.states[u] &= ~(_CANDIDATE | _BACK)
        start = net.out.adjacency.starts[u]
        work += net.out.adjacency.sizes[u]
        for j in range(start, start + net.out.adjacency.sizes[u]):
            other = net.out.others[j]
            if cores.core[other] != k or not cores.states[other]:
                continue
            if cores.states[other] & _CANDIDATE:
                if cores.label[other] < cores.label[u]:
                    cores.later[other] -= 1
                else:
                    cores.earlier[other] -= 1
                if cores.earlier[other] + cores.later[other] <= k and not cores.states[other] & _BACK:
                    cores.states[other] |= _BACK
                    stack[count] = other
                    count += 1
            elif cores.states[other] & _QUEUED and cores.label[u] < cores.label[other]:
                cores.earlier[other] -= 1
        cores.later[u] += cores.earlier[u]
        cores.earlier[u] = 0
        _take(cores, u)
        moved |= _insert(cores, u, last)
        last = u
    return work, moved


@kernel
def _raise(net, cores, u, v, stack):
    """Follow an edge that was added; return how many neighbors were looked at."""
    if not _comes_before(cores, u, v):
        u, v = v, u
    k = cores.core[u]
    cores.later[u] += 1
    if cores.later[u] <= k:
        return 1
    heap = np.empty(64, np.int64), np.empty(64, np.int64), 0
    heap = _queue(cores, heap, u)
    candidates, count, work = np.empty(16, np.int64), 0, 1
    while heap[2]:
        w = heap[1][0]
        pop(heap[0], heap[1], heap[2], False)
        heap = heap[0], heap[1], heap[2] - 1
        cores.states[w] &= ~_QUEUED
        work += 1
        if cores.earlier[w] + cores.later[w] > k:
            cores.states[w] |= _CANDIDATE
            if count == candidates.size:
                candidates = make_room(candidates, count, count + 1)
            candidates[count] = w
            count += 1
            start = net.out.adjacency.starts[w]
            work += net.out.adjacency.sizes[w]
            for j in range(start, start + net.out.adjacency.sizes[w]):
                other = net.out.others[j]
                if cores.core[other] == k and cores.label[w] < cores.label[other]:
                    cores.earlier[other] += 1
                    if not cores.states[other] & _QUEUED:
                        heap = _queue(cores, heap, other)
        elif cores.earlier[w] > 0:
            more, moved = _take_back(net, cores, w, k, stack)
            work += more
            if moved:
                for i in range(heap[2]):  # their order is the same
                    heap[0][i] = cores.label[heap[1][i]]
    for i in range(count - 1, -1, -1):
        w = candidates[i]
        if cores.states[w] & _CANDIDATE:
            cores.states[w], cores.earlier[w] = 0, 0
            _take(cores, w)
            _prepend(cores, w, k + 1)
    return work


# Edges that are removed.


@kernel(allocates=False)
def _supports(net, cores, v, k):
    start, count = net.out.adjacency.starts[v], 0
    for j in range(start, start + net.out.adjacency.sizes[v]):
        count += cores.core[net.out.others[j]] >= k
    return count


@kernel(allocates=False)
def _lower(net, cores, u, v, stack):
    """Follow an edge that was removed; return how many neighbors were looked at."""
    first = u if _comes_before(cores, u, v) else v
    cores.later[first] -= 1
    k, count, at, work = min(cores.core[u], cores.core[v]), 0, 0, 1
    for end in range(2):
        w = (u, v)[end]
        if cores.core[w] == k:
            work += net.out.adjacency.sizes[w]
            if _supports(net, cores, w, k) < k:
                cores.states[w] = _QUEUED
                stack[count] = w
                count += 1
    while at < count:
        w = stack[at]
        at += 1
        start, later = net.out.adjacency.starts[w], 0
        work += net.out.adjacency.sizes[w]
        for j in range(start, start + net.out.adjacency.sizes[w]):
            other = net.out.others[j]
            # Those that are lowered themselves are counted then.
            if cores.core[other] == k and not cores.states[other] and cores.label[other] < cores.label[w]:
                cores.later[other] -= 1
            later += cores.core[other] >= k
        _take(cores, w)
        _append(cores, w, k - 1)
        cores.later[w] = later
        for j in range(start, start + net.out.adjacency.sizes[w]):
            other = net.out.others[j]
            if cores.core[other] == k and not cores.states[other]:
                work += net.out.adjacency.sizes[other]
                if _supports(net, cores, other, k) < k:
                    cores.states[other] = _QUEUED
                    stack[count] = other
                    count += 1
    for i in range(count):
        cores.states[stack[i]] = 0
    return work


@kernel
def change_cores(net, cores, difference, stack, limit):
    """Follow changes of pairs and vertices until the work exceeds a limit.

    Return the work, and how many pairs were put into the rows.
    """
    work = 0
    for v in difference.come:
        cores.later[v] = 0
        _append(cores, v, 0)
    for i in range(difference.pairs.size):
        pair = difference.pairs[i]
        old = difference.before[i]
        put(net, pair, old, difference.weights[pair])
        if old == ABSENT:
            work += _raise(net, cores, net.sources[pair], net.targets[pair], stack)
        else:
            work += _lower(net, cores, net.sources[pair], net.targets[pair], stack)
        if work > limit:
            return work, i + 1
    for v in difference.gone:
        _take(cores, v)
    return work, difference.pairs.size


# Triangles.


@kernel(allocates=False)
def change_triangles(net, marks, triangles, difference, limit):
    """Follow changes of pairs until the work exceeds a limit.

    Return the work, and how many pairs were put into the rows. `marks` is false before and after.
    """
    work, starts, sizes, others = 0, net.out.adjacency.starts, net.out.adjacency.sizes, net.out.others
    for i in range(difference.pairs.size):
        pair = difference.pairs[i]
        old = difference.before[i]
        put(net, pair, old, difference.weights[pair])
        u, v = net.sources[pair], net.targets[pair]
        if sizes[u] > sizes[v]:
            u, v = v, u
        change, common = 1 if old == ABSENT else -1, 0
        for j in range(starts[u], starts[u] + sizes[u]):
            marks[others[j]] = True
        for j in range(starts[v], starts[v] + sizes[v]):
            if marks[others[j]]:
                triangles[others[j]] += change
                common += change
        for j in range(starts[u], starts[u] + sizes[u]):
            marks[others[j]] = False
        triangles[u] += common
        triangles[v] += common
        work += sizes[u] + sizes[v]
        if work > limit:
            return work, i + 1
    return work, difference.pairs.size
