"""Betweenness: the calls, and how it is answered in memory or on an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from goffish.algorithms.algorithm import Note
from goffish.algorithms.betweenness.options import BetweennessOptions
from goffish.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class Betweenness(BetweennessOptions):
    """Betweenness centrality."""

    def whole_resumable(
        self, graph: Graph, threads: int | None, note: Note | None, checkpoint_dir: Path, resume: bool
    ) -> Result:
        from goffish.algorithms.betweenness.answers import exact

        return exact(graph, self, threads, note, checkpoint_dir=checkpoint_dir, resume=resume)

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.betweenness.subgraph.program import PartitionedBetweenness

        for name in self.only_whole():
            if name == "top":
                raise InputError(f"top={self.top!r}: on the engine give a number of vertices")
            raise InputError(f"{name} is for a graph in memory: leave out parts, engine, variant and pivots for it")
        assert not isinstance(self.top, str)
        return PartitionedBetweenness(
            pivots=self.pivots,
            sources=self.sources,
            seed=self.seed,
            top=self.top,
            batch=self.batch,
            max_change=self.max_change,
            stable=self.stable,
            compression={"default": "exact", "ms": "none", "msl-published": "drop"}[self.variant],  # type: ignore[arg-type]
            weighted=self.weighted is not False,
            max_concurrent=self.max_concurrent,
            time_limit=self.time_limit,
        )

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.betweenness.answers import exact, sampled

        return (exact if self.epsilon is None else sampled)(graph, self, threads, note)

    def conclude(self, graph: PartitionedGraph, table: pa.Table, stats: RunStats, note: Note | None = None) -> Result:
        result = super().conclude(graph, table, stats, note)
        if not self.compare:
            return result
        from goffish.algorithms.betweenness.answers import against_exact

        agreement = against_exact(graph.to_graph(), self, table["betweenness"].to_numpy(), None, note)
        return replace(result, summary={**result.summary, **agreement})

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        from goffish.algorithms.betweenness.answers import only_top

        told = stats.aggregates
        summary = {name: int(told[name]) for name in ("pivots", "rounds", "removed_vertices") if name in told}
        if "top" in table.column_names:
            table = only_top(table.filter(table["top"]).drop_columns("top"), self.how_many(table.num_rows))
        return table, summary


def betweenness(
    graph: AnyGraph,
    *,
    top: int | str | None = None,
    epsilon: float | None = None,
    delta: float = 0.1,
    weighted: bool | None = None,
    normalized: bool = False,
    endpoints: bool = False,
    sources: Sequence[int | str] | None = None,
    targets: Sequence[int | str] | None = None,
    threads: int | None = None,
    **more: Any,
) -> Result:
    """Betweenness: shortest paths through each vertex, summed over pairs of other vertices; column ``betweenness``.

    Undirected pairs count once, as in networkx and igraph. Exact by default; with `epsilon` sampled, and the columns
    ``least`` and ``most`` hold the true values, all of them with probability 1 - `delta`.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
    top : int or str, optional
        Only the most central vertices, in falling order: how many, or a share such as ``"1%"``.
    epsilon : float, optional
        Largest error of a sampled value, as a share of all pairs of vertices.
    delta : float
        Largest probability that an error is larger.
    weighted : bool, optional
        Measure paths by weights; default: if the graph has any.
    normalized : bool
        Divide by the number of pairs of other vertices.
    endpoints : bool
        Count a pair for its own two ends as well.
    sources, targets : sequences of labels, optional
        Only paths from and to these vertices.
    threads : int, optional
        Default: all processors. The values do not depend on it.
    **more
        ``reductions``: "all" (default), "none" or some of "leaves", "blocks", "chains", "twins", "sides", "order",
        "batches", what is taken off the graph before the searches, and how they go; the values are exact in any case.
        ``seed``: of the samples. ``compare``: compute the exact values as well, so that the summary has recall, rank
        correlation and largest error of the sampled ones. ``time_limit``: seconds after which no more searches are
        begun; what is known is scaled up, and the summary's ``searches_done`` says how much that is.
        ``checkpoint_dir``, ``resume``: folder that keeps the sums while they grow, and whether to go on from what it
        holds (exact values only). ``note``: called now and then with a line of text on how far the work is. All others
        of ``goffish run betweenness --help``, and of `goffish.run`.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.betweenness(gf.from_edges([1, 2, 3], [2, 3, 4])).to_dict()
    {1: 0.0, 2: 2.0, 3: 2.0, 4: 0.0}
    """
    from goffish.algorithms.dispatch import RUN_OPTIONS, answer

    running = {name: more.pop(name) for name in RUN_OPTIONS & more.keys()}
    asked = Betweenness.checked(
        top=top, epsilon=epsilon, delta=delta, weighted=weighted, normalized=normalized, endpoints=endpoints,
        sources=sources, targets=targets, **more,
    )  # fmt: skip
    return answer(asked, graph, threads=threads, **running)


def edge_betweenness(
    graph: Graph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    sources: Sequence[int | str] | None = None,
    targets: Sequence[int | str] | None = None,
    reductions: Literal["all", "none"] | Sequence[str] = "all",
    threads: int | None = None,
) -> Result:
    """Shortest paths through each edge, summed over pairs of vertices; columns ``source``, ``target``, ``betweenness``.

    Options as for `betweenness`; normalized values are divided by the number of pairs of vertices. One row per edge, in
    the order of `Graph.edge_columns`, with labels; of parallel edges the lightest share the value of their place.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.edge_betweenness(gf.from_edges([1, 2, 3], [2, 3, 4])).to_dict()
    {(1, 2): 3.0, (2, 3): 4.0, (3, 4): 3.0}
    """
    from goffish.algorithms.betweenness.answers import exact_edges

    return exact_edges(
        graph, weighted=weighted, normalized=normalized, sources=sources, targets=targets, reductions=reductions,
        threads=threads,
    )  # fmt: skip
