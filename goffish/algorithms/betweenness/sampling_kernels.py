"""Random shortest paths between random pairs, and the bounds that end the sampling."""

from __future__ import annotations

import math

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.heap import lower_distance, take_nearest
from goffish.kernels.mixing import splitmix64

#: Path counts of a level above this are scaled down; only their ratios within a level matter.
_LARGE = 1e100
#: Halvings of the interval in which a bound is looked for: 2^-40 is far below any error asked for.
_HALVINGS = 40


@kernel(inline="always")
def _uniform(state):
    """A number in [0, 1) from a state of splitmix64."""
    return float(splitmix64(state) >> np.uint64(11)) * 2.0**-53


@kernel(inline="always")
def random_pair(state, owner):
    """Who stands for the ends of a random ordered pair; takes two numbers of the stream of a state."""
    number = owner.size
    s = int(_uniform(state) * number)
    t = int(_uniform(state + np.uint64(1)) * (number - 1))
    t += t >= s
    return np.int64(owner[s]), np.int64(owner[t])


@kernel(inline="always")
def rows_of(arcs):
    """Arcs as `draw_path` takes them: where the row of each vertex begins and ends, and the targets."""
    offsets, targets, _ = arcs
    return offsets[:-1], offsets[1:], targets


@kernel
def sample_paths(forward, backward, owner, seed, first, last, counts, levels, paths, queues, control):
    """Draw samples `first` to `last`: count the inner vertices of a random shortest path between a random pair.

    Sample i depends on `seed` and i only.

    Parameters
    ----------
    forward, backward : Csr
        Out- and in-arcs; the same for undirected graphs.
    owner : shape (N,)
        Pairs are drawn among N vertices; this is the one of the n that stands for each. Two with the same one have no
        path.
    counts : int64, shape (n,)
    levels : int32, shape (2, n)
        Scratch space; -1 before and after.
    paths : float64, shape (2, n)
    queues : shape (2, n)
    control : int64, shape (1,)
        Not 0: end after this sample.
    """
    out, into = rows_of(forward), rows_of(backward)
    sides, path = np.empty((4, 2), np.int64), np.empty(counts.size, queues.dtype)
    salt = splitmix64(np.uint64(seed))
    for number in range(first, last):
        if control[0]:
            return
        state = splitmix64(np.uint64(number) ^ salt)
        s, t = random_pair(state, owner)
        if s == t:
            continue
        size, _ = draw_path(out, into, s, t, state, levels, paths, queues, sides, path)
        for at in range(size):
            counts[path[at]] += 1


@kernel(inner=True)
def draw_path(forward, backward, s, t, state, levels, paths, queues, sides, path):
    """Draw one of the shortest paths between two vertices; each is equally likely.

    A balanced bidirectional search (Borassi and Natale, ESA 2016, section 4): the side whose frontier has fewer arcs
    goes on by a level, until an arc joins both.

    Parameters
    ----------
    forward, backward : tuple of arrays
        Out- and in-arcs, as by `rows_of`.
    state : uint64
        Random numbers are those of its stream from the third one on.
    levels, paths, queues
        Scratch space as in `sample_paths`.
    sides : int64, shape (4, 2)
        Scratch space.
    path : shape (n,)
        Receives the inner vertices of the path, from `s` to `t`.

    Returns
    -------
    size : int
        How many there are; -1 without a path.
    arcs : int
        How many arcs were looked at, but for those of the walk.
    """
    starts, ends, targets = forward
    back_starts, back_ends, back_targets = backward
    begin, end, depth, work = sides[0], sides[1], sides[2], sides[3]
    for side in range(2):
        root = s if side == 0 else t
        queues[side, 0] = root
        levels[side, root], paths[side, root] = 0, 1.0
        begin[side], end[side], depth[side] = 0, 1, 0
    work[0] = ends[s] - starts[s]
    work[1] = back_ends[t] - back_starts[t]
    joined, side, size, arcs = 0.0, 0, np.int64(-1), np.int64(0)
    while begin[0] < end[0] and begin[1] < end[1]:
        side = 0 if work[0] <= work[1] else 1
        other = 1 - side
        first, last, heads = (starts, ends, targets) if side == 0 else (back_starts, back_ends, back_targets)
        arcs += work[side]
        work[side] = 0
        reached, most = end[side], 0.0
        deeper = depth[side] + 1
        for at in range(begin[side], end[side]):
            u = queues[side, at]
            own = paths[side, u]
            for e in range(first[u], last[u]):
                w = heads[e]
                if levels[other, w] >= 0:
                    joined += own * paths[other, w]
                elif levels[side, w] < 0:
                    levels[side, w] = deeper
                    paths[side, w] = own
                    most = max(most, own)
                    queues[side, reached] = w
                    reached += 1
                    work[side] += last[w] - first[w]
                elif levels[side, w] == deeper:
                    paths[side, w] += own
                    most = max(most, paths[side, w])
        if joined > 0.0:
            break
        begin[side], end[side], depth[side] = end[side], reached, deeper
        if most > _LARGE:
            for at in range(begin[side], reached):
                paths[side, queues[side, at]] /= most
    if joined > 0.0:
        # The vertices that this last level reached are in the queue behind `end`.
        other = 1 - side
        first, last, heads = (starts, ends, targets) if side == 0 else (back_starts, back_ends, back_targets)
        wanted = _uniform(state + np.uint64(2)) * joined
        near, far = np.int64(queues[side, begin[side]]), np.int64(queues[other, begin[other]])
        found = False
        for at in range(begin[side], end[side]):
            u = queues[side, at]
            for e in range(first[u], last[u]):
                w = heads[e]
                if levels[other, w] >= 0:
                    near, far = np.int64(u), np.int64(w)
                    wanted -= paths[side, u] * paths[other, w]
                    if wanted < 0.0:
                        found = True
                        break
            if found:
                break
        state += np.uint64(3)
        middle = _walk(backward if side == 0 else forward, near, levels[side], paths[side], path, 0, state)
        state += np.uint64(middle)
        size = _walk(forward if side == 0 else backward, far, levels[other], paths[other], path, middle, state)
        # Both walks lead away from the arc in the middle.
        _turn(path, 0, middle)
        if side == 1:
            _turn(path, 0, size)
        end[side] = reached
    for side in range(2):
        for at in range(end[side]):
            levels[side, queues[side, at]] = -1
    return size, arcs


@kernel
def _walk(arcs, v, levels, paths, path, size, state):
    """Append a random shortest path from `v` back to the root of its search, without the root; give the new size."""
    first, last, targets = arcs
    while levels[v] > 0:
        path[size] = v
        size += 1
        above = levels[v] - 1
        total = 0.0
        for e in range(first[v], last[v]):
            if levels[targets[e]] == above:
                total += paths[targets[e]]
        wanted = _uniform(state) * total
        state += np.uint64(1)
        following = v
        for e in range(first[v], last[v]):
            u = targets[e]
            if levels[u] == above:
                following = np.int64(u)
                wanted -= paths[u]
                if wanted < 0.0:
                    break
        v = following
    return size


@kernel
def _turn(path, first, last):
    """Reverse a part of a path."""
    while first < last - 1:
        last -= 1
        path[first], path[last] = path[last], path[first]
        first += 1


@kernel
def sample_weighted(forward, backward, owner, seed, first, last, counts, memory, control):
    """`sample_paths` where arcs have lengths: Dijkstra's algorithm from one end until the other one is settled.

    Numbers of paths are kept as logarithms in `memory` (DijkstraMemory), so that none is too large; equal lengths are
    compared by exact equality.
    """
    distance, paths, place, heap, order = memory
    offsets, targets, weights = forward
    back_offsets, back_targets, back_weights = backward
    salt = splitmix64(np.uint64(seed))
    for number in range(first, last):
        if control[0]:
            return
        state = splitmix64(np.uint64(number) ^ salt)
        s, t = random_pair(state, owner)
        if s == t:
            continue
        distance[s], paths[s], heap[0] = 0.0, 0.0, s
        size, settled = 1, 0
        while size > 0:
            if heap[0] == t:
                break
            u = take_nearest(heap, place, distance, size)
            size -= 1
            order[settled] = u
            settled += 1
            place[u] = -settled
            for a in range(offsets[u], offsets[u + 1]):
                v = np.int64(targets[a])
                length = distance[u] + weights[a]
                if length < distance[v]:
                    size = lower_distance(heap, place, distance, size, v, length)
                    paths[v] = paths[u]
                elif length == distance[v] and place[v] >= 0:
                    low, high = min(paths[u], paths[v]), max(paths[u], paths[v])
                    paths[v] = high + math.log1p(math.exp(low - high))
        if size > 0:
            step, v = np.uint64(2), t
            while v != s:
                wanted = _uniform(state + step)
                step += np.uint64(1)
                following = v
                for a in range(back_offsets[v], back_offsets[v + 1]):
                    u = np.int64(back_targets[a])
                    # A predecessor was settled before; by rank, since a tiny length may add nothing to a distance.
                    if (
                        distance[u] + back_weights[a] == distance[v]
                        and place[u] < 0
                        and (v == t or place[u] > place[v])
                    ):
                        following = u
                        wanted -= math.exp(paths[u] - paths[v])
                        if wanted < 0.0:
                            break
                v = following
                if v != s:
                    counts[v] += 1
        for at in range(settled):
            distance[order[at]] = np.inf
        for at in range(size):
            distance[heap[at]] = np.inf


@kernel
def error_bounds(counts, log_failure, samples, below, above):
    """Bounds of the share of successes in the long run, from the number of them among `samples` independent trials.

    Each bound is wrong with probability at most e^`log_failure`: the exact binomial tail beyond the count found
    (Clopper and Pearson 1934), of which a geometric series takes the place of the terms after the first.

    Parameters
    ----------
    counts : int64, shape (k,)
    log_failure : float64, shape (k,)
    samples : int
    below, above : float64, shape (k,)
        Filled: the share lies within ``[counts / samples - below, counts / samples + above]``.
    """
    total = math.lgamma(samples + 1.0)
    for i in range(counts.size):
        hits, misses = float(counts[i]), float(samples - counts[i])
        estimate = hits / samples
        ways = total - math.lgamma(hits + 1.0) - math.lgamma(misses + 1.0) - log_failure[i]
        low, high = 0.0, estimate
        for _ in range(_HALVINGS if hits > 0.0 else 0):
            p = (low + high) / 2.0
            ratio = misses * p / ((hits + 1.0) * (1.0 - p))
            if ways + hits * math.log(p) + misses * math.log1p(-p) < math.log1p(-ratio):
                low = p
            else:
                high = p
        below[i] = estimate - low
        low, high = estimate, 1.0
        for _ in range(_HALVINGS if misses > 0.0 else 0):
            p = (low + high) / 2.0
            ratio = hits * (1.0 - p) / ((misses + 1.0) * p)
            if ways + hits * math.log(p) + misses * math.log1p(-p) < math.log1p(-ratio):
                high = p
            else:
                low = p
        above[i] = high - estimate


@kernel
def two_farthest(arcs, seen, queue):
    """Largest sum, over components, of the two largest distances from its first vertex: no shortest path is longer."""
    offsets, targets, _ = arcs
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
