"""Orders and longest paths: calls and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


class TopologicalOrder(Algorithm):
    """Order in which arcs lead forward."""

    name = "topological-order"
    title = "Order of the vertices in which all arcs lead forward, by level."
    in_memory = True
    one_thread = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.orders.in_memory import topological_order

        return topological_order(graph)


class LongestPath(Algorithm):
    """Longest path of a directed graph without cycles."""

    name = "longest-path"
    title = "Longest path of a directed graph without cycles."
    in_memory = True
    one_thread = True

    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.orders.in_memory import longest_path

        return longest_path(graph if self.weighted else graph.unweighted())


def topological_order(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Order the vertices of a directed graph without cycles so that all arcs lead forward.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Directed graph; a partitioned graph is put together in memory.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex``, in order, and ``level`` (the most arcs on a path to the vertex, int64): by level, then in
        vertex order. `summary` holds ``levels`` (their number).

    Raises
    ------
    InputError
        If the graph is undirected or has a cycle; the message names one.

    Notes
    -----
    Kahn's algorithm, linear in the number of arcs, with 28 bytes a vertex beside the graph.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["shirt", "tie", "shirt"], ["tie", "jacket", "jacket"], directed=True)
    >>> gf.topological_order(graph).to_dict()
    {'shirt': 0, 'tie': 1, 'jacket': 2}
    """
    from goffish.algorithms.dispatch import answer

    return answer(TopologicalOrder(), graph, threads=threads)


def longest_path(graph: AnyGraph, *, weighted: bool = True, threads: int | None = None) -> Result:
    """Find a longest path of a directed graph without cycles, such as the critical path of a project.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Directed graph; a partitioned graph is put together in memory.
    weighted : bool
        Use edge weights as lengths if the graph has any [default: True]; ``False`` counts hops.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``distance`` (float64, from the first vertex), in the order of the path. Of several
        longest paths, one is returned, the same in each run. `summary` holds ``length`` and ``hops``.

    Raises
    ------
    InputError
        If the graph is undirected or has a cycle, of which the message names one, or an option has the wrong type.

    Notes
    -----
    One pass in topological order, linear in the number of arcs, with 44 bytes a vertex beside the graph.

    Examples
    --------
    >>> import goffish as gf
    >>> tasks = gf.from_edges(["plan", "plan", "dig", "order"], ["dig", "order", "build", "build"], [2, 2, 5, 9],
    ...                       directed=True)
    >>> gf.longest_path(tasks).to_dict()
    {'plan': 0.0, 'order': 2.0, 'build': 11.0}
    """
    from goffish.algorithms.dispatch import answer

    return answer(LongestPath.checked(weighted=weighted), graph, threads=threads)
