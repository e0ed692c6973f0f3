"""PageRank on a part of a graph, in integers: sums are exact, and do not depend on the order of what is added.

A vertex has a score `z`, and passes on `carry(z)` along each arc. With its strength `S` (its arcs, 1 without any), its
residual is exactly ``T + Σ carry(z) over the arcs to it - S z``, where `T` is what it gets by teleport.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

#: Figures of a part: its vertices, those without arcs, their strengths plus 1, what they have of the teleport, the sum
#: of scores times strengths, that of residuals with those on their way, and that of residuals without signs; of listed
#: vertices, residuals and strengths.
VERTICES, DANGLING, VOLUME, MASS, SCORES, TOTAL, NORM, LISTED_NORM, LISTED_VOLUME = range(9)
#: Of `used`: listed vertices, and those of other parts.
LISTED, OUTSIDE = range(2)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@kernel(allocates=False)
def _carry(score, damping):
    """Return damping times a score, rounded toward zero; damping is in units of 2^-64, and scores are below 2^62."""
    size = np.uint64(abs(score))
    high, low = size >> _HALF, size & _LOW
    damping_high, damping_low = damping >> _HALF, damping & _LOW
    middle = high * damping_low + (low * damping_low >> _HALF)
    rest = low * damping_high + (middle & _LOW)
    found = np.int64(high * damping_high + (middle >> _HALF) + (rest >> _HALF))
    return found if score >= 0 else -found


@kernel(allocates=False)
def _enlist(ranks, v):
    if not ranks.is_listed[v]:
        ranks.is_listed[v] = True
        ranks.listed[ranks.used[LISTED]] = v
        ranks.used[LISTED] += 1


@kernel(allocates=False)
def _change_residual(ranks, v, amount):
    old = ranks.residuals[v]
    ranks.residuals[v] = old + amount
    ranks.figures[NORM] += abs(old + amount) - abs(old)


@kernel(allocates=False)
def _add(ranks, v, amount):
    """Add to the residual of a vertex, or to what its worker is to get."""
    if ranks.owned[v]:
        _change_residual(ranks, v, amount)
        _enlist(ranks, v)
        return
    ranks.residuals[v] += amount
    if not ranks.is_listed[v]:
        ranks.is_listed[v] = True
        ranks.outside[ranks.used[OUTSIDE]] = v
        ranks.used[OUTSIDE] += 1


@kernel(allocates=False)
def _pass_on(ranks, rows, v, amount):
    start, size = rows.adjacency.starts[v], rows.adjacency.sizes[v]
    ranks.figures[TOTAL] += size * amount
    for i in range(start, start + size):
        _add(ranks, rows.others[i], amount)


@kernel(allocates=False)
def receive(ranks, targets, values):
    """Add to residuals."""
    for i in range(targets.size):
        _add(ranks, targets[i], values[i])


@kernel(allocates=False)
def change_arcs(ranks, sources, targets, sign, damping):
    """Follow arcs that are added (a sign of 1), or removed (-1), with the scores that their sources have."""
    for i in range(sources.size):
        if ranks.owned[sources[i]]:
            amount = sign * _carry(ranks.scores[sources[i]], damping)
            ranks.figures[TOTAL] += amount
            _add(ranks, targets[i], amount)


@kernel(allocates=False)
def change_vertices(ranks, rows, vertices, present, damping):
    """Follow vertices that are added, removed, or have another number of arcs; those of `rows` are followed already."""
    figures = ranks.figures
    for v in vertices:
        old, new = ranks.degrees[v], rows.adjacency.sizes[v] if present[v] else -1
        if old == new:
            continue
        ranks.degrees[v] = new
        strength, larger = max(old, 1), max(new, 1)
        score = later = ranks.scores[v]
        if new < 0:
            later = 0
        elif larger > 2 * strength:
            # A score that stayed would be a much larger rank: the largest integer could be exceeded.
            later = score * strength // larger
        figures[DANGLING] += np.int64(new == 0) - np.int64(old == 0)
        if old >= 0:
            figures[VOLUME] -= strength + 1
        if new >= 0:
            figures[VOLUME] += larger + 1
        if old < 0 or new < 0:
            sign = 1 if old < 0 else -1
            figures[VERTICES] += sign
            figures[MASS] += sign * ranks.masses[v]
            teleport = sign * (ranks.masses[v] - _carry(ranks.masses[v], damping))
            figures[TOTAL] += teleport
            _change_residual(ranks, v, teleport)
        more = later * larger - score * strength
        figures[SCORES] += more
        figures[TOTAL] -= more
        _change_residual(ranks, v, -more)
        _enlist(ranks, v)
        if later != score:
            ranks.scores[v] = later
            _pass_on(ranks, rows, v, _carry(later, damping) - _carry(score, damping))


@kernel(allocates=False)
def measure(ranks, idle, everywhere):
    """List the vertices that need a push, of those that are listed or of all, and write their figures."""
    figures, before = ranks.figures, ranks.used[LISTED]
    if everywhere:
        before, figures[NORM] = ranks.degrees.size, 0
    count, norm, volume = 0, 0, 0
    for i in range(before):
        v = i if everywhere else ranks.listed[i]
        if not ranks.owned[v]:
            continue
        size, share = abs(ranks.residuals[v]), max(ranks.degrees[v], 1) + 1
        ranks.is_listed[v] = size > idle * share
        if everywhere:
            figures[NORM] += size
        if ranks.is_listed[v]:
            ranks.listed[count] = v
            count += 1
            norm += size
            volume += share
    ranks.used[LISTED] = count
    figures[LISTED_NORM], figures[LISTED_VOLUME] = norm, volume


@kernel(allocates=False)
def _step(ranks, v, step, damping):
    """Change the score of a vertex; return what it passes on then along each arc."""
    score, amount = ranks.scores[v], step * max(ranks.degrees[v], 1)
    ranks.scores[v] = score + step
    ranks.figures[SCORES] += amount
    ranks.figures[TOTAL] -= amount
    _change_residual(ranks, v, -amount)
    return _carry(score + step, damping) - _carry(score, damping)


@kernel(allocates=False)
def choose(ranks, least, damping):
    """Take the residuals of listed vertices that are large beside the number of their arcs; return how many."""
    count = 0
    for i in range(ranks.used[LISTED]):
        v = ranks.listed[i]
        residual, strength = ranks.residuals[v], max(ranks.degrees[v], 1)
        if abs(residual) > least * (strength + 1):
            ranks.chosen[count] = v
            ranks.carried[count] = _step(ranks, v, (residual + strength // 2) // strength, damping)
            count += 1
    return count


@kernel(allocates=False)
def balance(ranks, factor, damping):
    """Make all scores larger by a factor, so that residuals add up to zero; return how many there are."""
    count = 0
    for v in range(ranks.degrees.size):
        if ranks.scores[v]:
            ranks.chosen[count] = v
            ranks.carried[count] = _step(ranks, v, np.int64(np.rint(factor * ranks.scores[v])), damping)
            count += 1
    return count


@kernel(allocates=False)
def pass_on(ranks, rows, count, everywhere):
    """Pass on what chosen vertices have taken; if it goes almost everywhere, without noting where."""
    if not everywhere:
        for i in range(count):
            _pass_on(ranks, rows, ranks.chosen[i], ranks.carried[i])
        return
    residuals, others = ranks.residuals, rows.others
    for i in range(count):
        v, amount = ranks.chosen[i], ranks.carried[i]
        start, size = np.uint64(rows.adjacency.starts[v]), np.uint64(rows.adjacency.sizes[v])
        ranks.figures[TOTAL] += rows.adjacency.sizes[v] * amount
        for j in range(start, start + size):
            residuals[np.uint32(others[j])] += amount
    for v in range(ranks.degrees.size):
        if residuals[v] and not ranks.owned[v]:
            ranks.outside[ranks.used[OUTSIDE]] = v
            ranks.used[OUTSIDE] += 1


@kernel(allocates=False)
def begin_anew(ranks, mass, damping):
    """Forget all scores, and give each vertex another mass."""
    figures = ranks.figures
    figures[MASS] = figures[SCORES] = figures[TOTAL] = 0
    for v in range(ranks.degrees.size):
        ranks.scores[v] = ranks.residuals[v] = 0
        if ranks.degrees[v] >= 0:
            ranks.masses[v] = mass
            figures[MASS] += mass
            ranks.residuals[v] = mass - _carry(mass, damping)
            figures[TOTAL] += ranks.residuals[v]
