"""Kernels of HashGNN: features are drawn by the smallest of their hashes, which depend on seed, step and draw only."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

#: Which hash: of a vertex's features, of the features of its neighbors, and of those that its neighbors chose.
OWN, NEAR, AMONG = range(3)


@kernel(inline="always")
def hash_key(seed, step, draw, which):
    """Key of a hash function of features."""
    return splitmix64(
        splitmix64(splitmix64(seed) ^ np.uint64(step)) ^ (np.uint64(draw) * np.uint64(3) + np.uint64(which))
    )


@kernel(inline="always")
def hash_of(key, feature):
    """Hash of a feature; two features have different ones."""
    return splitmix64(key ^ np.uint64(feature))


@kernel(allocates=False)
def draw_features(seed, dimension, first, last, out):
    """Features that are drawn at random for vertices, int32, shape (n, number of each)."""
    start = hash_key(seed, 0, 0, OWN)
    for v in range(first, last):
        key = hash_of(start, v)
        for j in range(out.shape[1]):
            out[v, j] = hash_of(key, j) % np.uint64(dimension)


@kernel(allocates=False)
def choose(features, seed, step, first, last, own, near):
    """Features of vertices with the smallest hashes, of their own and for their neighbors; -1 where there is none.

    Parameters
    ----------
    features : tuple
        Row pointers and features of the vertices; -1 is none.
    own, near : int32, shape (n, draws)
    """
    offsets, values = features
    for v in range(first, last):
        begin, end = offsets[v], offsets[v + 1]
        for draw in range(own.shape[1]):
            own_key, near_key = hash_key(seed, step, draw, OWN), hash_key(seed, step, draw, NEAR)
            own_least = near_least = ~np.uint64(0)
            own[v, draw] = near[v, draw] = -1
            for i in range(begin, end):
                feature = values[i]
                if feature < 0:
                    continue
                hashed = hash_of(own_key, feature)
                if hashed <= own_least:
                    own_least, own[v, draw] = hashed, feature
                hashed = hash_of(near_key, feature)
                if hashed <= near_least:
                    near_least, near[v, draw] = hashed, feature


@kernel(allocates=False)
def pass_on(graph, seed, step, influence, first, last, near, own):
    """Replace the features of vertices by those of neighbors where their hash is smaller.

    Parameters
    ----------
    graph : tuple
        Row pointers and targets.
    influence : float
        The hashes of neighbors count as divided by this number.
    near, own : int32, shape (n, draws)
        As `choose` gives them; `own` receives the new features.
    """
    offsets, targets = graph
    for v in range(first, last):
        for draw in range(own.shape[1]):
            own_key, key = hash_key(seed, step, draw, OWN), hash_key(seed, step, draw, AMONG)
            least, chosen = ~np.uint64(0), np.int32(-1)
            for i in range(offsets[v], offsets[v + 1]):
                feature = near[targets[i], draw]
                if feature >= 0:
                    hashed = hash_of(key, feature)
                    if hashed <= least:
                        least, chosen = hashed, feature
            if chosen < 0 or influence == 0.0:
                continue
            before = own[v, draw]
            if before < 0 or float(least >> np.uint64(11)) < influence * float(
                hash_of(own_key, before) >> np.uint64(11)
            ):
                own[v, draw] = chosen


@kernel(allocates=False)
def mark(offsets, values, first, last, out):
    """Set the entries of the features of vertices to 1."""
    for v in range(first, last):
        for i in range(offsets[v], offsets[v + 1]):
            if values[i] >= 0:
                out[v, values[i]] = 1
