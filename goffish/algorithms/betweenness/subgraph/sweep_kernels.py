"""Numba kernels of stages 2 to 4: successors, path counts and dependencies of one source on one partition.

Arc u -> v is on a shortest path if d(u) + w = d(v). Targets from n on are ghosts, whose distances are in `ghost` where
they are heads of arcs and in `seen` where they are tails (one array in an undirected graph), infinite where none is
known to be on a shortest path. Vertices add up what their neighbours hold in the order of their rows once all of it is
there, so that sums do not depend on the order in which messages come.

Numbers of paths are ``sigma · LARGE ^ power``, with sigma below `LARGE`. While all powers are 0 (`scaled` is false), as
in all but extreme graphs, they are neither read nor written.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from goffish.algorithms.betweenness.search_kernels import _LARGE, _SMALL
from goffish.algorithms.betweenness.subgraph.ghost_kernels import tell


@njit(cache=True, nogil=True)
def predecessors(offsets, targets, weights, distance, seen, wait, mark, door, token, stamp, rows, doors):
    """Count the predecessors of every vertex in `wait`, and mark the ghosts among them by 1.

    Writes the vertices that have such ghosts, with their units. Returns the cut arcs from predecessors, and what was
    written.
    """
    n = distance.size
    weighted = weights.size > 0
    found = told = 0
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
                    told = tell(v, door[t - n], token + v, stamp, rows, doors, told)
    return found, told


@njit(cache=True, nogil=True)
def count_paths(
    source, row, value, exponent, far_offsets, far_rows, far_weights, offsets, targets, weights, in_offsets, in_targets,
    in_weights, distance, ghost, seen, wait, scaled, sigma, power, heard, heard_power, door, token, stamp, rows, doors,
):  # fmt: skip
    """Count shortest paths from the source (-1: it is not here) or on from messages (ghost, its count).

    The arcs from ghosts are in `far_rows`; `exponent` holds the powers in the messages, or nothing if all are 0. Writes
    the vertices with successors among the ghosts, and the units of these. Returns the cut arcs to such successors, what
    was written, and whether there are powers now.
    """
    scaled = scaled or exponent.size > 0
    n = distance.size
    weighted, in_weighted = weights.size > 0, in_weights.size > 0
    stack = np.empty(n, np.int64)
    size = found = told = 0
    if source >= 0:
        sigma[source] = 1.0
        stack[0] = source
        size = 1
    for i in range(row.size):
        g = row[i]
        heard[g] = value[i]
        if scaled:
            heard_power[g] = exponent[i] if exponent.size else 0
        for e in range(far_offsets[g], far_offsets[g + 1]):
            v = far_rows[e]
            if seen[g] + (far_weights[e] if in_weighted else 1.0) == distance[v]:
                wait[v] -= 1
                if wait[v] == 0:
                    stack[size] = v
                    size += 1
    while size:
        size -= 1
        u = stack[size]
        d = distance[u]
        if d > 0.0:
            total, most = 0.0, 0
            if scaled:
                for i in range(in_offsets[u], in_offsets[u + 1]):
                    t = in_targets[i]
                    near = distance[t] if t < n else seen[t - n]
                    if near + (in_weights[i] if in_weighted else 1.0) == d:
                        most = max(most, power[t] if t < n else heard_power[t - n])
            for i in range(in_offsets[u], in_offsets[u + 1]):
                t = in_targets[i]
                near = distance[t] if t < n else seen[t - n]
                if near + (in_weights[i] if in_weighted else 1.0) == d:
                    count = sigma[t] if t < n else heard[t - n]
                    if scaled:
                        below = most - (power[t] if t < n else heard_power[t - n])
                        count *= 1.0 if below == 0 else _SMALL if below == 1 else 0.0
                    total += count
            if total >= _LARGE:
                total, most, scaled = total * _SMALL, most + 1, True
            sigma[u] = total
            if scaled:
                power[u] = most
        for i in range(offsets[u], offsets[u + 1]):
            t = targets[i]
            if d + (weights[i] if weighted else 1.0) != (distance[t] if t < n else ghost[t - n]):
                continue
            if t >= n:
                found += 1
                told = tell(u, door[t - n], token + u, stamp, rows, doors, told)
            else:
                wait[t] -= 1
                if wait[t] == 0:
                    stack[size] = t
                    size += 1
    return found, told, scaled


@njit(cache=True, nogil=True)
def count_successors(offsets, targets, weights, distance, ghost, wait, last):
    """Count the successors of every reached vertex in `wait`; list those without any, and return their number."""
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


@njit(cache=True, nogil=True)
def add_dependencies(
    size, stack, row, value, exponent, far_offsets, far_rows, far_weights, offsets, targets, weights, in_offsets,
    in_targets, in_weights, distance, ghost, seen, wait, scaled, sigma, power, delta, heard, heard_power, omega, door,
    token, stamp, rows, doors,
):  # fmt: skip
    """Dependencies from the first `size` vertices of `stack` and on from messages (equation 4).

    The arcs to ghosts are in `far_rows`. A finished vertex w has its dependency in `delta` and (ω(w) + δ(w)) / σ(w) in
    `sigma`, over ``LARGE ^ power``. Writes the vertices with predecessors among the ghosts, and the units of these.
    Returns the cut arcs from such predecessors, what was written, and whether there are powers.
    """
    scaled = scaled or exponent.size > 0
    n = distance.size
    weighted, in_weighted = weights.size > 0, in_weights.size > 0
    found = told = 0
    for i in range(row.size):
        g = row[i]
        heard[g] = value[i]
        if scaled:
            heard_power[g] = exponent[i] if exponent.size else 0
        for e in range(far_offsets[g], far_offsets[g + 1]):
            v = far_rows[e]
            if distance[v] + (far_weights[e] if weighted else 1.0) == ghost[g]:
                wait[v] -= 1
                if wait[v] == 0:
                    stack[size] = v
                    size += 1
    while size:
        size -= 1
        w = stack[size]
        d = distance[w]
        total = 0.0
        for i in range(offsets[w], offsets[w + 1]):
            t = targets[i]
            if d + (weights[i] if weighted else 1.0) == (distance[t] if t < n else ghost[t - n]):
                share = sigma[t] if t < n else heard[t - n]
                if scaled:
                    above = (power[t] if t < n else heard_power[t - n]) - power[w]
                    share *= 1.0 if above == 0 else _SMALL if above == 1 else 0.0
                total += share
        delta[w] = sigma[w] * total
        sigma[w] = (omega[w] + delta[w]) / sigma[w]
        for i in range(in_offsets[w], in_offsets[w + 1]):
            t = in_targets[i]
            near = distance[t] if t < n else seen[t - n]
            if near + (in_weights[i] if in_weighted else 1.0) != d:
                continue
            if t >= n:
                found += 1
                told = tell(w, door[t - n], token + w, stamp, rows, doors, told)
            else:
                wait[t] -= 1
                if wait[t] == 0:
                    stack[size] = t
                    size += 1
    return found, told, scaled
