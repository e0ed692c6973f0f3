"""Structure of graphs: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note
from goffish.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class SpanningForest(Algorithm):
    """A minimum spanning forest."""

    name = "spanning-forest"
    title = "Minimum spanning forest: the edges of least total weight that connect each component."
    one_thread = True
    undirected = True

    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.structure.subgraph import SpanningForest as Program

        return Program(self.weighted)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        weight = float(table["weight"].to_numpy().sum()) if table.num_rows else 0.0
        return table, {"edges": table.num_rows, "trees": int(stats.aggregates.get("trees", 0)), "weight": weight}

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import minimum_spanning_forest

        return minimum_spanning_forest(graph if self.weighted else graph.unweighted())


class BiconnectedComponents(Algorithm):
    """Biconnected components."""

    name = "biconnected-components"
    title = "Biconnected component of each edge, ignoring directions."
    in_memory = True
    one_thread = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import biconnected_components

        return biconnected_components(graph)


class ArticulationPoints(Algorithm):
    """Articulation points."""

    name = "articulation-points"
    title = "Vertices without which their component falls apart, ignoring directions."
    in_memory = True
    one_thread = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import articulation_points

        return articulation_points(graph)


class Bridges(Algorithm):
    """Bridges."""

    name = "bridges"
    title = "Edges without which their component falls apart, ignoring directions."
    in_memory = True
    one_thread = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import bridges

        return bridges(graph)


class IndependentSet(Algorithm):
    """A maximal independent set."""

    name = "independent-set"
    title = "Maximal independent set: vertices without edges between them, those of low degree first."
    one_thread = True
    undirected = True

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.structure.subgraph import GreedyChoice

        return GreedyChoice(coloring=False)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"members": int(table["member"].to_numpy().sum())}

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import maximal_independent_set

        return maximal_independent_set(graph)


class Matching(Algorithm):
    """A maximal matching."""

    name = "matching"
    title = "Maximal matching: edges without common ends, and the partner of each vertex."
    in_memory = True
    one_thread = True
    undirected = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import maximal_matching

        return maximal_matching(graph)


class Coloring(Algorithm):
    """A greedy coloring."""

    name = "coloring"
    title = "Greedy coloring: a number for each vertex that differs from those of its neighbors."
    one_thread = True
    undirected = True

    order: Literal["largest-first", "smallest-last"] = Field(
        default="largest-first", description="Order of the vertices: by degree, or by core number."
    )

    def only_whole(self) -> list[str]:
        return ["order"] if self.order != "largest-first" else []

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.structure.subgraph import GreedyChoice

        if self.only_whole():
            raise InputError(f"order={self.order!r} works only in memory; omit parts and engine, or use to_graph()")
        return GreedyChoice(coloring=True)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import numpy as np

        counts = np.bincount(table["color"].to_numpy())
        return table, {"colors": counts.size, "largest": int(counts.max(initial=0))}

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import greedy_coloring

        return greedy_coloring(graph, self.order)


class LabelPropagation(Algorithm):
    """Communities by label propagation."""

    name = "label-propagation"
    title = "Communities by label propagation, ignoring directions."
    final_table = False
    one_thread = True
    undirected = True
    parallel = "sum"

    weighted: bool = Field(default=True, description="Use edge weights if the graph has any.")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.structure.subgraph import LabelPropagation as Program

        return Program(self.weighted)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        from goffish.algorithms.structure.in_memory import numbered

        rounds = int(stats.aggregates.get("rounds", 0)) + 1
        return numbered(table["vertex"], table["community"].to_numpy(), rounds)

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.structure.in_memory import label_propagation

        return label_propagation(graph if self.weighted else graph.unweighted())


def minimum_spanning_forest(graph: AnyGraph, *, weighted: bool = True, threads: int | None = None) -> Result:
    """Find a spanning forest of least total weight: a tree for each connected component.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Edge directions and self-loops are ignored.
    weighted : bool
        Use edge weights if the graph has any [default: True]; ``False`` finds any spanning forest.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        One row for each edge of the forest: ``source``, ``target`` and ``weight`` (1 without weights). `summary` holds
        ``edges``, ``trees`` (their number; a vertex without edges is a tree) and ``weight`` (sum of the weights); for a
        partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, an option has the wrong type, or a weight is neither 0 nor from 1e-140 to 1e140.

    Notes
    -----
    Boruvka's algorithm: O(m log n) for n vertices and m edges, and close to linear on most graphs. Of equal weights,
    the edges that come first in the graph are taken, so that there is exactly one result. It takes up to 24 bytes an
    edge and 64 bytes a vertex beside the graph. On a partitioned graph, each partition finds a forest of its edges;
    forests are joined in pairs, the last one in the memory of one process. The result is the same.

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


def biconnected_components(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Find the biconnected components of a graph.

    A biconnected component, or block, stays connected if any one of its vertices is removed. Each edge lies in one of
    them; different ones share at most one vertex, an articulation point.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions are ignored: every arc is an edge.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        One row for each edge: ``source``, ``target`` and ``block`` (number of the component, from 0 in the order of
        their first edges; null for self-loops). `summary` holds ``blocks`` (number of components), ``largest``
        (vertices in the largest one), ``articulation_points`` and ``bridges`` (numbers of them).

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    One depth-first search without recursion (J. Hopcroft and R. Tarjan, "Algorithm 447", Communications of the ACM
    16(6), 1973), linear in the number of edges, with 64 bytes a vertex beside the graph, and 48 bytes an edge for
    the table.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.biconnected_components(gf.from_edges([1, 2, 1, 3], [2, 3, 3, 4]))
    >>> found.to_dict()
    {(1, 2): 0, (1, 3): 0, (2, 3): 0, (3, 4): 1}
    >>> found.summary
    {'blocks': 2, 'largest': 3, 'articulation_points': 1, 'bridges': 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(BiconnectedComponents(), graph, threads=threads)


def articulation_points(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Find the vertices without which their connected component falls apart (cut vertices).

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions are ignored.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        One row for each articulation point: ``vertex`` and ``pieces`` (into how many its component falls without it).
        `summary` is that of `biconnected_components`.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    The search of `biconnected_components`: a vertex lies in as many of them as there are pieces.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.articulation_points(gf.from_edges([1, 2, 1, 3], [2, 3, 3, 4])).to_dict()
    {3: 2}
    """
    from goffish.algorithms.dispatch import answer

    return answer(ArticulationPoints(), graph, threads=threads)


def bridges(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Find the edges without which their connected component falls apart.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions are ignored: every arc is an edge.
        An edge that has a parallel one is not a bridge.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        One row for each bridge: ``source``, ``target`` and ``smaller_side`` (number of vertices on the smaller of its
        two sides). `summary` is that of `biconnected_components`.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    The search of `biconnected_components`: a bridge is one of two vertices and one edge.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.bridges(gf.from_edges([1, 2, 1, 3], [2, 3, 3, 4])).to_dict()
    {(3, 4): 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Bridges(), graph, threads=threads)


def maximal_independent_set(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Choose vertices without edges between them, so that no other vertex can be added.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Directions and self-loops are ignored.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``member`` (bool). `summary` holds ``members`` (number of vertices in the set); for a
        partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Vertices are taken greedily in ascending order of degree, those of equal degree in vertex order: there is exactly
    one result, in time linear in the number of edges. No vertex can be added to the set, but there may be larger sets:
    to find a largest one is NP-hard. Beside the graph, it takes 17 bytes a vertex. On a
    partitioned graph, a vertex decides when its neighbors of lower degree have; the result is the same.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.maximal_independent_set(gf.from_edges([1, 1, 1, 4], [2, 3, 4, 5])).to_dict()
    {1: False, 2: True, 3: True, 4: False, 5: True}
    """
    from goffish.algorithms.dispatch import answer

    return answer(IndependentSet(), graph, threads=threads)


def maximal_matching(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Choose edges without common ends, so that no other edge can be added.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions, weights and self-loops are ignored.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``partner`` (label of the other end of its edge; null if it has none). `summary` holds
        ``edges`` (their number) and ``unmatched`` (number of vertices without partner).

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Edges are taken greedily in the order of ``graph.edges``: there is exactly one result, in time linear in the number
    of edges, with 13 bytes a vertex beside the graph. The number of edges is at least half of the largest possible one.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.maximal_matching(gf.from_edges([1, 2, 3, 4], [2, 3, 4, 5])).to_dict()
    {1: 2, 2: 1, 3: 4, 4: 3, 5: None}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Matching(), graph, threads=threads)


def greedy_coloring(
    graph: AnyGraph,
    *,
    order: Literal["largest-first", "smallest-last"] = "largest-first",
    threads: int | None = None,
) -> Result:
    """Color the vertices of a graph with few colors, so that neighbors have different ones.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to color. Directions and self-loops are ignored.
    order : {"largest-first", "smallest-last"}
        Order in which vertices get colors: by descending degree, or against the order in which vertices of least degree
        are removed. "smallest-last" needs at most one color more than the largest core number, and often fewer colors
        than "largest-first", but works only in memory [default: "largest-first"].
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``color`` (int64, from 0). `summary` holds ``colors`` (their number) and ``largest``
        (number of vertices of the most frequent color); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or an option is not accepted.

    Notes
    -----
    Each vertex gets the least color that none of its neighbors has (D. J. A. Welsh and M. B. Powell, "An upper bound
    for the chromatic number of a graph", The Computer Journal 10(1), 1967; D. W. Matula and L. L. Beck,
    "Smallest-last ordering and clustering and graph coloring algorithms", Journal of the ACM 30(3), 1983), in time
    linear in the number of edges. Beside the graph, it takes 32 bytes a vertex. The number of colors is not
    always the least: to find that is NP-hard.
    On a partitioned graph, a vertex is colored when its neighbors of higher degree are; the result is the same.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.greedy_coloring(gf.from_edges([1, 2, 1, 3], [2, 3, 3, 4])).to_dict()
    {1: 1, 2: 2, 3: 0, 4: 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Coloring.checked(order=order), graph, threads=threads)


def label_propagation(graph: AnyGraph, *, weighted: bool = True, threads: int | None = None) -> Result:
    """Find communities in which each vertex has the label that is most frequent among its neighbors.

    Faster than `louvain`, with communities of lower modularity.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Directions are ignored.
    weighted : bool
        Use edge weights if the graph has any [default: True]; otherwise each neighbor counts once.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``community`` (int64, from 0 in the order of the first vertices). `summary` holds
        ``communities`` (their number), ``largest`` (vertices in the largest one) and ``rounds``; for a partitioned
        graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, an option has the wrong type, or a weight is neither 0 nor from 1e-140 to 1e140.

    Notes
    -----
    Semi-synchronous label propagation (G. Cordasco and L. Gargano, "Community detection via semi-synchronous label
    propagation algorithms", BASNA 2010): vertices without edges between them, found by `greedy_coloring`, change their
    labels at the same time. A vertex keeps its label if none is more frequent; of several more frequent ones it takes
    the largest. No chance is involved, and the labels always settle. Vertices have another turn only if a
    neighbor has changed its label; a round takes time linear in the number of edges at most. Beside the graph, it takes
    32 bytes a vertex. On a partitioned graph, the vertices of one color take their turns in a superstep; the result is
    the same.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 1, 3, 4, 5, 4], [2, 3, 3, 4, 5, 6, 6])
    >>> gf.label_propagation(graph).to_dict()
    {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}
    """
    from goffish.algorithms.dispatch import answer

    return answer(LabelPropagation.checked(weighted=weighted), graph, threads=threads)
