"""Maximum flows and minimum cuts: the call, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label, Note

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.algorithms.flows.in_memory import MaximumFlow
    from goffish.graph import Graph


class FlowBetween(Algorithm):
    """A maximum flow between two vertices."""

    name = "maximum-flow"
    title = "Maximum flow and minimum cut between two vertices."
    in_memory = True
    one_thread = True
    extra_tables: ClassVar = {"sides": "Table of the sides of the minimum cut: vertex, source_side."}

    source: Label = Field(description="Label of the source vertex.")
    target: Label = Field(description="Label of the target vertex.")
    weighted: bool = Field(default=True, description="Use edge weights as capacities if the graph has any.")

    def labels(self) -> list[int | str]:
        return [self.source, self.target]

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> MaximumFlow:
        from goffish.algorithms.flows.in_memory import maximum_flow

        return maximum_flow(graph if self.weighted else graph.unweighted(), self.source, self.target)

    def write_extra(self, result: Any, name: str, path: str) -> None:
        from goffish.gopher.result import write_table

        write_table(result.sides, path)


def maximum_flow(
    graph: AnyGraph, source: int | str, target: int | str, *, weighted: bool = True, threads: int | None = None
) -> MaximumFlow:
    """Find a maximum flow between two vertices, and a minimum cut that separates them.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph whose edges carry the flow; a partitioned graph is put together in memory. Flow follows the direction of
        arcs. An undirected edge carries flow in one of its directions, and parallel edges are separate.
    source, target : int or str
        Labels of two different vertices.
    weighted : bool
        Use edge weights as capacities if the graph has any [default: True]; otherwise each edge has capacity 1, and
        the value is the number of paths without common edges.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    MaximumFlow
        Columns ``source``, ``target``, ``flow`` (float64; in an undirected graph negative if it goes from the second
        vertex to the first) and ``cut`` (bool: whether the edge leads from the side of the source to that of the
        target), a row for each edge in the order of ``graph.edges``. `summary` holds ``value``, ``cut_edges`` (number
        of edges of the minimum cut) and ``source_side`` (number of vertices on the side of the source). The attribute
        `sides` is a table of all vertices.

    Raises
    ------
    InputError
        If `source` or `target` is not a vertex of the graph, they are the same, or a weight is neither 0 nor from
        1e-140 to 1e140.

    Notes
    -----
    Trees of shortest paths grow from both ends; where they meet, flow is sent, and the trees are repaired (A. V.
    Goldberg, S. Hed, H. Kaplan, R. E. Tarjan and R. F. Werneck, "Maximum flows by incremental breadth-first search",
    ESA 2011), in O(n² m) for n vertices and m edges at most. The value is exact if sums of the capacities are, as those
    of integers up to 2^53 are; else up to rounding. Of several minimum cuts, the one with the fewest vertices on the
    side of the target is returned; of several maximum flows, the same one in each run.

    Beside the graph, it takes 70 bytes a vertex if there are fewer than 2^31, and 8 bytes for each arc of an undirected
    graph (without weights 16) or 56 of a directed one. The table takes 25 bytes an edge.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["s", "s", "a", "b"], ["a", "b", "t", "t"], [3.0, 2.0, 2.0, 4.0], directed=True)
    >>> found = gf.maximum_flow(graph, "s", "t")
    >>> found.summary
    {'value': 4.0, 'cut_edges': 2, 'source_side': 2}
    >>> found.to_dict()
    {('a', 't'): 2.0, ('b', 't'): 2.0, ('s', 'a'): 2.0, ('s', 'b'): 2.0}
    >>> found.to_dict("cut")
    {('a', 't'): True, ('b', 't'): False, ('s', 'a'): False, ('s', 'b'): True}
    """
    from goffish.algorithms.dispatch import answer
    from goffish.algorithms.flows.in_memory import MaximumFlow

    found = answer(FlowBetween.checked(source=source, target=target, weighted=weighted), graph, threads=threads)
    assert isinstance(found, MaximumFlow)
    return found
