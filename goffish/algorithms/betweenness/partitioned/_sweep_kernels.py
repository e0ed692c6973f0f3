"""Numba kernels of stages 2 to 4: successors, path counts and dependencies of one source on one partition.

Arc u -> v is on a shortest path if d(u) + w = d(v). Targets from n on are ghosts, whose distances are in `ghost` where
they are heads of arcs and in `seen` where they are tails (one array in an undirected graph), infinite where none is
known to be on a shortest path. Vertices add up what their neighbours hold in the order of their rows once all of it is
there, so that sums do not depend on the order in which messages come.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def predecessors(offsets, targets, weights, distance, seen, wait, mark, rows, ghosts):
    """Count the predecessors of every vertex in `wait`; list the cut arcs among them, and mark their ghosts by 1."""
    n = distance.size
    weighted = weights.size > 0
    found = 0
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
                    rows[found], ghosts[found] = v, t - n
                    found += 1
    return found


@njit(cache=True, nogil=True)
def count_paths(
    source, vertex, row, value, offsets, targets, weights, in_offsets, in_targets, in_weights,
    distance, ghost, seen, wait, sigma, heard, rows, ghosts,
):  # fmt: skip
    """Count shortest paths from the source (-1: it is not here) or on from messages (vertex, ghost, its count).

    Writes the cut arcs to tell of; returns their number.
    """
    n = distance.size
    weighted, in_weighted = weights.size > 0, in_weights.size > 0
    stack = np.empty(n, np.int64)
    size = found = 0
    if source >= 0:
        sigma[source] = 1.0
        stack[0] = source
        size = 1
    for i in range(vertex.size):
        heard[row[i]] = value[i]
        wait[vertex[i]] -= 1
        if wait[vertex[i]] == 0:
            stack[size] = vertex[i]
            size += 1
    while size:
        size -= 1
        u = stack[size]
        d = distance[u]
        if d > 0.0:
            total = 0.0
            for i in range(in_offsets[u], in_offsets[u + 1]):
                t = in_targets[i]
                near = distance[t] if t < n else seen[t - n]
                if near + (in_weights[i] if in_weighted else 1.0) == d:
                    total += sigma[t] if t < n else heard[t - n]
            sigma[u] = total
        for i in range(offsets[u], offsets[u + 1]):
            t = targets[i]
            if d + (weights[i] if weighted else 1.0) != (distance[t] if t < n else ghost[t - n]):
                continue
            if t >= n:
                rows[found], ghosts[found] = u, t - n
                found += 1
            else:
                wait[t] -= 1
                if wait[t] == 0:
                    stack[size] = t
                    size += 1
    return found


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
    size, stack, vertex, row, value, offsets, targets, weights, in_offsets, in_targets, in_weights,
    distance, ghost, seen, wait, sigma, delta, heard, omega, rows, ghosts,
):  # fmt: skip
    """Dependencies from the first `size` vertices of `stack` and on from messages (equation 4).

    A finished vertex w has its dependency in `delta` and (ω(w) + δ(w)) / σ(w) in `sigma`. Writes the cut arcs to
    predecessors to tell of; returns their number.
    """
    n = distance.size
    weighted, in_weighted = weights.size > 0, in_weights.size > 0
    found = 0
    for i in range(vertex.size):
        heard[row[i]] = value[i]
        wait[vertex[i]] -= 1
        if wait[vertex[i]] == 0:
            stack[size] = vertex[i]
            size += 1
    while size:
        size -= 1
        w = stack[size]
        d = distance[w]
        total = 0.0
        for i in range(offsets[w], offsets[w + 1]):
            t = targets[i]
            if d + (weights[i] if weighted else 1.0) == (distance[t] if t < n else ghost[t - n]):
                total += sigma[t] if t < n else heard[t - n]
        delta[w] = sigma[w] * total
        sigma[w] = (omega[w] + delta[w]) / sigma[w]
        for i in range(in_offsets[w], in_offsets[w + 1]):
            t = in_targets[i]
            near = distance[t] if t < n else seen[t - n]
            if near + (in_weights[i] if in_weighted else 1.0) != d:
                continue
            if t >= n:
                rows[found], ghosts[found] = w, t - n
                found += 1
            else:
                wait[t] -= 1
                if wait[t] == 0:
                    stack[size] = t
                    size += 1
    return found
