"""PageRank that follows changes: residuals are pushed along arcs until their sum proves the error.

With the ranks ``x = S z``, the strengths ``S`` of the vertices (1 without arcs) and the weights ``A``, the residual is
``r = (1 - d) t - S z + d Aᵀ z``. A change of an arc only changes it at both ends, as ``z`` stays.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.row_kernels import put

#: Numbers that are kept between calls: Σ|r|, what rounding may have changed it by, and the work of all pushes.
NORM, DRIFT, WORK = range(3)
#: Of the mean residual for each arc, what is pushed.
_SHARE = 0.5
#: The sum of residuals that is removed at once, as a share of that without signs.
_UNBALANCED = 0.3
#: All vertices are looked at once the listed ones have more than the arcs divided by this.
_MANY = 4
#: How much faster arcs are where all vertices are looked at.
_FASTER = 5
#: Of the residual that is allowed, what may lie where it is never pushed, and what pushes leave.
IDLE, _GOAL = 0.1, 0.7


@kernel(allocates=False)
def _strength(net, v):
    size = net.out.adjacency.sizes[v]
    if not net.out.weights.size:
        return float(max(size, 1))
    total, start = 0.0, net.out.adjacency.starts[v]
    for i in range(start, start + size):
        total += net.out.weights[i]
    return total if total > 0.0 else 1.0


@kernel(allocates=False)
def _add(ranks, v, amount):
    old = ranks.residual[v]
    new = old + amount
    ranks.residual[v] = new
    ranks.numbers[NORM] += abs(new) - abs(old)
    ranks.numbers[DRIFT] += abs(new)


@kernel(allocates=False)
def _enlist(ranks, v):
    if not ranks.is_listed[v]:
        ranks.is_listed[v] = True
        ranks.listed[ranks.used[0]] = v
        ranks.used[0] += 1


@kernel(allocates=False)
def _shift(net, ranks, damping, u, v, change):
    """Follow the change of the weight of an arc, but for the strength of its source."""
    _add(ranks, v, damping * change * ranks.scores[u])
    _enlist(ranks, v)
    _enlist(ranks, u)


@kernel(allocates=False)
def change_arcs(net, ranks, pairs, before, weights, damping):
    """Follow changes of arcs, and list the vertices where residuals have changed."""
    for i in range(pairs.size):
        pair, old, new = pairs[i], before[i], weights[pairs[i]]
        put(net, pair, old, new)
        change = max(new, 0.0) - max(old, 0.0)
        u, v = net.sources[pair], net.targets[pair]
        _shift(net, ranks, damping, u, v, change)
        if not net.directed:
            _shift(net, ranks, damping, v, u, change)
    for i in range(ranks.used[0]):
        v = ranks.listed[i]
        strength = _strength(net, v)
        if strength != ranks.strength[v]:
            _add(ranks, v, (ranks.strength[v] - strength) * ranks.scores[v])
            ranks.strength[v] = strength


@kernel(allocates=False)
def change_vertices(net, ranks, gone, come, teleport, damping):
    """Follow vertices that have gone, whose arcs are gone already, and those that have come."""
    for v in gone:
        ranks.scores[v], ranks.strength[v] = 0.0, 1.0
        _add(ranks, v, -ranks.residual[v])
    for v in come:
        ranks.strength[v] = _strength(net, v)
        _add(ranks, v, (1.0 - damping) * teleport[v])
        _enlist(ranks, v)


@kernel(allocates=False)
def _push_one(net, ranks, v, damping, idle):
    """Push the residual of a listed vertex, and list those that are to be pushed then."""
    residual, numbers = ranks.residual, ranks.numbers
    amount = residual[v]
    step = amount / ranks.strength[v]
    ranks.scores[v] += step
    residual[v] = 0.0
    step *= damping
    start, end = net.out.adjacency.starts[v], net.out.adjacency.starts[v] + net.out.adjacency.sizes[v]
    norm, drift = -abs(amount), 2.0 * abs(ranks.scores[v]) * ranks.strength[v]
    for j in range(start, end):
        other = net.out.others[j]
        old = residual[other]
        new = old + (step * net.out.weights[j] if net.out.weights.size else step)
        residual[other] = new
        norm += abs(new) - abs(old)
        drift += abs(new)
        if not ranks.is_listed[other] and abs(new) > idle * (net.out.adjacency.sizes[other] + 1):
            _enlist(ranks, other)
    numbers[NORM] += norm
    numbers[DRIFT] += drift


@kernel(allocates=False)
def _sweep(net, ranks, damping, least):
    """Push the residuals of all vertices where they are large; return how many arcs that took.

    Sums are left to a pass over all arcs at the end: they take most of the time of a push.
    """
    residual, sizes, starts, others = ranks.residual, net.out.adjacency.sizes, net.out.adjacency.starts, net.out.others
    weights, work = net.out.weights, 0
    for v in range(sizes.size):
        amount = residual[v]
        if abs(amount) <= least * (sizes[v] + 1):
            continue
        step = amount / ranks.strength[v]
        ranks.scores[v] += step
        residual[v] = 0.0
        step *= damping
        start, end = np.uint64(starts[v]), np.uint64(starts[v] + sizes[v])
        if weights.size:
            for j in range(start, end):
                residual[np.uint32(others[j])] += step * weights[j]
        else:
            for j in range(start, end):
                residual[np.uint32(others[j])] += step
        work += sizes[v] + 1
    return work


@kernel(allocates=False)
def _balance(ranks, teleport, damping):
    """Make residuals add up to zero if they are far from that: multiply all ranks, which is a step to the solution.

    The part of the residuals that mixes worst is then gone, as arcs carry away nothing but a share of their sum.
    """
    total, mass, norm = 0.0, 0.0, 0.0
    for v in range(teleport.size):
        total += ranks.residual[v]
        mass += teleport[v]
    if abs(total) <= _UNBALANCED * ranks.numbers[NORM]:
        return
    # Ranks that are multiplied lack as many times the residuals, and that much of the teleport less.
    factor = total / ((1.0 - damping) * mass - total)
    if not -0.5 < factor < 1.0:
        return
    for v in range(teleport.size):
        ranks.scores[v] *= 1.0 + factor
        ranks.residual[v] += factor * (ranks.residual[v] - (1.0 - damping) * teleport[v])
        norm += abs(ranks.residual[v])
    ranks.numbers[NORM] = norm


@kernel(allocates=False)
def push(net, ranks, teleport, damping, allowed, arcs, limit):
    """Push residuals until their sum is at most `allowed`, or the work exceeds a limit; return whether it did.

    In each round, those are pushed that are large beside the number of arcs on which they go on. Once many vertices
    are listed, all are looked at, in their order.
    """
    numbers, residual, sizes = ranks.numbers, ranks.residual, net.out.adjacency.sizes
    work, idle, goal, dense = 0, IDLE * allowed / arcs, _GOAL * allowed, False
    while not dense and numbers[NORM] > goal and work <= limit:
        volume, here, at = 0, 0.0, 0
        for i in range(ranks.used[0]):
            v = ranks.listed[i]
            volume += sizes[v] + 1
            here += abs(residual[v])
        dense = volume * _MANY > arcs or numbers[NORM] - here > 2.0 * IDLE * allowed
        least = max(_SHARE * here / max(volume, 1), idle)
        while not dense and at < ranks.used[0]:
            v = ranks.listed[at]
            at += 1
            if abs(residual[v]) > least * (sizes[v] + 1):
                _push_one(net, ranks, v, damping, idle)
                work += sizes[v] + 1
                if numbers[NORM] <= goal or work > limit:
                    break
        work += at // 4
    if dense:
        before = np.inf
        while numbers[NORM] > goal and work <= limit and numbers[NORM] < 0.5 * before:
            before = numbers[NORM]
            while numbers[NORM] > goal and work <= limit:
                _balance(ranks, teleport, damping)
                work += (_sweep(net, ranks, damping, _SHARE * numbers[NORM] / arcs) + sizes.size) // _FASTER
                numbers[NORM] = measure(ranks)
            compute_residuals(net, ranks, teleport, damping)
            work += arcs // _FASTER
        for v in range(sizes.size):
            if abs(residual[v]) > idle * (sizes[v] + 1):
                _enlist(ranks, v)
    numbers[WORK] += work
    return work > limit


@kernel(allocates=False)
def measure(ranks):
    """Return the sum of all residuals, without signs."""
    total = 0.0
    for v in range(ranks.residual.size):
        total += abs(ranks.residual[v])
    return total


@kernel(allocates=False)
def sum_ranks(ranks):
    """Return the sum of all ranks after a last step."""
    total = 0.0
    for v in range(ranks.residual.size):
        total += ranks.strength[v] * ranks.scores[v] + ranks.residual[v]
    return total


@kernel(allocates=False)
def shorten_list(net, ranks, least):
    """Forget listed vertices that need no push."""
    count, ranks.used[0] = ranks.used[0], 0
    for i in range(count):
        v = ranks.listed[i]
        ranks.is_listed[v] = abs(ranks.residual[v]) > least * (net.out.adjacency.sizes[v] + 1)
        if ranks.is_listed[v]:
            ranks.listed[ranks.used[0]] = v
            ranks.used[0] += 1


@kernel(allocates=False)
def measure_strengths(net, ranks):
    """Compute the strength of each vertex anew."""
    for v in range(ranks.strength.size):
        ranks.strength[v] = _strength(net, v)


@kernel(allocates=False)
def compute_residuals(net, ranks, teleport, damping):
    """Compute the residual of each vertex anew."""
    residual, scores, weights, others = ranks.residual, ranks.scores, net.out.weights, net.out.others
    for v in range(teleport.size):
        residual[v] = (1.0 - damping) * teleport[v] - ranks.strength[v] * scores[v]
    for v in range(teleport.size):
        score, first = damping * scores[v], net.out.adjacency.starts[v]
        start, end = np.uint64(first), np.uint64(first + net.out.adjacency.sizes[v])
        if weights.size:
            for j in range(start, end):
                residual[np.uint32(others[j])] += score * weights[j]
        else:
            for j in range(start, end):
                residual[np.uint32(others[j])] += score
    # Each number is rounded, as is each term that it is a sum of.
    total = 0.0
    for v in range(teleport.size):
        total += abs(ranks.strength[v] * scores[v])
    ranks.numbers[NORM], ranks.numbers[DRIFT] = measure(ranks), 4.0 * total


@kernel(allocates=False)
def read_ranks(ranks, vertices, divisor, found):
    """Write the ranks of vertices after a last step, divided by a number."""
    for i in range(vertices.size):
        v = vertices[i]
        found[i] = (ranks.strength[v] * ranks.scores[v] + ranks.residual[v]) / divisor
