"""Kernels of random walks inside subgraphs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from goffish.algorithms.walks.kernels import WHOLE_ROW, arc_at, attempts, drawn, pick, range_weight, row_weight
from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

#: What a message with a biased walk is: it arrives at a vertex; or it was there, and all arcs of the vertex are to be
#: sent to the one before, which draws one of them; or the vertex before is to choose the first candidate that suits,
#: or the last one; or an arc by its weight.
ARRIVES, RETURNS, CANDIDATE, LAST, WEIGHED = 0, 1, 2, 3, 4
_WAITS = -2
_ABSENT = np.iinfo(np.int64).min
#: Remote targets come behind local ones.
_REMOTE = 1 << 32


class Visits(NamedTuple):
    """Walks at vertices: number of the walk, steps so far, and the vertex; int64 each."""

    walk: Any
    step: Any
    vertex: Any


@kernel(allocates=False)
def wander(walkers, units, first, rows, arcs, sums, seed, length, visits, leaving):
    """Continue walks until each leaves its subgraph or ends, as `kernels.walk` does without biases.

    Parameters
    ----------
    walkers : Visits
        `vertex` counts from the first one of the partition; receives the last one in the subgraph.
    units : int64
        Subgraph of each.
    first : int
        Walker to begin with.
    arcs : int64
        Arcs of each row in the order of their targets in the graph as read.
    sums : float64
        As `kernels.accumulate` makes them of the weights in this order; empty: all arcs weigh the same.
    visits : Visits
        Receives all visits. Walks are left to the next call where there are fewer rows than one may take.
    leaving : int64
        Receives the remote vertex that each goes to, as a row of the remote table, or -1.

    Returns
    -------
    walker, rows : int
        The walker to continue with, and rows of `visits` that are filled.
    """
    salt, filled = splitmix64(seed), 0
    for at in range(first, walkers.walk.size):
        number, step, v = walkers.walk[at], walkers.step[at], walkers.vertex[at]
        if visits.walk.size - filled < length - step + 1:
            return at, filled
        low, beyond = rows.starts[units[at]], rows.remote_starts[units[at]]
        state, leaving[at] = splitmix64(np.uint64(number) ^ salt), -1
        while True:
            visits.walk[filled], visits.step[filled], visits.vertex[filled] = number, step, v
            filled += 1
            if step == length:
                break
            place = pick(rows.offsets, sums, v, drawn(state, step, 0))
            if place < 0:
                break
            step += 1
            target = rows.targets[arcs[place]]
            if target < 0:
                leaving[at] = beyond + ~target
                break
            v = low + target
        walkers.step[at], walkers.vertex[at] = step, v
    return walkers.walk.size, filled


class Messages(NamedTuple):
    """Messages with biased walks, in the order of the columns: weights are float64, all others int64.

    Attributes
    ----------
    unit, vertex
        Subgraph and vertex that it goes to: of the whole graph before it is sent, of the partition after that.
    kind
        `ARRIVES` and so on.
    walk, step
        Number of the walk, and steps so far.
    before, home
        Partitioned number and subgraph of the vertex before; of the vertex whose arcs they are for candidates.
    next, next_home
        Partitioned number and subgraph of a candidate.
    weight
        Weight of its arc.
    """

    unit: Any
    vertex: Any
    kind: Any
    walk: Any
    step: Any
    before: Any
    home: Any
    next: Any
    next_home: Any
    weight: Any


class Links(NamedTuple):
    """Arcs of a partition.

    Attributes
    ----------
    rows, in_rows : SubgraphRows
        Arcs that leave vertices, and that end at them.
    arcs, sums
        As in `wander`.
    remote_vertex, in_remote_vertex, remote_subgraph
        Partitioned numbers in the remote tables of `rows` and `in_rows`; subgraphs in that of `rows`.
    numbers, remote_numbers
        Numbers of the vertices and the remote vertices in the graph as read.
    start, first_unit : int
        First vertex and subgraph of the partition.
    """

    rows: Any
    in_rows: Any
    arcs: Any
    sums: Any
    remote_vertex: Any
    in_remote_vertex: Any
    remote_subgraph: Any
    numbers: Any
    remote_numbers: Any
    start: Any
    first_unit: Any


@kernel(allocates=False, inner=True)
def key_of(target):
    """Rows ascend by these: local targets, then remote ones."""
    return target if target >= 0 else _REMOTE + ~target


@kernel(allocates=False, inner=True)
def leads_to(offsets, targets, v, target):
    """Whether an arc of `v` leads to a target in the same subgraph, or in its remote table."""
    low, high = offsets[v], offsets[v + 1]
    key = key_of(target)
    while low < high:
        middle = (low + high) >> 1
        if key_of(np.int64(targets[middle])) < key:
            low = middle + 1
        else:
            high = middle
    return low < offsets[v + 1] and targets[low] == target


@kernel(allocates=False, inner=True)
def target_of(rows, remote_vertex, unit, vertex):
    """A partitioned number of another subgraph as a target in a subgraph, `_ABSENT` if no arc leads there."""
    first, end = rows.remote_starts[unit], rows.remote_starts[unit + 1]
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if remote_vertex[middle] < vertex:
            low = middle + 1
        else:
            high = middle
    return ~(low - first) if low < end and remote_vertex[low] == vertex else np.int64(_ABSENT)


@kernel(allocates=False, inner=True)
def number_of(links, unit, target):
    """Number of a target in the graph as read."""
    if target >= 0:
        return np.int64(links.numbers[links.rows.starts[unit] + target])
    return np.int64(links.remote_numbers[links.rows.remote_starts[unit] + ~target])


@kernel(allocates=False, inner=True)
def find_place(links, unit, v, target):
    """First arc of `v` to a target, by the order of the graph as read, or to one behind it."""
    low, high = links.rows.offsets[v], links.rows.offsets[v + 1]
    number = number_of(links, unit, target)
    while low < high:
        middle = (low + high) >> 1
        if number_of(links, unit, np.int64(links.rows.targets[links.arcs[middle]])) < number:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(allocates=False, inner=True)
def address(links, unit, target):
    """Subgraph and partitioned number of a target."""
    if target >= 0:
        return links.first_unit + unit, links.start + links.rows.starts[unit] + target
    row = links.rows.remote_starts[unit] + ~target
    return np.int64(links.remote_subgraph[row]), np.int64(links.remote_vertex[row])


@kernel(allocates=False, inner=True)
def ask(links, walker, kind, target, weight, used, out):
    """Put a candidate to the vertex before."""
    unit, v, number, step, before, home = walker
    out.unit[used], out.vertex[used], out.kind[used], out.walk[used], out.step[used] = home, before, kind, number, step
    out.before[used], out.home[used] = links.start + v, links.first_unit + unit
    out.next_home[used], out.next[used] = address(links, unit, target)
    out.weight[used] = weight
    return used + 1


@kernel(allocates=False, inner=True)
def ask_all(links, walker, used, out):
    """Put all arcs of a vertex to the vertex before."""
    v = walker[1]
    begin, end = links.rows.offsets[v], links.rows.offsets[v + 1]
    for i in range(begin, end):
        target, weight = np.int64(links.rows.targets[links.arcs[i]]), range_weight(links.sums, begin, i, i + 1)
        used = ask(links, walker, WEIGHED, target, weight, used, out)
    return used


@kernel(allocates=False, inner=True)
def draw_near(links, walker, back_target, biases, state):
    """An arc of a vertex drawn from all of them; the vertex before is in the same subgraph."""
    _, v, _, step, before, _ = walker
    begin, end = links.rows.offsets[v], links.rows.offsets[v + 1]
    place, total = np.int64(-1), 0.0
    for i in range(begin, end):
        target, share = np.int64(links.rows.targets[links.arcs[i]]), range_weight(links.sums, begin, i, i + 1)
        if target == back_target:
            share *= biases[0]
        elif not leads_to(links.rows.offsets, links.rows.targets, before - links.start, target):
            share *= biases[1]
        total += share
        if drawn(state, step, WHOLE_ROW + i - begin) * total < share:
            place = i
    return place


@kernel(allocates=False, inner=True)
def biased_place(links, walker, biases, state, used, out):
    """An arc of a vertex as `kernels.biased_arc` draws it, `_WAITS` if the vertex before has to choose."""
    unit, v, _, step, before, home = walker
    offsets, targets, sums = links.rows.offsets, links.rows.targets, links.sums
    begin, end = offsets[v], offsets[v + 1]
    total = row_weight(offsets, sums, v)
    if total == 0.0:
        return np.int64(-1), used
    if end - begin == 1:
        return begin, used
    near = home == links.first_unit + unit
    if near:
        back_target = back_source = before - links.start - links.rows.starts[unit]
    else:
        back_target = target_of(links.rows, links.remote_vertex, unit, before)
        back_source = target_of(links.in_rows, links.in_remote_vertex, unit, before)
    back, away = biases
    least, most = min(1.0, away), max(1.0, away)
    first, excess = np.int64(-1), 0.0
    if back > most and back_target != _ABSENT:
        first = last = find_place(links, unit, v, back_target)
        while last < end and targets[links.arcs[last]] == back_target:
            last += 1
        excess = range_weight(sums, begin, first, last) * (back / most - 1.0)
    asked = used
    for attempt in range(attempts(end - begin)):
        bound, place = drawn(state, step, 2 * attempt) * (total + excess), first
        target, suits = np.int64(back_target), True
        if bound < total:
            place = arc_at(offsets, sums, v, bound)
            target, accept = np.int64(targets[links.arcs[place]]), drawn(state, step, 2 * attempt + 1) * most
            if target == back_target:
                suits = accept < back
            elif accept >= least:
                if near:
                    suits = leads_to(offsets, targets, before - links.start, target) == (away < 1.0)
                elif target >= 0:
                    source = links.rows.starts[unit] + target
                    suits = leads_to(links.in_rows.offsets, links.in_rows.targets, source, back_source) == (away < 1.0)
                else:
                    used, suits = ask(links, walker, CANDIDATE, target, 0.0, used, out), False
        if suits and asked == used:
            return place, used
        if suits:
            return np.int64(_WAITS), ask(links, walker, LAST, target, 0.0, used, out)
    if asked < used:
        return np.int64(_WAITS), used
    if near:
        return draw_near(links, walker, back_target, biases, state), used
    return np.int64(_WAITS), ask_all(links, walker, used, out)


@kernel(allocates=False)
def widest_row(offsets):
    """Most messages that one walk can send: a candidate for each attempt, or each arc, of a vertex."""
    most = 0
    for v in range(offsets.size - 1):
        most = max(most, offsets[v + 1] - offsets[v])
    return attempts(most)


@kernel(allocates=False)
def wander_biased(walkers, first, links, biases, seed, length, widest, visits, out, used):
    """Continue walks until each leaves its subgraph, waits for the vertex before or ends, as `kernels.walk` does.

    Parameters
    ----------
    walkers : Messages
        Of the kinds `ARRIVES` and `RETURNS`; units and vertices count from the first ones of the partition.
    first : int
        Walker to begin with.
    links : Links
    biases : tuple of float
        1 / p and 1 / q.
    widest : int
        See `widest_row`.
    visits : Visits
        Receives the visits. Walks are left to the next call where there are fewer rows than one may take.
    out : Messages
        Receives messages after the first `used` ones, in the same manner.

    Returns
    -------
    walker, rows, used : int
        The walker to continue with, and rows of `visits` and `out` that are filled.
    """
    salt, filled = splitmix64(seed), 0
    offsets, targets = links.rows.offsets, links.rows.targets
    for at in range(first, walkers.walk.size):
        number, step, v, unit = walkers.walk[at], walkers.step[at], walkers.vertex[at], walkers.unit[at]
        before, home = walkers.before[at], walkers.home[at]
        if visits.walk.size - filled < length - step + 1 or out.walk.size - used < widest:
            return at, filled, used
        if walkers.kind[at] == RETURNS:
            used = ask_all(links, (unit, v, number, step, before, home), used, out)
            continue
        state = splitmix64(np.uint64(number) ^ salt)
        while True:
            visits.walk[filled], visits.step[filled], visits.vertex[filled] = number, step, v
            filled += 1
            if step == length:
                break
            if before < 0:
                place = pick(offsets, links.sums, v, drawn(state, step, 0))
            else:
                walker = unit, v, number, step, before, home
                place, used = biased_place(links, walker, biases, state, used, out)
            if place < 0:
                break
            target = np.int64(targets[links.arcs[place]])
            step += 1
            before, home = links.start + v, links.first_unit + unit
            if target < 0:
                out.unit[used], out.vertex[used] = address(links, unit, target)
                out.kind[used], out.walk[used], out.step[used] = ARRIVES, number, step
                out.before[used], out.home[used] = before, home
                out.next[used], out.next_home[used], out.weight[used] = -1, -1, 0.0
                used += 1
                break
            v = links.rows.starts[unit] + target
    return walkers.walk.size, filled, used


@kernel(allocates=False)
def choose(asked, links, biases, seed, out):
    """Choose among candidates for a step after one from a vertex here.

    Parameters
    ----------
    asked : Messages
        Of the kinds `CANDIDATE`, `LAST` and `WEIGHED`, those of each walk after one another.
    out : Messages
        Receives a message for each walk: it arrives at the candidate, or returns because none suits; with units and
        vertices of the whole graph.

    Returns
    -------
    int
        Number of messages.
    """
    salt, at, used = splitmix64(seed), 0, 0
    back, away = biases
    while at < asked.walk.size:
        number, step, t, unit = asked.walk[at], asked.step[at], asked.vertex[at], asked.unit[at]
        state, begin, chosen, total = splitmix64(np.uint64(number) ^ salt), at, -1, 0.0
        while at < asked.walk.size and asked.walk[at] == number:
            v, kind = asked.next[at], asked.kind[at]
            if kind == WEIGHED or (kind == CANDIDATE and chosen < 0):
                if asked.next_home[at] == links.first_unit + unit:
                    target = v - links.start - links.rows.starts[unit]
                else:
                    target = target_of(links.rows, links.remote_vertex, unit, v)
                adjacent = target != _ABSENT and leads_to(links.rows.offsets, links.rows.targets, t, target)
                if kind == CANDIDATE and adjacent == (away < 1.0):
                    chosen = at
                elif kind == WEIGHED:
                    share = asked.weight[at]
                    if v == links.start + t:
                        share *= back
                    elif not adjacent:
                        share *= away
                    total += share
                    if drawn(state, step, WHOLE_ROW + at - begin) * total < share:
                        chosen = at
            elif kind == LAST and chosen < 0:
                chosen = at
            at += 1
        out.walk[used], out.next[used], out.next_home[used], out.weight[used] = number, -1, -1, 0.0
        if chosen >= 0:
            out.kind[used], out.step[used] = ARRIVES, step + 1
            out.unit[used], out.vertex[used] = asked.next_home[chosen], asked.next[chosen]
            out.before[used], out.home[used] = asked.before[begin], asked.home[begin]
        else:
            out.kind[used], out.step[used] = RETURNS, step
            out.unit[used], out.vertex[used] = asked.home[begin], asked.before[begin]
            out.before[used], out.home[used] = links.start + t, links.first_unit + unit
        used += 1
    return used
