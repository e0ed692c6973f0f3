"""Kernels over the arcs that exist in one instance."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def _find(parent, v):
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@kernel
def local_components(subgraph_offsets, offsets, targets, keep, alive, vertex_ids, root, label):
    """Components of local arcs that exist: `root` is the first vertex, ``label[root]`` the largest number as read."""
    for v in range(alive.size):
        root[v] = v
        label[v] = vertex_ids[v]
    for s in range(subgraph_offsets.size - 1):
        low = subgraph_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            if not alive[v]:
                continue
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                if t < 0 or not keep[i] or not alive[low + t]:
                    continue
                a, b = _find(root, v), _find(root, low + t)
                if a != b:
                    first, last = min(a, b), max(a, b)
                    root[last] = first
    for v in range(alive.size):
        root[v] = _find(root, v)
        if alive[v]:
            label[root[v]] = max(label[root[v]], vertex_ids[v])


@kernel
def raise_labels(vertex, component, alive, root, label, changed):
    """Take over larger labels from messages; marks the roots whose label rose."""
    for i in range(vertex.size):
        v = vertex[i]
        if alive[v] and component[i] > label[root[v]]:
            label[root[v]] = component[i]
            changed[root[v]] = True


@kernel
def existing_arcs(subgraph_offsets, remote_offsets, offsets, targets, exists, alive, ghost_alive, keep, degree):
    """Arcs that exist and both of whose ends do; the number of them that leave each vertex."""
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            degree[v] = 0
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                keep[i] = exists[i] and alive[v] and (alive[low + t] if t >= 0 else ghost_alive[remote + ~t])
                degree[v] += keep[i]


@kernel
def spread_ranks(subgraph_offsets, remote_offsets, offsets, targets, keep, degree, alive, rank, local_sum, remote_sum):
    """Give each vertex's rank to its successors in equal parts; what vertices without any have is returned."""
    dangling = 0.0
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            if degree[v] == 0:
                dangling += rank[v] if alive[v] else 0.0
                continue
            part = rank[v] / degree[v]
            for i in range(offsets[v], offsets[v + 1]):
                if not keep[i]:
                    continue
                t = targets[i]
                if t >= 0:
                    local_sum[low + t] += part
                else:
                    remote_sum[remote + ~t] += part
    return dangling


@kernel
def place_arcs(
    rows, remote_vertex, start, original, vertex_ids, edge_row, first_row, out_offsets, out_targets, out_rows
):
    """Write the arcs of a partition under the numbers as read: target, and row of the flag (`first_row` on)."""
    subgraph_offsets, remote_offsets, offsets, targets = rows
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            at = out_offsets[vertex_ids[v]]
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                out_targets[at] = original[start + low + t] if t >= 0 else original[remote_vertex[remote + ~t]]
                out_rows[at] = first_row + edge_row[i]
                at += 1


@kernel
def ends_of_rows(offsets, targets, rows, first, second):
    """Both ends of the edge of each row; rows without an arc (of edges that another partition has) are left alone."""
    for v in range(offsets.size - 1):
        for i in range(offsets[v], offsets[v + 1]):
            first[rows[i]] = v
            second[rows[i]] = targets[i]


@kernel
def reverse_arcs(offsets, targets, rows, in_offsets, in_sources, in_rows):
    """The arcs by their targets, sources ascending; `in_offsets` (all 0 before) has one more place than vertices."""
    for i in range(targets.size):
        in_offsets[targets[i] + 1] += 1
    for v in range(offsets.size - 1):
        in_offsets[v + 1] += in_offsets[v]
    for v in range(offsets.size - 1):
        for i in range(offsets[v], offsets[v + 1]):
            at = in_offsets[targets[i]]
            in_offsets[targets[i]] += 1
            in_sources[at] = v
            in_rows[at] = rows[i]
    for v in range(offsets.size - 1, 0, -1):
        in_offsets[v] = in_offsets[v - 1]
    in_offsets[0] = 0


@kernel
def whole_components(first, second, keep, alive, root):
    """The last vertex of the component of each vertex, by the edges that exist and both of whose ends do."""
    for v in range(root.size):
        root[v] = v
    for r in range(first.size):
        if not keep[r] or first[r] < 0:
            continue
        if alive[first[r]] and alive[second[r]]:
            a, b = _find(root, first[r]), _find(root, second[r])
            if a > b:
                root[b] = a
            elif b > a:
                root[a] = b
    # A parent is never the earlier vertex, so that of a later vertex is its root by now.
    for v in range(root.size - 1, -1, -1):
        root[v] = root[root[v]]


@kernel
def whole_ranks(in_offsets, in_sources, in_rows, keep, alive, damping, iterations, tolerance, rank):
    """PageRank by pulling over the arcs that exist; gives the number of updates.

    The last update is the one after that which changed less than `tolerance`, as in `InstancePageRank`, which hears of
    a change one superstep late. Vertices without any arc all have the same rank, which is computed once.
    """
    n = alive.size
    place = np.full(n, -1, np.int32)
    for v in range(n):
        if not alive[v]:
            continue
        for i in range(in_offsets[v], in_offsets[v + 1]):
            if keep[in_rows[i]] and alive[in_sources[i]]:
                place[v] = place[in_sources[i]] = 0
    count = busy = 0
    for v in range(n):
        count += alive[v]
        if place[v] == 0:
            place[v] = busy
            busy += 1
    begin, sources = np.zeros(busy + 1, np.int64), np.empty(in_sources.size, np.int32)
    degree = np.zeros(busy, np.int64)
    total = 0
    for v in range(n):
        if place[v] < 0:
            continue
        for i in range(in_offsets[v], in_offsets[v + 1]):
            s = in_sources[i]
            if keep[in_rows[i]] and alive[s]:
                sources[total] = place[s]
                degree[place[s]] += 1
                total += 1
        begin[place[v] + 1] = total
    alone = count - busy
    of_all = np.float64(max(1, count))
    apart = 1.0 / of_all
    own, part = np.full(busy, apart), np.empty(busy)
    updates, before = 0, np.inf
    while True:
        dangling = alone * apart
        for v in range(busy):
            if degree[v] == 0:
                dangling += own[v]
                part[v] = 0.0
            else:
                part[v] = own[v] / degree[v]
        share = (1.0 - damping + damping * dangling) / of_all
        change = alone * abs(share - apart)
        apart = share
        for v in range(busy):
            pulled = 0.0
            for i in range(begin[v], begin[v + 1]):
                pulled += part[sources[i]]
            after = share + damping * pulled
            change += abs(after - own[v])
            own[v] = after
        updates += 1
        if updates >= iterations or before < tolerance:
            break
        before = change
    for v in range(n):
        rank[v] = own[place[v]] if place[v] >= 0 else (apart if alive[v] else 0.0)
    return updates
