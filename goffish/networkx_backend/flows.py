"""Maximum flows and minimum cuts as networkx asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from goffish.networkx_backend.graph import EXACT, BackendGraph

if TYPE_CHECKING:
    from goffish.algorithms.flows.in_memory import Solution

Verdict = bool | str


def maximum_flow(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> tuple[Any, dict[Any, dict[Any, Any]]]:
    """As `networkx.maximum_flow`; of several maximum flows it may be another one."""
    found, value = _solved(flowG, _s, _t, capacity)
    sent = found.flow.tolist() if isinstance(value, float) else found.flow.astype(np.int64).tolist()
    flow: dict[Any, dict[Any, Any]] = {node: {} for node in flowG}
    both = not flowG.is_directed()
    for u, v, amount in zip(*found.ends.tolist(), sent, strict=True):
        flow[flowG.nodes[u]][flowG.nodes[v]] = max(amount, 0)
        if both:
            flow[flowG.nodes[v]][flowG.nodes[u]] = max(-amount, 0)
    return value, flow


def maximum_flow_value(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> Any:
    """As `networkx.maximum_flow_value`."""
    return _solved(flowG, _s, _t, capacity)[1]


def minimum_cut(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> tuple[Any, tuple[set[Any], set[Any]]]:
    """As `networkx.minimum_cut`: of several cuts, the one with the fewest nodes on the side of the target."""
    found, value = _solved(flowG, _s, _t, capacity)
    sides = (set(map(flowG.nodes.__getitem__, np.flatnonzero(side).tolist())) for side in (found.before, ~found.before))
    return value, (next(sides), next(sides))


def minimum_cut_value(
    flowG: BackendGraph, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any
) -> Any:
    """As `networkx.minimum_cut_value`."""
    return _solved(flowG, _s, _t, capacity)[1]


def can_flow(flowG: Any, _s: Any, _t: Any, capacity: Any = "capacity", flow_func: Any = None, **kwargs: Any) -> Verdict:
    """Whether flows and cuts are answered."""
    if flow_func is not None or kwargs:
        return "flow_func, or options of it"
    if capacity is None:
        return "capacity=None"
    return True


def _solved(G: BackendGraph, s: Any, t: Any, capacity: Any) -> tuple[Solution, Any]:
    """The flow, and its value in the type of the capacities; refusals are those of networkx."""
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
    found = flow_between(G.weighted(capacity), G.position[s], G.position[t])
    if not G.weights(capacity).whole:
        return found, found.value
    if not found.value < EXACT:
        raise NotImplementedError("a flow whose value may have been rounded")
    return found, int(found.value)
