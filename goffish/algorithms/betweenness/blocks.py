"""Running blocks of searches on threads: progress, checkpoints, a time limit, and sums that no thread count changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goffish.algorithms.betweenness.checkpoint import SavedSums
from goffish.algorithms.betweenness.problem import Floats
from goffish.algorithms.betweenness.search_kernels import Scores
from goffish.algorithms.betweenness.searches import Scratch, Searches
from goffish.algorithms.timing import checked_limit
from goffish.graph.parallel import run_tasks, thread_count

#: Called with the arcs visited so far and the arcs to visit in all.
Progress = Callable[[float, float], None]

#: Seconds between checkpoints.
_BETWEEN = 20.0
_SEED = 0


@dataclass(frozen=True)
class Running:
    """How searches are run.

    Attributes
    ----------
    threads : int, optional
        Default: all processors.
    time_limit : float, optional
        Seconds after which no block of searches is begun.
    checkpoint_dir : path, optional
        Folder in which the sums are kept while they grow, and at Ctrl-C.
    resume : bool
        Go on from what `checkpoint_dir` holds, if anything.
    progress : callable, optional
        Called in the caller's thread with the arc visits done and those to do.
    """

    threads: int | None = None
    time_limit: float | None = None
    checkpoint_dir: str | Path | None = None
    resume: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class Sums:
    """The scores of several searches as far as they were done.

    Attributes
    ----------
    scores : list of Scores
        One per element of the searches, scaled up to all of its sources where only some were done.
    share : float
        Share of the work that was done.
    """

    scores: list[Scores]
    share: float


def run_blocks(searches: Sequence[Searches], running: Running, kept: SavedSums | None) -> Sums:
    """Run all blocks of all searches, in an order that is random but always the same.

    So whatever is done after some time is a random sample of the sources. Sums are added up in that order as well.

    Parameters
    ----------
    running : Running
        Whatever the time limit, every element of `searches` gets one block at least.
    kept : SavedSums, optional
        Where the sums are kept while they grow, and may have been before.
    """
    run = _Run(searches, running.progress, checked_limit(running.time_limit), kept)
    if kept is not None:
        run.resume(kept)
    try:
        run_tasks(run.block, [(i,) for i in range(run.next, len(run.tasks))], thread_count(running.threads))
    finally:
        run.keep()
    return run.sums()


class _Run:
    def __init__(
        self, searches: Sequence[Searches], progress: Progress | None, time_limit: float | None, kept: SavedSums | None
    ) -> None:
        self.searches, self._progress, self._kept = searches, progress, kept
        random = np.random.default_rng(_SEED)
        turns = [random.permutation(entry.work.size) for entry in searches]
        leading = [(at, int(turn[0])) for at, turn in enumerate(turns) if turn.size]
        others = [(at, int(block)) for at, turn in enumerate(turns) for block in turn[1:]]
        self.tasks = leading + [others[i] for i in random.permutation(len(others))]
        self._leading = len(leading)
        self._work = sum(float(entry.work.sum()) for entry in searches)
        self.totals = [entry.nothing() for entry in searches]
        self.next = 0  # the first task that is not in the totals
        self._done = 0.0
        self._waiting: dict[int, Scores] = {}
        self._lock, self._home, self._scratch = threading.Lock(), threading.get_ident(), Scratch()
        self._end = None if time_limit is None else time.monotonic() + time_limit
        self._saved, self._adding = time.monotonic(), False

    def resume(self, kept: SavedSums) -> None:
        state = kept.load(self.totals)
        if state is not None:
            self.next = state
            self._done = sum(float(self.searches[at].work[block]) for at, block in self.tasks[: self.next])

    def block(self, i: int) -> None:
        if self._end is not None and i >= self._leading and time.monotonic() > self._end:
            return
        at, block = self.tasks[i]
        entry = self.searches[at]
        found = entry.block(int(entry.cuts[block]), int(entry.cuts[block + 1]), self._scratch)
        with self._lock:
            self._add(i, found)
            if self._kept is not None and time.monotonic() - self._saved > _BETWEEN:
                self.keep()
        if self._progress is not None and threading.get_ident() == self._home:
            self._progress(self._done, self._work)

    def _add(self, i: int, found: Scores) -> None:
        self._waiting[i] = found
        while self.next in self._waiting:
            self._adding = True
            at, block = self.tasks[self.next]
            part, total = self._waiting.pop(self.next), self.totals[at]
            total.vertices[:] += part.vertices
            total.arcs[:] += part.arcs
            self._done += float(self.searches[at].work[block])
            self.next += 1
            self._adding = False

    def keep(self) -> None:
        # Ctrl-C can come in the midst of an addition: then the checkpoint before is the last.
        if self._kept is not None and not self._adding:
            self._kept.save(self.next, self.totals)
            self._saved = time.monotonic()

    def sums(self) -> Sums:
        done = np.zeros(len(self.searches))
        for at, block in self.tasks[: self.next]:
            done[at] += self.searches[at].mass[block]
        scores = []
        for entry, total, mass in zip(self.searches, self.totals, done, strict=True):
            scale = float(entry.mass.sum()) / mass if mass > 0 and self.next < len(self.tasks) else 1.0
            found = entry.arranged(total)
            scores.append(Scores(_scaled(found.vertices, scale), _scaled(found.arcs, scale)))
        if self._progress is not None:
            self._progress(self._done, self._work)
        return Sums(scores, 1.0 if self.next == len(self.tasks) else self._done / self._work)


def _scaled(values: Floats, scale: float) -> Floats:
    return values if scale == 1.0 else values * scale
