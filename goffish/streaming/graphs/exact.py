"""Exact algorithms that follow a live graph: degrees, components, paths, core numbers and triangles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.algorithm import Options
from goffish.algorithms.clustering.in_memory import cores_of, cores_result, triangles_of, triangles_result
from goffish.algorithms.paths.in_memory import distances_from
from goffish.gopher.result import Result
from goffish.streaming.graphs import cluster_kernels, core_kernels, path_kernels, row_kernels
from goffish.streaming.graphs.clusters import empty_forest, larger_forest
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.patterns import Numbers, with_space
from goffish.streaming.graphs.row_kernels import ABSENT
from goffish.streaming.graphs.rows import Difference, Floats
from goffish.streaming.key_table import longer


class DegreeOptions(Options):
    """Numbers of neighbors."""

    name = "degrees"
    title = "Number of neighbors of each vertex."


class Degrees(Followed):
    """Numbers of distinct neighbors."""

    has_directions = True

    def _fit(self, size: int) -> None:
        pass

    def _limit(self) -> float:
        return np.inf

    def _follow(self, difference: Difference, limit: float) -> float:
        row_kernels.put_all(self._seen.net, difference.pairs, difference.before, difference.weights)
        return len(difference.pairs)

    def _pass(self) -> None:
        pass

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        net = self._seen.net
        out = net.out.adjacency.sizes[vertices].astype(np.int64)
        columns = {"vertex": labels, "degree": pa.array(out)}
        if net.directed:
            into = net.into.adjacency.sizes[vertices].astype(np.int64)
            columns |= {"degree": pa.array(out + into), "out_degree": pa.array(out), "in_degree": pa.array(into)}
            out = out + into
        return Result("degrees", pa.table(columns), {"edges": int(out.sum()) // 2, "largest": int(out.max(initial=0))})


class Components(Followed):
    """Weakly connected components, by a spanning forest."""

    has_rows, price = False, 6.0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._forest = empty_forest(0)

    def _fit(self, size: int) -> None:
        forest, pairs = self._forest, len(self._seen.net.sources)
        if size > len(forest.component) or pairs > len(forest.sources):
            self._forest = larger_forest(forest, size, pairs)

    def _make_space(self, difference: Difference) -> None:
        new = difference.pairs[difference.before == ABSENT]
        net, forest = self._seen.net, self._forest
        self._forest = forest._replace(
            outgoing=with_space(forest.outgoing, net.sources[new].astype(np.int64)),
            incoming=with_space(forest.incoming, net.targets[new].astype(np.int64)),
        )

    def _follow(self, difference: Difference, limit: float) -> float:
        if len(difference.pairs) > limit:
            return float(len(difference.pairs))
        self._make_space(difference)
        return float(cluster_kernels.change_components(self._forest, self._seen.net, difference, limit))

    def _pass(self) -> None:
        self._forest = empty_forest(0)
        self._fit(len(self._seen.vertices))
        everything = self._seen.everything()
        self._make_space(everything)
        cluster_kernels.begin_components(self._forest, self._seen.net, everything)

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        forest = self._forest
        last = np.empty(len(vertices), np.int64)
        cluster_kernels.last_members(forest.component, vertices, np.full(len(forest.size), -1), last)
        sizes = forest.size[forest.size > 0]
        table = pa.table({"vertex": labels, "component": labels.take(pa.array(last))})
        summary = {
            "components": len(sizes), "largest": int(sizes.max(initial=0)), "isolated": int(np.sum(sizes == 1)),
        }  # fmt: skip
        return Result("components", table, summary)


class Distances(NamedTuple):
    """Distances from a source, and the previous vertices on paths; see `path_kernels`."""

    distance: Floats
    parent: Numbers
    states: NDArray[np.int8]
    marked: Numbers
    #: Of `marked`.
    used: Numbers


class Paths(Followed):
    """Distances from one vertex, and shortest paths."""

    has_directions, price = True, 1.2

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._need("source", [self._options.source])
        nothing = np.zeros(0, np.int64)
        self._paths = Distances(np.zeros(0), nothing, nothing.astype(np.int8), nothing, np.zeros(1, np.int64))

    def _fit(self, size: int) -> None:
        had = len(self._paths.distance)
        if size > had:
            self._paths = Distances._make([*(longer(one, had, size) for one in self._paths[:4]), self._paths.used])
            self._paths.distance[had:], self._paths.parent[had:] = np.inf, -1

    def _follow(self, difference: Difference, limit: float) -> float:
        return float(path_kernels.change_paths(self._seen.net, self._paths, difference, limit))

    def _pass(self) -> None:
        paths, vertices = self._paths, self._vertices
        distance, parent = distances_from(self._seen.graph(), int(np.searchsorted(vertices, int(self._needed[0]))))
        paths.distance[:], paths.parent[:], paths.states[:], paths.used[0] = np.inf, -1, 0, 0
        paths.distance[vertices] = distance
        paths.parent[vertices] = np.where(parent < 0, -1, vertices[parent])

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        name = self._options.name
        distance, parent = self._paths.distance[vertices], self._paths.parent[vertices]
        numbers = np.cumsum(self._seen.vertices) - 1
        finite = np.isfinite(distance)
        farthest = float(distance[finite].max())
        column = pa.array(distance)
        if name == "bfs":
            column = pa.array(np.where(finite, distance, 0).astype(np.int64), mask=~finite)
        table = pa.table({
            "vertex": labels, "distance": column, "parent": labels.take(pa.array(numbers[parent], mask=parent < 0)),
        })  # fmt: skip
        reached = int(np.count_nonzero(finite))
        return Result(name, table, {"reached": reached, "farthest": int(farthest) if name == "bfs" else farthest})


class WeightedPaths(Paths):
    """Distances that weights are added up to."""

    weighted = True


class CoreOrder(NamedTuple):
    """Core numbers, and an order of the vertices; see `core_kernels`."""

    core: Numbers
    label: Numbers
    preceding: Numbers
    following: Numbers
    later: Numbers
    earlier: Numbers
    states: NDArray[np.int8]
    #: First and last vertex with each core number.
    head: Numbers
    tail: Numbers


class Cores(Followed):
    """Core numbers, by an order in which vertices are removed."""

    price = 12.0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        nothing = np.zeros(0, np.int64)
        self._cores = CoreOrder._make([*[nothing] * 6, nothing.astype(np.int8), nothing, nothing])

    def _fit(self, size: int) -> None:
        had = len(self._cores.core)
        if size > had:
            columns: tuple[Any, ...] = self._cores
            self._cores = CoreOrder._make(longer(one, len(one), size + (at > 6)) for at, one in enumerate(columns))
            for one in (self._cores.head, self._cores.tail):
                one[had + (had > 0) :] = -1

    def _follow(self, difference: Difference, limit: float) -> float:
        stack = np.empty(len(self._cores.core), np.int64)
        work, done = core_kernels.change_cores(self._seen.net, self._cores, difference, stack, limit)
        self._rest(difference, done)
        return float(work)

    def _pass(self) -> None:
        vertices, cores = self._vertices, self._cores
        core, order = cores_of(self._seen.graph())
        for one in cores:
            one[:] = 0
        cores.core[vertices] = core
        core_kernels.begin_cores(cores, vertices[order])
        core_kernels.count_later(self._seen.net, cores, vertices)

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        return cores_result(labels, self._cores.core[vertices])


class Triangles(Followed):
    """Triangles through each vertex, and clustering coefficients."""

    price = 20.0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._triangles, self._marks = np.zeros(0, np.int64), np.zeros(0, np.bool_)

    def _fit(self, size: int) -> None:
        had = len(self._marks)
        if size > had:
            self._triangles, self._marks = longer(self._triangles, had, size), np.zeros(size, np.bool_)

    def _follow(self, difference: Difference, limit: float) -> float:
        net, marks = self._seen.net, self._marks
        work, done = core_kernels.change_triangles(net, marks, self._triangles, difference, limit)
        self._rest(difference, done)
        return float(work)

    def _pass(self) -> None:
        self._triangles[:] = 0
        self._triangles[self._vertices] = triangles_of(self._seen.graph())[0]

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        degrees = self._seen.net.out.adjacency.sizes[vertices]
        return triangles_result(labels, self._triangles[vertices], degrees)
