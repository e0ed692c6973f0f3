"""Kernels that make an undirected betweenness problem smaller: hanging trees, blocks, and the rows of what is left.

Vertices carry three figures: a weight as a source (`out`), a weight as a target (`into`) and `times`, the number of
vertices of the whole graph that it stands for on a path. Scores are sums over ordered pairs.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def simple_rows(offsets, targets, weights, new_offsets, new_targets, new_weights, arc_of):
    """Rows without self-loops and with one arc, the lightest, for several to the same target; gives the arcs kept.

    Parameters
    ----------
    weights, new_weights
        Empty without weights.
    arc_of : int64, shape (arcs,)
        Receives the new arc of every arc; -1 for a self-loop and for a heavier parallel arc.
    """
    weighted = weights.size > 0
    end = 0
    for u in range(offsets.size - 1):
        first = end
        for a in range(offsets[u], offsets[u + 1]):
            v = targets[a]
            arc_of[a] = -1
            if v == u:
                continue
            if end > first and new_targets[end - 1] == v:
                if weighted and weights[a] < new_weights[end - 1]:
                    new_weights[end - 1] = weights[a]
                    for b in range(offsets[u], a):
                        if arc_of[b] == end - 1:
                            arc_of[b] = -1
                    arc_of[a] = end - 1
                elif not weighted or weights[a] == new_weights[end - 1]:
                    arc_of[a] = end - 1
                continue
            new_targets[end] = v
            if weighted:
                new_weights[end] = weights[a]
            arc_of[a] = end
            end += 1
        new_offsets[u + 1] = end
    return end


@kernel
def components(offsets, targets, back_offsets, back_targets, mirrored, seeds, order, number, bounds):
    """Visit every component breadth first; gives the number of components.

    Parameters
    ----------
    back_offsets, back_targets, mirrored
        Rows of the arcs turned round; unused for a `mirrored` graph, whose rows hold both. Components are weak ones.
    seeds : int64, shape (n,)
        All vertices; a component starts from the first of its vertices here.
    order : int64, shape (n,)
        Receives the vertices, component after component.
    number : int64, shape (n,)
        Filled with -1; receives the component of each vertex.
    bounds : int64, shape (n + 1,)
        Receives the first place of each component in `order`, and the end.
    """
    count = end = at = 0
    for seed in seeds:
        if number[seed] >= 0:
            continue
        bounds[count] = end
        number[seed] = count
        order[end] = seed
        end += 1
        while at < end:
            u = order[at]
            at += 1
            for a in range(offsets[u], offsets[u + 1]):
                v = targets[a]
                if number[v] < 0:
                    number[v] = count
                    order[end] = v
                    end += 1
            if not mirrored:
                for a in range(back_offsets[u], back_offsets[u + 1]):
                    v = back_targets[a]
                    if number[v] < 0:
                        number[v] = count
                        order[end] = v
                        end += 1
        count += 1
    bounds[count] = end
    return count


@kernel
def keep_rows(offsets, targets, weights, order, number, new_offsets, new_targets, new_weights, arc_of):
    """Rows of the vertices of `order`, renumbered; gives the arcs kept.

    Parameters
    ----------
    order : int64, shape (kept,)
        Vertices in their new order.
    number : int64, shape (n,)
        New number of each vertex, -1 for what is left out.
    arc_of : int64
        Receives the old arc of every new one.
    """
    weighted = weights.size > 0
    end = 0
    for i in range(order.size):
        for a in range(offsets[order[i]], offsets[order[i] + 1]):
            j = number[targets[a]]
            if j >= 0:
                new_targets[end] = j
                arc_of[end] = a
                if weighted:
                    new_weights[end] = weights[a]
                end += 1
        new_offsets[i + 1] = end
    return end


@kernel
def turn_rows(offsets, targets, weights, new_offsets, new_targets, new_weights, arc_of):
    """Turn every arc round; the rows that come out ascend. `new_offsets` comes as zeros."""
    n = offsets.size - 1
    weighted = weights.size > 0
    for v in targets:
        new_offsets[v + 1] += 1
    for v in range(n):
        new_offsets[v + 1] += new_offsets[v]
    cursor = new_offsets[:-1].copy()
    for u in range(n):
        for a in range(offsets[u], offsets[u + 1]):
            at = cursor[targets[a]]
            cursor[targets[a]] += 1
            new_targets[at] = u
            arc_of[at] = a
            if weighted:
                new_weights[at] = weights[a]


@kernel
def fold_leaves(offsets, targets, times, out, into, inner, degree, removed_arc, queue):
    """Remove vertices with one live neighbor until none is left.

    See docs/specs/betweenness.md, section 3.6, with both kinds of weights.

    A vertex is folded only into one that stands for a single vertex of the graph, for only that one is a cut vertex.

    Parameters
    ----------
    out, into : float64, shape (n,)
        Change in place: what hangs at a vertex is added to it.
    inner : float64, shape (n,)
        Zeros; receives the sum of out · into over the child subtrees.
    degree : int64, shape (n,)
        Row lengths; receives the live degree.
    removed_arc : int64, shape (n,)
        Filled with -1; receives the arc to the parent where the vertex was removed.
    queue : int64, shape (n,)
    """
    first = last = 0
    for v in range(degree.size):
        if degree[v] == 1:
            queue[last] = v
            last += 1
    while first < last:
        v = queue[first]
        first += 1
        if degree[v] != 1 or removed_arc[v] >= 0:
            continue
        arc = offsets[v]
        while removed_arc[targets[arc]] >= 0:
            arc += 1
        u = np.int64(targets[arc])
        if degree[u] == 1 and times[v] == 1.0 and (u > v or times[u] != 1.0):
            # Each is the other's only neighbor: the smaller number stays if it can.
            arc = offsets[u]
            while removed_arc[targets[arc]] >= 0:
                arc += 1
            u, v = v, u
        if times[u] != 1.0:
            continue
        removed_arc[v] = arc
        inner[u] += out[v] * into[v]
        out[u] += out[v]
        into[u] += into[v]
        degree[u] -= 1
        degree[v] = 0
        if degree[u] == 1:
            queue[last] = u
            last += 1


@kernel
def find_blocks(offsets, targets, times, home, top):
    """Biconnected components (Hopcroft and Tarjan 1973) without recursion; gives their number.

    Blocks are cut only at vertices that stand for a single vertex of the graph; at others they stay together.
    Blocks come out children first: all blocks that hang below a vertex precede the block it lies in.

    Parameters
    ----------
    home : int64, shape (n,)
        Filled with -1; receives the block of each vertex in which it is not the topmost one; -1 for the root of a
        component.
    top : int64, shape (n,)
        Receives the topmost vertex of each block.
    """
    n = home.size
    found, low = np.zeros(n, np.int64), np.empty(n, np.int64)
    cursor = np.empty(n, np.int64)
    path, waiting = np.empty(n, np.int64), np.empty(n, np.int64)
    clock = blocks = 0
    for root in range(n):
        if found[root] > 0:
            continue
        clock += 1
        found[root] = low[root] = clock
        cursor[root] = offsets[root]
        path[0] = root
        depth, held = 1, 0
        while depth > 0:
            v = path[depth - 1]
            at, end, lowest = cursor[v], offsets[v + 1], low[v]
            # The arc back to the parent does no harm: it cannot get below the parent.
            while at < end and found[targets[at]] > 0:
                lowest = min(lowest, found[targets[at]])
                at += 1
            low[v] = lowest
            if at < end:
                w = np.int64(targets[at])
                cursor[v] = at + 1
                clock += 1
                found[w] = low[w] = clock
                cursor[w] = offsets[w]
                path[depth] = w
                depth += 1
                waiting[held] = w
                held += 1
                continue
            depth -= 1
            if depth > 0:
                u = path[depth - 1]
                low[u] = min(low[u], low[v])
                if low[v] >= found[u] and times[u] == 1.0:
                    top[blocks] = u
                    while True:
                        held -= 1
                        home[waiting[held]] = blocks
                        if waiting[held] == v:
                            break
                    blocks += 1
            elif held > 0:
                top[blocks] = root
                while held > 0:
                    held -= 1
                    home[waiting[held]] = blocks
                blocks += 1
    return blocks


@kernel
def weigh_blocks(starts, members, top, out, into, inner, down_out, down_into):
    """Add what hangs below to every vertex, block after block, children first.

    Parameters
    ----------
    starts, members : int64
        Vertices of each block without its topmost one.
    out, into : float64, shape (n,)
        Change in place: the weight of everything that hangs below a vertex is added to it.
    inner : float64, shape (n,)
        Zeros; receives the sum of out · into over the blocks below.
    down_out, down_into : float64, shape (blocks,)
        Receive the weight of each block without its topmost vertex.
    """
    for block in range(top.size):
        a = b = 0.0
        for i in range(starts[block], starts[block + 1]):
            a += out[members[i]]
            b += into[members[i]]
        down_out[block], down_into[block] = a, b
        u = top[block]
        out[u] += a
        into[u] += b
        inner[u] += a * b


@kernel
def split_rows(offsets, targets, weights, home, top, place, top_place, new_offsets, new_targets, new_weights, arc_of):
    """Rows of the disjoint blocks.

    Parameters
    ----------
    place : int64, shape (n,)
        New number of each vertex in its home block (-1: in none that is kept).
    top_place : int64, shape (blocks,)
        New number of the topmost vertex of each block, -1 for a block that is left out.
    new_offsets : int64
        Zeros.
    """
    weighted = weights.size > 0
    for filling in (False, True):
        for u in range(home.size):
            for a in range(offsets[u], offsets[u + 1]):
                v = targets[a]
                block = home[u]
                if block >= 0 and (home[v] == block or top[block] == v):
                    i, j = place[u], place[v] if home[v] == block else top_place[block]
                else:
                    block = home[v]
                    i, j = top_place[block], place[v]
                if top_place[block] < 0:
                    continue
                if not filling:
                    new_offsets[i + 1] += 1
                    continue
                at = new_offsets[i]
                new_offsets[i] += 1
                new_targets[at] = j
                arc_of[at] = a
                if weighted:
                    new_weights[at] = weights[a]
        if not filling:
            for i in range(new_offsets.size - 1):
                new_offsets[i + 1] += new_offsets[i]
    for i in range(new_offsets.size - 1, 0, -1):
        new_offsets[i] = new_offsets[i - 1]
    new_offsets[0] = 0
