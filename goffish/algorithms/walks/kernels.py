"""Kernels of random walks and projections.

Random numbers are hashes of the seed, the number of the walk or vertex, and a counter: threads change nothing.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

_ONE = np.uint64(1)
#: Proposals before a step is drawn from all neighbors: more are rarely needed unless p and q are extreme.
_PROPOSALS = 12


@kernel(inline="always")
def chance(state, counter):
    """A number in [0, 1) of 52 bits: times any sum, it stays below the sum."""
    return float(splitmix64(state + counter) >> np.uint64(12)) * 2.0**-52


@kernel(allocates=False)
def accumulate(offsets, weights, first, last, sums):
    """Sums of weights from the beginning of each row."""
    for v in range(first, last):
        total = 0.0
        for i in range(offsets[v], offsets[v + 1]):
            total += weights[i]
            sums[i] = total


@kernel(allocates=False, inner=True)
def has_arc(offsets, targets, u, v):
    """Whether an arc leads from `u` to `v`; rows are ascending."""
    low, high = offsets[u], offsets[u + 1]
    while low < high:
        middle = (low + high) >> 1
        if targets[middle] < v:
            low = middle + 1
        else:
            high = middle
    return low < offsets[u + 1] and targets[low] == v


@kernel(allocates=False, inner=True)
def pick(offsets, sums, u, number):
    """An arc of `u` for a number in [0, 1), or -1 if it has none that weighs anything."""
    begin, end = offsets[u], offsets[u + 1]
    if sums.size == 0:
        return begin + np.int64(number * (end - begin)) if begin < end else np.int64(-1)
    if begin == end or sums[end - 1] == 0.0:
        return np.int64(-1)
    bound = number * sums[end - 1]
    while begin < end:
        middle = (begin + end) >> 1
        if sums[middle] <= bound:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=False, inner=True)
def bias(offsets, targets, before, v, biases):
    """Factor of a step to `v`, after one from `before`: back, to one of its neighbors, or farther away."""
    if v == before:
        return biases[0]
    return 1.0 if has_arc(offsets, targets, before, v) else biases[1]


@kernel(allocates=False, inner=True)
def biased_arc(offsets, targets, sums, u, before, biases, state, counter):
    """An arc of `u` drawn by weight times bias (rejection sampling); and the counter behind the numbers used."""
    most = max(1.0, biases[0], biases[1])
    for _ in range(_PROPOSALS):
        arc = pick(offsets, sums, u, chance(state, counter))
        if arc < 0:
            return arc, counter + _ONE
        accept = chance(state, counter + _ONE) * most
        counter += _ONE + _ONE
        v = targets[arc]
        # Most proposals are decided without a look at the arcs of the vertex before.
        if v != before and accept >= max(1.0, biases[1]):
            continue
        if (v != before and accept < min(1.0, biases[1])) or accept < bias(offsets, targets, before, v, biases):
            return arc, counter
    total = 0.0
    for i in range(offsets[u], offsets[u + 1]):
        weight = 1.0
        if sums.size:
            weight = sums[i] - (sums[i - 1] if i > offsets[u] else 0.0)
        total += weight * bias(offsets, targets, before, targets[i], biases)
    bound, total, arc = chance(state, counter) * total, 0.0, np.int64(-1)
    for i in range(offsets[u], offsets[u + 1]):
        weight = 1.0
        if sums.size:
            weight = sums[i] - (sums[i - 1] if i > offsets[u] else 0.0)
        if weight > 0.0:
            total += weight * bias(offsets, targets, before, targets[i], biases)
            arc = i
            if total > bound:
                break
    return arc, counter + _ONE


@kernel(allocates=False)
def walk(graph, sources, seed, biases, first, last, out):
    """Walks with some numbers; a walk that cannot go on is filled up with -1.

    Parameters
    ----------
    graph : tuple
        Row pointers, targets, and sums of weights within rows (empty: all arcs weigh the same).
    sources : int64
        Where walks begin; walk number i begins at ``sources[i // (walks / sources)]``.
    biases : tuple of float
        1 / p and 1 / q; where both are 1, the vertex before has no influence.
    out : integers, shape (walks, steps + 1)
    """
    offsets, targets, sums = graph
    each = out.shape[0] // max(sources.size, 1)
    plain = biases[0] == 1.0 and biases[1] == 1.0
    salt = splitmix64(seed)
    for number in range(first, last):
        state = splitmix64(np.uint64(number) ^ salt)
        counter = np.uint64(0)
        u, before, at = sources[number // each], np.int64(-1), 0
        out[number, 0] = u
        while at + 1 < out.shape[1]:
            if plain or before < 0:
                arc = pick(offsets, sums, u, chance(state, counter))
                counter += _ONE
            else:
                arc, counter = biased_arc(offsets, targets, sums, u, before, biases, state, counter)
            if arc < 0:
                break
            before, u = u, np.int64(targets[arc])
            at += 1
            out[number, at] = u
        for rest in range(at + 1, out.shape[1]):
            out[number, rest] = -1


@kernel(allocates=False)
def project(seed, scale, first, last, out):
    """Rows of a sparse random matrix: -1, 0 and 1 with probabilities 1/6, 2/3 and 1/6, times a factor for the row."""
    salt = splitmix64(seed)
    for v in range(first, last):
        state = splitmix64(np.uint64(v) ^ salt)
        for j in range(out.shape[1]):
            number = chance(state, np.uint64(j))
            if number < 1.0 / 3.0:
                out[v, j] = -scale[v] if number < 1.0 / 6.0 else scale[v]
            else:
                out[v, j] = 0.0


@kernel(allocates=False)
def average(graph, vectors, first, last, out):
    """Means of the vectors of the out-neighbors, by weight; zeros where there is none."""
    offsets, targets, weights = graph
    for v in range(first, last):
        row = out[v]
        for j in range(row.size):
            row[j] = 0.0
        total = 0.0
        for i in range(offsets[v], offsets[v + 1]):
            weight = np.float32(1.0) if weights.size == 0 else np.float32(weights[i])
            total += weight
            other = vectors[targets[i]]
            for j in range(row.size):
                row[j] += weight * other[j]
        if total > 0.0:
            factor = np.float32(1.0 / total)
            for j in range(row.size):
                row[j] *= factor


@kernel(allocates=False)
def add_units(vectors, factor, first, last, out):
    """Add vectors of length 1 in the same directions, times a factor; vectors of zeros add nothing."""
    for v in range(first, last):
        total = 0.0
        for j in range(out.shape[1]):
            total += float(vectors[v, j]) * float(vectors[v, j])
        if total > 0.0:
            scale = np.float32(factor / np.sqrt(total))
            for j in range(out.shape[1]):
                out[v, j] += scale * vectors[v, j]
