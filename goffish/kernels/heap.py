"""4-ary heaps over plain arrays: of (key, item) pairs, and of vertices by their distance.

A 4-ary heap is half as deep as a binary one, and the four children of an entry lie in one cache line.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel(inline="always")
def push(keys, items, size, key, item, ties):
    """Add an entry to a heap of `size` entries, with spare entries; with `ties`, equal keys are ordered by item."""
    at = size
    while at > 0:
        up = (at - 1) >> 2
        if keys[up] < key or (keys[up] == key and (not ties or items[up] <= item)):
            break
        keys[at], items[at] = keys[up], items[up]
        at = up
    keys[at], items[at] = key, item


@kernel(inline="always")
def pop(keys, items, size, ties):
    """Remove the first of `size` entries, which is at place 0; `ties` as for `push`."""
    size -= 1
    key, item = keys[size], items[size]
    at = 0
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        best = child
        for other in range(child + 1, min(child + 4, size)):
            if keys[other] < keys[best] or (ties and keys[other] == keys[best] and items[other] < items[best]):
                best = other
        if key < keys[best] or (key == keys[best] and (not ties or item <= items[best])):
            break
        keys[at], items[at] = keys[best], items[best]
        at = best
    keys[at], items[at] = key, item


@kernel(inline="always")
def lower_distance(heap, place, distance, size, v, length):
    """Lower the distance of `v`, which joins a heap of `size` vertices where it was infinite; gives the new size.

    `place` holds the place of each vertex in the heap.
    """
    if distance[v] == np.inf:
        place[v] = size
        size += 1
    distance[v] = length
    at = place[v]
    while at > 0:
        up = (at - 1) >> 2
        if distance[heap[up]] <= length:
            break
        heap[at] = heap[up]
        place[heap[at]] = at
        at = up
    heap[at] = v
    place[v] = at
    return size


@kernel(inline="always")
def take_nearest(heap, place, distance, size):
    """Remove the nearest vertex from a heap of `size` vertices and return it."""
    nearest = heap[0]
    size -= 1
    v = heap[size]
    at = 0
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        best = child
        for other in range(child + 1, min(child + 4, size)):
            if distance[heap[other]] < distance[heap[best]]:
                best = other
        if distance[heap[best]] >= distance[v]:
            break
        heap[at] = heap[best]
        place[heap[at]] = at
        at = best
    heap[at] = v
    place[v] = at
    return nearest
