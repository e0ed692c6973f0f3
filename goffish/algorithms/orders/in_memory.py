"""Topological orders and longest paths of a whole graph in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.orders import level_kernels
from goffish.algorithms.paths.pairs import arcs_of
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.threads import interruptible

#: Vertices of a cycle that a message names.
_NAMED = 10

_Numbers = NDArray[np.integer[Any]]


def levels_of(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The most arcs on a path to each vertex; and the arcs into each vertex that only cycles lead to, else 0."""
    n = graph.num_vertices
    waiting, level = np.zeros(n, np.int64), np.zeros(n, np.int64)
    order = np.empty(n, graph.targets.dtype)
    interruptible(graph.num_arcs, level_kernels.topological, graph.offsets, graph.targets, waiting, level, order)
    return level, waiting


def topological_order(graph: Graph) -> Result:
    """Order the vertices so that arcs lead forward; see `goffish.topological_order`."""
    order, level = _ordered(graph)
    table = pa.table({"vertex": graph.labels_of(order), "level": level[order]})
    return Result("topological-order", table, {"levels": int(level.max(initial=-1)) + 1})


def longest_path(graph: Graph) -> Result:
    """Find a longest path of a graph without cycles; see `goffish.longest_path`."""
    check_range(graph.weights)
    path, distance = path_through(graph)
    table = pa.table({"vertex": graph.labels_of(path), "distance": distance})
    summary = {"length": float(distance.max(initial=0.0)), "hops": max(path.size - 1, 0)}
    return Result("longest-path", table, summary)


def path_through(graph: Graph) -> tuple[_Numbers, NDArray[np.float64]]:
    """Vertex numbers of a longest path, and the distance of each from the first one."""
    order, _ = _ordered(graph)
    n = graph.num_vertices
    length, previous = np.zeros(n), np.full(n, -1, graph.targets.dtype)
    interruptible(graph.num_arcs, level_kernels.longest, arcs_of(graph), order, length, previous)
    path = np.empty(n, graph.targets.dtype)
    if n:
        path = path[level_kernels.walk_back(previous, int(length.argmax()), path) :]
    return path, length[path]


def _ordered(graph: Graph) -> tuple[_Numbers, NDArray[np.int64]]:
    """Vertex numbers by level, then number; and the level of each vertex."""
    if not graph.directed:
        raise InputError("graph is undirected: orders and longest paths are those of directed graphs without cycles")
    level, waiting = levels_of(graph)
    if waiting.any():
        raise InputError(f"graph has a cycle: {_cycle(graph, waiting)}")
    return np.argsort(level, kind="stable").astype(graph.targets.dtype), level


def _cycle(graph: Graph, waiting: NDArray[np.int64]) -> str:
    """The labels of a cycle, in the direction of the arcs."""
    n, back = graph.num_vertices, graph.reverse
    path = np.empty(n, graph.targets.dtype)
    size = level_kernels.find_cycle(back.offsets, back.targets, waiting, np.zeros(n, np.int64), path)
    shown = path[:size] if size <= _NAMED else path[:_NAMED]
    labels = [str(label) for label in graph.labels_of(shown).to_pylist()]
    rest = [labels[0]] if size <= _NAMED else [f"… ({size:,} vertices)"]
    return " -> ".join([*labels, *rest])
