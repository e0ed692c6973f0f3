"""Options of closeness and harmonic centrality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label

if TYPE_CHECKING:
    pass


class _FromDistances(Algorithm):
    in_memory = True

    top: int | None = Field(default=None, ge=1, description="Only so many of the most central vertices.")
    weighted: bool | None = Field(default=None, description="Measure distances by weights. Default: if there are any.")
    vertices: tuple[Label, ...] | None = Field(default=None, description="Only these vertices.")


class ClosenessOptions(_FromDistances):
    """Closeness centrality."""

    name = "closeness"
    title = "One over the mean distance to each vertex."

    wf_improved: bool = Field(default=True, description="Multiply by the share of the vertices that reach the vertex.")

    def labels(self) -> list[int | str]:
        return [*(self.vertices or ())]


class HarmonicOptions(_FromDistances):
    """Harmonic centrality."""

    name = "harmonic"
    title = "Sum of one over the distance to each vertex (harmonic centrality)."

    normalized: bool = Field(default=False, description="Divide by the number of other vertices.")
    sources: tuple[Label, ...] | None = Field(default=None, description="Only distances from these vertices.")

    def labels(self) -> list[int | str]:
        return [*(self.vertices or ()), *(self.sources or ())]
