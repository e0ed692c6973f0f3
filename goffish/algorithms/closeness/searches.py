"""Sums of distances into vertices, shared out over threads in tasks that depend on the graph only."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.problem import Indices, Problem
from goffish.algorithms.closeness import kernels
from goffish.algorithms.closeness.kernels import Sums
from goffish.algorithms.closeness.lane_kernels import LANES, STRIDE, WORDS
from goffish.algorithms.paths.kernels import Search, bucket_scale
from goffish.graph import Graph
from goffish.graph.parallel import run_tasks, thread_count
from goffish.kernels.csr import Csr, aligned_zeros

#: Arcs that one call of a kernel looks at: at most some tenths of a second, so that Ctrl-C never waits long.
_BATCH_CHUNK, _DISTANCE_CHUNK = 1 << 24, 1 << 20
#: Tasks: enough for any number of threads.
_TASKS = 256
#: From this mean number of hops on, as in road networks, a batch is a ball of vertices; else it is cut from the
#: breadth-first order, whose levels are a few only.
_DEEP = 30.0

Mask = NDArray[np.bool_]
_Memory = TypeVar("_Memory")
#: Called with the work done so far and all work to do.
Progress = Callable[[float, float], None]


class _Watch:
    """Counts the work of all threads, reports it to the caller's thread, and stops them all when one fails."""

    def __init__(self, todo: float, progress: Progress | None) -> None:
        self._todo, self._progress, self._done = todo, progress, 0.0
        self._lock, self._home = threading.Lock(), threading.get_ident()
        self.stopped = False

    def add(self, work: float) -> None:
        with self._lock:
            self._done += work
        if self._progress is not None and threading.get_ident() == self._home:
            self._progress(min(self._done, self._todo), self._todo)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress(self._todo, self._todo)


def sums_at_few(
    graph: Graph, wanted: Indices, counted: Mask, inverse: bool, threads: int | None, progress: Progress | None
) -> Sums:
    """Sums at the few vertices `wanted` of a graph without weights, by one search against the arcs from each.

    Parameters
    ----------
    counted : bool, shape (n,)
        The sources.
    inverse : bool
        Add up 1 / distance rather than distance.
    """
    from goffish.algorithms.paths.in_memory import levels_from

    back, found = graph.reverse, Sums.zeros(graph.num_vertices)
    watch = _Watch(float(wanted.size), progress)

    def search(v: int) -> None:
        if watch.stopped:
            return
        try:
            depth, _ = levels_from(back, v)
            hops = np.bincount(depth[counted & (depth > 0)])
            worth = np.arange(hops.size, dtype=np.float64)
            if inverse:
                worth[1:] = 1.0 / worth[1:]
            # Not a product of matrices, whose order of addition is the library's own affair.
            found.total[v], found.reached[v] = math.fsum(hops * worth), hops.sum()
            watch.add(1.0)
        except BaseException:
            watch.stopped = True
            raise

    run_tasks(search, [(int(v),) for v in wanted], thread_count(threads))
    watch.finish()
    return found


def sums_at_all(
    problem: Problem, wanted: Mask, counted: Mask, inverse: bool, threads: int | None, progress: Progress | None
) -> Sums:
    """Sums of the distances from the vertices `counted` at the vertices `wanted`; elsewhere anything.

    Components become ranges of vertices, each in breadth-first order, so that the sources of a batch are near one
    another. The sums do not depend on the number of threads.
    """
    order, number, bounds = problem.pieces
    arranged, _ = problem.keep(order)
    if not problem.directed:
        arranged, _ = arranged.sorted_rows()
    calls = _Distances if problem.weighted else _Levels
    found = calls(arranged, number[order], bounds, wanted[order], counted[order], inverse).run(threads, progress)
    sums = Sums.zeros(order.size)
    sums.total[order], sums.reached[order] = found.total, found.reached
    return sums


class _Searches:
    """Searches from `sources`, ordered by component; what lies between two of `ends` is one step of a task."""

    def __init__(self, problem: Problem, piece: Indices, bounds: Indices, inverse: bool) -> None:
        self.problem, self.piece, self.bounds, self.inverse = problem, piece, bounds, inverse
        self._scratch = threading.local()

    def set_sources(self, sources: Indices, ends: Indices) -> None:
        self.sources, self.ends = sources, ends
        arcs = self.problem.offsets[self.bounds[1:]] - self.problem.offsets[self.bounds[:-1]]
        cost = arcs[self.piece[sources]].astype(np.float64)
        self.done = np.concatenate(([0.0], np.cumsum(cost)))

    def run(self, threads: int | None, progress: Progress | None) -> Sums:
        watch, sums = _Watch(float(self.done[-1]), progress), _OrderedSums(self.problem.num_vertices)
        steps = self.ends.size - 1
        tasks = min(steps, _TASKS)

        def call(task: int, first: int, last: int) -> None:
            try:
                part = Sums.zeros(self.problem.num_vertices)
                for step in range(first, last):
                    begin, end = int(self.ends[step]), int(self.ends[step + 1])
                    search = self.start(begin, end, part)
                    while not watch.stopped and not search():
                        pass
                    if watch.stopped:
                        return
                    watch.add(float(self.done[end] - self.done[begin]))
                sums.add(task, part)
            except BaseException:
                watch.stopped = True
                raise

        run_tasks(
            call, [(t, t * steps // tasks, (t + 1) * steps // tasks) for t in range(tasks)], thread_count(threads)
        )
        watch.finish()
        return sums.whole

    def start(self, begin: int, end: int, part: Sums) -> Callable[[], bool]:
        """A call that continues the searches from ``sources[begin:end]``, and returns whether they have ended."""
        raise NotImplementedError

    def scratch(self, make: Callable[[], _Memory]) -> _Memory:
        """Memory of this thread."""
        if not hasattr(self._scratch, "memory"):
            self._scratch.memory = make()
        memory: _Memory = self._scratch.memory
        return memory


class _OrderedSums:
    """Adds up what the tasks found in the order of the tasks, in whatever order they end."""

    def __init__(self, size: int) -> None:
        self.whole = Sums.zeros(size)
        self._waiting: dict[int, Sums] = {}
        self._lock, self._next = threading.Lock(), 0

    def add(self, task: int, part: Sums) -> None:
        with self._lock:
            self._waiting[task] = part
            while self._next in self._waiting:
                ready = self._waiting.pop(self._next)
                np.add(self.whole.total, ready.total, out=self.whole.total)
                np.add(self.whole.reached, ready.reached, out=self.whole.reached)
                self._next += 1


class _Levels(_Searches):
    """Searches breadth first, hundreds at a time, from the vertices that count."""

    def __init__(
        self, problem: Problem, piece: Indices, bounds: Indices, wanted: Mask, counted: Mask, inverse: bool
    ) -> None:
        super().__init__(problem, piece, bounds, inverse)
        self._out = problem.arcs.padded(STRIDE)
        self._back = problem.reverse.arcs.padded(STRIDE) if problem.directed else self._out
        sources, rows = np.empty(piece.size, np.int64), (problem.arcs, problem.reverse.arcs)
        near = LANES if kernels.mean_depth(*rows) > _DEEP else piece.size
        searching = counted & (np.diff(problem.offsets) > 0)
        count = kernels.gather_sources(*rows, not problem.directed, searching, near, sources)
        ends = np.empty(count + 1, np.int64)
        self.set_sources(sources[:count], ends[: kernels.plan_batches(piece, sources[:count], ends) + 1])

    def start(self, begin: int, end: int, part: Sums) -> Callable[[], bool]:
        memory = self.scratch(self._memory)
        pieces = self.piece[self.sources[begin]], self.piece[self.sources[end - 1]] + 1
        low, high = (int(self.bounds[piece]) for piece in pieces)
        kernels.begin_batch(self.sources[begin:end], low, high, memory)

        def search() -> bool:
            ended: bool = kernels.search_batch(
                self._out, self._back, low, high, self.inverse, np.uint64(_BATCH_CHUNK), memory, part
            )
            return ended

        return search

    def _memory(self) -> kernels.BatchMemory:
        n = self.problem.num_vertices
        known, fresh, lanes = (aligned_zeros(count * WORDS, np.uint64) for count in (n + 1, n, 1))
        lists = max(n, LANES) + 2
        return kernels.BatchMemory(
            known, fresh, lanes, np.ones(n + 1, np.uint8), np.zeros(n + 1, np.uint8), np.empty(lists, np.uint32),
            np.empty(lists, np.uint32), np.zeros(kernels.STATE, np.int64),
        )  # fmt: skip


class _Distances(_Searches):
    """Searches by distance, one at a time: against the arcs from the vertices wanted, or along them from those that
    count, whichever are fewer."""

    def __init__(
        self, problem: Problem, piece: Indices, bounds: Indices, wanted: Mask, counted: Mask, inverse: bool
    ) -> None:
        super().__init__(problem, piece, bounds, inverse)
        self._at_source = np.count_nonzero(wanted) <= np.count_nonzero(counted)
        self._rows = problem.reverse if self._at_source else problem
        chosen, self._counted = (wanted, counted) if self._at_source else (counted, wanted)
        sources = np.flatnonzero(chosen & (np.diff(self._rows.offsets) > 0))
        self.set_sources(sources, np.zeros(1, np.int64))
        steps = math.ceil(self.done[-1] / _DISTANCE_CHUNK)
        cuts = np.searchsorted(self.done, self.done[-1] * np.arange(1, steps) / max(steps, 1))
        self.ends = np.unique(np.concatenate(([0], cuts, [sources.size])))
        self._scale = bucket_scale(self._rows.weights)
        signed = self._rows.targets.view(f"i{self._rows.targets.itemsize}")  # as `Graph` has them: one kernel for both
        self._arcs = Csr(self._rows.offsets, signed, self._rows.weights)

    def start(self, begin: int, end: int, part: Sums) -> Callable[[], bool]:
        sources = self.sources[begin:end]

        def search() -> bool:
            found = Sums.zeros(sources.size) if self._at_source else part
            kernels.search_distances(
                self._arcs, self.piece, self.bounds, sources, self._counted, self.inverse, self._at_source, self._scale,
                self.scratch(self._memory), found,
            )  # fmt: skip
            if self._at_source:
                part.total[sources], part.reached[sources] = found
            return True

        return search

    def _memory(self) -> Search:
        return Search.make(self.problem.num_vertices, self.problem.num_arcs, self._arcs.targets.dtype)
