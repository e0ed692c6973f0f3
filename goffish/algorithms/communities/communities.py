"""Results of community detection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.communities import community_kernels as kernels
from goffish.algorithms.communities.agreement import agreement
from goffish.algorithms.communities.divisions import (
    arcs_of,
    check_resolution,
    community_sums,
    match_ids,
    merge_small,
    modularity,
    normalise,
)
from goffish.algorithms.communities.hierarchy import checked_steps, compose, nested_maps
from goffish.algorithms.communities.named import kept_ids, named_division, vertex_labels
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gopher.result import Result, write_table
from goffish.gopher.stats import RunStats
from goffish.graph import Graph
from goffish.graph.guards import expect, whole_number

__all__ = ["Communities", "make_communities", "match_ids", "merge_small", "modularity", "normalise"]

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Communities(Result):
    """Communities of the vertices of a graph, and their hierarchy.

    Returned by `louvain` and `infomap`. The table has the columns ``vertex`` (labels, in vertex order) and
    ``community`` (int64). On every level, communities are numbered 0 to c - 1 in the order of their first vertex.

    Attributes
    ----------
    source : Graph or PartitionedGraph
        The analyzed graph.
    membership : int64, shape (n,)
        Community of every vertex, in vertex order.
    steps : tuple of integer arrays
        Collapses of the hierarchy; see `maps`.
    ids : int64, shape (c,), or None
        Ids of the communities in tables if these differ from their numbers, as after a warm start.
    resolution : float
        Resolution for which `modularity` holds.
    """

    source: Graph | PartitionedGraph = field(kw_only=True, repr=False)
    membership: Ids = field(kw_only=True, repr=False)
    steps: tuple[NDArray[np.integer[Any]], ...] = field(kw_only=True, repr=False)
    ids: Ids | None = field(kw_only=True, default=None, repr=False)
    resolution: float = field(kw_only=True, default=1.0)

    @cached_property
    def graph(self) -> Graph:
        """The analyzed graph as a `Graph`."""
        return self.source if isinstance(self.source, Graph) else self.source.to_graph()

    @property
    def modularity(self) -> float:
        """Modularity of the communities."""
        return float(self.summary["modularity"])

    @property
    def codelength(self) -> float:
        """Bits per step of a random walk, by the map equation; see `goffish.codelength`."""
        if "codelength" in self.summary:
            return float(self.summary["codelength"])
        from goffish.algorithms.communities.map_equation import codelength

        return codelength(self.graph, self.membership)

    @property
    def num_communities(self) -> int:
        """Number of communities."""
        return int(self.summary["communities"])

    @property
    def num_levels(self) -> int:
        """Number of levels of the hierarchy."""
        return len(self.steps)

    @cached_property
    def maps(self) -> tuple[Ids, ...]:
        """The hierarchy: level-1 community of each vertex, then level-(l+1) community of each level-l community.

        The composition of all maps is `membership`. If vertices moved after the last collapse (refinement), each level
        is the intersection of its communities with those of the levels above, so that the hierarchy is nested.
        """
        return nested_maps(self.steps, self.membership)

    def membership_at(self, level: int) -> Ids:
        """Return the community of every vertex on a level.

        Parameters
        ----------
        level : int
            Level, 1 (finest) to `num_levels`.

        Returns
        -------
        int64, shape (n,)
            Community numbers, in vertex order.

        Raises
        ------
        InputError
            If the level does not exist.
        """
        if self._level(level) == self.num_levels:
            return self.membership
        community = self.maps[0]
        for up in self.maps[1:level]:
            community = up[community]
        return community

    @cached_property
    def hierarchy(self) -> pa.Table:
        """All levels as a table: ``level`` (int64, from 1), ``vertex`` (label) and ``community`` (int64).

        Rows are ordered by level, then by vertex.
        """
        levels = range(1, self.num_levels + 1)
        labels = self.graph.label_column()
        return pa.table({
            "level": pa.chunked_array([np.full(len(labels), level) for level in levels], pa.int64()),
            "vertex": pa.chunked_array([labels for _ in levels], labels.type),
            "community": pa.chunked_array([self._names(level) for level in levels], pa.int64()),
        })  # fmt: skip

    def at_level(self, level: int) -> Communities:
        """Return the communities of a level as a separate result, with its exact modularity.

        Parameters
        ----------
        level : int
            Level, 1 (finest) to `num_levels`.

        Returns
        -------
        Communities
            The level and all finer ones.

        Raises
        ------
        InputError
            If the level does not exist.
        """
        if self._level(level) == self.num_levels:
            return self
        community = self.membership_at(level)
        count = _count(self.maps[level - 1])
        value = community_sums(self.graph, community, count).modularity(self.resolution)
        figures = {"communities": count, "modularity": value, "levels": level}
        return replace(
            self, membership=community, steps=self.maps[:level], ids=None, summary={**self.summary, **figures},
            table=_table(self.source, community),
        )  # fmt: skip

    def without_small(self, min_size: int) -> Communities:
        """Return the communities after merging small ones into neighboring communities.

        Parameters
        ----------
        min_size : int
            Smallest size to keep, in vertices.

        Returns
        -------
        Communities
            The merged communities and their modularity.
        """
        if min_size <= 1:
            return self
        community = merge_small(self.graph, self.membership, min_size, resolution=self.resolution)
        figures = {
            "communities": _count(community),
            "modularity": modularity(self.graph, community, self.resolution),
        }
        kept = {name: figure for name, figure in self.summary.items() if name != "codelength"}
        return replace(
            self, membership=community, ids=None, summary={**kept, **figures},
            table=_table(self.source, community),
        )  # fmt: skip

    def named_like(self, initial: Any) -> Communities:
        """Return the same communities under the ids of an earlier division.

        Parameters
        ----------
        initial : Communities, table, mapping or array-like
            The earlier division; see `compare`.

        Returns
        -------
        Communities
            The same communities; each has the id of the earlier community with which it shares most vertices.
        """
        ids = kept_ids(self.source, initial, self.membership)
        return replace(self, ids=ids, table=_table(self.source, ids[self.membership]))

    def compared_with(self, truth: Any) -> Communities:
        """Return the same communities with the measures of `compare` in `summary`.

        Parameters
        ----------
        truth : Communities, table, mapping or array-like
            The other division; see `compare`.

        Returns
        -------
        Communities
            The same communities.
        """
        return replace(self, summary={**self.summary, **self.compare(truth)})

    def to_sets(self) -> list[set[Any]]:
        """Return the members of each community.

        Returns
        -------
        list of set
            Labels of the members, in the order of the communities.
        """
        starts, members = self._members(self.graph.num_vertices)
        labels = self.graph.label_column().take(pa.array(members))
        return [set(group) for group in pa.LargeListArray.from_arrays(starts, labels).to_pylist()]

    def describe(self, central: int = 3) -> pa.Table:
        """Measure every community.

        Parameters
        ----------
        central : int
            Number of central members to list, at least 0 [default: 3].

        Returns
        -------
        pyarrow.Table
            One row per community. ``community``; ``size`` in vertices; ``internal_weight`` of the edges inside (each
            once, including loops); ``cut_weight`` of the edges to other communities; ``conductance``, the cut weight
            divided by the smaller volume of the community and of the rest (0 without a cut); ``volume``, the sum of the
            weighted degrees, with loops counted twice; ``density``, the share of pairs of different members that are
            connected (null for a single vertex); ``central``, the labels of the members with the largest weighted
            degree inside the community, ties by vertex number. In a directed graph, cut weight and volume count
            outgoing and incoming arcs, and pairs are ordered.

        Raises
        ------
        InputError
            If `central` is negative or not an integer.
        """
        central = whole_number(central, "central", 0)
        count, community, graph = self.num_communities, self.membership, self.graph
        size = np.bincount(community, minlength=count)
        sums = community_sums(graph, community, count)
        degree, pairs = np.zeros(graph.num_vertices), np.zeros(count, np.int64)
        kernels.inner_structure(arcs_of(graph), graph.directed, community, degree, pairs)
        possible = size * (size - 1)
        density = np.divide(pairs, possible, out=np.zeros(count), where=possible > 0)
        starts, members = self._members(central, degree)
        names = graph.label_column().take(pa.array(members))
        return pa.table({
            "community": np.arange(count) if self.ids is None else self.ids,
            "size": size,
            "internal_weight": sums.inside if graph.directed else sums.inside / 2,
            "cut_weight": sums.cut,
            "conductance": sums.conductance(directed=graph.directed),
            "volume": sums.volume(directed=graph.directed),
            "density": pa.array(density, mask=possible == 0),
            "central": pa.ListArray.from_arrays(pa.array(starts, pa.int32()), names),
        })  # fmt: skip

    def compare(self, truth: Any) -> dict[str, float]:
        """Measure the agreement with another division of the same vertices.

        Parameters
        ----------
        truth : Communities, table, mapping or array-like
            Another result; a table (Arrow, pandas, Polars) with the columns ``vertex`` and ``community``; a mapping of
            vertex label to community; or one community per vertex, in vertex order. Communities are any hashable
            values. Vertices without a community and vertices that are not in the graph are skipped.

        Returns
        -------
        dict of str to float
            ``nmi``, ``ari`` and ``ami`` (see `agreement`), and ``compared``, the number of vertices compared.

        Raises
        ------
        InputError
            If no vertex can be compared, or `truth` has none of these forms.
        """
        given = truth.table if isinstance(truth, Communities) else truth
        theirs = named_division(self.graph, given, "truth")
        known = theirs >= 0
        compared = int(np.count_nonzero(known))
        if not compared:
            raise InputError("truth has no community for any vertex of this graph; expected labels of this graph")
        return {**agreement(self.membership[known], theirs[known]), "compared": compared}

    def write_hierarchy(self, path: str | Path) -> Path | str:
        """Write `hierarchy` to a table file.

        Parameters
        ----------
        path : str or path-like
            Local file; its suffix selects the format, see `Result.write`.

        Returns
        -------
        pathlib.Path
            The file.
        """
        return write_table(self.hierarchy, path)

    def write_communities(self, path: str | Path) -> Path | str:
        """Write the table of `describe` to a file.

        CSV has no lists: the labels in ``central`` are joined with semicolons.

        Parameters
        ----------
        path : str or path-like
            Local file; its suffix selects the format, see `Result.write`.

        Returns
        -------
        pathlib.Path
            The file.
        """
        table = self.describe()
        if Path(path).suffix.lower() == ".csv":
            at = table.column_names.index("central")
            texts = pc.binary_join(table.column(at).cast(pa.list_(pa.string())), ";")
            table = table.set_column(at, "central", texts)
        return write_table(table, path)

    def __repr__(self) -> str:
        return (
            f"Communities({self.algorithm}: {self.num_communities:,} of {self.graph.num_vertices:,} vertices, "
            f"modularity {self.modularity:.4f}, levels {self.num_levels})"
        )

    def _names(self, level: int) -> Ids:
        community = self.membership_at(level)
        return community if self.ids is None or level < self.num_levels else self.ids[community]

    def _level(self, level: Any) -> int:
        whole = isinstance(level, int | np.integer) and not isinstance(level, bool)
        if not whole or not 1 <= level <= self.num_levels:
            raise InputError(f"level={level!r}: must be from 1 to {self.num_levels}")
        return int(level)

    def _members(self, most: int, rank: NDArray[np.float64] | None = None) -> tuple[Ids, Ids]:
        """Up to `most` members of every community, those of highest rank first, and where each community starts."""
        order = np.arange(self.graph.num_vertices) if rank is None else np.argsort(-rank, kind="stable")
        size = np.bincount(self.membership, minlength=self.num_communities)
        starts = np.concatenate([[0], np.cumsum(np.minimum(size, most))])
        members = np.empty(int(starts[-1]), np.int64)
        kernels.first_members(order, self.membership, starts, np.zeros(size.size, np.int64), members)
        return starts, members


def make_communities(
    source: Graph | PartitionedGraph,
    steps: Sequence[ArrayLike],
    *,
    modularity: float,
    membership: Ids | None = None,
    ids: Ids | None = None,
    resolution: float = 1.0,
    summary_extra: Mapping[str, Any] | None = None,
    stats: RunStats | None = None,
    algorithm: str = "louvain",
) -> Communities:
    """The result of an algorithm that found a hierarchy of communities.

    Parameters
    ----------
    source : Graph or PartitionedGraph
        What was analyzed.
    steps : sequence of integer columns
        Community of every vertex, then of every community of the level before. Each level's ids are 0 … c-1; they are
        renumbered in order of their first vertex, so that results do not depend on how a search counts.
    modularity : float
        Of the final communities.
    membership : int64, shape (n,), optional
        The final communities, numbered in order of their first vertex, where they are not the composition of `steps`.
    ids : int64, shape (c,), optional
        What the final communities are called in tables.
    resolution : float
        At which the modularity was taken.
    summary_extra : mapping, optional
        Further figures of the summary, behind ``communities``, ``modularity`` and ``levels``.
    stats : RunStats, optional
    algorithm : str

    Returns
    -------
    Communities

    Raises
    ------
    InputError
        No level, or one whose length is not the number of things below it, or whose ids leave a gap.
    """
    expect(source, (Graph, PartitionedGraph), "graph", "expected a goffish Graph or PartitionedGraph")
    if not len(steps):
        raise InputError("steps: expected at least one level")
    levels = tuple(np.asarray(step) for step in steps)
    if membership is None:
        levels = checked_steps(source, steps)
        membership = normalise(compose(levels))
    count = _count(membership)
    summary = {"communities": count, "modularity": float(modularity), "levels": len(levels), **(summary_extra or {})}
    return Communities(
        algorithm, _table(source, membership if ids is None else ids[membership]), summary, stats, source=source,
        membership=membership, steps=levels, ids=ids, resolution=check_resolution(resolution),
    )  # fmt: skip


def from_levels(source: PartitionedGraph, table: pa.Table, stats: RunStats, resolution: float) -> Communities:
    """The result of the engine's program: its table has the columns ``level_1 … level_L``, each with ids from 0."""
    names = [name for name in table.column_names if name.startswith("level_")]
    divisions = [table[name].to_numpy() for name in names]
    steps = [divisions[0]]
    for fine, coarse in pairwise(divisions):
        up = np.empty(_count(fine), np.int64)
        up[fine] = coarse
        steps.append(up)
    figures = dict(stats.aggregates)
    shown = ("level_1_communities", "merged_vertices")
    extra: dict[str, Any] = {name: int(figures[name]) for name in shown if name in figures}
    if figures.get("total_weight"):
        extra["cut_fraction"] = float(figures["cut_weight"]) / float(figures["total_weight"])
    return make_communities(
        source, steps, modularity=float(figures["modularity"]), resolution=resolution, summary_extra=extra, stats=stats
    )


def _count(membership: Ids) -> int:
    return int(membership.max(initial=-1)) + 1


def _table(source: Graph | PartitionedGraph, community: Ids) -> pa.Table:
    return pa.table({"vertex": vertex_labels(source), "community": community})
