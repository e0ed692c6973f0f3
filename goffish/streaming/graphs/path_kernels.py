"""Distances from a source that follow changes, as by Ramalingam and Reps (J. Algorithms 1996), and their paths."""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import make_room
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push
from goffish.streaming.graphs.row_kernels import ABSENT, put

#: States of vertices: their distance may have changed, or the distance of a neighbor.
_LOST, _CHANGED, _NEAR = 1, 2, 4


@kernel
def _wait(heap, key, vertex):
    keys, items, size = heap
    if size == keys.size:
        keys, items = make_room(keys, size, size + 1), make_room(items, size, size + 1)
    push(keys, items, size, key, vertex, False)
    return keys, items, size + 1


@kernel(allocates=False)
def _mark(paths, vertex, state):
    """Note a state of a vertex, and the vertex when it is the first one."""
    if not paths.states[vertex]:
        paths.marked[paths.used[0]] = vertex
        paths.used[0] += 1
    paths.states[vertex] |= state


@kernel(allocates=False)
def _nearest(net, paths, vertex):
    """Return the least distance by way of a neighbor that is not lost, and the first strictly nearer such neighbor."""
    rows, best, found = net.into, np.inf, -1
    start = rows.adjacency.starts[vertex]
    for j in range(start, start + rows.adjacency.sizes[vertex]):
        other = rows.others[j]
        if paths.states[other] & _LOST or paths.distance[other] == np.inf:
            continue
        length = paths.distance[other] + (rows.weights[j] if rows.weights.size else 1.0)
        nearer = paths.distance[other] < length
        if length < best or (length == best and nearer and (found < 0 or other < found)):
            if length < best:
                found = -1
            best = length
            if nearer and (found < 0 or other < found):
                found = other
    return best, found


@kernel
def _lose(net, paths, heap, vertex, parent):
    """Note that the distance of a vertex may become longer, if that was its parent."""
    if paths.parent[vertex] == parent:
        heap = _wait(heap, paths.distance[vertex], vertex)
    return heap


@kernel
def _shorten(paths, heap, u, v, weight):
    """Follow an arc that has become shorter."""
    _mark(paths, v, _NEAR)
    length = paths.distance[u] + weight
    if length < paths.distance[v]:
        paths.distance[v], paths.parent[v] = length, u
        _mark(paths, v, _CHANGED)
        heap = _wait(heap, length, v)
    return heap


@kernel
def _find_lost(net, paths, heap):
    """Mark the vertices that no path of their distance leads to any more; return how many neighbors that took."""
    work = 0
    while heap[2]:
        vertex = heap[1][0]
        pop(heap[0], heap[1], heap[2], False)
        heap = heap[0], heap[1], heap[2] - 1
        if paths.states[vertex] & _LOST:
            continue
        work += net.into.adjacency.sizes[vertex] + 1
        length, other = _nearest(net, paths, vertex)
        # A neighbor that is as far may itself be reached by this vertex only.
        if other >= 0 and length <= paths.distance[vertex]:
            paths.parent[vertex] = other
            _mark(paths, vertex, _NEAR)
            continue
        _mark(paths, vertex, _LOST | _CHANGED)
        start = net.out.adjacency.starts[vertex]
        work += net.out.adjacency.sizes[vertex]
        for j in range(start, start + net.out.adjacency.sizes[vertex]):
            heap = _lose(net, paths, heap, net.out.others[j], vertex)
    return work


@kernel
def _settle(net, paths, heap):
    """Relax arcs in the order of distances; return how many neighbors that took."""
    work, rows = 0, net.out
    while heap[2]:
        length, vertex = heap[0][0], heap[1][0]
        pop(heap[0], heap[1], heap[2], False)
        heap = heap[0], heap[1], heap[2] - 1
        if length > paths.distance[vertex]:
            continue
        start = rows.adjacency.starts[vertex]
        work += rows.adjacency.sizes[vertex] + 1
        for j in range(start, start + rows.adjacency.sizes[vertex]):
            other = rows.others[j]
            farther = length + (rows.weights[j] if rows.weights.size else 1.0)
            if farther < paths.distance[other]:
                paths.distance[other], paths.parent[other] = farther, vertex
                _mark(paths, other, _CHANGED)
                heap = _wait(heap, farther, other)
    return work


@kernel(allocates=False)
def _choose_parents(net, paths):
    """Choose the first strictly nearer neighbor on a shortest path as the parent, near all that has changed."""
    work = 0
    for i in range(paths.used[0]):
        vertex = paths.marked[i]
        paths.states[vertex] &= ~_LOST
        if paths.states[vertex] & _CHANGED:
            start = net.out.adjacency.starts[vertex]
            work += net.out.adjacency.sizes[vertex]
            for j in range(start, start + net.out.adjacency.sizes[vertex]):
                # Where this vertex is the nearest one now, or was the parent.
                other = net.out.others[j]
                weight = net.out.weights[j] if net.out.weights.size else 1.0
                if paths.parent[other] == vertex or paths.distance[vertex] + weight == paths.distance[other]:
                    _mark(paths, other, _NEAR)
    for i in range(paths.used[0]):
        vertex = paths.marked[i]
        if paths.parent[vertex] >= 0 and paths.distance[vertex] < np.inf:
            work += net.into.adjacency.sizes[vertex]
            _, other = _nearest(net, paths, vertex)
            if other >= 0:
                paths.parent[vertex] = other
    for i in range(paths.used[0]):
        paths.states[paths.marked[i]] = 0
    paths.used[0] = 0
    return work


@kernel
def change_paths(net, paths, difference, limit):
    """Follow changes of pairs until the work exceeds a limit; return the work."""
    heap = np.empty(64, np.float64), np.empty(64, np.int64), 0
    for i in range(difference.pairs.size):
        pair, old = difference.pairs[i], difference.before[i]
        new = difference.weights[pair]
        put(net, pair, old, new)
        if old != ABSENT and (new == ABSENT or new > old):
            u, v = net.sources[pair], net.targets[pair]
            heap = _lose(net, paths, heap, v, u)
            if not net.directed:
                heap = _lose(net, paths, heap, u, v)
    work = _find_lost(net, paths, heap)
    if work > limit:
        return work
    heap = heap[0], heap[1], 0
    for i in range(paths.used[0]):
        vertex = paths.marked[i]
        if paths.states[vertex] & _LOST:
            paths.distance[vertex], paths.parent[vertex] = np.inf, -1
    for i in range(paths.used[0]):
        vertex = paths.marked[i]
        if paths.states[vertex] & _LOST:
            work += net.into.adjacency.sizes[vertex]
            start = net.into.adjacency.starts[vertex]
            for j in range(start, start + net.into.adjacency.sizes[vertex]):
                other = net.into.others[j]
                length = paths.distance[other] + (net.into.weights[j] if net.into.weights.size else 1.0)
                if not paths.states[other] & _LOST and length < paths.distance[vertex]:
                    paths.distance[vertex], paths.parent[vertex] = length, other
            if paths.distance[vertex] < np.inf:
                heap = _wait(heap, paths.distance[vertex], vertex)
    for i in range(difference.pairs.size):
        pair, old = difference.pairs[i], difference.before[i]
        new = difference.weights[pair]
        if new != ABSENT and new > old and old != ABSENT:
            continue
        if new != ABSENT:
            u, v = net.sources[pair], net.targets[pair]
            heap = _shorten(paths, heap, u, v, new)
            if not net.directed:
                heap = _shorten(paths, heap, v, u, new)
    work += _settle(net, paths, heap)
    return work + _choose_parents(net, paths)
