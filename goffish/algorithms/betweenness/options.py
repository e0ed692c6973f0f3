"""Options of betweenness."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from goffish.algorithms.algorithm import Algorithm, Label, Note
from goffish.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

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


Top = Annotated[int | str | None, BeforeValidator(_as_top), WithJsonSchema({"type": "string"})]
Reductions = Annotated[
    Literal["all"] | tuple[str, ...], BeforeValidator(_as_reductions), WithJsonSchema({"type": "string"})
]


class Betweenness(Algorithm):
    """Betweenness centrality."""

    name = "betweenness"
    title = "Shortest paths through each vertex: exact, sampled to a proved error, or from pivots."

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

    def resumes_whole(self) -> bool:
        return self.epsilon is None

    def whole_resumable(
        self, graph: Graph, threads: int | None, note: Note | None, checkpoint_dir: Path, resume: bool
    ) -> Result:
        from goffish.algorithms.betweenness.answers import exact

        return exact(graph, self, threads, note, checkpoint_dir=checkpoint_dir, resume=resume)

    def labels(self) -> list[int | str]:
        return [*(self.sources or ()), *(self.targets or ())]

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.betweenness.partitioned.program import PartitionedBetweenness

        for name, unfit in (
            ("epsilon", self.epsilon is not None), ("targets", self.targets is not None),
            ("endpoints", self.endpoints), ("normalized", self.normalized), ("reductions", self.reductions != "all"),
        ):  # fmt: skip
            if unfit:
                raise InputError(f"{name} is for a graph in memory: leave out parts, engine, variant and pivots for it")
        if isinstance(self.top, str):
            raise InputError(f"top={self.top!r}: on the engine give a number of vertices")
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
