"""Exact reductions of an undirected betweenness problem; each is one function from a problem to a `Step`.

Sources: recursive leaf compression, docs/specs/betweenness.md, section 3.6; splitting at cut vertices, identical and
side vertices: Sarıyüce, Saule, Kaya and Çatalyürek, "Shattering and Compressing Networks for Betweenness Centrality"
(SDM 2013), and Puzis et al., "Topology manipulations for speeding betweenness centrality computation" (J. Complex
Networks 2015). The formulas here carry two weights per vertex and multiplicities, so that every reduction can follow
every other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import alike_kernels as alike
from goffish.algorithms.betweenness import reduction_kernels as kernels
from goffish.algorithms.betweenness.problem import Floats, Indices, Problem, Step, grouped

#: Side vertices of a larger degree are rare and dear to recognize.
_WIDEST_SIDE = 64

_NO_ARCS, _NO_ARC_SCORES = np.empty(0, np.int64), np.empty(0, np.float64)


def _through_cut(problem: Problem, out: Floats, into: Floats, inner: Floats) -> Floats:
    """Weight of the ordered pairs that a vertex separates (equation (3), doubled).

    `out` and `into` hold what lies at or below each vertex, `inner` the sum of products over the branches below. One
    branch holds the rest of the component; pairs in different branches meet at the vertex.
    """
    all_out, all_into = problem.totals()
    return (all_out - problem.out) * (all_into - problem.into) - inner - (all_out - out) * (all_into - into)


def fold_leaves(problem: Problem) -> Step:
    """Fold hanging trees into the vertices they hang on; a tree vanishes but for one vertex."""
    out, into = problem.out.copy(), problem.into.copy()
    inner, degree = np.zeros_like(out), np.diff(problem.offsets)
    removed_arc, queue = np.full(out.size, -1), np.empty(out.size, np.int64)
    kernels.fold_leaves(problem.offsets, problem.targets, problem.times, out, into, inner, degree, removed_arc, queue)
    removed = removed_arc >= 0
    order = np.flatnonzero(~removed)
    smaller, arc_of = replace(problem, out=out, into=into).keep(order)
    all_out, all_into = problem.totals()
    # An edge of a hanging tree separates what hangs below it from the rest.
    closed_arcs = np.zeros(problem.num_arcs)
    closed_arcs[removed_arc[removed]] = _crossing(out, into, all_out, all_into)[removed]
    return Step(
        smaller, _through_cut(problem, out, into, inner), order, slice(None), 1.0, arc_of, closed_arcs
    )  # fmt: skip


def _crossing(out: Floats, into: Floats, all_out: Floats, all_into: Floats) -> Floats:
    """Weight of the ordered pairs with one end on either side."""
    return out * (all_into - into) + (all_out - out) * into


def split_blocks(problem: Problem) -> Step:
    """Cut the problem into its biconnected components, each vertex standing for all that lies behind it there.

    Bridges need no search and vanish.
    """
    n = problem.num_vertices
    home, top = np.full(n, -1), np.empty(n, np.int64)
    top = top[: kernels.find_blocks(problem.offsets, problem.targets, problem.times, home, top)]
    blocks = top.size
    members = np.argsort(home, kind="stable")
    members = members[np.searchsorted(home[members], 0) :]
    sizes = np.bincount(home[members], minlength=blocks)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    out, into, inner = problem.out.copy(), problem.into.copy(), np.zeros(n)
    down_out, down_into = np.empty(blocks), np.empty(blocks)
    kernels.weigh_blocks(starts, members, top, out, into, inner, down_out, down_into)
    all_out, all_into = problem.totals()

    # Each block: its topmost vertex, then the others.
    large = sizes > 1
    first = np.concatenate(([0], np.cumsum(np.where(large, sizes + 1, 0))))
    top_place = np.where(large, first[:-1], -1)
    block_of = home[members]
    kept = large[block_of]
    place = np.full(n, -1)
    place[members[kept]] = (first[block_of] + 1 + np.arange(members.size) - starts[block_of])[kept]
    vertex = np.empty(int(first[-1]), np.int64)
    vertex[place[members[kept]]] = members[kept]
    vertex[top_place[large]] = top[large]
    new_out, new_into = out[vertex], into[vertex]
    new_out[top_place[large]] = (all_out[top] - down_out)[large]
    new_into[top_place[large]] = (all_into[top] - down_into)[large]

    offsets, targets = np.zeros(vertex.size + 1, np.int64), np.empty_like(problem.targets)
    weights, arc_of = np.empty_like(problem.weights), np.empty(problem.num_arcs, np.int64)
    kernels.split_rows(
        problem.offsets, problem.targets, problem.weights, home, top, place, top_place, offsets, targets, weights,
        arc_of,
    )  # fmt: skip
    arcs = int(offsets[-1])
    split = Problem(
        offsets, targets[:arcs], weights[:arcs] if problem.weighted else weights, new_out, new_into,
        problem.times[vertex], False,
    )  # fmt: skip
    smaller, turned = split.sorted_rows()
    return Step(
        smaller, _through_cut(problem, out, into, inner), vertex, slice(None), 1.0, arc_of[turned],
        _bridge_scores(problem, home, top, ~large, down_out, down_into),
    )  # fmt: skip


def _bridge_scores(
    problem: Problem, home: Indices, top: Indices, bridge: NDArray[np.bool_], down_out: Floats, down_into: Floats
) -> Floats:
    """Pairs across every bridge, at its arc up to the topmost vertex."""
    closed = np.zeros(problem.num_arcs)
    if not bridge.any():
        return closed
    source = np.repeat(np.arange(home.size), np.diff(problem.offsets))
    block = home[source]
    arcs = np.flatnonzero((block >= 0) & bridge[block] & (top[block] == problem.targets))
    all_out, all_into = problem.totals()
    block, low = block[arcs], source[arcs]
    closed[arcs] = _crossing(down_out[block], down_into[block], all_out[low], all_into[low])
    return closed


def join_twins(problem: Problem) -> Step:
    """Make one vertex of all that have the same neighbors, adjacent to one another or not."""
    n = problem.num_vertices
    prints = np.empty((2, n), np.uint64)
    alike.fingerprints(problem.offsets, problem.targets, prints[0], prints[1])
    leader = np.arange(n)
    for closed, row in enumerate(prints):
        order = np.argsort(row, kind="stable")
        alike.join_alike(problem.offsets, problem.targets, row, order, bool(closed), leader)
        if not closed:
            apart = leader.copy()
    kept = np.flatnonzero(leader == np.arange(n))
    number = np.empty(n, np.int64)
    number[kept] = np.arange(kept.size)
    out, into, times = (grouped(leader, column, n) for column in (problem.out, problem.into, problem.times))
    pairs = grouped(apart, problem.out, n) * grouped(apart, problem.into, n)
    pairs -= grouped(apart, problem.out * problem.into, n)
    # Classes of one give differences of equal products, which need not be an exact 0.
    pairs[np.bincount(apart, minlength=n) < 2] = 0.0
    score = np.zeros(n)
    alike.spread_pairs(problem.offsets, problem.targets, problem.times, apart, pairs, score)
    smaller, _ = replace(problem, out=out, into=into, times=times).keep(kept)
    return Step(
        smaller, score, np.arange(n), number[leader], problem.times / times[leader], _NO_ARCS, _NO_ARC_SCORES
    )  # fmt: skip


def side_vertices(problem: Problem) -> NDArray[np.bool_]:
    """Vertices whose neighbors are pairwise adjacent: they lie inside no shortest path."""
    side = np.zeros(problem.num_vertices, np.bool_)
    alike.find_sides(problem.offsets, problem.targets, _WIDEST_SIDE, side)
    return side


def drop_vertices(problem: Problem, dropped: NDArray[np.bool_]) -> Step:
    """Leave out vertices that lie inside no path between the others."""
    order = np.flatnonzero(~dropped)
    smaller, _ = problem.keep(order)
    none = np.zeros(problem.num_vertices)
    return Step(smaller, none, order, slice(None), 1.0, _NO_ARCS, _NO_ARC_SCORES)


def side_targets(problem: Problem, side: NDArray[np.bool_]) -> Floats:
    """Weights as targets for the searches from side vertices: pairs with the others are found only from here."""
    return np.where(side, problem.into, 2.0 * problem.into)
