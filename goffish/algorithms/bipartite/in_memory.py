"""Bipartite graphs in memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.bipartite import kernels
from goffish.algorithms.clustering.kernels import simple_degrees, sort_by_degree
from goffish.algorithms.components.in_memory import component_of
from goffish.errors import InputError
from goffish.gopher.result import Result, read_table
from goffish.graph import Graph
from goffish.graph.columns import as_table
from goffish.graph.guards import from_library
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.graph.selection import vertex_mask
from goffish.threads import interruptible

#: Steps of one task: Ctrl-C takes effect between two tasks.
STEPS = 1 << 20
#: Vertices of a cycle that a message names.
_NAMED = 10


def bipartition(graph: Graph) -> Result:
    """The result of `goffish.bipartition`."""
    side = side_of(graph.to_undirected())
    ones = int(np.count_nonzero(side))
    table = pa.table({"vertex": graph.label_column(), "side": side.astype(np.int64)})
    return Result("bipartition", table, {"side_0": side.size - ones, "side_1": ones})


def side_of(graph: Graph) -> NDArray[np.int8]:
    """Side of each vertex of an undirected graph: 0 for the first of each connected component."""
    n, kind = graph.num_vertices, graph.targets.dtype
    side = np.full(n, -1, np.int8)
    parent, queue = np.empty((2, n), kind)
    rows = graph.offsets, graph.targets
    u, v = interruptible(graph.num_arcs, kernels.two_sides, *rows, side, parent, queue)
    if u >= 0:
        raise InputError(f"graph is not bipartite: {_odd_cycle(graph, parent, int(u), int(v))}")
    return side


def _odd_cycle(graph: Graph, parent: NDArray[np.integer[Any]], u: int, v: int) -> str:
    """What a message says about the cycle through an edge inside a side."""
    first, second = [u], [v]
    while first[-1] != second[-1]:
        first.append(int(parent[first[-1]]))
        second.append(int(parent[second[-1]]))
    around = [*first, *second[-2::-1]]
    if u == v:
        return f"vertex {graph.labels_of(np.array([u]))[0]} has a self-loop"
    labels = list(map(str, graph.labels_of(np.array(around)).to_pylist()))
    if len(labels) > _NAMED:
        labels[_NAMED - 2 : -2] = ["…"]
    return f"it has a cycle of {len(around):,} vertices: {' - '.join([*labels, labels[0]])}"


def projection(graph: Graph, vertices: Any, newman: bool, threads: int | None) -> Graph:
    """The result of `goffish.bipartite_projection`."""
    workers = thread_count(threads)
    graph = graph.to_undirected()
    mask = _on_side(graph, vertices)
    kept = np.flatnonzero(mask).astype(graph.targets.dtype)
    number = np.zeros(graph.num_vertices, graph.targets.dtype)
    number[kept] = np.arange(kept.size)
    share = np.ones(graph.num_vertices)
    if newman:
        degree = np.empty(graph.num_vertices, graph.targets.dtype)
        simple_degrees(graph.offsets, graph.targets, degree)
        # Neighbors of a vertex of degree 1 share it with no other.
        np.divide(1.0, degree - 1, out=share, where=degree > 1)
    sides = kernels.Sides(graph.offsets, graph.targets, kept, number[graph.targets], share)
    offsets, targets, weights = _rows(sides, workers)
    attributes = graph.vertex_attributes
    return Graph(
        offsets, targets, False, targets.size // 2, weights, graph.labels_of(kept),
        None if attributes is None else attributes.take(pa.array(kept)),
    )  # fmt: skip


def projected_edges(graph: Graph, vertices: Any, newman: bool, threads: int | None) -> Result:
    """The edges of `goffish.bipartite_projection` as a table."""
    made = projection(graph, vertices, newman, threads)
    summary = {"vertices": made.num_vertices, "edges": made.num_edges}
    return Result("bipartite-projection", made.edges, summary)


def bipartite_cores(graph: Graph, vertices: Any, alpha: int, beta: int | None) -> Result:
    """The result of `goffish.bipartite_cores`."""
    graph = graph.to_undirected()
    on_side = _on_side(graph, vertices)
    core = interruptible(graph.num_arcs, _cores, graph, on_side, alpha)
    largest = int(core.max(initial=0))
    columns = {"side": (~on_side).astype(np.int64), "core": core.astype(np.int64)}
    table = pa.table({"vertex": graph.label_column(), **columns})
    if beta is not None:
        table = table.filter(pa.array(core >= beta))
    return Result("bipartite-cores", table, {"vertices": table.num_rows, "largest": largest})


def _cores(graph: Graph, on_side: NDArray[np.bool_], alpha: int) -> NDArray[np.integer[Any]]:
    """For each vertex the largest beta of an (alpha, beta)-core with it."""
    rows, n, kind = (graph.offsets, graph.targets), graph.num_vertices, graph.targets.dtype
    degree, order, place = np.empty((3, n), kind)
    simple_degrees(*rows, degree)
    gone = np.zeros(n, np.bool_)
    kernels.drop_few(*rows, on_side, alpha, degree, gone)
    # The others are removed by ascending degree: vertices of the side come last, where they are not reached.
    most = int(degree.max(initial=0))
    core = np.where(on_side, kind.type(most + 1), degree)
    starts = np.zeros(most + 3, kind)
    sort_by_degree(core, starts, order, place)
    core[gone] = 0
    others = n - int(np.count_nonzero(on_side))
    kernels.peel_side(*rows, others, alpha, degree, gone, (order, place, starts), core)
    return core


def _on_side(graph: Graph, vertices: Any) -> NDArray[np.bool_]:
    """Whether each vertex of an undirected graph is on the given side, which has one end of each edge."""
    if vertices is None:
        side = side_of(graph)
        component = component_of(graph)
        if component.size and component.min() != component.max():
            raise InputError("vertices: the graph is not connected; name the vertices of one side")
        mask: NDArray[np.bool_] = side == 0
        return mask
    given = vertex_mask(graph.labels, graph.num_vertices, _labels(vertices))
    u, v = kernels.inside_edge(graph.offsets, graph.targets, given)
    if u >= 0:
        ends = " - ".join(map(str, graph.labels_of(np.array([u, v])).to_pylist()))
        where = "two of the given vertices" if given[u] else "two vertices that are not given"
        raise InputError(f"vertices: edge {ends} is between {where}; give one side of a bipartite graph")
    return given


def _labels(vertices: Any) -> Any:
    """The labels that a table holds; anything else as it is."""
    if isinstance(vertices, str | Path):
        vertices = read_table(vertices)
    tables = isinstance(vertices, pa.Table | pa.RecordBatch)
    if not tables and not any(from_library(vertices, library, "DataFrame") for library in ("pandas", "polars")):
        return vertices
    table = as_table(vertices, "vertices")
    name = next((name for name in ("vertex", "source") if name in table.column_names), None)
    if name is None:
        raise InputError(f"vertices: no column 'vertex' or 'source'; available: {', '.join(table.column_names)}")
    return table.column(name)


def _rows(
    sides: kernels.Sides, workers: int
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]], NDArray[np.float64]]:
    """Ascending rows and weights of the projection."""
    k, kind = sides.kept.size, sides.targets.dtype
    steps = np.append(0, np.cumsum(np.diff(sides.offsets)[sides.targets], dtype=np.int64))[sides.offsets]
    work = np.append(0, np.cumsum(np.diff(steps)[sides.kept]))
    tasks = list(pairwise(balanced_rows(work, max(workers, int(work[-1]) // STEPS)).tolist()))
    rows = np.zeros(k + 1, np.int64)
    marks = [np.full(k, -1, kind) for _ in range(workers)]

    def count(first: int, last: int) -> None:
        seen = marks.pop()
        kernels.count_projected(sides, first, last, seen, rows[1:])
        marks.append(seen)

    run_tasks(count, tasks, workers)
    np.cumsum(rows, out=rows)
    targets, weights = np.empty(rows[-1], kind), np.empty(rows[-1])
    free = [(np.zeros(k), np.empty(k, kind), np.empty(256, np.int64)) for _ in range(workers)]

    def fill(first: int, last: int) -> None:
        memory = free.pop()
        kernels.fill_projected(sides, first, last, memory, rows, targets, weights)
        free.append(memory)

    run_tasks(fill, tasks, workers)
    return rows, targets, weights
