"""Closeness and harmonic centrality of a graph in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.problem import Floats, Indices, problem_of
from goffish.algorithms.closeness.kernels import Sums
from goffish.algorithms.closeness.searches import Progress, sums_at_all, sums_at_few
from goffish.errors import InputError
from goffish.graph import Graph

#: A search by itself costs about as much as so many that run together.
_TOGETHER = 64


@dataclass(frozen=True, eq=False)
class Centrality:
    """Scores, and what they were made from.

    Attributes
    ----------
    vertices : int64, shape (k,)
        Vertex numbers of those asked about, ascending and each once.
    scores : float64, shape (k,)
    total : float64, shape (k,)
        Sum of the distances from all sources that reach the vertex from elsewhere; for harmonic centrality of their
        inverses.
    reached : int64, shape (k,)
        How many sources these are.
    """

    vertices: Indices
    scores: Floats
    total: Floats
    reached: Indices


def closeness(
    graph: Graph,
    *,
    weighted: bool | None = None,
    wf_improved: bool = True,
    vertices: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Centrality:
    """Closeness of every vertex: one over the mean distance from the vertices that reach it.

    Distances of directed graphs are inward, as in networkx. A vertex that nothing reaches has 0. The searches run
    hundreds at a time (Then et al., VLDB 2014) without weights, else one by one (Dijkstra). Scores do not depend on the
    number of threads.

    Parameters
    ----------
    graph : Graph
        Self-loops and all but the lightest of parallel arcs make no difference.
    weighted : bool, optional
        Whether distances are sums of weights; by default if the graph has weights.
    wf_improved : bool
        Multiply by the share of the other vertices that reach it (Wasserman and Faust 1994, equation 5.22), so that
        vertices of small components do not come out on top.
    vertices : array-like of labels, optional
        Only the scores of these; few of them are found sooner.
    threads : int, optional
        Default: all processors.
    progress : callable, optional
        Called in the caller's thread with the work done and all work to do.

    Returns
    -------
    Centrality

    Raises
    ------
    InputError
        An unknown label, or ``weighted=True`` without weights.
    """
    wanted, sums = _sums(graph, weighted, vertices, None, False, threads, progress)
    total, reached = sums.total[wanted], sums.reached[wanted]
    found = total > 0.0
    scores = np.zeros(wanted.size)
    scores[found] = reached[found] / total[found]
    if wf_improved and graph.num_vertices > 1:
        scores *= reached / (graph.num_vertices - 1)
    return Centrality(wanted, scores, total, reached)


def harmonic(
    graph: Graph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    vertices: Any = None,
    sources: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Centrality:
    """Harmonic centrality of every vertex: the sum of one over the distance from each other vertex.

    What is out of reach, or 0 away, adds nothing (Boldi and Vigna 2014, §3.2, and as in networkx). Distances of
    directed graphs are inward.

    Parameters
    ----------
    graph, weighted, vertices, threads, progress
        As in `closeness`.
    normalized : bool
        Divide by the number of other vertices, n - 1.
    sources : array-like of labels, optional
        Only distances from these.

    Returns
    -------
    Centrality

    Raises
    ------
    InputError
        As `closeness`.
    """
    wanted, sums = _sums(graph, weighted, vertices, sources, True, threads, progress)
    total, reached = sums.total[wanted], sums.reached[wanted]
    scores = total / (graph.num_vertices - 1) if normalized and graph.num_vertices > 1 else total
    return Centrality(wanted, scores, total, reached)


def _sums(
    graph: Graph,
    weighted: bool | None,
    vertices: Any,
    sources: Any,
    inverse: bool,
    threads: int | None,
    progress: Progress | None,
) -> tuple[Indices, Sums]:
    """Numbers of the vertices asked about, and sums at all vertices."""
    if weighted and graph.weights is None:
        raise InputError("weighted=True: the graph has no weights; set weighted=False or use a graph with weights")
    wanted, counted = _mask(graph, vertices, "vertices"), _mask(graph, sources, "sources")
    chosen = np.flatnonzero(wanted)
    measured = graph.weights is not None and weighted is not False and not bool((graph.weights == 1.0).all())
    if not measured and chosen.size * _TOGETHER < np.count_nonzero(counted):
        return chosen, sums_at_few(graph, chosen, counted, inverse, threads, progress)
    nothing = np.zeros(graph.num_vertices)
    problem, _ = problem_of(graph, measured, nothing, nothing)
    return chosen, sums_at_all(problem, wanted, counted, inverse, threads, progress)


def _mask(graph: Graph, labels: Any, name: str) -> NDArray[np.bool_]:
    if labels is None:
        return np.ones(graph.num_vertices, np.bool_)
    if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
        raise InputError(f"{name}={labels!r}: expected a list of vertex labels")
    mask = np.zeros(graph.num_vertices, np.bool_)
    wanted = labels if isinstance(labels, np.ndarray) else list(labels)
    if len(wanted):
        mask[graph.find(wanted)] = True
    return mask
