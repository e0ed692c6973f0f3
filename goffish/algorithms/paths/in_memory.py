"""Breadth-first search and shortest paths of a whole graph in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.paths import kernels
from goffish.algorithms.weights import check_range
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.kernels.csr import Csr
from goffish.threads import interruptible

#: When to turn round and back (Beamer et al. 2012, §5, found α = 14, β = 24 to be flat optima).
_ALPHA, _BETA = 14, 24

_Numbers = NDArray[np.integer[Any]]


def levels_from(graph: Graph, source: int) -> tuple[NDArray[np.int32] | NDArray[np.int64], _Numbers]:
    """Depth and parent of every vertex, -1 where there is none; `source` is a vertex number.

    The parent is the smallest vertex number among the predecessors one level up.
    """
    n, kind = graph.num_vertices, graph.targets.dtype
    found, bits = np.full(n, np.iinfo(np.int64).max), n.bit_length()
    # An arc takes less than 5 ns, and on undirected graphs most are never looked at.
    interruptible(
        graph.num_arcs // 4, kernels.breadth_first, graph.offsets, graph.targets, not graph.directed, source, _ALPHA,
        _BETA, bits, found, np.empty(n + 1, kind),
    )  # fmt: skip
    depth, parent = np.empty(n, kind), np.empty(n, kind)
    kernels.unpack(found, source, bits, depth, parent)
    return depth, parent


def distances_from(graph: Graph, source: int) -> tuple[NDArray[np.float64], _Numbers]:
    """Distance (infinity: unreachable) and parent (-1: none) of every vertex; `source` is a vertex number.

    Parents as in `sssp`.
    """
    n, kind = graph.num_vertices, graph.targets.dtype
    if graph.weights is None:
        depth, parent = levels_from(graph, source)
        distance = depth.astype(np.float64)
        distance[depth < 0] = np.inf
        return distance, parent
    check_range(graph.weights)
    search = kernels.Search.make(n, graph.num_arcs, kind)
    arcs = Csr(graph.offsets, graph.targets, graph.weights)
    interruptible(graph.num_arcs, kernels.dijkstra, arcs, source, kernels.bucket_scale(graph.weights), search)
    return search.distance, search.parent


def bfs(graph: Graph, source: Any) -> Result:
    """Search breadth first along out-arcs.

    Parameters
    ----------
    graph : Graph
    source : int or str
        Label of the first vertex.

    Returns
    -------
    Result
        Columns ``vertex``, ``distance`` (arcs from the source, int64, null where unreachable) and ``parent`` (label of
        the smallest vertex among the predecessors one level up; null for the source and where unreachable). Summary:
        ``reached`` (vertices, the source included) and ``farthest``.

    Raises
    ------
    InputError
        An unknown label.
    """
    depth, parent = levels_from(graph, _number(graph, source))
    unreached = depth < 0
    table = pa.table(
        {
            "vertex": graph.label_column(),
            "distance": pa.array(depth.astype(np.int64, copy=False), mask=unreached),
            "parent": _labels_of(graph, parent),
        }
    )
    reached = int(depth.size - np.count_nonzero(unreached))
    return Result("bfs", table, {"reached": reached, "farthest": int(depth.max())})


def sssp(graph: Graph, source: Any, *, parents: bool = True) -> Result:
    """Find shortest paths from one vertex along out-arcs; without weights every arc is 1 long.

    Parameters
    ----------
    graph : Graph
    source : int or str
        Label of the first vertex.
    parents : bool
        Whether to return the ``parent`` column.

    Returns
    -------
    Result
        Columns ``vertex``, ``distance`` (float64, infinity where unreachable) and ``parent`` (null for the source and
        where unreachable). The parent is the smallest vertex among the strictly nearer ones that a shortest path can
        come from; where arcs of weight zero leave none strictly nearer, the one that was settled first, so that
        following parents always ends at the source. Summary: ``reached`` (the source included) and ``farthest``
        (largest finite distance).

    Raises
    ------
    InputError
        An unknown label; weights out of range, see `goffish.algorithms.weights.check_range`.
    """
    distance, parent = distances_from(graph, _number(graph, source))
    columns = {"vertex": graph.label_column(), "distance": pa.array(distance)}
    if parents:
        columns["parent"] = _labels_of(graph, parent)
    finite = distance[np.isfinite(distance)]
    return Result("sssp", pa.table(columns), {"reached": finite.size, "farthest": float(finite.max())})


def _number(graph: Graph, label: Any) -> int:
    return int(graph.find([label])[0])


def _labels_of(graph: Graph, numbers: _Numbers) -> pa.Array:
    """Labels of vertex numbers, null for -1."""
    missing = numbers < 0
    if graph.labels is None:
        return pa.array(numbers.astype(np.int64, copy=False), mask=missing)
    return graph.labels.take(pa.array(numbers, mask=missing))
