"""Eccentricities and diameters of a whole graph in one process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.components.in_memory import strong_component_of
from goffish.algorithms.paths import sweep_kernels
from goffish.algorithms.paths.sweep_kernels import Bounds, Groups, Scratch
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.kernels.csr import Csr
from goffish.threads import interruptible


def eccentricities(graph: Graph) -> tuple[NDArray[np.int64], int]:
    """Hops from each vertex to the farthest one that it reaches, and the number of searches."""
    values, (searches, *_) = interruptible(graph.num_arcs, _bounded, graph, False)
    return values, searches


def farthest_pair(graph: Graph) -> tuple[int, int, int, int]:
    """Number of searches, the largest distance, and two vertices that are so far apart; -1 of an empty graph."""
    _, found = interruptible(graph.num_arcs, _bounded, graph, True)
    return found


def _bounded(graph: Graph, only_most: bool) -> tuple[NDArray[np.int64], tuple[int, int, int, int]]:
    n = graph.num_vertices
    # Arcs lead to larger numbers, so that what is reached comes first.
    number = strong_component_of(graph)
    members = np.argsort(-number, kind="stable")
    starts = np.r_[0, np.flatnonzero(np.diff(number[members])) + 1, n] if n else np.zeros(1, np.int64)
    groups, bounds = Groups(number, starts, members), Bounds(np.zeros(n, np.int64), np.zeros(n, np.int64))
    back = graph.reverse
    rows = Csr(graph.offsets, graph.targets), Csr(back.offsets, back.targets), not graph.directed
    unreached = np.full(n, np.iinfo(np.int64).max)
    scratch = Scratch(np.full(n, -1), unreached, np.empty(n + 1, graph.targets.dtype), np.zeros(n, np.int64))
    sweep_kernels.first_bounds(*rows, groups, bounds, scratch)
    most = np.maximum.reduceat(bounds.most[members], starts[:-1]) if n else bounds.most
    order = np.argsort(-most, kind="stable")
    searches, *rest = map(int, sweep_kernels.close_bounds(*rows, groups, order, bounds, only_most, scratch))
    return bounds.most, (searches + (starts.size - 1), rest[0], rest[1], rest[2])


def eccentricity(graph: Graph) -> Result:
    """Compute the eccentricity of every vertex; see `goffish.eccentricity`."""
    values, searches = eccentricities(graph)
    summary = {"diameter": int(values.max(initial=0)), "radius": int(values.min()) if values.size else 0}
    table = pa.table({"vertex": graph.label_column(), "eccentricity": values})
    return Result("eccentricity", table, summary | {"searches": searches})


def diameter(graph: Graph) -> Result:
    """Compute the largest distance; see `goffish.diameter`."""
    searches, distance, source, target = farthest_pair(graph)
    pair = np.array([[source], [target]])[:, : graph.num_vertices]
    table = pa.table(
        {
            "source": graph.labels_of(pair[0]), "target": graph.labels_of(pair[1]),
            "distance": np.array([distance])[: graph.num_vertices],
        }
    )  # fmt: skip
    return Result("diameter", table, {"diameter": max(distance, 0), "searches": searches})
