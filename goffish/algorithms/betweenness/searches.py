"""Searches from many sources of one problem, cut into blocks that any thread can do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import batch_kernels as batched
from goffish.algorithms.betweenness import search_kernels as alone
from goffish.algorithms.betweenness.lane_kernels import LANES, STRIDE
from goffish.algorithms.betweenness.problem import Floats, Indices, Problem
from goffish.algorithms.betweenness.search_kernels import Scores
from goffish.kernels.csr import Csr, aligned_zeros

#: Arc visits of a block: at most some tenths of a second, so that Ctrl-C and progress never wait long, but enough that
#: what is done once for a block and vertex does not matter.
_BLOCK, _SMALL_BLOCK, _PER_VERTEX = 1 << 22, 1 << 17, 16
#: Blocks that even a short run is cut into, so that no thread waits long for the last one.
_BLOCKS = 24


class Searches(Protocol):
    """What `goffish.algorithms.betweenness.blocks.run_blocks` runs.

    Attributes
    ----------
    cuts : int64, shape (blocks + 1,)
        Block i searches from the sources ``cuts[i] … cuts[i + 1]``.
    work : float64, shape (blocks,)
        Arc visits of each block.
    mass : float64, shape (blocks,)
        Weight of the sources of each block.
    """

    cuts: Indices
    work: Floats
    mass: Floats

    def nothing(self) -> Scores:
        """Scores of no search at all."""

    def block(self, first: int, last: int, scratch: Scratch) -> Scores:
        """Scores from the sources ``first … last``, in an order of their own."""

    def arranged(self, found: Scores) -> Scores:
        """`found` in the order of the problem."""


class Scratch(threading.local):
    """Arrays that the kernels of one thread leave as they found them, shared by all problems of a run."""

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}

    def take(self, name: str, size: int, make: Callable[[int], Any]) -> Any:
        """The first `size` elements of the array `name`, made by `make` where there is none so large yet."""
        kept = self._arrays.get(name)
        if kept is None or kept.size < size:
            kept = self._arrays[name] = make(size)
        return kept[:size]


def cut_blocks(cost: Floats, num_vertices: int, whole: int = 1) -> Indices:
    """Bounds of blocks of about equal `cost` (arc visits of each source), of `whole` sources at a time."""
    done = np.concatenate(([0.0], np.cumsum(cost)))
    size = max(min(_BLOCK, done[-1] / _BLOCKS), _SMALL_BLOCK, _PER_VERTEX * num_vertices)
    count = max(1, int(np.ceil(done[-1] / size)))
    cuts = np.searchsorted(done, done[-1] * np.arange(1, count) / count) // whole * whole
    return np.unique(np.concatenate(([0], cuts, [cost.size])))


def sums_between(cuts: Indices, values: Floats) -> Floats:
    """Sum of the values from each cut to the next."""
    return np.diff(np.concatenate(([0.0], np.cumsum(values)))[cuts])


class SourceSearches:
    """Searches from the marked `sources` of a problem.

    Components become ranges of vertices.

    Parameters
    ----------
    sources : bool, shape (n,)
    ordered : bool
        Whether the vertices of each component are brought into breadth-first order: neighbors lie near one another in
        memory, and so do the sources of a batch in the graph.
    in_batches : bool
        Whether one pass over the arcs serves several sources, where the kernels can (no weights, no scores of arcs).
    ends : bool
        Whether a pair counts for its two ends as well.
    arcs : bool
        Whether the scores of arcs are wanted too.
    """

    def __init__(
        self,
        problem: Problem,
        sources: NDArray[np.bool_],
        *,
        ordered: bool = True,
        in_batches: bool = True,
        ends: bool = False,
        arcs: bool = False,
    ) -> None:
        self._order, number, self._bounds = problem.pieces
        if not ordered:
            self._order = np.argsort(number, kind="stable")
        elif not problem.directed:
            self._order = self._order.copy()
            batched.order_from_middle(problem.offsets, problem.targets, self._bounds, self._order)
        self._problem, self._arc_of = problem.keep(self._order)
        if not problem.directed:
            self._problem, turned = self._problem.sorted_rows()
            self._arc_of = self._arc_of[turned]
        self._piece, self._ends, self._arcs = number[self._order], ends, arcs
        chosen = sources & (problem.out > 0) & (np.diff(problem.offsets) > 0)
        self._sources = np.flatnonzero(chosen[self._order])
        size = self._problem.offsets[self._bounds[1:]] - self._problem.offsets[self._bounds[:-1]]
        cost = size[self._piece[self._sources]].astype(np.float64)
        in_batches = in_batches and not (problem.weighted or arcs)
        self._kernel = self._in_batches if in_batches else self._by_distance if problem.weighted else self._one_by_one
        self.cuts = cut_blocks(cost, problem.num_vertices, LANES if in_batches else 1)
        self.work = sums_between(self.cuts, cost)
        self.mass = sums_between(self.cuts, self._problem.out[self._sources])

    def nothing(self) -> Scores:
        return Scores(np.zeros(self._problem.num_vertices), np.zeros(self._problem.num_arcs if self._arcs else 0))

    def block(self, first: int, last: int, scratch: Scratch) -> Scores:
        found = self.nothing()
        self._kernel(first, last, scratch, found)
        if not np.isfinite(found.vertices).all():
            found = self.nothing()
            self._by_distance(first, last, scratch, found)
        return found

    def arranged(self, found: Scores) -> Scores:
        vertices = np.empty_like(found.vertices)
        vertices[self._order] = found.vertices
        by_arc = np.empty_like(found.arcs)
        if self._arcs:
            by_arc[self._arc_of] = found.arcs
        return Scores(vertices, by_arc)

    @cached_property
    def _padded(self) -> tuple[Csr, Csr]:
        out = self._problem.arcs.padded(STRIDE)
        return out, self._problem.reverse.arcs.padded(STRIDE) if self._problem.directed else out

    def _in_batches(self, first: int, last: int, scratch: Scratch, found: Scores) -> None:
        n = self._problem.num_vertices
        rows, more_rows, counts = (
            scratch.take(name, (n + 1) * LANES, _aligned) for name in ("rows", "more rows", "counts")
        )
        memory = batched.BatchMemory(
            rows,
            more_rows,
            counts,
            scratch.take("seen", n + 1, _empty(np.uint8)),
            scratch.take("lists", n * LANES, _empty(np.uint32)),
            scratch.take("masks", n * LANES, _empty(np.uint8)),
            scratch.take("starts", n + 2, _empty(np.int64)),
            scratch.take("candidates", n + 2, _empty(np.uint32)),
        )
        batched.search_batches(
            *self._padded, self._problem.vertices, self._piece, self._bounds, self._sources[first:last], self._ends,
            memory, found,
        )  # fmt: skip

    def _one_by_one(self, first: int, last: int, scratch: Scratch, found: Scores) -> None:
        p, n = self._problem, self._problem.num_vertices
        memory = alone.LevelMemory(
            scratch.take("levels", n, lambda size: np.full(size, -1, np.int32)),
            scratch.take("paths", n, np.zeros),
            scratch.take("share", n, np.zeros),
            scratch.take("queue", n + 1, _empty(np.uint32)),
        )
        alone.search_levels(p.unsigned_arcs, p.vertices, self._sources[first:last], self._ends, memory, found)

    def _by_distance(self, first: int, last: int, scratch: Scratch, found: Scores) -> None:
        search_by_distance(self._problem, self._sources[first:last], self._ends, scratch, found)


def search_by_distance(problem: Problem, sources: Indices, ends: bool, scratch: Scratch, found: Scores) -> None:
    """Add the scores from `sources`, one Dijkstra search each; any number of paths."""
    n = problem.num_vertices
    memory = alone.DijkstraMemory(
        scratch.take("distance", n, lambda size: np.full(size, np.inf)),
        scratch.take("dijkstra paths", n, np.zeros),
        *(scratch.take(name, n, _empty(np.int64)) for name in ("place", "heap", "order")),
    )
    exponent, share = scratch.take("exponent", n, _empty(np.int64)), scratch.take("dijkstra share", n, np.zeros)
    alone.search_distances(problem.arcs, problem.vertices, sources, ends, memory, exponent, share, found)


def _empty(kind: Any) -> Callable[[int], NDArray[Any]]:
    return lambda size: np.empty(size, kind)


def _aligned(size: int) -> Floats:
    return aligned_zeros(size, np.float64)
