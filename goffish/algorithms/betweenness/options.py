"""Options of betweenness."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from goffish.algorithms.algorithm import Algorithm, Label

if TYPE_CHECKING:
    pass

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


class BetweennessOptions(Algorithm):
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
    def _agree(self) -> BetweennessOptions:
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
