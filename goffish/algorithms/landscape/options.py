"""Options of the community landscape: apart from the call, as modules that the call imports refer to them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from goffish.algorithms.algorithm import Algorithm


class LandscapeOptions(Algorithm):
    """The hierarchy of communities, and the members of highest betweenness of each of them."""

    name = "landscape"
    title = "Communities of every level with their most central members: a table, and a page to zoom in."

    in_memory = True

    members: int = Field(default=5, ge=1, description="Most central members to name of each community.")
    levels: int | None = Field(default=None, ge=1, description="Only so many of the coarsest levels. Default: all.")
    resolution: float = Field(
        default=1.0, ge=0.0, allow_inf_nan=False, description="Above 1 for smaller communities, below for larger ones."
    )
    refine: Literal["vertices", "leiden", "none"] = Field(
        default="vertices", description="As of louvain; leiden: every community is connected."
    )
    seed: int = Field(default=0, ge=0, description="Of the communities and of the samples.")
    paths: Literal["graph", "community"] = Field(
        default="graph", description="Shortest paths that count: of the whole graph, or within each community."
    )
    weighted: bool = Field(default=False, description="Measure paths by weights, as lengths; for exact values.")
    epsilon: float | None = Field(
        default=None, ge=0.0, lt=1.0,
        description="Sample: largest error, as a share of all pairs. 0: exact. Default: 0 if affordable, or 0.005.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _agree(self) -> LandscapeOptions:
        if self.epsilon and (self.weighted or self.paths == "community"):
            unfit = "weighted" if self.weighted else "paths='community'"
            raise ValueError(f"epsilon samples unweighted paths of the whole graph: leave out {unfit}")
        return self
