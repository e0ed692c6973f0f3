"""Distances from several sources of a whole graph in one process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.paths import row_kernels
from goffish.algorithms.paths.in_memory import distances_from
from goffish.algorithms.paths.pairs import arcs_of
from goffish.algorithms.paths.row_kernels import Rows
from goffish.algorithms.weights import check_range
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import run_tasks, thread_count

#: Sources of a task, and arcs that its searches would look at without a cutoff.
_SOURCES, _ARCS = 256, 1 << 22

_Part = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]


def distances(
    graph: Graph, sources: Any, targets: Any, *, cutoff: float | None = None, threads: int | None = None
) -> Result:
    """Compute the distances between vertices along out-arcs; see `goffish.distances`."""
    check_range(graph.weights)
    n = graph.num_vertices
    chosen = np.arange(n) if sources is None else np.unique(graph.find(list(sources)))
    sought = np.ones(n, np.bool_)
    if targets is not None:
        sought[:] = False
        sought[graph.find(list(targets))] = True
    whole = targets is None and cutoff is None
    size = 1 if whole else _SOURCES if cutoff is not None else max(1, min(_SOURCES, _ARCS // (graph.num_arcs + 1)))
    blocks = [chosen[at : at + size] for at in range(0, chosen.size, size)]
    limit = np.inf if cutoff is None else float(cutoff)
    memory = threading.local()

    def search(block: NDArray[np.int64]) -> list[_Part]:
        if whole:
            return [_row(graph, int(block[0]))]
        if not hasattr(memory, "rows"):
            arcs = 0 if graph.weights is None else graph.num_arcs
            memory.rows = Rows.make(n, arcs, size, graph.targets.dtype)
        return _rows(graph, block, limit, sought, memory.rows)

    found = [part for parts in run_tasks(search, [(b,) for b in blocks], thread_count(threads)) for part in parts]
    empty: _Part = (np.empty(0, np.int64), np.empty(0, graph.targets.dtype), np.empty(0))
    source, target, distance = (np.concatenate([part[k] for part in (empty, *found)]) for k in range(3))
    table = pa.table(
        {"source": graph.labels_of(source), "target": graph.labels_of(target), "distance": pa.array(distance)}
    )
    return Result("distances", table, {"pairs": distance.size, "farthest": float(distance.max(initial=0.0))})


def _row(graph: Graph, source: int) -> _Part:
    """Distances to all vertices that can be reached."""
    distance, _ = distances_from(graph, source)
    reached = np.flatnonzero(np.isfinite(distance))
    return np.full(reached.size, source), reached.astype(graph.targets.dtype), distance[reached]


def _rows(graph: Graph, block: NDArray[np.int64], limit: float, sought: NDArray[np.bool_], rows: Rows) -> list[_Part]:
    found: list[_Part] = []
    first, wanted = 0, int(np.count_nonzero(sought))
    while first < block.size:
        next_first = row_kernels.find_rows(
            arcs_of(graph), block, first, limit, sought, wanted, graph.weights is not None, rows
        )
        counts = np.diff(rows.ends[first:next_first], prepend=0)
        source, count = np.repeat(block[first:next_first], counts), int(counts.sum())
        order = np.lexsort((rows.vertex[:count], source))
        found.append((source, rows.vertex[:count][order], rows.length[:count][order]))
        first = next_first
    return found
