"""Single-source kernels on one CSR structure: direction-optimising BFS and bucketed Dijkstra."""

from __future__ import annotations

import numpy as np
from numba import njit

#: Frontiers below this share of the vertices are expanded without a look at their arcs.
_SMALL = 256
_UNREACHED = np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def breadth_first(offsets, targets, mirrored, source, alpha, beta, bits, found, queue):
    """Levels and smallest-numbered parents; returns the number of vertices reached.

    Direction-optimising (Beamer, Asanović and Patterson, SC 2012): where rows hold both directions
    (`mirrored`), a level whose frontier owns more than 1/`alpha` of the arcs not yet seen is found from below, by
    asking every unreached vertex for a neighbour in the frontier, until the frontier is below n/`beta`.

    Parameters
    ----------
    bits
        Enough for a vertex number.
    found : int64, shape (n,)
        Filled with `_UNREACHED`; receives ``level << bits | parent``. The smallest such number is the right one,
        so that an arc needs no branch: whether its end is new cannot be predicted and would cost most of the time.
    queue : integers, shape (n + 1,)
        Scratch; receives the vertices in the order they were reached.
    """
    n = found.size
    found[source] = source
    queue[0] = source
    first, last = 0, 1
    level = np.int64(0)
    unseen = offsets[n]
    upwards = False
    while first < last:
        if mirrored and not upwards and last - first > n // _SMALL:
            # A small frontier never pays to be met from below: do not even fetch its row lengths.
            arcs = 0
            for at in range(first, last):
                arcs += offsets[queue[at] + 1] - offsets[queue[at]]
            upwards = arcs > unseen // alpha
        elif upwards:
            upwards = last - first > n // beta
        level += 1
        end = last
        if upwards:
            for v in range(n):
                if found[v] != _UNREACHED:
                    continue
                for i in range(offsets[v], offsets[v + 1]):
                    # Rows ascend, so the first neighbour found in the frontier is the smallest.
                    if found[targets[i]] >> bits == level - 1:
                        found[v] = (level << bits) | targets[i]
                        queue[end] = v
                        end += 1
                        break
        else:
            for at in range(first, last):
                u = queue[at]
                unseen -= offsets[u + 1] - offsets[u]
                candidate = (level << bits) | u
                for i in range(offsets[u], offsets[u + 1]):
                    v = targets[i]
                    before = found[v]
                    found[v] = min(before, candidate)
                    queue[end] = v
                    end += before == _UNREACHED
        first, last = last, end
    return last


@njit(cache=True, nogil=True)
def unpack(found, source, bits, depth, parent):
    """Split ``level << bits | parent``; -1 where there is none."""
    for v in range(found.size):
        if found[v] == _UNREACHED:
            depth[v] = parent[v] = -1
        else:
            depth[v] = found[v] >> bits
            parent[v] = found[v] & ((np.int64(1) << bits) - 1)
    parent[source] = -1


@njit(cache=True, nogil=True, inline="always")
def _sift_up(keys, items, at, key, item):
    """Put an entry into a 4-ary heap whose free place is `at`."""
    while at > 0:
        up = (at - 1) >> 2
        if keys[up] <= key:
            break
        keys[at], items[at] = keys[up], items[up]
        at = up
    keys[at], items[at] = key, item


@njit(cache=True, nogil=True, inline="always")
def _sift_down(keys, items, size, key, item):
    """Put an entry into a 4-ary heap of `size` places whose root is free."""
    at = 0
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        best = child
        for other in range(child + 1, min(child + 4, size)):
            if keys[other] < keys[best]:
                best = other
        if keys[best] >= key:
            break
        keys[at], items[at] = keys[best], items[best]
        at = best
    keys[at], items[at] = key, item


@njit(cache=True, nogil=True)
def dijkstra(offsets, targets, weights, source, scale, distance, parent, heads, entry, heap_keys, heap_items):
    """Exact Dijkstra whose far entries wait in buckets; only those of the current bucket are in a heap.

    The heap stays small enough for the nearest cache (the two-level idea of Cherkassky, Goldberg and Silverstein,
    SIAM J. Comput. 1999), and keys need not be integers. An entry is dropped when its vertex has got nearer meanwhile.

    Parameters
    ----------
    scale
        Buckets per unit of distance; 0 puts everything into the heap.
    distance, parent : shape (n,)
        Filled with infinity and -1.
    heads : int64, shape (a power of two,)
        Filled with -1; first entry of each bucket. Bucket numbers wrap round; an entry of a later round is put back.
    entry : (keys, items, next)
        Room for one entry per arc.
    heap_keys, heap_items
        Room for one entry per arc, and one more.
    """
    entry_key, entry_item, entry_next = entry
    mask = heads.size - 1
    distance[source] = 0.0
    heap_keys[0], heap_items[0] = 0.0, source
    size, waiting, fresh = 1, 0, 0
    free = np.int64(-1)
    bucket = np.int64(0)
    while size > 0 or waiting > 0:
        if size == 0:
            bucket += 1
            e = heads[bucket & mask]
            heads[bucket & mask] = -1
            while e >= 0:
                following = entry_next[e]
                key, v = entry_key[e], entry_item[e]
                if key == distance[v] and np.int64(key * scale) > bucket:
                    entry_next[e] = heads[bucket & mask]
                    heads[bucket & mask] = e
                else:
                    entry_next[e] = free
                    free = e
                    waiting -= 1
                    if key == distance[v]:
                        _sift_up(heap_keys, heap_items, size, key, v)
                        size += 1
                e = following
            continue
        near, u = heap_keys[0], heap_items[0]
        size -= 1
        if size > 0:
            _sift_down(heap_keys, heap_items, size, heap_keys[size], heap_items[size])
        if near > distance[u]:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            key = near + weights[i]
            if key < distance[v]:
                distance[v] = key
                parent[v] = u
                if np.int64(key * scale) <= bucket:
                    _sift_up(heap_keys, heap_items, size, key, v)
                    size += 1
                else:
                    if free >= 0:
                        e = free
                        free = entry_next[e]
                    else:
                        e = np.int64(fresh)
                        fresh += 1
                    at = np.int64(key * scale) & mask
                    entry_key[e], entry_item[e], entry_next[e] = key, v, heads[at]
                    heads[at] = e
                    waiting += 1
            elif key == distance[v] and near < key and u < parent[v]:
                parent[v] = u
