"""The graphs that Louvain works on: the input in the half-edge convention, and collapsed graphs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import level_kernels as row_kernels
from goffish.algorithms.communities import merge_kernels as kernels
from goffish.algorithms.communities import refine_kernels
from goffish.algorithms.weights import check_range
from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows, run_tasks
from goffish.kernels.csr import NO_WEIGHTS, Csr

#: Labels and vertex numbers, unsigned so that kernels index without a test for negative numbers.
Labels = NDArray[np.unsignedinteger[Any]]
#: Weights: counts of arcs where the graph has no weights (exact in any order), else float64.
Weights = NDArray[Any]

#: Numbers for each one that occurs, above which they are sorted and not looked up.
_SPARSE = 16
_ASCENDING = np.empty(0, np.int64)
_TASKS = 8
_ONE_TASK = 1 << 18  # arcs


@dataclass(frozen=True, eq=False)
class Level:
    """A symmetric weighted graph without loops, and beside it the loops and the degrees.

    A_ij is the weight of the edge between i and j, for a directed graph that of both arcs together. A_ii, in `loops`,
    counts every edge inside vertex i twice (docs/specs/communities.md, section 2), so that all entries together are
    `total`.

    Attributes
    ----------
    offsets : uint64, shape (n + 1,)
    targets : uint32 or uint64, shape (arcs,)
    weights : int32, int64 or float64, shape (arcs,); empty where every arc weighs 1
    loops : shape (n,); empty where there are none
    degree : shape (n,)
        Weighted degree with loops; for a directed graph the out-degree.
    in_degree : shape (n,); empty for an undirected graph
    total : float
        Sum of all A_ij.
    """

    offsets: NDArray[np.uint64]
    targets: Labels
    weights: Weights
    loops: Weights
    degree: Weights
    in_degree: Weights
    total: float

    @property
    def num_vertices(self) -> int:
        return self.offsets.size - 1

    @property
    def num_arcs(self) -> int:
        return self.targets.size

    @property
    def arcs(self) -> Csr:
        return Csr(self.offsets, self.targets, self.weights)

    @property
    def parts(self) -> tuple[Csr, Weights, Weights, Weights]:
        """Arcs, loops, degree and in-degree."""
        return self.arcs, self.loops, self.degree, self.in_degree

    @cached_property
    def widest(self) -> int:
        """Most arcs in one row."""
        return int(kernels.widest_row(self.offsets))

    def row_ranges(self) -> list[tuple[int, int]]:
        """Ranges of rows of about equal work for threads to share; they depend on the graph only."""
        return list(
            pairwise(balanced_rows(self.offsets.view(np.int64), 1 if self.num_arcs < _ONE_TASK else _TASKS).tolist())
        )

    def scale(self, resolution: float) -> float:
        """Factor of the null model in the gain of a move."""
        return 0.0 if self.total == 0.0 else resolution / (self.total / 2.0 if self.in_degree.size else self.total)

    def modularity(self, resolution: float) -> float:
        """Modularity with every vertex a community: that of the communities which the vertices stand for."""
        return self._modularity(float(self.loops.sum(dtype=np.float64)), self.degree, self.in_degree, resolution)

    def modularity_of(self, labels: Labels, resolution: float, threads: int) -> float:
        """Modularity of the communities `labels`, numbered from 0."""
        ranges = self.row_ranges()
        space = np.zeros((len(ranges), 8), self.degree.dtype)  # a cache line for each
        tasks = [(self.arcs, labels, *rows, place) for rows, place in zip(ranges, space, strict=True)]
        run_tasks(kernels.inside_weight, tasks, threads)
        inside = float(space[:, 0].sum(dtype=np.float64)) + float(self.loops.sum(dtype=np.float64))
        count = int(labels.max()) + 1 if labels.size else 0
        into = totals(self.in_degree, labels, count) if self.in_degree.size else self.in_degree
        return self._modularity(inside, totals(self.degree, labels, count), into, resolution)

    def _modularity(self, inside: float, out_total: Weights, in_total: Weights, resolution: float) -> float:
        if self.total == 0.0:
            return 0.0
        if in_total.size:
            half = self.total / 2.0
            return inside / self.total - resolution * float(np.sum((out_total / half) * (in_total / half)))
        share = out_total / self.total
        return inside / self.total - resolution * float(np.sum(share * share))


def from_graph(graph: Graph) -> Level:
    """The graph as level 0; a view of its arrays where they serve as they are."""
    check_range(graph.weights)
    if graph.directed:
        return _from_directed(graph)
    offsets, targets, weights = graph.offsets, graph.targets, graph.weights
    n = graph.num_vertices
    kind = _count_type(graph.num_arcs + n) if weights is None else np.dtype(np.float64)
    loops = np.zeros(0, kind)
    sources_of_loops, loop_weights, keep = _loops_and_nothings(graph)
    if keep is not None:
        loops = np.zeros(n, kind)
        np.add.at(loops, sources_of_loops, (2 * loop_weights).astype(kind))
        rows = graph.arc_sources()[keep]
        offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n))))
        targets = targets[keep]
        weights = None if weights is None else weights[keep]
    return undirected_level(offsets, targets, np.zeros(0, kind) if weights is None else weights, loops)


def undirected_level(offsets: NDArray[Any], targets: NDArray[Any], weights: Weights, loops: Weights) -> Level:
    """The level of symmetric rows and loops; degrees have the type of `weights`."""
    if weights.size:
        degree = np.zeros(offsets.size - 1, weights.dtype)
        kernels.row_sums(offsets, weights, degree)
    else:
        degree = np.diff(offsets).astype(weights.dtype)
    if loops.size:
        degree += loops
    return _level(offsets, targets, weights, loops, degree, np.zeros(0, weights.dtype))


def half_edges(graph: Graph) -> Level:
    """The graph as the sequential method and the engine see it: A, or A + Aᵀ for a directed one.

    Unlike `from_graph`, keeps arcs of weight 0, gives every arc of a directed graph two places, and adds up in float64.

    Raises
    ------
    InputError
        Weights out of range, see `goffish.algorithms.weights.check_range`.
    """
    check_range(graph.weights)
    n = graph.num_vertices
    offsets, targets, loops = graph.offsets, graph.targets, np.zeros(0)
    weights = NO_WEIGHTS if graph.weights is None else graph.weights
    if graph.directed or 2 * graph.num_edges != graph.num_arcs:  # a loop is one arc, another edge two
        sides = [graph, graph.reverse] if graph.directed else [graph]
        whole, position = np.array([0, n]), np.arange(n)
        offsets, loops = np.zeros(n + 1, np.int64), np.zeros(n)
        for side in sides:
            row_kernels.count_rows(whole, side.offsets, side.targets, position, offsets)
        np.cumsum(offsets, out=offsets)
        targets = np.empty(int(offsets[-1]), graph.targets.dtype)
        weights = NO_WEIGHTS if graph.weights is None else np.empty(targets.size)
        cursor = offsets[:-1].copy()
        for factor, side in zip((2.0, 0.0), sides, strict=False):
            given = NO_WEIGHTS if side.weights is None else side.weights
            row_kernels.fill_rows(
                whole, side.offsets, side.targets, given, factor, position, cursor, targets, weights, loops
            )
    return undirected_level(offsets, targets, weights, loops)


def _from_directed(graph: Graph) -> Level:
    n, back = graph.num_vertices, graph.reverse
    kind = _count_type(2 * graph.num_arcs) if graph.weights is None else np.dtype(np.float64)
    sides = [Csr(g.offsets, g.targets, NO_WEIGHTS if g.weights is None else g.weights) for g in (graph, back)]
    offsets, loops = np.zeros(n + 1, np.int64), np.zeros(n, kind)
    targets, weights = np.empty(2 * graph.num_arcs, graph.targets.dtype), np.empty(2 * graph.num_arcs, kind)
    kernels.merge_directions(*sides, offsets, targets, weights, loops)
    targets, weights = targets[: offsets[-1]], weights[: offsets[-1]]
    degrees = [np.diff(side.offsets).astype(kind) for side in sides]
    if graph.weights is not None:
        for side, degree in zip(sides, degrees, strict=True):
            degree[:] = 0
            kernels.row_sums(side.offsets, side.weights, degree)
    return _level(offsets, targets, weights, loops, *degrees)


def _level(
    offsets: NDArray[Any], targets: NDArray[Any], weights: Weights, loops: Weights, degree: Weights, in_degree: Weights
) -> Level:
    unsigned = np.uint32 if targets.dtype.itemsize == 4 else np.uint64
    total = float(degree.sum(dtype=np.float64)) + float(in_degree.sum(dtype=np.float64))
    return Level(
        offsets.view(np.uint64), np.ascontiguousarray(targets).view(unsigned), weights, loops, degree, in_degree, total
    )


def _loops_and_nothings(graph: Graph) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_] | None]:
    """Loops, and the arcs to keep (``None``: all); arcs of weight 0 do not exist for modularity."""
    nothing = np.zeros(0)
    loose = 2 * graph.num_edges - graph.num_arcs  # a loop is one arc, another edge two
    weightless = graph.weights is not None and not graph.weights.all()
    if not loose and not weightless:
        return nothing, nothing, None
    sources = graph.arc_sources()
    is_loop = sources == graph.targets
    keep = ~is_loop
    if graph.weights is not None:
        keep &= graph.weights > 0.0
    weight = np.ones(int(is_loop.sum())) if graph.weights is None else graph.weights[is_loop]
    return sources[is_loop], weight, keep


def _count_type(most: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if 2 * most < 2**31 else np.int64)


class Members(NamedTuple):
    """The vertices of every community: those of c are ``vertices[starts[c]:starts[c + 1]]``.

    ``space[c]`` counts the arcs of the communities before c.
    """

    starts: NDArray[np.int64]
    vertices: Labels
    space: NDArray[np.int64]


def list_members(level: Level, labels: Labels, count: int, order: NDArray[np.int64] = _ASCENDING) -> Members:
    """Group the vertices by their label, 0 … count-1, each group in the order of `order`."""
    starts, space = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    vertices = np.empty(level.num_vertices, labels.dtype)
    members = Members(starts, vertices, space)
    kernels.list_members(level.offsets, labels, order, members)
    return members


def cut_rows(space: NDArray[np.int64], threads: int) -> list[tuple[int, int]]:
    """A range of communities for each thread, with about equally many arcs; one range for a small graph.

    Only for work that treats every community by itself: the cuts depend on the number of threads.
    """
    arcs, parts = int(space[-1]), threads if space[-1] >= _ONE_TASK else 1
    cuts = np.searchsorted(space, np.arange(parts + 1) * (arcs / parts)).tolist()
    cuts[0], cuts[-1] = 0, space.size - 1
    return [(first, last) for first, last in pairwise(cuts) if first < last]


def collapse(level: Level, labels: Labels, count: int, threads: int) -> Level:
    """Make every community one vertex; `labels` are numbered 0 … count-1 without gaps."""
    members = list_members(level, labels, count)
    space = members.space
    cuts = cut_rows(space, threads)
    begins, widest, arcs = (
        space[[first for first, _ in cuts]].tolist(),
        int(np.diff(space).max(initial=0)),
        int(space[-1]),
    )
    kind = level.degree.dtype
    targets, weights = np.empty(arcs, labels.dtype), np.empty(arcs, kind)
    offsets, loops, degree = np.zeros(count + 1, np.int64), np.zeros(count, kind), np.zeros(count, kind)
    in_degree = np.zeros(count if level.in_degree.size else 0, kind)
    if level.loops.size:
        kernels.add_up(labels, level.loops, loops)
    kernels.add_up(labels, level.degree, degree)
    if in_degree.size:
        kernels.add_up(labels, level.in_degree, in_degree)
    into = (Csr(offsets[1:], targets, weights), loops)
    tasks = [(level.arcs, labels, members, widest, *cut, begin, *into) for cut, begin in zip(cuts, begins, strict=True)]
    run_tasks(kernels.merge_rows, tasks, threads)
    np.cumsum(offsets, out=offsets)
    for (first, last), there in zip(cuts, begins, strict=True):
        here = slice(offsets[first], offsets[last])
        for column in (targets, weights):
            column[here] = column[there : there + here.stop - here.start]
    targets.resize(int(offsets[-1]), refcheck=False)
    weights.resize(int(offsets[-1]), refcheck=False)
    return Level(offsets.view(np.uint64), targets, weights, loops, degree, in_degree, level.total)


def connected_parts(level: Level, labels: Labels) -> Labels:
    """Give every vertex the largest vertex that it is connected to inside its community; labels are below n."""
    parts, sizes, largest = np.empty((3, labels.size), labels.dtype)
    refine_kernels.connected_pieces(level.arcs, labels, parts, sizes, largest)
    return parts


def number_labels(labels: Labels) -> int:
    """Number labels by first appearance, in place; gives how many there are."""
    return int(kernels.renumber(labels, np.empty(labels.size, labels.dtype)))


def look_up(values: NDArray[Any], places: Labels) -> NDArray[Any]:
    """``values[places]``; indexing by unsigned numbers would copy them first."""
    out = np.empty(places.size, values.dtype)
    kernels.look_up(values, places, out)
    return out


def totals(values: Weights, labels: Labels, n: int) -> Weights:
    """Sum of `values` in each community, shape (n,)."""
    sums = np.zeros(n, values.dtype)
    kernels.add_up(labels, values, sums)
    return sums


def dense_ranks(values: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct values, ascending, and the rank of each value among them."""
    if not values.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low > _SPARSE * values.size:
        names, ranks = np.unique(values, return_inverse=True)
        return names.astype(np.int64, copy=False), ranks.astype(np.int64, copy=False)
    ranks = np.empty(values.size, np.int64)
    return row_kernels.rank_values(values, low, np.zeros(high - low + 1, np.int32), ranks), ranks
