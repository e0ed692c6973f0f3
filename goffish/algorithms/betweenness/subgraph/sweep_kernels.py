"""Numba kernels of stages 2 to 4: successors, path counts and dependencies of one source on one partition.

Arc u -> v is on a shortest path if d(u) + w = d(v). Targets from n on are ghosts. Vertices add up what their neighbors
hold in the order of their rows once all of it is there, so that sums do not depend on the order in which messages come.

Numbers of paths are ``sigma · LARGE ^ power``, with sigma below `LARGE`. While all powers are 0 (`scaled` is false), as
in all but extreme graphs, they are neither read nor written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.search_kernels import LARGE, SMALL
from goffish.algorithms.betweenness.subgraph.ghost_kernels import notify
from goffish.kernels.compile import kernel


class Counts(NamedTuple):
    """What stages 3 and 4 keep of one source.

    Attributes
    ----------
    wait : int32, shape (n,)
        Neighbors that have to be finished before each vertex.
    sigma, power : float64 and int32, shape (n,)
        Numbers of paths; (ω + δ) / σ of vertices that stage 4 has finished.
    delta : float64, shape (n,)
        Dependencies.
    heard, heard_power : float64 and int32, shape (ghosts,)
        What the ghosts hold in the place of `sigma` and `power`.
    """

    wait: NDArray[np.int32]
    sigma: NDArray[np.float64]
    power: NDArray[np.int32]
    delta: NDArray[np.float64]
    heard: NDArray[np.float64]
    heard_power: NDArray[np.int32]


@kernel
def predecessors(arcs, distances, wait, mark, notes):
    """Count the predecessors of every vertex in `wait`, and mark the ghosts among them by 1.

    Writes the vertices that have such ghosts, with their units. Returns the cut arcs from predecessors, and what was
    written.
    """
    offsets, targets, weights = arcs
    distance, _, seen = distances
    n = distance.size
    weighted = weights.size > 0
    found = noted = 0
    for v in range(n):
        wait[v] = 0
        d = distance[v]
        if d == np.inf:
            continue
        for i in range(offsets[v], offsets[v + 1]):
            t = targets[i]
            near = distance[t] if t < n else seen[t - n]
            if near + (weights[i] if weighted else 1.0) == d:
                wait[v] += 1
                if t >= n:
                    mark[t - n] = 1.0
                    found += 1
                    noted = notify(v, t - n, notes, noted)
    return found, noted


@kernel
def count_successors(arcs, distances, wait, last):
    """Count the successors of every reached vertex in `wait`; list those without any, and return their number."""
    offsets, targets, weights = arcs
    distance, ghost, _ = distances
    n = distance.size
    weighted = weights.size > 0
    found = 0
    for u in range(n):
        wait[u] = 0
        d = distance[u]
        if d == np.inf:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            t = targets[i]
            if d + (weights[i] if weighted else 1.0) == (distance[t] if t < n else ghost[t - n]):
                wait[u] += 1
        if wait[u] == 0:
            last[found] = u
            found += 1
    return found


@kernel(inline="always")
def _linked(d, weight, other, onward):
    """Whether an arc between vertices at these distances is on a shortest path, away from d if `onward`."""
    return d + weight == other if onward else other + weight == d


@kernel
def sweep(counting, size, stack, mail, behind, ahead, far, distances, counts, scaled, omega, notes):
    """Count shortest paths, or else add up dependencies (equation 4), from one end of them to the other.

    Starts from the first `size` vertices of `stack` and goes on from messages. A vertex is finished when all its
    neighbors `behind` are, and is then computed from these: when `counting`, along arcs that come in, else along arcs
    that go out. The arcs between ghosts behind and the partition are in `far`. Writes the vertices with neighbors
    ahead among the ghosts, and the units of these. Returns the cut arcs to such ghosts, what was written, and whether
    there are powers now.
    """
    offsets, targets, weights = behind
    next_offsets, next_targets, next_weights = ahead
    distance = distances.local
    before, after = (distances.seen, distances.ghost) if counting else (distances.ghost, distances.seen)
    wait, sigma, power, delta, heard, heard_power = counts
    scaled = scaled or mail.exponent.size > 0
    n = distance.size
    weighted, next_weighted = weights.size > 0, next_weights.size > 0
    found = noted = 0
    for i in range(mail.ghost.size):
        g = mail.ghost[i]
        heard[g] = mail.value[i]
        if scaled:
            heard_power[g] = mail.exponent[i] if mail.exponent.size else 0
        for e in range(far.offsets[g], far.offsets[g + 1]):
            v = far.targets[e]
            if _linked(distance[v], far.weights[e] if weighted else 1.0, before[g], not counting):
                wait[v] -= 1
                if wait[v] == 0:
                    stack[size] = v
                    size += 1
    while size:
        size -= 1
        v = stack[size]
        d = distance[v]
        if d > 0.0 or not counting:
            level = np.int64(power[v]) if scaled else 0
            if scaled and counting:
                level = 0
                for i in range(offsets[v], offsets[v + 1]):
                    t = targets[i]
                    near = distance[t] if t < n else before[t - n]
                    if _linked(d, weights[i] if weighted else 1.0, near, False):
                        level = max(level, power[t] if t < n else heard_power[t - n])
            total = 0.0
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                near = distance[t] if t < n else before[t - n]
                if _linked(d, weights[i] if weighted else 1.0, near, not counting):
                    part = sigma[t] if t < n else heard[t - n]
                    if scaled:
                        apart = level - (power[t] if t < n else heard_power[t - n])
                        part *= 1.0 if apart == 0 else SMALL if apart == (1 if counting else -1) else 0.0
                    total += part
            if counting:
                if total >= LARGE:
                    total, level, scaled = total * SMALL, level + 1, True
                sigma[v] = total
                if scaled:
                    power[v] = level
            else:
                delta[v] = sigma[v] * total
                sigma[v] = (omega[v] + delta[v]) / sigma[v]
        for i in range(next_offsets[v], next_offsets[v + 1]):
            t = next_targets[i]
            there = distance[t] if t < n else after[t - n]
            if not _linked(d, next_weights[i] if next_weighted else 1.0, there, counting):
                continue
            if t >= n:
                found += 1
                noted = notify(v, t - n, notes, noted)
            else:
                wait[t] -= 1
                if wait[t] == 0:
                    stack[size] = t
                    size += 1
    return found, noted, scaled
