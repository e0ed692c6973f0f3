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

    import pyarrow as pa

    from goffish.algorithms.betweenness.sampling import Estimate
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")


def _as_top(value: Any) -> Any:
    accepted = "must be a number of vertices or a share such as 1%"
    if isinstance(value, str):
        if value.isdecimal():
            value = int(value)
        elif not (match := _SHARE.fullmatch(value)) or not 0.0 < float(match[1]) <= 100.0:
            raise ValueError(accepted)
    if isinstance(value, bool | float) or (isinstance(value, int) and value < 1):
        raise ValueError(accepted)
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
    title = "Betweenness centrality: exact, sampled to a proved error, or estimated from pivots."
    final_table = False

    top: Top = Field(
        default=None, description="Return only the most central vertices: a number, or a share such as 1%."
    )
    epsilon: float | None = Field(
        default=None, gt=0.0, lt=1.0,
        description="Sample, with at most this error as a share of all pairs of vertices.",
    )  # fmt: skip
    delta: float = Field(
        default=0.1, gt=0.0, lt=1.0, description="With epsilon: maximum probability of a larger error."
    )
    variant: Literal["default", "ms", "msl-published"] = Field(
        default="default",
        description="On the engine: exact leaf compression, none (ms), or leaves dropped (msl-published).",
    )
    weighted: bool | None = Field(
        default=None, description="Use edge weights as lengths [default: if the graph has weights]."
    )
    normalized: bool = Field(default=False, description="Divide by the number of pairs of other vertices.")
    endpoints: bool = Field(default=False, description="Also count each pair for its two ends.")
    reductions: Reductions = Field(
        default="all",
        description="In memory, exact: all, none, or any of leaves,blocks,chains,twins,sides,order,batches.",
    )
    time_limit: float | None = Field(
        default=None, ge=0.0,
        description="Start no more searches after this number of seconds and return estimates.",
    )  # fmt: skip
    sources: tuple[Label, ...] | None = Field(default=None, description="Count only paths from these vertices.")
    targets: tuple[Label, ...] | None = Field(default=None, description="Count only paths to these vertices.")
    pivots: int | None = Field(
        default=None, ge=1, description="On the engine: estimate from this number of random sources."
    )
    batch: int = Field(
        default=32, ge=1, description="On the engine, with top: number of pivots between two comparisons."
    )
    stable: int = Field(
        default=3,
        ge=1,
        description="On the engine, with top: number of consecutive equal comparisons that end the run.",
    )
    max_change: int = Field(
        default=1, ge=0, description="On the engine, with top: new members that still count as an equal comparison."
    )
    max_concurrent: int | None = Field(
        default=None, ge=1, description="On the engine: maximum number of concurrent sources."
    )
    seed: int = Field(default=0, ge=0, description="Random seed.")
    compare: bool = Field(
        default=False,
        description="Also compute the exact values and report recall, rank correlation and largest error.",
    )

    @model_validator(mode="after")
    def _agree(self) -> Betweenness:
        if self.epsilon is not None:
            unfit = [name for name in ("sources", "targets", "pivots", "endpoints") if getattr(self, name)]
            if self.variant == "msl-published":
                unfit.append("variant")
            if unfit:
                raise ValueError(f"epsilon samples paths between all vertices; omit {', '.join(unfit)}")
        if self.variant == "msl-published":
            for name in ("targets", "endpoints"):
                if getattr(self, name):
                    raise ValueError(f"{name} requires variant='default' or 'ms': dropped leaves have no paths")
        return self

    def how_many(self, n: int) -> int | None:
        """`top` as a number of vertices."""
        if isinstance(self.top, str):
            return min(n, math.ceil(n * float(self.top.removesuffix("%")) / 100.0))
        return None if self.top is None else min(self.top, n)

    def needs_engine(self) -> bool:
        return self.variant != "default" or self.pivots is not None

    def only_whole(self) -> list[str]:
        return ["reductions"] if self.reductions != "all" else []

    def resumes_whole(self) -> bool:
        return self.epsilon is None

    def labels(self) -> list[int | str]:
        return [*(self.sources or ()), *(self.targets or ())]

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.betweenness.subgraph.program import Ends, PartitionedBetweenness

        if self.only_whole():
            raise InputError("reductions works only in memory; omit it, or omit parts, engine, variant and pivots")
        n, pivots = graph.num_vertices, self.pivots
        if self.epsilon is not None:
            pivots = max(1, min(n, self._samples(n)))
        return PartitionedBetweenness(
            pivots=pivots,
            sources=None if self.sources is None else tuple(dict.fromkeys(self.sources)),
            seed=self.seed,
            top=None if self.epsilon is not None else self.how_many(n),
            batch=self.batch,
            max_change=self.max_change,
            stable=self.stable,
            compression={"default": "exact", "ms": "none", "msl-published": "drop"}[self.variant],  # type: ignore[arg-type]
            weighted=self.weighted is not False,
            max_concurrent=self.max_concurrent,
            time_limit=self.time_limit,
            ends=Ends(self.targets, self.endpoints),
        )

    def _samples(self, n: int) -> int:
        """Sources after which, by Hoeffding's inequality, no share of pairs is wrong by more than epsilon."""
        assert self.epsilon is not None
        return math.ceil(math.log(2.0 * max(n, 1) / self.delta) / (2.0 * self.epsilon**2))

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        return (
            self._exact(graph, note, threads=threads) if self.epsilon is None else self._sampled(graph, threads, note)
        )

    def whole_resumable(
        self, graph: Graph, threads: int | None, note: Note | None, checkpoint_dir: str, resume: bool
    ) -> Result:
        return self._exact(graph, note, threads=threads, checkpoint_dir=checkpoint_dir, resume=resume)

    def _exact(self, graph: Graph, note: Note | None, **running: Any) -> Result:
        """The exact values, estimates after a time limit."""
        from goffish.algorithms.betweenness import in_memory
        from goffish.algorithms.timing import reporter

        if self.compare:
            raise InputError(
                "compare applies to estimates, and these values are exact; add epsilon or pivots, or omit compare"
            )
        found = in_memory.betweenness(
            graph, weighted=self.weighted, normalized=self.normalized, endpoints=self.endpoints, sources=self.sources,
            targets=self.targets, reductions=self.reductions, time_limit=self.time_limit, progress=reporter(note),
            **running,
        )  # fmt: skip
        return in_memory.exact_result(graph, found, self.how_many(graph.num_vertices))

    def _sampled(self, graph: Graph, threads: int | None, note: Note | None) -> Result:
        """Estimates with proved bounds."""
        from goffish.algorithms.betweenness.sampling import estimate_betweenness

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
        result = self.sampled_result(graph.label_column(), found, directed=graph.directed)
        return replace(result, summary={**result.summary, **agreement})

    def sampled_result(self, labels: pa.Array, found: Estimate, *, directed: bool) -> Result:
        """The result of an estimate; columns ``vertex``, ``betweenness``, ``least`` and ``most``."""
        from goffish.algorithms.betweenness.in_memory import only_top, sampled_table
        from goffish.gopher import Result

        n, top = len(labels), self.how_many(len(labels))
        pairs = n * (n - 1) / (1.0 if directed else 2.0)
        if self.normalized:
            pairs = n / (n - 2) if n > 2 else 1.0
        summary = {
            "samples": found.samples, "most_samples": found.most, "epsilon": self.epsilon, "delta": self.delta,
            "certain": found.certain,
        }  # fmt: skip
        if top is not None:
            summary["certain_members"] = found.members
        return Result("betweenness", only_top(sampled_table(labels, found, pairs), top), summary)

    def _against_exact(self, graph: Graph, estimate: Any, threads: int | None, note: Note | None) -> dict[str, Any]:
        """Compute the exact values and compare the estimates, one per vertex in vertex order, with them."""
        from goffish.algorithms.betweenness import in_memory
        from goffish.algorithms.betweenness.accuracy import compared
        from goffish.algorithms.timing import reporter

        report = reporter(note, "exact values for comparison: ")
        exact = in_memory.betweenness(
            graph, weighted=self.weighted, sources=self.sources, targets=self.targets, endpoints=self.endpoints,
            threads=threads, progress=report,
        ).scores  # fmt: skip
        return compared(exact, estimate, top=self.how_many(graph.num_vertices), directed=graph.directed)

    def conclude(self, graph: PartitionedGraph, table: pa.Table, stats: RunStats, note: Note | None = None) -> Result:
        result = super().conclude(graph, table, stats, note)
        if self.compare:
            agreement = self._against_exact(graph.to_graph(), table["betweenness"].to_numpy(), None, note)
            result = replace(result, summary={**result.summary, **agreement})
        if self.epsilon is not None:
            return self._bounded(graph, table, result)
        n = graph.num_vertices
        pairs = n * (n - 1) if self.endpoints else (n - 1) * (n - 2)
        if not self.normalized or pairs <= 0:
            return result
        at = result.table.column_names.index("betweenness")
        share = result.table.column(at).to_numpy() * ((1.0 if graph.info.directed else 2.0) / pairs)
        return replace(result, table=result.table.set_column(at, "betweenness", [share]))

    def _bounded(self, graph: PartitionedGraph, table: pa.Table, result: Result) -> Result:
        """The estimates with bounds that Hoeffding's inequality proves, from the searches that were made."""
        import numpy as np

        from goffish.algorithms.betweenness.sampling import Estimate

        n, done = graph.num_vertices, int(result.summary.get("pivots", 0))
        assert self.epsilon is not None
        score = table["betweenness"].to_numpy() * ((1.0 if graph.info.directed else 2.0) / max(1, n * (n - 1)))
        # Hoeffding's bound for samples without replacement; nothing is left to chance once all sources are searched.
        error = 0.0 if done >= n else math.sqrt(math.log(2.0 * n / self.delta) / (2.0 * max(1, done)))
        width, top = np.full(n, error), self.how_many(n)
        members = 0
        if top is not None:
            falling = np.sort(score)[::-1]
            rest = falling[top] if top < n else -1.0
            members = int(np.count_nonzero(falling[:top] - error > rest + error)) if error else top
        certain = error <= self.epsilon if top is None else members == top
        found = Estimate(score, width, width, done, min(n, self._samples(n)), None, certain, members)
        bounded = self.sampled_result(table["vertex"], found, directed=graph.info.directed)
        return replace(result, table=bounded.table, summary={**result.summary, **bounded.summary})

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        from goffish.algorithms.betweenness.in_memory import only_top

        counted = stats.aggregates
        summary = {name: int(counted[name]) for name in ("pivots", "rounds", "removed_vertices") if name in counted}
        if "top" in table.column_names:
            table = only_top(table.filter(table["top"]).drop_columns("top"), self.how_many(table.num_rows))
        return table, summary


class EdgeBetweenness(Algorithm):
    """Betweenness centrality of edges."""

    name = "edge-betweenness"
    title = "Betweenness centrality of edges, exact."
    in_memory = True

    weighted: bool | None = Field(
        default=None, description="Use edge weights as lengths [default: if the graph has weights]."
    )
    normalized: bool = Field(default=False, description="Divide by the number of pairs of vertices.")
    sources: tuple[Label, ...] | None = Field(default=None, description="Count only paths from these vertices.")
    targets: tuple[Label, ...] | None = Field(default=None, description="Count only paths to these vertices.")
    reductions: Reductions = Field(default="all", description="All, none, or any of leaves,blocks,order.")

    def labels(self) -> list[int | str]:
        return [*(self.sources or ()), *(self.targets or ())]

    def resumes_whole(self) -> bool:
        return True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        return self._exact(graph, note, threads=threads)

    def whole_resumable(
        self, graph: Graph, threads: int | None, note: Note | None, checkpoint_dir: str, resume: bool
    ) -> Result:
        return self._exact(graph, note, threads=threads, checkpoint_dir=checkpoint_dir, resume=resume)

    def _exact(self, graph: Graph, note: Note | None, **running: Any) -> Result:
        from goffish.algorithms.betweenness import in_memory
        from goffish.algorithms.timing import reporter

        options = {name: getattr(self, name) for name in type(self).model_fields}
        return in_memory.edge_result(
            graph, in_memory.edge_betweenness(graph, **options, progress=reporter(note), **running)
        )


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
    """Compute the betweenness centrality of each vertex, exactly or by sampling.

    Betweenness is the number of shortest paths through a vertex, as a share of all shortest paths of each pair of other
    vertices, summed over the pairs. As in NetworkX and igraph, an undirected pair counts once.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. A partitioned graph runs on the engine.
    top : int or str, optional
        Return only the most central vertices, the most central first: a number, or a share such as ``"1%"`` [default:
        all, in vertex order].
    epsilon : float, optional
        Sample, with errors of at most this share of all pairs of vertices, 0 < `epsilon` < 1 [default: exact values].
        Not with `sources`, `targets`, ``pivots`` or ``endpoints``. On engines, whole searches are sampled: as many as
        Hoeffding's inequality requires, at most one per vertex.
    delta : float
        With `epsilon`: maximum probability that any error is larger, 0 < `delta` < 1 [default: 0.1].
    weighted : bool, optional
        Use edge weights as lengths [default: True if the graph has weights].
    normalized : bool
        Divide by the number of pairs of other vertices [default: False].
    endpoints : bool
        Also count each pair for its two ends [default: False].
    sources, targets : sequence of int or str, optional
        Count only paths from and to these vertices [default: all].
    threads : int, optional
        Number of threads [default: all processors]. The values do not depend on it.
    **more
        Further options, listed under Other Parameters.

    Returns
    -------
    Result
        Columns ``vertex`` and ``betweenness`` (float64); sampled results also have ``least`` and ``most``, which
        enclose all true values with probability 1 - `delta`. `summary` of exact results holds ``searched`` and
        ``removed_by_NAME`` for each reduction (shares of the arcs); of sampled results ``samples``, ``most_samples``,
        ``epsilon``, ``delta``, ``certain`` and, with `top`, ``certain_members``; of the engine ``pivots``, ``rounds``,
        ``removed_vertices`` and ``supersteps``. A time limit adds ``searches_done``; ``compare`` adds recall, rank
        correlation and largest error.

    Other Parameters
    ----------------
    reductions : {"all", "none"} or sequence of str
        In memory: exact simplifications of the graph before and during the searches, any of "leaves", "blocks",
        "chains", "twins", "sides", "order" and "batches" [default: "all"].
    seed : int
        Random seed of samples and pivots, at least 0 [default: 0].
    compare : bool
        Also compute the exact values and report the accuracy of the estimates in `summary` [default: False].
    time_limit : float
        Start no more searches after this number of seconds, and extrapolate from those that are done [default:
        unlimited].
    variant : {"default", "ms", "msl-published"}
        On the engine: leaf compression with exact values, no compression (MS-BC), or leaves dropped as published
        (MSL-BC) [default: "default"].
    pivots : int
        On the engine: estimate from this number of random sources, at least 1 [default: all vertices].
    batch : int
        On the engine, with `top`: pivots between two comparisons, at least 1 [default: 32].
    stable : int
        On the engine, with `top`: number of consecutive equal comparisons that end the run, at least 1 [default: 3].
    max_change : int
        On the engine, with `top`: new members that still count as an equal comparison, at least 0 [default: 1].
    max_concurrent : int
        On the engine: maximum number of concurrent sources, at least 1 [default: the number of partitions, at most 8].
    checkpoint_dir, resume : path, bool
        Folder for partial sums, and whether to resume from it (exact values only) [default: none, False].
    note : callable
        Called with a line of text that reports the progress.
    parts, method, units, comm, spark, output, max_supersteps, checkpoint_every, progress : optional
        Options of the engine; see `goffish.run`.

    Raises
    ------
    InputError
        If an option is unknown, out of range or contradicts another one, or a label is not a vertex of the graph.

    Notes
    -----
    Brandes' algorithm: O(n m) for n vertices and m unweighted arcs, O(n m + n² log n) with weights, after the
    reductions.

    References
    ----------
    U. Brandes, "A faster algorithm for betweenness centrality", Journal of Mathematical Sociology 25 (2001).

    Examples
    --------
    >>> import goffish as gf
    >>> path = gf.from_edges([1, 2, 3], [2, 3, 4])
    >>> gf.betweenness(path).to_dict()
    {1: 0.0, 2: 2.0, 3: 2.0, 4: 0.0}
    >>> gf.betweenness(path, epsilon=0.1).table.column_names
    ['vertex', 'betweenness', 'least', 'most']
    """
    from goffish.algorithms.dispatch import RUN_OPTIONS, answer

    running = {name: more.pop(name) for name in RUN_OPTIONS & more.keys()}
    asked = Betweenness.checked(
        top=top, epsilon=epsilon, delta=delta, weighted=weighted, normalized=normalized, endpoints=endpoints,
        sources=sources, targets=targets, **more,
    )  # fmt: skip
    return answer(asked, graph, threads=threads, **running)


def edge_betweenness(
    graph: AnyGraph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    sources: Sequence[int | str] | None = None,
    targets: Sequence[int | str] | None = None,
    reductions: Literal["all", "none"] | Sequence[str] = "all",
    threads: int | None = None,
) -> Result:
    """Compute the betweenness centrality of each edge.

    Edge betweenness is the number of shortest paths through an edge, as a share of all shortest paths of each pair of
    vertices, summed over the pairs.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory.
    weighted : bool, optional
        Use edge weights as lengths [default: True if the graph has weights].
    normalized : bool
        Divide by the number of pairs of vertices [default: False].
    sources, targets : sequence of int or str, optional
        Count only paths from and to these vertices [default: all].
    reductions : {"all", "none"} or sequence of str
        Exact simplifications of the graph before the searches, any of "leaves", "blocks" and "order" [default: "all"].
    threads : int, optional
        Number of threads [default: all processors]. The values do not depend on it.

    Returns
    -------
    Result
        Columns ``source``, ``target`` (labels) and ``betweenness``; one row per edge, in the order of
        `Graph.edge_columns`. Parallel edges of minimum weight share the value equally. `summary` holds ``searched``,
        ``removed_by_leaves`` and ``removed_by_blocks`` (shares of the arcs).

    Raises
    ------
    InputError
        If a source is not a vertex of the graph, or a reduction is unknown.

    Notes
    -----
    O(n m) for n vertices and m unweighted arcs, as for `betweenness`.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.edge_betweenness(gf.from_edges([1, 2, 3], [2, 3, 4])).to_dict()
    {(1, 2): 3.0, (2, 3): 4.0, (3, 4): 3.0}
    """
    from goffish.algorithms.dispatch import answer

    asked = EdgeBetweenness.checked(
        weighted=weighted, normalized=normalized, sources=sources, targets=targets, reductions=reductions
    )
    return answer(asked, graph, threads=threads)
