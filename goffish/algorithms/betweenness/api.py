"""How betweenness is computed: in memory or on the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from goffish.algorithms.algorithm import Note
from goffish.algorithms.betweenness.options import BetweennessOptions
from goffish.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

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
