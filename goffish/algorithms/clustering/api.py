"""Triangles, core numbers and counts: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class Triangles(Algorithm):
    """Triangles through each vertex."""

    name = "triangles"
    title = "Triangles through each vertex; directions, loops and parallel edges do not count."
    undirected = True

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import TriangleCount

        return TriangleCount()

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.in_memory import triangles

        return triangles(graph, threads=threads)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"total": int(table["triangles"].to_numpy().sum()) // 3}


class Cores(Algorithm):
    """Core numbers."""

    name = "cores"
    title = "Core number of each vertex (k-core); directions, loops and parallel edges do not count."
    one_thread = True
    undirected = True

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import CoreNumbers

        return CoreNumbers()

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.in_memory import core_numbers

        return core_numbers(graph)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        core = table["core"].to_numpy()
        return table, {"degeneracy": int(core.max(initial=0)), "innermost": int((core == core.max(initial=0)).sum())}


class Counts(Algorithm):
    """Sizes of the subgraphs."""

    name = "counts"
    title = "Vertices, arcs and remote arcs of every subgraph."

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import GraphCounts

        return GraphCounts()

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {name: int(table[name].to_numpy().sum()) for name in ("vertices", "arcs", "remote_arcs")}


class Quotient(Algorithm):
    """The quotient graph."""

    name = "quotient"
    title = "The quotient graph: neighbouring subgraphs and the edges between them."

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import QuotientGraph

        return QuotientGraph()

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"pairs": table.num_rows // 2, "cut_edges": int(table["links"].to_numpy().sum()) // 2}


def triangles(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Triangles through each vertex (``triangles``); directions, loops and parallel edges do not count.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.triangles(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4])).to_dict()
    {1: 1, 2: 1, 3: 1, 4: 0}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Triangles(), graph, threads=threads)


def core_numbers(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Core number of each vertex (``core``); directions, loops and parallel edges do not count.

    `threads` is for a partitioned graph: in memory this takes one thread, and warns when it is given.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.core_numbers(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4])).to_dict()
    {1: 2, 2: 2, 3: 2, 4: 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Cores(), graph, threads=threads)
