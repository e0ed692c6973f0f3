"""Bipartite graphs as networkx asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.networkx_backend.components import is_connected
from goffish.networkx_backend.graph import BackendGraph, convert_to_nx, declining

Verdict = bool | str


def color(G: BackendGraph) -> dict[Any, int]:
    """As `networkx.bipartite.color`, in the order of the nodes; a graph with an odd cycle raises `NetworkXError`."""
    return dict(zip(G.nodes, _colors(G).tolist(), strict=True))


def is_bipartite(G: BackendGraph) -> bool:
    """As `networkx.is_bipartite`."""
    import networkx as nx

    try:
        _colors(G)
    except nx.NetworkXError:
        return False
    return True


def sets(G: BackendGraph, top_nodes: Any = None) -> tuple[set[Any], set[Any]]:
    """As `networkx.bipartite.sets`; several components without `top_nodes` raise `networkx.AmbiguousSolution`."""
    if top_nodes is not None:
        top = set(top_nodes)
        return top, set(G.nodes) - top
    if not is_connected(G):
        import networkx as nx

        raise nx.AmbiguousSolution("Disconnected graph: Ambiguous solution for bipartite sets.")
    found = _colors(G)
    first, second = (set(map(G.nodes.__getitem__, np.flatnonzero(found == side).tolist())) for side in (1, 0))
    return first, second


def projected_graph(B: BackendGraph, nodes: Any, multigraph: bool = False) -> Any:
    """As `networkx.bipartite.projected_graph` of one side of an undirected graph, a NetworkX graph."""
    made, order = _projection(B, nodes)
    return _as_networkx(B, made, order, {})


def weighted_projected_graph(B: BackendGraph, nodes: Any, ratio: bool = False) -> Any:
    """As `networkx.bipartite.weighted_projected_graph` of one side of an undirected graph, a NetworkX graph."""
    made, order = _projection(B, nodes)
    weights = made.edge_columns()[2]
    assert weights is not None
    values = (weights / (len(B) - len(order))).tolist() if ratio else weights.astype(np.int64).tolist()
    return _as_networkx(B, made, order, {"weight": values})


def _colors(G: BackendGraph) -> NDArray[np.int64]:
    """A color for each node: 1 for the first of each component from which an edge leads, 0 without edges."""
    import networkx as nx

    from goffish.algorithms.bipartite.in_memory import side_of
    from goffish.errors import InputError

    graph = G.plain.to_undirected()
    try:
        side = side_of(graph).astype(np.int64)
    except InputError as error:
        raise nx.NetworkXError("Graph is not bipartite.") from error
    # networkx begins where an edge leads out; in components without edges it stays at 0.
    begins = np.flatnonzero(G.plain.out_degrees)[::-1]
    base = side.copy()
    base[G.component[begins]] = 1 - side[begins]  # the last of several writes stays
    found: NDArray[np.int64] = side ^ base[G.component]
    return found


def _projection(B: BackendGraph, nodes: Any) -> tuple[Any, list[Any]]:
    """The projection, and the nodes in the given order."""
    from goffish.algorithms.bipartite.in_memory import projection

    order = list(nodes)
    if len(set(order)) < len(order) or any(node not in B for node in order) or len(order) == len(B):
        raise NotImplementedError("nodes that are repeated or unknown, or all nodes")
    mask = np.zeros(len(B), np.bool_)
    mask[[B.position[node] for node in order]] = True
    with declining():
        return projection(B.plain, mask, False, None), order


def _as_networkx(B: BackendGraph, made: Any, order: list[Any], columns: dict[str, list[Any]]) -> Any:
    at = {B.position[node]: place for place, node in enumerate(order)}
    place = np.array([at[number] for number in made.label_column().to_pylist()], np.int64)
    src, dst, _, _ = made.edge_columns()
    data = None if B.node_dicts is None else [B.node_dicts[B.position[node]] for node in order]
    return convert_to_nx(
        BackendGraph(
            order, place[src], place[dst], directed=False, multigraph=False, columns=columns, node_dicts=data,
            graph=B.graph,
        )
    )  # fmt: skip


def can_project(B: Any, nodes: Any, multigraph: Any = False) -> Verdict:
    """Whether projections are answered."""
    if B.is_directed() or B.is_multigraph():
        return "projections of directed graphs and multigraphs"
    # An iterator must not be used up before it is known who answers.
    if not isinstance(nodes, list | tuple | set | frozenset | dict | range):
        return f"nodes of type {type(nodes).__name__}"
    return not multigraph or "multigraph"


def can_weigh(B: Any, nodes: Any, ratio: Any = False) -> Verdict:
    """Whether weighted projections are answered: networkx does not have attributes converted for them."""
    if isinstance(B, BackendGraph):
        return can_project(B, nodes)
    if B.graph or any(data for _, data in B.nodes(data=True)):
        return "attributes of nodes or of the graph"
    return can_project(B, nodes)


def can_divide(G: Any, top_nodes: Any = None) -> Verdict:
    """Whether sides are answered."""
    if top_nodes is None or isinstance(top_nodes, list | tuple | set | frozenset | dict | range):
        return True
    return f"top_nodes of type {type(top_nodes).__name__}"
