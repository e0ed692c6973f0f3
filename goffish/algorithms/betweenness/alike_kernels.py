"""Kernels that find vertices with the same neighborhood and vertices whose neighbors are all adjacent."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel(inline="always")
def _mixed(v):
    """A well-spread 64-bit number for each vertex (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = np.uint64(v) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def fingerprints(offsets, targets, open_prints, closed_prints):
    """A sum of mixed numbers over the neighbors of each vertex, without and with the vertex itself."""
    for v in range(open_prints.size):
        total = np.uint64(0)
        for a in range(offsets[v], offsets[v + 1]):
            total += _mixed(targets[a])
        open_prints[v] = total
        closed_prints[v] = total + _mixed(v)


@kernel
def _same_row(offsets, targets, u, v, closed):
    """Whether two ascending rows hold the same; with `closed`, apart from u and v, which then hold each other."""
    a, b = offsets[u], offsets[v]
    if offsets[u + 1] - a != offsets[v + 1] - b:
        return False
    met = False
    while a < offsets[u + 1] or b < offsets[v + 1]:
        if closed and a < offsets[u + 1] and targets[a] == v:
            met = True
            a += 1
            continue
        if closed and b < offsets[v + 1] and targets[b] == u:
            b += 1
            continue
        if a >= offsets[u + 1] or b >= offsets[v + 1] or targets[a] != targets[b]:
            return False
        a += 1
        b += 1
    return met or not closed


@kernel
def join_alike(offsets, targets, prints, order, closed, leader):
    """Give vertices with the same neighborhood the same leader, the first of them in `order`.

    Parameters
    ----------
    order : int64
        Vertices by fingerprint, then by number.
    leader : int64, shape (n,)
        Each vertex its own before; changes in place.
    """
    head = -1
    for v in order:
        if offsets[v + 1] == offsets[v]:
            continue
        if head >= 0 and prints[v] == prints[head] and _same_row(offsets, targets, head, v, closed):
            leader[v] = head
        else:
            head = v


@kernel
def spread_pairs(offsets, targets, times, leader, pairs, score):
    """Pairs inside a class of non-adjacent twins: two steps apart, by way of every common neighbor.

    Parameters
    ----------
    pairs : float64, shape (n,)
        Weight of the ordered pairs inside the class, at its leader; 0 elsewhere.
    score : float64, shape (n,)
        Receives what goes through each vertex.
    """
    for v in range(pairs.size):
        if leader[v] != v or pairs[v] == 0.0:
            continue
        ways = 0.0
        for a in range(offsets[v], offsets[v + 1]):
            ways += times[targets[a]]
        for a in range(offsets[v], offsets[v + 1]):
            score[targets[a]] += pairs[v] * times[targets[a]] / ways


@kernel
def _adjacent(offsets, targets, u, v):
    low, high = offsets[u], offsets[u + 1]
    while low < high:
        middle = (low + high) // 2
        if targets[middle] < v:
            low = middle + 1
        else:
            high = middle
    return low < offsets[u + 1] and targets[low] == v


@kernel
def find_sides(offsets, targets, widest, side):
    """Mark the vertices of degree 1 … `widest` whose neighbors are pairwise adjacent."""
    for v in range(side.size):
        first, last = offsets[v], offsets[v + 1]
        if last == first or last - first > widest:
            continue
        clique = True
        for a in range(first, last):
            for b in range(a + 1, last):
                u, w = targets[a], targets[b]
                if offsets[u + 1] - offsets[u] > offsets[w + 1] - offsets[w]:
                    u, w = w, u
                if not _adjacent(offsets, targets, u, w):
                    clique = False
                    break
            if not clique:
                break
        side[v] = clique
