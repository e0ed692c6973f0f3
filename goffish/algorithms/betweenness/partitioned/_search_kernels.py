"""Numba kernels of stage 1: distances inside a partition from several entry points, and what to tell the ghosts."""

from __future__ import annotations

import numpy as np
from numba import njit

from goffish.algorithms.paths._step_kernels import _pop, _push


@njit(cache=True, nogil=True)
def search_weighted(entry, entry_distance, offsets, targets, weights, distance, ghost, lowered, touched):
    """Dijkstra from the entries that are nearer than known; targets from n on are ghosts.

    Vertices whose distance fell are marked in `lowered` and listed in `touched`; their number is returned.
    """
    n = distance.size
    keys = np.empty(max(1024, entry.size), np.float64)
    items = np.empty(keys.size, np.int64)
    size = count = 0
    for i in range(entry.size):
        v = entry[i]
        if entry_distance[i] < distance[v]:
            distance[v] = entry_distance[i]
            if not lowered[v]:
                lowered[v] = True
                touched[count] = v
                count += 1
            _push(keys, items, size, distance[v], v)
            size += 1
    while size > 0:
        d, v = keys[0], items[0]
        _pop(keys, items, size)
        size -= 1
        if d > distance[v]:
            continue
        degree = offsets[v + 1] - offsets[v]
        if size + degree > keys.size:
            more = np.empty(2 * (size + degree), np.float64)
            more[:size] = keys[:size]
            keys = more
            more_items = np.empty(keys.size, np.int64)
            more_items[:size] = items[:size]
            items = more_items
        for i in range(offsets[v], offsets[v + 1]):
            nd = d + weights[i]
            t = targets[i]
            if t >= n:
                ghost[t - n] = min(ghost[t - n], nd)
            elif nd < distance[t]:
                distance[t] = nd
                if not lowered[t]:
                    lowered[t] = True
                    touched[count] = t
                    count += 1
                _push(keys, items, size, nd, t)
                size += 1
    return count


@njit(cache=True, nogil=True)
def search_levels(entry, entry_distance, offsets, targets, distance, ghost, lowered, touched):
    """`search_weighted` for unit weights: entries by distance are merged with a queue of levels.

    Entries of a distance come before the vertices of that level. So arcs lower a vertex at most once; then only another
    entry of the level that did it can.
    """
    n = distance.size
    order = np.argsort(entry_distance, kind="mergesort")
    queue = np.empty(n, np.int64)
    head = tail = following = count = 0
    while head < tail or following < order.size:
        if head == tail or (following < order.size and entry_distance[order[following]] <= distance[queue[head]]):
            v, d = entry[order[following]], entry_distance[order[following]]
            following += 1
            if d >= distance[v]:
                continue
            distance[v] = d
            if not lowered[v]:
                lowered[v] = True
                touched[count] = v
                count += 1
        else:
            v, d = queue[head], distance[queue[head]]
            head += 1
        nd = d + 1.0
        for i in range(offsets[v], offsets[v + 1]):
            t = targets[i]
            if t >= n:
                ghost[t - n] = min(ghost[t - n], nd)
            elif nd < distance[t]:
                distance[t] = nd
                lowered[t] = True
                touched[count] = t
                count += 1
                queue[tail] = t
                tail += 1
    return count


@njit(cache=True, nogil=True)
def offers(touched, count, offsets, targets, weights, outer, distance, ghost, lowered, rows, ghosts):
    """Cut arcs over which a vertex that fell is a best predecessor of a ghost: what stage 1 sends.

    A vertex that did not fall has been told before, or is no predecessor; so no set of what was sent is kept. Clears
    `lowered`.
    """
    n = distance.size
    weighted = weights.size > 0
    found = 0
    for k in range(count):
        v = touched[k]
        lowered[v] = False
        if not outer[v]:
            continue
        for i in range(offsets[v], offsets[v + 1]):
            t = targets[i]
            if t >= n and distance[v] + (weights[i] if weighted else 1.0) == ghost[t - n]:
                rows[found], ghosts[found] = v, t - n
                found += 1
    return found
