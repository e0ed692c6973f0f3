"""Searches from many sources, shared out over threads in tasks that depend on the problem only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import _batch_kernels as batched
from goffish.algorithms.betweenness import _search_kernels as alone
from goffish.algorithms.betweenness._lane_kernels import LANES, STRIDE
from goffish.algorithms.betweenness.problem import Floats, Indices, Problem
from goffish.graph.parallel import run_tasks, thread_count

#: Called with the arcs visited so far and the arcs to visit in all.
Progress = Callable[[float, float], None]

#: Arc visits of one kernel call: at most some tenths of a second, so that Ctrl-C and progress never wait long.
_CHUNK = 1 << 22
#: A kernel call prepares some figures per vertex: never less work than this for each.
_PER_VERTEX = 64
#: Sums of their own; more would take too much memory on large graphs.
_GROUPS, _FEW_GROUPS, _LARGE = 64, 16, 1 << 18
_LINE = 64


class Watch:
    """Counts the work of all threads, tells the caller's thread of it, and stops them all when one fails."""

    def __init__(self, total: float, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0.0
        self._lock, self._home = threading.Lock(), threading.get_ident()
        self.stopped = False

    def add(self, work: float) -> None:
        with self._lock:
            self._done += work
        if self._progress is not None and threading.get_ident() == self._home:
            self._progress(min(self._done, self._total), self._total)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total)


@dataclass(frozen=True, eq=False)
class Scores:
    """Dependencies summed over ordered pairs: of vertices, shape (n,), and of arcs, shape (arcs,) or (0,)."""

    vertices: Floats
    arcs: Floats


def search(
    problem: Problem,
    sources: NDArray[np.bool_],
    watch: Watch,
    *,
    ends: bool = False,
    arcs: bool = False,
    threads: int | None = None,
) -> Scores:
    """Search from the marked `sources` and sum up the dependencies.

    Components become ranges of vertices, each in breadth-first order, so that the sources of a batch are near one
    another. The sums do not depend on the number of threads.

    Parameters
    ----------
    sources : bool, shape (n,)
    ends : bool
        Whether a pair counts for its two ends as well.
    arcs : bool
        Whether the scores of arcs are wanted too.
    """
    order, number, bounds = problem.pieces
    arranged, arc_of = problem.keep(order)
    if not problem.directed:
        arranged, turned = arranged.sorted_rows()
        arc_of = arc_of[turned]
    chosen = np.flatnonzero((sources & (np.diff(problem.offsets) > 0))[order])
    piece = number[order]
    call = _Call(arranged, chosen, piece, bounds, ends, arcs)
    found = call.run(watch, thread_count(threads))
    vertices = np.empty_like(found.vertices)
    vertices[order] = found.vertices
    if not arcs:
        return Scores(vertices, found.arcs)
    by_arc = np.empty_like(found.arcs)
    by_arc[arc_of] = found.arcs
    return Scores(vertices, by_arc)


class _Call:
    """One set of searches: which kernel, cut into which chunks."""

    def __init__(
        self, problem: Problem, sources: Indices, piece: Indices, bounds: Indices, ends: bool, arcs: bool
    ) -> None:
        self.problem, self.sources, self.piece, self.bounds = problem, sources, piece, bounds
        self.ends, self.arcs = ends, arcs
        size = problem.offsets[bounds[1:]] - problem.offsets[bounds[:-1]]
        cost = size[piece[sources]].astype(np.float64)
        self.done = np.concatenate(([0.0], np.cumsum(cost)))
        chunks = max(1, int(np.ceil(self.done[-1] / max(_CHUNK, _PER_VERTEX * problem.num_vertices))))
        cuts = np.searchsorted(self.done, self.done[-1] * np.arange(1, chunks) / chunks)
        self.chunks = np.unique(np.concatenate(([0], cuts, [sources.size])))
        count = self.chunks.size - 1
        groups = min(count, _GROUPS if problem.num_vertices < _LARGE else _FEW_GROUPS)
        self.groups = [(g * count // groups, (g + 1) * count // groups) for g in range(groups)]

    def run(self, watch: Watch, threads: int) -> Scores:
        p = self.problem
        total = Scores(np.zeros(p.num_vertices), np.zeros(p.num_arcs if self.arcs else 0))
        for part in run_tasks(lambda first, last: self._group(first, last, watch), self.groups, threads):
            total.vertices[:] += part.vertices
            total.arcs[:] += part.arcs
        return total

    def _group(self, first: int, last: int, watch: Watch) -> Scores:
        p = self.problem
        total = Scores(np.zeros(p.num_vertices), np.zeros(p.num_arcs if self.arcs else 0))
        try:
            kernel = self._kernel()
            for begin, end in zip(self.chunks[first:last], self.chunks[first + 1 : last + 1], strict=True):
                if watch.stopped:
                    break
                part = Scores(np.zeros_like(total.vertices), np.zeros_like(total.arcs))
                kernel(int(begin), int(end), part)
                if not np.isfinite(part.vertices).all():
                    part = Scores(np.zeros_like(total.vertices), np.zeros_like(total.arcs))
                    self._by_distance()(int(begin), int(end), part)
                total.vertices[:] += part.vertices
                total.arcs[:] += part.arcs
                watch.add(float(self.done[end] - self.done[begin]))
        except BaseException:
            watch.stopped = True
            raise
        return total

    def _kernel(self) -> Callable[[int, int, Scores], None]:
        if self.problem.weighted:
            return self._by_distance()
        return self._one_by_one() if self.arcs else self._in_batches()

    def _rows(self) -> tuple[Any, ...]:
        return self.problem.offsets.view(np.uint64), self.problem.targets

    @cached_property
    def _padded(self) -> tuple[Any, ...]:
        out = _pad(self.problem)
        return *out, *(_pad(self.problem.reverse) if self.problem.directed else out)

    def _in_batches(self) -> Callable[[int, int, Scores], None]:
        p, n = self.problem, self.problem.num_vertices
        scratch = (
            *(_aligned((n + 1) * LANES) for _ in range(3)), np.empty(n + 1, np.uint8), np.empty(n * LANES, np.uint32),
            np.empty(n * LANES, np.uint8), np.empty(n + 2, np.int64), np.empty(n + 2, np.uint32),
        )  # fmt: skip
        given = (*self._padded, p.out, p.into, p.times, self.sources, self.piece, self.bounds)

        def call(first: int, last: int, part: Scores) -> None:
            batched.search_batches(*given, first, last, self.ends, *scratch, part.vertices)

        return call

    def _one_by_one(self) -> Callable[[int, int, Scores], None]:
        p, n = self.problem, self.problem.num_vertices
        scratch = np.full(n, -1, np.int32), np.zeros(n), np.empty(n), np.empty(n + 1, np.uint32)
        given = (*self._rows(), p.out, p.into, p.times, self.sources)

        def call(first: int, last: int, part: Scores) -> None:
            alone.search_levels(*given, first, last, self.ends, *scratch, part.vertices, part.arcs)

        return call

    def _by_distance(self) -> Callable[[int, int, Scores], None]:
        p, n = self.problem, self.problem.num_vertices
        scratch = (
            np.full(n, np.inf), np.zeros(n), np.empty(n, np.int64), np.zeros(n),
            *(np.empty(n, np.int64) for _ in range(3)),
        )  # fmt: skip
        given = (p.offsets, p.targets, p.weights, p.out, p.into, p.times, self.sources)

        def call(first: int, last: int, part: Scores) -> None:
            alone.search_distances(*given, first, last, self.ends, *scratch, part.vertices, part.arcs)

        return call


def _pad(problem: Problem) -> tuple[Any, ...]:
    n = problem.num_vertices
    offsets, targets = np.zeros_like(problem.offsets), np.empty(problem.num_arcs + (STRIDE - 1) * n, np.uint32)
    used = batched.pad_rows(problem.offsets, problem.targets, offsets, targets)
    return offsets.view(np.uint64), targets[:used]


def _aligned(size: int) -> Floats:
    """Zeros that begin with a cache line, so that no row lies in two."""
    raw = np.zeros(size + _LINE // 8)
    skip = -raw.ctypes.data % _LINE // 8
    return raw[skip : skip + size]
