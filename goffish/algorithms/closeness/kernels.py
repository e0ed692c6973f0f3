"""Distances summed up at the source of a search or at the vertices that it finds.

Breadth-first searches run from hundreds of sources at once (Then et al., VLDB 2014), searches along weighted arcs from
one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.closeness.lane_kernels import COMPLETE, LANES, WORDS, copy_row, learn
from goffish.algorithms.paths.kernels import dijkstra
from goffish.kernels.compile import kernel

_ONE, _WORDS = np.uint64(1), np.uint64(WORDS)
_NEW = np.int64(COMPLETE - 1)
_COMPLETE = np.int64(COMPLETE)
#: A level whose frontier owns less than this share of the arcs of its range first collects its candidates.
_FEW = 4
#: Places of the state that a search keeps between two calls.
LEVEL, CHANGED, WAITING, LISTED = 0, 1, 2, 3
STATE = 4


class Sums(NamedTuple):
    """What searches found at every vertex, or at every source, shape (n,) each.

    Attributes
    ----------
    total : float64
        Sum of the distances from all sources that reach the vertex from elsewhere, or of their inverses.
    reached : int64
        How many sources these are.
    """

    total: NDArray[np.float64]
    reached: NDArray[np.int64]

    @classmethod
    def zeros(cls, size: int) -> Sums:
        return cls(np.zeros(size), np.zeros(size, np.int64))


class BatchMemory(NamedTuple):
    """Memory of the searches of a batch.

    Attributes
    ----------
    known, fresh : uint64, shape ((n + 1) * WORDS,) and (n * WORDS,)
        Lanes that have reached each vertex; row n is 0.
    lanes : uint64, shape (WORDS,)
        Lanes of the batch.
    complete : uint8, shape (n + 1,)
        Whether all lanes have reached a vertex.
    due : uint8, shape (n + 1,)
        Zeros, and again so at the end of a level.
    changed, candidates : uint32, shape (n + 2,)
        Vertices that some lane found on the last level, and that may be found on the next one.
    state : int64, shape (STATE,)
        Where the searches are; see `begin_batch`.
    """

    known: NDArray[np.uint64]
    fresh: NDArray[np.uint64]
    lanes: NDArray[np.uint64]
    complete: NDArray[np.uint8]
    due: NDArray[np.uint8]
    changed: NDArray[np.uint32]
    candidates: NDArray[np.uint32]
    state: NDArray[np.int64]


@kernel
def mean_depth(arcs, back_arcs):
    """Mean number of hops from the first vertex of each component, where vertices are in breadth-first order."""
    offsets, targets, _ = arcs
    back_offsets, back_targets, _ = back_arcs
    n = offsets.size - 1
    depth, total = np.zeros(n, np.int64), 0
    for v in range(n):
        parent = v
        for a in range(offsets[v], offsets[v + 1]):
            parent = min(parent, np.int64(targets[a]))
        for a in range(back_offsets[v], back_offsets[v + 1]):
            parent = min(parent, np.int64(back_targets[a]))
        if parent < v:
            depth[v] = depth[parent] + 1
            total += depth[v]
    return total / max(n, 1)


@kernel
def gather_sources(arcs, back_arcs, mirrored, wanted, near, ordered):
    """Order the vertices so that those of a batch are near one another: balls of `near` wanted ones.

    The nearer the sources, the fewer are the levels on which some of them find a vertex.

    Parameters
    ----------
    offsets, targets, back_offsets, back_targets
        Out-arcs and in-arcs; the same, and only looked at once, where the graph is `mirrored`.
    wanted : bool, shape (n,)
    ordered : int64, shape (n,)
        Receives the wanted vertices, component by component where components are ranges of vertices.

    Returns
    -------
    int
        How many are wanted.
    """
    offsets, targets, _ = arcs
    back_offsets, back_targets, _ = back_arcs
    n = wanted.size
    taken, listed = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    ball_of = np.full(n, -1, np.int64)
    waiting, queue = np.empty(n, np.int64), np.empty(n, np.int64)
    count, ball = 0, 0
    for start in range(n):
        if taken[start]:
            continue
        waiting[0], at_seed, seeds = start, 0, 1
        ball, room = ball + 1, near
        while at_seed < seeds:
            seed = waiting[at_seed]
            at_seed += 1
            if taken[seed]:
                continue
            queue[0] = seed
            ball_of[seed] = ball
            at, end = 0, 1
            while at < end and room > 0:
                u = queue[at]
                at += 1
                taken[u] = True
                if wanted[u]:
                    ordered[count] = u
                    count += 1
                    room -= 1
                for half in range(1 if mirrored else 2):
                    rows, ends = (offsets, targets) if half == 0 else (back_offsets, back_targets)
                    for a in range(rows[u], rows[u + 1]):
                        v = ends[a]
                        if not taken[v] and ball_of[v] != ball:
                            ball_of[v] = ball
                            queue[end] = v
                            end += 1
            # What the ball had no room for are the places to go on from.
            for i in range(at, end):
                v = queue[i]
                if not listed[v]:
                    listed[v] = True
                    waiting[seeds] = v
                    seeds += 1
            if room == 0:
                ball, room = ball + 1, near
    return count


@kernel
def plan_batches(piece_of, sources, batches):
    """Cut the `sources`, ordered by component, into batches of up to `LANES`; gives how many.

    Sources of a component that fills a batch are not mixed with those of others, so that a batch is over for a vertex
    as soon as all lanes have reached it; small components share batches.

    Parameters
    ----------
    piece_of
        Component of each vertex.
    batches : int64, shape (sources + 1,)
        Receives the first source of each batch, and the end.
    """
    count, at = 0, 0
    batches[0] = 0
    while at < sources.size:
        last = at
        while last < sources.size and piece_of[sources[last]] == piece_of[sources[at]]:
            last += 1
        if at > batches[count] and last - batches[count] > LANES:
            count += 1
            batches[count] = at
        size = last - at
        if size > LANES:
            for end in range(at + LANES, last, LANES):
                count += 1
                batches[count] = end
            count += 1
            batches[count] = last
        at = last
    if sources.size > batches[count]:
        count += 1
        batches[count] = sources.size
    return count


@kernel
def begin_batch(sources, low, high, memory):
    """Start one search per lane from `sources`, all of them in the range of vertices from low to high."""
    known, _, lanes, complete, _, changed, _, state = memory
    for i in range(low * WORDS, high * WORDS):
        known[i] = 0
    for v in range(low, high):
        complete[v] = 0
    for word in range(WORDS):
        lanes[word] = 0
    for lane in range(sources.size):
        source = sources[lane]
        bit = _ONE << np.uint64(lane & 63)
        known[source * WORDS + (lane >> 6)] |= bit
        lanes[lane >> 6] |= bit
        changed[lane] = source
    if sources.size == 1:
        complete[sources[0]] = 1
    state[LEVEL], state[CHANGED], state[LISTED] = 0, sources.size, 0


@kernel
def search_batch(arcs, back_arcs, low, high, inverse, budget, memory, sums):
    """Go on with the searches of a batch, level by level, until they end or `budget` arcs were looked at.

    Parameters
    ----------
    arcs, back_arcs : Csr
        Out-arcs and in-arcs, padded to multiples of `STRIDE`; the same where the graph is undirected.
    low, high
        The range of vertices that the searches cannot leave.
    inverse : bool
        Add up 1 / distance rather than distance.
    memory : BatchMemory
    sums : Sums
        Added to.

    Returns
    -------
    bool
        Whether the searches have ended.
    """
    offsets, targets, _ = arcs
    back_offsets, back_targets, _ = back_arcs
    known, fresh, lanes, complete, due, changed, candidates, state = memory
    total, reached = sums
    level, new, waiting, listed = state[LEVEL], state[CHANGED], state[WAITING], state[LISTED] != 0
    arcs_here = offsets[high] - offsets[low]
    spent = np.uint64(0)
    while new > 0:
        if spent > budget:
            state[LEVEL], state[CHANGED], state[WAITING], state[LISTED] = level, new, waiting, listed
            return False
        level += 1
        arcs = np.uint64(0)
        for i in range(new):
            u = np.uint64(changed[i])
            arcs += offsets[u + _ONE] - offsets[u]
        if arcs * _FEW < arcs_here:
            waiting, listed = 0, False
            for i in range(new):
                u = np.uint64(changed[i])
                for a in range(offsets[u], offsets[u + _ONE]):
                    v = targets[a]
                    fits = (due[v] | complete[v]) == 0
                    due[v] |= fits
                    candidates[waiting] = v
                    waiting += fits
        elif not listed:
            waiting, listed = 0, True
            for v in range(low, high):
                candidates[waiting] = v
                waiting += complete[v] == 0
        spent += arcs
        worth = 1.0 / level if inverse else float(level)
        new, kept = 0, 0
        for i in range(waiting):
            v = np.uint64(candidates[i])
            due[v] = 0
            first, last = back_offsets[v], back_offsets[v + _ONE]
            spent += last - first
            found = learn(back_targets, first, last, known, lanes, v, fresh, np.uint64(new))
            count = found & _NEW
            whole = found >= _COMPLETE
            total[v] += worth * count
            reached[v] += count
            changed[new] = v
            new += count > 0
            complete[v] |= whole
            candidates[kept] = v
            kept += not whole
        waiting = kept
        for i in range(new):
            copy_row(known, np.uint64(changed[i]), fresh, np.uint64(i))
    return True


@kernel
def search_distances(arcs, piece_of, bounds, sources, counted, inverse, at_source, scale, search, sums):
    """Add up the distances along weighted arcs from `sources`, one after the other.

    Parameters
    ----------
    arcs : Csr
    piece_of, bounds
        Component of each vertex, and the first vertex of each component.
    counted : bool, shape (n,)
        Which vertices a search adds up the distances to.
    inverse : bool
        Add up 1 / distance, where that is not 0, rather than distance.
    at_source : bool
        Whether a sum belongs to the source, or to the vertex that is found.
    scale, search
        As in `dijkstra`; distances and parents need not be filled.
    sums : Sums
        Shape (sources,) with `at_source`, else (n,).
    """
    total, reached = sums
    distance, parent = search.distance, search.parent
    for i in range(sources.size):
        source = sources[i]
        low, high = bounds[piece_of[source]], bounds[piece_of[source] + 1]
        distance[low:high] = np.inf
        parent[low:high] = -1
        dijkstra(arcs, source, scale, search)
        own, found = 0.0, 0
        for v in range(low, high):
            length = distance[v]
            if length == np.inf or v == source or not counted[v]:
                continue
            worth = length
            if inverse:
                worth = 1.0 / length if length > 0.0 else 0.0
            if at_source:
                own += worth
                found += 1
            else:
                total[v] += worth
                reached[v] += 1
        if at_source:
            total[i] = own
            reached[i] = found
