"""The order in which a Louvain level visits its vertices."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import level_kernels as kernels

Order = Literal["random", "ascending", "descending", "neighbour", "natural"]
ORDERS: tuple[Order, ...] = get_args(Order)


def vertex_order(
    order: Order,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    targets: NDArray[np.integer[Any]],
    key: tuple[int, ...],
) -> NDArray[np.int64]:
    """Vertices in the order of a level.

    Parameters
    ----------
    order : {"random", "ascending", "descending", "neighbour", "natural"}
        Shuffled; by degree; neighbours of the vertices of largest degree first; by number.
    starts, ends : int64, shape (n,)
        Row bounds; a vertex's degree is its number of arcs, and ties go by number.
    targets : int array
    key : tuple of int
        Seed of the shuffle: (seed, rank, level), so that ranks and levels draw different orders.

    Returns
    -------
    int64, shape (n,)

    Notes
    -----
    Louvain specification, section 3.5.
    """
    n = starts.size
    if order == "random":
        return np.random.default_rng(key).permutation(n)
    if order == "natural":
        return np.arange(n)
    degree = ends - starts
    if order == "ascending":
        return np.argsort(degree, kind="stable")
    descending = np.argsort(-degree, kind="stable")
    if order == "descending":
        return descending
    out = np.empty(n, np.int64)
    kernels.neighbour_order(starts, ends, targets, descending, out)
    return out
