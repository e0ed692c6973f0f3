"""Exact betweenness of the vertices and edges of a graph in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.blocks import Progress, run_blocks
from goffish.algorithms.betweenness.checkpoint import OwnerCache, fingerprint
from goffish.algorithms.betweenness.plan import FOR_DIRECTED, FOR_EDGES, FOR_WEIGHTS, LAYOUTS, REDUCTIONS, Plan, Removed
from goffish.algorithms.betweenness.problem import Floats, Problem, problem_of
from goffish.algorithms.timing import checked_limit
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.guards import path_name
from goffish.partial import local_path
from goffish.version import __version__


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
    done : float
        Share of the arc visits left that were made. Less than 1 only with a time limit: the scores are estimates then,
        from a random sample of the sources.
    """

    scores: Floats
    removed: tuple[Removed, ...]
    work: float
    done: float = 1.0

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
    time_limit: float | None = None,
    checkpoint_dir: str | Path | None = None,
    resume: bool = False,
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
    reductions : "all" or some of "leaves", "blocks", "chains", "twins", "sides", "order", "batches"
        Fold hanging trees, cut at cut vertices, make one edge of every chain of vertices with two neighbours (where
        there are many), join vertices with the same neighbours, search only once from vertices whose neighbours are all
        adjacent; bring the vertices into breadth-first order, search from several sources at a time. All exact. Chains,
        twins and sides need an undirected graph without weights, sides also all sources and targets, leaves and blocks
        an undirected graph, batches no weights; otherwise they are passed over.
    threads : int, optional
        Default: all processors.
    time_limit : float, optional
        Seconds after which no more searches are begun: the scores are then estimates (see `Betweenness.done`), unbiased
        for random sources.
    checkpoint_dir : path, optional
        Folder in which the sums are kept while they grow, and at Ctrl-C.
    resume : bool
        Go on from what `checkpoint_dir` holds, if anything.
    progress : callable, optional
        Called in the caller's thread with the arc visits done and those to do.

    Returns
    -------
    Betweenness

    Raises
    ------
    InputError
        A weight that is not positive and finite, an unknown label or reduction, ``weighted=True`` without weights, a
        checkpoint of another job.
    StoreError
        A checkpoint that is damaged or cannot be written.
    """
    chosen = _chosen(reductions)
    n = graph.num_vertices
    problem, _ = measured_problem(graph, weighted, sources, targets)
    ends = endpoints and graph.directed
    chosen = tuple(
        name
        for name in chosen
        if (not graph.directed or name in FOR_DIRECTED)
        and (not problem.weighted or name in FOR_WEIGHTS)
        and (name != "sides" or (sources is None and targets is None))
    )
    plan = Plan(problem, chosen, ends=ends)
    kept = _kept(checkpoint_dir, resume, problem, "betweenness", chosen, ends=ends)
    sums = run_blocks(plan.searches, threads, progress=progress, time_limit=checked_limit(time_limit), kept=kept)
    score = plan.vertex_scores(sums)
    if endpoints and not graph.directed:
        all_out, all_into = problem.totals()
        score += problem.out * (all_into - problem.into) + (all_out - problem.out) * problem.into
    scale = 1.0 if graph.directed else 0.5
    if normalized:
        pairs = n * (n - 1) if endpoints else (n - 1) * (n - 2)
        scale = 1.0 / pairs if pairs > 0 else 1.0
    return Betweenness(scale * score, plan.removed, plan.work, sums.share)


def edge_betweenness(
    graph: Graph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    sources: Any = None,
    targets: Any = None,
    reductions: Literal["all"] | Iterable[str] = "all",
    threads: int | None = None,
    time_limit: float | None = None,
    checkpoint_dir: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Betweenness:
    """Betweenness of every edge: the share of shortest paths that use it, summed over pairs of vertices.

    Parameters
    ----------
    graph, weighted, sources, targets, reductions, threads, time_limit, checkpoint_dir, resume, progress
        As in `betweenness`; leaves, blocks and order are those that apply to edges.
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
    allowed = FOR_DIRECTED if graph.directed else FOR_EDGES
    chosen = tuple(name for name in _chosen(reductions) if name in allowed)
    n = graph.num_vertices
    problem, arc_of = measured_problem(graph, weighted, sources, targets)
    plan = Plan(problem, chosen, arcs=True)
    kept = _kept(checkpoint_dir, resume, problem, "edge_betweenness", chosen)
    sums = run_blocks(plan.searches, threads, progress=progress, time_limit=checked_limit(time_limit), kept=kept)
    by_arc = plan.arc_scores(sums)
    used = arc_of >= 0
    parallel = np.bincount(arc_of[used], minlength=problem.num_arcs)
    score = np.zeros(graph.num_arcs)
    score[used] = (by_arc / np.maximum(parallel, 1))[arc_of[used]]
    if not graph.directed:
        score = _undirected(graph, score)
    scale = 1.0 if graph.directed else 0.5
    if normalized and n > 1:
        scale = 1.0 / (n * (n - 1))
    return Betweenness(scale * score, plan.removed, plan.work, sums.share)


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


def measured_problem(
    graph: Graph, weighted: bool | None, sources: Any, targets: Any
) -> tuple[Problem, NDArray[np.int64]]:
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


def _chosen(reductions: Literal["all"] | Iterable[str]) -> tuple[str, ...]:
    known = (*REDUCTIONS, *LAYOUTS)
    wanted = known if reductions == "all" else (reductions,) if isinstance(reductions, str) else tuple(reductions)
    for name in wanted:
        if name not in known:
            raise InputError(f"reductions: {name!r} is none; choose 'all' or some of {', '.join(known)}")
    return tuple(name for name in known if name in wanted)


def _kept(
    folder: str | Path | None, resume: bool, problem: Problem, algorithm: str, chosen: tuple[str, ...], **options: bool
) -> OwnerCache | None:
    if folder is None:
        if resume:
            raise InputError("resume needs checkpoint_dir")
        return None
    identity = {
        "graph": fingerprint(problem), "algorithm": algorithm, "reductions": list(chosen), **options,
        "goffish": __version__,
    }  # fmt: skip
    return OwnerCache(local_path(path_name(folder, "checkpoint_dir")), resume, identity)
