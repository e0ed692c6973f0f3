"""PageRank as networkx asks for it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from goffish.networkx_backend.graph import BackendGraph, convert_to_nx, declining, is_real

#: networkx stops when a step changes less than n·tol, which for large graphs says nothing about the ranks.
_LARGEST_ERROR = 1e-6


def pagerank(
    G: BackendGraph,
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: None = None,
    weight: Hashable = "weight",
    dangling: None = None,
) -> dict[Any, float]:
    """Compute PageRank as `networkx.pagerank`, with a guaranteed error.

    Parameters
    ----------
    G : BackendGraph
    alpha : float
        Damping, in [0, 1).
    personalization : mapping from node to weight, optional
        Nodes outside of the graph are ignored.
    max_iter : int
        Most passes over the edges.
    tol : float
        The sum of all errors is at most ``min(n * tol, 1e-6)``, unless `max_iter` ends the iteration earlier.
    nstart, dangling : None
    weight : hashable
        Edge attribute; `None` ignores weights.

    Raises
    ------
    networkx.PowerIterationFailedConvergence
        After `max_iter` passes less is proved than networkx's rule ``change < n * tol`` would prove, and networkx's own
        iteration has not converged either.
    ZeroDivisionError
        No node of the graph has a personalization above zero.
    """
    import networkx as nx

    from goffish.algorithms.pagerank.in_memory import rank_of

    n = len(G)
    if not n:
        return {}
    graph = G.weighted(weight)
    teleport = None
    if personalization is not None:
        try:
            teleport = np.array([personalization.get(v, 0) for v in G.nodes], np.float64)
        except OverflowError as error:
            raise NotImplementedError(f"personalization: {error}") from None
        with np.errstate(over="ignore"):
            total = float(teleport.sum())
        if not math.isfinite(total):
            raise NotImplementedError("the personalization adds up to infinity")
        if not total:
            raise ZeroDivisionError("the personalization of the graph's nodes adds up to 0")
        teleport /= total
    if max_iter < 1:
        raise nx.PowerIterationFailedConvergence(max_iter)
    with declining():
        ranks = rank_of(
            graph,
            damping=float(alpha),
            tolerance=min(n * tol, _LARGEST_ERROR),
            max_iterations=int(max_iter),
            weighted=graph.weights is not None,
            teleport=teleport,
        )
    # A power iteration whose last step changed less than c is off by at most c · alpha / (1 - alpha).
    if ranks.error_bound <= max(min(n * tol, _LARGEST_ERROR), n * tol * alpha / (1 - alpha)):
        return dict(zip(G.nodes, ranks.rank.tolist(), strict=True))
    # Whether so few passes are enough depends on the method: where networkx has an answer there is to be one.
    found: dict[Any, float] = nx.pagerank(
        convert_to_nx(G), alpha, personalization, max_iter, tol, weight=weight, backend="networkx"
    )
    return found


def can_rank(
    G: Any,
    alpha: Any = 0.85,
    personalization: Any = None,
    max_iter: Any = 100,
    tol: Any = 1e-6,
    nstart: Any = None,
    weight: Any = "weight",
    dangling: Any = None,
) -> bool | str:
    """Whether these ranks are answered."""
    if nstart is not None:
        return "nstart"
    if dangling is not None:
        return "dangling; dangling nodes use personalization"
    if not (is_real(alpha) and 0 <= alpha < 1):
        return "alpha outside of [0, 1)"
    if not (is_real(tol) and 0 < tol < math.inf and isinstance(max_iter, Integral)):
        return "tol that is not positive, or max_iter that is not an integer"
    if callable(weight):
        return "weights given by a function"
    if personalization is None:
        return True
    if not isinstance(personalization, Mapping):
        return "personalization that is not a mapping"
    usable = all(is_real(w) and 0 <= w < math.inf for w in personalization.values())
    return usable or "personalization that is negative or not finite"
