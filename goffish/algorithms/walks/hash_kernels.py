"""Kernels of HashGNN: features are drawn by the smallest of their hashes, which depend on seed, step and draw only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

#: Which hash: of a vertex's features, of the features of its neighbors, and of those that its neighbors chose.
OWN, NEAR, AMONG = range(3)


class Order(NamedTuple):
    """Order of all features by their hashes, for `OWN`, `NEAR` and `AMONG` and for each draw.

    Attributes
    ----------
    hashed : uint64, shape (3, draws, features)
    ranks : int32, shape (3, features + 1, draws)
        The last one is that of no feature, which is the largest.
    features : int32, shape (3, draws, features + 1)
        By rank; -1 is none.
    """

    hashed: NDArray[np.uint64]
    ranks: NDArray[np.int32]
    features: NDArray[np.int32]


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
def hash_features(seed, step, out):
    """Hashes of all features, uint64, shape (3, draws, features), for `OWN`, `NEAR` and `AMONG`."""
    for which in range(3):
        for draw in range(out.shape[1]):
            key = hash_key(seed, step, draw, which)
            for feature in range(out.shape[2]):
                out[which, draw, feature] = hash_of(key, feature)


@kernel(inline="always")
def lower(least, ranks):
    """The smaller ones of two rows of ranks."""
    for draw in range(least.size):
        least[draw] = min(least[draw], ranks[draw])


@kernel(allocates=False)
def choose(features, order, first, last, own, near):
    """Features of vertices with the smallest hashes, of their own and for their neighbors; -1 where there is none.

    Parameters
    ----------
    features : tuple
        Row pointers and features of the vertices; -1 is none.
    order : Order
    own : int32, shape (n, draws)
    near : int32, shape (n, draws)
        Of the features for neighbors, the ranks among those.
    """
    offsets, values = features
    ranks, ordered = order.ranks, order.features
    none = ordered.shape[2] - 1
    for v in range(first, last):
        own[v], near[v] = none, none
        for i in range(offsets[v], offsets[v + 1]):
            if values[i] >= 0:
                lower(own[v], ranks[OWN, values[i]])
                lower(near[v], ranks[NEAR, values[i]])
        for draw in range(own.shape[1]):
            own[v, draw] = ordered[OWN, draw, own[v, draw]]
            near[v, draw] = ranks[AMONG, ordered[NEAR, draw, near[v, draw]], draw]


@kernel
def pass_on(graph, order, influence, first, last, near, own):
    """Replace the features of vertices by those of neighbors where their hash is smaller.

    Parameters
    ----------
    graph : tuple
        Row pointers and targets.
    order : Order
    influence : float
        The hashes of neighbors count as divided by this number.
    near, own : int32, shape (n, draws)
        As `choose` gives them; `own` receives the new features.
    """
    offsets, targets = graph
    hashed, ordered = order.hashed, order.features
    least = np.empty(own.shape[1], np.int32)
    for v in range(first, last):
        least[:] = ordered.shape[2] - 1
        for i in range(offsets[v], offsets[v + 1]):
            lower(least, near[targets[i]])
        for draw in range(least.size):
            chosen, before = ordered[AMONG, draw, least[draw]], own[v, draw]
            if chosen < 0 or influence == 0.0:
                continue
            if before < 0 or float(hashed[AMONG, draw, chosen] >> np.uint64(11)) < influence * float(
                hashed[OWN, draw, before] >> np.uint64(11)
            ):
                own[v, draw] = chosen


@kernel(allocates=False)
def mark(offsets, values, first, last, out):
    """Set the entries of the features of vertices to 1."""
    for v in range(first, last):
        for i in range(offsets[v], offsets[v + 1]):
            if values[i] >= 0:
                out[v, values[i]] = 1
