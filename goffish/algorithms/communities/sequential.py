"""The sequential Louvain method: the baseline, and the second half of the partitioned one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import level_kernels as kernels
from goffish.algorithms.communities.orders import ORDERS, Order, vertex_order
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.guards import expect, whole_number

#: Passes after which a level ends in any case. Every move gains modularity, so this only bounds pathological inputs.
MOST_PASSES = 1000

#: Weights of arcs that all weigh 1.
UNIT = np.empty(0, np.float64)


@dataclass(frozen=True, eq=False)
class HalfEdges:
    """A symmetric matrix A by rows, in the half-edge convention (specification, section 2).

    Attributes
    ----------
    starts, ends : int64, shape (n,)
        Arcs of row i are ``targets[starts[i]:ends[i]]``, loops excepted.
    targets : int array
    weights : float64 array
        One per arc, or empty where every arc weighs 1.
    loops : float64, shape (n,)
        A_ii: twice the weight of the loop at i.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    targets: NDArray[np.integer[Any]]
    weights: NDArray[np.float64]
    loops: NDArray[np.float64]

    @property
    def size(self) -> int:
        return self.starts.size

    def degrees(self) -> NDArray[np.float64]:
        """Weighted degrees k_i, shape (n,); a loop counts twice."""
        degree = np.empty(self.size)
        kernels.row_sums(self.starts, self.ends, self.weights, self.loops, degree)
        return degree


@dataclass(frozen=True, eq=False)
class Level:
    """One level: `label` is the new vertex (0 … count-1) of each vertex, `graph` the collapsed matrix."""

    label: NDArray[np.int64]
    graph: HalfEdges
    passes: int
    moves: int
    gain: float
    seconds: float
    modularity: float


@dataclass(frozen=True)
class Rules:
    """What every level of a run shares."""

    order: Order = "random"
    seed: int = 0
    eps: float = 1e-6
    resolution: float = 1.0
    max_levels: int | None = None
    connected: bool = False

    def check(self) -> Rules:
        """Refuse values out of range, naming the option."""
        if self.order not in ORDERS:
            raise InputError(f"order={self.order!r}: choose one of {', '.join(ORDERS)}")
        whole_number(self.seed, "seed", 0)
        for name, value, least in (("eps", self.eps, 0.0), ("resolution", self.resolution, 0.0)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < np.inf:
                raise InputError(f"{name}={value!r}: give a finite number, at least 0")
        if self.max_levels is not None:
            whole_number(self.max_levels, "max_levels")
        return self


@dataclass(frozen=True, eq=False)
class LouvainRun:
    """The hierarchy that Louvain found, and how.

    Attributes
    ----------
    maps : tuple of int64 arrays
        ``maps[0]``, shape (n,), gives the level-1 community of each vertex, ``maps[l]`` the level-(l+1) community of
        each level-l community. At least one; singletons where nothing moved.
    modularity, passes, seconds : tuples, one value per level
        Of the partition of that level, of its passes (seconds include the collapse).
    sizes : tuple of int
        Vertices of the graph that each level worked on, and last the number of communities.
    """

    maps: tuple[NDArray[np.int64], ...]
    modularity: tuple[float, ...]
    passes: tuple[int, ...]
    seconds: tuple[float, ...]
    sizes: tuple[int, ...] = field(default=())

    @property
    def membership(self) -> NDArray[np.int64]:
        """Final community of each vertex, shape (n,)."""
        return compose(self.maps)

    @property
    def first_level_share(self) -> float:
        """Share of the time spent in the first level (the paper's Table I)."""
        total = sum(self.seconds)
        return self.seconds[0] / total if total > 0 else 1.0


def compose(maps: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
    """Final community of each vertex from the maps of the levels."""
    label = maps[0]
    for step in maps[1:]:
        label = step[label]
    return label


def half_edges(graph: Graph) -> HalfEdges:
    """The matrix of a graph: A for an undirected one, A + Aᵀ for a directed one.

    Raises
    ------
    InputError
        Weights out of range, see `goffish.algorithms.weights.check_range`.
    """
    check_range(graph.weights)
    if not graph.directed and not kernels.count_loops(graph.offsets, graph.targets):
        weights = UNIT if graph.weights is None else graph.weights
        found = HalfEdges(
            graph.offsets[:-1], graph.offsets[1:], graph.targets, weights, np.zeros(graph.num_vertices)
        )  # fmt: skip
    else:
        sides = [graph, graph.reverse] if graph.directed else [graph]
        offsets = np.zeros(graph.num_vertices + 1, np.int64)
        for side in sides:
            kernels.count_row_arcs(side.offsets, side.targets, offsets)
        np.cumsum(offsets, out=offsets)
        targets = np.empty(int(offsets[-1]), graph.targets.dtype)
        weights = UNIT if graph.weights is None else np.empty(targets.size)
        loops, cursor = np.zeros(graph.num_vertices), offsets[:-1].copy()
        for factor, side in zip((2.0, 0.0), sides, strict=False):
            given = UNIT if side.weights is None else side.weights
            kernels.fill_row_arcs(side.offsets, side.targets, given, factor, cursor, targets, weights, loops)
        found = HalfEdges(offsets[:-1], offsets[1:], targets, weights, loops)
    return found


def modularity_of(graph: HalfEdges, resolution: float = 1.0) -> float:
    """Modularity of the partition in which every vertex of a (collapsed) matrix is a community; 0 without edges."""
    degree = graph.degrees()
    two_m = float(degree.sum())
    if two_m <= 0.0:
        return 0.0
    return float(graph.loops.sum() / two_m - resolution * np.square(degree / two_m).sum())


def collapse(graph: HalfEdges, label: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], HalfEdges]:
    """COLLAPSE of section 3.1: labels renumbered in increasing order, and the matrix between them.

    Parameters
    ----------
    graph : HalfEdges
    label : int, shape (n,)
        Any numbers from 0 to below n.
    """
    compact = np.empty(label.size, np.int64)
    count = int(kernels.compact_labels(label, label.size, compact))
    offsets, targets, weights, loops = kernels.collapse_rows(
        graph.starts, graph.ends, graph.targets, graph.weights, graph.loops, compact, count
    )
    return compact, HalfEdges(offsets[:-1], offsets[1:], targets, weights, loops)


def run_level(
    graph: HalfEdges,
    rules: Rules,
    key: tuple[int, ...],
    start: NDArray[np.integer[Any]] | None = None,
    null_model: tuple[NDArray[np.float64], float] | None = None,
) -> Level:
    """LEVEL and COLLAPSE of section 3.1.

    Parameters
    ----------
    graph : HalfEdges
    rules : Rules
    key : tuple of int
        Seed of the random order.
    start : int, shape (n,), optional
        Partition to begin with, labels below n; default singletons.
    null_model : (degrees, 2m), optional
        Of a larger graph that this one is a part of; default: of this one.
    """
    begun = time.perf_counter()
    degree = graph.degrees() if null_model is None else null_model[0]
    two_m = float(degree.sum()) if null_model is None else null_model[1]
    kind = np.int32 if graph.size < 2**31 else np.int64
    label: NDArray[np.integer[Any]] = np.arange(graph.size) if start is None else start
    label = label.astype(kind)
    passes, moves, gain = 0, 0, 0.0
    if two_m > 0.0:
        tot = degree.copy() if start is None else np.bincount(label, degree, graph.size)
        order = vertex_order(rules.order, graph.starts, graph.ends, graph.targets, key)
        passes, moves, gain = kernels.move_vertices(
            graph.starts, graph.ends, graph.targets, graph.weights, order, degree, two_m, rules.resolution,
            rules.eps, MOST_PASSES, label, tot,
        )  # fmt: skip
    if rules.connected:
        pieces = np.empty(graph.size, np.int64)
        kernels.split_labels(graph.starts, graph.ends, graph.targets, label, pieces)
        label = pieces
    compact, small = collapse(graph, label)
    seconds = time.perf_counter() - begun
    return Level(compact, small, passes, moves, gain, seconds, modularity_of(small, rules.resolution))


def run_levels(graph: HalfEdges, rules: Rules, first: int = 1, key: tuple[int, ...] = (0,)) -> list[Level]:
    """LOUVAIN of section 3.1 from level number `first` on: levels that moved something, in order.

    Stops when a level moves nothing or gains at most ``eps``, or at ``max_levels``.
    """
    levels: list[Level] = []
    while rules.max_levels is None or first + len(levels) <= rules.max_levels:
        level = run_level(graph, rules, (rules.seed, *key, first + len(levels)))
        if not level.moves:
            break
        levels.append(level)
        if level.gain <= rules.eps:
            break
        graph = level.graph
    return levels


def sequential_louvain(
    graph: Graph,
    *,
    order: Order = "random",
    seed: int = 0,
    eps: float = 1e-6,
    resolution: float = 1.0,
    max_levels: int | None = None,
) -> LouvainRun:
    """The sequential Louvain method (Blondel et al. 2008; specification, section 3.1).

    Parameters
    ----------
    graph : Graph
        Directions are given up: a directed graph is analysed as A + Aᵀ. A loop of weight w enters as A_ii = 2w.
    order : {"random", "ascending", "descending", "neighbour", "natural"}
        In which order a level visits its vertices (section 3.5).
    seed : int
        Of the random order, together with the level.
    eps : float
        A pass, or a level, that gains at most this much modularity is the last one. A level also ends after
        `MOST_PASSES` passes.
    resolution : float
        Weight of the null model; above 1 communities get smaller.
    max_levels : int, optional
        Stop after this many levels.

    Returns
    -------
    LouvainRun

    Raises
    ------
    InputError
        An option out of range; weights out of range, see `goffish.algorithms.weights.check_range`.
    """
    expect(graph, Graph, "graph", "give a goffish Graph")
    rules = Rules(order, seed, eps, resolution, max_levels).check()
    begun = time.perf_counter()
    matrix = half_edges(graph)
    loaded = time.perf_counter() - begun
    levels = run_levels(matrix, rules)
    if not levels:
        identity = np.arange(graph.num_vertices)
        seconds = time.perf_counter() - begun
        return LouvainRun((identity,), (modularity_of(matrix, resolution),), (0,), (seconds,), (identity.size,) * 2)
    seconds_by_level = [level.seconds for level in levels]
    seconds_by_level[0] += loaded
    return LouvainRun(
        tuple(level.label for level in levels),
        tuple(level.modularity for level in levels),
        tuple(level.passes for level in levels),
        tuple(seconds_by_level),
        (graph.num_vertices, *(level.graph.size for level in levels)),
    )
