"""Louvain and Leiden on a whole graph in memory: moving, collapsing, and moving on the way down again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import merge_kernels, refine_kernels
from goffish.algorithms.communities.communities import Communities, make_communities
from goffish.algorithms.communities.divisions import merge_small
from goffish.algorithms.communities.divisions import modularity as modularity_of
from goffish.algorithms.communities.levels import (
    Labels,
    Level,
    collapse,
    connected_parts,
    cut_rows,
    from_graph,
    list_members,
    look_up,
    number_labels,
    totals,
)
from goffish.algorithms.communities.moving import Effort, block_count, move
from goffish.algorithms.communities.named import kept_ids, starting_point
from goffish.algorithms.communities.settings import Search
from goffish.graph import Graph
from goffish.graph.parallel import run_tasks, thread_count

#: Called now and then: level of local moving (from 1), passes on it so far, modularity gained by the last one.
LouvainProgress = Callable[[int, int, float], None]

# Looser than a single search would bear: what the first moves leave, the refinement finds at less cost.
_FIRST_TOLERANCE, _TOLERANCE_DROP = 5e-2, 4.0
_REFINE_TOLERANCE = 5e-3
_MOST_LEVELS = 100
_LEIDEN_TOLERANCE, _LEIDEN_DROP, _ITERATIONS = 1e-3, 10.0, 2
_MUCH, _ANYTHING = 2e-3, 1e-4  # modularity that single vertices gain


def louvain(
    graph: Graph,
    *,
    min_size: int = 1,
    initial: Any = None,
    fixed: Any = None,
    progress: LouvainProgress | None = None,
    **options: Any,
) -> Communities:
    """Find the communities of a graph in memory; options as for `goffish.louvain`, already checked.

    `options` are the fields of `Search`.
    """
    search = Search(**options)
    start, held = starting_point(graph, initial, fixed)
    found = find_communities(graph, search, start, held, progress)
    membership, modularity = found.membership, found.modularity
    if min_size > 1:
        # Before the names of a warm start are handed out.
        membership = merge_small(graph, membership, min_size, resolution=search.resolution)
        modularity = modularity_of(graph, membership, search.resolution)
    return make_communities(
        graph,
        found.steps,
        membership=membership,
        modularity=modularity,
        ids=None if initial is None else kept_ids(graph, initial, membership),
        resolution=search.resolution,
        summary_extra={"passes": sum(found.passes)},
    )


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found: the final community of every vertex, and the collapsing that led there.

    Attributes
    ----------
    membership : int64, shape (n,)
        Numbered 0 … c-1 by first appearance.
    modularity : float
        Of `membership`, exact.
    steps : tuple of arrays
        ``steps[0]`` maps vertices to the vertices of the next level, and so on; where vertices moved on after the
        collapsing, the composition of the steps is not the membership.
    passes : tuple of int
        Passes of every local moving, in order.
    """

    membership: NDArray[np.int64]
    modularity: float
    steps: tuple[Labels, ...]
    passes: tuple[int, ...]


def find_communities(
    graph: Graph,
    search: Search,
    start: NDArray[np.int64] | None = None,
    fixed: NDArray[np.bool_] | None = None,
    progress: LouvainProgress | None = None,
) -> Found:
    """Search for the communities of highest modularity.

    Parameters
    ----------
    graph : Graph
        Undirected (Newman's modularity) or directed (Leicht and Newman's), with or without weights.
    search : Search
    start : int64, shape (n,), optional
        Communities to start from, numbered 0 … c-1; default: every vertex alone.
    fixed : bool, shape (n,), optional
        Vertices that stay in their community of `start`.
    progress : callable, optional
    """
    held = None if fixed is None or not fixed.any() else fixed.astype(np.uint8)
    level = from_graph(graph)
    labels = singletons(level) if start is None else start.astype(level.targets.dtype)
    run = Run(search, progress, held, patient=start is not None)
    with run.pool:
        return run.leiden(level, labels) if search.refine == "leiden" else run.louvain(level, labels)


class Run:
    """One search under way."""

    def __init__(
        self,
        search: Search,
        progress: LouvainProgress | None,
        fixed: NDArray[np.uint8] | None,
        *,
        patient: bool = False,
    ) -> None:
        self.search, self.progress, self.fixed, self.patient = search, progress, fixed, patient
        self.threads = thread_count(search.threads)
        # Its own: threads that wait for each other must all be running.
        self.pool = ThreadPoolExecutor(self.threads, thread_name_prefix="goffish-louvain")
        self.random = np.random.default_rng(search.seed)
        self.passes: list[int] = []
        self.most_levels = min(_MOST_LEVELS, search.max_levels or _MOST_LEVELS)

    def move(
        self,
        level: Level,
        labels: Labels,
        tolerance: float,
        fixed: NDArray[np.uint8] | None,
        active: NDArray[np.uint8] | None = None,
    ) -> float:
        """Local moving; gives the modularity gained."""
        search, at = self.search, len(self.passes) + 1
        report = None
        if self.progress is not None:
            listener = self.progress

            def report(number: int, gain: float) -> None:
                listener(at, number, gain)

        effort = Effort(max(tolerance, search.threshold), search, self.threads, self.patient)
        passes, gain = move(level, labels, effort, self.random, self.pool, fixed, active, report)
        self.passes.append(passes)
        return gain

    def louvain(self, first: Level, labels: Labels) -> Found:
        """Move, collapse, repeat; then move the vertices of every level once more, from the top down (`refine`)."""
        levels: list[Level] = []
        steps: list[Labels] = []
        held = [self.fixed]
        tolerance, quality, level = _FIRST_TOLERANCE, -np.inf, first
        while len(steps) < self.most_levels:
            if steps:
                labels = singletons(level)
            self.move(level, labels, tolerance, held[-1])
            count = number_labels(labels)
            if count == level.num_vertices and steps:
                break
            steps.append(labels)
            levels.append(level)
            held.append(_any_fixed(held[-1], labels, count))
            level = collapse(level, labels, count, self.threads)
            before, quality = quality, level.modularity(self.search.resolution)
            if quality - before <= self.search.threshold:
                break
            tolerance /= _TOLERANCE_DROP
        labels = steps[-1]
        levels.pop()
        if self.search.refine == "vertices":
            labels, _ = self._descend(levels, steps, labels, held, _REFINE_TOLERANCE)
        else:
            for step in reversed(steps[:-1]):
                labels = look_up(labels, step)
        return self._found(first, labels, steps)

    def leiden(self, first: Level, labels: Labels) -> Found:
        """Move, refine into connected pieces, collapse these, repeat (Traag, Waltman and van Eck 2019).

        On the way down the vertices of every level move once more. The whole is done again from there if single
        vertices have won much by that or, where a scan is one block and soon done, still win anything by another.
        """
        steps: list[Labels] = []
        self.move(first, labels, _LEIDEN_TOLERANCE, self.fixed)
        for iteration in range(_ITERATIONS):
            steps, gain = self._climb(first, labels)
            if iteration + 1 == _ITERATIONS:
                break
            if block_count(first.num_arcs) > 1:
                again = gain > _MUCH
            else:
                again = self.move(first, labels, _LEIDEN_TOLERANCE, self.fixed) > _ANYTHING
            if not again:
                break
        return self._found(first, self._connected(first, labels), steps or [labels.copy()])

    def _climb(self, first: Level, labels: Labels) -> tuple[list[Labels], float]:
        """Collapse the refined pieces of `labels` and go on moving them, up and down; `labels` change in place.

        Gives the steps and what single vertices gained at the end.
        """
        levels, held = [first], [self.fixed]
        steps: list[Labels] = []
        tolerance, here = _LEIDEN_TOLERANCE, labels.copy()
        while len(steps) < self.most_levels:
            pieces = self.grow_pieces(levels[-1], here, number_labels(here))
            number = number_labels(pieces)
            if number == levels[-1].num_vertices:
                break
            above = np.empty(number, labels.dtype)
            above[pieces] = here
            here = above
            steps.append(pieces)
            held.append(_any_fixed(held[-1], pieces, number))
            levels.append(collapse(levels[-1], pieces, number, self.threads))
            tolerance /= _LEIDEN_DROP
            self.move(levels[-1], here, tolerance, held[-1])
        levels.pop()
        labels[:], gain = self._descend(levels, steps, here, held, _LEIDEN_TOLERANCE)
        return steps, gain

    def _descend(
        self,
        levels: list[Level],
        steps: list[Labels],
        labels: Labels,
        held: list[NDArray[np.uint8] | None],
        tolerance: float,
    ) -> tuple[Labels, float]:
        """Carry labels from above the last of `levels` down to the first; on each, those at borders move once more.

        Gives the labels and the gain on the first level. `levels` is emptied on the way, so that the memory of a level
        serves the next.
        """
        border, gain = None, 0.0
        while levels:
            below, step = levels.pop(), steps[len(levels)]
            labels = look_up(labels, step)
            border = None if border is None else look_up(border, step)
            gain = self.move(below, labels, tolerance, held[len(levels)], border)
            border = at_borders(below, labels, self.threads) if levels else None
        return labels, gain

    def grow_pieces(self, level: Level, labels: Labels, count: int) -> Labels:
        """Connected pieces of the communities, each grown from single vertices."""
        n = level.num_vertices
        # In the order of the vertices, refinement would prefer the same ones on every level.
        members = list_members(level, labels, count, self.random.permutation(n))
        pieces = singletons(level)
        state = np.zeros(2 * n, level.degree.dtype)
        state[1::2] = level.degree
        in_totals = level.in_degree.copy()
        widest = int(np.diff(level.offsets.view(np.int64)).max(initial=0))
        scale = level.scale(self.search.resolution)
        run_tasks(
            refine_kernels.refine_communities,
            [
                (
                    level.arcs, level.degree, level.in_degree, labels, members, first, last, scale, pieces, state,
                    in_totals, widest,
                )
                for first, last in cut_rows(members.space, 4 * self.threads)
            ],
            self.threads,
        )  # fmt: skip
        return pieces

    def _connected(self, level: Level, labels: Labels) -> Labels:
        """Give every connected component of a community a separate label, which never loses modularity.

        Pieces with fixed vertices of one community stay together.
        """
        pieces = connected_parts(level, labels)
        if self.fixed is not None:
            held = np.flatnonzero(self.fixed)
            community, first = np.unique(labels[held], return_index=True)
            leader = pieces[held[first]]
            joined = np.arange(labels.size).astype(labels.dtype)
            joined[pieces[held]] = leader[np.searchsorted(community, labels[held])]
            pieces = joined[pieces]
        return pieces

    def _found(self, first: Level, labels: Labels, steps: list[Labels]) -> Found:
        number_labels(labels)
        modularity = first.modularity_of(labels, self.search.resolution, self.threads)
        return Found(labels.astype(np.int64), modularity, tuple(steps), tuple(self.passes))


def singletons(level: Level) -> Labels:
    return np.arange(level.num_vertices).astype(level.targets.dtype)


def at_borders(level: Level, labels: Labels, threads: int) -> NDArray[np.uint8]:
    """Vertices with a neighbor in another community: no other can win by moving, nor what was collapsed into it."""
    flags = np.empty(level.num_vertices, np.uint8)
    tasks = [(level.arcs, labels, *rows, flags) for rows in level.row_ranges()]
    run_tasks(merge_kernels.has_foreign_neighbour, tasks, threads)
    return flags


def _any_fixed(fixed: NDArray[np.uint8] | None, labels: Labels, count: int) -> NDArray[np.uint8] | None:
    """Which vertices of the next level hold a fixed one."""
    return None if fixed is None else (totals(fixed.astype(np.int64), labels, count) > 0).astype(np.uint8)
