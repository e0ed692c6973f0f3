"""Which reductions apply to a problem, what they save, and the searches that are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.blocks import Sums
from goffish.algorithms.betweenness.chains import ChainSearches, on_chains
from goffish.algorithms.betweenness.problem import Floats, Problem, Step
from goffish.algorithms.betweenness.reductions import (
    drop_vertices,
    fold_leaves,
    join_twins,
    side_targets,
    side_vertices,
    split_blocks,
)
from goffish.algorithms.betweenness.searches import Searches, SourceSearches

#: Every reduction, in the order in which a round applies them.
REDUCTIONS = ("leaves", "blocks", "chains", "twins", "sides")
#: What makes the searches that are left faster.
LAYOUTS = ("order", "batches")
#: What the scores of edges allow, and what directed graphs and weights do.
FOR_EDGES = FOR_WEIGHTS = ("leaves", "blocks", *LAYOUTS)
FOR_DIRECTED = LAYOUTS
#: A round that removes less than this share of the work left is the last; so is one that leaves nothing.
_WORTHWHILE = 0.03
_ROUNDS = 8


@dataclass(frozen=True)
class Removed:
    """What one reduction removed.

    Attributes
    ----------
    reduction : str
    share : float
        Arc visits that it saved, as a share of those of the graph without reductions (searches from every source times
        the arcs of its component: the n · m of Brandes' algorithm).
    """

    reduction: str
    share: float


class Plan:
    """The reductions of one call, worked out.

    Parameters
    ----------
    problem : Problem
    chosen : tuple of str
        Some of `REDUCTIONS` and `LAYOUTS` that the problem allows.
    ends, arcs : bool
        As in `SourceSearches`.

    Attributes
    ----------
    searches : list of Searches
        What is left to do.
    removed : tuple of Removed
        One per reduction chosen.
    work, work_left : float
        Arc visits without the reductions, and with them.
    """

    def __init__(self, problem: Problem, chosen: tuple[str, ...], *, ends: bool = False, arcs: bool = False) -> None:
        self._last = problem
        # Each step comes with the number of the searches that it needs, if any.
        self._steps: list[tuple[Step, int | None]] = []
        self.searches: list[Searches] = []
        self.work, self._aside = problem.work(), 0.0
        self._layout = {"ordered": "order" in chosen, "in_batches": "batches" in chosen}
        saved = {name: 0.0 for name in chosen if name in REDUCTIONS}
        for _ in range(_ROUNDS if saved else 0):
            before = self._last.work()
            for name in saved:
                left = self.work_left
                _REDUCE[name](self)
                saved[name] += left - self.work_left
            if self._last.work() > (1.0 - _WORTHWHILE) * before:
                break
        unit = self.work if self.work > 0 else 1.0
        self.removed = tuple(Removed(name, value / unit) for name, value in saved.items())
        self.searches.append(SourceSearches(self._last, self._last.out > 0, ends=ends, arcs=arcs, **self._layout))

    @property
    def work_left(self) -> float:
        return self._last.work() + self._aside

    def vertex_scores(self, sums: Sums) -> Floats:
        """Scores of the problem's vertices from those of `searches`."""
        score = sums.scores[-1].vertices
        for step, searched in reversed(self._steps):
            score = step.expand(score)
            if searched is not None:
                score += sums.scores[searched].vertices
        return score

    def arc_scores(self, sums: Sums) -> Floats:
        """Scores of the problem's arcs from those of `searches`."""
        score = sums.scores[-1].arcs
        for step, _ in reversed(self._steps):
            score = step.expand_arcs(score)
        return score

    def _step(self, make: Callable[[Problem], Step]) -> None:
        problem, step = self._last, make(self._last)
        if step.smaller.num_arcs < problem.num_arcs or step.smaller.work() < problem.work():
            self._steps.append((step, None))
            self._last = step.smaller

    def _set_aside(self, vertices: NDArray[np.bool_], searches: Searches) -> None:
        """Leave out `vertices`, whose pairs `searches` covers."""
        self.searches.append(searches)
        self._aside += float(searches.work.sum())
        step = drop_vertices(self._last, vertices)
        self._steps.append((step, len(self.searches) - 1))
        self._last = step.smaller

    def leaves(self) -> None:
        self._step(fold_leaves)

    def blocks(self) -> None:
        self._step(split_blocks)

    def twins(self) -> None:
        self._step(join_twins)

    def chains(self) -> None:
        chosen = on_chains(self._last)
        if chosen.any():
            self._set_aside(chosen, ChainSearches(self._last, chosen))

    def sides(self) -> None:
        side = side_vertices(self._last)
        if side.any():
            wider = replace(self._last, into=side_targets(self._last, side))
            self._set_aside(side, SourceSearches(wider, side, **self._layout))


_REDUCE: dict[str, Callable[[Plan], Any]] = {name: getattr(Plan, name) for name in REDUCTIONS}
