"""Random walks and FastRP embeddings of a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.walks import kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.guards import check_memory
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.kernels.csr import NO_WEIGHTS

#: Steps of one task: Ctrl-C takes effect between two tasks.
STEPS = 1 << 19
#: Entries that no machine holds; arrays of up to as many fail for lack of memory, not for a number that is too large.
_MOST = 1 << 50


def walks_of(
    graph: Graph, *, length: int = 80, walks: int = 10, sources: Sequence[int | str] | None = None,
    weighted: bool = False, p: float = 1.0, q: float = 1.0, seed: int = 0, threads: int | None = None,
) -> NDArray[np.integer[Any]]:  # fmt: skip
    """The array of `goffish.random_walks`."""
    weights, workers = _weights(graph, weighted), thread_count(threads)
    starts = np.arange(graph.num_vertices) if sources is None else graph.find(list(sources))
    check_walks(starts.size, walks, length)
    try:
        out = np.empty((starts.size * walks, length + 1), graph.targets.dtype)
    except MemoryError:
        raise InputError(
            f"walks={walks}, length={length}: {starts.size * walks:,} walks do not fit in memory"
        ) from None
    sums = np.empty_like(weights)
    if weights.size:
        run_tasks(
            lambda a, b: kernels.accumulate(graph.offsets, weights, a, b, sums), _rows(graph, 1, workers), workers
        )
    rows, biases, key = (graph.offsets, graph.targets, sums), (1.0 / p, 1.0 / q), np.uint64(seed)
    size = max(STEPS // (length + 1), 1)
    tasks = [(a, min(a + size, len(out))) for a in range(0, len(out), size)]
    run_tasks(lambda a, b: kernels.walk(rows, starts, key, biases, a, b, out), tasks, workers)
    return out


def check_walks(sources: int, walks: int, length: int) -> None:
    """Refuse more walks than any array holds.

    Raises
    ------
    InputError
        There are too many.
    """
    if sources * walks * (length + 1) >= _MOST:
        raise InputError(f"walks={walks}, length={length}: {sources * walks:,} walks are too many for one array")


def random_walks(graph: Graph, **options: Any) -> Result:
    """The table of ``goffish run walks``: a row for each vertex of each walk."""
    found = walks_of(graph, **options)
    reached = found >= 0
    walk, step = np.nonzero(reached)
    columns = {"walk": walk, "step": step, "vertex": graph.labels_of(found[reached])}
    summary = {"walks": len(found), "steps": walk.size - len(found)}
    return Result("walks", pa.table(columns), summary)


def fastrp_of(
    graph: Graph, *, dimension: int = 128, iteration_weights: Sequence[float] = (0.0, 1.0, 1.0),
    degree_exponent: float = 0.0, weighted: bool = False, seed: int = 0, threads: int | None = None,
) -> NDArray[np.float32]:  # fmt: skip
    """The array of `goffish.fastrp`."""
    weights, workers, n = _weights(graph, weighted), thread_count(threads), graph.num_vertices
    check_memory(3 * 4 * n * dimension, f"dimension={dimension}: {n:,} vectors")
    ranges = _rows(graph, dimension, workers)

    def run(kernel: Callable[..., None], *arguments: Any, out: tuple[NDArray[np.float32], ...]) -> None:
        run_tasks(lambda a, b: kernel(*arguments, a, b, *out), ranges, workers)

    degree = np.maximum(graph.out_degrees, 1) / max(graph.num_arcs, 1)
    scale = np.power(degree, degree_exponent).astype(np.float32)
    try:
        found = np.zeros((n, dimension), np.float32)
        vectors, means = np.empty_like(found), np.empty_like(found)
    except MemoryError:
        raise InputError(f"dimension={dimension}: {n:,} vectors do not fit in memory") from None
    run(kernels.project, np.uint64(seed), scale, out=(vectors,))
    # Only proportions count: in single precision, weights as they are could overflow.
    weights = (weights / (float(weights.max(initial=0.0)) or 1.0)).astype(np.float32)
    rows = graph.offsets, graph.targets, weights
    if iteration_weights[0]:
        run(kernels.add_units, vectors, float(iteration_weights[0]), out=(found,))
    for factor in iteration_weights[1:]:
        run(kernels.average, rows, vectors, float(factor), out=(means, found))
        vectors, means = means, vectors
    return found


def fastrp(graph: Graph, **options: Any) -> Result:
    """The table of ``goffish run fastrp``: a column for each dimension."""
    found = fastrp_of(graph, **options)
    columns = {f"x{at}": np.ascontiguousarray(found[:, at]) for at in range(found.shape[1])}
    return Result("fastrp", pa.table({"vertex": graph.label_column(), **columns}), {"dimension": found.shape[1]})


def _weights(graph: Graph, weighted: bool) -> NDArray[np.float64]:
    if not weighted:
        return NO_WEIGHTS
    if graph.weights is None:
        raise InputError("weighted=True: the graph has no weights")
    check_range(graph.weights)
    return graph.weights


def _rows(graph: Graph, steps: int, workers: int) -> list[tuple[int, int]]:
    """Ranges of rows with some steps for each arc."""
    parts = max(workers, (graph.num_arcs + graph.num_vertices) * steps // STEPS)
    bounds = balanced_rows(graph.offsets, min(parts, graph.num_vertices) or 1)
    return [(a, b) for a, b in pairwise(bounds.tolist()) if a < b]
