"""Distances from several sources, each search as short as a cutoff or the targets allow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push


class Rows(NamedTuple):
    """Memory of searches, and the rows that they find.

    Attributes
    ----------
    distance : float64, shape (n,)
        Infinity, and so again after each search.
    queue : integers, shape (n,)
        Vertices that a search has reached.
    heap_keys, heap_items : float64 and integers, shape (arcs + 1,)
        Empty for searches without weights.
    vertex, length : integers and float64, shape (at least n,)
        The rows.
    ends : int64, shape (sources,)
        One after the last row of each source.
    """

    distance: NDArray[np.float64]
    queue: NDArray[Any]
    heap_keys: NDArray[np.float64]
    heap_items: NDArray[Any]
    vertex: NDArray[Any]
    length: NDArray[np.float64]
    ends: NDArray[np.int64]

    @classmethod
    def make(cls, n: int, arcs: int, sources: int, kind: Any) -> Rows:
        size = max(2 * n, 1 << 12)
        return cls(
            np.full(n, np.inf), np.empty(n, kind), np.empty(arcs + 1), np.empty(arcs + 1, kind), np.empty(size, kind),
            np.empty(size), np.empty(sources, np.int64),
        )  # fmt: skip


@kernel(inner=True, allocates=False)
def search_levels(arcs, source, cutoff, sought, wanted, rows):
    """Search breadth first; gives the number of vertices reached."""
    offsets, targets, _ = arcs
    distance, queue = rows.distance, rows.queue
    distance[source], queue[0] = 0.0, source
    first, last, level = 0, 1, 0.0
    left = wanted - (1 if sought[source] else 0)
    while first < last and level + 1.0 <= cutoff and left > 0:
        level += 1.0
        end = last
        for at in range(first, last):
            u = queue[at]
            for i in range(offsets[u], offsets[u + 1]):
                v = targets[i]
                if distance[v] == np.inf:
                    distance[v] = level
                    queue[end] = v
                    end += 1
                    left -= 1 if sought[v] else 0
        first, last = last, end
    return last


@kernel(inner=True, allocates=False)
def search_distances(arcs, source, cutoff, sought, wanted, rows):
    """Dijkstra's algorithm; gives the number of vertices reached, of which all that are sought are settled."""
    offsets, targets, weights = arcs
    distance, queue, heap_keys, heap_items = rows.distance, rows.queue, rows.heap_keys, rows.heap_items
    distance[source], queue[0] = 0.0, source
    heap_keys[0], heap_items[0] = 0.0, source
    size, last, left = 1, 1, wanted
    while size > 0:
        near, u = heap_keys[0], heap_items[0]
        if left == 0:
            break
        pop(heap_keys, heap_items, size, False)
        size -= 1
        if near > distance[u]:
            continue
        left -= 1 if sought[u] else 0
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            length = near + weights[i]
            if length < distance[v] and length <= cutoff:
                if distance[v] == np.inf:
                    queue[last] = v
                    last += 1
                distance[v] = length
                push(heap_keys, heap_items, size, length, v, False)
                size += 1
    return last


@kernel(allocates=False)
def find_rows(arcs, sources, first, cutoff, sought, wanted, measured, rows):
    """Search from ``sources[first:]``, one after the other, as long as there is memory for the rows.

    Parameters
    ----------
    arcs : Csr
    sources : int64
    cutoff
        Search no farther.
    sought : bool, shape (n,)
        The targets, of which there are `wanted`.
    measured : bool
        Whether weights are lengths.
    rows : Rows

    Returns
    -------
    int
        The first source that was left out.
    """
    distance, queue, vertex, length, ends = rows.distance, rows.queue, rows.vertex, rows.length, rows.ends
    count = 0
    for at in range(first, sources.size):
        if count + queue.size > vertex.size:
            return at
        if measured:
            reached = search_distances(arcs, sources[at], cutoff, sought, wanted, rows)
        else:
            reached = search_levels(arcs, sources[at], cutoff, sought, wanted, rows)
        for i in range(reached):
            v = queue[i]
            if sought[v]:
                vertex[count], length[count] = v, distance[v]
                count += 1
            distance[v] = np.inf
        ends[at] = count
    return sources.size
