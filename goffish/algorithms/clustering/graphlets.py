"""Graphlet degrees of a whole graph in one process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.clustering import graphlet_kernels, kernels
from goffish.algorithms.clustering.in_memory import STEPS
from goffish.algorithms.clustering.motifs import Rows
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.threads import interruptible

_Counts = NDArray[np.int64]

#: The orbits of graphlets of up to four vertices.
ORBITS = 15


def _summed(
    work: NDArray[np.int64], workers: int, shape: tuple[int, ...], kind: Any, make: Callable[[], Any],
    count: Callable[[int, int, Any, Any], None],
) -> NDArray[Any]:  # fmt: skip
    """What `count(first, last, scratch, out)` adds to zeros for ranges of rows, on threads with arrays for each."""
    bounds = balanced_rows(work, max(workers, int(work[-1]) // STEPS))
    partial = np.zeros((workers, *shape), kind)
    free = [(make(), partial[i]) for i in range(workers)]

    def answer(first: int, last: int) -> None:
        scratch, out = free.pop()
        count(first, last, scratch, out)
        free.append((scratch, out))

    run_tasks(answer, list(pairwise(bounds.tolist())), workers)
    total: NDArray[Any] = partial[0]
    for other in partial[1:]:
        total += other
    return total


def orbits_of(graph: Graph, *, threads: int | None = None) -> tuple[_Counts, NDArray[np.bool_]]:
    """Orbits of each vertex, shape (15, n), and for which vertices the number of claws exceeds 64 bits."""
    workers, rows = thread_count(threads), Rows.of(graph)
    n, m, kind = rows.degree.size, rows.targets.size, rows.targets.dtype
    numbers: Any = np.int32 if m < 1 << 31 else np.int64
    longest = int(np.diff(rows.offsets).max(initial=0))
    forward, both = (rows.offsets, rows.targets), rows[2:]
    work = np.zeros_like(rows.offsets)
    kernels.intersection_work(*forward, work)
    support = _summed(
        work, workers, (m,), kind, lambda: np.full(n, -1, numbers),
        lambda a, b, mark, out: graphlet_kernels.edge_triangles(*forward, a, b, mark, out),
    )  # fmt: skip
    wings, cliques = _summed(
        work, workers, (2, n), np.int64,
        lambda: (np.full(n, -1, numbers), np.full(n, -1, numbers), np.empty(longest, kind)),
        lambda a, b, scratch, out: graphlet_kernels.corners(*forward, support, a, b, scratch, out[0], out[1]),
    )  # fmt: skip
    work = np.append(0, np.cumsum(rows.degree[rows.sources], dtype=np.int64))[rows.back_offsets]
    halves = _summed(
        work, workers, (n,), np.int64, lambda: np.zeros(n, kind),
        lambda a, b, paths, out: graphlet_kernels.cycle_corners(both, a, b, paths, out),
    )  # fmt: skip
    counts = np.zeros((ORBITS, n), np.int64)
    counts[7], large = _claws(rows.degree)
    counts[8], counts[12], counts[14] = halves // 2, wings, cliques
    interruptible(2 * m, graphlet_kernels.orbits, *forward, rows.degree, support, counts)
    # Exact numbers of claws of a few hubs: everything else of a vertex is below 2^63.
    hubs = np.flatnonzero(large)
    exact = _exact_claws(rows.degree[hubs]) - (counts[11, hubs] + counts[13, hubs] + counts[14, hubs])
    large[hubs] = exact >= 1 << 63
    return counts[:, rows.place], large[rows.place]


def _exact_claws(degree: NDArray[Any]) -> NDArray[Any]:
    wide = degree.astype(object)
    exact: NDArray[Any] = wide * (wide - 1) * (wide - 2) // 6
    return exact


def _claws(degree: NDArray[Any]) -> tuple[_Counts, NDArray[np.bool_]]:
    """Triples of neighbors of each vertex, wrapped around at 64 bits; and where that may have happened."""
    sizes, at = np.unique(degree, return_inverse=True)
    exact = _exact_claws(sizes)
    wrapped = (exact % (1 << 64)).astype(np.uint64).view(np.int64)
    return wrapped[at], (exact >= 1 << 63).astype(np.bool_)[at]


def graphlet_degrees(graph: Graph, *, threads: int | None = None) -> Result:
    """The result of `goffish.graphlet_degrees`."""
    counts, large = orbits_of(graph, threads=threads)
    columns = {f"orbit_{orbit}": pa.array(column) for orbit, column in enumerate(counts)}
    if large.any():
        columns["orbit_7"] = pa.array(counts[7], mask=large)
    return Result("graphlet-degrees", pa.table({"vertex": graph.label_column(), **columns}), {"orbits": ORBITS})
