"""What is left to search between two reductions, and how scores of a smaller problem become those of a larger one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import reduction_kernels as kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.kernels.csr import NO_WEIGHTS, Csr

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def grouped(groups: Indices, values: NDArray[Any], count: int) -> Floats:
    """Sum of `values` in each of `count` groups."""
    sums: Floats = np.bincount(groups, values, count).astype(np.float64, copy=False)
    return sums


class VertexWeights(NamedTuple):
    """What the vertices of a problem count for: float64, shape (n,) each.

    Attributes
    ----------
    out, into
        Weight of each vertex as a source and as a target.
    times
        Vertices of the graph that a path can choose from here.
    """

    out: Floats
    into: Floats
    times: Floats

    def at(self, vertices: Indices) -> VertexWeights:
        """Those of some vertices."""
        return VertexWeights(self.out[vertices], self.into[vertices], self.times[vertices])


@dataclass(frozen=True, eq=False)
class Problem:
    """A simple graph whose vertices stand for several of the graph asked about.

    The score of a vertex v is the sum over ordered pairs (s, t) of vertices other than v of
    ``out[s] · into[t] · (share of the shortest paths from s to t through v)``, a path counting ``times`` of each inner
    vertex fold.

    Attributes
    ----------
    offsets, targets, weights
        Rows as in `Graph`; targets unsigned; weights empty without weights. Rows ascend.
    out, into, times
        See `VertexWeights`.
    directed : bool
    """

    offsets: Indices
    targets: NDArray[np.unsignedinteger[Any]]
    weights: Floats
    out: Floats
    into: Floats
    times: Floats
    directed: bool

    @property
    def num_vertices(self) -> int:
        return self.offsets.size - 1

    @property
    def num_arcs(self) -> int:
        return self.targets.size

    @property
    def weighted(self) -> bool:
        return self.weights.size > 0

    @property
    def arcs(self) -> Csr:
        return Csr(self.offsets, self.targets, self.weights)

    @property
    def unsigned_arcs(self) -> Csr:
        """Arcs whose offsets are unsigned too, so that kernels index without a test for negative numbers."""
        return Csr(self.offsets.view(np.uint64), self.targets, self.weights)

    @property
    def vertices(self) -> VertexWeights:
        return VertexWeights(self.out, self.into, self.times)

    @cached_property
    def reverse(self) -> Problem:
        """The problem with every arc turned round; an undirected one is its own reverse."""
        if not self.directed:
            return self
        return self._turned()[0]

    def _turned(self) -> tuple[Problem, Indices]:
        offsets, targets = np.zeros_like(self.offsets), np.empty_like(self.targets)
        weights, arc_of = np.empty_like(self.weights), np.empty(self.num_arcs, np.int64)
        kernels.turn_rows(self.offsets, self.targets, self.weights, offsets, targets, weights, arc_of)
        return replace(self, offsets=offsets, targets=targets, weights=weights), arc_of

    @cached_property
    def pieces(self) -> tuple[Indices, Indices, Indices]:
        """Components: the vertices component by component, each breadth first from a vertex of largest degree; the
        component of each vertex, shape (n,); the first place of each component and the end.

        Components of a directed problem are the weak ones.
        """
        n = self.num_vertices
        seeds = np.argsort(-np.diff(self.offsets), kind="stable")
        order, number, bounds = np.empty(n, np.int64), np.full(n, -1), np.empty(n + 1, np.int64)
        back = self.reverse
        count = kernels.components(
            self.offsets, self.targets, back.offsets, back.targets, not self.directed, seeds, order, number, bounds
        )
        return order, number, bounds[: count + 1]

    def totals(self) -> tuple[Floats, Floats]:
        """Weight of the component of every vertex, as sources and as targets."""
        _, number, bounds = self.pieces
        count = bounds.size - 1
        return grouped(number, self.out, count)[number], grouped(number, self.into, count)[number]

    def work(self, sources: NDArray[np.bool_] | None = None) -> float:
        """Arcs that searches from all sources would visit."""
        _, number, bounds = self.pieces
        count = bounds.size - 1
        arcs = np.bincount(number, np.diff(self.offsets), count)
        searched = self.out > 0 if sources is None else sources
        return float(np.bincount(number, searched, count) @ arcs)

    def keep(self, order: Indices) -> tuple[Problem, Indices]:
        """The problem on the vertices of `order`, in that order, and the old arc of every arc of it."""
        number = np.full(self.num_vertices, -1)
        number[order] = np.arange(order.size)
        offsets, targets = np.zeros(order.size + 1, np.int64), np.empty_like(self.targets)
        weights, arc_of = np.empty_like(self.weights), np.empty(self.num_arcs, np.int64)
        arcs = kernels.keep_rows(
            self.offsets, self.targets, self.weights, order, number, offsets, targets, weights, arc_of
        )
        smaller = Problem(
            offsets, targets[:arcs], weights[:arcs], self.out[order], self.into[order], self.times[order], self.directed
        )  # fmt: skip
        return smaller, arc_of[:arcs]

    def sorted_rows(self) -> tuple[Problem, Indices]:
        """The same undirected problem with ascending rows, and an old arc, in either direction, of every arc."""
        return self._turned()


@dataclass(frozen=True, eq=False)
class Step:
    """One reduction: what remains, and how to get from its scores to those of the problem before.

    Attributes
    ----------
    smaller : Problem
    closed : float64, shape (n before,)
        The part of the scores that the reduction itself gives.
    place : int64, shape (k,), origin : int64 or slice, factor : float64 or 1
        ``score[place[i]] += factor[i] · smaller_score[origin[i]]``.
    arc_of : int64, shape (smaller arcs,)
        Arc of the problem before of every arc, in one of its two directions; empty where arcs do not correspond.
    closed_arcs : float64, shape (arcs before,)
        As `closed`, for edges; each edge at one of its two arcs. Empty where arcs do not correspond.
    """

    smaller: Problem
    closed: Floats
    place: Indices
    origin: Indices | slice
    factor: Floats | float
    arc_of: Indices
    closed_arcs: Floats

    def expand(self, score: Floats) -> Floats:
        """Scores of the vertices before the reduction."""
        return self.closed + np.bincount(self.place, self.factor * score[self.origin], self.closed.size)

    def expand_arcs(self, score: Floats) -> Floats:
        """Scores of the arcs before the reduction."""
        return self.closed_arcs + np.bincount(self.arc_of, score, self.closed_arcs.size)


def problem_of(graph: Graph, weighted: bool, out: Floats, into: Floats) -> tuple[Problem, Indices]:
    """The problem that a graph sets, and its arc for each of the graph (-1: a self-loop or a longer parallel arc)."""
    targets = graph.targets.view(np.uint32 if graph.targets.itemsize == 4 else np.uint64)
    weights = graph.weights if weighted and graph.weights is not None else NO_WEIGHTS
    if weighted:
        check_range(graph.weights)
    offsets, kept = np.zeros_like(graph.offsets), np.empty_like(targets)
    kept_weights, arc_of = np.empty_like(weights), np.empty(graph.num_arcs, np.int64)
    arcs = kernels.simple_rows(graph.offsets, targets, weights, offsets, kept, kept_weights, arc_of)
    times = np.ones(graph.num_vertices)
    return Problem(offsets, kept[:arcs], kept_weights[:arcs], out, into, times, graph.directed), arc_of


def measured_problem(graph: Graph, weighted: bool | None, sources: Any, targets: Any) -> tuple[Problem, Indices]:
    """As `problem_of` for paths from and to the labels given (``None``: all vertices), measured by weights or not."""
    if weighted and graph.weights is None:
        raise InputError("weighted=True: the graph has no weights; set weighted=False or use a graph with weights")
    measured = graph.weights is not None and weighted is not False
    if measured and graph.weights is not None:
        bad = np.flatnonzero(~((graph.weights > 0) & np.isfinite(graph.weights)))
        if bad.size:
            raise InputError(
                f"weight {graph.weights[bad[0]]}: betweenness requires positive, finite weights; "
                "set weighted=False to ignore them"
            )
        check_range(graph.weights)
        # Paths of equal weights are as long as they have edges.
        measured = bool(graph.num_arcs and np.ptp(graph.weights) > 0)
    return problem_of(graph, measured, _mass(graph, sources, "sources"), _mass(graph, targets, "targets"))


def _mass(graph: Graph, labels: Any, name: str) -> Floats:
    if labels is None:
        return np.ones(graph.num_vertices)
    if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
        raise InputError(f"{name}={labels!r}: expected a list of vertex labels")
    mass = np.zeros(graph.num_vertices)
    wanted = labels if isinstance(labels, np.ndarray) else list(labels)
    if len(wanted):
        mass[graph.find(wanted)] = 1.0
    return mass
