"""Random shortest paths between random pairs, and the bounds that tell when there are enough of them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from goffish.partition._kernels import splitmix64

#: Path counts of a level above this are scaled down; only their ratios within a level matter.
_LARGE = 1e100


@njit(cache=True, nogil=True, inline="always")
def _uniform(state):
    """A number in [0, 1) from a state of splitmix64."""
    return float(splitmix64(state) >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def sample_paths(forward, backward, seed, first, last, counts, levels, paths, queues, control):
    """Draw samples `first` to `last`: count the inner vertices of a random shortest path between a random pair.

    A balanced bidirectional search (Borassi and Natale, ESA 2016, section 4): the side whose frontier has fewer arcs
    goes on by a level, until an arc joins both. Every shortest path is equally likely. Sample i depends on `seed` and i
    only.

    Parameters
    ----------
    forward, backward : pairs of offsets and targets
        Out- and in-arcs; the same for undirected graphs.
    counts : int64, shape (n,)
    levels : int32, shape (2, n)
        Scratch space; -1 before and after.
    paths : float64, shape (2, n)
    queues : shape (2, n)
    control : int64, shape (1,)
        Not 0: end after this sample.
    """
    offsets, targets = forward
    back_offsets, back_targets = backward
    n = offsets.size - 1
    begin, end = np.zeros(2, np.int64), np.zeros(2, np.int64)
    depth, work = np.zeros(2, np.int64), np.zeros(2, np.int64)
    salt = splitmix64(np.uint64(seed))
    for number in range(first, last):
        if control[0]:
            return
        state = splitmix64(np.uint64(number) ^ salt)
        step = np.uint64(0)
        s = int(_uniform(state) * n)
        t = int(_uniform(state + np.uint64(1)) * (n - 1))
        t += t >= s
        for side in range(2):
            root = s if side == 0 else t
            queues[side, 0] = root
            levels[side, root], paths[side, root] = 0, 1.0
            begin[side], end[side], depth[side] = 0, 1, 0
        work[0] = offsets[s + 1] - offsets[s]
        work[1] = back_offsets[t + 1] - back_offsets[t]
        joined, side = 0.0, 0
        while begin[0] < end[0] and begin[1] < end[1]:
            side = 0 if work[0] <= work[1] else 1
            other = 1 - side
            rows, ends = (offsets, targets) if side == 0 else (back_offsets, back_targets)
            work[side] = 0
            size, most = end[side], 0.0
            deeper = depth[side] + 1
            for at in range(begin[side], end[side]):
                u = queues[side, at]
                own = paths[side, u]
                for e in range(rows[u], rows[u + 1]):
                    w = ends[e]
                    if levels[other, w] >= 0:
                        joined += own * paths[other, w]
                    elif levels[side, w] < 0:
                        levels[side, w] = deeper
                        paths[side, w] = own
                        most = max(most, own)
                        queues[side, size] = w
                        size += 1
                        work[side] += rows[w + 1] - rows[w]
                    elif levels[side, w] == deeper:
                        paths[side, w] += own
                        most = max(most, paths[side, w])
            if joined > 0.0:
                break
            begin[side], end[side], depth[side] = end[side], size, deeper
            if most > _LARGE:
                for at in range(begin[side], size):
                    paths[side, queues[side, at]] /= most
        if joined > 0.0:
            # The vertices that this last level reached are in the queue behind `end`.
            other = 1 - side
            rows, ends = (offsets, targets) if side == 0 else (back_offsets, back_targets)
            wanted = _uniform(state + np.uint64(2)) * joined
            step = np.uint64(3)
            near, far = queues[side, begin[side]], queues[other, begin[other]]
            found = False
            for at in range(begin[side], end[side]):
                u = queues[side, at]
                for e in range(rows[u], rows[u + 1]):
                    w = ends[e]
                    if levels[other, w] >= 0:
                        near, far = u, w
                        wanted -= paths[side, u] * paths[other, w]
                        if wanted < 0.0:
                            found = True
                            break
                if found:
                    break
            step = _walk(backward if side == 0 else forward, near, levels[side], paths[side], counts, state, step)
            _walk(forward if side == 0 else backward, far, levels[other], paths[other], counts, state, step)
            end[side] = size
        for side in range(2):
            for at in range(end[side]):
                levels[side, queues[side, at]] = -1


@njit(cache=True, nogil=True)
def _walk(arcs, v, levels, paths, counts, state, step):
    """Walk a random shortest path from `v` back to the root of its search, and count the vertices before the root."""
    offsets, targets = arcs
    while levels[v] > 0:
        counts[v] += 1
        above = levels[v] - 1
        total = 0.0
        for e in range(offsets[v], offsets[v + 1]):
            if levels[targets[e]] == above:
                total += paths[targets[e]]
        wanted = _uniform(state + step) * total
        step += np.uint64(1)
        following = v
        for e in range(offsets[v], offsets[v + 1]):
            u = targets[e]
            if levels[u] == above:
                following = u
                wanted -= paths[u]
                if wanted < 0.0:
                    break
        v = following
    return step


@njit(cache=True, nogil=True)
def error_bounds(counts, samples, most, failure, below, above):
    """Bounds of each vertex's error after `samples` of at most `most` samples (Borassi and Natale, theorem 9).

    With probability 1 - `failure` each, the true value lies within ``[estimate - below, estimate + above]``.
    """
    share = most / samples
    for v in range(counts.size):
        estimate = counts[v] / samples
        log_failure = -math.log(failure[v])
        low, high = share - 1.0 / 3.0, share + 1.0 / 3.0
        inside = 2.0 * estimate * most / log_failure
        below[v] = log_failure / samples * (math.sqrt(low * low + inside) - low)
        above[v] = log_failure / samples * (math.sqrt(high * high + inside) + high)


@njit(cache=True, nogil=True)
def two_farthest(offsets, targets, seen, queue):
    """Largest sum, over components, of the two largest distances from its first vertex: no shortest path is longer."""
    n = offsets.size - 1
    most = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = 1
        queue[0] = root
        at, size, depth, before = 0, 1, 0, 0
        while at < size:
            before, level_end = at, size
            while at < level_end:
                u = queue[at]
                at += 1
                for e in range(offsets[u], offsets[u + 1]):
                    w = targets[e]
                    if not seen[w]:
                        seen[w] = 1
                        queue[size] = w
                        size += 1
            if size > level_end:
                depth += 1
        if size > 1:
            # One vertex alone on the last level: the second farthest is a level above.
            most = max(most, 2 * depth - (size - before == 1))
    return most
