"""Searches between two vertices: from both ends at once, or guided by lower bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push


class End(NamedTuple):
    """Memory of a search by distance from one end. What is never touched costs nothing.

    Attributes
    ----------
    distance : float64, shape (n,)
        Anything where a vertex is not reached.
    link : integers, shape (n,)
        One more than the previous vertex on the way from the end; 0 where a vertex is not reached.
    heap_keys, heap_items : float64 and integers, shape (arcs + 1,)
    """

    distance: NDArray[np.float64]
    link: NDArray[Any]
    heap_keys: NDArray[np.float64]
    heap_items: NDArray[Any]

    @classmethod
    def make(cls, n: int, arcs: int, kind: Any) -> End:
        return cls(np.empty(n), np.zeros(n, kind), np.empty(arcs + 1), np.empty(arcs + 1, kind))


@kernel(allocates=False)
def meet_levels(arcs, back_arcs, source, target, found, queue, back_queue):
    """Search breadth first from two different ends, on whose frontier has fewer arcs, until the searches meet.

    Parameters
    ----------
    arcs, back_arcs : Csr
        Out-arcs and in-arcs.
    found : integers, shape (n,)
        Zeros; receives one more than the previous vertex from the source, or minus that from the target.
    queue, back_queue : integers, shape (n,)
        Scratch.

    Returns
    -------
    (int, int)
        The arc of a shortest path where the searches meet; (-1, -1) if there is no path.
    """
    offsets, targets, _ = arcs
    back_offsets, back_targets, _ = back_arcs
    found[source], found[target] = source + 1, -(target + 1)
    queue[0], back_queue[0] = source, target
    first, last, back_first, back_last = 0, 1, 0, 1
    work = offsets[source + 1] - offsets[source]
    back_work = back_offsets[target + 1] - back_offsets[target]
    while first < last and back_first < back_last:
        if work <= back_work:
            end, work = last, np.int64(0)
            for at in range(first, last):
                u = queue[at]
                for i in range(offsets[u], offsets[u + 1]):
                    v = targets[i]
                    if found[v] == 0:
                        found[v] = u + 1
                        queue[end] = v
                        end += 1
                        work += offsets[v + 1] - offsets[v]
                    elif found[v] < 0:
                        return np.int64(u), np.int64(v)
            first, last = last, end
        else:
            end, back_work = back_last, np.int64(0)
            for at in range(back_first, back_last):
                v = back_queue[at]
                for i in range(back_offsets[v], back_offsets[v + 1]):
                    u = back_targets[i]
                    if found[u] == 0:
                        found[u] = -(v + 1)
                        back_queue[end] = u
                        end += 1
                        back_work += back_offsets[u + 1] - back_offsets[u]
                    elif found[u] > 0:
                        return np.int64(u), np.int64(v)
            back_first, back_last = back_last, end
    return np.int64(-1), np.int64(-1)


@kernel(inline="always")
def advance(arcs, here, there, size, other_near, best):
    """Settle the nearest vertex of one end; gives the new size of its heap, the best total length, and its arc.

    `other_near` is at most the distance, from the other end, of all vertices that are not settled there.
    """
    offsets, targets, weights = arcs
    distance, link, heap_keys, heap_items = here
    near, u = heap_keys[0], heap_items[0]
    pop(heap_keys, heap_items, size, False)
    size -= 1
    tail, head = np.int64(-1), np.int64(-1)
    if near == distance[u]:
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            length = near + weights[i]
            if there.link[v] != 0 and length + there.distance[v] < best:
                best = length + there.distance[v]
                tail, head = np.int64(u), np.int64(v)
            if length + other_near < best and (link[v] == 0 or length < distance[v]):
                distance[v], link[v] = length, u + 1
                push(heap_keys, heap_items, size, length, v, False)
                size += 1
    return size, best, tail, head


@kernel(allocates=False)
def meet_distances(arcs, back_arcs, source, target, ahead, behind):
    """Dijkstra's algorithm from two different ends, on whose heap is smaller, until no shorter path can be found.

    Parameters
    ----------
    arcs, back_arcs : Csr
        Out-arcs and in-arcs, with weights.
    ahead, behind : End

    Returns
    -------
    (int, int)
        The arc of a shortest path where the searches meet; (-1, -1) if there is no path.
    """
    ahead.distance[source], ahead.link[source] = 0.0, source + 1
    behind.distance[target], behind.link[target] = 0.0, target + 1
    ahead.heap_keys[0], ahead.heap_items[0] = 0.0, source
    behind.heap_keys[0], behind.heap_items[0] = 0.0, target
    size, back_size = 1, 1
    best, tail, head = np.inf, np.int64(-1), np.int64(-1)
    while size > 0 and back_size > 0:
        near, back_near = ahead.heap_keys[0], behind.heap_keys[0]
        if near + back_near >= best:
            break
        if size <= back_size:
            size, best, u, v = advance(arcs, ahead, behind, size, back_near, best)
            if u >= 0:
                tail, head = u, v
        else:
            back_size, best, v, u = advance(back_arcs, behind, ahead, back_size, near, best)
            if u >= 0:
                tail, head = u, v
    return tail, head


@kernel(allocates=False)
def guided(arcs, source, target, bounds, ahead):
    """A* (Hart, Nilsson and Raphael 1968), for bounds that may differ by more than the length of an arc, too.

    Parameters
    ----------
    arcs : Csr
        Without weights, every arc is 1 long.
    bounds : float64, shape (n,)
        At most the distance to the target; infinite where it cannot be reached.
    ahead : End

    Returns
    -------
    int
        1 if the target was reached, 0 if it cannot be, and -1 if the heap is too small, as is possible where bounds
        differ by more than arcs are long.
    """
    offsets, targets, weights = arcs
    distance, link, heap_keys, heap_items = ahead
    distance[source], link[source] = 0.0, source + 1
    heap_keys[0], heap_items[0] = bounds[source], source
    size = 1 if bounds[source] < np.inf else 0
    while size > 0:
        key, u = heap_keys[0], heap_items[0]
        if u == target:
            return 1
        pop(heap_keys, heap_items, size, False)
        size -= 1
        near = distance[u]
        if key > near + bounds[u]:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            length = near + (weights[i] if weights.size else 1.0)
            if bounds[v] < np.inf and (link[v] == 0 or length < distance[v]):
                if size == heap_keys.size:
                    return -1
                distance[v], link[v] = length, u + 1
                push(heap_keys, heap_items, size, length + bounds[v], v, False)
                size += 1
    return 0


@kernel(allocates=False)
def join(before, after, tail, head, ends, path):
    """Write the path from the source to `tail`, and on from `head` to the target; gives its number of vertices.

    Parameters
    ----------
    before, after : integers, shape (n,)
        One more than the previous vertex from the source, and from the target; their signs do not matter.
    ends : (int, int)
        Source and target.
    path : integers, shape (n,)
    """
    source, target = ends
    size, v = 1, tail
    while v != source:
        v = abs(before[v]) - 1
        size += 1
    v = tail
    for at in range(size - 1, -1, -1):
        path[at] = v
        v = abs(before[v]) - 1
    v = head
    path[size] = v
    size += 1
    while v != target:
        v = abs(after[v]) - 1
        path[size] = v
        size += 1
    return size


@kernel(allocates=False)
def add_lengths(arcs, path, length):
    """Distance of each vertex of a path from its first one; of parallel arcs, the shortest counts."""
    length[0] = 0.0
    for at in range(1, path.size):
        length[at] = length[at - 1] + arc_length(arcs, path[at - 1], path[at])


@kernel(inner=True, allocates=False)
def arc_length(arcs, u, v):
    """The length of the shortest arc between two vertices; without weights, 1."""
    offsets, targets, weights = arcs
    if not weights.size:
        return 1.0
    low, high = offsets[u], offsets[u + 1]
    while low < high:
        middle = (low + high) // 2
        if targets[middle] < v:
            low = middle + 1
        else:
            high = middle
    shortest = np.inf
    while low < offsets[u + 1] and targets[low] == v:
        shortest = min(shortest, weights[low])
        low += 1
    return shortest
