"""Local traversals of one superstep: Dijkstra and level-ordered search from several entry points."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _push(keys, items, size, key, item):
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if keys[up] < key or (keys[up] == key and items[up] <= item):
            break
        keys[at], items[at] = keys[up], items[up]
        at = up
    keys[at], items[at] = key, item


@njit(cache=True, nogil=True)
def _pop(keys, items, size):
    """Remove the least (key, item); the heap then has ``size - 1`` entries."""
    key, item = keys[size - 1], items[size - 1]
    size -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (keys[right] < keys[child] or (keys[right] == keys[child] and items[right] < items[child])):
            child = right
        if key < keys[child] or (key == keys[child] and item <= items[child]):
            break
        keys[at], items[at] = keys[child], items[child]
        at = child
    keys[at], items[at] = key, item


@njit(cache=True, nogil=True)
def relax_weighted(
    active, subgraph_offsets, remote_offsets, offsets, targets, weights,
    message_offsets, message_vertex, message_distance, message_parent, source, vertex_ids,
    distance, parent, announced, via, improved,
):  # fmt: skip
    """Dijkstra inside each active sub-graph from the vertices that messages (or the source) improved.

    `announced` keeps the best distance ever sent per remote vertex; rows that got better are written to
    `improved`, and their number is returned. Empty `weights` mean 1 everywhere. `parent` and `via` hold vertex
    numbers as read.
    """
    count = 0
    keys = np.empty(1024, np.float64)
    items = np.empty(1024, np.int64)
    fresh = np.zeros(announced.size, np.bool_)
    weighted = weights.size > 0
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        size = 0
        if message_offsets[s + 1] - message_offsets[s] + 1 > keys.size:
            keys = np.empty(message_offsets[s + 1] - message_offsets[s] + 1, np.float64)
            items = np.empty(keys.size, np.int64)
        if low <= source < subgraph_offsets[s + 1] and distance[source] > 0.0:
            distance[source] = 0.0
            _push(keys, items, size, 0.0, source)
            size += 1
        for i in range(message_offsets[s], message_offsets[s + 1]):
            v = message_vertex[i]
            if message_distance[i] < distance[v]:
                distance[v] = message_distance[i]
                parent[v] = message_parent[i]
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
                nd = d + (weights[i] if weighted else 1.0)
                t = targets[i]
                if t >= 0:
                    w = low + t
                    if nd < distance[w]:
                        distance[w] = nd
                        parent[w] = vertex_ids[v]
                        _push(keys, items, size, nd, w)
                        size += 1
                else:
                    r = remote + ~t
                    if nd < announced[r]:
                        announced[r] = nd
                        via[r] = vertex_ids[v]
                        if not fresh[r]:
                            fresh[r] = True
                            improved[count] = r
                            count += 1
    return count


@njit(cache=True, nogil=True)
def relax_levels(
    active, subgraph_offsets, remote_offsets, offsets, targets, limit,
    message_offsets, message_vertex, message_distance, message_parent, source, vertex_ids,
    distance, parent, announced, via, improved,
):  # fmt: skip
    """`relax_weighted` for unit weights: entry points sorted by depth are merged with a queue of levels."""
    count = 0
    fresh = np.zeros(announced.size, np.bool_)
    queue = np.empty(1024, np.int64)
    depths = np.empty(1024, np.int64)
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        first, last = message_offsets[s], message_offsets[s + 1]
        entry = first + np.argsort(message_distance[first:last], kind="mergesort")
        head = tail = 0
        next_entry = 0
        if low <= source < subgraph_offsets[s + 1] and distance[source] > 0:
            distance[source] = 0
            queue[0], depths[0] = source, 0
            tail = 1
        while head < tail or next_entry < entry.size:
            if head == tail or (next_entry < entry.size and message_distance[entry[next_entry]] < depths[head]):
                i = entry[next_entry]
                next_entry += 1
                v, d = message_vertex[i], message_distance[i]
                if d >= distance[v]:
                    continue
                distance[v] = d
                parent[v] = message_parent[i]
            else:
                v, d = queue[head], depths[head]
                head += 1
                if d > distance[v]:
                    continue
            if d >= limit:
                continue
            degree = offsets[v + 1] - offsets[v]
            if tail + degree > queue.size:
                waiting = tail - head
                size = max(queue.size, 2 * (waiting + degree))
                more, more_depths = np.empty(size, np.int64), np.empty(size, np.int64)
                more[:waiting], more_depths[:waiting] = queue[head:tail], depths[head:tail]
                queue, depths, head, tail = more, more_depths, 0, waiting
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                if t >= 0:
                    w = low + t
                    if d + 1 < distance[w]:
                        distance[w] = d + 1
                        parent[w] = vertex_ids[v]
                        queue[tail], depths[tail] = w, d + 1
                        tail += 1
                else:
                    r = remote + ~t
                    if d + 1 < announced[r]:
                        announced[r] = d + 1
                        via[r] = vertex_ids[v]
                        if not fresh[r]:
                            fresh[r] = True
                            improved[count] = r
                            count += 1
    return count
