"""Infomap: communities that shorten the map equation, found by moves, collapses and refinement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import flow_kernels as kernels
from goffish.algorithms.communities.communities import Communities, make_communities
from goffish.algorithms.communities.divisions import modularity
from goffish.algorithms.communities.in_memory import at_borders, singletons
from goffish.algorithms.communities.levels import Labels, Level, collapse, connected_parts, look_up, number_labels
from goffish.algorithms.communities.map_equation import Flows, flows_of
from goffish.algorithms.communities.moving import shuffled_chunks
from goffish.graph import Graph
from goffish.graph.parallel import run_tasks, thread_count

#: Called after every iteration: its number, and the bits by which it shortened the code.
InfomapProgress = Callable[[int, float], None]

#: Bits per step below which a pass over the vertices is the last: on the way up, and on the way down.
_UP, _DOWN = 1e-4, 1e-5
_MOST_PASSES, _MOST_ITERATIONS = 20, 50


def infomap(
    graph: Graph,
    *,
    damping: float = 0.85,
    seed: int | None = 0,
    trials: int = 1,
    threshold: float = 2e-3,
    threads: int | None = None,
    progress: InfomapProgress | None = None,
) -> Communities:
    """The communities of a graph in memory; options as for `goffish.infomap`, already checked."""
    workers = thread_count(threads)
    flows = flows_of(graph, damping, workers)
    random = np.random.default_rng(seed).spawn(trials)
    # Threads share the trials, or where there is only one, its collapses.
    tasks = [(flows, threshold, one, workers if trials == 1 else 1, progress) for one in random]
    found = run_tasks(_search, tasks, workers)
    length, labels, passes = min(found, key=lambda one: one[0])
    number_labels(labels)
    membership = labels.astype(np.int64)
    return make_communities(
        graph, [membership], membership=membership, modularity=modularity(graph, membership), algorithm="infomap",
        summary_extra={"codelength": length, "passes": passes},
    )  # fmt: skip


def _search(
    flows: Flows, threshold: float, random: np.random.Generator, threads: int, progress: InfomapProgress | None
) -> tuple[float, Labels, int]:
    """Code length, communities and passes over vertices of one search.

    Every connected component of a community becomes one itself, which never makes the code longer: with the entropy
    of mixing ``H(a, b) = f(a + b) - f(a) - f(b)``, joining two modules without arcs between them adds ``H(leave +
    through) - H(leave) - H(enter)``, which is not negative, as H is superadditive and nothing enters a module without
    flowing through it.
    """
    run = _Run(flows, random, threads)
    labels = singletons(flows.level)
    gain, number = run.climb(labels, refine=False), 0
    while True:
        number += 1
        if progress is not None:
            progress(number, gain)
        if gain <= threshold or number == _MOST_ITERATIONS:
            break
        gain = run.climb(labels, refine=True)
    # Not longer than the code of the connected components.
    divisions = [connected_parts(flows.level, one) for one in (labels, np.zeros_like(labels))]
    lengths = [flows.code_length(one) for one in divisions]
    best = 0 if lengths[0] <= lengths[1] else 1
    return lengths[best], divisions[best], run.passes


class _Run:
    """One search."""

    def __init__(self, flows: Flows, random: np.random.Generator, threads: int) -> None:
        self.flows, self.random, self.threads, self.passes = flows, random, threads, 0

    def move(
        self,
        level: Level,
        labels: Labels,
        tolerance: float,
        marks: NDArray[np.uint8] | None = None,
        within: Labels | None = None,
    ) -> float:
        """Move vertices between modules; `labels`, below n, change in place. Gives the bits gained.

        Vertices for which `marks` is 0 move only after a neighbor did; with `within`, vertices join only neighbors of
        the same value.
        """
        flows, n = self.flows, level.num_vertices
        if not level.num_arcs or flows.total == 0.0:
            return 0.0
        modules, values, entering = flows.modules(level, labels)
        if marks is None:
            marks = np.ones(n, np.uint8)
        state = modules, values, flows.table, entering, marks, np.empty(level.widest + 1, labels.dtype)
        chunk, order = shuffled_chunks(level, self.random)
        # Sums of logarithms of about all flow are rounded by as much.
        least = 2.0**-50 * flows.total * max(np.log2(flows.total), 1.0)
        settings = np.uint64(chunk), tolerance * flows.total, least, _MOST_PASSES
        bound = labels[:0] if within is None else within
        passes, gain = kernels.move_along(level.parts, labels, bound, state, order, settings)
        self.passes += int(passes)
        return float(gain) / flows.total

    def climb(self, labels: Labels, *, refine: bool) -> float:
        """Collapse, move, and repeat; then move the vertices of every level once more, from the top down.

        With `refine`, begins with communities, `labels`, and collapses on each level their parts, found by moves from
        single vertices that stay inside; the parts then move between communities. Gives the bits gained, about.
        """
        levels: list[Level] = []
        steps: list[Labels] = []
        level, here, gain = self.flows.level, labels, 0.0
        if not refine:
            gain = self.move(level, here, _UP)
        while True:
            parts = here
            if refine:
                number_labels(here)
                parts = singletons(level)
                self.move(level, parts, _UP, within=here)
            count = number_labels(parts)
            if count == level.num_vertices:
                break
            levels.append(level)
            steps.append(parts)
            level = collapse(level, parts, count, self.threads)
            above = singletons(level)
            if refine:
                above[parts] = here
            here = above
            gain += self.move(level, here, _UP)
        while levels:
            level = levels.pop()
            here = look_up(here, steps.pop())
            gain += self.move(level, here, _DOWN, at_borders(level, here, self.threads))
        labels[:] = here
        return gain
