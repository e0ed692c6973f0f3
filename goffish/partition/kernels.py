"""Numba kernels of the partitioners."""

# mypy: allow-untyped-defs, allow-untyped-calls, disallow_untyped_decorators=False
from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64


@kernel
def hash_numbers(seed, out):
    """``out[v]`` is a hash of (seed, v)."""
    salt = splitmix64(np.uint64(seed))
    for v in range(out.size):
        out[v] = splitmix64(np.uint64(v) ^ salt)


@kernel
def count_simple(offsets, targets):
    """Arcs that are left without self-loops and repetitions (sorted rows)."""
    count = 0
    for u in range(offsets.size - 1):
        last = -1
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if v not in (u, last):
                count += 1
            last = v
    return count


@kernel
def simple_rows(offsets, targets, weights, weighted, new_offsets, new_targets, new_weights):
    """Drop self-loops and merge parallel arcs of sorted rows, adding their weights up."""
    out = 0
    for u in range(offsets.size - 1):
        begin = out
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if v == u:
                continue
            if out > begin and new_targets[out - 1] == v:
                if weighted:
                    new_weights[out - 1] += weights[i]
                continue
            new_targets[out] = v
            if weighted:
                new_weights[out] = weights[i]
            out += 1
        new_offsets[u + 1] = out


@kernel
def mirror_weights(offsets, targets, weights, tolerance):
    """Give both arcs of every edge the weight of the arc from the smaller end.

    Returns an arc whose mirror differed by more than `tolerance` (relative), or -1. Rows are sorted,
    symmetric and simple, so the mirrors of a row's smaller neighbors come in the order in which they are
    met.
    """
    cursor = offsets[:-1].copy()
    for u in range(offsets.size - 1):
        for i in range(cursor[u], offsets[u + 1]):
            v = targets[i]
            j = cursor[v]
            cursor[v] = j + 1
            if abs(weights[i] - weights[j]) > tolerance * max(weights[i], weights[j]):
                return i
            weights[j] = weights[i]
    return -1


@kernel
def bfs_order(offsets, targets, roots, order, parent):
    """Breadth-first order over all vertices, starting anew at the next unvisited of `roots`.

    `parent` must hold -2 for the vertices that take part and anything else for the rest; it receives the
    tree (-1 at roots). Returns how many vertices were visited.
    """
    tail = 0
    head = 0
    for r in range(roots.size):
        root = roots[r]
        if parent[root] != -2:
            continue
        parent[root] = -1
        order[tail] = root
        tail += 1
        while head < tail:
            u = order[head]
            head += 1
            for i in range(offsets[u], offsets[u + 1]):
                v = targets[i]
                if parent[v] == -2:
                    parent[v] = u
                    order[tail] = v
                    tail += 1
    return tail


@kernel
def split_part(offsets, targets, members, connected, order, parent, weight, moved):
    """Choose about half of a part's members to move away; returns how many, at least one and not all.

    Not `connected`: the second half of a breadth-first order. `connected`: the subtree of the breadth-first
    tree whose size is nearest to half, so that what stays and what moves both hang together. `parent` is
    scratch space that holds -3 everywhere on entry and on return; `weight` is scratch space.
    """
    size = members.size
    for i in range(size):
        parent[members[i]] = -2
    bfs_order(offsets, targets, members, order, parent)
    count = 0
    if connected:
        for i in range(size):
            weight[order[i]] = 1
        best = -1
        gap = size
        for i in range(size - 1, 0, -1):
            v = order[i]
            if parent[v] >= 0:
                weight[parent[v]] += weight[v]
            miss = abs(2 * weight[v] - size)
            if miss < gap:
                gap = miss
                best = v
        weight[best] = -1
        for i in range(1, size):
            v = order[i]
            if v == best or (parent[v] >= 0 and weight[parent[v]] == -1):
                weight[v] = -1
                moved[count] = v
                count += 1
    else:
        for i in range(size - size // 2, size):
            moved[count] = order[i]
            count += 1
    for i in range(size):
        parent[members[i]] = -3
    return count


@kernel
def grow_parts(offsets, targets, owner, queue, tail):
    """Multi-source search from the `tail` vertices in `queue`: every vertex with owner -1 joins the part
    that reaches it.
    """
    head = 0
    while head < tail:
        u = queue[head]
        head += 1
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if owner[v] < 0:
                owner[v] = owner[u]
                queue[tail] = v
                tail += 1
    return tail


@kernel
def stream(offsets, targets, order, linear, penalty, capacity, owner, load, count, lightest):
    """One pass of a greedy streaming partitioner; places every vertex of `order` anew.

    Score of a part with `load` vertices, of which ``c`` are neighbors: ``c * penalty[load]`` if `linear`
    (LDG), else ``c - penalty[load]`` (Fennel). Full parts are left out; ties go to the smaller load, then
    to the lower number.

    `owner` holds the previous pass (or -1); `count` is zero on entry, and `load` if no vertices are placed yet. A
    part without neighbors can only win if it is the lightest one, which the tournament tree `lightest` (two slots per
    leaf, root at 1) keeps at hand: a vertex costs its degree + log(parts), not `parts`.
    """
    parts = load.size
    leaves = lightest.size // 2
    for i in range(leaves):
        lightest[leaves + i] = i if i < parts else -1
    for i in range(leaves - 1, 0, -1):
        left, right = lightest[2 * i], lightest[2 * i + 1]
        lightest[i] = left if right < 0 or load[left] <= load[right] else right
    for v in order:
        for i in range(offsets[v], offsets[v + 1]):
            p = owner[targets[i]]
            if p >= 0:
                count[p] += 1
        best = lightest[1]
        best_load = load[best]
        best_score = count[best] * penalty[best_load] if linear else count[best] - penalty[best_load]
        for i in range(offsets[v], offsets[v + 1]):
            p = owner[targets[i]]
            if p < 0 or count[p] == 0:
                continue
            if load[p] < capacity:
                score = count[p] * penalty[load[p]] if linear else count[p] - penalty[load[p]]
                if score > best_score or (
                    score == best_score and (load[p] < best_load or (load[p] == best_load and p < best))
                ):
                    best, best_score, best_load = p, score, load[p]
            count[p] = 0
        owner[v] = best
        load[best] += 1
        node = (leaves + best) // 2
        while node >= 1:
            left, right = lightest[2 * node], lightest[2 * node + 1]
            lightest[node] = left if right < 0 or load[left] <= load[right] else right
            node //= 2


@kernel
def cut_edges(offsets, targets, weights, weighted, directed, owner, part_edges, component, ends):
    """Count the edges inside each part, and the cut ones (as return value, with their weight).

    If `ends` has rows, the subgraphs at both ends of the cut edges are written there, in row order.
    """
    cut = 0
    cut_weight = 0.0
    for u in range(offsets.size - 1):
        mine = owner[u]
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if not directed and v < u:
                continue
            if owner[v] == mine:
                part_edges[mine] += 1
                continue
            if weighted:
                cut_weight += weights[i]
            if cut < ends.shape[1]:
                ends[0, cut] = component[u]
                ends[1, cut] = component[v]
            cut += 1
    return cut, cut_weight


@kernel
def volumes(offsets, targets, owner, seen, part_volume, part_boundary):
    """Foreign parts next to each vertex, summed per part; vertices that have any. `seen` must be -1."""
    for u in range(offsets.size - 1):
        mine = owner[u]
        seen[mine] = u
        foreign = 0
        for i in range(offsets[u], offsets[u + 1]):
            p = owner[targets[i]]
            if seen[p] != u:
                seen[p] = u
                foreign += 1
        part_volume[mine] += foreign
        if foreign:
            part_boundary[mine] += 1


@kernel(inner=True)
def distances(offsets, targets, source, distance, queue):
    """Hop counts from `source` into `distance` (-1 on entry); returns how many were reached, in `queue`."""
    distance[source] = 0
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        u = queue[head]
        head += 1
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if distance[v] < 0:
                distance[v] = distance[u] + 1
                queue[tail] = v
                tail += 1
    return tail


@kernel
def largest_eccentricity(offsets, targets, members, starts, budget):
    """Largest eccentricity inside any component, and whether it is exact or a lower bound.

    `members[starts[c]:starts[c + 1]]` are the vertices of component c, largest components first. Every
    search from a source s bounds the eccentricity of each w by ``max(d, ecc - d) <= ecc(w) <= ecc + d``
    with ``d = d(s, w)``; a vertex whose upper bound does not pass the best value found is done with. The
    first two searches of a component are a double sweep. No further search starts once `budget` arcs have
    been looked at.
    """
    n = offsets.size - 1
    distance = np.full(n, -1, np.int64)
    queue = np.empty(n, np.int64)
    lower = np.zeros(n, np.int64)
    upper = np.full(n, n, np.int64)
    alive = np.empty(n, np.int64)
    best = 0
    spent = 0
    exact = True
    for c in range(starts.size - 1):
        size = starts[c + 1] - starts[c]
        if size - 1 <= best:
            break
        left = size
        arcs = 0
        source = members[starts[c]]
        for i in range(size):
            v = members[starts[c] + i]
            alive[i] = v
            arcs += offsets[v + 1] - offsets[v]
            if offsets[v + 1] - offsets[v] > offsets[source + 1] - offsets[source]:
                source = v
        step = 0
        while left > 0:
            if step >= 2 and spent > budget:
                exact = False
                break
            if step == 1:
                source = queue[size - 1]  # the farthest from the first source
            elif step >= 2:
                source = alive[0]
                for i in range(1, left):
                    v = alive[i]
                    gain = lower[source] - lower[v] if step % 2 else upper[v] - upper[source]
                    if gain > 0 or (gain == 0 and offsets[v + 1] - offsets[v] > offsets[source + 1] - offsets[source]):
                        source = v
            distances(offsets, targets, source, distance, queue)
            spent += arcs + size
            eccentricity = distance[queue[size - 1]]
            best = max(best, eccentricity)
            upper[source] = eccentricity
            kept = 0
            for i in range(left):
                w = alive[i]
                d = distance[w]
                lower[w] = max(lower[w], d, eccentricity - d)
                upper[w] = min(upper[w], eccentricity + d)
                if upper[w] > best:
                    alive[kept] = w
                    kept += 1
            left = kept
            for i in range(size):
                distance[queue[i]] = -1
            step += 1
    return best, exact
