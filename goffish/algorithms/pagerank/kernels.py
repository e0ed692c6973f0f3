"""PageRank kernels over a range of rows.

Row pointers and targets come as unsigned views and row bounds as ``uint64``: signed subscripts make numba test
every one of them for being negative, which costs a quarter of the time here. Sums run in row order, without
reassociation, so the bits depend on the row ranges alone.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

_ONE, _TWO = np.uint64(1), np.uint64(2)


@kernel
def strengths(offsets, weights, weighted, out):
    """Out-strength of every vertex, 1 where it is zero; returns whether any was zero (a dangling vertex)."""
    dangling = False
    for v in range(out.size):
        total = float(offsets[v + 1] - offsets[v])
        if weighted:
            total = 0.0
            for i in range(offsets[v], offsets[v + 1]):
                total += weights[i]
        if total == 0.0:
            dangling = True
            total = 1.0
        out[v] = total
    return dangling


@kernel
def apply(offsets, targets, weights, weighted, x, strength, damping, out, first, last):
    """``out = (S - damping·A) x`` on some rows; returns out·x.

    The loops stand here rather than in a function of their own: numba counts the references of array arguments at
    every call, which makes short rows four times slower. Two partial sums shorten the chain of additions.
    """
    product = 0.0
    end = offsets[first]
    for v in range(first, last):
        i, end = end, offsets[v + _ONE]
        even, odd = 0.0, 0.0
        if weighted:
            while i + _ONE < end:
                even += weights[i] * x[targets[i]]
                odd += weights[i + _ONE] * x[targets[i + _ONE]]
                i += _TWO
            if i < end:
                even += weights[i] * x[targets[i]]
        else:
            while i + _ONE < end:
                even += x[targets[i]]
                odd += x[targets[i + _ONE]]
                i += _TWO
            if i < end:
                even += x[targets[i]]
        value = strength[v] * x[v] - damping * (even + odd)
        out[v] = value
        product += value * x[v]
    return product


@kernel
def restart(teleport, u, strength, r, s, first, last):
    """``r = teleport - u`` and ``s = r / S`` on some rows, where u is the matrix times z; returns (Σ|r|, r·s)."""
    norm, gamma = 0.0, 0.0
    for v in range(first, last):
        r[v] = teleport[v] - u[v]
        s[v] = r[v] / strength[v]
        norm += abs(r[v])
        gamma += r[v] * s[v]
    return norm, gamma


@kernel
def advance(s, u, p, q, z, r, strength, alpha, beta, first, last):
    """One conjugate-gradient update of all vectors on some rows; returns (Σ|r|, r·s)."""
    norm, gamma = 0.0, 0.0
    for v in range(first, last):
        direction = s[v] + beta * p[v]
        image = u[v] + beta * q[v]
        p[v], q[v] = direction, image
        z[v] += alpha * direction
        rest = r[v] - alpha * image
        r[v] = rest
        s[v] = rest / strength[v]
        norm += abs(rest)
        gamma += rest * s[v]
    return norm, gamma


@kernel
def sweep(offsets, targets, weights, weighted, old, new, x, strength, teleport, damping, first, last):
    """One Gauss-Seidel sweep inside a block of rows of the transposed graph; returns Σ|change of x|.

    `old` and `new` hold ``x / S`` before and after. Inside the block the newest values are used, outside the old ones,
    so blocks may run in any order and at the same time.
    """
    change = 0.0
    for v in range(first, last):
        new[v] = old[v]
    end = offsets[first]
    for v in range(first, last):
        begin, end = end, offsets[v + _ONE]
        pulled = 0.0
        for i in range(begin, end):
            u = targets[i]
            term = new[u] if first <= u < last else old[u]
            pulled += weights[i] * term if weighted else term
        value = teleport[v] + damping * pulled
        change += abs(value - x[v])
        x[v] = value
        new[v] = value / strength[v]
    return change
