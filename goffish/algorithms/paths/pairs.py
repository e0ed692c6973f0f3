"""Shortest paths between two vertices of a whole graph in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.paths import path_kernels, search_kernels
from goffish.algorithms.paths.in_memory import distances_from
from goffish.algorithms.paths.search_kernels import End
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.guards import check_memory
from goffish.kernels.csr import NO_WEIGHTS, Csr
from goffish.threads import interruptible

#: Mean radius of the Earth in meters.
_EARTH = 6_371_008.8

_Path = NDArray[np.integer[Any]]


def path_between(graph: Graph, source: int, target: int, bounds: NDArray[np.float64] | None = None) -> _Path:
    """Vertex numbers of a shortest path from `source` to `target`, both included; empty where there is none.

    Parameters
    ----------
    graph : Graph
        Without weights every arc is 1 long.
    source, target : int
        Vertex numbers.
    bounds : float64, shape (n,), optional
        Lower bounds of the distances to the target.
    """
    n, kind, work = graph.num_vertices, graph.targets.dtype, graph.num_arcs
    path = np.empty(n, kind)
    path[0] = source
    if source == target:
        return path[:1]
    arcs = arcs_of(graph)
    if bounds is not None:
        reached, size = -1, work
        while reached < 0:
            ahead = End.make(n, size, kind)
            reached = interruptible(work, search_kernels.guided, arcs, source, target, bounds, ahead)
            size *= 2
        if not reached:
            return path[:0]
        before, after, met = ahead.link, ahead.link, (int(ahead.link[target]) - 1, target)
    elif graph.weights is None:
        found = np.zeros(n, kind)
        back = arcs_of(graph.reverse)
        met = interruptible(
            work, search_kernels.meet_levels, arcs, back, source, target, found, np.empty(n, kind), np.empty(n, kind)
        )
        before = after = found
    else:
        ahead, behind = (End.make(n, work, kind) for _ in range(2))
        met = interruptible(
            work, search_kernels.meet_distances, arcs, arcs_of(graph.reverse), source, target, ahead, behind
        )
        before, after = ahead.link, behind.link
    if met[0] < 0:
        return path[:0]
    return path[: search_kernels.join(before, after, *met, (source, target), path)]


def arcs_of(graph: Graph) -> Csr:
    """The arcs as kernels take them."""
    return Csr(graph.offsets, graph.targets, NO_WEIGHTS if graph.weights is None else graph.weights)


def along(graph: Graph, path: _Path) -> NDArray[np.float64]:
    """Distance of each vertex of a path from its first one; sums in the order of the path."""
    length = np.empty(path.size)
    if path.size:
        search_kernels.add_lengths(arcs_of(graph), path, length)
    return length


def shortest_path(graph: Graph, source: Any, target: Any, *, bounds: Any = None) -> Result:
    """Find a shortest path between two vertices along out-arcs; see `goffish.shortest_path`."""
    first, last = _ends(graph, source, target)
    lower = None if bounds is None else _checked_bounds(bounds, graph.num_vertices, last, target)
    path = path_between(graph, first, last, lower)
    if not path.size:
        raise InputError(f"no path from {source!r} to {target!r}")
    distance = along(graph, path)
    table = pa.table({"vertex": graph.labels_of(path), "distance": pa.array(distance)})
    return Result("path", table, {"length": float(distance[-1]), "hops": path.size - 1})


def shortest_paths(graph: Graph, source: Any, target: Any, k: int) -> Result:
    """Find the `k` shortest paths without repeated vertices; see `goffish.shortest_path`."""
    first, last = _ends(graph, source, target)
    rest = path_kernels.Remainder(*distances_from(graph.reverse, last))
    if not np.isfinite(rest.distance[first]):
        raise InputError(f"no path from {source!r} to {target!r}")
    if first == last:
        starts, vertex, distance = np.array([0, 1]), np.array([first]), np.zeros(1)
    else:
        starts, vertex, distance = interruptible(max(graph.num_arcs, k), _deviations, graph, rest, first, last, k)
    count = starts.size - 1
    number = np.repeat(np.arange(1, count + 1), np.diff(starts))
    table = pa.table({"path": number, "vertex": graph.labels_of(vertex), "distance": distance})
    lengths = distance[starts[1:] - 1]
    return Result("path", table, {"paths": count, "shortest": float(lengths[0]), "longest": float(lengths[-1])})


def _deviations(
    graph: Graph, rest: path_kernels.Remainder, source: int, target: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """First row of each path, and the end; vertices and distances of all rows."""
    n = graph.num_vertices
    memory = End.make(n, graph.num_arcs, np.int64)
    scratch = path_kernels.Scratch(np.zeros(n, np.int64), np.zeros(n, np.int64), np.empty(n, np.int64), memory)
    tree, leaves = path_kernels.Tree.make(4 * n), np.empty(min(k, 64), np.int64)
    state = np.empty(path_kernels.STATE, np.int64)
    path_kernels.begin(source, rest.distance[source], tree, state)
    while True:
        if not path_kernels.shortest_paths(arcs_of(graph), rest, target, tree, leaves, state, scratch):
            # The copy is made while the tree is there.
            found = int(state[path_kernels.PATHS])
            check_memory(3 * sum(part.nbytes for part in tree), f"k={k:,}: more than {found:,} paths")
            tree = tree.doubled()
        elif state[path_kernels.PATHS] == leaves.size < k:
            leaves = np.resize(leaves, min(k, 2 * leaves.size))
        else:
            break
    leaves = leaves[: state[path_kernels.PATHS]]
    # Lengths may be rounded in another order than their bounds were.
    leaves = leaves[np.argsort(tree.length[leaves], kind="stable")]
    starts = np.empty(leaves.size + 1, np.int64)
    path_kernels.count_nodes(tree, leaves, starts)
    # Vertices, distances, numbers of paths and labels.
    check_memory(int(starts[-1]) * 32, f"k={k:,}: {leaves.size:,} paths")
    vertex, distance = np.empty(starts[-1], np.int64), np.empty(starts[-1])
    path_kernels.write_paths(tree, leaves, starts, vertex, distance)
    return starts, vertex, distance


def coordinate_bounds(
    graph: Graph, target: Any, columns: tuple[str, str], great_circle: bool, factor: float | None
) -> NDArray[np.float64]:
    """Lower bounds of the distances to a vertex; see `goffish.coordinate_bounds`."""
    place = [_coordinate(graph, name) for name in columns]
    number = int(graph.find([target])[0])
    away = _great_circle if great_circle else _straight
    if factor is None:
        src, dst = graph.arc_sources(), graph.targets
        straight = away(*(column[src] for column in place), *(column[dst] for column in place))
        weights = np.ones(straight.size) if graph.weights is None else graph.weights
        apart = straight > 0.0
        # A bit less, so that rounding leaves no bound above a distance.
        factor = float((weights[apart] / straight[apart]).min(initial=np.inf)) * (1.0 - 1e-9)
        factor = factor if np.isfinite(factor) else 0.0
    return np.asarray(factor * away(*place, *(column[number] for column in place)), np.float64)


def _straight(x: Any, y: Any, to_x: Any, to_y: Any) -> NDArray[np.float64]:
    return np.asarray(np.hypot(x - to_x, y - to_y), np.float64)


def _great_circle(x: Any, y: Any, to_x: Any, to_y: Any) -> NDArray[np.float64]:
    """Meters on a sphere between longitudes and latitudes in degrees (haversine)."""
    x, y, to_x, to_y = (np.radians(column) for column in (x, y, to_x, to_y))
    half = np.sin((y - to_y) / 2) ** 2 + np.cos(y) * np.cos(to_y) * np.sin((x - to_x) / 2) ** 2
    return np.asarray(2 * _EARTH * np.arcsin(np.sqrt(np.minimum(half, 1.0))), np.float64)


def _coordinate(graph: Graph, name: str) -> NDArray[np.float64]:
    known = graph.vertex_attributes
    if known is None or name not in known.column_names:
        given = "none" if known is None else ", ".join(known.column_names)
        raise InputError(f"no vertex attribute {name!r}; available: {given}")
    try:
        values = known.column(name).to_numpy().astype(np.float64)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise InputError(f"vertex attribute {name!r}: coordinates must be finite numbers")
    return np.asarray(values, np.float64)


def _ends(graph: Graph, source: Any, target: Any) -> tuple[int, int]:
    check_range(graph.weights)
    first, last = (int(graph.find([label])[0]) for label in (source, target))
    return first, last


def _checked_bounds(bounds: Any, n: int, target: int, label: Any) -> NDArray[np.float64]:
    try:
        values = np.ascontiguousarray(bounds, np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n,):
        raise InputError(f"bounds: must be an array with a number for each of the {n:,} vertices")
    if not (values >= 0.0).all():
        raise InputError("bounds: must be numbers of at least 0")
    if values[target] != 0.0:
        raise InputError(f"bounds: must be 0 at the target {label!r}, whose distance is 0")
    return values
