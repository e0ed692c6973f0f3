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


class Rows(NamedTuple):
    """The arcs of a slice in one direction.

    Attributes
    ----------
    offsets, targets, remote_offsets
        As in `goffish.gofs.Arcs`.
    starts : int64, shape (subgraphs + 1,)
        First local vertex of each subgraph.
    """

    offsets: NDArray[np.int64]
    targets: NDArray[np.int32]
    remote_offsets: NDArray[np.int64]
    starts: NDArray[np.int64]


@kernel(allocates=False, inline="always")
def _subgraph_of(starts, vertex):
    """Return the subgraph of a local vertex, by binary search."""
    low, high = 0, starts.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= vertex:
            low = middle
        else:
            high = middle
    return low


@kernel(allocates=False)
def expand(rows, met, back, back_met, found, queue, begin, end, deep):
    """Follow the arcs of the vertices at ``queue[begin:end]``; return the new end of the queue.

    Parameters
    ----------
    rows, back : Rows
        Arcs that are followed; `back` is left out if it has no offsets.
    met, back_met : bool
        Set for the remote vertices that are reached.
    found : bool, shape (n_local,)
        Vertices that are in the queue, or were.
    deep : bool
        Follow the arcs of the vertices that are found as well, until there are no more.
    """
    at, stop = begin, end
    while at < stop:
        v = queue[at]
        s = _subgraph_of(rows.starts, v)
        low, remote = rows.starts[s], rows.remote_offsets[s]
        for i in range(rows.offsets[v], rows.offsets[v + 1]):
            t = rows.targets[i]
            if t < 0:
                met[remote + ~t] = True
            elif not found[low + t]:
                found[low + t] = True
                queue[end] = low + t
                end += 1
        if back.offsets.size:
            remote = back.remote_offsets[s]
            for i in range(back.offsets[v], back.offsets[v + 1]):
                t = back.targets[i]
                if t < 0:
                    back_met[remote + ~t] = True
                elif not found[low + t]:
                    found[low + t] = True
                    queue[end] = low + t
                    end += 1
        at += 1
        if deep:
            stop = end
    return end


@kernel(allocates=False)
def _root(parent, v):
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@kernel(allocates=False)
def join_rows(rows, remote_vertex, start, parent):
    """Join the sets of both ends of every arc; a root is the smallest vertex of its set."""
    for s in range(rows.starts.size - 1):
        low = start + rows.starts[s]
        for v in range(rows.starts[s], rows.starts[s + 1]):
            root = _root(parent, start + v)
            for i in range(rows.offsets[v], rows.offsets[v + 1]):
                t = rows.targets[i]
                other = _root(parent, low + t if t >= 0 else np.int64(remote_vertex[rows.remote_offsets[s] + ~t]))
                if other < root:
                    parent[root] = other
                    root = other
                elif root < other:
                    parent[other] = root


@kernel(allocates=False)
def flatten(parent):
    """Replace every parent by its root."""
    for v in range(parent.size):
        parent[v] = parent[parent[v]]


@kernel(allocates=False)
def edges_between(rows, number, directed, first, last, source, target, arcs):
    """Write the arcs between numbered vertices; an edge without a direction once, from the smaller number.

    Parameters
    ----------
    number : integers, shape (n_local + remote,)
        Numbers of the local vertices and of the rows of the remote table; -1 for those that are left out.
    first, last : int
        Range of local vertices.
    source, target : int64
        Receive the places of both ends in `number`.
    arcs : int64
        Receives the arcs.

    Returns
    -------
    int
        How many there are.
    """
    n, count = rows.offsets.size - 1, 0
    s = _subgraph_of(rows.starts, first)
    for v in range(first, last):
        while rows.starts[s + 1] <= v:
            s += 1
        if number[v] < 0:
            continue
        low, remote = rows.starts[s], n + rows.remote_offsets[s]
        for i in range(rows.offsets[v], rows.offsets[v + 1]):
            t = rows.targets[i]
            place = low + t if t >= 0 else remote + ~t
            if number[place] >= 0 and (directed or number[v] <= number[place]):
                source[count], target[count], arcs[count] = v, place, i
                count += 1
    return count


@kernel(allocates=False)
def sum_rows(rows, weights, sums, loops, loop_sums):
    """Add up the weights of each row, and count and add up its self-loops; without weights only count."""
    for s in range(rows.starts.size - 1):
        for v in range(rows.starts[s], rows.starts[s + 1]):
            for i in range(rows.offsets[v], rows.offsets[v + 1]):
                loop = rows.targets[i] == v - rows.starts[s]
                loops[v] += loop
                if weights.size:
                    sums[v] += weights[i]
                    if loop:
                        loop_sums[v] += weights[i]
