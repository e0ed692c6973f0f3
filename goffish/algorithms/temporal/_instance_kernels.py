"""Kernels over the arcs that exist in one instance."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def _find(parent, v):
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True, nogil=True)
def local_components(subgraph_offsets, offsets, targets, keep, alive, vertex_ids, root, label):
    """Components of the local arcs that exist: `root` is the first vertex, ``label[root]`` the least number as read."""
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
            label[root[v]] = min(label[root[v]], vertex_ids[v])


@njit(cache=True, nogil=True)
def lower_labels(vertex, component, alive, root, label, changed):
    """Take over smaller labels from messages; marks the roots whose label fell."""
    for i in range(vertex.size):
        v = vertex[i]
        if alive[v] and component[i] < label[root[v]]:
            label[root[v]] = component[i]
            changed[root[v]] = True


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
