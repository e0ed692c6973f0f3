"""Algorithms that can follow a live graph, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goffish.algorithms.algorithm import Options
from goffish.algorithms.betweenness.api import Betweenness
from goffish.algorithms.clustering.api import Cores as CoreOptions
from goffish.algorithms.clustering.api import Triangles as TriangleOptions
from goffish.algorithms.communities.api import Louvain
from goffish.algorithms.components.api import Components as ComponentOptions
from goffish.algorithms.pagerank.api import PageRanks
from goffish.algorithms.paths.api import BreadthFirst, ShortestPaths
from goffish.errors import InputError
from goffish.streaming.graphs import exact
from goffish.streaming.graphs.divisions import Communities
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.ranks import Ranks
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.sampled import SampledBetweenness
from goffish.streaming.graphs.state import State

#: What follows each algorithm, its options, and those of them that are accepted.
_FOLLOWED: dict[str, tuple[type[Followed], type[Options], tuple[str, ...]]] = {
    "degrees": (exact.Degrees, exact.DegreeOptions, ()),
    "components": (exact.Components, ComponentOptions, ()),
    "bfs": (exact.Paths, BreadthFirst, ("source",)),
    "sssp": (exact.WeightedPaths, ShortestPaths, ("source",)),
    "cores": (exact.Cores, CoreOptions, ()),
    "triangles": (exact.Triangles, TriangleOptions, ()),
    "louvain": (Communities, Louvain, ("resolution", "seed", "refine", "least_gain")),
    "pagerank": (Ranks, PageRanks, ("damping", "tolerance", "dangling", "personalization")),
    "betweenness": (SampledBetweenness, Betweenness, ("epsilon", "top", "delta", "normalized", "seed")),
}  # fmt: skip


def make_followed(
    state: State, encoder: Encoder, algorithm: str, weight: str | None, directed: bool, options: Mapping[str, Any]
) -> Followed:
    """Make what follows an algorithm; see `LiveGraph.follow`."""
    if algorithm not in _FOLLOWED:
        raise InputError(f"algorithm {algorithm!r} cannot be followed: choose one of {', '.join(_FOLLOWED)}")
    followed, model, accepted = _FOLLOWED[algorithm]
    known = [*["weight"] * followed.weighted, *["directed"] * followed.has_directions, *accepted]
    for name in options:
        if name not in accepted:
            raise InputError(
                f"{algorithm}: option {name!r} is not accepted; accepted are {', '.join(known) or 'none'}"
            )  # fmt: skip
    if weight is not None and not isinstance(weight, str):
        raise InputError(f"{algorithm}: weight = {weight!r}: must be the name of an attribute")
    if weight is not None and not followed.weighted:
        raise InputError(f"{algorithm}: weight = {weight!r} has no effect; omit it")
    if not directed and not followed.has_directions:
        raise InputError(f"{algorithm}: directed = False has no effect; omit it")
    return followed(state, encoder, model.checked(**options), weight, directed)
