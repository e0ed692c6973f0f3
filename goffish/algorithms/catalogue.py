"""Every algorithm by name, with one typed definition of its options.

Python calls, the command line and job messages are all made from these models. Importing them is cheap: kernels and
Arrow are loaded by the algorithm that needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from goffish.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


def _as_label(value: Any) -> int | str:
    if isinstance(value, str):
        return value
    if not isinstance(value, bool) and isinstance(value, Integral):
        return int(value)
    raise ValueError("must be a vertex label: an integer or a string")


Label = Annotated[int | str, BeforeValidator(_as_label)]


class Algorithm(BaseModel):
    """Base of all algorithms: the fields are the options.

    Attributes
    ----------
    name, title : str
        What users type, and one line of help.
    undirected : bool
        The algorithm ignores directions, so a directed graph is made undirected first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    title: ClassVar[str]
    undirected: ClassVar[bool] = False

    def program(self, units: str) -> SubgraphProgram:
        """The program for the engine; `units` as in `goffish.gofs.build_layout`."""
        raise InputError(f"{self.name} has no program for the engine")

    def needs_engine(self) -> bool:
        """Whether these options (or the algorithm) are answered by the engine only."""
        return False

    def whole(self, graph: Graph, threads: int | None) -> Result:
        """Answer on a whole graph in memory, without the engine."""
        raise InputError(f"{self.name} runs on the engine only")

    def labels(self) -> list[int | str]:
        """Vertex labels among the options, to be checked before the job starts."""
        return []

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        """Final table and summary from the engine's table and counters."""
        return table, {}


class Components(Algorithm):
    """Weakly connected components."""

    name = "components"
    title = "Weakly connected components; each is named by its largest vertex."

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.components.program import ConnectedComponents, PartitionCentricComponents

        return PartitionCentricComponents() if units == "single" else ConnectedComponents()

    def whole(self, graph: Graph, threads: int | None) -> Result:
        from goffish.algorithms.components.whole import connected_components

        return connected_components(graph)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        sizes = table.group_by("component").aggregate([("vertex", "count")])["vertex_count"].to_numpy()
        return table, {
            "components": int(sizes.size),
            "largest": int(sizes.max(initial=0)),
            "isolated": int((sizes == 1).sum()),
        }


class MaxValue(Algorithm):
    """The largest vertex value of each component."""

    name = "max-value"
    title = "Largest vertex value in each component (the worked example of the engine)."

    attribute: str | None = Field(default=None, description="Vertex attribute; default: the label or number.")

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.components.program import MaxVertexValue

        return MaxVertexValue(self.attribute)

    def needs_engine(self) -> bool:
        return True


class _FromSource(Algorithm):
    source: Label = Field(description="Label of the source vertex.")

    def labels(self) -> list[int | str]:
        return [self.source]


class BreadthFirst(_FromSource):
    """Hops from a source."""

    name = "bfs"
    title = "Hops and parents from one vertex (breadth-first search)."

    max_hops: int | None = Field(default=None, ge=0, description="Go no farther than this.")

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.paths.program import BreadthFirstSearch

        return BreadthFirstSearch(self.source, self.max_hops)

    def needs_engine(self) -> bool:
        return self.max_hops is not None

    def whole(self, graph: Graph, threads: int | None) -> Result:
        from goffish.algorithms.paths.whole import bfs

        return bfs(graph, self.source)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import pyarrow.compute as pc

        distance = table["distance"]
        return table, {
            "reached": len(distance) - distance.null_count,
            "farthest": pc.max(distance).as_py() or 0,
        }


class HopCounts(BreadthFirst):
    """Vertices at each hop from a source (engine specification §4.6, n-hop statistics)."""

    name = "hops"
    title = "How many vertices lie at each number of hops from one vertex."

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        _, summary = super().finish(table, stats)
        counts = pc.value_counts(table["distance"].drop_null())
        found = pa.table({"hops": counts.field("values"), "vertices": counts.field("counts")})
        return found.sort_by("hops"), summary


class ShortestPaths(_FromSource):
    """Distances from a source."""

    name = "sssp"
    title = "Shortest distances and parents from one vertex (Dijkstra inside sub-graphs)."

    weighted: bool = Field(default=True, description="Use edge weights where the graph has them.")

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.paths.program import SingleSourceShortestPath

        return SingleSourceShortestPath(self.source, self.weighted)

    def whole(self, graph: Graph, threads: int | None) -> Result:
        from goffish.algorithms.paths.whole import sssp

        return sssp(graph if self.weighted else graph.unweighted(), self.source)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import numpy as np

        distance = table["distance"].to_numpy()
        reached = distance[np.isfinite(distance)]
        return table, {"reached": int(reached.size), "farthest": float(reached.max(initial=0.0))}


class _Ranks(Algorithm):
    damping: float = Field(default=0.85, ge=0.0, lt=1.0, description="Probability of following an arc.")
    tolerance: float = Field(default=1e-6, gt=0.0, description="Upper bound of the L1 distance to the exact ranks.")
    max_iterations: int = Field(default=1000, ge=1, description="Most passes over the arcs.")
    dangling: Literal["redistribute", "leak"] = Field(
        default="redistribute",
        description="Rank of vertices without out-arcs: spread over all vertices, or lost (the bare formula).",
    )

    def largest_change(self) -> float:
        """L1 change of a sweep that proves the error bound `tolerance`: error ≤ change · d / (1 - d)."""
        return self.tolerance * (1.0 - self.damping) / self.damping if self.damping else self.tolerance

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        error = float(stats.aggregates.get("change", 0.0)) * self.damping / (1.0 - self.damping)
        total = float(table["rank"].to_numpy().sum())
        return table, {"iterations": stats.supersteps - 1, "error_bound": error, "sum": total}


class PageRanks(_Ranks):
    """PageRank."""

    name = "pagerank"
    title = "PageRank to a proved error, or for a fixed number of supersteps."

    weighted: bool = Field(default=False, description="Follow arcs in proportion to their weights.")
    personalization: Mapping[Label, float] | None = Field(
        default=None, description="Where to teleport: label -> weight (Python and JSON only)."
    )
    supersteps: int | None = Field(
        default=None, ge=1, description="Run exactly this many supersteps instead (the published mode: 30)."
    )

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.ranks.program import PageRank

        fixed = self.supersteps is not None
        return PageRank(
            damping=self.damping,
            supersteps=self.supersteps if self.supersteps is not None else self.max_iterations + 1,
            tolerance=None if fixed else self.largest_change(),
            dangling=self.dangling,
            weighted=self.weighted,
            personalization=self.personalization,
        )

    def needs_engine(self) -> bool:
        return self.supersteps is not None

    def labels(self) -> list[int | str]:
        return list(self.personalization or ())

    def whole(self, graph: Graph, threads: int | None) -> Result:
        from goffish.algorithms.ranks.whole import pagerank

        options = {n: getattr(self, n) for n in type(self).model_fields if n != "supersteps"}
        return pagerank(graph, threads=threads, **options)


class BlockRanks(_Ranks):
    """BlockRank."""

    name = "blockrank"
    title = "PageRank started from the ranks of sub-graphs: fewer sweeps on graphs with good cuts."

    local_tolerance: float = Field(default=1e-2, gt=0.0, description="L1 change that ends the local phase.")
    block_tolerance: float = Field(default=1e-4, gt=0.0, description="L1 change that ends the block phase.")

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.ranks.program import BlockRank

        return BlockRank(
            damping=self.damping,
            supersteps=self.max_iterations + 1,
            tolerance=self.largest_change(),
            dangling=self.dangling,
            local_tolerance=self.local_tolerance,
            block_tolerance=self.block_tolerance,
        )

    def needs_engine(self) -> bool:
        return True


class Triangles(Algorithm):
    """Triangles through each vertex."""

    name = "triangles"
    title = "Triangles through each vertex; directions, loops and parallel edges do not count."
    undirected = True

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.counts.program import TriangleCount

        return TriangleCount()

    def whole(self, graph: Graph, threads: int | None) -> Result:
        from goffish.algorithms.counts.whole import triangles

        return triangles(graph, threads=threads)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"total": int(table["triangles"].to_numpy().sum()) // 3}


class Cores(Algorithm):
    """Core numbers."""

    name = "cores"
    title = "Core number of each vertex (k-core); directions, loops and parallel edges do not count."
    undirected = True

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.counts.program import CoreNumbers

        return CoreNumbers()

    def whole(self, graph: Graph, threads: int | None) -> Result:
        from goffish.algorithms.counts.whole import core_numbers

        return core_numbers(graph)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        core = table["core"].to_numpy()
        return table, {"degeneracy": int(core.max(initial=0)), "innermost": int((core == core.max(initial=0)).sum())}


class Counts(Algorithm):
    """Sizes of the sub-graphs."""

    name = "counts"
    title = "Vertices, arcs and remote arcs of every sub-graph."

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.counts.program import GraphCounts

        return GraphCounts()

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {name: int(table[name].to_numpy().sum()) for name in ("vertices", "arcs", "remote_arcs")}


class Quotient(Algorithm):
    """The quotient graph."""

    name = "quotient"
    title = "The quotient graph: neighbouring sub-graphs and the edges between them."

    def program(self, units: str) -> SubgraphProgram:
        from goffish.algorithms.counts.program import QuotientGraph

        return QuotientGraph()

    def needs_engine(self) -> bool:
        return True

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, {"pairs": table.num_rows // 2, "cut_edges": int(table["links"].to_numpy().sum()) // 2}


ALGORITHMS: dict[str, type[Algorithm]] = {
    a.name: a
    for a in (
        Components, BreadthFirst, ShortestPaths, PageRanks, BlockRanks, Triangles, Cores, MaxValue, HopCounts,
        Counts, Quotient,
    )
}  # fmt: skip


def make(name: str, options: Mapping[str, Any]) -> Algorithm:
    """The algorithm `name` with checked options.

    Raises
    ------
    InputError
        Unknown algorithm or option, or a value out of range; one line that says what is accepted.
    """
    model = ALGORITHMS.get(name)
    if model is None:
        raise InputError(f"unknown algorithm {name!r}: choose one of {', '.join(ALGORITHMS)}")
    try:
        return model(**options)
    except ValidationError as error:
        raise InputError(f"{name}: {describe_problems(error, options, model.model_fields)}") from None


def describe_problems(error: ValidationError, options: Mapping[str, Any], known: Any) -> str:
    """A pydantic error as one line."""
    told = []
    for item in error.errors(include_url=False, include_context=False):
        option = str(item["loc"][0]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            told.append(f"unknown option {option!r} (there are: {', '.join(known) or 'none'})")
        elif item["type"] == "missing":
            told.append(f"option {option!r} is needed")
        else:
            problem = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
            told.append(f"{option}={options.get(option)!r} {problem}")
    return "; ".join(dict.fromkeys(told))
