"""Compressed sparse rows from columns of edges."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph import kernels
from goffish.graph.labels import vertex_dtype

SelfLoops = Literal["drop", "keep"]
Parallel = Literal["min", "sum", "first", "keep"]

_MERGE = {"sum": kernels.MERGE_SUM, "min": kernels.MERGE_MIN, "first": kernels.MERGE_FIRST}
_NO_ROWS = np.empty(0, np.int64)
_NO_WEIGHTS = np.empty(0, np.float64)


class Parts(NamedTuple):
    """The fields of a `Graph`."""

    offsets: NDArray[np.int64]
    targets: NDArray[np.integer[Any]]
    directed: bool
    num_edges: int
    weights: NDArray[np.float64] | None
    labels: pa.Array | None
    vertex_attributes: pa.Table | None
    edge_attributes: pa.Table | None
    edge_of_arc: NDArray[np.int64] | None


def transpose(
    offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]], rows: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]], NDArray[np.int64]]:
    """Return the reversed arcs, and for each what its arc has in `rows`."""
    out_offsets = np.zeros_like(offsets)
    kernels.count_targets(targets, out_offsets)
    out_targets = np.empty_like(targets)
    want = rows is not None
    out_rows = np.empty(targets.size if want else 0, np.int64)
    given = rows if rows is not None else _NO_ROWS
    kernels.transpose_arcs(offsets, targets, given, want, out_offsets[:-1].copy(), out_targets, out_rows)
    return out_offsets, out_targets, out_rows


def assemble(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    weights: NDArray[np.float64] | None,
    n: int,
    directed: bool,
    self_loops: SelfLoops,
    parallel: Parallel,
    labels: pa.Array | None,
    vertex_attributes: pa.Table | None,
    edge_attributes: pa.Table | None,
) -> Parts:
    """Return what a graph consists of.

    Two stable scatters sort every row: by one end, then by the other.
    """
    mirror, drop = not directed, self_loops == "drop"
    want_rows = weights is not None or edge_attributes is not None
    offsets = np.zeros(n + 1, np.int64)
    # A directed graph is scattered by target first, so that the transposition leaves rows by source.
    first, second = (src, dst) if mirror else (dst, src)
    loops = kernels.count_arcs(first, second, mirror, drop, offsets)
    targets: NDArray[np.integer[Any]] = np.empty(int(offsets[-1]), vertex_dtype(n))
    rows = np.empty(targets.size if want_rows else 0, np.int64)
    kernels.scatter_arcs(first, second, mirror, drop, offsets[:-1].copy(), targets, rows, want_rows)
    offsets, targets, rows = transpose(offsets, targets, rows if want_rows else None)
    arc_weights = None if weights is None else weights[rows]
    if parallel != "keep" and kernels.has_parallel(offsets, targets):
        merged = np.zeros_like(offsets)
        arcs = kernels.merge_parallel(
            offsets, targets, rows, want_rows,
            _NO_WEIGHTS if arc_weights is None else arc_weights, arc_weights is not None,
            _MERGE[parallel], merged,
        )  # fmt: skip
        offsets, targets, rows = merged, targets[:arcs].copy(), rows[:arcs].copy() if want_rows else rows
        arc_weights = None if arc_weights is None else arc_weights[:arcs].copy()
        if parallel == "sum" and arc_weights is not None:
            _check_sums(offsets, targets, arc_weights, labels)
        if not drop:
            loops = int(np.count_nonzero(_loop_mask(offsets, targets)))
    loops = 0 if drop else int(loops)
    edge_of_arc = None
    if edge_attributes is not None:
        if directed:
            edge_of_arc, edge_attributes = np.arange(targets.size), edge_attributes.take(pa.array(rows))
        else:
            edge_of_arc = np.empty(targets.size, np.int64)
            kept = kernels.number_edges(offsets, targets, rows, edge_of_arc)
            edge_attributes = edge_attributes.take(pa.array(rows[kept]))
    edges = targets.size if directed else (targets.size - loops) // 2 + loops
    return Parts(
        offsets, targets, directed, edges, arc_weights, labels, vertex_attributes, edge_attributes, edge_of_arc
    )


def _check_sums(
    offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]], weights: NDArray[np.float64], labels: pa.Array | None
) -> None:
    over = np.flatnonzero(np.isinf(weights))
    if over.size:
        ends = int(np.searchsorted(offsets, over[0], side="right")) - 1, int(targets[over[0]])
        u, v = ends if labels is None else (labels[end].as_py() for end in ends)
        raise InputError(f"weight: the weights of the edge {u!r} - {v!r} add up to infinity; scale all weights down")


def _loop_mask(offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    sources = np.empty_like(targets)
    kernels.arc_sources(offsets, sources)
    loops: NDArray[np.bool_] = sources == targets
    return loops
