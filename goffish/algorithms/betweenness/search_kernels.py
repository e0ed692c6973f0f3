"""Brandes' algorithm with weights and multiplicities, one source at a time (specification, equations (2) and (4))."""

from __future__ import annotations

import numpy as np
from numba import njit

from goffish.algorithms.betweenness.lane_kernels import MOST

_ONE = np.uint64(1)
#: Scaled counts: a number is ``mantissa · _LARGE ^ exponent``, mantissas from 1 to `_LARGE`.
_LARGE, _SMALL = 2.0**500, 2.0**-500


@njit(cache=True, nogil=True)
def search_levels(
    offsets, targets, out, into, times, sources, first, last, ends, level, paths, share, queue, score, arc_score
):  # fmt: skip
    """Add the dependencies of the searches from ``sources[first:last]`` on a graph without weights.

    The number of paths to a vertex may pass `MOST`; then its score is NaN and all of this call is worthless.

    Parameters
    ----------
    offsets, targets
        Unsigned, so that no index is tested for being negative.
    ends : bool
        Whether a pair counts for its two ends as well.
    level : int32, shape (n,)
        Filled with -1, and again so at the end.
    paths : float64, shape (n,)
        Zeros, and again so at the end.
    share : float64, shape (n,)
    queue : uint32, shape (n + 1,)
    score : float64, shape (n,)
    arc_score : float64, shape (arcs,) or (0,)
        Receives the dependencies of the arcs as well, at the arc away from the source.
    """
    with_arcs = arc_score.size > 0
    for i in range(first, last):
        source = np.uint64(sources[i])
        weight = out[source]
        level[source] = 0
        paths[source] = 1.0
        queue[0] = source
        at, end = np.uint64(0), _ONE
        while at < end:
            u = np.uint64(queue[at])
            below = level[u] + np.int32(1)
            through = paths[u] * times[u] if at > 0 else 1.0
            at += _ONE
            for a in range(offsets[u], offsets[u + _ONE]):
                v = targets[a]
                # Free of branches: whether a vertex is new cannot be predicted.
                known = level[v]
                fresh = known < 0
                queue[end] = v
                end += np.uint64(fresh)
                known = below if fresh else known
                level[v] = known
                paths[v] += through if known == below else 0.0
        while at > 0:
            at -= _ONE
            u = np.uint64(queue[at])
            below = level[u] + np.int32(1)
            total = 0.0
            for a in range(offsets[u], offsets[u + _ONE]):
                v = targets[a]
                total += share[v] if level[v] == below else 0.0
            members = times[u] if at > 0 else 1.0
            if with_arcs:
                for a in range(offsets[u], offsets[u + _ONE]):
                    v = targets[a]
                    if level[v] == below:
                        arc_score[a] += weight * members * paths[u] * share[v]
            if at == 0:
                break
            dependency = total * paths[u] * members if paths[u] <= MOST else np.nan
            share[u] = (into[u] + dependency) / paths[u]
            score[u] += weight * dependency
            if ends:
                score[u] += weight * into[u]
                score[source] += weight * into[u]
        for at in range(end):
            v = queue[at]
            level[v] = -1
            paths[v] = 0.0


@njit(cache=True, nogil=True, inline="always")
def rise(heap, place, distance, at, v):
    """Put `v` into a 4-ary heap of vertices whose free place is `at`."""
    while at > 0:
        up = (at - 1) >> 2
        if distance[heap[up]] <= distance[v]:
            break
        heap[at] = heap[up]
        place[heap[at]] = at
        at = up
    heap[at] = v
    place[v] = at


@njit(cache=True, nogil=True, inline="always")
def sink(heap, place, distance, size, v):
    """Put `v` into a 4-ary heap of `size` places whose root is free."""
    at = 0
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        best = child
        for other in range(child + 1, min(child + 4, size)):
            if distance[heap[other]] < distance[heap[best]]:
                best = other
        if distance[heap[best]] >= distance[v]:
            break
        heap[at] = heap[best]
        place[heap[at]] = at
        at = best
    heap[at] = v
    place[v] = at


@njit(cache=True, nogil=True, inline="always")
def _count(paths, exponent, v, mantissa, power):
    """Add ``mantissa · _LARGE ^ power`` to the number of paths to `v`."""
    if paths[v] == 0.0 or power > exponent[v] + 1:
        paths[v], exponent[v] = mantissa, power
    elif power == exponent[v]:
        paths[v] += mantissa
    elif power == exponent[v] + 1:
        paths[v], exponent[v] = mantissa + paths[v] * _SMALL, power
    elif power == exponent[v] - 1:
        paths[v] += mantissa * _SMALL
    if paths[v] >= _LARGE:
        paths[v] *= _SMALL
        exponent[v] += 1


@njit(cache=True, nogil=True)
def search_distances(
    offsets, targets, weights, out, into, times, sources, first, last, ends, distance, paths, exponent, share,
    place, heap, order, score, arc_score,
):  # fmt: skip
    """Add the dependencies of the searches from ``sources[first:last]`` with Dijkstra's algorithm; any number of paths.

    Parameters
    ----------
    weights : float64, shape (arcs,) or (0,)
        Positive; empty: every arc is 1 long.
    distance : float64, shape (n,)
        Filled with infinity, and again so at the end.
    paths, share : float64, shape (n,)
        Zeros, and again so at the end.
    exponent : int64, shape (n,)
    place : int64, shape (n,)
        Place in the heap; -1 once settled.
    heap, order : int64, shape (n,)
    ends, score, arc_score
        As in `search_levels`.
    """
    weighted, with_arcs = weights.size > 0, arc_score.size > 0
    for i in range(first, last):
        source = sources[i]
        weight = out[source]
        distance[source] = 0.0
        paths[source], exponent[source] = 1.0, 0
        heap[0] = source
        size, settled = 1, 0
        while size > 0:
            u = heap[0]
            size -= 1
            if size > 0:
                sink(heap, place, distance, size, heap[size])
            place[u] = -1
            order[settled] = u
            settled += 1
            through = paths[u] * times[u] if u != source else 1.0
            for a in range(offsets[u], offsets[u + 1]):
                v = np.int64(targets[a])
                length = distance[u] + (weights[a] if weighted else 1.0)
                if length < distance[v]:
                    if distance[v] == np.inf:
                        place[v] = size
                        size += 1
                    distance[v] = length
                    paths[v] = 0.0
                    _count(paths, exponent, v, through, exponent[u])
                    rise(heap, place, distance, place[v], v)
                elif length == distance[v] and place[v] >= 0:
                    _count(paths, exponent, v, through, exponent[u])
        for at in range(settled - 1, -1, -1):
            u = order[at]
            members = times[u] if at > 0 else 1.0
            total = 0.0
            for a in range(offsets[u], offsets[u + 1]):
                v = np.int64(targets[a])
                # The share of what was settled before is still 0.
                if distance[u] + (weights[a] if weighted else 1.0) == distance[v] and share[v] > 0.0:
                    part = share[v] * paths[u] * members
                    if exponent[v] == exponent[u] + 1:
                        part *= _SMALL
                    elif exponent[v] > exponent[u]:
                        part = 0.0
                    total += part
                    if with_arcs:
                        arc_score[a] += weight * part
            if at > 0:
                share[u] = (into[u] + total) / paths[u]
                score[u] += weight * total
                if ends:
                    score[u] += weight * into[u]
                    score[source] += weight * into[u]
        for at in range(settled):
            v = order[at]
            distance[v] = np.inf
            paths[v] = share[v] = 0.0
