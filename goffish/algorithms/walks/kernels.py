"""Kernels of random walks and projections.

Random numbers are hashes of the seed, the number of the walk or vertex, and a counter: threads change nothing.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

#: Proposals for a step of a vertex with few arcs.
_PROPOSALS = 12
#: Shares of the random numbers of 52 bits.
_THIRD, _SIXTH = np.uint64(2**52 // 3 + 1), np.uint64(2**52 // 6 + 1)
#: First random number of a step that is drawn from all arcs.
WHOLE_ROW = 1 << 31


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


@kernel(inline="always")
def drawn(state, step, number):
    """Random number `number` of a step: of each attempt the first is for the arc, the second for its acceptance."""
    return chance(state, np.uint64(step) + (np.uint64(number) << np.uint64(32)))


@kernel(allocates=False, inner=True)
def find_arc(offsets, targets, u, v):
    """First arc of `u` to `v` or to a vertex behind it; rows are ascending."""
    low, high = offsets[u], offsets[u + 1]
    while low < high:
        middle = (low + high) >> 1
        if targets[middle] < v:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(allocates=False, inner=True)
def row_weight(offsets, sums, u):
    """Sum of the weights of the arcs of `u`; without sums, each weighs 1."""
    begin, end = offsets[u], offsets[u + 1]
    if begin == end:
        return 0.0
    return float(end - begin) if sums.size == 0 else sums[end - 1]


@kernel(allocates=False, inner=True)
def arc_at(offsets, sums, u, bound):
    """The arc of `u` up to which weights add up to more than `bound`, a number below `row_weight`."""
    begin, end = offsets[u], offsets[u + 1]
    if sums.size == 0:
        return begin + np.int64(bound)
    while begin < end:
        middle = (begin + end) >> 1
        if sums[middle] <= bound:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=False, inner=True)
def range_weight(sums, begin, first, last):
    """Sum of the weights of some arcs of a row that begins with `begin`."""
    if sums.size == 0:
        return float(last - first)
    if first == last:
        return 0.0
    return sums[last - 1] - (sums[first - 1] if first > begin else 0.0)


@kernel(allocates=False, inner=True)
def pick(offsets, sums, u, number):
    """An arc of `u` for a number in [0, 1), or -1 if it has none that weighs anything."""
    total = row_weight(offsets, sums, u)
    return arc_at(offsets, sums, u, number * total) if total > 0.0 else np.int64(-1)


@kernel(inline="always")
def attempts(degree):
    """Proposals before a step is drawn from all arcs, which costs as much as one proposal for each of them."""
    return max(_PROPOSALS, degree)


@kernel(allocates=False, inner=True)
def biased_arc(offsets, targets, sums, u, before, biases, state, step):
    """An arc of `u` drawn by weight times bias: back counts biases[0], to no neighbor of `before` biases[1].

    Rejection sampling, where what steps back count in excess of other ones is drawn by itself.
    """
    begin, end = offsets[u], offsets[u + 1]
    total = row_weight(offsets, sums, u)
    if total == 0.0:
        return np.int64(-1)
    if end - begin == 1:
        return begin
    back, away = biases
    # A proposal is accepted below `least` in any case; above it, adjacency to `before` decides.
    least, most = min(1.0, away), max(1.0, away)
    home, excess = np.int64(-1), 0.0
    if back > most:
        home = last = find_arc(offsets, targets, u, before)
        while last < end and targets[last] == before:
            last += 1
        excess = range_weight(sums, begin, home, last) * (back / most - 1.0)
    for attempt in range(attempts(end - begin)):
        bound = drawn(state, step, 2 * attempt) * (total + excess)
        if bound >= total:
            return home
        arc = arc_at(offsets, sums, u, bound)
        v, accept = targets[arc], drawn(state, step, 2 * attempt + 1) * most
        if v == before:
            if accept < back:
                return arc
        elif accept < least:
            return arc
        else:
            at = find_arc(offsets, targets, before, v)
            if (at < offsets[before + 1] and targets[at] == v) == (away < 1.0):
                return arc
    arc, total = np.int64(-1), 0.0
    for i in range(begin, end):
        share = range_weight(sums, begin, i, i + 1)
        if targets[i] == before:
            share *= back
        else:
            at = find_arc(offsets, targets, before, targets[i])
            if at == offsets[before + 1] or targets[at] != targets[i]:
                share *= away
        total += share
        if drawn(state, step, WHOLE_ROW + i - begin) * total < share:
            arc = i
    return arc


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
        u, before, at = sources[number // each], np.int64(-1), 0
        out[number, 0] = u
        while at + 1 < out.shape[1]:
            if plain or before < 0:
                arc = pick(offsets, sums, u, drawn(state, at, 0))
            else:
                arc = biased_arc(offsets, targets, sums, u, before, biases, state, at)
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
        state, size, row = splitmix64(np.uint64(v) ^ salt), scale[v], out[v]
        for j in range(row.size):
            number = splitmix64(state + np.uint64(j)) >> np.uint64(12)
            # Without branches, of which a third would be predicted wrong.
            row[j] = size * (np.float32(number < _THIRD) - np.float32(2.0) * np.float32(number < _SIXTH))


@kernel(inline="always")
def add_unit(vector, factor, out):
    """Add the vector of length `factor` in the direction of a vector; one of zeros adds nothing.

    Four sums, as each addition waits for the one before it.
    """
    first = second = third = fourth = 0.0
    whole = vector.size - vector.size % 4
    for j in range(0, whole, 4):
        first += float(vector[j]) * float(vector[j])
        second += float(vector[j + 1]) * float(vector[j + 1])
        third += float(vector[j + 2]) * float(vector[j + 2])
        fourth += float(vector[j + 3]) * float(vector[j + 3])
    for j in range(whole, vector.size):
        first += float(vector[j]) * float(vector[j])
    total = (first + second) + (third + fourth)
    if total > 0.0:
        scale = np.float32(factor / np.sqrt(total))
        for j in range(vector.size):
            out[j] += scale * vector[j]


@kernel(allocates=False)
def add_units(vectors, factor, first, last, out):
    """Add vectors of length `factor` in the same directions."""
    for v in range(first, last):
        add_unit(vectors[v], factor, out[v])


@kernel(allocates=False)
def average(graph, vectors, factor, first, last, means, out):
    """Means of the vectors of the out-neighbors, by weight; zeros where there is none.

    Vectors of length `factor` in their directions are added to `out`, while a row is in the cache.
    """
    offsets, targets, weights = graph
    for v in range(first, last):
        row = means[v]
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
            mean = np.float32(1.0 / total)
            for j in range(row.size):
                row[j] *= mean
        if factor != 0.0:
            add_unit(row, factor, out[v])
