"""Numba kernels for templates that grow: look-ups in slices, and their rows with more arcs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.gofs.kernels import _subgraph_of
from goffish.kernels.compile import kernel

#: Places of remote targets in a row follow those of local ones, which are below this number.
REMOTE = 1 << 31


@kernel(allocates=False, inline="always")
def _place_in_row(target):
    """Return a number by which the targets of a row ascend: local ones, then remote ones."""
    return np.int64(target) if target >= 0 else REMOTE + ~np.int64(target)


@kernel(allocates=False)
def find_arcs(rows, remote_vertex, start, sources, targets, arcs):
    """Find the first arc of each of some local vertices to a partitioned number; -1 if there is none."""
    for q in range(sources.size):
        arcs[q] = -1
        subgraph = _subgraph_of(rows.starts, sources[q])
        base = start + rows.starts[subgraph]
        if base <= targets[q] < start + rows.starts[subgraph + 1]:
            wanted = np.int64(targets[q] - base)
        else:
            low, high = rows.remote_offsets[subgraph], rows.remote_offsets[subgraph + 1]
            while low < high:
                middle = (low + high) // 2
                if remote_vertex[middle] < targets[q]:
                    low = middle + 1
                else:
                    high = middle
            if low == rows.remote_offsets[subgraph + 1] or remote_vertex[low] != targets[q]:
                continue
            wanted = REMOTE + (low - rows.remote_offsets[subgraph])
        low, high = rows.offsets[sources[q]], rows.offsets[sources[q] + 1]
        while low < high:
            middle = (low + high) // 2
            if _place_in_row(rows.targets[middle]) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < rows.offsets[sources[q] + 1] and _place_in_row(rows.targets[low]) == wanted:
            arcs[q] = low


@kernel(allocates=False)
def count_edges(rows, remote_vertex, start, original, directed, counts):
    """Add to `counts`, at the original number of each vertex, the arcs that stand for edges.

    Those are all in a directed graph, and in an undirected one those to vertices that are not smaller.
    """
    for subgraph in range(rows.starts.size - 1):
        base, remote = rows.starts[subgraph], rows.remote_offsets[subgraph]
        for v in range(base, rows.starts[subgraph + 1]):
            mine = original[start + v]
            for i in range(rows.offsets[v], rows.offsets[v + 1]):
                t = rows.targets[i]
                if directed or original[start + base + t if t >= 0 else remote_vertex[remote + ~t]] >= mine:
                    counts[mine] += 1


@kernel(allocates=False)
def count_edges_before(rows, remote_vertex, start, original, directed, sources, limits, counts):
    """Count the arcs of each of some local vertices that stand for edges to original numbers below a limit."""
    for q in range(sources.size):
        subgraph = _subgraph_of(rows.starts, sources[q])
        base, remote = start + rows.starts[subgraph], rows.remote_offsets[subgraph]
        least = 0 if directed else original[start + sources[q]]
        counts[q] = 0
        for i in range(rows.offsets[sources[q]], rows.offsets[sources[q] + 1]):
            t = rows.targets[i]
            if least <= original[base + t if t >= 0 else remote_vertex[remote + ~t]] < limits[q]:
                counts[q] += 1


class Moved(NamedTuple):
    """Where the vertices of a slice are after more of them have been added.

    Attributes
    ----------
    starts : int64, shape (subgraphs + 1,)
        First local vertex of each subgraph that there is now.
    before : int64, shape (vertices,)
        Local number that each vertex had, or -1.
    now : int64, shape (earlier vertices,)
        Local number of each vertex that there was.
    row : int64, shape (earlier rows,)
        Place of each earlier remote vertex in the remote table of its subgraph.
    """

    starts: NDArray[np.int64]
    before: NDArray[np.int64]
    now: NDArray[np.int64]
    row: NDArray[np.int64]


class AddedArcs(NamedTuple):
    """Arcs that are added to a slice, ordered by vertex and place in the row.

    Attributes
    ----------
    offsets : int64, shape (vertices + 1,)
    place : int64
        See `_place_in_row`.
    arc : int64
        Number to write for each.
    """

    offsets: NDArray[np.int64]
    place: NDArray[np.int64]
    arc: NDArray[np.int64]


@kernel
def merge_rows(rows, moved, added, offsets, targets, arcs):
    """Write the rows of a slice with more arcs; `arcs` receives the earlier one, or the number of an added one."""
    at, home = 0, 0
    order = np.empty(16, np.int64)
    for subgraph in range(moved.starts.size - 1):
        low = moved.starts[subgraph]
        for v in range(low, moved.starts[subgraph + 1]):
            begin, last, ordered = at, np.int64(-1), True
            offsets[v] = at
            new, stop = added.offsets[v], added.offsets[v + 1]
            old = moved.before[v]
            if old >= 0:
                if not rows.starts[home] <= old < rows.starts[home + 1]:
                    home = _subgraph_of(rows.starts, old)
                base, remote = rows.starts[home], rows.remote_offsets[home]
                for i in range(rows.offsets[old], rows.offsets[old + 1]):
                    t = rows.targets[i]
                    place = moved.now[base + t] - low if t >= 0 else REMOTE + moved.row[remote + ~t]
                    while new < stop and added.place[new] < place:
                        other = added.place[new]
                        targets[at] = other if other < REMOTE else ~(other - REMOTE)
                        arcs[at] = added.arc[new]
                        at += 1
                        new += 1
                    ordered = ordered and place >= last
                    last = place
                    targets[at] = place if place < REMOTE else ~(place - REMOTE)
                    arcs[at] = i
                    at += 1
            while new < stop:
                other = added.place[new]
                targets[at] = other if other < REMOTE else ~(other - REMOTE)
                arcs[at] = added.arc[new]
                at += 1
                new += 1
            if ordered:
                continue
            # subgraphs of other partitions have changed their order
            width = at - begin
            if width > order.size:
                order = np.empty(2 * width, np.int64)
            for j in range(width):
                order[j] = _place_in_row(targets[begin + j]) * width + j
            order[:width].sort()
            some_targets, some_arcs = targets[begin:at].copy(), arcs[begin:at].copy()
            for j in range(width):
                targets[begin + j] = some_targets[order[j] % width]
                arcs[begin + j] = some_arcs[order[j] % width]
    offsets[offsets.size - 1] = at
