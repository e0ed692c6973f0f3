"""Connected components: the call, and the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Name, Note

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class Components(Algorithm):
    """Weakly connected components."""

    name = "components"
    title = "Weakly connected components, each labeled by its largest vertex."
    one_thread = True

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.components.subgraph import ConnectedComponents, PartitionCentricComponents

        return PartitionCentricComponents() if graph.info.finder == "single" else ConnectedComponents()

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.components.in_memory import connected_components

        return connected_components(graph)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        sizes = table.group_by("component").aggregate([("vertex", "count")])["vertex_count"].to_numpy()
        return table, {
            "components": int(sizes.size),
            "largest": int(sizes.max(initial=0)),
            "isolated": int((sizes == 1).sum()),
        }


class StrongComponents(Algorithm):
    """Strongly connected components."""

    name = "strong-components"
    title = "Strongly connected components, each labeled by its largest vertex."
    final_table = False
    one_thread = True

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.components.subgraph import StrongComponents as Program

        return Program()

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        from goffish.algorithms.components.in_memory import strong_components_of_numbers

        return strong_components_of_numbers(table["vertex"], table["component"].to_numpy())

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.components.in_memory import strongly_connected_components

        return strongly_connected_components(graph)


class MaxValue(Algorithm):
    """The largest vertex value of each component."""

    name = "max-value"
    title = "Largest vertex value in each component (worked example of the engine)."

    attribute: Name | None = Field(default=None, description="Vertex attribute [default: the vertex number].")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.components.subgraph import MaxVertexValue

        return MaxVertexValue(self.attribute)

    def needs_engine(self) -> bool:
        return True


def connected_components(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Find the weakly connected components of a graph.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Edge directions are ignored.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``component`` (label of the largest vertex of the component). `summary` holds
        ``components`` (their number), ``largest`` (vertices in the largest one) and ``isolated`` (components of one
        vertex); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    In memory, the kernel is a union-find over all edges: close to linear in the number of edges. On a partitioned
    graph, each subgraph sends its largest label to its neighbors until no label changes.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.connected_components(gf.from_edges([1, 2, 5], [2, 3, 6]))
    >>> found.to_dict()
    {1: 3, 2: 3, 3: 3, 5: 6, 6: 6}
    >>> found.summary
    {'components': 2, 'largest': 3, 'isolated': 0}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Components(), graph, threads=threads)


def strongly_connected_components(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Find the strongly connected components of a graph.

    Two vertices are in the same one if each can be reached from the other.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. Of an undirected graph, the components are those of `connected_components`.
    threads : int, optional
        Number of threads for a partitioned graph [default: all processors]. The in-memory kernel uses one thread and
        warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``component`` (label of the largest vertex of the component). `summary` holds
        ``components`` (their number), ``largest`` (vertices in the largest one) and ``trivial`` (components of one
        vertex); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    One depth-first search without recursion (D. J. Pearce, "A space-efficient algorithm for finding strongly connected
    components", Information Processing Letters 116(1), 2016), linear in the number of edges, with 17 bytes a vertex
    beside the graph if it has fewer than 2^31 vertices. On a partitioned graph, rounds of two searches, forward and
    backward, divide the vertices until each part is a component; the expected number of rounds grows with the logarithm
    of the number of components. The result is the same.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4], directed=True)
    >>> gf.strongly_connected_components(graph).to_dict()
    {1: 3, 2: 3, 3: 3, 4: 4}
    """
    from goffish.algorithms.dispatch import answer

    return answer(StrongComponents(), graph, threads=threads)


def condensation(graph: Graph) -> Graph:
    """Make a graph without cycles of the strongly connected components of a directed graph.

    Parameters
    ----------
    graph : Graph
        Directed graph.

    Returns
    -------
    Graph
        Directed; a vertex for each component, with the label that `strongly_connected_components` gives it and the
        attribute ``size`` (number of vertices). Arcs between the same components become one; their weights are added.

    Raises
    ------
    InputError
        If `graph` is not a directed graph.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4], directed=True)
    >>> gf.condensation(graph).edges.to_pylist()
    [{'source': 3, 'target': 4}]
    """
    from goffish.algorithms.components import in_memory
    from goffish.errors import InputError
    from goffish.graph import Graph, contract
    from goffish.graph.guards import expect

    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    if not graph.directed:
        raise InputError("graph is undirected: a condensation has the directions of a directed graph")
    found = contract(graph, in_memory.strongly_connected_components(graph))
    return found.unweighted() if graph.weights is None else found
