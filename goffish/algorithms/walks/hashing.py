"""HashGNN features of a whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.walks import hash_kernels
from goffish.algorithms.walks.in_memory import _rows
from goffish.errors import InputError
from goffish.gopher.result import Result, read_table
from goffish.graph import Graph
from goffish.graph.columns import as_table
from goffish.graph.guards import check_memory, from_library
from goffish.graph.parallel import run_tasks, thread_count


def hashgnn_of(
    graph: Graph, *, features: Any = None, dimension: int = 128, iterations: int = 2, density: int = 32,
    initial_density: int = 4, neighbor_influence: float = 1.0, seed: int = 0, threads: int | None = None,
) -> NDArray[np.uint8]:  # fmt: skip
    """The array of `goffish.hashgnn`."""
    workers, n, key = thread_count(threads), graph.num_vertices, np.uint64(seed)
    given = None if features is None else _given(graph, features)
    width = dimension if given is None else given.shape[1]
    check_memory(n * width, f"dimension={width}: {n:,} vectors")
    check_memory(n * density * 8, f"density={density}: the features of {n:,} vertices")
    check_memory(width * density * 48, f"dimension={width}, density={density}: the order of the features in each draw")
    if given is None:
        drawn = np.empty((n, initial_density), np.int32)
        run_tasks(
            lambda a, b: hash_kernels.draw_features(key, width, a, b, drawn),
            _rows(graph, initial_density, workers), workers,
        )  # fmt: skip
        offsets, values = _lists(drawn)
    else:
        rows, columns = np.nonzero(given)
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=n), out=offsets[1:])
        values = columns.astype(np.int32)
    tasks, arcs = _rows(graph, density * 8, workers), (graph.offsets, graph.targets)
    for step in range(1, iterations + 1):
        own, near = np.empty((2, n, density), np.int32)
        lists, order = (offsets, values), _order(key, step, density, width)

        def choose(first: int, last: int, *, now: Any = (lists, order, own, near)) -> None:
            hash_kernels.choose(now[0], now[1], first, last, now[2], now[3])

        def pass_on(first: int, last: int, *, now: Any = (order, own, near)) -> None:
            hash_kernels.pass_on(arcs, now[0], neighbor_influence, first, last, now[2], now[1])

        run_tasks(choose, tasks, workers)
        run_tasks(pass_on, tasks, workers)
        offsets, values = _lists(own)
    found = np.zeros((n, width), np.uint8)
    run_tasks(lambda a, b: hash_kernels.mark(offsets, values, a, b, found), tasks, workers)
    return found


def _order(seed: np.uint64, step: int, draws: int, dimension: int) -> hash_kernels.Order:
    """Order of `dimension` features in a step."""
    hashed = np.empty((3, draws, dimension), np.uint64)
    hash_kernels.hash_features(seed, step, hashed)
    features = np.full((3, draws, dimension + 1), -1, np.int32)
    features[..., :-1] = np.argsort(hashed, axis=2)
    ranks = np.full((3, dimension + 1, draws), dimension, np.int32)
    ranks[:, :-1] = np.argsort(features[..., :-1], axis=2).transpose(0, 2, 1)
    return hash_kernels.Order(hashed, ranks, features)


def _lists(chosen: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Lists of the same length for each vertex."""
    n, each = chosen.shape
    return np.arange(n + 1) * each, chosen.ravel()


def _given(graph: Graph, features: Any) -> NDArray[np.bool_]:
    """Given features as truth values, shape (n, features)."""
    n = graph.num_vertices
    if isinstance(features, str | Path):
        features = read_table(features)
    tables = isinstance(features, pa.Table | pa.RecordBatch)
    if tables or any(from_library(features, library, "DataFrame") for library in ("pandas", "polars")):
        table = as_table(features, "features")
        if "vertex" not in table.column_names:
            raise InputError(f"features: no column 'vertex'; available: {', '.join(table.column_names)}")
        at, table = graph.find(table.column("vertex")), table.drop_columns("vertex")
        if np.unique(at).size < at.size:
            raise InputError("features: a vertex is in several rows; expected one row for each vertex")
        columns = [_binary(column.to_numpy(), f"features: column {name!r}") for name, column in
                   zip(table.column_names, table.columns, strict=True)]  # fmt: skip
        if not columns:
            raise InputError("features: no column but 'vertex'; expected a column for each feature")
        found = np.zeros((n, len(columns)), np.bool_)
        found[at] = np.column_stack(columns)
        return found
    try:
        matrix = np.asarray(features)
    except ValueError:
        matrix = np.empty(0)
    if matrix.ndim != 2 or matrix.shape[0] != n or not matrix.shape[1]:
        raise InputError(f"features: shape {matrix.shape}; expected a row for each of the {n:,} vertices")
    return _binary(matrix, "features")


def _binary(values: NDArray[Any], where: str) -> NDArray[np.bool_]:
    if values.dtype.kind not in "biuf" or not ((values == 0) | (values == 1)).all():
        raise InputError(f"{where}: values must be 0 or 1, or truth values")
    return values.astype(np.bool_)


def hashgnn(graph: Graph, **options: Any) -> Result:
    """The table of ``goffish run hashgnn``: a column for each feature."""
    found = hashgnn_of(graph, **options)
    columns = {f"x{at}": np.ascontiguousarray(found[:, at]) for at in range(found.shape[1])}
    return Result("hashgnn", pa.table({"vertex": graph.label_column(), **columns}), {"dimension": found.shape[1]})
