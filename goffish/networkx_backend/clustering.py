"""Triangles, what follows from them, cores and trusses, as networkx asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.networkx_backend.graph import BackendGraph, convert_to_nx, is_real

Verdict = bool | str


def triangles(G: BackendGraph, nodes: Any = None) -> Any:
    """As `networkx.triangles`."""
    count, _ = _counts(G)
    return _chosen(G, nodes, count.tolist())


def clustering(G: BackendGraph, nodes: Any = None, weight: Any = None) -> Any:
    """As `networkx.clustering` of a simple undirected graph without weights."""
    return _chosen(G, nodes, _coefficients(G))


def average_clustering(G: BackendGraph, nodes: Any = None, weight: Any = None, count_zeros: bool = True) -> float:
    """As `networkx.average_clustering` of a simple undirected graph without weights."""
    values = list(_chosen(G, nodes, _coefficients(G)).values())
    if not count_zeros:
        values = [value for value in values if value]
    return float(sum(values) / len(values))


def transitivity(G: BackendGraph) -> float:
    """As `networkx.transitivity` of a simple undirected graph."""
    count, degree = _counts(G)
    closed = int(count.sum())
    return 2 * closed / int((degree * (degree - 1)).sum()) if closed else 0


def core_number(G: BackendGraph) -> dict[Any, int]:
    """As `networkx.core_number`; a self-loop raises `networkx.NetworkXNotImplemented`."""
    if (G.src == G.dst).any():
        import networkx as nx

        raise nx.NetworkXNotImplemented(
            "Input graph has self loops: remove them first, core numbers are not defined with them"
        )
    from goffish.algorithms.clustering.in_memory import cores_of

    return dict(zip(G.nodes, cores_of(G.plain)[0].tolist(), strict=True))


def k_truss(G: BackendGraph, k: int) -> Any:
    """As `networkx.k_truss`, a NetworkX graph; a self-loop raises `networkx.NetworkXNotImplemented`."""
    if (G.src == G.dst).any():
        import networkx as nx

        raise nx.NetworkXNotImplemented("Input graph has self loops: remove them first, a truss has none")
    from goffish.algorithms.clustering.trusses import trusses_of

    ends, truss = trusses_of(G.plain)
    source, target = ends.astype(np.int64)
    row = np.searchsorted(source * len(G) + target, G.src * len(G) + G.dst)
    kept = truss[row] >= k
    src, dst = G.src[kept], G.dst[kept]
    stays = np.zeros(len(G), np.bool_)
    stays[src] = stays[dst] = True
    number = np.cumsum(stays) - 1
    edges, nodes = kept.tolist(), stays.tolist()
    return convert_to_nx(
        BackendGraph(
            list(compress(G.nodes, nodes)), number[src], number[dst], directed=False, multigraph=False,
            columns={name: list(compress(values, edges)) for name, values in G.columns.items()},
            edge_dicts=None if G.edge_dicts is None else list(compress(G.edge_dicts, edges)),
            node_dicts=None if G.node_dicts is None else list(compress(G.node_dicts, nodes)),
            graph=G.graph,
        )
    )  # fmt: skip


def can_trim(G: Any, k: Any) -> Verdict:
    """Whether trusses are answered."""
    return is_real(k) or "k that is not a number"


def can_count(G: Any, nodes: Any = None) -> Verdict:
    """Whether triangles of these nodes are answered."""
    if G.is_multigraph():
        return "triangles of multigraphs"
    return _can_choose(G, nodes)


def can_cluster(G: Any, nodes: Any = None, weight: Any = None) -> Verdict:
    """Whether these clustering coefficients are answered."""
    if G.is_directed():
        return "clustering of directed graphs"
    if weight is not None:
        return "clustering with weights"
    return can_count(G, nodes)


def can_average(G: Any, nodes: Any = None, weight: Any = None, count_zeros: bool = True) -> Verdict:
    """Whether this mean of clustering coefficients is answered."""
    if nodes is not None and nodes in G:
        return "the mean over a single node"
    return can_cluster(G, nodes, weight)


def can_relate(G: Any) -> Verdict:
    """Whether the transitivity is answered."""
    return can_cluster(G)


def can_peel(G: Any) -> Verdict:
    """Whether core numbers are answered."""
    return "core numbers of directed graphs" if G.is_directed() else True


def asks_for_few(G: Any, nodes: Any = None) -> bool:
    """Whether so few nodes are asked about that networkx need not look at the whole graph."""
    return nodes is not None and (nodes in G or len(nodes) < len(G) // 10)


def _can_choose(G: Any, nodes: Any) -> Verdict:
    # An iterator must not be used up before it is known who answers.
    if nodes is None or nodes in G or isinstance(nodes, list | tuple | set | frozenset | dict | range):
        return True
    return f"nodes of type {type(nodes).__name__}"


def _chosen(G: BackendGraph, nodes: Any, values: Sequence[Any]) -> Any:
    if nodes is None:
        return dict(zip(G.nodes, values, strict=True))
    if nodes in G:
        return values[G.position[nodes]]
    try:
        return {v: values[G.position[v]] for v in nodes if v in G.position}
    except TypeError as error:
        raise NotImplementedError(f"nodes: {error}") from error


def _counts(G: BackendGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    from goffish.algorithms.clustering.in_memory import triangles_of

    count, degree = triangles_of(G.plain)
    return count, degree.astype(np.int64)


def _coefficients(G: BackendGraph) -> list[float]:
    count, degree = _counts(G)
    pairs = degree * (degree - 1)
    values = (2 * count / np.maximum(pairs, 1)).astype(object)
    values[count == 0] = 0  # the integer, as in networkx
    found: list[float] = values.tolist()
    return found
