"""How closeness and harmonic centrality are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goffish.algorithms.algorithm import Note
from goffish.algorithms.closeness.options import ClosenessOptions, HarmonicOptions

if TYPE_CHECKING:
    from goffish.gopher import Result
    from goffish.graph import Graph


class Closeness(ClosenessOptions):
    """Closeness centrality."""

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.closeness.answers import closeness_table

        return closeness_table(graph, self, threads, note)


class Harmonic(HarmonicOptions):
    """Harmonic centrality."""

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.closeness.answers import harmonic_table

        return harmonic_table(graph, self, threads, note)
