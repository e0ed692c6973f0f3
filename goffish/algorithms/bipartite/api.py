"""Bipartite graphs: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note, TableFile

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


_SIDE = (
    "Table with the vertices of one side in the column vertex or source, such as the graph file "
    "[default: the side of the first vertex, if the graph is connected]."
)


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


class BipartiteProjection(Algorithm):
    """One side of a bipartite graph, with edges between vertices that share neighbors."""

    name = "bipartite-projection"
    title = "Edges between vertices of one side of a bipartite graph that share neighbors, ignoring directions."
    in_memory = True
    undirected = True

    vertices: TableFile = Field(default=None, description=_SIDE)
    weighting: Literal["shared", "newman"] = Field(
        default="shared", description="Weights: number of shared neighbors, or sum of 1 / (degree - 1) over them."
    )

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.bipartite.in_memory import projected_edges

        return projected_edges(graph, self.vertices, self.weighting == "newman", threads)


class BipartiteCores(Algorithm):
    """The (alpha, beta)-cores of a bipartite graph."""

    name = "bipartite-cores"
    title = "(alpha, beta)-cores of a bipartite graph: the largest beta of each vertex for an alpha."
    in_memory = True
    one_thread = True
    undirected = True

    alpha: int = Field(default=2, ge=1, lt=1 << 62, description="Smallest degree on the side of vertices.")
    beta: int | None = Field(
        default=None, ge=1, lt=1 << 62,
        description="Return only the vertices of the core with this smallest degree on the other side "
        "[default: all vertices].",
    )  # fmt: skip
    vertices: TableFile = Field(default=None, description=_SIDE)

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.bipartite.in_memory import bipartite_cores

        return bipartite_cores(graph, self.vertices, self.alpha, self.beta)


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
    graph: Graph, vertices: Any = None, *, weighting: Literal["shared", "newman"] = "shared", threads: int | None = None
) -> Graph:
    """Make a graph of one side of a bipartite graph, with edges between vertices that share neighbors.

    Parameters
    ----------
    graph : Graph
        Bipartite graph. Directions, weights and parallel edges are ignored.
    vertices : array-like of int or str, or of bool; table or file of a table, optional
        The side: labels, a truth value for each vertex, or a table with labels in the column ``vertex`` or ``source``.
        Each edge has exactly one end on it [default: the side of the first vertex, if the graph is connected].
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
        If an edge has both ends on the side or none, a label is unknown, or an option is not accepted; without
        `vertices`, if the graph is not bipartite or not connected.

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


def bipartite_cores(
    graph: AnyGraph, alpha: int = 2, beta: int | None = None, vertices: Any = None, *, threads: int | None = None
) -> Result:
    """Find the (alpha, beta)-cores of a bipartite graph: how dense the densest one is in which each vertex lies.

    The (alpha, beta)-core is the largest subgraph in which each vertex of the given side has at least `alpha`
    neighbors, and each vertex of the other side at least `beta`.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Bipartite graph; a partitioned graph is put together in memory. Directions, weights and parallel edges are
        ignored.
    alpha : int
        Smallest number of neighbors on the side of `vertices`, at least 1 [default: 2].
    beta : int, optional
        Return only the vertices of the (alpha, beta)-core, at least 1 [default: all vertices].
    vertices : array-like of int or str, or of bool; table or file of a table, optional
        The side, as in `goffish.bipartite_projection` [default: the side of the first vertex, if the graph is
        connected].
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex``, ``side`` (int64; 0 on the side of `vertices`) and ``core`` (int64): the largest beta for
        which the vertex is in the (`alpha`, beta)-core, 0 for none. `summary` holds ``vertices`` (number of rows) and
        ``largest`` (largest beta with a core).

    Raises
    ------
    InputError
        If an edge has both ends on the side or none, a label is unknown, or an option is out of range; without
        `vertices`, if the graph is not bipartite or not connected.

    Notes
    -----
    Vertices of the other side are removed by ascending degree, and with them those of the side that have less than
    `alpha` neighbors left: one pass over the edges answers all beta. Takes 21 bytes a vertex beside the graph if there
    are fewer than 2^31.

    References
    ----------
    D. Ding, H. Li, Z. Huang, N. Mamoulis, "Efficient fault-tolerant group recommendation using alpha-beta-core", CIKM,
    2017.

    B. Liu, L. Yuan, X. Lin, L. Qin, W. Zhang, J. Zhou, "Efficient (alpha, beta)-core computation: an index-based
    approach", WWW, 2019.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["ann", "ann", "bob", "bob", "eve"], ["tea", "rum", "tea", "rum", "tea"])
    >>> gf.bipartite_cores(graph).to_dict("core")
    {'ann': 2, 'bob': 2, 'eve': 0, 'rum': 2, 'tea': 2}
    >>> gf.bipartite_cores(graph, alpha=1, beta=3).to_dict("core")
    {'ann': 3, 'bob': 3, 'eve': 3, 'tea': 3}
    """
    from goffish.algorithms.dispatch import answer

    return answer(BipartiteCores.checked(alpha=alpha, beta=beta, vertices=vertices), graph, threads=threads)
