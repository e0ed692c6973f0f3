"""Link prediction for given pairs, as networkx asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.networkx_backend.graph import BackendGraph

Scored = Iterator[tuple[Any, Any, float]]


def jaccard_coefficient(G: BackendGraph, ebunch: Any = None) -> Scored:
    """As `networkx.jaccard_coefficient` for given pairs."""
    return _scores(G, ebunch, "jaccard")


def adamic_adar_index(G: BackendGraph, ebunch: Any = None) -> Scored:
    """As `networkx.adamic_adar_index` for given pairs."""
    return _scores(G, ebunch, "adamic_adar")


def resource_allocation_index(G: BackendGraph, ebunch: Any = None) -> Scored:
    """As `networkx.resource_allocation_index` for given pairs."""
    return _scores(G, ebunch, "resource_allocation")


def preferential_attachment(G: BackendGraph, ebunch: Any = None) -> Iterator[tuple[Any, Any, int]]:
    """As `networkx.preferential_attachment` for given pairs."""
    pairs, first, second = _pairs(G, ebunch)
    degree = np.bincount(G.src, minlength=len(G)) + np.bincount(G.dst, minlength=len(G))
    products = degree[first] * degree[second]
    return ((u, v, value) for (u, v), value in zip(pairs, products.tolist(), strict=True))


def can_compare(G: Any, ebunch: Any = None) -> bool | str:
    """Whether these pairs are compared."""
    if ebunch is None:
        return "all pairs of nodes that are not neighbors"
    # An iterator must not be used up before it is known who answers.
    if not isinstance(ebunch, list | tuple | set | frozenset | dict):
        return f"ebunch of type {type(ebunch).__name__}"
    return all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in ebunch) or "ebunch that is no pairs"


def _scores(G: BackendGraph, ebunch: Any, metric: Any) -> Scored:
    from goffish.algorithms.similarity.in_memory import scores_of

    if (G.src == G.dst).any():
        raise NotImplementedError("similarity with self-loops")
    pairs, first, second = _pairs(G, ebunch)
    values = scores_of(G.plain, first, second, metric)
    return ((u, v, value) for (u, v), value in zip(pairs, values.tolist(), strict=True))


def _pairs(G: BackendGraph, ebunch: Any) -> tuple[list[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Given pairs, and the positions of their ends."""
    pairs = list(ebunch)
    ends = []
    for node in (node for pair in pairs for node in pair):
        if node not in G:
            import networkx as nx

            raise nx.NodeNotFound(f"Node {node} not in G.")
        ends.append(G.position[node])
    first, second = np.array(ends, np.int64).reshape(-1, 2).T.copy()
    return pairs, first, second
