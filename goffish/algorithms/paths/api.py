"""Paths and distances: the calls, and their options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label, Note
from goffish.definitions import KnownName

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class _FromSource(Algorithm):
    source: Label = Field(description="Label of the source vertex.")

    def labels(self) -> list[int | str]:
        return [self.source]


class BreadthFirst(_FromSource):
    """Hops from a source."""

    name = "bfs"
    title = "Hops and parents from a source vertex (breadth-first search)."
    one_thread = True

    max_hops: int | None = Field(default=None, ge=0, description="Maximum number of hops [default: unlimited].")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.paths.subgraph import BreadthFirstSearch

        return BreadthFirstSearch(self.source, self.max_hops)

    def needs_engine(self) -> bool:
        return self.max_hops is not None

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.paths.in_memory import bfs

        return bfs(graph, self.source)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import pyarrow.compute as pc

        distance = table["distance"]
        return table, {
            "reached": len(distance) - distance.null_count,
            "farthest": pc.max(distance).as_py() or 0,
        }


class HopCounts(BreadthFirst):
    """Vertices at each hop from a source (docs/specs/engine.md, section 4.6, n-hop statistics)."""

    name = "hops"
    title = "Number of vertices at each number of hops from a source vertex."
    final_table = False

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        _, summary = super().finish(table, stats)
        counts = pc.value_counts(table["distance"].drop_null())
        found = pa.table({"hops": counts.field("values"), "vertices": counts.field("counts")})
        return found.sort_by("hops"), summary


class ShortestPaths(_FromSource):
    """Distances from a source."""

    name = "sssp"
    title = "Shortest distances and parents from a source vertex (Dijkstra's algorithm)."
    one_thread = True

    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.paths.subgraph import SingleSourceShortestPath

        return SingleSourceShortestPath(self.source, self.weighted)

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.paths.in_memory import sssp

        return sssp(graph if self.weighted else graph.unweighted(), self.source)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import numpy as np

        distance = table["distance"].to_numpy()
        reached = distance[np.isfinite(distance)]
        return table, {"reached": int(reached.size), "farthest": float(reached.max(initial=0.0))}


class PathBetween(_FromSource):
    """Shortest path between two vertices."""

    name = "path"
    title = "Shortest path between two vertices, or the k shortest paths."
    in_memory = True
    one_thread = True

    target: Label = Field(description="Label of the target vertex.")
    k: int | None = Field(
        default=None, ge=1, lt=1 << 62, description="Number of paths without repeated vertices [default: one path]."
    )
    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")
    bounds: Annotated[Any, KnownName()] = Field(
        default=None, description="Lower bounds of the distances to the target, one for each vertex."
    )

    def labels(self) -> list[int | str]:
        return [self.source, self.target]

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.paths.pairs import shortest_path, shortest_paths
        from goffish.errors import InputError

        measured = graph if self.weighted else graph.unweighted()
        if self.k is None:
            return shortest_path(measured, self.source, self.target, bounds=self.bounds)
        if self.bounds is not None:
            raise InputError("k and bounds are mutually exclusive: k paths are found with exact distances")
        return shortest_paths(measured, self.source, self.target, self.k)


class Distances(Algorithm):
    """Distances between several vertices."""

    name = "distances"
    title = "Distances between several vertices, or all within a cutoff."
    in_memory = True

    sources: tuple[Label, ...] | None = Field(default=None, description="Distances from these vertices [default: all].")
    targets: tuple[Label, ...] | None = Field(default=None, description="Distances to these vertices [default: all].")
    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")
    cutoff: float | None = Field(default=None, ge=0, description="Largest distance [default: unlimited].")

    def labels(self) -> list[int | str]:
        return [*(self.sources or ()), *(self.targets or ())]

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.paths.tables import distances

        measured = graph if self.weighted else graph.unweighted()
        return distances(measured, self.sources, self.targets, cutoff=self.cutoff, threads=threads)


def bfs(graph: AnyGraph, source: int | str, *, max_hops: int | None = None, threads: int | None = None) -> Result:
    """Count the hops from one vertex to every other vertex (breadth-first search).

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to search. Arcs are followed in their direction.
    source : int or str
        Label of the start vertex.
    max_hops : int, optional
        Do not search farther than this number of hops, at least 0 [default: unlimited]. Runs on the engine.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex``, ``distance`` (hops; null if unreachable) and ``parent`` (label of the previous vertex on a
        shortest path; null for the source and for unreachable vertices). `summary` holds ``reached`` (number of reached
        vertices) and ``farthest`` (largest distance); on the engine also ``supersteps``.

    Raises
    ------
    InputError
        If `source` is not a vertex of the graph, or an option is out of range.

    Notes
    -----
    The running time is linear in the number of vertices and arcs.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.bfs(gf.from_edges([1, 2, 5], [2, 3, 6]), 1).to_dict()
    {1: 0, 2: 1, 3: 2, 5: None, 6: None}
    """
    from goffish.algorithms.dispatch import answer

    return answer(BreadthFirst.checked(source=source, max_hops=max_hops), graph, threads=threads)


def sssp(graph: AnyGraph, source: int | str, *, weighted: bool = True, threads: int | None = None) -> Result:
    """Compute the shortest distances from one vertex to every other vertex.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to search. Arcs are followed in their direction.
    source : int or str
        Label of the start vertex.
    weighted : bool
        Use edge weights as lengths if the graph has any [default: True]; ``False`` counts hops.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex``, ``distance`` (float64; infinite if unreachable) and ``parent`` (label of the previous vertex
        on a shortest path; null for the source and for unreachable vertices). `summary` holds ``reached`` and
        ``farthest`` (largest finite distance); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `source` is not a vertex of the graph, or an option has the wrong type.

    Notes
    -----
    Dijkstra's algorithm with a binary heap: O((n + m) log n) for n vertices and m arcs. On a partitioned graph,
    Dijkstra runs inside each subgraph and improved distances are sent across the cut.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.sssp(gf.from_edges([1, 2, 1], [2, 3, 3], [1.0, 1.0, 5.0]), 1).to_dict()
    {1: 0.0, 2: 1.0, 3: 2.0}
    """
    from goffish.algorithms.dispatch import answer

    return answer(ShortestPaths.checked(source=source, weighted=weighted), graph, threads=threads)


def shortest_path(
    graph: AnyGraph,
    source: int | str,
    target: int | str,
    *,
    k: int | None = None,
    weighted: bool = True,
    bounds: Any = None,
    threads: int | None = None,
) -> Result:
    """Find a shortest path between two vertices, or the `k` shortest paths.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to search; a partitioned graph is put together in memory. Arcs are followed in their direction.
    source, target : int or str
        Labels of the first and the last vertex.
    k : int, optional
        Number of paths, at least 1, none of which has a vertex twice [default: one path]. There may be fewer.
    weighted : bool
        Use edge weights as lengths if the graph has any [default: True]; ``False`` counts hops.
    bounds : array-like of float, shape (n,), optional
        For each vertex, in vertex order, a lower bound of its distance to `target` (infinite: not reachable), such as
        `coordinate_bounds` computes; 0 at the target. Not with `k`.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``distance`` (float64, from `source`), in the order of the path. `summary` holds
        ``length`` and ``hops``. With `k`, the column ``path`` (1 is the shortest) comes first, and `summary` holds
        ``paths``, ``shortest`` and ``longest`` (lengths).

    Raises
    ------
    InputError
        If there is no path, `source` or `target` is not a vertex of the graph, an option is out of range, or `k` paths
        do not fit in memory.

    Notes
    -----
    Without weights, breadth-first searches from both ends meet; with weights, Dijkstra's algorithm runs from both ends;
    with `bounds`, the search is A*, which is exact if no bound exceeds the distance. Of several shortest paths, one is
    returned, the same in each run. The result is exact if sums of the weights are, as those of integers are; else up to
    rounding.

    The `k` shortest paths are those of Yen's algorithm: distances to `target` from one search against the arcs are the
    bounds of all further searches, and a deviation is only searched when its bound is the least. Paths that differ only
    in parallel edges count once.

    Memory beside the graph: at most 12 bytes a vertex without weights; 24 bytes a vertex and 24 an arc with weights,
    of which only what the searches reach is used. A directed graph is reversed once and keeps its reverse. `k` paths
    take 41 bytes for each vertex of each path.

    References
    ----------
    J. Y. Yen, "Finding the k shortest loopless paths in a network", Management Science 17(11), 1971.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["a", "b", "a", "c"], ["b", "d", "c", "d"], [1.0, 1.0, 2.0, 2.0])
    >>> gf.shortest_path(graph, "a", "d").to_dict()
    {'a': 0.0, 'b': 1.0, 'd': 2.0}
    >>> [row for row in gf.shortest_path(graph, "a", "d", k=2) if row[1] == "d"]
    [(1, 'd', 2.0), (2, 'd', 4.0)]
    """
    from goffish.algorithms.dispatch import answer

    asked = PathBetween.checked(source=source, target=target, k=k, weighted=weighted, bounds=bounds)
    return answer(asked, graph, threads=threads)


def distances(
    graph: AnyGraph,
    sources: Iterable[int | str] | None = None,
    targets: Iterable[int | str] | None = None,
    *,
    weighted: bool = True,
    cutoff: float | None = None,
    threads: int | None = None,
) -> Result:
    """Compute the distances between several vertices.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to search; a partitioned graph is put together in memory. Arcs are followed in their direction.
    sources, targets : iterable of int or str, optional
        Labels of the vertices from which and to which distances are computed [default: all vertices].
    weighted : bool
        Use edge weights as lengths if the graph has any [default: True]; ``False`` counts hops.
    cutoff : float, optional
        Leave out pairs that are farther apart, at least 0 [default: unlimited].
    threads : int, optional
        Number of threads [default: all processors]. The result does not depend on it.

    Returns
    -------
    Result
        Columns ``source``, ``target`` and ``distance`` (float64), a row for each pair with a path within `cutoff`, that
        of a vertex and itself included, in vertex order. `summary` holds ``pairs`` and ``farthest`` (largest distance).

    Raises
    ------
    InputError
        If `sources` or `targets` names an unknown vertex, or an option is out of range.

    Notes
    -----
    One search for each source, shared among threads, which ends at `cutoff` or at the last of the `targets`. Memory
    beside the graph and the labels: at most 60 bytes a row, and for each thread 60 bytes a vertex and with weights 48
    bytes an arc. All pairs of a graph with 10,000 vertices can take 6 GB; `cutoff` or `targets` lowers that.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 3], [2, 3, 4])
    >>> gf.distances(graph, [1, 4], [3, 4]).to_dict()
    {(1, 3): 2.0, (1, 4): 3.0, (4, 3): 1.0, (4, 4): 0.0}
    >>> len(gf.distances(graph, cutoff=1))
    10
    """
    from goffish.algorithms.dispatch import answer

    given = {"sources": sources, "targets": targets}
    ends = {name: tuple(v) if isinstance(v, Iterable) and not isinstance(v, str) else v for name, v in given.items()}
    return answer(Distances.checked(**ends, weighted=weighted, cutoff=cutoff), graph, threads=threads)


def coordinate_bounds(
    graph: Graph,
    target: int | str,
    columns: tuple[str, str] = ("x", "y"),
    *,
    great_circle: bool = False,
    factor: float | None = None,
) -> NDArray[np.float64]:
    """Compute lower bounds of the distances to a vertex from coordinates, for `shortest_path`.

    Parameters
    ----------
    graph : Graph
        Graph with vertex attributes.
    target : int or str
        Label of the vertex.
    columns : pair of str
        Names of the vertex attributes with the coordinates [default: ``("x", "y")`].
    great_circle : bool
        The coordinates are longitudes and latitudes in degrees, and straight lines are in meters along the surface of
        the Earth [default: False].
    factor : float, optional
        Least length of an edge relative to the straight line between its ends, at least 0 [default: computed from all
        edges, so that the bounds are valid].

    Returns
    -------
    array of float64, shape (n,)
        `factor` times the straight line to `target`, in vertex order.

    Raises
    ------
    InputError
        If `target` is not a vertex, an attribute is missing or is not a finite number everywhere, or `factor` is
        negative.

    Examples
    --------
    >>> import goffish as gf
    >>> places = {"x": [0.0, 3.0, 3.0], "y": [0.0, 0.0, 4.0]}
    >>> graph = gf.from_edges([0, 1], [1, 2], [6.0, 8.0], vertex_attributes=places)
    >>> gf.coordinate_bounds(graph, 2).round(6).tolist()
    [10.0, 8.0, 0.0]
    >>> gf.shortest_path(graph, 0, 2, bounds=gf.coordinate_bounds(graph, 2)).summary
    {'length': 14.0, 'hops': 2}
    """
    from goffish.algorithms.paths import pairs
    from goffish.errors import InputError
    from goffish.graph import Graph
    from goffish.graph.guards import expect

    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    names = tuple(columns) if isinstance(columns, tuple | list) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise InputError(f"columns={columns!r}: must be two names of vertex attributes")
    if factor is not None and (isinstance(factor, bool | str) or not 0.0 <= float(factor) < float("inf")):
        raise InputError(f"factor={factor!r}: must be a number of at least 0")
    return pairs.coordinate_bounds(graph, target, (names[0], names[1]), bool(great_circle), factor)
