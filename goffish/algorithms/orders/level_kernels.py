"""Orders of graphs without cycles."""

from __future__ import annotations

from goffish.kernels.compile import kernel


@kernel(allocates=False)
def topological(offsets, targets, waiting, level, order):
    """Order the vertices so that arcs lead forward (Kahn 1962), by level; gives how many are in no cycle's reach.

    Parameters
    ----------
    waiting : int64, shape (n,)
        Zeros; in the end, arcs from vertices that are not in the order.
    level : int64, shape (n,)
        Zeros; receives the most arcs on a path to each vertex.
    order : integers, shape (n,)
        Receives the vertices.
    """
    n = waiting.size
    for i in range(offsets[n]):
        waiting[targets[i]] += 1
    at, end = 0, 0
    for v in range(n):
        if waiting[v] == 0:
            order[end] = v
            end += 1
    while at < end:
        u = order[at]
        at += 1
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            level[v] = max(level[v], level[u] + 1)
            waiting[v] -= 1
            if waiting[v] == 0:
                order[end] = v
                end += 1
    return end


@kernel(allocates=False)
def find_cycle(back_offsets, back_targets, waiting, step, path):
    """Walk back among vertices that wait for each other until one repeats; gives the length of that cycle.

    Parameters
    ----------
    step : int64, shape (n,)
        Zeros; scratch.
    path : integers, shape (n,)
        Receives the cycle, in the direction of the arcs.
    """
    v = 0
    while waiting[v] == 0:
        v += 1
    count = 0
    while step[v] == 0:
        count += 1
        step[v] = count
        for i in range(back_offsets[v], back_offsets[v + 1]):
            if waiting[back_targets[i]] > 0:
                v = back_targets[i]
                break
    size = count - step[v] + 1
    for at in range(size - 1, -1, -1):
        for i in range(back_offsets[v], back_offsets[v + 1]):
            if waiting[back_targets[i]] > 0:
                v = back_targets[i]
                break
        path[at] = v
    return size


@kernel(allocates=False)
def longest(arcs, order, length, previous):
    """Longest distance of each vertex from any, and the previous vertex on such a path, -1 at its beginning.

    Parameters
    ----------
    order : integers, shape (n,)
        Arcs lead forward.
    length : float64, shape (n,)
        Zeros.
    previous : integers, shape (n,)
        -1 everywhere.
    """
    offsets, targets, weights = arcs
    for at in range(order.size):
        u = order[at]
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            reach = length[u] + (weights[i] if weights.size else 1.0)
            if reach > length[v] or (reach == length[v] and previous[v] < 0):
                length[v], previous[v] = reach, u


@kernel(allocates=False)
def walk_back(previous, end, path):
    """Write the path that ends at a vertex, from the right; gives its first place."""
    at = path.size
    v = end
    while v >= 0:
        at -= 1
        path[at] = v
        v = previous[v]
    return at
