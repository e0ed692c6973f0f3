"""Numba kernels of the map equation: code lengths, and moves of vertices that shorten them.

All flows are numbers in one unit; see `map_equation`. Communities are also called modules here, as in the literature.
"""

from __future__ import annotations

import math

import numpy as np

from goffish.kernels.barrier import prefetch
from goffish.kernels.compile import kernel

AHEAD = np.uint64(12)  # arcs: far enough for the cache line of a module to arrive
#: A move has to gain more than this share of the vertex's flow; less may be rounding.
ROUNDING = 1e-10


@kernel(allocates=False, inner=True)
def _bits(x, table):
    """``x log2 x``, which is 0 for 0; counts below the size of the table are looked up."""
    if x <= 0:
        return 0.0
    if x < table.size:
        return table[np.uint64(x)]
    return x * math.log2(x)


@kernel(allocates=False)
def fill_table(table):
    for x in range(1, table.size):
        table[x] = x * math.log2(x)


@kernel(allocates=False)
def sum_bits(values, table):
    """Sum of ``x log2 x``."""
    total = 0.0
    for x in values:
        total += _bits(x, table)
    return total


@kernel(allocates=False)
def sum_modules(level, labels, modules, table, values):
    """Fill `modules` and `values` for the modules `labels`, below n.

    ``modules[4c + 1]`` is the flow of module c, ``[4c + 2]`` what leaves it, and in a directed graph ``[4c + 3]`` what
    enters it; ``[4c]`` is 0. Twice the flow inside a module is what its rows and loops hold. ``values[c]`` is what the
    module adds to the code length, see `_module`. Gives what enters all modules.
    """
    (offsets, targets, weights), loops, degree, in_degree = level
    weighted, directed, some_loops = weights.size > 0, in_degree.size > 0, loops.size > 0
    none = modules[0] - modules[0]
    for c in range(modules.size):
        modules[c] = none
    for v in range(labels.size):
        own = labels[v]
        inside = none
        if some_loops:
            inside += loops[v]
        for e in range(offsets[v], offsets[v + 1]):
            if labels[targets[e]] == own:
                inside += weights[e] if weighted else 1
        at = 4 * own
        if directed:
            modules[at + 1] += in_degree[v]
            modules[at + 2] += degree[v] - inside / 2
            modules[at + 3] += in_degree[v] - inside / 2
        else:
            modules[at + 1] += degree[v]
            modules[at + 2] += degree[v] - inside
    entering = none
    for c in range(values.size):
        at = 4 * c
        entering += modules[at + 3] if directed else modules[at + 2]
        values[c] = _module(modules[at + 1], modules[at + 2], modules[at + 3], directed, table)
    return entering


@kernel(allocates=False, inner=True)
def _module(flow, leaving, entering, directed, table):
    """What a module adds to the code length."""
    back = _bits(entering if directed else leaving, table)
    return _bits(flow + leaving, table) - _bits(leaving, table) - back


@kernel(allocates=False)
def move_along(level, labels, within, state, order, settings):
    """Move vertices to modules of neighbors until a pass shortens the code too little.

    Parameters
    ----------
    level : tuple
        Arcs, loops, degree and in-degree, see `levels.Level`.
    labels : shape (n,)
        Modules; change in place.
    within : shape (n,)
        A vertex moves only to modules of neighbors with the same value; empty: to any.
    state : tuple
        `modules` and `values` of `sum_modules`, the table, what enters all modules, `marks` of the vertices to visit,
        and scratch space of as many labels as the longest row has arcs and one more.
    order : uint64
        Chunks of consecutive vertices in the order of visits.
    settings : tuple
        Vertices of a chunk, least gain of a pass, least gain of a move, and the largest number of passes.

    Returns
    -------
    tuple
        Passes, and by how much the code is shorter.
    """
    (offsets, targets, weights), loops, degree, in_degree = level
    modules, values, table, entering, marks, keys = state
    chunk, least_pass, least, max_passes = settings
    weighted, directed, some_loops, bound = weights.size > 0, in_degree.size > 0, loops.size > 0, within.size > 0
    none = entering - entering
    arcs, n = np.uint64(targets.size), np.uint64(labels.size)
    passes, total_gain = 0, 0.0
    here = _bits(entering, table)
    while passes < max_passes:
        gain = 0.0
        for block in order:
            for v in range(block * chunk, min(n, (block + np.uint64(1)) * chunk)):
                if not marks[v]:
                    continue
                marks[v] = 0
                begin, end = offsets[v], offsets[v + np.uint64(1)]
                old = labels[v]
                met = 0
                for e in range(begin, end):
                    if e + AHEAD < arcs:
                        prefetch(modules, 4 * labels[targets[e + AHEAD]])
                    u = targets[e]
                    if bound and within[u] != within[v]:
                        continue
                    c = labels[u]
                    before = modules[4 * c]
                    keys[met] = c
                    met += before == none
                    modules[4 * c] = before + (weights[e] if weighted else 1)
                if met == 0:
                    continue
                # Arcs between vertex and module count for both directions.
                loop = loops[v] if some_loops else none
                at = 4 * old
                joint = modules[at]
                modules[at] = none
                if directed:
                    flow, leaves, enters = in_degree[v], degree[v] - loop / 2, in_degree[v] - loop / 2
                else:
                    flow, leaves, joint, enters = degree[v], degree[v] - loop, 2 * joint, none
                rest_flow, rest_leaves = modules[at + 1] - flow, modules[at + 2] - leaves + joint
                rest_enters = modules[at + 3] - enters + joint
                rest = _module(rest_flow, rest_leaves, rest_enters, directed, table)
                between = entering + (rest_enters - modules[at + 3] if directed else rest_leaves - modules[at + 2])
                stay = here + values[old] - rest
                best, new, new_value = stay, old, 0.0
                new_leaves, new_enters = none, none
                for i in range(met):
                    c = keys[i]
                    if c == old:
                        continue
                    to = 4 * c
                    joint = modules[to]
                    modules[to] = none
                    if not directed:
                        joint = 2 * joint
                    leaving, coming = modules[to + 2] + leaves - joint, modules[to + 3] + enters - joint
                    value = _module(modules[to + 1] + flow, leaving, coming, directed, table)
                    all_entering = between + (coming - modules[to + 3] if directed else leaving - modules[to + 2])
                    length = _bits(all_entering, table) + value - values[c]
                    if length < best:
                        best, new, new_value, new_leaves, new_enters = length, c, value, leaving, coming
                if stay - best <= ROUNDING * flow + least:
                    continue
                gain += stay - best
                to = 4 * new
                between += new_enters - modules[to + 3] if directed else new_leaves - modules[to + 2]
                entering = between
                here = _bits(entering, table)
                modules[at + 1], modules[at + 2] = rest_flow, rest_leaves
                modules[to + 1], modules[to + 2] = modules[to + 1] + flow, new_leaves
                if directed:
                    modules[at + 3], modules[to + 3] = rest_enters, new_enters
                values[old], values[new] = rest, new_value
                labels[v] = new
                for e in range(begin, end):
                    u = targets[e]
                    marks[u] |= labels[u] != new
        passes += 1
        total_gain += gain
        if gain <= least_pass:
            break
    return passes, total_gain
