"""Numba kernels that cut a graph into partition slices."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def counting_order(keys, starts, order, rank):
    """Stable order of vertices by key: ``order[new] = old`` and ``rank[old] = new``.

    `starts` holds, per key, the first new number of that key; it is consumed.
    """
    for v in range(keys.size):
        at = starts[keys[v]]
        starts[keys[v]] = at + 1
        order[at] = v
        rank[v] = at


@njit(cache=True, nogil=True)
def slice_sizes(offsets, targets, order, rank, subgraph_offsets, first, last, mark, remote_offsets):
    """Count arcs and distinct remote vertices of the sub-graphs ``first … last-1``.

    `mark` (shape (n,), any value < first) remembers the last sub-graph that met a remote vertex.
    Returns the number of arcs.
    """
    arcs = 0
    for s in range(first, last):
        low, high = subgraph_offsets[s], subgraph_offsets[s + 1]
        distinct = 0
        for new in range(low, high):
            old = order[new]
            arcs += offsets[old + 1] - offsets[old]
            for i in range(offsets[old], offsets[old + 1]):
                t = rank[targets[i]]
                if (t < low or t >= high) and mark[t] != s:
                    mark[t] = s
                    distinct += 1
        remote_offsets[s - first + 1] = remote_offsets[s - first] + distinct
    return arcs


@njit(cache=True, nogil=True)
def fill_slice(
    offsets, targets, order, rank, subgraph_offsets, first, last, mark, slot,
    remote_offsets, remote_vertex, remote_links, out_offsets, out_targets, out_arcs,
):  # fmt: skip
    """Write the CSR rows and the remote tables of the sub-graphs ``first … last-1``.

    A target inside the sub-graph becomes its index there; a remote one becomes ``~index`` into the
    sub-graph's remote table. In every row the local targets come first, ascending.
    """
    at = 0
    base = subgraph_offsets[first]
    for s in range(first, last):
        low, high = subgraph_offsets[s], subgraph_offsets[s + 1]
        begin = remote_offsets[s - first]
        count = begin
        for new in range(low, high):
            old = order[new]
            for i in range(offsets[old], offsets[old + 1]):
                t = rank[targets[i]]
                if (t < low or t >= high) and mark[t] != s:
                    mark[t] = s
                    remote_vertex[count] = t
                    count += 1
        remote_vertex[begin:count].sort()
        for r in range(begin, count):
            slot[remote_vertex[r]] = r - begin
        for new in range(low, high):
            old = order[new]
            out_offsets[new - base] = at
            for i in range(offsets[old], offsets[old + 1]):
                t = rank[targets[i]]
                if low <= t < high:
                    out_targets[at] = t - low
                    out_arcs[at] = i
                    at += 1
            for i in range(offsets[old], offsets[old + 1]):
                t = rank[targets[i]]
                if t < low or t >= high:
                    r = slot[t]
                    out_targets[at] = ~r
                    out_arcs[at] = i
                    remote_links[begin + r] += 1
                    at += 1
    out_offsets[out_offsets.size - 1] = at


@njit(cache=True, nogil=True)
def restore_rows(
    offsets, targets, subgraph_offsets, remote_offsets, remote_vertex, start, original, vertex_ids,
    out_offsets, out_targets, out_arcs,
):  # fmt: skip
    """Write the rows of a slice back under the original vertex numbers.

    Local and remote targets of a row are each ascending in the original numbering, so a merge sorts the row.
    `out_arcs` receives the slice's arc of each written one.
    """
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            i, end = offsets[v], offsets[v + 1]
            j = i
            while j < end and targets[j] >= 0:
                j += 1
            middle = j
            at = out_offsets[vertex_ids[v]]
            while i < middle or j < end:
                a = original[start + low + targets[i]] if i < middle else 0
                b = original[remote_vertex[remote + ~targets[j]]] if j < end else 0
                if j >= end or (i < middle and a < b):
                    out_targets[at] = a
                    out_arcs[at] = i
                    i += 1
                else:
                    out_targets[at] = b
                    out_arcs[at] = j
                    j += 1
                at += 1
