"""Brandes' algorithm from several sources at once: one pass over the arcs of a level serves all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.lane_kernels import LANES, clear_row, depend, reach
from goffish.kernels.arrays import copy_values
from goffish.kernels.compile import kernel

_ONE, _LANES = np.uint64(1), np.uint64(LANES)
_ALL = np.uint8((1 << LANES) - 1)
#: A level whose frontier owns less than this share of the arcs of the piece first collects its candidates.
_FEW = 4
#: Distances from end to end from which on a component is searched from its middle.
_WIDE = 20


class BatchMemory(NamedTuple):
    """Memory of the searches of a batch; arrays of one element per lane hold row after row.

    Attributes
    ----------
    paths, following : float64, shape ((n + 1) * LANES,)
        0 between batches.
    counts : float64, shape ((n + 1) * LANES,)
    seen : uint8, shape (n + 1,)
    lists, masks : uint32 and uint8, shape (n * LANES,)
    starts : int64, shape (n + 2,)
    candidates : uint32, shape (n + 2,)
    """

    paths: NDArray[np.float64]
    following: NDArray[np.float64]
    counts: NDArray[np.float64]
    seen: NDArray[np.uint8]
    lists: NDArray[np.uint32]
    masks: NDArray[np.uint8]
    starts: NDArray[np.int64]
    candidates: NDArray[np.uint32]


@kernel
def order_from_middle(offsets, targets, bounds, order):
    """Bring every wide component into breadth-first order from the middle of a long shortest path.

    Vertices that follow one another there are about as far from all others, nearer to that than from any other start
    tried (the hub, an end): on road-like graphs a batch of them meets a vertex on a tenth fewer levels. Others stay.

    Parameters
    ----------
    bounds : int64, shape (components + 1,)
    order : int64, shape (n,)
        Each component breadth first from any vertex, and so again at the end.
    """
    level, before = np.full(order.size, -1), np.empty(order.size, np.int64)
    for piece in range(bounds.size - 1):
        low, high = bounds[piece], bounds[piece + 1]
        if high - low <= LANES:
            continue
        start, was = order[high - 1], order[low:high].copy()
        for last_round in (False, True):
            for i in range(low, high):
                level[order[i]] = -1
            order[low], level[start] = start, 0
            end = low + 1
            for i in range(low, high):
                u = order[i]
                for a in range(offsets[u], offsets[u + 1]):
                    v = np.int64(targets[a])
                    if level[v] < 0:
                        level[v], before[v] = level[u] + 1, u
                        order[end] = v
                        end += 1
            if not last_round:
                start = order[high - 1]
                if level[start] < _WIDE:
                    copy_values(order[low:high], was)
                    break
                for _ in range(level[start] // 2):
                    start = before[start]


@kernel
def search_batches(arcs, back_arcs, vertices, piece, bounds, sources, ends, memory, scores):
    """Add the dependencies of the searches from `sources` on a graph without weights.

    The searches of a batch go down level by level together. All that is kept of a level is the list of vertices that
    some lane found there, each with a bit mask of the lanes. Neighbors are added up row by row, whatever level they
    are on: rows of vertices outside the last level are 0. The dependencies come back the same way, from below.

    The number of paths to a vertex may pass `MOST`; then its score is NaN and all of this call is worthless.

    Parameters
    ----------
    arcs, back_arcs : Csr
        Out-arcs and in-arcs, padded to multiples of `STRIDE`; the same where the graph is undirected.
    vertices : VertexWeights
    piece, bounds : int64
        Component of each vertex, and the first vertex of each component.
    sources : int64
        Ascending.
    ends : bool
        Whether a pair counts for its two ends as well.
    memory : BatchMemory
    scores : Scores
        Those of vertices are added to.
    """
    offsets, targets, _ = arcs
    back_offsets, back_targets, _ = back_arcs
    out, into, times = vertices
    paths, following, counts, seen, lists, masks, starts, candidates = memory
    score = scores.vertices
    weights = np.zeros(LANES)
    due = np.zeros(seen.size, np.uint8)
    for v in range(seen.size):
        seen[v] = _ALL
    at = 0
    while at < sources.size:
        low, high = bounds[piece[sources[at]]], bounds[piece[sources[at]] + 1]
        used = 1
        while used < LANES and at + used < sources.size and sources[at + used] < high:
            used += 1
        for v in range(low, high):
            seen[v] = _ALL << used
        for lane in range(LANES):
            weights[lane] = out[sources[at + lane]] if lane < used else 0.0
        for lane in range(used):
            source = np.uint64(sources[at + lane])
            bit = np.uint8(1 << lane)
            seen[source] |= bit
            lists[lane], masks[lane] = source, bit
            # The lanes start at different vertices: a row has one lane set.
            clear_row(paths, source)
            paths[source * _LANES + np.uint64(lane)] = 1.0
            counts[source * _LANES + np.uint64(lane)] = 1.0
        arcs_here = offsets[high] - offsets[low]
        begin, end, level = 0, used, 0
        starts[0] = 0
        waiting, listed = 0, False
        while begin < end:
            level += 1
            starts[level] = end
            arcs = np.uint64(0)
            for i in range(begin, end):
                u = np.uint64(lists[i])
                arcs += offsets[u + _ONE] - offsets[u]
            if arcs * _FEW < arcs_here:
                waiting, listed = 0, False
                for i in range(begin, end):
                    u, mask = np.uint64(lists[i]), masks[i]
                    for a in range(offsets[u], offsets[u + _ONE]):
                        v = targets[a]
                        before = due[v]
                        now = before | (mask & ~seen[v])
                        due[v] = now
                        candidates[waiting] = v
                        waiting += (before == 0) & (now != 0)
            elif not listed:
                waiting, listed = 0, True
                for v in range(low, high):
                    candidates[waiting] = v
                    waiting += seen[v] != _ALL
            new, kept = end, 0
            for i in range(waiting):
                v = np.uint64(candidates[i])
                due[v] = 0
                row = back_offsets[v], back_offsets[v + _ONE]
                fresh = reach(back_targets, row, paths, counts, following, v, times[v], seen[v])
                candidates[kept] = v
                if fresh:
                    seen[v] |= fresh
                    lists[new], masks[new] = v, fresh
                    new += 1
                    kept += seen[v] != _ALL
                else:
                    kept += 1
            waiting = kept
            for i in range(begin, end):
                clear_row(paths, np.uint64(lists[i]))
            paths, following = following, paths
            begin, end = end, new
        # Now all rows are 0; `starts[level]` is the end of the lists.
        for depth in range(level - 1, 0, -1):
            for i in range(starts[depth], starts[depth + 1]):
                v = np.uint64(lists[i])
                row, members = (offsets[v], offsets[v + _ONE]), (times[v], into[v])
                score[v] += depend(targets, row, paths, counts, following, v, members, weights, masks[i])
            if depth + 2 <= level:
                for i in range(starts[depth + 1], starts[depth + 2]):
                    clear_row(paths, np.uint64(lists[i]))
            paths, following = following, paths
        if level > 1:
            for i in range(starts[1], starts[2]):
                clear_row(paths, np.uint64(lists[i]))
        if ends:
            for i in range(used, starts[level]):
                v = lists[i]
                for lane in range(used):
                    if masks[i] >> np.uint8(lane) & np.uint8(1):
                        score[v] += weights[lane] * into[v]
                        score[sources[at + lane]] += weights[lane] * into[v]
        at += used
