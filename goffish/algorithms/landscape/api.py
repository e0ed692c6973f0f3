"""The community landscape: the call, and how it is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from goffish.algorithms.algorithm import Note
from goffish.algorithms.landscape.options import LandscapeOptions

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.algorithms.landscape.levels import CommunityLandscape
    from goffish.graph import Graph


class Landscape(LandscapeOptions):
    """The hierarchy of communities, and the members of highest betweenness of each of them."""

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> CommunityLandscape:
        from goffish.algorithms.landscape.in_memory import landscape

        return landscape(graph, self, threads, note)


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
    **more: Any,
) -> CommunityLandscape:
    """Find communities on every level and the most central members of each.

    `goffish.plot.landscape.write_page` turns the result into an HTML page for zooming from communities to members.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. A partitioned graph is first assembled in memory.
    members : int
        Number of the most central members to list for each community, at least 1 [default: 5].
    levels : int, optional
        Number of the coarsest levels to return, at least 1 [default: all].
    resolution : float
        Resolution of the communities, at least 0; see `louvain` [default: 1.0].
    refine : {"vertices", "leiden", "none"}
        Refinement of the communities; see `louvain` [default: "vertices"].
    seed : int
        Random seed of communities and samples, at least 0 [default: 0].
    paths : {"graph", "community"}
        Shortest paths that betweenness counts: those of the whole graph, or on each level only those between members of
        the same community along edges inside it [default: "graph"].
    weighted : bool
        Use edge weights as lengths in betweenness; exact values only [default: False].
    epsilon : float, optional
        Sample, with errors of at most this share of all pairs of vertices with probability 0.9; 0 computes exact values
        [default: 0 up to 1e11 vertices times arcs and for weighted paths, otherwise 0.005]. Only for unweighted paths
        of the whole graph.
    **more
        Further options, listed under Other Parameters.

    Returns
    -------
    CommunityLandscape
        One row per level, community and rank, the coarsest level and its largest community first: ``level``,
        ``community``, ``size``, ``internal_weight``, ``cut_weight``, ``parent``, ``rank``, ``vertex`` and
        ``betweenness``; sampled results also have ``least`` and ``most``. `summary` holds ``communities``,
        ``modularity``, ``levels``, ``paths`` and ``betweenness`` ("exact" or "sampled"); of sampled results also
        ``epsilon``, ``delta`` and ``samples``.

    Other Parameters
    ----------------
    threads : int
        Number of threads [default: all processors]. The values do not depend on it.
    note : callable
        Called with a line of text that reports the progress.

    Raises
    ------
    InputError
        If an option is unknown or out of range, or `epsilon` is combined with `weighted` or ``paths="community"``.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.landscape(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]), members=1)
    >>> found.table.select(["community", "size", "vertex", "betweenness"]).to_pylist()[0]
    {'community': 0, 'size': 3, 'vertex': 3, 'betweenness': 6.0}
    """
    from goffish.algorithms.dispatch import answer

    asked = Landscape.checked(
        members=members, levels=levels, resolution=resolution, refine=refine, seed=seed, paths=paths,
        weighted=weighted, epsilon=epsilon,
    )  # fmt: skip
    return cast("CommunityLandscape", answer(asked, graph, **more))
