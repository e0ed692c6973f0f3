"""Louvain and Leiden on a graph in memory, as users call them."""

from __future__ import annotations

from typing import Any

from goffish.algorithms.communities.communities import Communities, make_communities
from goffish.algorithms.communities.divisions import merge_small
from goffish.algorithms.communities.divisions import modularity as modularity_of
from goffish.algorithms.communities.named import kept_ids, starting_point
from goffish.algorithms.communities.search import LouvainProgress, find_communities
from goffish.algorithms.communities.settings import Search
from goffish.graph import Graph


def louvain(
    graph: Graph,
    *,
    min_size: int = 1,
    initial: Any = None,
    fixed: Any = None,
    progress: LouvainProgress | None = None,
    **options: Any,
) -> Communities:
    """Find the communities of a graph in memory; options as for `goffish.louvain`, already checked.

    `options` are the fields of `Search`.
    """
    search = Search(**options)
    start, held = starting_point(graph, initial, fixed)
    found = find_communities(graph, search, start, held, progress)
    membership, modularity = found.membership, found.modularity
    if min_size > 1:
        # Before the names of a warm start are handed out.
        membership = merge_small(graph, membership, min_size, resolution=search.resolution)
        modularity = modularity_of(graph, membership, search.resolution)
    return make_communities(
        graph,
        found.steps,
        membership=membership,
        modularity=modularity,
        ids=None if initial is None else kept_ids(graph, initial, membership),
        resolution=search.resolution,
        summary_extra={"passes": sum(found.passes)},
    )
