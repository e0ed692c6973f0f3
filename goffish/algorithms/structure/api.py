"""Spanning forests: the call, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


class SpanningForest(Algorithm):
    """A minimum spanning forest."""

    name = "spanning-forest"
    title = "Minimum spanning forest: the edges of least total weight that connect each component."
    in_memory = True
    one_thread = True
    undirected = True

    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import minimum_spanning_forest

        return minimum_spanning_forest(graph if self.weighted else graph.unweighted())


def minimum_spanning_forest(graph: AnyGraph, *, weighted: bool = True, threads: int | None = None) -> Result:
    """Find a spanning forest of least total weight: a tree for each connected component.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Edge directions and self-loops are ignored.
    weighted : bool
        Use edge weights if the graph has any [default: True]; ``False`` finds any spanning forest.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        One row for each edge of the forest: ``source``, ``target`` and ``weight`` (1 without weights). `summary` holds
        ``edges``, ``trees`` (their number; a vertex without edges is a tree) and ``weight`` (sum of the weights).

    Raises
    ------
    InputError
        If `graph` is not a graph, an option has the wrong type, or a weight is neither 0 nor from 1e-140 to 1e140.

    Notes
    -----
    Boruvka's algorithm: O(m log n) for n vertices and m edges, and close to linear on most graphs. Of equal weights,
    the edges that come first in the graph are taken, so that there is exactly one result. It takes up to 24 bytes an
    edge and 64 bytes a vertex beside the graph.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["a", "b", "a"], ["b", "c", "c"], [1.0, 2.0, 3.0])
    >>> forest = gf.minimum_spanning_forest(graph)
    >>> forest.to_dict()
    {('a', 'b'): 1.0, ('b', 'c'): 2.0}
    >>> forest.summary
    {'edges': 2, 'trees': 1, 'weight': 3.0}
    """
    from goffish.algorithms.dispatch import answer

    return answer(SpanningForest.checked(weighted=weighted), graph, threads=threads)
