"""Partitioners that look at vertex numbers only: hash and contiguous ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.graph import Graph
from goffish.partition import kernels
from goffish.partition.options import HashOptions, RangeOptions


def hash_vertices(graph: Graph, parts: int, options: HashOptions | None = None) -> NDArray[np.int32]:
    """Owner of each vertex by splitmix64 of (seed, vertex number): the same on every machine.

    Returns
    -------
    int32, shape (n,)
        Balanced only on average; with few vertices for each part some parts stay empty.
    """
    options = options or HashOptions()
    hashes = np.empty(graph.num_vertices, np.uint64)
    kernels.hash_numbers(options.seed, hashes)
    return (hashes % np.uint64(parts)).astype(np.int32)


def range_vertices(graph: Graph, parts: int, options: RangeOptions | None = None) -> NDArray[np.int32]:
    """Contiguous ranges of vertex numbers with equal numbers of vertices, or of arcs (rows' lengths).

    Returns
    -------
    int32, shape (n,)
        Ascending; no part is empty while `parts` ≤ n.
    """
    options = options or RangeOptions()
    weights = None if options.balance == "vertices" else graph.out_degrees
    return balanced_ranges(graph.num_vertices, parts, weights)


def balanced_ranges(
    n: int, parts: int, weights: NDArray[Any] | None = None, shares: NDArray[np.float64] | None = None
) -> NDArray[np.int32]:
    """Cut ``0 … n-1`` where the running sum of `weights` comes nearest to the wanted `shares`; at least one
    vertex each.
    """
    count = min(parts, n)
    if count == 0:
        return np.empty(0, np.int32)
    inner = np.arange(1, count)
    if weights is None and shares is None:
        cuts = inner * n // count
    else:
        sums = np.concatenate([[0], np.arange(1, n + 1) if weights is None else np.cumsum(weights)])
        goals = sums[-1] * (inner / count if shares is None else np.cumsum(shares)[: count - 1])
        above = np.clip(np.searchsorted(sums, goals), 1, n)
        cuts = above - (goals - sums[above - 1] < sums[above] - goals)
        cuts = np.maximum.accumulate(np.concatenate([[1], cuts - inner + 1]))[1:] + inner - 1
        cuts = np.minimum(cuts, n - count + inner)
    sizes = np.diff(np.concatenate([[0], cuts, [n]]))
    return np.repeat(np.arange(count, dtype=np.int32), sizes)
