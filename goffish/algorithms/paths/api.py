"""Paths from one vertex: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label, Note

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
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

    def program(self, units: str) -> SubgraphProgram:
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

    def program(self, units: str) -> SubgraphProgram:
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
