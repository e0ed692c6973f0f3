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
    **more
        ``threads`` (default: all processors; the values do not depend on it), and ``note``, called now and then with a
        line of text on how far the work is.

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
