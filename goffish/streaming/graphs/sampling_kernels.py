"""Random shortest paths of a live graph: which ones have to be drawn anew, and drawing them."""

from __future__ import annotations

import numpy as np

from goffish.algorithms.betweenness.sampling_kernels import draw_path, random_pair
from goffish.kernels.arrays import make_room
from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

#: Searches at once: one for each bit.
LANES = 64
#: Distance of vertices that a search does not reach.
FAR = 1 << 29


@kernel(inline="always")
def _state(draw, number):
    """Return the state of the random numbers of a sample, which are others each time that samples are drawn."""
    return splitmix64(splitmix64(np.uint64(draw.first + number) ^ splitmix64(draw.seed)) ^ draw.round)


@kernel
def choose_pairs(samples, vertices, is_gone, is_new, draw, stale):
    """Draw pairs for samples that are stale or have an end that is gone, and get space for new vertices.

    One pair is drawn for each sample. A sample whose ends are still there takes it if one of its ends is new, which
    leaves all pairs equally likely. Samples with other pairs become stale.
    """
    for i in range(stale.size):
        s, t = random_pair(_state(draw, i), vertices)
        lost = stale[i] or is_gone[samples.sources[i]] or is_gone[samples.targets[i]]
        if lost or is_new[s] or is_new[t]:
            samples.sources[i], samples.targets[i] = s, t
            stale[i] = True


@kernel
def find_cut(samples, removed, is_end, directed, stale):
    """Mark samples whose path uses an arc that was removed.

    Parameters
    ----------
    removed : int64 array
        Arcs, ``source << 32 | target``, in ascending order; the smaller end first without directions.
    is_end : bool array
        By vertex, whether it is an end of one of them.
    """
    at = 0
    for i in range(stale.size):
        size = samples.sizes[i]
        if not stale[i] and size >= 0:
            u = np.int64(samples.sources[i])
            for j in range(size + 1):
                v = np.int64(samples.path[at + j]) if j < size else np.int64(samples.targets[i])
                if is_end[u] and is_end[v]:
                    low, high = (u, v) if directed or u < v else (v, u)
                    key = low << 32 | high
                    place = np.searchsorted(removed, key)
                    if place < removed.size and removed[place] == key:
                        stale[i] = True
                        break
                u = v
        at += max(size, 0)


@kernel
def search_lanes(arcs, roots, rows, distances):
    """Search from up to 64 vertices at once, breadth first (Then et al., VLDB 2014).

    Parameters
    ----------
    arcs : tuple of arrays
        As by `rows_of`.
    rows : int32 array
        By vertex, its row of `distances`, or -1.
    distances : int32 array, shape (k, LANES)
        Receives the distances of these vertices from each root, `FAR` if there is no path.

    Returns
    -------
    int
        How many arcs were looked at.
    """
    starts, ends, targets = arcs
    n = rows.size
    seen, front, fresh = np.zeros(n, np.uint64), np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    queue, following = np.empty(n, np.int32), np.empty(n, np.int32)
    one, none = np.uint64(1), np.uint64(0)
    size, depth, work = 0, 0, np.int64(0)
    for row in range(distances.shape[0]):
        for lane in range(LANES):
            distances[row, lane] = FAR
    for lane in range(roots.size):
        root = roots[lane]
        if fresh[root] == none:
            following[size] = root
            size += 1
        fresh[root] |= one << np.uint64(lane)
    while size:
        queue, following = following, queue
        for at in range(size):
            v = queue[at]
            new = fresh[v]
            fresh[v] = none
            seen[v] |= new
            front[v] = new
            row = rows[v]
            if row >= 0:
                for lane in range(roots.size):
                    if (new >> np.uint64(lane)) & one:
                        distances[row, lane] = depth
        count, depth = 0, depth + 1
        for at in range(size):
            v = queue[at]
            lanes = front[v]
            work += np.int64(ends[v] - starts[v]) + 1
            for e in range(starts[v], ends[v]):
                w = targets[e]
                new = lanes & ~seen[w]
                if new:
                    if fresh[w] == none:
                        following[count] = w
                        count += 1
                    fresh[w] |= new
        size = count
    return work


@kernel
def find_joined(samples, to, since, lanes, flip, stale):
    """Mark samples between whose ends there is a path by way of a new arc that is as short as theirs, or shorter.

    Parameters
    ----------
    to, since : tuple of arrays
        Rows of vertices, and distances, of `search_lanes` to the sources of the new arcs, and from their targets.
    lanes : int
        How many arcs there are.
    flip : int
        1 if the target of an arc is the root of the lane beside that of its source, 0 if of the same one.
    """
    for i in range(stale.size):
        if stale[i]:
            continue
        length = samples.sizes[i] + 1 if samples.sizes[i] >= 0 else FAR - 1
        near, far = to[0][samples.sources[i]], since[0][samples.targets[i]]
        for lane in range(lanes):
            if to[1][near, lane] + 1 + since[1][far, lane ^ flip] <= length:
                stale[i] = True
                break


@kernel
def draw_stale(forward, backward, samples, draw, stale, first, last, at):
    """Draw the paths of those of the samples `first` to `last` that are stale, and copy the others.

    Parameters
    ----------
    at : int
        Where the path of the first one is in the paths before.

    Returns
    -------
    path : int32 array
        All paths.
    size : int
        How many entries there are.
    arcs : int
        How many arcs were looked at.
    """
    n = forward[0].size
    levels, paths = np.full((2, n), -1, np.int32), np.empty((2, n), np.float64)
    queues, sides = np.empty((2, n), np.int32), np.empty((4, 2), np.int64)
    one, path, size, work = np.empty(n, np.int32), np.empty(1024, np.int32), 0, np.int64(0)
    for i in range(first, last):
        count = np.int64(samples.sizes[i])
        kept = samples.path[at : at + max(count, 0)]
        at += kept.size
        if stale[i]:
            count, arcs = draw_path(
                forward, backward, samples.sources[i], samples.targets[i], _state(draw, i), levels, paths, queues,
                sides, one,
            )  # fmt: skip
            samples.sizes[i] = count
            kept = one[: max(count, 0)]
            work += arcs
        if size + kept.size > path.size:
            path = make_room(path, size, size + kept.size)
        for j in range(kept.size):
            path[size + j] = kept[j]
        size += kept.size
    return path, size, work
