"""Betweenness of the vertices and edges of a graph in memory: exact scores, and results as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.algorithms.betweenness.blocks import Running, Sums, run_blocks
from goffish.algorithms.betweenness.checkpoint import SavedSums, fingerprint
from goffish.algorithms.betweenness.plan import FOR_DIRECTED, FOR_EDGES, FOR_WEIGHTS, LAYOUTS, REDUCTIONS, Plan, Removed
from goffish.algorithms.betweenness.problem import Floats, Problem, measured_problem
from goffish.algorithms.betweenness.sampling import Estimate
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.guards import path_name
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
    **running: Any,
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
        Whether paths are measured by the weights; by default if the graph has weights. Paths of equal length are found
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
        Fold hanging trees, cut at cut vertices, make one edge of every chain of vertices with two neighbors (where
        there are many), join vertices with the same neighbors, search only once from vertices whose neighbors are all
        adjacent; bring the vertices into breadth-first order, search from several sources at a time. All exact. Chains,
        twins and sides need an undirected graph without weights, sides also all sources and targets, leaves and blocks
        an undirected graph, batches no weights; otherwise they are passed over.
    **running
        ``threads``, ``time_limit``, ``checkpoint_dir``, ``resume``, ``progress``: see `Running`. With a time limit, the
        scores may be estimates (see `Betweenness.done`), unbiased for random sources.

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
    sums = _sums(plan, Running(**running), problem, "betweenness", chosen, ends=ends)
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
    **running: Any,
) -> Betweenness:
    """Betweenness of every edge: the share of shortest paths that use it, summed over pairs of vertices.

    Parameters
    ----------
    graph, weighted, sources, targets, reductions, **running
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
    sums = _sums(plan, Running(**running), problem, "edge_betweenness", chosen)
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


def _chosen(reductions: Literal["all"] | Iterable[str]) -> tuple[str, ...]:
    known = (*REDUCTIONS, *LAYOUTS)
    wanted = known if reductions == "all" else (reductions,) if isinstance(reductions, str) else tuple(reductions)
    for name in wanted:
        if name not in known:
            raise InputError(f"reductions: unknown name {name!r}; accepted: 'all', or any of {', '.join(known)}")
    return tuple(name for name in known if name in wanted)


def _sums(
    plan: Plan, running: Running, problem: Problem, algorithm: str, chosen: tuple[str, ...], **options: bool
) -> Sums:
    """Run the searches of a plan; checkpoints identify the job by the problem and the options."""
    folder, kept = running.checkpoint_dir, None
    if folder is not None:
        identity = {
            "graph": fingerprint(problem), "algorithm": algorithm, "reductions": list(chosen), **options,
            "goffish": __version__,
        }  # fmt: skip
        kept = SavedSums(path_name(folder, "checkpoint_dir"), running.resume, identity)
    elif running.resume:
        raise InputError("resume requires checkpoint_dir")
    return run_blocks(plan.searches, running, kept)


def exact_result(graph: Graph, found: Betweenness, top: int | None) -> Result:
    """The scores of vertices, of all or the `top` ones; columns ``vertex`` and ``betweenness``."""
    table = pa.table({"vertex": graph.label_column(), "betweenness": pa.array(found.scores)})
    return Result("betweenness", only_top(table, top), _saved(found))


def edge_result(graph: Graph, found: Betweenness) -> Result:
    """The scores of edges; columns ``source``, ``target`` and ``betweenness``."""
    labels, (source, target, _, _) = graph.label_column(), graph.edge_columns()
    ends = {"source": labels.take(pa.array(source)), "target": labels.take(pa.array(target))}
    table = pa.table({**ends, "betweenness": pa.array(found.scores)})
    return Result("edge_betweenness", table, _saved(found))


def sampled_table(labels: pa.Array, found: Estimate, pairs: float) -> pa.Table:
    """Estimates in numbers of pairs with proved bounds; columns ``vertex``, ``betweenness``, ``least`` and ``most``."""
    return pa.table({
        "vertex": labels,
        "betweenness": pa.array(found.score * pairs),
        "least": pa.array(np.maximum(found.score - found.below, 0.0) * pairs),
        "most": pa.array((found.score + found.above) * pairs),
    })  # fmt: skip


def _saved(found: Betweenness) -> dict[str, Any]:
    """What each reduction saved, as a share of the work, and the share that was left to search."""
    shares = {f"removed_by_{entry.reduction}": round(entry.share, 4) for entry in found.removed}
    estimated = {} if found.done == 1.0 else {"searches_done": round(found.done, 4)}
    return shares | {"searched": round(found.share_left, 4)} | estimated


def only_top(table: pa.Table, top: int | None) -> pa.Table:
    """The `top` rows of largest betweenness in falling order, ties as in the table; ``None``: all rows as they are."""
    if top is None:
        return table
    row = pa.array(np.arange(table.num_rows))
    keys = pa.table({"value": table["betweenness"], "row": row})
    order = pc.sort_indices(keys, [("value", "descending"), ("row", "ascending")])
    return table.take(order[:top])
