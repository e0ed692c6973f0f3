"""Numba kernels of stage 1: distances inside a partition from several entry points, and messages to the ghosts."""

from __future__ import annotations

import numpy as np

from goffish.algorithms.betweenness.subgraph.ghost_kernels import notify
from goffish.kernels.arrays import make_room, stable_order
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push


@kernel
def search_weighted(source, mail, far, arcs, distances, lowered, touched):
    """Dijkstra from the source (-1: none) and from what ghosts, at the distances in `mail`, make nearer than known.

    Targets from n on are ghosts. Vertices whose distance fell are marked in `lowered` and listed in `touched`; their
    number is returned. Also the ghosts' distances fall.
    """
    tail, near, _ = mail
    far_offsets, far_rows, far_weights = far
    offsets, targets, weights = arcs
    distance, ghost, seen = distances
    n = distance.size
    keys = np.empty(1024, np.float64)
    items = np.empty(keys.size, np.int64)
    size = count = 0
    if source >= 0:
        distance[source] = 0.0
        lowered[source] = True
        touched[0] = source
        count = 1
        push(keys, items, 0, 0.0, source, True)
        size = 1
    for i in range(tail.size):
        seen[tail[i]] = min(seen[tail[i]], near[i])
    for i in range(tail.size):
        for e in range(far_offsets[tail[i]], far_offsets[tail[i] + 1]):
            v, d = far_rows[e], near[i] + far_weights[e]
            if d < distance[v]:
                distance[v] = d
                if not lowered[v]:
                    lowered[v] = True
                    touched[count] = v
                    count += 1
                if size == keys.size:
                    keys, items = make_room(keys, size, size + 1), make_room(items, size, size + 1)
                push(keys, items, size, d, v, True)
                size += 1
    while size > 0:
        d, v = keys[0], items[0]
        pop(keys, items, size, True)
        size -= 1
        if d > distance[v]:
            continue
        most = size + offsets[v + 1] - offsets[v]
        if most > keys.size:
            keys, items = make_room(keys, size, most), make_room(items, size, most)
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
                push(keys, items, size, nd, t, True)
                size += 1
    return count


@kernel
def search_levels(source, mail, far, arcs, distances, lowered, touched):
    """`search_weighted` for unit weights: entries by distance are merged with a queue of levels.

    Entries of a distance come before the vertices of that level. So arcs lower a vertex at most once; then only another
    entry of the level that did it can.
    """
    tail, near, _ = mail
    far_offsets, far_rows, _ = far
    offsets, targets, _ = arcs
    distance, ghost, seen = distances
    n = distance.size
    for i in range(tail.size):
        seen[tail[i]] = min(seen[tail[i]], near[i])
    order = stable_order(near)
    queue = np.empty(n, np.int64)
    head = end = count = 0
    if source >= 0:
        distance[source] = 0.0
        lowered[source] = True
        touched[0] = source
        end, count = _scan(source, 0.0, offsets, targets, distance, ghost, lowered, touched, 1, queue, end)
    following = 0
    while head < end or following < order.size:
        if head == end or (following < order.size and near[order[following]] < distance[queue[head]]):
            g, d = tail[order[following]], near[order[following]] + 1.0
            following += 1
            for e in range(far_offsets[g], far_offsets[g + 1]):
                v = far_rows[e]
                if d >= distance[v]:
                    continue
                distance[v] = d
                if not lowered[v]:
                    lowered[v] = True
                    touched[count] = v
                    count += 1
                end, count = _scan(v, d, offsets, targets, distance, ghost, lowered, touched, count, queue, end)
        else:
            v = queue[head]
            head += 1
            end, count = _scan(v, distance[v], offsets, targets, distance, ghost, lowered, touched, count, queue, end)
    return count


@kernel
def _scan(v, d, offsets, targets, distance, ghost, lowered, touched, count, queue, end):
    """Lower what vertex v has arcs to, and queue it: (end of the queue, vertices touched)."""
    n = distance.size
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
            queue[end] = t
            end += 1
    return end, count


@kernel
def offers(touched, arcs, outer, distances, lowered, notes):
    """What stage 1 sends: vertices that fell and are a best predecessor of ghosts, with the units of these.

    A vertex that did not fall was notified before, or is no predecessor; so no set of what was sent is kept. Clears
    `lowered`. Returns the cut arcs to such ghosts, and the messages.
    """
    offsets, targets, weights = arcs
    distance, ghost, _ = distances
    n = distance.size
    weighted = weights.size > 0
    found = noted = 0
    for v in touched:
        lowered[v] = False
        if not outer[v]:
            continue
        for i in range(offsets[v], offsets[v + 1]):
            t = targets[i]
            if t >= n and distance[v] + (weights[i] if weighted else 1.0) == ghost[t - n]:
                found += 1
                noted = notify(v, t - n, notes, noted)
    return found, noted
