"""Truss numbers of a whole graph in one process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.clustering import kernels, truss_kernels
from goffish.algorithms.clustering.in_memory import STEPS
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count

_Numbers = NDArray[np.integer[Any]]


def trusses_of(graph: Graph, *, threads: int | None = None) -> tuple[_Numbers, _Numbers]:
    """Ends of each edge between different vertices, shape (2, m), in ascending order; and its truss number, shape (m,).

    Directions and parallel edges are ignored.
    """
    graph, workers = graph.to_undirected(), thread_count(threads)
    n, kind = graph.num_vertices, graph.targets.dtype
    degree = np.empty(n, kind)
    kernels.simple_degrees(graph.offsets, graph.targets, degree)
    rows = np.zeros(n + 1, np.int64)
    np.cumsum(degree, out=rows[1:])
    m = int(rows[-1]) // 2
    numbers: Any = np.int32 if max(m, n) < 1 << 31 else np.int64
    middle, neighbors, edges = np.empty(n, np.int64), np.empty(2 * m, kind), np.empty(2 * m, numbers)
    sources = np.empty((2, m), kind)
    truss_kernels.number_edges(graph.offsets, graph.targets, degree, rows, middle, neighbors, edges, sources)
    support = _support(rows, middle, neighbors, edges, workers)
    scratch = (
        rows[1:].copy(), *(np.full(n, -1, numbers) for _ in range(2)), *(np.empty(m, numbers) for _ in range(4)),
        np.zeros(m, np.bool_),
    )  # fmt: skip
    truss_kernels.peel_edges(rows, neighbors, edges, sources, degree, support, scratch)
    support += 2
    return sources, support


def _support(
    rows: NDArray[np.int64], middle: NDArray[np.int64], neighbors: _Numbers, edges: _Numbers, workers: int
) -> _Numbers:
    """Number of triangles of each edge."""
    work = np.zeros_like(rows)
    truss_kernels.triangle_work(rows, middle, neighbors, work)
    bounds = balanced_rows(work, max(workers, int(work[-1]) // STEPS))
    partial = np.zeros((workers, edges.size // 2), neighbors.dtype)
    free = [(np.full(middle.size, -1, edges.dtype), partial[i]) for i in range(workers)]

    def count(first: int, last: int) -> None:
        mark, own = free.pop()
        truss_kernels.count_support(rows, middle, neighbors, edges, first, last, mark, own)
        free.append((mark, own))

    run_tasks(count, list(pairwise(bounds.tolist())), workers)
    support: _Numbers = partial[0]
    for other in partial[1:]:
        support += other
    return support


def truss_numbers(graph: Graph, *, threads: int | None = None) -> Result:
    """The result of `goffish.truss_numbers`."""
    (source, target), truss = trusses_of(graph, threads=threads)
    columns = {"source": graph.labels_of(source), "target": graph.labels_of(target), "truss": truss.astype(np.int64)}
    largest = int(truss.max(initial=0))
    summary = {"largest": largest, "innermost": int(np.count_nonzero(truss == largest))}
    return Result("truss_numbers", pa.table(columns), summary)
