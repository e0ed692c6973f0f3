"""Maximum flow kernels on rows that hold each edge at both ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class Network(NamedTuple):
    """Edges between which flow is sent, each of them in the rows of both ends.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
    middle : int64, shape (n,) or (0,)
        Of a directed graph, where the arcs that lead to each vertex begin in its row, behind those that leave it.
        Both parts of a row ascend; that of an undirected graph has one part.
    targets : integers, shape (arcs,)
    ahead, behind : float64, shape (arcs,)
        Capacity from the vertex of the row to the target, and back.
    flow : float64, shape (arcs,)
        From the vertex of the row to the target; the same with the other sign at the other end.
    """

    offsets: NDArray[Any]
    middle: NDArray[Any]
    targets: NDArray[Any]
    ahead: NDArray[Any]
    behind: NDArray[Any]
    flow: NDArray[Any]


class Search(NamedTuple):
    """Trees of shortest paths on which flow can be sent, from the source and to the target.

    Attributes
    ----------
    level : integers, shape (n,)
        1 at the source and ascending in its tree, -1 at the target and descending in its tree, 0 elsewhere.
    parent : int64, shape (n,)
        Arc from each vertex of a tree to its parent; -1 at the roots.
    cursor : int64, shape (n,)
        First arc of each vertex that may lead to a parent on the next level.
    link, queue : integers, shape (n,)
        Lists of vertices that have lost their parents, and vertices that join a tree again.
    first : integers, shape (2, n + 2)
        First vertex of these lists, by tree and level; -1 for none.
    lists : integers, shape (4, 2 n)
        Vertices to be scanned: of the tree of the source on an even and on an odd level, of that of the target.
    listed : int8, shape (n,)
        In which of these lists a vertex is, as bits.
    sizes, arcs : int64, shape (4,)
        Number of vertices in these lists, and of their arcs.
    depth : int64, shape (2,)
        Outermost level of each tree that is complete.
    """

    level: NDArray[Any]
    parent: NDArray[Any]
    cursor: NDArray[Any]
    link: NDArray[Any]
    queue: NDArray[Any]
    first: NDArray[Any]
    lists: NDArray[Any]
    listed: NDArray[Any]
    sizes: NDArray[Any]
    arcs: NDArray[Any]
    depth: NDArray[Any]


@kernel(allocates=False)
def directed_rows(rows, back, weights, offsets, middle, targets, ahead, behind):
    """Fill rows of a `Network` with the arcs of a directed graph.

    Parameters
    ----------
    rows, back : tuple of arrays
        Row pointers and targets of the graph; those of the reversed graph, and the arc of each reversed arc.
    weights : float64, shape (arcs,) or (0,)
        Empty where each capacity is 1.
    """
    at = 0
    for u in range(middle.size):
        offsets[u] = at
        for i in range(rows[0][u], rows[0][u + 1]):
            targets[at] = rows[1][i]
            ahead[at], behind[at] = weights[i] if weights.size else 1.0, 0.0
            at += 1
        middle[u] = at
        for i in range(back[0][u], back[0][u + 1]):
            targets[at] = back[1][i]
            ahead[at], behind[at] = 0.0, weights[back[2][i]] if weights.size else 1.0
            at += 1
    offsets[middle.size] = at


@kernel(inline="always")
def first_at_least(targets, begin, end, v):
    """The first place in an ascending range whose target is not less than `v`."""
    while begin < end:
        half = (begin + end) >> 1
        if targets[half] < v:
            begin = half + 1
        else:
            end = half
    return begin


@kernel(allocates=False, inner=True)
def other_end(network, u, arc):
    """The same edge in the row of its other end; of parallel edges, those of the same rank belong together."""
    offsets, middle, targets = network.offsets, network.middle, network.targets
    v = targets[arc]
    own, own_end, begin, end = offsets[u], offsets[u + 1], offsets[v], offsets[v + 1]
    if middle.size:
        if arc < middle[u]:
            own_end, begin = middle[u], middle[v]
        else:
            own, end = middle[u], middle[v]
    rank = arc - first_at_least(targets, own, own_end, v)
    return first_at_least(targets, begin, end, u) + rank


@kernel(inline="always")
def left(network, arc, step):
    """How much can still be sent along an arc (`step` 1), or against it (-1)."""
    if step > 0:
        return network.ahead[arc] - network.flow[arc]
    return network.behind[arc] + network.flow[arc]


@kernel(allocates=False, inner=True)
def push(network, u, arc, amount, step):
    """Send flow along an arc of `u` (`step` 1) or against it (-1), and fill it exactly if nothing is to be left."""
    capacity = network.ahead[arc] if step > 0 else network.behind[arc]
    sent = step * network.flow[arc]
    sent = step * (capacity if capacity - sent <= amount else sent + amount)
    network.flow[arc] = sent
    network.flow[other_end(network, u, arc)] = -sent


@kernel(allocates=False, inner=True)
def enlist(network, search, v, step):
    """Have a vertex scanned when the tree with this `step` grows from its level."""
    which = (0 if step > 0 else 2) + (search.level[v] & 1)
    if not search.listed[v] >> which & 1:
        search.listed[v] |= 1 << which
        search.lists[which, search.sizes[which]] = v
        search.sizes[which] += 1
        search.arcs[which] += network.offsets[v + 1] - network.offsets[v]


@kernel(allocates=False, inner=True)
def await_parent(search, v, step, depth):
    """Put a vertex on the list of a level, given without sign."""
    side = 0 if step > 0 else 1
    search.parent[v] = -1
    search.link[v] = search.first[side, depth]
    search.first[side, depth] = v


@kernel(allocates=False, inner=True)
def join(network, search, v, level, arc, step):
    """Make a vertex a child of the target of one of its arcs."""
    search.level[v], search.parent[v], search.cursor[v] = level, arc, network.offsets[v]
    if level * step >= search.depth[0 if step > 0 else 1]:
        enlist(network, search, v, step)


@kernel(allocates=False, inner=True)
def adopt(network, search, step, count, depth):
    """Find new parents on the next level for vertices that have lost theirs; those without one leave the tree.

    Parameters
    ----------
    count : int
        Number of vertices without parents.
    depth : int
        The least of their levels, without sign.

    Returns
    -------
    int
        How many have left the tree; they are in `search.queue`.
    """
    offsets, targets = network.offsets, network.targets
    level, parent, side = search.level, search.parent, 0 if step > 0 else 1
    gone = 0
    while count > 0:
        v = search.first[side, depth]
        if v < 0:
            depth += 1
            continue
        search.first[side, depth] = search.link[v]
        count -= 1
        arc, last, wanted = search.cursor[v], offsets[v + 1], level[v] - step
        while arc < last and (level[targets[arc]] != wanted or left(network, arc, -step) <= 0.0):
            arc += 1
        search.cursor[v] = arc
        if arc < last:
            parent[v] = arc
            continue
        level[v] = 0
        search.queue[gone] = v
        gone += 1
        for arc in range(offsets[v], last):
            w = targets[arc]
            if level[w] * step == depth + 1 and parent[w] >= 0 and targets[parent[w]] == v:
                await_parent(search, w, step, depth + 1)
                count += 1
    return gone


@kernel(allocates=False, inner=True)
def rejoin(network, search, step, gone, limit):
    """Let vertices that have left a tree join it again on the levels where they belong, up to a limit."""
    offsets, targets, level, queue = network.offsets, network.targets, search.level, search.queue
    side, waiting, depth = 0 if step > 0 else 1, 0, limit
    for place in range(gone):
        v = queue[place]
        best, nearest = np.int64(-1), limit
        for arc in range(offsets[v], offsets[v + 1]):
            above = level[targets[arc]] * step
            if 0 < above < nearest and left(network, arc, -step) > 0.0:
                best, nearest = arc, above
        if best >= 0:
            depth = min(depth, nearest + 1)
            await_parent(search, v, step, nearest + 1)
            search.cursor[v] = best
            waiting += 1
    # Level by level: vertices that wait for it, and those that are reached from the last one.
    head, tail = 0, 0
    while head < tail or waiting > 0:
        while search.first[side, depth] >= 0:
            v = search.first[side, depth]
            search.first[side, depth] = search.link[v]
            waiting -= 1
            if level[v] == 0:
                join(network, search, v, depth * step, search.cursor[v], step)
                queue[tail] = v
                tail += 1
        end = tail
        while head < end:
            v = queue[head]
            head += 1
            if depth == limit:
                continue
            for arc in range(offsets[v], offsets[v + 1]):
                w = targets[arc]
                if level[w] == 0 and left(network, arc, step) > 0.0:
                    join(network, search, w, (depth + 1) * step, other_end(network, v, arc), step)
                    queue[tail] = w
                    tail += 1
        depth += 1


@kernel(allocates=False, inner=True)
def repair(network, search, step, count, depth, limit):
    """Find new parents for vertices that have lost theirs; see `adopt` and `rejoin`."""
    gone = adopt(network, search, step, count, depth)
    if gone:
        rejoin(network, search, step, gone, limit)


@kernel(allocates=False, inner=True)
def least_left(network, search, v, root, step):
    """How much can be sent between `v` and the root of its tree."""
    amount = np.inf
    while v != root:
        arc = search.parent[v]
        amount = min(amount, left(network, arc, -step))
        v = network.targets[arc]
    return amount


@kernel(allocates=False, inner=True)
def send(network, search, v, root, amount, step):
    """Send flow between `v` and the root of its tree; where nothing more can be sent, vertices lose their parents.

    Returns
    -------
    count, depth : int
        How many have, and the least of their levels, without sign.
    """
    count, depth = 0, search.level[v] * step
    while v != root:
        arc = search.parent[v]
        push(network, v, arc, amount, -step)
        if left(network, arc, -step) <= 0.0:
            depth = search.level[v] * step
            await_parent(search, v, step, depth)
            count += 1
        v = network.targets[arc]
    return count, depth


@kernel(allocates=False, inner=True)
def closed(network, search, root, step):
    """Whether nothing more can be sent from a root, or to it; what it has sent does not return."""
    arc, last = search.cursor[root], network.offsets[root + 1]
    while arc < last and left(network, arc, step) <= 0.0:
        arc += 1
    search.cursor[root] = arc
    return arc == last


@kernel(allocates=False)
def plant(network, search, source, target):
    """Begin the trees with their roots."""
    for end, step in ((source, 1), (target, -1)):
        search.level[end], search.parent[end], search.cursor[end] = step, -1, network.offsets[end]
        enlist(network, search, end, step)
    search.depth[:] = 1


@kernel(allocates=False)
def grow(network, search, ends, step):
    """Add a level to the tree of the source (`step` 1) or of the target (-1); where trees meet, flow is sent.

    Parameters
    ----------
    ends : tuple
        Source and target.
    """
    offsets, targets, level = network.offsets, network.targets, search.level
    side, root, far = (0, ends[0], ends[1]) if step > 0 else (1, ends[1], ends[0])
    own = search.depth[side] * step
    which, at = 2 * side + (search.depth[side] & 1), 0
    while at < search.sizes[which]:
        u = search.lists[which, at]
        at += 1
        search.listed[u] &= ~(1 << which)
        arc = offsets[u]
        # Levels change when flow is sent; an arc on which more can be sent is looked at again.
        while level[u] == own and arc < offsets[u + 1]:
            v = targets[arc]
            if level[v] * step > 0 or left(network, arc, step) <= 0.0:
                arc += 1
            elif level[v] == 0:
                join(network, search, v, own + step, other_end(network, u, arc), step)
                arc += 1
            else:
                amount = min(left(network, arc, step), least_left(network, search, u, root, step))
                amount = min(amount, least_left(network, search, v, far, -step))
                push(network, u, arc, amount, step)
                count, depth = send(network, search, u, root, amount, step)
                others, lowest = send(network, search, v, far, amount, -step)
                if closed(network, search, root, step) or closed(network, search, far, -step):
                    search.sizes[:] = 0
                    return
                repair(network, search, step, count, depth, search.depth[side] + 1)
                repair(network, search, -step, others, lowest, search.depth[1 - side])
    search.sizes[which] = search.arcs[which] = 0
    search.depth[side] += 1


@kernel(allocates=False)
def nearest_cut(network, target, queue, before):
    """Leave True in `before` where nothing more can be sent to the target."""
    offsets, targets = network.offsets, network.targets
    before[target] = False
    queue[0], size, at = target, 1, 0
    while at < size:
        v = queue[at]
        at += 1
        for arc in range(offsets[v], offsets[v + 1]):
            u = targets[arc]
            if before[u] and left(network, arc, -1) > 0.0:
                before[u] = False
                queue[size] = u
                size += 1


@kernel(allocates=False)
def list_edges(network, before, ends, flow, cut):
    """Ends and flow of each edge, in the order of the graph's edges, and whether it leads to the target's side."""
    offsets, middle, targets = network.offsets, network.middle, network.targets
    edge = 0
    for u in range(offsets.size - 1):
        for arc in range(offsets[u], middle[u] if middle.size else offsets[u + 1]):
            v = targets[arc]
            if middle.size or v >= u:
                # Without the negative zeros of what is not sent back.
                ends[0, edge], ends[1, edge], flow[edge] = u, v, network.flow[arc] + 0.0
                cut[edge] = before[u] and not before[v] if middle.size else before[u] != before[v]
                edge += 1
