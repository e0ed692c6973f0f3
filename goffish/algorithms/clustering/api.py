"""Triangles, clustering coefficients, core and truss numbers, and counts: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class Triangles(Algorithm):
    """Triangles through each vertex."""

    name = "triangles"
    title = "Number of triangles through each vertex, ignoring directions, self-loops and parallel edges."
    undirected = True

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import TriangleCount

        return TriangleCount()

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.in_memory import triangles

        return triangles(graph, threads=threads)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"total": int(table["triangles"].to_numpy().sum()) // 3}


class Clustering(Algorithm):
    """Local clustering coefficients."""

    name = "clustering"
    title = "Local clustering coefficient of each vertex, ignoring directions, self-loops and parallel edges."
    undirected = True

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import ClusteringCoefficients

        return ClusteringCoefficients()

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.in_memory import clustering_result, triangles_of

        return clustering_result(graph.label_column(), *triangles_of(graph, threads=threads))

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        from goffish.algorithms.clustering.in_memory import coefficients

        return table, coefficients(table["triangles"].to_numpy(), table["neighbors"].to_numpy())[1]


class Cores(Algorithm):
    """Core numbers."""

    name = "cores"
    title = "Core number of each vertex (k-core), ignoring directions, self-loops and parallel edges."
    one_thread = True
    undirected = True

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import CoreNumbers

        return CoreNumbers()

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.in_memory import core_numbers

        return core_numbers(graph)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        core = table["core"].to_numpy()
        return table, {"degeneracy": int(core.max(initial=0)), "innermost": int((core == core.max(initial=0)).sum())}


class Trusses(Algorithm):
    """Truss numbers."""

    name = "trusses"
    title = "Truss number of each edge (k-truss), ignoring directions, self-loops and parallel edges."
    in_memory = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.trusses import truss_numbers

        return truss_numbers(graph, threads=threads)


class Motifs(Algorithm):
    """Numbers of small subgraphs."""

    name = "motifs"
    title = "Numbers of induced connected subgraphs of three and four vertices, ignoring directions."
    in_memory = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.motifs import motif_counts

        return motif_counts(graph, threads=threads)


class Graphlets(Algorithm):
    """Graphlet degrees."""

    name = "graphlet-degrees"
    title = "Number of induced subgraphs of up to four vertices at each vertex, by its position in them (orbits)."
    in_memory = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.clustering.graphlets import graphlet_degrees

        return graphlet_degrees(graph, threads=threads)


class Counts(Algorithm):
    """Sizes of the subgraphs."""

    name = "counts"
    title = "Numbers of vertices, arcs and remote arcs of each subgraph."

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import GraphCounts

        return GraphCounts()

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {name: int(table[name].to_numpy().sum()) for name in ("vertices", "arcs", "remote_arcs")}


class Quotient(Algorithm):
    """The quotient graph."""

    name = "quotient"
    title = "Quotient graph: neighboring subgraphs and the number of edges between them."

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.clustering.subgraph import QuotientGraph

        return QuotientGraph()

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"pairs": table.num_rows // 2, "cut_edges": int(table["links"].to_numpy().sum()) // 2}


def triangles(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Count the triangles through each vertex.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Directions, self-loops and parallel edges are ignored.
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Result
        Columns ``vertex`` and ``triangles`` (int64). `summary` holds ``total`` (number of distinct triangles); for a
        `Graph` also ``average_clustering`` (mean local clustering coefficient) and ``transitivity`` (share of connected
        triples that are closed); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Sorted neighbor lists are intersected along arcs from the vertex of lower degree to that of higher degree: O(m^1.5)
    for m edges.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.triangles(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4]))
    >>> found.to_dict()
    {1: 1, 2: 1, 3: 1, 4: 0}
    >>> found.summary["transitivity"]
    0.6
    """
    from goffish.algorithms.dispatch import answer

    return answer(Triangles(), graph, threads=threads)


def clustering(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Compute the local clustering coefficient of each vertex, their mean, and the transitivity of the graph.

    The clustering coefficient of a vertex is the share of pairs of its neighbors that are neighbors of each other.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Directions, weights, self-loops and parallel edges are ignored.
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Result
        Columns ``vertex``, ``clustering`` (float64; 0 for fewer than two neighbors), ``triangles`` and ``neighbors``
        (distinct other vertices next to it). `summary` holds ``total`` (number of distinct triangles),
        ``average_clustering`` (mean of the column) and ``transitivity`` (share of connected triples that are closed);
        for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    A vertex with d neighbors and t triangles has the coefficient ``t / (d (d - 1) / 2)``; see `triangles` for how they
    are counted. The transitivity is ``3 T / Σ d (d - 1) / 2`` with the number T of triangles in the graph.

    References
    ----------
    D. J. Watts, S. H. Strogatz, "Collective dynamics of 'small-world' networks", Nature 393, 1998.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.clustering(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4]))
    >>> found[1], round(found[3], 3)
    (1.0, 0.333)
    >>> found.summary["transitivity"]
    0.6
    """
    from goffish.algorithms.dispatch import answer

    return answer(Clustering(), graph, threads=threads)


def core_numbers(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Compute the core number of each vertex (k-core decomposition).

    The core number of a vertex is the largest k for which the vertex belongs to a subgraph with minimum degree k.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Directions, self-loops and parallel edges are ignored.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``core`` (int64). `summary` holds ``degeneracy`` (largest core number) and ``innermost``
        (number of vertices with that core number); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    In memory, vertices are removed in order of their remaining degree, in time linear in the number of edges.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.core_numbers(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4])).to_dict()
    {1: 2, 2: 2, 3: 2, 4: 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Cores(), graph, threads=threads)


def truss_numbers(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Compute the truss number of each edge (k-truss decomposition).

    The truss number of an edge is the largest k for which the edge belongs to a subgraph whose edges are each in at
    least k - 2 of its triangles.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions, weights, self-loops and parallel
        edges are ignored.
    threads : int, optional
        Number of threads that count triangles [default: all processors]. Edges are removed by one thread.

    Returns
    -------
    Result
        Columns ``source``, ``target`` (a row for each pair of neighbors) and ``truss`` (int64, at least 2). `summary`
        holds ``largest`` (largest truss number; 0 without edges) and ``innermost`` (number of edges with it).

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Triangles are counted as by `triangles`; then edges are removed in order of the triangles that are left: O(m^1.5)
    for m edges. Beside the graph, the kernel takes 41 bytes an edge and 4 more for each thread, and the table 24.

    References
    ----------
    J. Cohen, "Trusses: cohesive subgraphs for social network analysis", National Security Agency, 2008.

    J. Wang, J. Cheng, "Truss decomposition in massive networks", PVLDB 5(9), 2012.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.truss_numbers(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4]))
    >>> found.to_dict()
    {(1, 2): 3, (1, 3): 3, (2, 3): 3, (3, 4): 2}
    >>> found.summary
    {'largest': 3, 'innermost': 3}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Trusses(), graph, threads=threads)


def motif_counts(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Count the connected induced subgraphs of three and four vertices (motifs, graphlets).

    An induced subgraph has all edges of the graph between its vertices.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions, weights, self-loops and parallel
        edges are ignored.
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Result
        Columns ``motif``, ``count`` (int64; null if it is 2^63 or more), ``vertices`` and ``edges``, with a row for
        each motif: ``wedge`` (path of three vertices), ``triangle``, ``claw`` (star of four), ``path`` (of four),
        ``paw`` (triangle with one more edge), ``cycle`` (of four), ``diamond`` (clique of four without one edge) and
        ``clique`` (of four). `summary` holds the exact count of each.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Only triangles, cliques of four and cycles of four vertices are counted; all other numbers follow from them and
    from degrees. Triangles and cycles take O(m^1.5) for m edges, cliques O(m^2). Beside the graph, it takes 56 bytes an
    edge and 4 more for each thread, and 20 bytes a vertex and 12 more for each thread, if there are fewer than 2^31
    edges.

    References
    ----------
    A. Pinar, C. Seshadhri, V. Vishal, "ESCAPE: efficiently counting all 5-vertex subgraphs", WWW 2017.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.motif_counts(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4]))
    >>> found["wedge"], found["triangle"], found["paw"]
    (2, 1, 1)
    """
    from goffish.algorithms.dispatch import answer

    return answer(Motifs(), graph, threads=threads)


def graphlet_degrees(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Count at each vertex the connected induced subgraphs of up to four vertices (graphlets), by its position in them.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions, weights, self-loops and parallel
        edges are ignored.
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same result.

    Returns
    -------
    Result
        Columns ``vertex`` and ``orbit_0`` to ``orbit_14`` (int64), the graphlet degree vectors; see Notes. ``orbit_7``
        is null if it is 2^63 or more. `summary` holds ``orbits`` (15).

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    The orbits, in their usual numbering:

    ===== ======================================= ===== =======================================
    orbit position                                orbit position
    ===== ======================================= ===== =======================================
    0     end of an edge (degree)                 8     cycle of four
    1     end of a path of three                  9     paw: vertex outside the triangle
    2     middle of a path of three               10    paw: corner with two neighbors
    3     triangle                                11    paw: corner with three neighbors
    4     end of a path of four                   12    diamond: vertex with two neighbors
    5     middle of a path of four                13    diamond: vertex with three neighbors
    6     claw: leaf                              14    clique of four
    7     claw: center
    ===== ======================================= ===== =======================================

    Only triangles, cliques and cycles are counted; all other orbits follow from them and from degrees. Triangles and
    cycles take O(m^1.5) for m edges, cliques O(m^2). Beside the graph, it takes 56 bytes an edge and 4 more for each
    thread, and 260 bytes a vertex and 36 more for each thread, if there are fewer than 2^31 edges.

    References
    ----------
    N. Przulj, "Biological network comparison using graphlet degree distribution", Bioinformatics 23(2), 2007.

    T. Hocevar, J. Demsar, "A combinatorial approach to graphlet counting", Bioinformatics 30(4), 2014.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.graphlet_degrees(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4]))
    >>> found.to_dict("orbit_11"), found.to_dict("orbit_3")
    ({1: 0, 2: 0, 3: 1, 4: 0}, {1: 1, 2: 1, 3: 1, 4: 0})
    """
    from goffish.algorithms.dispatch import answer

    return answer(Graphlets(), graph, threads=threads)
