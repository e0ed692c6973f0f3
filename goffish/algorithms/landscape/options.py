"""Options of the community landscape: apart from the call, as modules that the call imports refer to them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from goffish.algorithms.algorithm import Algorithm


class LandscapeOptions(Algorithm):
    """The hierarchy of communities, and the members of highest betweenness of each of them."""

    name = "landscape"
    title = "Communities on every level with their most central members, as a table and an HTML page."

    in_memory = True

    members: int = Field(default=5, ge=1, description="Number of central members to list for each community.")
    levels: int | None = Field(
        default=None, ge=1, description="Number of the coarsest levels to return [default: all]."
    )
    resolution: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Resolution: above 1 for smaller communities, below 1 for larger ones.",
    )
    refine: Literal["vertices", "leiden", "none"] = Field(
        default="vertices", description="Refinement, as in louvain; leiden guarantees connected communities."
    )
    seed: int = Field(default=0, ge=0, description="Random seed.")
    paths: Literal["graph", "community"] = Field(
        default="graph", description="Count shortest paths of the whole graph, or within each community."
    )
    weighted: bool = Field(default=False, description="Use edge weights as lengths; exact values only.")
    epsilon: float | None = Field(
        default=None, ge=0.0, lt=1.0,
        description="Sample, with this maximum error as a share of all pairs; 0: exact [default: 0 or 0.005].",
    )  # fmt: skip

    @model_validator(mode="after")
    def _agree(self) -> LandscapeOptions:
        if self.epsilon and (self.weighted or self.paths == "community"):
            unfit = "weighted" if self.weighted else "paths='community'"
            raise ValueError(f"epsilon samples unweighted paths of the whole graph; omit {unfit}")
        return self
