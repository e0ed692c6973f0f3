"""Eccentricities and what follows from them as networkx asks for them."""

from __future__ import annotations

from typing import Any

from goffish.networkx_backend.graph import BackendGraph

Verdict = bool | str


def eccentricity(G: BackendGraph, v: Any = None, sp: Any = None, weight: Any = None) -> dict[Any, int]:
    """As `networkx.eccentricity` of all nodes.

    Raises
    ------
    networkx.NetworkXError
        The graph is not (strongly) connected.
    """
    from goffish.algorithms.components.in_memory import strong_component_of
    from goffish.algorithms.extents.in_memory import eccentricities

    number = G.component if not G.is_directed() else strong_component_of(G.plain)
    if number.size and number.min() != number.max():
        import networkx as nx

        strongly = "strongly " if G.is_directed() else ""
        raise nx.NetworkXError(f"the distance between some nodes is infinite: the graph is not {strongly}connected")
    return dict(zip(G.nodes, eccentricities(G.plain)[0].tolist(), strict=True))


def diameter(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> int:
    """As `networkx.diameter`."""
    return max(eccentricity(G).values())


def radius(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> int:
    """As `networkx.radius`."""
    return min(eccentricity(G).values())


def center(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Any]:
    """As `networkx.center`."""
    found = eccentricity(G)
    least = min(found.values())
    return [v for v, value in found.items() if value == least]


def periphery(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Any]:
    """As `networkx.periphery`."""
    found = eccentricity(G)
    most = max(found.values())
    return [v for v, value in found.items() if value == most]


def is_directed_acyclic_graph(G: BackendGraph) -> bool:
    """As `networkx.is_directed_acyclic_graph`."""
    from goffish.algorithms.orders.in_memory import levels_of

    return G.is_directed() and not levels_of(G.plain)[1].any()


def dag_longest_path(
    G: BackendGraph, weight: Any = "weight", default_weight: Any = 1, topo_order: Any = None
) -> list[Any]:
    """As `networkx.dag_longest_path`; of several longest paths it may be another one."""
    return _longest(G, weight)[0]


def dag_longest_path_length(G: BackendGraph, weight: Any = "weight", default_weight: Any = 1) -> Any:
    """As `networkx.dag_longest_path_length`."""
    length = _longest(G, weight)[1]
    return int(length) if weight is None or G.weights(weight).whole else length


def _longest(G: BackendGraph, weight: Any) -> tuple[list[Any], float]:
    from goffish.algorithms.orders.in_memory import path_through

    if G.is_directed() and not is_directed_acyclic_graph(G):
        import networkx as nx

        raise nx.NetworkXUnfeasible("the graph has a cycle")
    path, distance = path_through(G.weighted(weight))
    return list(map(G.nodes.__getitem__, path.tolist())), float(distance.max(initial=0.0))


def can_lengthen(G: Any, weight: Any = "weight", default_weight: Any = 1, topo_order: Any = None) -> Verdict:
    """Whether longest paths are answered."""
    if callable(weight):
        return "weights given by a function"
    return (default_weight == 1 and topo_order is None) or "default_weight or topo_order"


def can_lengthen_to(G: Any, weight: Any = "weight", default_weight: Any = 1) -> Verdict:
    """Whether lengths of longest paths are answered."""
    return can_lengthen(G, weight, default_weight)


def can_spread(G: Any, v: Any = None, sp: Any = None, weight: Any = None) -> Verdict:
    """Whether these eccentricities are answered."""
    return (v is None and sp is None and weight is None) or "v, sp or weight"


def can_extend(G: Any, e: Any = None, usebounds: Any = False, weight: Any = None) -> Verdict:
    """Whether what follows from eccentricities is answered."""
    return (e is None and not usebounds and weight is None) or "e, usebounds or weight"
