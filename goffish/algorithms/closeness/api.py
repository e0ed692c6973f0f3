"""Closeness and harmonic centrality: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label, Note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from goffish.algorithms.closeness.in_memory import Centrality
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


class _FromDistances(Algorithm):
    in_memory = True

    top: int | None = Field(default=None, ge=1, description="Return only this number of the most central vertices.")
    weighted: bool | None = Field(
        default=None, description="Use edge weights as lengths [default: if the graph has weights]."
    )
    vertices: tuple[Label, ...] | None = Field(default=None, description="Return only these vertices.")

    def result(self, graph: Graph, found: Centrality, summary: dict[str, Any]) -> Result:
        """Columns ``vertex`` and the algorithm's name."""
        import numpy as np
        import pyarrow as pa

        from goffish.gopher.result import Result

        rows = np.arange(found.scores.size)
        if self.top is not None:
            rows = np.argsort(-found.scores, kind="stable")[: self.top]  # ties in the order of the vertices
        labels = graph.label_column().take(pa.array(found.vertices[rows]))
        return Result(self.name, pa.table({"vertex": labels, self.name: pa.array(found.scores[rows])}), summary)


class Closeness(_FromDistances):
    """Closeness centrality."""

    name = "closeness"
    title = "Closeness centrality: one over the mean distance to each vertex."

    wf_improved: bool = Field(
        default=True, description="Multiply by the share of the other vertices that reach the vertex."
    )

    def labels(self) -> list[int | str]:
        return [*(self.vertices or ())]

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.closeness.in_memory import closeness
        from goffish.algorithms.timing import reporter

        found = closeness(
            graph, weighted=self.weighted, wf_improved=self.wf_improved, vertices=self.vertices, threads=threads,
            progress=reporter(note),
        )  # fmt: skip
        pairs = int(found.reached.sum())
        return self.result(graph, found, {"mean_distance": float(found.total.sum()) / pairs} if pairs else {})


class Harmonic(_FromDistances):
    """Harmonic centrality."""

    name = "harmonic"
    title = "Harmonic centrality: sum of one over the distance to each vertex."

    normalized: bool = Field(default=False, description="Divide by the number of other vertices.")
    sources: tuple[Label, ...] | None = Field(default=None, description="Sum only distances from these vertices.")

    def labels(self) -> list[int | str]:
        return [*(self.vertices or ()), *(self.sources or ())]

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.closeness.in_memory import harmonic
        from goffish.algorithms.timing import reporter

        found = harmonic(
            graph, weighted=self.weighted, normalized=self.normalized, vertices=self.vertices, sources=self.sources,
            threads=threads, progress=reporter(note),
        )  # fmt: skip
        return self.result(graph, found, {})


def closeness(
    graph: AnyGraph,
    *,
    top: int | None = None,
    weighted: bool | None = None,
    wf_improved: bool = True,
    vertices: Sequence[int | str] | None = None,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Result:
    """Compute the closeness centrality of each vertex.

    Closeness is one over the mean distance from the vertices that reach a vertex. As in NetworkX, distances in a
    directed graph are inward, and a vertex that no other vertex reaches has closeness 0.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. A partitioned graph is first assembled in memory.
    top : int, optional
        Return only this number of vertices, the most central first [default: all, in vertex order].
    weighted : bool, optional
        Use edge weights as lengths [default: True if the graph has weights].
    wf_improved : bool
        Multiply by the share of the other vertices that reach the vertex [default: True]; see Notes.
    vertices : sequence of int or str, optional
        Labels of the vertices to compute [default: all].
    threads : int, optional
        Number of threads [default: all processors]. The values do not depend on it.
    note : callable, optional
        Called with a line of text that reports the progress and the estimated remaining time.

    Returns
    -------
    Result
        Columns ``vertex`` and ``closeness`` (float64). `summary` holds ``mean_distance`` over all reachable pairs, if
        there are any.

    Raises
    ------
    InputError
        If an option is out of range, or `vertices` names an unknown vertex.

    Notes
    -----
    With n vertices, of which r reach v at a total distance of D, closeness is r / D, and with `wf_improved` r / D · r /
    (n - 1). One search per vertex: O(n m) for m unweighted arcs.

    References
    ----------
    S. Wasserman, K. Faust, "Social Network Analysis", Cambridge University Press, 1994.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.closeness(gf.from_edges([1, 2], [2, 3])).to_dict()
    {1: 0.6666666666666666, 2: 1.0, 3: 0.6666666666666666}
    """
    from goffish.algorithms.dispatch import answer

    asked = Closeness.checked(top=top, weighted=weighted, wf_improved=wf_improved, vertices=vertices)
    return answer(asked, graph, threads=threads, note=note)


def harmonic(
    graph: AnyGraph,
    *,
    top: int | None = None,
    weighted: bool | None = None,
    normalized: bool = False,
    vertices: Sequence[int | str] | None = None,
    sources: Sequence[int | str] | None = None,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Result:
    """Compute the harmonic centrality of each vertex.

    Harmonic centrality is the sum of one over the distance from each other vertex. Unreachable vertices add nothing. As
    in NetworkX, distances in a directed graph are inward.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. A partitioned graph is first assembled in memory.
    top : int, optional
        Return only this number of vertices, the most central first [default: all, in vertex order].
    weighted : bool, optional
        Use edge weights as lengths [default: True if the graph has weights].
    normalized : bool
        Divide by the number of other vertices [default: False].
    vertices : sequence of int or str, optional
        Labels of the vertices to compute [default: all].
    sources : sequence of int or str, optional
        Sum only distances from these vertices [default: all].
    threads : int, optional
        Number of threads [default: all processors]. The values do not depend on it.
    note : callable, optional
        Called with a line of text that reports the progress and the estimated remaining time.

    Returns
    -------
    Result
        Columns ``vertex`` and ``harmonic`` (float64). `summary` is empty.

    Raises
    ------
    InputError
        If an option is out of range, or `vertices` or `sources` names an unknown vertex.

    Notes
    -----
    One search per vertex (or per source): O(n m) for n vertices and m unweighted arcs.

    References
    ----------
    P. Boldi, S. Vigna, "Axioms for centrality", Internet Mathematics 10 (2014).

    Examples
    --------
    >>> import goffish as gf
    >>> gf.harmonic(gf.from_edges([1, 2], [2, 3])).to_dict()
    {1: 1.5, 2: 2.0, 3: 1.5}
    """
    from goffish.algorithms.dispatch import answer

    asked = Harmonic.checked(top=top, weighted=weighted, normalized=normalized, vertices=vertices, sources=sources)
    return answer(asked, graph, threads=threads, note=note)
