"""One plain function per algorithm, for people who do not care about engines.

Each takes a graph in memory or a partitioned one and is `goffish.run` with the algorithm's options spelled out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from goffish.algorithms.run import run
from goffish.gofs import PartitionedGraph
from goffish.gopher import Result
from goffish.graph import Graph

if TYPE_CHECKING:
    from goffish.algorithms.communities.communities import Communities

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


def louvain(
    graph: AnyGraph,
    *,
    resolution: float = 1.0,
    seed: int | None = 0,
    refine: Literal["vertices", "leiden", "none"] = "vertices",
    level: int | None = None,
    max_levels: int | None = None,
    max_passes: int = 20,
    threshold: float = 1e-6,
    min_size: int = 1,
    initial: Any = None,
    fixed: Any = None,
    truth: Any = None,
    blocks: int | None = None,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Communities:
    """Communities of high modularity, by parallel Louvain or Leiden; column ``community``.

    A directed graph in memory is divided by directed modularity (Leicht and Newman 2008); on the engine, where a
    partitioned graph goes, by that of A + Aᵀ.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
    resolution : float
        Above 1 for smaller communities, below for larger ones (γ of the null model).
    seed : int or None
        The same seed gives the same communities on any number of threads, whatever the order of the edges was;
        ``None`` draws one, for ensembles.
    refine : {"vertices", "leiden", "none"}
        ``vertices`` moves single vertices and small communities again from the finished communities; ``leiden``
        guarantees that every community is connected (Traag, Waltman and van Eck 2019) and takes about twice as long.
    level : int, optional
        Answer with this level of the hierarchy, 1 the finest.
    max_levels, max_passes, threshold
        Where to stop: so many collapses, so many passes on one level, and a gain in modularity of one level.
    min_size : int
        Smaller communities are joined to a neighbouring one.
    initial : result, table, mapping or column, optional
        Warm start: communities go on from these and keep their ids.
    fixed : sequence of labels, or mapping from label to community, optional
        Vertices that stay in their community of `initial`; with a mapping, vertices of one community stay together and
        those of different ones apart.
    truth : result, table, mapping or column, optional
        Compared with the answer: ``nmi``, ``ari`` and ``ami`` in the summary.
    blocks : int, optional
        Blocks of vertices that are scanned side by side, at most one thread each: part of what fixes the answer.
        Default: by the size of the graph (2 up to 67 M arcs).
    threads : int, optional
    note : callable, optional
        Told now and then, in a line of text, how far the search is.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.louvain(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4])).to_dict()
    {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}
    """
    options: dict[str, Any] = {
        "resolution": resolution, "seed": seed, "refine": refine, "level": level, "max_levels": max_levels,
        "max_passes": max_passes, "threshold": threshold, "min_size": min_size, "initial": initial, "fixed": fixed,
        "truth": truth, "blocks": blocks,
    }  # fmt: skip
    found = run("louvain", graph, threads=threads, note=note, **options)
    return cast("Communities", found)


def agreement(first: Any, second: Any) -> dict[str, float]:
    """How far two divisions of the same things agree: ``nmi``, ``ari`` and ``ami``, 1 where they are the same.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.agreement([0, 0, 1, 1], [5, 5, 7, 7])
    {'nmi': 1.0, 'ari': 1.0, 'ami': 1.0}
    """
    from goffish.algorithms.communities.agreement import agreement as compare

    return compare(first, second)


def modularity(graph: Graph, membership: Any, resolution: float = 1.0) -> float:
    """Modularity of a division given as one community number per vertex, in vertex order.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.modularity(gf.from_edges([1, 2, 3, 4, 5, 6], [2, 3, 1, 5, 6, 4]), [0, 0, 0, 1, 1, 1])
    0.5
    """
    from goffish.algorithms.communities.divisions import modularity as of

    return of(graph, membership, resolution)
