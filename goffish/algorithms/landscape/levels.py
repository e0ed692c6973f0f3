"""Data of a community landscape: the communities of every level and their most central members."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.communities import community_kernels as kernels
from goffish.algorithms.communities.communities import Communities
from goffish.algorithms.communities.divisions import community_sums
from goffish.gopher.result import Result
from goffish.graph import Graph

if TYPE_CHECKING:
    from goffish.algorithms.landscape.options import LandscapeOptions

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Centrality:
    """Betweenness by which members are ranked, float64, shape (n,) each.

    Attributes
    ----------
    score : float64
    least, most : float64 or None
        Bounds of the true values, where they were sampled.
    """

    score: Floats
    least: Floats | None = None
    most: Floats | None = None


@dataclass(frozen=True, eq=False)
class Level:
    """The communities 0 … c-1 of one level.

    Attributes
    ----------
    number : int
        1 is the finest level.
    size : int64, shape (c,)
    inside : float64, shape (c,)
        Weight of the edges within.
    cut : float64, shape (c,)
        Weight of the edges to other communities of the level.
    parent : int64, shape (c,), or None
        Community of the next coarser level; ``None`` on the coarsest.
    starts : int64, shape (c + 1,)
        Where the members of each community begin.
    members : int64, shape (starts[c],)
        Vertex numbers, the most central of a community first.
    centrality : Centrality
        Of `members`.
    """

    number: int
    size: Ids
    inside: Floats
    cut: Floats
    parent: Ids | None
    starts: Ids
    members: Ids
    centrality: Centrality


@dataclass(frozen=True, eq=False)
class CommunityLandscape(Result):
    """Communities of every level with their most central members; returned by `landscape`.

    The table has one row per level, community and rank: ``level`` (1 is the finest), ``community``, ``size``,
    ``internal_weight``, ``cut_weight``, ``parent`` (community of the next coarser level, null on the coarsest),
    ``rank`` (from 1), ``vertex`` (label), ``betweenness`` and, if it was sampled, its bounds ``least`` and ``most``.
    The coarsest level comes first, and on each level the largest community. Communities are numbered as in `louvain`.

    Attributes
    ----------
    communities : Communities
        The hierarchy.
    levels : tuple of Level
        Levels of the table, the finest first.
    options : LandscapeOptions
        Options of the call.
    """

    communities: Communities = field(kw_only=True, repr=False)
    levels: tuple[Level, ...] = field(kw_only=True, repr=False)
    options: LandscapeOptions = field(kw_only=True, repr=False)

    @property
    def graph(self) -> Graph:
        """The analyzed graph."""
        return self.communities.graph


def make_level(found: Communities, number: int, most: int, centrality: Centrality) -> Level:
    """A level of `found` with up to `most` members of every community.

    Of equally central members that with the larger degree comes first, then that with the smaller vertex number.
    """
    graph, community = found.graph, found.membership_at(number)
    count = int(community.max(initial=-1)) + 1
    size = np.bincount(community, minlength=count)
    sums = community_sums(graph, community, count)
    degree = graph.out_degrees + graph.reverse.out_degrees if graph.directed else graph.out_degrees
    order = np.lexsort((-degree, -centrality.score))
    starts = np.concatenate([[0], np.cumsum(np.minimum(size, most))])
    members = np.empty(int(starts[-1]), np.int64)
    kernels.first_members(order, community, starts, np.zeros(count, np.int64), members)
    bounds = (None if bound is None else bound[members] for bound in (centrality.least, centrality.most))
    return Level(
        number, size, sums.inside if graph.directed else sums.inside / 2, sums.cut,
        found.maps[number] if number < found.num_levels else None, starts, members,
        Centrality(centrality.score[members], *bounds),
    )  # fmt: skip


def table_of(graph: Graph, levels: tuple[Level, ...]) -> pa.Table:
    """The rows of all levels: see `CommunityLandscape`."""
    parts = [_rows(graph, level) for level in reversed(levels)]
    return pa.concat_tables(parts).combine_chunks()


def _rows(graph: Graph, level: Level) -> pa.Table:
    named = np.diff(level.starts)
    by_size = np.argsort(-level.size, kind="stable")
    community = np.repeat(by_size, named[by_size])
    begun = np.concatenate([[0], np.cumsum(named[by_size])])[:-1]
    rank = np.arange(community.size) - np.repeat(begun, named[by_size])
    at = level.starts[community] + rank
    parent = None if level.parent is None else level.parent[community]
    columns: dict[str, Any] = {
        "level": np.full(community.size, level.number),
        "community": community,
        "size": level.size[community],
        "internal_weight": level.inside[community],
        "cut_weight": level.cut[community],
        "parent": pa.nulls(community.size, pa.int64()) if parent is None else parent,
        "rank": rank + 1,
        "vertex": graph.label_column().take(pa.array(level.members[at])),
        "betweenness": level.centrality.score[at],
    }
    for name in ("least", "most"):
        bound = getattr(level.centrality, name)
        if bound is not None:
            columns[name] = bound[at]
    return pa.table(columns)
