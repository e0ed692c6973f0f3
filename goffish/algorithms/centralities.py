"""Centralities as plain functions: betweenness, closeness, harmonic centrality, and those of communities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from goffish.algorithms.landscape.levels import CommunityLandscape
from goffish.algorithms.run import run
from goffish.gofs import PartitionedGraph
from goffish.gopher import Result
from goffish.graph import Graph

AnyGraph = Graph | PartitionedGraph


def betweenness(
    graph: AnyGraph,
    *,
    top: int | str | None = None,
    epsilon: float | None = None,
    delta: float = 0.1,
    weighted: bool | None = None,
    normalized: bool = False,
    endpoints: bool = False,
    sources: Sequence[int | str] | None = None,
    targets: Sequence[int | str] | None = None,
    reductions: Literal["all", "none"] | Sequence[str] = "all",
    seed: int = 0,
    compare: bool = False,
    time_limit: float | None = None,
    checkpoint_dir: str | Path | None = None,
    resume: bool = False,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Result:
    """Betweenness: shortest paths through each vertex, summed over pairs of other vertices; column ``betweenness``.

    Undirected pairs count once, as in networkx and igraph. Exact by default; with `epsilon` sampled, and the columns
    ``least`` and ``most`` hold the true values, all of them with probability 1 - `delta`.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
    top : int or str, optional
        Only the most central vertices, in falling order: how many, or a share such as ``"1%"``.
    epsilon : float, optional
        Largest error of a sampled value, as a share of all pairs of vertices.
    delta : float
        Largest probability that an error is larger.
    weighted : bool, optional
        Measure paths by weights; default: if the graph has any.
    normalized : bool
        Divide by the number of pairs of other vertices.
    endpoints : bool
        Count a pair for its own two ends as well.
    sources, targets : sequences of labels, optional
        Only paths from and to these vertices.
    reductions : "all", "none" or some of "leaves", "blocks", "chains", "twins", "sides", "order", "batches"
        What is taken off the graph before the searches, and how they go. The values are exact in any case.
    seed : int
        Of the samples.
    compare : bool
        Compute the exact values as well: the summary tells recall, rank correlation and largest error of the sampled
        ones.
    time_limit : float, optional
        Seconds after which no more searches are begun; what is known is scaled up, and the summary's ``searches_done``
        says how much that is.
    checkpoint_dir, resume
        Folder that keeps the sums while they grow, and whether to go on from what it holds (exact values only).
    threads : int, optional
        Default: all processors. The values do not depend on it.
    note : callable, optional
        Called now and then with a line of text that says how far the work is.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.betweenness(gf.from_edges([1, 2, 3], [2, 3, 4])).to_dict()
    {1: 0.0, 2: 2.0, 3: 2.0, 4: 0.0}
    """
    return run(
        "betweenness", graph, threads=threads, top=top, epsilon=epsilon, delta=delta, weighted=weighted,
        normalized=normalized, endpoints=endpoints, sources=sources, targets=targets, reductions=reductions, seed=seed,
        compare=compare, time_limit=time_limit, checkpoint_dir=checkpoint_dir, resume=resume, note=note,
    )  # fmt: skip


def edge_betweenness(
    graph: Graph,
    *,
    weighted: bool | None = None,
    normalized: bool = False,
    sources: Sequence[int | str] | None = None,
    targets: Sequence[int | str] | None = None,
    reductions: Literal["all", "none"] | Sequence[str] = "all",
    threads: int | None = None,
) -> Result:
    """Shortest paths through each edge, summed over pairs of vertices; columns ``source``, ``target``, ``betweenness``.

    Options as for `betweenness`; normalized values are divided by the number of pairs of vertices. One row per edge, in
    the order of `Graph.edge_columns`, with labels; of parallel edges the lightest share the value of their place.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.edge_betweenness(gf.from_edges([1, 2, 3], [2, 3, 4])).to_dict()
    {(1, 2): 3.0, (2, 3): 4.0, (3, 4): 3.0}
    """
    from goffish.algorithms.betweenness.answers import exact_edges

    return exact_edges(
        graph, weighted=weighted, normalized=normalized, sources=sources, targets=targets, reductions=reductions,
        threads=threads,
    )  # fmt: skip


def closeness(
    graph: AnyGraph,
    *,
    top: int | None = None,
    weighted: bool | None = None,
    wf_improved: bool = True,
    vertices: Sequence[int | str] | None = None,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Result:
    """Closeness: one over the mean distance from the vertices that reach a vertex; column ``closeness``.

    As in networkx, distances of directed graphs are inward, and a vertex that nothing reaches has 0.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        A partitioned graph is put together in memory first.
    top : int, optional
        Only so many of the most central vertices, in falling order.
    weighted : bool, optional
        Measure distances by weights; default: if the graph has any.
    wf_improved : bool
        Multiply by the share of the other vertices that reach the vertex (Wasserman and Faust 1994).
    vertices : sequence of labels, optional
        Only these vertices.
    threads : int, optional
        Default: all processors. The values do not depend on it.
    note : callable, optional
        Called with a line of text on how much is done and how long the rest will take.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.closeness(gf.from_edges([1, 2], [2, 3])).to_dict()
    {1: 0.6666666666666666, 2: 1.0, 3: 0.6666666666666666}
    """
    options: dict[str, Any] = {"wf_improved": wf_improved, "vertices": vertices}
    return run("closeness", graph, threads=threads, note=note, top=top, weighted=weighted, **options)


def harmonic(
    graph: AnyGraph,
    *,
    top: int | None = None,
    weighted: bool | None = None,
    normalized: bool = False,
    vertices: Sequence[int | str] | None = None,
    sources: Sequence[int | str] | None = None,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Result:
    """Harmonic centrality: the sum of one over the distance from each other vertex; column ``harmonic``.

    What is out of reach adds nothing. Distances of directed graphs are inward, as in networkx.

    Parameters
    ----------
    graph, top, weighted, vertices, threads, note
        As in `closeness`.
    normalized : bool
        Divide by the number of other vertices.
    sources : sequence of labels, optional
        Only distances from these vertices.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.harmonic(gf.from_edges([1, 2], [2, 3])).to_dict()
    {1: 1.5, 2: 2.0, 3: 1.5}
    """
    return run(
        "harmonic", graph, threads=threads, note=note, top=top, weighted=weighted, normalized=normalized,
        vertices=vertices, sources=sources,
    )  # fmt: skip


def landscape(
    graph: AnyGraph,
    *,
    members: int = 5,
    levels: int | None = None,
    resolution: float = 1.0,
    refine: Literal["vertices", "leiden", "none"] = "vertices",
    seed: int = 0,
    paths: Literal["graph", "community"] = "graph",
    weighted: bool = False,
    epsilon: float | None = None,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> CommunityLandscape:
    """Communities of every level with their most central members, one row for each level, community and rank.

    `goffish.plot.landscape.write_page` makes a page of it, in which a reader zooms from communities to members.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        A partitioned graph is put together in memory first.
    members : int
        Most central members to name of each community.
    levels : int, optional
        Only so many of the coarsest levels.
    resolution, refine, seed
        As for `louvain`, where weights bind; `seed` is that of the samples as well.
    paths : {"graph", "community"}
        Betweenness counts the shortest paths of the whole graph, or on each level only those of edges within the
        member's community, between two others of its members.
    weighted : bool
        Take weights as the lengths of edges when measuring paths; for exact values only.
    epsilon : float, optional
        Sample: largest error of a value, as a share of all pairs of vertices, all of them with probability 0.9. 0 for
        exact values. Default: exact up to 1e11 vertices times arcs and for weighted paths, otherwise 0.005.
    threads : int, optional
        Default: all processors. The values do not depend on it.
    note : callable, optional
        Told now and then, in a line of text, how far the work is.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.landscape(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]), members=1)
    >>> found.table.select(["community", "size", "vertex", "betweenness"]).to_pylist()[0]
    {'community': 0, 'size': 3, 'vertex': 3, 'betweenness': 6.0}
    """
    found = run(
        "landscape", graph, threads=threads, note=note,
        members=members, levels=levels, resolution=resolution, refine=refine, seed=seed, paths=paths,
        weighted=weighted, epsilon=epsilon,
    )  # fmt: skip
    return cast(CommunityLandscape, found)
