"""Exact betweenness of the vertices and edges of a graph in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.problem import Floats, Problem, Step, problem_of
from goffish.algorithms.betweenness.reductions import (
    drop_sides,
    fold_leaves,
    join_twins,
    side_targets,
    side_vertices,
    split_blocks,
)
from goffish.algorithms.betweenness.searches import Progress, Scores, Watch, search
from goffish.errors import InputError
from goffish.graph import Graph

#: Every reduction, in the order in which a round applies them.
REDUCTIONS = ("leaves", "blocks", "twins", "sides")
_FOR_EDGES = ("leaves", "blocks")
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


@dataclass(frozen=True, eq=False)
class Betweenness:
    """Scores, and how they were found.

    Attributes
    ----------
    scores : float64
        One per vertex in vertex order, or one per edge in the order of `Graph.edge_columns`.
    removed : tuple of Removed
        One per reduction that was applied.
    work : float
        Arc visits without reductions.
    """

    scores: Floats
    removed: tuple[Removed, ...]
    work: float

    @property
    def share_left(self) -> float:
        """Share of the arc visits that remained to be done."""
        return 1.0 - sum(entry.share for entry in self.removed)


def betweenness(
    graph: Graph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    endpoints: bool = False,
    sources: Any = None,
    targets: Any = None,
    reductions: Literal["all"] | Iterable[str] = "all",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Betweenness:
    """Betweenness of every vertex: the share of shortest paths that pass it, summed over pairs of other vertices.

    An undirected pair counts once, a directed pair once per direction; unreachable pairs count nothing (networkx and
    igraph do the same; NetworKit counts undirected pairs twice). Brandes' algorithm (2001) with several sources at a
    time, on what exact reductions leave of the graph. Scores do not depend on the number of threads.

    Parameters
    ----------
    graph : Graph
        Self-loops and all but the lightest of parallel arcs are ignored.
    weighted : bool, optional
        Whether paths are measured by the weights; by default if the graph has weights. Paths of equal length are told
        by exact equality of float64 sums.
    normalized : bool
        Divide by the number of pairs of other vertices, (n - 1)(n - 2), halved for undirected graphs; with `endpoints`
        by the number of pairs of vertices.
    endpoints : bool
        Count a pair for its two ends as well.
    sources, targets : array-like of labels, optional
        Only paths from and to these vertices (all by default). Pairs are ordered ones then; for an undirected graph,
        half their sum is given, as networkx does.
    reductions : "all" or some of "leaves", "blocks", "twins", "sides"
        Fold hanging trees, cut at cut vertices, join vertices with the same neighbours, search only once from vertices
        whose neighbours are all adjacent. All exact. Twins and sides need an undirected graph without weights, sides
        also all sources and targets, leaves and blocks an undirected graph; otherwise they are passed over.
    threads : int, optional
        Default: all processors.
    progress : callable, optional
        Called in the caller's thread with the arc visits done and those to do.

    Returns
    -------
    Betweenness

    Raises
    ------
    InputError
        A weight that is not positive and finite, an unknown label or reduction, ``weighted=True`` without weights.
    """
    chosen = _chosen(reductions, REDUCTIONS)
    n = graph.num_vertices
    problem, _ = _problem(graph, weighted, sources, targets)
    closed_ends = endpoints and not graph.directed
    if graph.directed:
        chosen = ()
    elif problem.weighted:
        chosen = tuple(name for name in chosen if name in _FOR_EDGES)
    plan = _Plan(problem, chosen, sides=sources is None and targets is None)
    watch = Watch(plan.work_left, progress)
    score = plan.vertex_scores(watch, endpoints and not closed_ends, threads)
    if closed_ends:
        all_out, all_into = problem.totals()
        score += problem.out * (all_into - problem.into) + (all_out - problem.out) * problem.into
    scale = 1.0 if graph.directed else 0.5
    if normalized:
        pairs = n * (n - 1) if endpoints else (n - 1) * (n - 2)
        scale = 1.0 / pairs if pairs > 0 else 1.0
    return Betweenness(scale * score, plan.removed, plan.work)


def edge_betweenness(
    graph: Graph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    sources: Any = None,
    targets: Any = None,
    reductions: Literal["all"] | Iterable[str] = "all",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Betweenness:
    """Betweenness of every edge: the share of shortest paths that use it, summed over pairs of vertices.

    Parameters
    ----------
    graph, weighted, sources, targets, reductions, threads, progress
        As in `betweenness`; leaves and blocks are the reductions that apply to edges.
    normalized : bool
        Divide by the number of pairs of vertices, n (n - 1), halved for undirected graphs.

    Returns
    -------
    Betweenness
        One score per edge, in the order of `Graph.edge_columns`. A self-loop has 0; of parallel edges the lightest
        ones share the score of their place equally and the others have 0, as in networkx.

    Raises
    ------
    InputError
        As `betweenness`.
    """
    chosen = _chosen(reductions, REDUCTIONS)
    n = graph.num_vertices
    problem, arc_of = _problem(graph, weighted, sources, targets)
    plan = _Plan(problem, () if graph.directed else tuple(name for name in chosen if name in _FOR_EDGES), sides=False)
    by_arc = plan.arc_scores(Watch(plan.work_left, progress), threads)
    kept = arc_of >= 0
    parallel = np.bincount(arc_of[kept], minlength=problem.num_arcs)
    score = np.zeros(graph.num_arcs)
    score[kept] = (by_arc / np.maximum(parallel, 1))[arc_of[kept]]
    if not graph.directed:
        score = _undirected(graph, score)
    scale = 1.0 if graph.directed else 0.5
    if normalized and n > 1:
        scale = 1.0 / (n * (n - 1))
    return Betweenness(scale * score, plan.removed, plan.work)


def _undirected(graph: Graph, score: Floats) -> Floats:
    """Sum of the two arcs of every edge, in the order of `Graph.edge_columns`."""
    source = graph.arc_sources()
    # The arcs u → v with u > v, by v and then u, are the other halves of those with u < v in the order of the rows;
    # equal ones, parallel edges, keep their order on both sides.
    back = np.flatnonzero(source > graph.targets)
    back = back[np.lexsort((source[back], graph.targets[back]))]
    edges = np.flatnonzero(source <= graph.targets)
    total = score[edges]
    total[source[edges] < graph.targets[edges]] += score[back]
    return total


def _problem(graph: Graph, weighted: bool | None, sources: Any, targets: Any) -> tuple[Problem, NDArray[np.int64]]:
    if weighted and graph.weights is None:
        raise InputError("weighted=True: the graph has no weights; give weighted=False or a graph with weights")
    measured = graph.weights is not None and weighted is not False
    if measured and graph.weights is not None:
        bad = np.flatnonzero(~((graph.weights > 0) & np.isfinite(graph.weights)))
        if bad.size:
            raise InputError(
                f"weight {graph.weights[bad[0]]}: betweenness needs weights that are positive and finite; "
                "give weighted=False to ignore them"
            )
        # Paths of equal weights are as long as they have edges.
        measured = bool(graph.num_arcs and np.ptp(graph.weights) > 0)
    return problem_of(graph, measured, _mass(graph, sources, "sources"), _mass(graph, targets, "targets"))


def _mass(graph: Graph, labels: Any, name: str) -> Floats:
    if labels is None:
        return np.ones(graph.num_vertices)
    if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
        raise InputError(f"{name}={labels!r}: give a list of vertex labels")
    mass = np.zeros(graph.num_vertices)
    wanted = labels if isinstance(labels, np.ndarray) else list(labels)
    if len(wanted):
        mass[graph.find(wanted)] = 1.0
    return mass


def _chosen(reductions: Literal["all"] | Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    wanted = known if reductions == "all" else (reductions,) if isinstance(reductions, str) else tuple(reductions)
    for name in wanted:
        if name not in known:
            raise InputError(f"reductions: {name!r} is none; choose 'all' or some of {', '.join(known)}")
    return tuple(name for name in known if name in wanted)


class _Plan:
    """The reductions of one call, worked out, and the searches that are left."""

    def __init__(self, problem: Problem, chosen: tuple[str, ...], *, sides: bool) -> None:
        self.first = self.last = problem
        self.work = problem.work()
        self.steps: list[Step | tuple[Problem, NDArray[np.bool_]]] = []
        self.side_work = 0.0
        saved = dict.fromkeys(chosen, 0.0)
        for _ in range(_ROUNDS if chosen else 0):
            before = self.last.work()
            for name in chosen:
                if name != "sides" or sides:
                    saved[name] += self._reduce(name)
            if self.last.work() > (1.0 - _WORTHWHILE) * before:
                break
        unit = self.work if self.work > 0 else 1.0
        self.removed = tuple(Removed(name, value / unit) for name, value in saved.items())

    @property
    def work_left(self) -> float:
        return self.last.work() + self.side_work

    def _reduce(self, name: str) -> float:
        """Apply one reduction; gives the work it saves."""
        before, problem = self.work_left, self.last
        if name == "sides":
            side = side_vertices(problem)
            if not side.any():
                return 0.0
            self.steps.append((problem, side))
            self.side_work += problem.work(side & (problem.out > 0))
            self.last = drop_sides(problem, side, np.empty(0)).smaller
        else:
            step = _STEPS[name](problem)
            if step.smaller.num_arcs == problem.num_arcs and step.smaller.work() == problem.work():
                return 0.0
            self.steps.append(step)
            self.last = step.smaller
        return before - self.work_left

    def vertex_scores(self, watch: Watch, ends: bool, threads: int | None) -> Floats:
        score = search(self.last, self.last.out > 0, watch, ends=ends, threads=threads).vertices
        for step in reversed(self.steps):
            if isinstance(step, Step):
                score = step.expand(score)
            else:
                problem, side = step
                wider = replace(problem, into=side_targets(problem, side))
                own = search(wider, side & (problem.out > 0), watch, threads=threads).vertices
                score = drop_sides(problem, side, own).expand(score)
        watch.finish()
        return score

    def arc_scores(self, watch: Watch, threads: int | None) -> Floats:
        found: Scores = search(self.last, self.last.out > 0, watch, arcs=True, threads=threads)
        score = found.arcs
        for step in reversed(self.steps):
            assert isinstance(step, Step)
            score = step.expand_arcs(score)
        watch.finish()
        return score


_STEPS = {"leaves": fold_leaves, "blocks": split_blocks, "twins": join_twins}
