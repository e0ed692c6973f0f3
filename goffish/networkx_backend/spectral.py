"""Eigenvector centrality, Katz centrality and HITS as networkx asks for them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from numbers import Integral
from typing import Any

import numpy as np

from goffish.errors import JobError
from goffish.networkx_backend.graph import BackendGraph, convert_to_nx, declining, is_real

Verdict = bool | str

#: networkx stops when a step changes less than n·tol, which for large graphs says nothing about the values.
_LARGEST_ERROR = 1e-9


def eigenvector_centrality(
    G: BackendGraph, max_iter: int = 100, tol: float = 1e-6, nstart: None = None, weight: Hashable = None
) -> dict[Any, float]:
    """As `networkx.eigenvector_centrality`, with a relative residual of at most ``min(tol, 1e-9)``.

    Where that takes more than `max_iter` passes, networkx's own iteration decides whether there is an answer.
    """
    import networkx as nx

    from goffish.algorithms.spectral.in_memory import eigenvector_of

    if not len(G):
        raise nx.NetworkXPointlessConcept("cannot compute centrality for the null graph")
    graph = G.weighted(weight)
    try:
        with declining():
            found = eigenvector_of(
                graph, weighted=graph.weights is not None, tolerance=min(tol, _LARGEST_ERROR),
                max_iterations=int(max_iter),
            )  # fmt: skip
    except JobError:
        again: dict[Any, float] = nx.eigenvector_centrality(
            convert_to_nx(G), max_iter, tol, weight=weight, backend="networkx"
        )
        return again
    return dict(zip(G.nodes, found.values.tolist(), strict=True))


def katz_centrality(
    G: BackendGraph,
    alpha: float = 0.1,
    beta: float = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-6,
    nstart: None = None,
    normalized: bool = True,
    weight: Hashable = None,
) -> dict[Any, float]:
    """As `networkx.katz_centrality`, each value with a relative error of at most ``min(tol, 1e-9)``.

    Where that takes more than `max_iter` passes, networkx's own iteration decides whether there is an answer.
    """
    import networkx as nx

    from goffish.algorithms.spectral.in_memory import katz_of

    if not len(G):
        return {}
    graph = G.weighted(weight)
    try:
        with declining():
            found = katz_of(
                graph, alpha=float(alpha), weighted=graph.weights is not None, tolerance=min(tol, _LARGEST_ERROR),
                max_iterations=int(max_iter),
            )  # fmt: skip
    except JobError:
        again: dict[Any, float] = nx.katz_centrality(
            convert_to_nx(G), alpha, beta, max_iter, tol, normalized=normalized, weight=weight, backend="networkx"
        )
        return again
    values = found.values * beta
    if normalized:
        values /= math.sqrt(float(np.square(values).sum()))
    return dict(zip(G.nodes, values.tolist(), strict=True))


def hits(
    G: BackendGraph, max_iter: int = 100, tol: float = 1e-8, nstart: None = None, normalized: bool = True
) -> tuple[dict[Any, float], dict[Any, float]]:
    """As `networkx.hits`: hubs and authorities, with a relative residual of at most ``min(tol, 1e-9)``.

    Where that takes more than `max_iter` iterations, networkx's own method decides whether there is an answer.
    """
    import networkx as nx

    from goffish.algorithms.spectral.in_memory import hits_of

    if not G.number_of_edges():
        raise NotImplementedError("hubs of a graph without edges")
    graph = G.weighted("weight", "sum")
    try:
        with declining():
            hubs, found = hits_of(
                graph, weighted=graph.weights is not None, tolerance=min(tol, _LARGEST_ERROR),
                max_iterations=int(max_iter),
            )  # fmt: skip
    except JobError:
        again: tuple[dict[Any, float], dict[Any, float]] = nx.hits(
            convert_to_nx(G), max_iter, tol, normalized=normalized, backend="networkx"
        )
        return again
    values = [hubs, found.values]
    if normalized:
        values = [one / one.sum() for one in values]
    first, second = (dict(zip(G.nodes, one.tolist(), strict=True)) for one in values)
    return first, second


def can_iterate(G: Any, max_iter: Any = 100, tol: Any = 1e-6, nstart: Any = None, weight: Any = None) -> Verdict:
    """Whether this eigenvector centrality is answered."""
    if nstart is not None:
        return "nstart"
    if not (is_real(tol) and 0 < tol < math.inf and isinstance(max_iter, Integral) and int(max_iter) > 0):
        return "tol or max_iter that is not positive, or max_iter that is not an integer"
    return "weights given by a function" if callable(weight) else True


def can_walk(
    G: Any, alpha: Any = 0.1, beta: Any = 1.0, max_iter: Any = 1000, tol: Any = 1e-6, nstart: Any = None,
    normalized: Any = True, weight: Any = None,
) -> Verdict:  # fmt: skip
    """Whether this Katz centrality is answered."""
    if not all(is_real(value) and 0 < value < math.inf for value in (alpha, beta)):
        return "alpha or beta that is not a positive number"
    return can_iterate(G, max_iter, tol, nstart, weight)


def can_link(G: Any, max_iter: Any = 100, tol: Any = 1e-8, nstart: Any = None, normalized: Any = True) -> Verdict:
    """Whether these hubs and authorities are answered."""
    if len(G) < 2:
        return "fewer than two nodes"
    return can_iterate(G, max_iter, tol, nstart)
