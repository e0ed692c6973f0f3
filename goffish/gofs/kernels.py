"""Numba kernels that cut a graph into partition slices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class Numbering(NamedTuple):
    """Partitioned numbers of vertices.

    Attributes
    ----------
    order, rank : int32 or int64, shape (n,)
        The vertex with each partitioned number, and the partitioned number of each vertex.
    subgraph_offsets : int64, shape (subgraphs + 1,)
        First partitioned number of each subgraph.
    """

    order: NDArray[Any]
    rank: NDArray[Any]
    subgraph_offsets: NDArray[np.int64]


class RemoteTable(NamedTuple):
    """Remote vertices of the subgraphs of a slice: ascending, those of each subgraph from ``offsets`` on.

    Attributes
    ----------
    offsets : int64, shape (subgraphs + 1,)
    vertex : integers
    links : int64
        Arcs to each.
    """

    offsets: NDArray[np.int64]
    vertex: NDArray[Any]
    links: NDArray[np.int64]


@kernel
def counting_order(keys, starts, order, rank):
    """Stable order of vertices by key: ``order[new] = old`` and ``rank[old] = new``.

    `starts` holds, per key, the first new number of that key; it is consumed.
    """
    for v in range(keys.size):
        at = starts[keys[v]]
        starts[keys[v]] = at + 1
        order[at] = v
        rank[v] = at


@kernel
def slice_sizes(offsets, targets, numbering, first, last, mark, remote_offsets):
    """Count arcs and distinct remote vertices of the subgraphs ``first … last-1``.

    `mark` (shape (n,), any value < first) remembers the last subgraph that met a remote vertex.
    Returns the number of arcs.
    """
    order, rank, subgraph_offsets = numbering
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


@kernel
def fill_slice(offsets, targets, numbering, first, last, mark, remote, out_offsets, out_targets, out_arcs):
    """Write the CSR rows and the remote tables of the subgraphs ``first … last-1``.

    A target inside the subgraph becomes its index there; a remote one becomes ``~index`` into the
    subgraph's remote table. In every row the local targets come first, ascending, then the remote ones by index.
    """
    order, rank, subgraph_offsets = numbering
    remote_offsets, remote_vertex, remote_links = remote
    slot = np.empty(rank.size, np.int32)
    at = 0
    tail = np.empty(16, np.int64)
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
            # (index, arc) pairs in one number each, so that one sort orders them and equal targets stay in order
            first_arc = offsets[old]
            width = offsets[old + 1] - first_arc
            if width > tail.size:
                tail = np.empty(2 * width, np.int64)
            length = 0
            for i in range(first_arc, first_arc + width):
                t = rank[targets[i]]
                if t < low or t >= high:
                    tail[length] = np.int64(slot[t]) * width + (i - first_arc)
                    length += 1
            tail[:length].sort()
            for j in range(length):
                r = tail[j] // width
                out_targets[at] = ~r
                out_arcs[at] = first_arc + tail[j] % width
                remote_links[begin + r] += 1
                at += 1
    out_offsets[out_offsets.size - 1] = at


@kernel
def restore_rows(
    offsets, targets, subgraph_offsets, remote_offsets, remote_vertex, start, original, vertex_ids,
    out_offsets, out_targets, out_arcs,
):  # fmt: skip
    """Write the rows of a slice back under the original vertex numbers.

    `out_arcs` receives the slice's arc of each written one.
    """
    row = np.empty(16, np.int64)
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            begin, width = offsets[v], offsets[v + 1] - offsets[v]
            if width > row.size:
                row = np.empty(2 * width, np.int64)
            for j in range(width):
                t = targets[begin + j]
                u = original[start + low + t] if t >= 0 else original[remote_vertex[remote + ~t]]
                row[j] = np.int64(u) * width + j
            row[:width].sort()
            at = out_offsets[vertex_ids[v]]
            for j in range(width):
                out_targets[at + j] = row[j] // width
                out_arcs[at + j] = begin + row[j] % width
