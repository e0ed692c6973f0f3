"""Brandes' algorithm with weights and multiplicities, one source at a time.

See docs/specs/betweenness.md, sections 2 and 3.6.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.lane_kernels import MOST
from goffish.kernels.compile import kernel
from goffish.kernels.heap import lower_distance, take_nearest

_ONE = np.uint64(1)
#: Scaled counts: a number is ``mantissa · LARGE ^ exponent``, mantissas from 1 to `LARGE`.
LARGE, SMALL = 2.0**500, 2.0**-500


class Scores(NamedTuple):
    """Dependencies summed over ordered pairs.

    Attributes
    ----------
    vertices : float64, shape (n,)
    arcs : float64, shape (arcs,) or (0,)
        Each at the arc away from the source; empty where they are not wanted.
    """

    vertices: NDArray[np.float64]
    arcs: NDArray[np.float64]


class LevelMemory(NamedTuple):
    """Memory of a search without weights.

    Attributes
    ----------
    level : int32, shape (n,)
        -1 between searches.
    paths : float64, shape (n,)
        0 between searches.
    share : float64, shape (n,)
    queue : uint32, shape (n + 1,)
    """

    level: NDArray[np.int32]
    paths: NDArray[np.float64]
    share: NDArray[np.float64]
    queue: NDArray[np.uint32]


class DijkstraMemory(NamedTuple):
    """Memory of a search by distance, shape (n,) each.

    Attributes
    ----------
    distance : float64
        Infinity between searches.
    paths : float64
        Number of shortest paths, in the form that each kernel chooses.
    place : int64
        Place in the heap; negative once settled.
    heap, order : int64
        Vertices that wait, and those that are settled, nearest first.
    """

    distance: NDArray[np.float64]
    paths: NDArray[np.float64]
    place: NDArray[np.int64]
    heap: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def make(cls, n: int) -> DijkstraMemory:
        integers: list[Any] = [np.empty(n, np.int64) for _ in range(3)]
        return cls(np.full(n, np.inf), np.zeros(n), *integers)


@kernel
def search_levels(arcs, vertices, sources, ends, memory, scores):
    """Add the dependencies of the searches from `sources` on a graph without weights.

    The number of paths to a vertex may pass `MOST`; then its score is NaN and all of this call is worthless.

    Parameters
    ----------
    arcs : Csr
        Unsigned.
    vertices : VertexWeights
    ends : bool
        Whether a pair counts for its two ends as well.
    memory : LevelMemory
    scores : Scores
    """
    offsets, targets, _ = arcs
    out, into, times = vertices
    level, paths, share, queue = memory
    score, arc_score = scores
    with_arcs = arc_score.size > 0
    for i in range(sources.size):
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


@kernel(inline="always")
def _count(paths, exponent, v, mantissa, power):
    """Add ``mantissa · LARGE ^ power`` to the number of paths to `v`."""
    if paths[v] == 0.0 or power > exponent[v] + 1:
        paths[v], exponent[v] = mantissa, power
    elif power == exponent[v]:
        paths[v] += mantissa
    elif power == exponent[v] + 1:
        paths[v], exponent[v] = mantissa + paths[v] * SMALL, power
    elif power == exponent[v] - 1:
        paths[v] += mantissa * SMALL
    if paths[v] >= LARGE:
        paths[v] *= SMALL
        exponent[v] += 1


@kernel
def search_distances(arcs, vertices, sources, ends, memory, exponent, share, scores):
    """Add the dependencies of the searches from `sources` with Dijkstra's algorithm; any number of paths.

    Parameters
    ----------
    arcs : Csr
        Weights are positive.
    memory : DijkstraMemory
        Numbers of paths are ``paths · LARGE ^ exponent``, 0 between searches.
    exponent : int64, shape (n,)
    share : float64, shape (n,)
        0 between searches.
    vertices, ends, scores
        As in `search_levels`.
    """
    offsets, targets, weights = arcs
    out, into, times = vertices
    distance, paths, place, heap, order = memory
    score, arc_score = scores
    weighted, with_arcs = weights.size > 0, arc_score.size > 0
    for i in range(sources.size):
        source = sources[i]
        weight = out[source]
        distance[source] = 0.0
        paths[source], exponent[source] = 1.0, 0
        heap[0] = source
        size, settled = 1, 0
        while size > 0:
            u = take_nearest(heap, place, distance, size)
            size -= 1
            place[u] = -1
            order[settled] = u
            settled += 1
            through = paths[u] * times[u] if u != source else 1.0
            for a in range(offsets[u], offsets[u + 1]):
                v = np.int64(targets[a])
                length = distance[u] + (weights[a] if weighted else 1.0)
                if length < distance[v]:
                    size = lower_distance(heap, place, distance, size, v, length)
                    paths[v] = 0.0
                    _count(paths, exponent, v, through, exponent[u])
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
                        part *= SMALL
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
