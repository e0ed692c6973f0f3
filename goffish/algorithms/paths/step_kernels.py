"""Local traversals of one superstep: Dijkstra and level-ordered search from several entry points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.arrays import copy_values, make_room, stable_order
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push


class Entries(NamedTuple):
    """Where traversals enter the subgraphs; those of subgraph s are ``starts[s] … starts[s + 1]``.

    Attributes
    ----------
    starts : int64, shape (subgraphs + 1,)
    vertex : int64
    distance : float64, or int64 for levels
    """

    starts: NDArray[np.int64]
    vertex: NDArray[np.int64]
    distance: NDArray[Any]


class Tree(NamedTuple):
    """Shortest paths found so far; parents are vertex numbers as read.

    Attributes
    ----------
    distance, parent : shape (n,)
    announced, via : shape (remote vertices,)
        Best distance ever sent to each remote vertex, and the vertex that it came from.
    """

    distance: NDArray[Any]
    parent: NDArray[np.int64]
    announced: NDArray[Any]
    via: NDArray[np.int64]


@kernel(inline="always")
def lower_remote(tree, r, distance, parent, fresh, improved, count):
    """Take over a shorter distance of a remote vertex, listed once in `improved`; the number of rows listed."""
    if distance < tree.announced[r]:
        tree.announced[r] = distance
        tree.via[r] = parent
        if not fresh[r]:
            fresh[r] = True
            improved[count] = r
            count += 1
    return count


@kernel
def relax_weighted(active, rows, weights, entries, parents, source, vertex_ids, tree, improved):
    """Dijkstra inside each active subgraph from the vertices that messages (or the source) improved.

    `parents` are those of the entries. Remote vertices that got nearer are written to `improved`, and their number is
    returned. Empty `weights` mean 1 everywhere.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
    message_offsets, message_vertex, message_distance = entries
    distance, parent, announced, _ = tree
    count = 0
    keys = np.empty(1024, np.float64)
    items = np.empty(1024, np.int64)
    fresh = np.zeros(announced.size, np.bool_)
    weighted = weights.size > 0
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        size = 0
        most = message_offsets[s + 1] - message_offsets[s] + 1
        keys, items = make_room(keys, 0, most), make_room(items, 0, most)
        if low <= source < subgraph_offsets[s + 1] and distance[source] > 0.0:
            distance[source] = 0.0
            push(keys, items, size, 0.0, source, True)
            size += 1
        for i in range(message_offsets[s], message_offsets[s + 1]):
            v = message_vertex[i]
            if message_distance[i] < distance[v]:
                distance[v] = message_distance[i]
                parent[v] = parents[i]
                push(keys, items, size, distance[v], v, True)
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
                nd = d + (weights[i] if weighted else 1.0)
                t = targets[i]
                if t >= 0:
                    w = low + t
                    if nd < distance[w]:
                        distance[w] = nd
                        parent[w] = vertex_ids[v]
                        push(keys, items, size, nd, w, True)
                        size += 1
                else:
                    count = lower_remote(tree, remote + ~t, nd, vertex_ids[v], fresh, improved, count)
    return count


@kernel
def relax_levels(active, rows, limit, entries, parents, source, vertex_ids, tree, improved):
    """`relax_weighted` for unit weights: entry points sorted by depth are merged with a queue of levels."""
    subgraph_offsets, remote_offsets, offsets, targets = rows
    message_offsets, message_vertex, message_distance = entries
    distance, parent, announced, _ = tree
    count = 0
    fresh = np.zeros(announced.size, np.bool_)
    queue = np.empty(1024, np.int64)
    depths = np.empty(1024, np.int64)
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        first, last = message_offsets[s], message_offsets[s + 1]
        entry = first + stable_order(message_distance[first:last])
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
                parent[v] = parents[i]
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
                copy_values(more, queue[head:tail])
                copy_values(more_depths, depths[head:tail])
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
                    count = lower_remote(tree, remote + ~t, d + 1, vertex_ids[v], fresh, improved, count)
    return count
