"""Chains of vertices with two neighbours, as on roads: exact searches on what is left when each is one long edge.

The idea of handling pairs by the chains that they lie on is that of Bentert, Dittmann, Kellerhals, Nichterlein and
Niedermeier, "An Adaptive Version of Brandes' Algorithm for Betweenness Centrality" (J. Graph Algorithms Appl. 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import chain_kernels as kernels
from goffish.algorithms.betweenness.problem import Floats, Indices, Problem, grouped
from goffish.algorithms.betweenness.searches import Scores, Scratch, cut_blocks, search_by_distance, sums_between

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
        self._members, self._inner, self._ends, self._starts = members, inner[: starts[-1]], ends, starts
        self._first_chain = np.searchsorted(ends[:, 0], np.arange(members.size + 1))
        self._rows = self._both_ways()
        used, piece = np.unique(number[members], return_inverse=True)
        self._piece = piece.astype(np.int64)
        vertex_bounds = np.searchsorted(self._piece, np.arange(used.size + 1))
        self._bounds = vertex_bounds, self._first_chain[vertex_bounds]
        cost, mass = self._cost()
        self.cuts = cut_blocks(cost, problem.num_vertices)
        self.work, self.mass = sums_between(self.cuts, cost), sums_between(self.cuts, mass)

    def _both_ways(self) -> tuple[Indices, Indices, Indices, Indices]:
        """Rows of the branch vertices: other ends, lengths and chains."""
        chains = np.arange(self._ends.shape[0])
        source, chain = np.concatenate((self._ends[:, 0], self._ends[:, 1])), np.concatenate((chains, chains))
        target = np.concatenate((self._ends[:, 1], self._ends[:, 0]))
        turned = np.lexsort((chain, source))
        offsets = np.searchsorted(source[turned], np.arange(self._members.size + 1))
        return offsets, target[turned], np.diff(self._starts)[chain[turned]] + 1, chain[turned]

    def _cost(self) -> tuple[Floats, Floats]:
        """Arc visits for every branch vertex and the chains it is the first end of, and the weight of the sources."""
        vertex_bounds, chain_bounds = self._bounds
        first, inside = self._first_chain, np.diff(self._starts)
        long_before = np.concatenate(([0], np.cumsum(inside > 0)))
        inside_of = np.diff(self._starts[first])
        branches, chains = np.diff(vertex_bounds), np.diff(chain_bounds)
        cost = (1 + np.diff(long_before[first])) * (2 * chains)[self._piece]
        cost = cost + inside_of * (branches + np.diff(long_before[chain_bounds]))[self._piece]
        out = np.concatenate(([0.0], np.cumsum(self._problem.out[self._inner])))
        return cost.astype(np.float64), self._problem.out[self._members] + np.diff(out[self._starts[first]])

    def nothing(self) -> Scores:
        return Scores(np.zeros(self._problem.num_vertices), np.zeros(0))

    def block(self, first: int, last: int, scratch: Scratch) -> Scores:
        p, found, size = self._problem, self.nothing(), self._members.size
        score, inner_score = np.zeros(size), np.zeros(self._inner.size)
        rows = np.zeros((10, size))
        rows[:2] = np.inf
        kernels.search_chains(
            *self._rows, self._ends, self._starts, self._first_chain, self._piece, *self._bounds,
            p.out[self._members], p.into[self._members], p.out[self._inner], p.into[self._inner], first, last,
            rows, np.empty((4, size), np.int64), score, inner_score,
        )  # fmt: skip
        if np.isfinite(score).all():
            found.vertices[self._members] = score
            found.vertices[self._inner] = inner_score
            return found
        chains = self._starts[self._first_chain[[first, last]]]
        sources = np.concatenate((self._members[first:last], self._inner[chains[0] : chains[1]]))
        search_by_distance(p, sources, 0, sources.size, False, scratch, found)
        return found

    def arranged(self, found: Scores) -> Scores:
        return found
