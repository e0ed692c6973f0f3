"""Communities as networkx asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from goffish.networkx_backend.components import groups
from goffish.networkx_backend.graph import BackendGraph, declining, is_real

Verdict = bool | str


def louvain_communities(
    G: BackendGraph,
    weight: Hashable = "weight",
    resolution: float = 1,
    threshold: float = 1e-7,
    max_level: int | None = None,
    seed: Any = None,
) -> list[set[Any]]:
    """As `networkx.community.louvain_communities`; communities in the order of their first nodes.

    Parameters
    ----------
    G : BackendGraph
        Directed graphs are divided by Leicht and Newman's modularity, as in networkx.
    weight : hashable
        Edge attribute; `None` ignores weights.
    resolution : float
        Resolution: above 1 for smaller communities, below 1 for larger ones.
    threshold : float
        A level that gains no more modularity than this is the last.
    max_level : int, optional
        The communities of this level, if there are more.
    seed : int, random.Random, numpy generator or None
        The same seed gives the same communities, but not those that networkx finds with it.

    Raises
    ------
    ValueError
        `max_level` is not positive.
    ZeroDivisionError
        There are edges, but all weigh 0: modularity is not defined.
    """
    return _at(G, max_level, lambda: _levels(G, weight, resolution, threshold, seed, "vertices"))


def louvain_partitions(
    G: BackendGraph, weight: Hashable = "weight", resolution: float = 1, threshold: float = 1e-7, seed: Any = None
) -> Iterator[list[set[Any]]]:
    """As `networkx.community.louvain_partitions`: the communities of every level, from small to large.

    Parameters and exceptions as in `louvain_communities`; the exceptions come with the call.
    """
    levels = _levels(G, weight, resolution, threshold, seed, "vertices")
    return (list(groups(G.nodes, member)) for member in levels)


def leiden_communities(
    G: BackendGraph, weight: Hashable = "weight", resolution: float = 1, max_level: int | None = None, seed: Any = None
) -> list[set[Any]]:
    """As `networkx.community.leiden_communities` (Traag, Waltman and van Eck 2019): connected communities.

    Parameters and exceptions as in `louvain_communities`; the graph is undirected.
    """
    return _at(G, max_level, lambda: _levels(G, weight, resolution, 0.0, seed, "leiden"))


def leiden_partitions(
    G: BackendGraph, weight: Hashable = "weight", resolution: float = 1, seed: Any = None
) -> Iterator[list[set[Any]]]:
    """As `networkx.community.leiden_partitions`: the communities of every level, from small to large.

    Parameters and exceptions as in `leiden_communities`; the exceptions come with the call.
    """
    levels = _levels(G, weight, resolution, 0.0, seed, "leiden")
    return (list(groups(G.nodes, member)) for member in levels)


def modularity(
    G: BackendGraph, communities: Iterable[Any], weight: Hashable = "weight", resolution: float = 1
) -> float:
    """As `networkx.community.modularity`.

    Raises
    ------
    networkx.algorithms.community.quality.NotAPartition
        A node that is missing, unknown or named twice.
    ZeroDivisionError
        The weights add up to 0.
    """
    # Weights first: if networkx has to answer, an iterator of communities must not be used up.
    weights = np.ones(G.src.size) if weight is None else G.weights(weight).values
    communities = list(communities)
    k = len(communities)
    member = _membership(G, communities)
    total = float(weights.sum())
    if not total:
        raise ZeroDivisionError("modularity is not defined where the weights add up to 0")
    a, b = member[G.src], member[G.dst]
    inside = a == b
    internal = np.bincount(a[inside], weights[inside], k)
    out, into = np.bincount(a, weights, k), np.bincount(b, weights, k)
    expected = out * into / total**2 if G.is_directed() else ((out + into) / (2 * total)) ** 2
    return float((internal / total - resolution * expected).sum())


def can_divide(
    G: Any,
    weight: Any = "weight",
    resolution: Any = 1,
    threshold: Any = 1e-7,
    max_level: Any = None,
    seed: Any = None,
) -> Verdict:
    """Whether these communities are answered."""
    if callable(weight):
        return "weights given by a function"
    if not (is_real(resolution) and 0 <= resolution < math.inf):
        return "resolution that is negative or not finite"
    if not (is_real(threshold) and 0 <= threshold < math.inf):
        return "threshold that is negative or not finite"
    if not (max_level is None or isinstance(max_level, Integral)):
        return "max_level that is not an integer"
    return True


def can_divide_by_level(
    G: Any, weight: Any = "weight", resolution: Any = 1, threshold: Any = 1e-7, seed: Any = None
) -> Verdict:
    """Whether these communities of every level are answered."""
    return can_divide(G, weight, resolution, threshold)


def can_divide_connected(
    G: Any, weight: Any = "weight", resolution: Any = 1, max_level: Any = None, seed: Any = None
) -> Verdict:
    """Whether these connected communities are answered."""
    return can_divide(G, weight, resolution, max_level=max_level)


def can_divide_connected_by_level(G: Any, weight: Any = "weight", resolution: Any = 1, seed: Any = None) -> Verdict:
    """Whether these connected communities of every level are answered."""
    return can_divide(G, weight, resolution)


def can_assess(G: Any, communities: Any, weight: Any = "weight", resolution: Any = 1) -> Verdict:
    """Whether this modularity is answered."""
    if callable(weight):
        return "weights given by a function"
    return is_real(resolution) or "resolution that is not a real number"


def _at(G: BackendGraph, max_level: int | None, levels: Callable[[], list[NDArray[np.int64]]]) -> list[set[Any]]:
    """The communities of one level, or of the last."""
    if max_level is not None and max_level < 1:
        raise ValueError(f"max_level argument must be a positive integer or None, this is {max_level}")
    found = levels()
    return list(groups(G.nodes, found[min(max_level or len(found), len(found)) - 1]))


def _levels(
    G: BackendGraph,
    weight: Hashable,
    resolution: float,
    threshold: float,
    seed: Any,
    refine: Literal["vertices", "leiden"],
) -> list[NDArray[np.int64]]:
    """The community of each vertex, shape (n,), on every level."""
    if not G.number_of_edges():
        return [np.arange(len(G))]
    graph = G.weighted(weight, "sum")
    if graph.weights is not None and not graph.weights.any():
        raise ZeroDivisionError("modularity is not defined where the weights add up to 0")
    from networkx.utils import create_py_random_state

    from goffish.algorithms.communities.in_memory import louvain

    with declining():
        found = louvain(
            graph,
            resolution=float(resolution),
            threshold=float(threshold),
            seed=int(create_py_random_state(seed).randrange(0, 2**31)),
            refine=refine,
        )
    return [found.membership_at(level) for level in range(1, found.num_levels + 1)]


def _membership(G: BackendGraph, communities: list[Any]) -> NDArray[np.int64]:
    """The position in `communities` for each vertex, shape (n,)."""
    from networkx.algorithms.community.quality import NotAPartition

    sizes = np.fromiter(map(len, communities), np.int64, len(communities))
    member = np.full(len(G), -1)
    try:
        if int(sizes.sum()) != len(G):
            raise KeyError
        vertices = np.fromiter(map(G.position.__getitem__, chain.from_iterable(communities)), np.int64, len(G))
    except (KeyError, TypeError):  # a node that is unknown, or cannot be one
        raise NotAPartition(G, communities) from None
    member[vertices] = np.repeat(np.arange(len(communities)), sizes)
    if (member < 0).any():
        raise NotAPartition(G, communities)
    return member
