"""The sequential Louvain method: the baseline, and the second half of the partitioned one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import level_kernels as kernels
from goffish.algorithms.communities.hierarchy import compose
from goffish.algorithms.communities.levels import (
    Level,
    connected_parts,
    dense_ranks,
    half_edges,
    list_members,
    number_labels,
    undirected_level,
)
from goffish.algorithms.communities.settings import Order, Search, sequential_settings
from goffish.graph import Graph
from goffish.graph.guards import expect

#: Passes after which a level ends in any case. Every move gains modularity, so this only bounds pathological inputs.
MOST_PASSES = 1000


@dataclass(frozen=True, eq=False)
class Collapse:
    """What a level came to: `label` is the new vertex (0 … count-1) of each vertex, `graph` the collapsed graph."""

    label: NDArray[np.int64]
    graph: Level
    passes: int
    moves: int
    gain: float
    seconds: float
    modularity: float


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


def collapse_in_order(graph: Level, label: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], Level]:
    """COLLAPSE of section 3.1: labels renumbered in increasing order, and the graph between them.

    Differs from `goffish.algorithms.communities.levels.collapse` in the last digits of weights and of degrees.
    """
    names, compact = dense_ranks(label)
    labels = compact.astype(graph.targets.dtype)
    members = list_members(graph, labels, names.size)
    return compact, undirected_level(*kernels.collapse_rows(graph.arcs, graph.loops, labels, members))


def vertex_order(order: Order, graph: Level, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Vertices in the order of a level (docs/specs/communities.md, section 3.5), shape (n,).

    Parameters
    ----------
    order : {"random", "ascending", "descending", "neighbour", "natural"}
        Shuffled; by degree; neighbors of the vertices of largest degree first; by number.
    graph : Level
        A vertex's degree is its number of arcs, and ties go by number.
    key : tuple of int
        Seed of the shuffle: (seed, rank, level), so that ranks and levels draw different orders.
    """
    if order == "random":
        return np.random.default_rng(key).permutation(graph.num_vertices)
    if order == "natural":
        return np.arange(graph.num_vertices)
    offsets = graph.offsets.view(np.int64)
    degree = np.diff(offsets)
    if order == "ascending":
        return np.argsort(degree, kind="stable")
    descending = np.argsort(-degree, kind="stable")
    if order == "descending":
        return descending
    out = np.empty(degree.size, np.int64)
    kernels.neighbour_order(offsets, graph.targets, descending, out)
    return out


def run_level(
    graph: Level, search: Search, key: tuple[int, ...], start: NDArray[np.integer[Any]] | None = None
) -> Collapse:
    """LEVEL and COLLAPSE of section 3.1.

    Parameters
    ----------
    graph : Level
        Its degrees and total weight are those of the null model; a part of a larger graph may have those of that one.
    search : Search
    key : tuple of int
        Seed of the random order.
    start : int, shape (n,), optional
        Partition to begin with, labels below n; default singletons.
    """
    begun = time.perf_counter()
    n = graph.num_vertices
    kind = np.int32 if n < 2**31 else np.int64
    label: NDArray[np.integer[Any]] = (np.arange(n) if start is None else start).astype(kind)
    passes, moves, gain = 0, 0, 0.0
    if graph.total > 0.0:
        tot = graph.degree.copy() if start is None else np.bincount(label, graph.degree, n)
        order = vertex_order(search.order, graph, key)
        passes, moves, gain = kernels.move_vertices(
            graph.arcs, order, graph.degree, graph.total, search.resolution, search.threshold, MOST_PASSES, label, tot
        )
    if search.refine == "leiden":
        label = split_parts(graph, label)
    compact, small = collapse_in_order(graph, label)
    seconds = time.perf_counter() - begun
    return Collapse(compact, small, passes, moves, gain, seconds, small.modularity(search.resolution))


def split_parts(graph: Level, label: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Number the connected parts of every label by their first vertex."""
    parts = connected_parts(graph, label.astype(graph.targets.dtype))
    number_labels(parts)
    return parts.astype(np.int64)


def run_levels(graph: Level, search: Search, first: int = 1, key: tuple[int, ...] = (0,)) -> list[Collapse]:
    """LOUVAIN of section 3.1 from level number `first` on: levels that moved something, in order.

    Stops when a level moves nothing or gains at most the threshold, or at ``max_levels``.
    """
    levels: list[Collapse] = []
    while search.max_levels is None or first + len(levels) <= search.max_levels:
        level = run_level(graph, search, (search.seed or 0, *key, first + len(levels)))
        if not level.moves:
            break
        levels.append(level)
        if level.gain <= search.threshold:
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
    """The sequential Louvain method (Blondel et al. 2008; docs/specs/communities.md, section 3.1).

    Parameters
    ----------
    graph : Graph
        Directions are given up: a directed graph is analyzed as A + Aᵀ. A loop of weight w enters as A_ii = 2w.
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
    expect(graph, Graph, "graph", "expected a goffish Graph")
    search = sequential_settings(order, seed, eps, resolution, max_levels)
    begun = time.perf_counter()
    matrix = half_edges(graph)
    loaded = time.perf_counter() - begun
    levels = run_levels(matrix, search)
    if not levels:
        identity = np.arange(graph.num_vertices)
        seconds = time.perf_counter() - begun
        return LouvainRun((identity,), (matrix.modularity(resolution),), (0,), (seconds,), (identity.size,) * 2)
    seconds_by_level = [level.seconds for level in levels]
    seconds_by_level[0] += loaded
    return LouvainRun(
        tuple(level.label for level in levels),
        tuple(level.modularity for level in levels),
        tuple(level.passes for level in levels),
        tuple(seconds_by_level),
        (graph.num_vertices, *(level.graph.num_vertices for level in levels)),
    )
