"""Leiden's refinement: pieces inside every community, connected or well connected; the meet of two divisions."""

from __future__ import annotations

import numpy as np

from goffish.algorithms.components.kernels import flatten, link
from goffish.kernels.compile import kernel

#: A gain of less than this share of the degree may be rounding.
ROUNDING = 1e-10


@kernel
def refine_communities(arcs, degree, in_degree, labels, members, first, last, scale, pieces, state, in_totals, space):
    """Merge the vertices of communities `first` to `last` into connected pieces, each from single vertices.

    A vertex moves only while it is alone, so a piece grows by neighbors of its members and stays connected. `pieces`
    starts as 0 … n-1, ``state[2p + 1]`` as the degree of vertex p. Communities do not see each other.
    """
    offsets, targets, weights = arcs
    starts, vertices, _ = members
    weighted, directed = weights.size > 0, in_degree.size > 0
    none = state[:0].sum()
    keys = np.empty(space + 1, pieces.dtype)
    for c in range(first, last):
        for i in range(starts[c], starts[c + 1]):
            v = vertices[i]
            own, k = pieces[v], degree[v]
            if own != v or state[2 * v + 1] != k or (directed and in_totals[v] != in_degree[v]):
                continue
            met = 0
            for e in range(offsets[v], offsets[v + 1]):
                u = targets[e]
                if labels[u] != c:
                    continue
                p = pieces[u]
                before = state[2 * p]
                keys[met] = p
                met += before == none
                state[2 * p] = before + (weights[e] if weighted else 1)
            new, best, size = own, 0.0, k
            f, f_in = scale * k, 0.0
            if directed:
                f_in = scale * in_degree[v]
                size = k + in_degree[v]
            for j in range(met):
                p = keys[j]
                gain = state[2 * p] - state[2 * p + 1] * (f_in if directed else f)
                if directed:
                    gain -= in_totals[p] * f
                state[2 * p] = none
                if gain > best:
                    best, new = gain, p
            if new == own or best <= ROUNDING * size:
                continue
            pieces[v] = new
            state[2 * new + 1] += k
            state[2 * own + 1] = none
            if directed:
                in_totals[new] += in_degree[v]
                in_totals[own] = none


@kernel
def connected_pieces(arcs, labels, pieces, sizes, largest):
    """Give every vertex the largest vertex of its community that it is connected to inside the community.

    Afforest (Sutton, Ben-Nun and Barak, IPDPS 2018) inside communities: after two neighbors of every vertex, only
    vertices outside the largest tree of their community need the others; an edge that leaves such a tree is met from
    its other end. Labels are below n; `sizes` and `largest` are scratch space of n elements.
    """
    offsets, targets, _ = arcs
    n = labels.size
    for v in range(n):
        pieces[v] = v
        sizes[v] = 0
    for v in range(n):
        met = 0
        for e in range(offsets[v], offsets[v + 1]):
            u = targets[e]
            if labels[u] == labels[v]:
                link(pieces, pieces[v], u)
                met += 1
                if met == 2:
                    break
    flatten(pieces)
    for v in range(n):
        sizes[pieces[v]] += 1
        largest[labels[v]] = pieces[v]
    for v in range(n):
        if sizes[v] > sizes[largest[labels[v]]]:
            largest[labels[v]] = v
    for v in range(n):
        if pieces[v] != largest[labels[v]]:
            for e in range(offsets[v], offsets[v + 1]):
                u = targets[e]
                if labels[u] == labels[v]:
                    link(pieces, pieces[v], u)
    flatten(pieces)


@kernel
def number_pairs(labels, upper, head, following, partner, out):
    """Number the pairs (label, upper) by first appearance; gives how many there are.

    ``head`` (one per label) starts as -1; ``following``, ``partner`` have one entry per pair: chains of the uppers met
    with each label, which are short where the divisions nearly agree.
    """
    count = 0
    for v in range(labels.size):
        c, up = labels[v], upper[v]
        at = head[c]
        while at >= 0 and partner[at] != up:
            at = following[at]
        if at < 0:
            at = count
            partner[at] = up
            following[at] = head[c]
            head[c] = at
            count += 1
        out[v] = at
    return count
