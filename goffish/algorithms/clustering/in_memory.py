"""Triangles and core numbers of a whole graph in one process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.clustering import kernels
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.threads import interruptible

_Numbers = NDArray[np.integer[Any]]
#: Steps of one task, less than 0.1 s where each misses the caches: Ctrl-C takes effect between two tasks.
STEPS = 1 << 20


def triangles_of(graph: Graph, *, threads: int | None = None) -> tuple[NDArray[np.int64], _Numbers]:
    """Triangles through each vertex, and its number of distinct other neighbors; both of shape (n,)."""
    graph = graph.to_undirected()
    workers = thread_count(threads)
    degree, _, place, _ = by_degree(graph)
    offsets = np.zeros(degree.size + 1, np.int64)
    targets = np.empty(graph.num_arcs // 2 + 1, graph.targets.dtype)
    kernels.orient(graph.offsets, graph.targets, degree, place, offsets, targets)
    work = np.zeros_like(offsets)
    kernels.intersection_work(offsets, targets, work)
    # Whole numbers add up exactly, so it does not matter which thread counts which range.
    bounds = balanced_rows(work, max(workers, int(work[-1]) // STEPS))
    partial = np.zeros((workers, degree.size), np.int64)
    free = [(np.full(degree.size, -1, targets.dtype), partial[i]) for i in range(workers)]

    def count(first: int, last: int) -> None:
        mark, own = free.pop()
        kernels.count_triangles(offsets, targets, first, last, mark, own)
        free.append((mark, own))

    run_tasks(count, list(pairwise(bounds.tolist())), workers)
    return partial.sum(axis=0)[place], degree


def triangles(graph: Graph, *, threads: int | None = None) -> Result:
    """Count the triangles through each vertex.

    Parameters
    ----------
    graph : Graph
        Seen as simple and undirected: directions, self-loops and parallel arcs are ignored.
    threads : int, optional
        Default: all processors.

    Returns
    -------
    Result
        Columns ``vertex`` and ``triangles``. Summary: ``total`` (each triangle once), ``average_clustering`` (mean of
        triangles / (d (d - 1) / 2) over all vertices, 0 where d < 2) and ``transitivity`` (3 · total / paths of length
        two), both as in networkx.
    """
    count, degree = triangles_of(graph, threads=threads)
    return triangles_result(graph.label_column(), count, degree)


def triangles_result(labels: pa.Array, count: NDArray[np.int64], degree: _Numbers) -> Result:
    """The result of `triangles` for numbers of triangles and of distinct neighbors."""
    table = pa.table({"vertex": labels, "triangles": pa.array(count)})
    return Result("triangles", table, coefficients(count, degree)[1])


def clustering_result(labels: pa.Array, count: NDArray[np.int64], degree: _Numbers) -> Result:
    """The result of `clustering` for numbers of triangles and of distinct neighbors."""
    local, summary = coefficients(count, degree)
    columns = {"vertex": labels, "clustering": local, "triangles": count, "neighbors": degree.astype(np.int64)}
    return Result("clustering", pa.table(columns), summary)


def coefficients(count: NDArray[np.int64], degree: _Numbers) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Local clustering coefficients, shape (n,), and what follows for the graph."""
    wide = degree.astype(np.float64)
    pairs = wide * (wide - 1) / 2
    closed = np.divide(count, pairs, out=np.zeros_like(pairs), where=pairs > 0)
    paths = float(pairs.sum())
    total = int(count.sum()) // 3
    return closed, {
        "total": total,
        "average_clustering": float(closed.mean()) if closed.size else 0.0,
        "transitivity": 3 * total / paths if paths else 0.0,
    }


def cores_of(graph: Graph) -> tuple[_Numbers, _Numbers]:
    """Core number of each vertex, and the order in which vertices are removed to find them; both of shape (n,)."""
    graph = graph.to_undirected()
    core, order, place, starts = by_degree(graph)
    interruptible(graph.num_arcs, kernels.peel, graph.offsets, graph.targets, order, place, starts, core)
    return core, order


def core_numbers(graph: Graph) -> Result:
    """Find the largest k for which each vertex lies in a subgraph where all degrees are at least k.

    Parameters
    ----------
    graph : Graph
        Seen as simple and undirected: directions, self-loops and parallel arcs are ignored.

    Returns
    -------
    Result
        Columns ``vertex`` and ``core``. Summary: ``degeneracy`` (the largest core number) and ``innermost`` (how many
        vertices have it).
    """
    return cores_result(graph.label_column(), cores_of(graph)[0])


def cores_result(labels: pa.Array, core: _Numbers) -> Result:
    """The result of `core_numbers` for core numbers."""
    core = core.astype(np.int64, copy=False)
    degeneracy = int(core.max()) if core.size else 0
    table = pa.table({"vertex": labels, "core": pa.array(core)})
    innermost = int(np.count_nonzero(core == degeneracy))
    return Result("core_numbers", table, {"degeneracy": degeneracy, "innermost": innermost})


def by_degree(graph: Graph) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """Simple degrees; vertices in ascending order of them; each vertex's place in it; each degree's start."""
    n, kind = graph.num_vertices, graph.targets.dtype
    degree, order, place = np.empty(n, kind), np.empty(n, kind), np.empty(n, kind)
    kernels.simple_degrees(graph.offsets, graph.targets, degree)
    starts = np.zeros(int(degree.max()) + 2 if n else 2, kind)
    kernels.sort_by_degree(degree, starts, order, place)
    return degree, order, place, starts
