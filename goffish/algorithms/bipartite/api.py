"""Bipartite graphs: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


class Bipartition(Algorithm):
    """The two sides of a bipartite graph."""

    name = "bipartition"
    title = "The two sides of a bipartite graph, ignoring directions."
    in_memory = True
    one_thread = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.bipartite.in_memory import bipartition

        return bipartition(graph)


def bipartition(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Divide the vertices of a bipartite graph into two sides without edges inside.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to divide; a partitioned graph is put together in memory. Directions and parallel edges are ignored.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``side`` (int64; 0 for the first vertex of each connected component, and for isolated
        vertices). `summary` holds ``side_0`` and ``side_1`` (numbers of vertices).

    Raises
    ------
    InputError
        If the graph is not bipartite; the message names a cycle with an odd number of vertices. If `graph` is not a
        graph, or `threads` is not a positive integer.

    Notes
    -----
    One breadth-first search, linear in the number of edges, with 9 bytes a vertex beside the graph if there are fewer
    than 2^31.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.bipartition(gf.from_edges(["ann", "bob", "bob"], ["tea", "tea", "rum"])).to_dict()
    {'ann': 0, 'bob': 0, 'rum': 1, 'tea': 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Bipartition(), graph, threads=threads)


def bipartite_projection(
    graph: Graph, vertices: Any, *, weighting: Literal["shared", "newman"] = "shared", threads: int | None = None
) -> Graph:
    """Make a graph of one side of a bipartite graph, with edges between vertices that share neighbors.

    Parameters
    ----------
    graph : Graph
        Bipartite graph. Directions, weights and parallel edges are ignored.
    vertices : array-like of int or str, or of bool
        The side: labels, or a truth value for each vertex. Each edge has exactly one end on it.
    weighting : {"shared", "newman"}
        Weights of the edges: the number of shared neighbors, or the sum of 1 / (d - 1) over shared neighbors of degree
        d, so that a neighbor that many vertices share counts less [default: "shared"].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph
        Undirected and weighted, with the vertices of the side, their labels and attributes.

    Raises
    ------
    InputError
        If an edge has both ends on the side or none, a label is unknown, or an option is not accepted.

    Notes
    -----
    Takes time and memory for each path of two edges between vertices of the side: a vertex of the other side with d
    neighbors has d (d - 1). Each edge of the projection takes 24 bytes, and each of its vertices 8 and, while it
    is made, 16 more for each thread.

    References
    ----------
    M. E. J. Newman, "Scientific collaboration networks. II. Shortest paths, weighted networks, and centrality",
    Physical Review E 64, 2001.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["ann", "bob", "bob", "eve"], ["tea", "tea", "rum", "tea"])
    >>> gf.bipartite_projection(graph, ["ann", "bob", "eve"]).edges.to_pylist()[0]
    {'source': 'ann', 'target': 'bob', 'weight': 1.0}
    >>> gf.bipartite_projection(graph, ["ann", "bob", "eve"], weighting="newman").weights.tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """
    from goffish.algorithms.bipartite.in_memory import projection
    from goffish.errors import InputError
    from goffish.graph import Graph
    from goffish.graph.guards import expect

    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    if weighting not in ("shared", "newman"):
        raise InputError(f"weighting={weighting!r}: choose one of shared, newman")
    return projection(graph, vertices, weighting == "newman", threads)
