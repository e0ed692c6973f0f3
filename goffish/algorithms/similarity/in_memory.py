"""Similarity of vertices of a whole graph by their common neighbors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.clustering.kernels import intersection_work, simple_degrees
from goffish.algorithms.similarity import kernels
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.assembly import assemble
from goffish.graph.columns import as_table
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count

Metric = Literal["jaccard", "common_neighbors", "overlap", "cosine", "adamic_adar", "resource_allocation"]
_Numbers = NDArray[np.integer[Any]]

#: Steps of one task: Ctrl-C takes effect between two tasks.
STEPS = 1 << 21
_DIVISORS = {"jaccard": kernels.UNION, "overlap": kernels.SMALLER, "cosine": kernels.MEAN}


class _Neighbors:
    """Rows without directions, loops and repeated neighbors, and what each common neighbor counts."""

    def __init__(self, graph: Graph, metric: Metric, threads: int | None) -> None:
        graph = graph.to_undirected()
        degree = np.empty(graph.num_vertices, graph.targets.dtype)
        simple_degrees(graph.offsets, graph.targets, degree)
        if int(degree.sum(dtype=np.int64)) < graph.num_arcs:
            src, dst, _, _ = graph.edge_columns()
            graph = Graph(*assemble(src, dst, None, graph.num_vertices, False, "drop", "min", None, None, None))
        weight = np.ones(degree.size)
        if metric in ("adamic_adar", "resource_allocation"):
            # A common neighbor has two neighbors at least, and no other is counted.
            wide = np.maximum(degree, 2).astype(np.float64)
            weight = 1.0 / (np.log(wide) if metric == "adamic_adar" else wide)
        self.offsets, self.degree, self.n = graph.offsets, degree, degree.size
        self.rows = graph.offsets, graph.targets, degree, weight
        self.divisor = _DIVISORS.get(metric, kernels.NOTHING)
        self.threads = thread_count(threads)

    def of_pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.empty(first.size)
        work = np.zeros(first.size + 1, np.int64)
        np.cumsum(self.degree[first] + self.degree[second], out=work[1:], dtype=np.int64)

        def answer(begin: int, end: int) -> None:
            kernels.pair_scores(self.rows, self.divisor, first, second, begin, end, out)

        run_tasks(answer, self._tasks(work), self.threads)
        return out

    def of_each(self, top: int) -> tuple[_Numbers, _Numbers, NDArray[np.float64]]:
        """First and second vertices, and similarities, of the best pairs of each vertex."""
        work = self._work()
        starts = np.zeros(self.n + 1, np.int64)
        np.cumsum(np.minimum(np.diff(work), top), out=starts[1:])
        best, ids = np.empty(starts[-1]), np.empty(starts[-1], self.rows[1].dtype)
        counts = np.zeros(self.n, np.int64)
        free = [self._scratch() for _ in range(self.threads)]

        def answer(begin: int, end: int) -> None:
            scratch = free.pop()
            kernels.top_of_each(self.rows, self.divisor, begin, end, top, scratch, starts, counts, best, ids)
            free.append(scratch)

        run_tasks(answer, self._tasks(work), self.threads)
        kept = np.arange(best.size) < np.repeat(starts[:-1] + counts, np.diff(starts))
        return np.repeat(np.arange(self.n), counts), ids[kept], best[kept]

    def of_all(self, top: int) -> tuple[_Numbers, _Numbers, NDArray[np.float64]]:
        """First and second vertices, and similarities, of the best pairs."""
        work = self._work()
        width = min(top, int(work[-1]))
        heaps = [(np.zeros(1, np.int64), np.empty(width), np.empty(width, np.int64)) for _ in range(self.threads)]
        free = [(self._scratch(), heap) for heap in heaps]

        def answer(begin: int, end: int) -> None:
            scratch, heap = free.pop()
            kernels.top_of_all(self.rows, self.divisor, begin, end, scratch, *heap)
            free.append((scratch, heap))

        run_tasks(answer, self._tasks(work), self.threads)
        best = np.concatenate([values[: int(size[0])] for size, values, _ in heaps])
        pairs = -np.concatenate([ids[: int(size[0])] for size, _, ids in heaps])
        order = np.lexsort((pairs, -best))[:top]
        first, second = np.divmod(pairs[order], max(self.n, 1))
        return first, second, best[order]

    def _work(self) -> NDArray[np.int64]:
        work = np.zeros_like(self.offsets)
        intersection_work(self.offsets, self.rows[1], work)
        return work

    def _tasks(self, work: NDArray[np.int64]) -> list[tuple[int, int]]:
        bounds = balanced_rows(work, max(self.threads, int(work[-1]) // STEPS))
        return [(a, b) for a, b in pairwise(bounds.tolist()) if a < b]

    def _scratch(self) -> tuple[NDArray[np.float64], _Numbers]:
        return np.zeros(self.n), np.empty(self.n, self.rows[1].dtype)


def scores_of(
    graph: Graph, first: NDArray[np.int64], second: NDArray[np.int64], metric: Metric, *, threads: int | None = None
) -> NDArray[np.float64]:
    """Similarities of pairs of vertex numbers."""
    return _Neighbors(graph, metric, threads).of_pairs(first, second)


def similarity(
    graph: Graph, pairs: Any = None, *, metric: Metric = "jaccard", top: int = 10, each: bool = True,
    threads: int | None = None,
) -> Result:  # fmt: skip
    """The result of `goffish.similarity`."""
    found: tuple[_Numbers, _Numbers, NDArray[np.float64]]
    if pairs is not None:
        first, second = _ends(graph, pairs)
        found = first, second, scores_of(graph, first, second, metric, threads=threads)
    else:
        neighbors = _Neighbors(graph, metric, threads)
        found = neighbors.of_each(top) if each else neighbors.of_all(top)
    source, target, values = found
    columns = {"source": graph.labels_of(source), "target": graph.labels_of(target), "similarity": values}
    summary = {"pairs": values.size, "largest": float(values.max(initial=0.0))}
    return Result("similarity", pa.table(columns), summary)


def _ends(graph: Graph, pairs: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Vertex numbers of the columns of pairs."""
    if isinstance(pairs, tuple) and len(pairs) == 2:
        columns = list(pairs)
    else:
        table = as_table(pairs, "pairs")
        for name in ("source", "target"):
            if name not in table.column_names:
                raise InputError(f"pairs: no column {name!r}; available: {', '.join(table.column_names)}")
        columns = [table.column(name) for name in ("source", "target")]
    first, second = (graph.find(column) for column in columns)
    if first.size != second.size:
        raise InputError(f"pairs: source has {first.size:,} rows, target has {second.size:,}")
    return first, second
