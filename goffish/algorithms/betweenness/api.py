"""Betweenness: the calls, the options, and how it is answered in memory or on an engine."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from goffish.algorithms.algorithm import Algorithm, Label, Name, Note
from goffish.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")


def _as_top(value: Any) -> Any:
    told = "must be a number of vertices, or a share of them such as 1%"
    if isinstance(value, str):
        if value.isdecimal():
            value = int(value)
        elif not (match := _SHARE.fullmatch(value)) or not 0.0 < float(match[1]) <= 100.0:
            raise ValueError(told)
    if isinstance(value, bool | float) or (isinstance(value, int) and value < 1):
        raise ValueError(told)
    return value


def _as_reductions(value: Any) -> Any:
    if value == "none":
        return ()
    return tuple(value.split(",")) if isinstance(value, str) and value != "all" else value


Top = Annotated[int | Name | None, BeforeValidator(_as_top), WithJsonSchema({"type": "string"})]
Reductions = Annotated[
    Literal["all"] | tuple[Name, ...], BeforeValidator(_as_reductions), WithJsonSchema({"type": "string"})
]


class Betweenness(Algorithm):
    """Betweenness centrality."""

    name = "betweenness"
    title = "Shortest paths through each vertex: exact, sampled to a proved error, or from pivots."
    final_table = False

    top: Top = Field(
        default=None, description="Only the most central vertices: how many, or a share of all such as 1%."
    )
    epsilon: float | None = Field(
        default=None, gt=0.0, lt=1.0,
        description="Sample: largest error, as a share of all pairs of vertices (in memory).",
    )  # fmt: skip
    delta: float = Field(default=0.1, gt=0.0, lt=1.0, description="Largest probability of a larger error.")
    variant: Literal["default", "ms", "msl-published"] = Field(
        default="default",
        description="On the engine: exact leaf compression, none (MS-BC), or leaves dropped as published (MSL-BC).",
    )
    weighted: bool | None = Field(default=None, description="Measure paths by weights. Default: if there are any.")
    normalized: bool = Field(default=False, description="Divide by the number of pairs of other vertices.")
    endpoints: bool = Field(default=False, description="Count pairs for their own two ends as well.")
    reductions: Reductions = Field(
        default="all",
        description="In memory, all exact: all, none, or some of leaves,blocks,chains,twins,sides,order,batches.",
    )
    time_limit: float | None = Field(
        default=None, ge=0.0,
        description="Begin no more searches after so many seconds; the values are estimates then.",
    )  # fmt: skip
    sources: tuple[Label, ...] | None = Field(default=None, description="Only paths from these vertices.")
    targets: tuple[Label, ...] | None = Field(default=None, description="Only paths to these vertices.")
    pivots: int | None = Field(default=None, ge=1, description="On the engine: so many random sources, and estimates.")
    batch: int = Field(default=32, ge=1, description="On the engine, with top: pivots between two comparisons.")
    stable: int = Field(default=3, ge=1, description="On the engine, with top: equal comparisons before the end.")
    max_change: int = Field(default=1, ge=0, description="On the engine, with top: new members that count as equal.")
    max_concurrent: int | None = Field(default=None, ge=1, description="On the engine: most sources at a time.")
    seed: int = Field(default=0, ge=0, description="Seed of samples and pivots.")
    compare: bool = Field(
        default=False,
        description="Compute the exact values as well, and tell recall, rank correlation and largest error.",
    )

    @model_validator(mode="after")
    def _agree(self) -> Betweenness:
        if self.epsilon is not None:
            unfit = [name for name in ("sources", "targets", "pivots", "endpoints") if getattr(self, name)]
            if unfit:
                raise ValueError(f"epsilon samples paths between all vertices: leave out {', '.join(unfit)}")
        return self

    def how_many(self, n: int) -> int | None:
        """`top` as a number of vertices."""
        if isinstance(self.top, str):
            return min(n, math.ceil(n * float(self.top.removesuffix("%")) / 100.0))
        return None if self.top is None else min(self.top, n)

    def needs_engine(self) -> bool:
        return self.variant != "default" or self.pivots is not None

    def only_whole(self) -> list[str]:
        unfit = {
            "epsilon": self.epsilon is not None, "targets": self.targets is not None, "endpoints": self.endpoints,
            "normalized": self.normalized, "reductions": self.reductions != "all", "top": isinstance(self.top, str),
        }  # fmt: skip
        return [name for name, given in unfit.items() if given]

    def resumes_whole(self) -> bool:
        return self.epsilon is None

    def labels(self) -> list[int | str]:
        return [*(self.sources or ()), *(self.targets or ())]

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.betweenness.subgraph.program import PartitionedBetweenness

        for name in self.only_whole():
            if name == "top":
                raise InputError(f"top={self.top!r}: on the engine give a number of vertices")
            raise InputError(f"{name} is for a graph in memory: leave out parts, engine, variant and pivots for it")
        assert not isinstance(self.top, str)
        return PartitionedBetweenness(
            pivots=self.pivots,
            sources=None if self.sources is None else tuple(dict.fromkeys(self.sources)),
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
        return (
            self._exact(graph, note, threads=threads) if self.epsilon is None else self._sampled(graph, threads, note)
        )

    def whole_resumable(
        self, graph: Graph, threads: int | None, note: Note | None, checkpoint_dir: Path, resume: bool
    ) -> Result:
        return self._exact(graph, note, threads=threads, checkpoint_dir=checkpoint_dir, resume=resume)

    def _exact(self, graph: Graph, note: Note | None, **running: Any) -> Result:
        """The exact values, estimates after a time limit."""
        from goffish.algorithms.betweenness import in_memory
        from goffish.algorithms.timing import told_to

        if self.compare:
            raise InputError(
                "compare is for estimates, and these values are exact: give epsilon or pivots, or leave it out"
            )
        found = in_memory.betweenness(
            graph, weighted=self.weighted, normalized=self.normalized, endpoints=self.endpoints, sources=self.sources,
            targets=self.targets, reductions=self.reductions, time_limit=self.time_limit, progress=told_to(note),
            **running,
        )  # fmt: skip
        return in_memory.exact_result(graph, found, self.how_many(graph.num_vertices))

    def _sampled(self, graph: Graph, threads: int | None, note: Note | None) -> Result:
        """Estimates with proved bounds."""
        from goffish.algorithms.betweenness.in_memory import only_top, sampled_table
        from goffish.algorithms.betweenness.sampling import estimate_betweenness
        from goffish.gopher import Result

        def report(done: int, most: int) -> None:
            if note is not None:
                note(f"{done:,} of at most {most:,} samples")

        n, top = graph.num_vertices, self.how_many(graph.num_vertices)
        assert self.epsilon is not None
        found = estimate_betweenness(
            graph, self.epsilon, self.delta, top=top, weighted=self.weighted, seed=self.seed, threads=threads,
            progress=report,
        )  # fmt: skip
        pairs = n * (n - 1) / (1.0 if graph.directed else 2.0)
        agreement = self._against_exact(graph, found.score * pairs, threads, note) if self.compare else {}
        if self.normalized:
            pairs = n / (n - 2) if n > 2 else 1.0
        summary = {
            "samples": found.samples, "most_samples": found.most, "epsilon": self.epsilon, "delta": self.delta,
            "certain": found.certain,
        }  # fmt: skip
        if top is not None:
            summary["certain_members"] = found.members
        return Result("betweenness", only_top(sampled_table(graph, found, pairs), top), summary | agreement)

    def _against_exact(self, graph: Graph, estimate: Any, threads: int | None, note: Note | None) -> dict[str, Any]:
        """Compute the exact values and compare the estimates, one per vertex in vertex order, with them."""
        from goffish.algorithms.betweenness import in_memory
        from goffish.algorithms.betweenness.accuracy import compared
        from goffish.algorithms.timing import told_to

        report = told_to(note, "exact values, to compare: ")
        exact = in_memory.betweenness(
            graph, weighted=self.weighted, sources=self.sources, threads=threads, progress=report
        ).scores
        return compared(exact, estimate, top=self.how_many(graph.num_vertices), directed=graph.directed)

    def conclude(self, graph: PartitionedGraph, table: pa.Table, stats: RunStats, note: Note | None = None) -> Result:
        result = super().conclude(graph, table, stats, note)
        if not self.compare:
            return result
        agreement = self._against_exact(graph.to_graph(), table["betweenness"].to_numpy(), None, note)
        return replace(result, summary={**result.summary, **agreement})

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        from goffish.algorithms.betweenness.in_memory import only_top

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
    from goffish.algorithms.betweenness import in_memory

    found = in_memory.edge_betweenness(
        graph, weighted=weighted, normalized=normalized, sources=sources, targets=targets,
        reductions=() if reductions == "none" else reductions, threads=threads,
    )  # fmt: skip
    return in_memory.edge_result(graph, found)
