"""Chains of vertices with two neighbors, as on roads: exact searches on what is left when each is one long edge.

The idea of handling pairs by the chains that they lie on is that of Bentert, Dittmann, Kellerhals, Nichterlein and
Niedermeier, "An Adaptive Version of Brandes' Algorithm for Betweenness Centrality" (J. Graph Algorithms Appl. 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import chain_kernels as kernels
from goffish.algorithms.betweenness.problem import Floats, Indices, Problem, grouped
from goffish.algorithms.betweenness.search_kernels import Scores
from goffish.algorithms.betweenness.searches import Scratch, cut_blocks, search_by_distance, sums_between
from goffish.kernels.csr import Csr

#: Arc visits of a batched search that one arc visit of a search on chains takes, by its heap, and back again.
_DEAR = 8.0
#: Chains pay where they save at least this share of the time.
_SAVED = 0.4


def on_chains(problem: Problem) -> NDArray[np.bool_]:
    """The vertices of the components that `ChainSearches` searches sooner: those with many chains.

    Components in which a vertex stands for several (`times`) stay as they are.
    """
    degree = np.diff(problem.offsets)
    _, number, bounds = problem.pieces
    count = bounds.size - 1

    def per_piece(values: NDArray[Any]) -> Floats:
        return grouped(number, values, count)

    two = degree == 2
    arcs, inner, searched = per_piece(degree), per_piece(two), per_piece(problem.out > 0)
    branches = np.maximum(np.diff(bounds) - inner, 1)
    chains = np.maximum(arcs / 2 - inner, 1)
    # At most as many chains have vertices inside as there are such vertices.
    searches = branches + np.minimum(chains, inner)
    cost = _DEAR * searches * 2 * chains + inner * (branches + np.minimum(chains, inner))
    fit = (cost < (1.0 - _SAVED) * arcs * searched) & (per_piece((problem.times != 1) | (degree < 2)) == 0)
    chosen: NDArray[np.bool_] = fit[number]
    return chosen


class ChainSearches:
    """Searches from all vertices of the components `chosen`, which `on_chains` found (see `searches.Searches`).

    A source, in the sense of the blocks, is a branch vertex with all the chains whose first end it is.
    """

    def __init__(self, problem: Problem, chosen: NDArray[np.bool_]) -> None:
        self._problem = problem
        order, number, bounds = problem.pieces
        branch = chosen & (np.diff(problem.offsets) != 2)
        # A component that is one circle: any vertex is the branch vertex.
        circle = np.bincount(number, branch, bounds.size - 1) == 0
        first = order[bounds[:-1]]
        branch[first[circle & chosen[first]]] = True
        members = order[branch[order]]
        place = np.full(problem.num_vertices, -1)
        place[members] = np.arange(members.size)
        arcs = int(np.diff(problem.offsets)[members].sum())
        ends, starts = np.empty((arcs // 2, 2), np.int64), np.zeros(arcs // 2 + 1, np.int64)
        inner = np.empty(2 * problem.num_vertices, np.int64)  # a chain walked back is listed once more for a while
        chains = kernels.walk_chains(problem.offsets, problem.targets, members, place, ends, starts, inner)
        assert chains == arcs // 2
        self._members, self._inner = members, inner[: starts[-1]]
        used, piece = np.unique(number[members], return_inverse=True)
        vertex_bounds = np.searchsorted(piece, np.arange(used.size + 1))
        first_chain = np.searchsorted(ends[:, 0], np.arange(members.size + 1))
        self._chains = kernels.Chains(
            *_both_ways(ends, starts, members.size), ends, starts, first_chain, piece.astype(np.int64), vertex_bounds,
            first_chain[vertex_bounds],
        )  # fmt: skip
        cost, mass = self._cost()
        self.cuts = cut_blocks(cost, problem.num_vertices)
        self.work, self.mass = sums_between(self.cuts, cost), sums_between(self.cuts, mass)

    def _cost(self) -> tuple[Floats, Floats]:
        """Arc visits for every branch vertex and the chains it is the first end of, and the weight of the sources."""
        starts, first = self._chains.starts, self._chains.first
        inside, piece = np.diff(starts), self._chains.piece
        long_before = np.concatenate(([0], np.cumsum(inside > 0)))
        inside_of = np.diff(starts[first])
        branches, chains = np.diff(self._chains.vertex_bounds), np.diff(self._chains.bounds)
        cost = (1 + np.diff(long_before[first])) * (2 * chains)[piece]
        cost = cost + inside_of * (branches + np.diff(long_before[self._chains.bounds]))[piece]
        out = np.concatenate(([0.0], np.cumsum(self._problem.out[self._inner])))
        return cost.astype(np.float64), self._problem.out[self._members] + np.diff(out[starts[first]])

    def nothing(self) -> Scores:
        return Scores(np.zeros(self._problem.num_vertices), np.zeros(0))

    def block(self, first: int, last: int, scratch: Scratch) -> Scores:
        found, members, inside = self.nothing(), self._members, self._inner
        score, inner_score = np.zeros(members.size), np.zeros(inside.size)
        weights = self._problem.vertices
        kernels.search_chains(self._chains, weights.at(members), weights.at(inside), first, last, score, inner_score)
        if np.isfinite(score).all():
            found.vertices[members] = score
            found.vertices[inside] = inner_score
            return found
        low, high = self._chains.starts[self._chains.first[[first, last]]]
        sources = np.concatenate((members[first:last], inside[low:high]))
        search_by_distance(self._problem, sources, False, scratch, found)
        return found

    def arranged(self, found: Scores) -> Scores:
        return found


def _both_ways(ends: Indices, starts: Indices, members: int) -> tuple[Csr, Indices]:
    """Rows of the branch vertices (other ends, lengths), and the chain of each arc."""
    chains = np.arange(ends.shape[0])
    source, chain = np.concatenate((ends[:, 0], ends[:, 1])), np.concatenate((chains, chains))
    target = np.concatenate((ends[:, 1], ends[:, 0]))
    turned = np.lexsort((chain, source))
    offsets = np.searchsorted(source[turned], np.arange(members + 1))
    return Csr(offsets, target[turned], np.diff(starts)[chain[turned]] + 1), chain[turned]
