"""One plain function per algorithm, for people who do not care about engines.

Each takes a graph in memory or a partitioned one and is `goffish.run` with the algorithm's options spelled out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from goffish.algorithms.run import run
from goffish.gofs import PartitionedGraph
from goffish.gopher import Result
from goffish.graph import Graph

AnyGraph = Graph | PartitionedGraph


def connected_components(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Weakly connected components; column ``component`` holds the label of the component's largest vertex.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.connected_components(gf.from_edges([1, 2, 5], [2, 3, 6])).to_dict()
    {1: 3, 2: 3, 3: 3, 5: 6, 6: 6}
    """
    return run("components", graph, threads=threads)


def bfs(graph: AnyGraph, source: int | str, *, max_hops: int | None = None, threads: int | None = None) -> Result:
    """Hops (``distance``, null where unreachable) and ``parent`` from `source`, along out-arcs.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.bfs(gf.from_edges([1, 2, 5], [2, 3, 6]), 1).to_dict()
    {1: 0, 2: 1, 3: 2, 5: None, 6: None}
    """
    return run("bfs", graph, threads=threads, source=source, max_hops=max_hops)


def sssp(graph: AnyGraph, source: int | str, *, weighted: bool = True, threads: int | None = None) -> Result:
    """Shortest ``distance`` (infinite where unreachable) and ``parent`` from `source`, along out-arcs.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.sssp(gf.from_edges([1, 2, 1], [2, 3, 3], [1.0, 1.0, 5.0]), 1).to_dict()
    {1: 0.0, 2: 1.0, 3: 2.0}
    """
    return run("sssp", graph, threads=threads, source=source, weighted=weighted)


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
    """PageRank with an L1 error of at most `tolerance`; column ``rank``.

    Examples
    --------
    >>> import goffish as gf
    >>> ranks = gf.pagerank(gf.from_edges([1, 2], [3, 3])).to_dict()
    >>> max(ranks, key=ranks.get)
    3
    """
    return run(
        "pagerank", graph, threads=threads, damping=damping, tolerance=tolerance,
        max_iterations=max_iterations, dangling=dangling, weighted=weighted, personalization=personalization,
    )  # fmt: skip


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
    """PageRank started from the ranks of sub-graphs (BlockRank); columns ``rank``, ``local_rank``, ``block_rank``."""
    return run(
        "blockrank", graph, threads=threads, parts=parts, damping=damping, tolerance=tolerance,
        max_iterations=max_iterations, dangling=dangling,
    )  # fmt: skip


def triangles(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Triangles through each vertex (``triangles``); directions, loops and parallel edges do not count.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.triangles(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4])).to_dict()
    {1: 1, 2: 1, 3: 1, 4: 0}
    """
    return run("triangles", graph, threads=threads)


def core_numbers(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Core number of each vertex (``core``); directions, loops and parallel edges do not count.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.core_numbers(gf.from_edges([1, 2, 3, 3], [2, 3, 1, 4])).to_dict()
    {1: 2, 2: 2, 3: 2, 4: 1}
    """
    return run("cores", graph, threads=threads)
