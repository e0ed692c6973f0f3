"""Kernels of random walks inside subgraphs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from goffish.algorithms.walks.kernels import chance, pick
from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64


class Visits(NamedTuple):
    """Walks at vertices: number of the walk, steps so far, and the vertex; int64 each."""

    walk: Any
    step: Any
    vertex: Any


@kernel(allocates=False)
def wander(walkers, units, first, rows, arcs, sums, seed, length, visits, leaving):
    """Continue walks until each leaves its subgraph or ends, as `kernels.walk` does without biases.

    Parameters
    ----------
    walkers : Visits
        `vertex` counts from the first one of the partition; receives the last one in the subgraph.
    units : int64
        Subgraph of each.
    first : int
        Walker to begin with.
    arcs : int64
        Arcs of each row in the order of their targets in the graph as read.
    sums : float64
        As `kernels.accumulate` makes them of the weights in this order; empty: all arcs weigh the same.
    visits : Visits
        Receives all visits. Walks are left to the next call where there are fewer rows than one may take.
    leaving : int64
        Receives the remote vertex that each goes to, as a row of the remote table, or -1.

    Returns
    -------
    walker, rows : int
        The walker to continue with, and rows of `visits` that are filled.
    """
    salt, filled = splitmix64(seed), 0
    for at in range(first, walkers.walk.size):
        number, step, v = walkers.walk[at], walkers.step[at], walkers.vertex[at]
        if visits.walk.size - filled < length - step + 1:
            return at, filled
        low, beyond = rows.starts[units[at]], rows.remote_starts[units[at]]
        state, leaving[at] = splitmix64(np.uint64(number) ^ salt), -1
        while True:
            visits.walk[filled], visits.step[filled], visits.vertex[filled] = number, step, v
            filled += 1
            if step == length:
                break
            # Without biases, each step takes one random number.
            place = pick(rows.offsets, sums, v, chance(state, np.uint64(step)))
            if place < 0:
                break
            step += 1
            target = rows.targets[arcs[place]]
            if target < 0:
                leaving[at] = beyond + ~target
                break
            v = low + target
        walkers.step[at], walkers.vertex[at] = step, v
    return walkers.walk.size, filled
