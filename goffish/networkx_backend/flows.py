"""Maximum flows and minimum cuts as networkx asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.networkx_backend.graph import EXACT, BackendGraph

Verdict = bool | str


def maximum_flow(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> tuple[Any, dict[Any, dict[Any, Any]]]:
    """As `networkx.maximum_flow`; of several maximum flows it may be another one."""
    flow, _, value = _solved(flowG, _s, _t, capacity)
    sent = flow.tolist() if isinstance(value, float) else flow.astype(np.int64).tolist()
    found: dict[Any, dict[Any, Any]] = {node: {} for node in flowG}
    both = not flowG.is_directed()
    # The edges of a graph are sorted by their ends.
    order = np.lexsort((flowG.dst, flowG.src))
    for u, v, amount in zip(flowG.src[order].tolist(), flowG.dst[order].tolist(), sent, strict=True):
        found[flowG.nodes[u]][flowG.nodes[v]] = max(amount, 0)
        if both:
            found[flowG.nodes[v]][flowG.nodes[u]] = max(-amount, 0)
    return value, found


def maximum_flow_value(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> Any:
    """As `networkx.maximum_flow_value`."""
    return _solved(flowG, _s, _t, capacity)[2]


def minimum_cut(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> tuple[Any, tuple[set[Any], set[Any]]]:
    """As `networkx.minimum_cut`: of several cuts, the one with the fewest nodes on the side of the target."""
    _, before, value = _solved(flowG, _s, _t, capacity)
    sides = (set(map(flowG.nodes.__getitem__, np.flatnonzero(side).tolist())) for side in (before, ~before))
    return value, (next(sides), next(sides))


def minimum_cut_value(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> Any:
    """As `networkx.minimum_cut_value`."""
    return _solved(flowG, _s, _t, capacity)[2]


def can_flow(flowG: Any, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any) -> Verdict:
    """Whether flows and cuts are answered."""
    if flow_func is not None or kwargs:
        return "flow_func, or options of it"
    if capacity is None:
        return "capacity=None"
    return True


def _solved(G: BackendGraph, s: Any, t: Any, capacity: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_], Any]:
    """Flow by edge, side by node, and the value; refusals are those of networkx."""
    import networkx as nx

    from goffish.algorithms.flows.in_memory import flow_between

    if G.is_multigraph():
        raise nx.NetworkXError("MultiGraph and MultiDiGraph not supported (yet).")
    for node in (s, t):
        if node not in G:
            raise nx.NetworkXError(f"node {node!s} not in graph")
    if s == t:
        raise nx.NetworkXError("source and sink are the same node")
    if G.edge_dicts is not None and not all(capacity in attributes for attributes in G.edge_dicts):
        raise NotImplementedError(f"edges without the attribute {capacity!r}, whose capacity is infinite")
    flow, before, value = flow_between(G.weighted(capacity), G.position[s], G.position[t])
    if not G.weights(capacity).whole:
        return flow, before, value
    if not value < EXACT:
        raise NotImplementedError("a flow whose value may have been rounded")
    return flow, before, int(value)
