"""PageRank and BlockRank: the calls, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label, Note

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class _Ranks(Algorithm):
    damping: float = Field(default=0.85, ge=0.0, lt=1.0, description="Probability of following an arc.")
    tolerance: float = Field(default=1e-6, gt=0.0, description="Maximum L1 distance to the exact ranks.")
    max_iterations: int = Field(default=1000, ge=1, description="Maximum number of passes over the arcs.")
    dangling: Literal["redistribute", "leak"] = Field(
        default="redistribute",
        description="Rank of vertices without out-arcs: spread over all vertices, or lost (the original formula).",
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

    weighted: bool = Field(default=False, description="Follow arcs with probabilities proportional to their weights.")
    personalization: Mapping[Label, float] | None = Field(
        default=None, description="Teleport distribution: label -> weight (Python and JSON only)."
    )
    supersteps: int | None = Field(
        default=None, ge=1, description="Run exactly this number of supersteps (the published mode: 30)."
    )

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.pagerank.subgraph import PageRank

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

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.pagerank.in_memory import pagerank

        options = {n: getattr(self, n) for n in type(self).model_fields if n != "supersteps"}
        return pagerank(graph, threads=threads, **options)


class BlockRanks(_Ranks):
    """BlockRank."""

    name = "blockrank"
    title = "PageRank that starts from the ranks of subgraphs (BlockRank): fewer supersteps with good cuts."

    local_tolerance: float = Field(default=1e-2, gt=0.0, description="L1 change that ends the local phase.")
    block_tolerance: float = Field(default=1e-4, gt=0.0, description="L1 change that ends the block phase.")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.pagerank.subgraph import BlockRank

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


def pagerank(
    graph: AnyGraph,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    dangling: Literal["redistribute", "leak"] = "redistribute",
    weighted: bool = False,
    personalization: Mapping[int | str, float] | None = None,
    threads: int | None = None,
) -> Result:
    """Rank vertices by PageRank.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to rank. An undirected edge counts as two arcs.
    damping : float
        Probability of following an arc instead of teleporting, 0 <= `damping` < 1 [default: 0.85].
    tolerance : float
        Upper bound of the L1 distance between the returned and the exact ranks, greater than 0 [default: 1e-6].
    max_iterations : int
        Maximum number of passes over the arcs, at least 1 [default: 1000].
    dangling : {"redistribute", "leak"}
        What happens to the rank of vertices without out-arcs: spread evenly over all vertices, or lost (the original
        formula) [default: "redistribute"].
    weighted : bool
        Follow arcs with probabilities proportional to their weights [default: False].
    personalization : mapping of label to float, optional
        Teleport to these vertices, with probabilities proportional to the values [default: all vertices alike].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Result
        Columns ``vertex`` and ``rank`` (float64). `summary` holds ``iterations``, ``error_bound`` (proved bound of the
        L1 error) and ``sum`` (of all ranks: 1 with "redistribute"); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If an option is out of range, or `personalization` names an unknown vertex or has no positive value.

    Notes
    -----
    The ranks solve ``r = (1 - d) t + d Pᵀ r``, with the damping factor d, the teleport distribution t and the
    transition matrix P. Iteration stops when the L1 change of a pass is at most ``tolerance * (1 - d) / d``, which
    proves the bound.

    References
    ----------
    L. Page, S. Brin, R. Motwani, T. Winograd, "The PageRank citation ranking", Stanford InfoLab, 1999.

    Examples
    --------
    >>> import goffish as gf
    >>> ranks = gf.pagerank(gf.from_edges([1, 2], [3, 3])).to_dict()
    >>> max(ranks, key=ranks.get)
    3
    """
    from goffish.algorithms.dispatch import answer

    asked = PageRanks.checked(
        damping=damping, tolerance=tolerance, max_iterations=max_iterations, dangling=dangling, weighted=weighted,
        personalization=personalization,
    )  # fmt: skip
    return answer(asked, graph, threads=threads)


def blockrank(
    graph: AnyGraph,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    dangling: Literal["redistribute", "leak"] = "redistribute",
    parts: int | None = None,
    threads: int | None = None,
) -> Result:
    """Rank vertices by PageRank, starting from the ranks of subgraphs (BlockRank).

    The result has the same error bound as that of `pagerank`. On graphs with few cut edges it takes fewer supersteps.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to rank. A `Graph` is partitioned first.
    damping : float
        Probability of following an arc, 0 <= `damping` < 1 [default: 0.85].
    tolerance : float
        Upper bound of the L1 distance between the returned and the exact ranks, greater than 0 [default: 1e-6].
    max_iterations : int
        Maximum number of passes over the arcs, at least 1 [default: 1000].
    dangling : {"redistribute", "leak"}
        What happens to the rank of vertices without out-arcs: spread over all vertices, or lost [default:
        "redistribute"].
    parts : int, optional
        Number of partitions of a `Graph` [default: one per thread].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Result
        Columns ``vertex``, ``rank``, ``local_rank`` (rank within the subgraph) and ``block_rank`` (rank of the
        subgraph). `summary` holds ``iterations``, ``error_bound``, ``sum`` and ``supersteps``.

    Raises
    ------
    InputError
        If an option is out of range, or `parts` differs from the number of partitions of a partitioned graph.

    References
    ----------
    S. Kamvar, T. Haveliwala, C. Manning, G. Golub, "Exploiting the block structure of the Web for computing PageRank",
    Stanford University, 2003.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.blockrank(gf.from_edges([1, 2, 3], [2, 3, 4]), parts=2)
    >>> found.table.column_names
    ['vertex', 'rank', 'local_rank', 'block_rank']
    >>> round(found.summary["sum"], 6)
    1.0
    """
    from goffish.algorithms.dispatch import answer

    asked = BlockRanks.checked(damping=damping, tolerance=tolerance, max_iterations=max_iterations, dangling=dangling)
    return answer(asked, graph, parts=parts, threads=threads)
