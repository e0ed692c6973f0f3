"""Truss kernels on rows of numbered edges, each with the neighbors of lower degree first."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel(allocates=False)
def number_edges(offsets, targets, degree, rows, middle, neighbors, edges, sources):
    """Number the edges between different vertices, in the order of their ends, and fill rows with them.

    Parameters
    ----------
    degree : integers, shape (n,)
        Numbers of distinct other neighbors.
    rows : int64, shape (n + 1,)
        Accumulated degrees.
    middle : int64, shape (n,)
        Receives where the neighbors of higher (degree, number) begin in each row.
    neighbors, edges : shape (2 m,)
        Receive the rows: neighbors, and numbers of the edges to them.
    sources : shape (2, m)
        Receives the smaller and the larger end of each edge.
    """
    n = degree.size
    low, high = middle, rows
    for u in range(n):
        low[u] = rows[u]
    # The end of a row is the beginning of the next: it is lowered here and restored below.
    edge = 0
    for u in range(n):
        before = np.int64(-1)
        for i in range(offsets[u], offsets[u + 1]):
            v = np.int64(targets[i])
            if v > u and v != before:
                sources[0, edge], sources[1, edge] = u, v
                # In a row, ends of lower degree from the left, others from the right.
                near, far = (v, u) if degree[v] < degree[u] else (u, v)
                at = low[far]
                low[far] = at + 1
                neighbors[at], edges[at] = near, edge
                at = high[near + 1] - 1
                high[near + 1] = at
                neighbors[at], edges[at] = far, edge
                edge += 1
            before = v
    end = 0
    for u in range(n):
        end += degree[u]
        rows[u + 1] = end


@kernel(allocates=False)
def triangle_work(rows, middle, neighbors, work):
    """Accumulated number of steps that `count_support` takes up to each row."""
    for u in range(middle.size):
        steps = 0
        for i in range(middle[u], rows[u + 1]):
            steps += rows[neighbors[i] + 1] - middle[neighbors[i]]
        work[u + 1] = work[u] + steps


@kernel(allocates=False)
def count_support(rows, middle, neighbors, edges, first, last, mark, support):
    """Add the triangles whose corner of least degree is in some rows to all three edges; `mark` holds -1."""
    for u in range(first, last):
        for i in range(middle[u], rows[u + 1]):
            mark[neighbors[i]] = edges[i]
        for i in range(middle[u], rows[u + 1]):
            v = neighbors[i]
            found = 0
            for j in range(middle[v], rows[v + 1]):
                third = mark[neighbors[j]]
                if third >= 0:
                    support[third] += 1
                    support[edges[j]] += 1
                    found += 1
            support[edges[i]] += found
        for i in range(middle[u], rows[u + 1]):
            mark[neighbors[i]] = -1


@kernel(allocates=False)
def peel_edges(rows, neighbors, edges, sources, degree, support, scratch):
    """Truss numbers less two in place of `support`: remove an edge in the fewest triangles again and again.

    All edges of the least support are removed one by one, grouped by their end of higher degree, whose neighbors are
    marked once for the group. Removed edges are dropped from rows as they are met. A level looks at all edges that are
    left: at none more often than it has triangles, and once.

    Parameters
    ----------
    rows, neighbors, edges
        As of `number_edges`; consumed.
    scratch : tuple
        Ends of the rows, and twice no edge (-1), shape (n,); four arrays to be filled, and False, shape (m,).
    """
    ends, head, mark, after, alive, queue, waiting, gone = scratch
    m = support.size
    for e in range(m):
        alive[e] = e
    left = m
    while left:
        level = support[alive[0]]
        for i in range(left):
            level = min(level, support[alive[i]])
        kept, size = 0, 0
        for i in range(left):
            e = alive[i]
            if support[e] == level:
                queue[size] = e
                size += 1
            else:
                alive[kept] = e
                kept += 1
        left = kept
        while size:
            # Edges in no triangle take no others with them.
            for i in range(size if level == 0 else 0):
                gone[queue[i]] = True
            hubs, more = 0, 0
            for i in range(size if level > 0 else 0):
                e = queue[i]
                hub = sources[0, e] if degree[sources[0, e]] > degree[sources[1, e]] else sources[1, e]
                if head[hub] < 0:
                    # Hubs take the places of edges that are read already.
                    queue[hubs] = hub
                    hubs += 1
                    after[e] = -1
                else:
                    after[e] = head[hub]
                head[hub] = e
            for h in range(hubs):
                hub = queue[h]
                end = rows[hub]
                for i in range(rows[hub], ends[hub]):
                    if not gone[edges[i]]:
                        neighbors[end], edges[end] = neighbors[i], edges[i]
                        mark[neighbors[end]] = edges[end]
                        end += 1
                ends[hub] = end
                e = head[hub]
                head[hub] = -1
                while e >= 0:
                    v = sources[0, e] + sources[1, e] - hub
                    closed, at, i = 0, rows[v], rows[v]
                    while i < ends[v] and closed < level:
                        f = edges[i]
                        if not gone[f]:
                            neighbors[at], edges[at] = neighbors[i], f
                            third = mark[neighbors[at]]
                            at += 1
                            if third >= 0 and not gone[third]:
                                closed += 1
                                if support[f] > level:
                                    support[f] -= 1
                                    if support[f] == level:
                                        waiting[more] = f
                                        more += 1
                                if support[third] > level:
                                    support[third] -= 1
                                    if support[third] == level:
                                        waiting[more] = third
                                        more += 1
                        i += 1
                    if at < i:
                        while i < ends[v]:
                            neighbors[at], edges[at] = neighbors[i], edges[i]
                            at += 1
                            i += 1
                        ends[v] = at
                    gone[e] = True
                    e = after[e]
                for i in range(rows[hub], ends[hub]):
                    mark[neighbors[i]] = -1
            queue, waiting, size = waiting, queue, more
        # Edges that were lowered to this level are still listed.
        kept = 0
        for i in range(left):
            if not gone[alive[i]]:
                alive[kept] = alive[i]
                kept += 1
        left = kept
