"""Whether a set of cores can be split over the elements such that the goal is reached: depth-first search, in numba."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK, estimate


@kernel
def assign(depth, flow, external, target, speeds, pool, power, split, rates, nodes, stop):
    """Give each element from ``order[depth]`` on some of the cores that are left.

    See docs/specs/provisioning.md, section 3.7.

    Parameters
    ----------
    speeds, pool : arrays, shape (speeds,)
        Cores that are left of each speed; restored unless the answer is true.
    power : float64, shape (elements,)
        Infinite for elements that have no cores yet: what the others allow is an upper bound.
    split : int64, shape (elements, speeds)
        Cores of each element, if the answer is true.
    rates : Rates
        The ideal ones are given, the others changed.
    nodes : int64, shape (1,)
        Counts the calls.
    stop : int64, shape (1,)
        The search ends with "no" as soon as it is not 0.
    """
    nodes[0] += 1
    n = power.size
    if stop[0] != 0:
        return False
    omega, _ = estimate(flow, external, power, np.zeros(n), rates)
    if omega < target - SLACK:
        return False
    if depth == n:
        return True
    i = flow.graph.order[depth]
    need = rates.ideal_in[i] * flow.cost[i]
    mine = split[i]
    mine[:] = 0
    available = pool.sum()
    while _next_split(mine, pool):
        cores, total = 0, 0.0
        for k in range(speeds.size):
            cores += mine[k]
            total += mine[k] * speeds[k]
        if cores > available - (n - depth - 1):
            continue
        if cores > 1:
            wasteful = False
            for k in range(speeds.size):
                if mine[k] > 0 and total - speeds[k] >= need - SLACK:
                    wasteful = True
            if wasteful:
                continue
        for k in range(speeds.size):
            pool[k] -= mine[k]
        power[i] = total
        if assign(depth + 1, flow, external, target, speeds, pool, power, split, rates, nodes, stop):
            return True
        for k in range(speeds.size):
            pool[k] += mine[k]
    power[i] = np.inf
    return False


@kernel
def _next_split(mine, pool):
    for k in range(mine.size):
        if mine[k] < pool[k]:
            mine[k] += 1
            return True
        mine[k] = 0
    return False
