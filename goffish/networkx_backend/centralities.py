"""Betweenness, closeness and harmonic centrality as networkx asks for them."""

from __future__ import annotations

from collections.abc import Hashable
from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.graph import Graph
from goffish.networkx_backend.graph import EXACT, BackendGraph, declining
from goffish.networkx_backend.paths import known, measured

Verdict = bool | str
_BY_FUNCTION = "weights given by a function"
_COLLECTIONS = (list, tuple, set, frozenset, dict, range)


def betweenness_centrality(
    G: BackendGraph,
    k: int | None = None,
    normalized: bool = True,
    weight: Hashable = None,
    endpoints: bool = False,
    seed: Any = None,
) -> dict[Any, float]:
    """As `networkx.betweenness_centrality`; with `k` from the very nodes that networkx draws with this seed.

    Parameters
    ----------
    G : BackendGraph
    k : int, optional
        Paths from so many random nodes only; scaled as the installed networkx does.
    normalized, endpoints : bool
    weight : hashable
        Edge attribute with positive numbers; `None` counts edges.
    seed : int, random.Random, numpy generator or None

    Raises
    ------
    ValueError
        `k` is larger than the number of nodes.
    """
    if not len(G):
        return {}
    graph = _positive(G, weight)
    if k is None or k == len(G):
        scores = _vertex_scores(graph, normalized=bool(normalized), endpoints=bool(endpoints))
        return dict(zip(G.nodes, scores.tolist(), strict=True))
    drawn = _draw(G, k, seed)
    scores = _vertex_scores(graph, endpoints=bool(endpoints), sources=_positions(G, drawn))
    ordered_pairs = scores if graph.directed else 2.0 * scores
    found = dict(zip(G.nodes, ordered_pairs.tolist(), strict=True))
    return _rescaled(G, found, drawn, normalized=normalized, endpoints=endpoints)


def edge_betweenness_centrality(
    G: BackendGraph, k: int | None = None, normalized: bool = True, weight: Hashable = None, seed: Any = None
) -> dict[Any, float]:
    """As `networkx.edge_betweenness_centrality`; parameters and exceptions as in `betweenness_centrality`."""
    if not len(G):
        return {}
    graph = _positive(G, weight)
    if k is None:
        return _by_edge(G, weight, _edge_scores(G, graph, normalized=bool(normalized)))
    drawn = _draw(G, k, seed)
    scores = _edge_scores(G, graph, sources=_positions(G, drawn))
    ordered_pairs = scores if graph.directed else 2.0 * scores
    found = _rescaled(G, dict(enumerate(ordered_pairs.tolist())), drawn, normalized=normalized, endpoints=None)
    return _by_edge(G, weight, np.fromiter(found.values(), np.float64, len(found)))


def betweenness_centrality_subset(
    G: BackendGraph, sources: Any, targets: Any, normalized: bool = False, weight: Hashable = None
) -> dict[Any, float]:
    """As `networkx.betweenness_centrality_subset`; an unknown source raises `KeyError`, unknown targets are ignored."""
    if not len(G):
        return {}
    graph, ends = _positive(G, weight), _ends(G, sources, targets)
    scores = _vertex_scores(graph, normalized=bool(normalized), **ends)
    return dict(zip(G.nodes, scores.tolist(), strict=True))


def edge_betweenness_centrality_subset(
    G: BackendGraph, sources: Any, targets: Any, normalized: bool = False, weight: Hashable = None
) -> dict[Any, float]:
    """As `networkx.edge_betweenness_centrality_subset` where all nodes are targets.

    An unknown source raises `KeyError`. With fewer targets networkx shares dependencies out equally among predecessors,
    not by their numbers of paths.
    """
    if not len(G):
        return {}
    graph, ends = _positive(G, weight), _ends(G, sources, targets)
    return _by_edge(G, weight, _edge_scores(G, graph, normalized=bool(normalized), **ends))


def closeness_centrality(G: BackendGraph, u: Any = None, distance: Hashable = None, wf_improved: bool = True) -> Any:
    """As `networkx.closeness_centrality`: inward distances, of one node `u` or all.

    Raises
    ------
    networkx.NodeNotFound
        `u` is not in the graph.
    """
    from goffish.algorithms.closeness.in_memory import closeness

    if not len(G) and u is None:
        return {}
    graph = measured(G, distance)
    chosen = None if u is None else [known(G, u)]
    found = closeness(graph, wf_improved=bool(wf_improved), vertices=chosen).scores.tolist()
    return dict(zip(G.nodes, found, strict=True)) if u is None else found[0]


def harmonic_centrality(
    G: BackendGraph, nbunch: Any = None, distance: Hashable = None, sources: Any = None
) -> dict[Any, float]:
    """As `networkx.harmonic_centrality`, nodes in the order of the graph; unknown nodes are ignored."""
    from goffish.algorithms.closeness.in_memory import harmonic

    if not len(G):
        return {}
    chosen = None if nbunch is None else _positions(G, _known_nodes(G, nbunch))
    origins = None if sources is None else _positions(G, _known_nodes(G, sources))
    found = harmonic(measured(G, distance), vertices=chosen, sources=origins)
    # The integer 0 where nothing was added up, as in networkx.
    return {G.nodes[v]: score or 0 for v, score in zip(found.vertices.tolist(), found.scores.tolist(), strict=True)}


def can_sample(
    G: Any, k: Any = None, normalized: Any = True, weight: Any = None, endpoints: Any = False, seed: Any = None
) -> Verdict:
    """Whether this betweenness is answered."""
    if callable(weight):
        return _BY_FUNCTION
    return k is None or (isinstance(k, Integral) and int(k) > 0) or "k that is not a positive integer"


def can_sample_edges(G: Any, k: Any = None, normalized: Any = True, weight: Any = None, seed: Any = None) -> Verdict:
    """Whether this betweenness of edges is answered."""
    return can_sample(G, k, normalized, weight)


def can_relate(G: Any, sources: Any, targets: Any, normalized: Any = False, weight: Any = None) -> Verdict:
    """Whether betweenness between these nodes is answered."""
    if callable(weight):
        return _BY_FUNCTION
    for nodes in (sources, targets):
        # An iterator must not be used up before it is known who answers.
        if not isinstance(nodes, _COLLECTIONS):
            return f"nodes of type {type(nodes).__name__}"
    try:
        return len(set(sources)) == len(sources) or "duplicate sources"
    except TypeError:
        return "sources that cannot be nodes"


def can_relate_edges(G: Any, sources: Any, targets: Any, normalized: Any = False, weight: Any = None) -> Verdict:
    """Whether betweenness of edges between these nodes is answered."""
    verdict = can_relate(G, sources, targets, normalized, weight)
    if verdict is not True:
        return verdict
    try:
        return set(targets).issuperset(G) or "targets that are not all nodes"
    except TypeError:
        return "targets that cannot be nodes"


def can_near(G: Any, u: Any = None, distance: Any = None, wf_improved: Any = True) -> Verdict:
    """Whether this closeness is answered."""
    return _BY_FUNCTION if callable(distance) else True


def can_near_some(G: Any, nbunch: Any = None, distance: Any = None, sources: Any = None) -> Verdict:
    """Whether this harmonic centrality is answered."""
    if callable(distance):
        return _BY_FUNCTION
    for nodes in (nbunch, sources):
        if not (nodes is None or nodes in G or isinstance(nodes, _COLLECTIONS)):
            return f"nodes of type {type(nodes).__name__}"
    return True


def asks_for_one(G: Any, nodes: Any) -> bool:
    """Whether a single node is asked about."""
    return nodes is not None and (nodes in G or (hasattr(nodes, "__len__") and len(nodes) < 2))


def _positive(G: BackendGraph, weight: Hashable) -> Graph:
    """The graph to count paths in; weights that are not positive are left to networkx before a seed is used."""
    graph = measured(G, weight)
    if graph.weights is not None and not bool((graph.weights > 0).all()):
        raise NotImplementedError(f"the edge attribute {weight!r} holds weights that are not positive")
    return graph


def _exact(graph: Graph) -> bool:
    """Whether sums of weights do not depend on where they begin: without that, ties of paths are a matter of rounding
    and must be looked for from the same nodes as networkx does."""
    weights = graph.weights
    return weights is None or bool((weights == np.rint(weights)).all() and weights.sum() <= EXACT)


def _vertex_scores(graph: Graph, **options: Any) -> NDArray[np.float64]:
    from goffish.algorithms.betweenness.in_memory import betweenness

    with declining():
        return betweenness(graph, reductions="all" if _exact(graph) else (), **options).scores


def _edge_scores(G: BackendGraph, graph: Graph, **options: Any) -> NDArray[np.float64]:
    """The score of each edge of `G`, parallel ones together, shape (edges,)."""
    from goffish.algorithms.betweenness.in_memory import edge_betweenness

    with declining():
        scores = edge_betweenness(graph, reductions="all" if _exact(graph) else (), **options).scores
    src, dst, _, _ = graph.edge_columns()
    # Rows ascend, so pairs of ends do; of parallel edges each has its share.
    pairs, number = np.unique(_pairs(src, dst, len(G)), return_inverse=True)
    by_pair = np.bincount(number, scores, pairs.size)
    return np.asarray(by_pair[np.searchsorted(pairs, _pairs(G.src, G.dst, len(G)))], np.float64)


def _by_edge(G: BackendGraph, weight: Hashable, scores: NDArray[np.float64]) -> dict[Any, float]:
    """networkx's keys for the edges; the lightest of parallel edges share what is theirs, the others have 0."""
    ends = [map(G.nodes.__getitem__, column.tolist()) for column in (G.src, G.dst)]
    if not G.is_multigraph():
        return dict(zip(zip(*ends, strict=True), scores.tolist(), strict=True))
    assert G.edge_keys is not None
    length = np.ones(G.src.size) if weight is None else G.weights(weight).values
    pairs, number = np.unique(_pairs(G.src, G.dst, len(G)), return_inverse=True)
    least = np.full(pairs.size, np.inf)
    np.minimum.at(least, number, length)
    lightest = length == least[number]
    sharing = np.bincount(number, lightest, pairs.size)
    shared = np.where(lightest, scores / sharing[number], 0.0)
    return dict(zip(zip(*ends, G.edge_keys, strict=True), shared.tolist(), strict=True))


def _pairs(src: NDArray[Any], dst: NDArray[Any], n: int) -> NDArray[np.int64]:
    return np.asarray(src.astype(np.int64) * n + dst, np.int64)


def _draw(G: BackendGraph, k: int, seed: Any) -> list[Any]:
    """The nodes that networkx draws."""
    from networkx.utils import create_py_random_state

    drawn: list[Any] = create_py_random_state(seed).sample(list(G.nodes), k)
    return drawn


def _rescaled(
    G: BackendGraph, scores: dict[Any, float], drawn: list[Any], *, normalized: bool, endpoints: bool | None
) -> dict[Any, float]:
    """Sums over ordered pairs from the nodes `drawn`, scaled by the rules of the installed networkx.

    They changed in networkx 3.5. Without `endpoints` they are those for edges.
    """
    from networkx.algorithms.centrality import betweenness as theirs

    options: dict[str, Any] = {"normalized": normalized, "directed": G.is_directed()}
    rule = theirs._rescale
    if "sampled_nodes" in signature(rule).parameters:
        options["sampled_nodes"] = drawn
    elif endpoints is None:
        rule = theirs._rescale_e
    else:
        options["k"] = len(drawn)
    if endpoints is not None:
        options["endpoints"] = endpoints
    scaled: dict[Any, float] = rule(scores, len(G), **options)
    return scaled


def _known_nodes(G: BackendGraph, nodes: Any) -> list[Any]:
    if nodes in G:
        return [nodes]
    try:
        return [v for v in nodes if v in G.position]
    except TypeError as error:
        raise NotImplementedError(f"nodes: {error}") from error


def _ends(G: BackendGraph, sources: Any, targets: Any) -> dict[str, NDArray[np.int64]]:
    return {"sources": _positions(G, sources), "targets": _positions(G, _known_nodes(G, list(targets)))}


def _positions(G: BackendGraph, nodes: Any) -> NDArray[np.int64]:
    return np.fromiter(map(G.position.__getitem__, nodes), np.int64, len(nodes))
