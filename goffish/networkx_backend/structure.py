"""Structure of graphs as networkx asks for it."""

from __future__ import annotations

from collections.abc import Iterator, ValuesView
from typing import Any

import numpy as np

from goffish.networkx_backend.components import groups
from goffish.networkx_backend.graph import EXACT, BackendGraph

Verdict = bool | str


def minimum_spanning_edges(
    G: BackendGraph,
    algorithm: str = "kruskal",
    weight: Any = "weight",
    keys: bool = True,
    data: bool = True,
    ignore_nan: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """As `networkx.minimum_spanning_edges` with Kruskal's algorithm: of equal weights the first edges are taken."""
    from goffish.algorithms.structure.in_memory import forest_of_edges

    values = np.ones(G.src.size) if weight is None else G.weights(weight).values
    if (np.abs(values) > EXACT).any():
        raise NotImplementedError(f"the edge attribute {weight!r} holds numbers that may have been rounded")
    edges = forest_of_edges(G.src, G.dst, values, len(G))
    edges = edges[np.argsort(values[edges], kind="stable")]
    columns: list[Any] = [[G.nodes[v] for v in ends[edges].tolist()] for ends in (G.src, G.dst)]
    if G.edge_keys is not None and keys:
        columns.append([G.edge_keys[i] for i in edges.tolist()])
    if data:
        assert G.edge_dicts is not None, "networkx has all attributes converted if it asks for them"
        columns.append([G.edge_dicts[i] for i in edges.tolist()])
    return zip(*columns, strict=True)


def biconnected_components(G: BackendGraph) -> Iterator[set[Any]]:
    """As `networkx.biconnected_components`, in another order."""
    from goffish.algorithms.structure.in_memory import Blocks

    found = Blocks(G.plain)
    ends = np.cumsum(found.sizes)
    for top, begin, end in zip(found.top.tolist(), (ends - found.sizes).tolist(), ends.tolist(), strict=True):
        yield {G.nodes[top], *map(G.nodes.__getitem__, found.members[begin:end].tolist())}


def is_biconnected(G: BackendGraph) -> bool:
    """As `networkx.is_biconnected`."""
    from goffish.algorithms.structure.in_memory import Blocks

    return bool(Blocks(G.plain).sizes.tolist() == [len(G) - 1])


def articulation_points(G: BackendGraph) -> Iterator[Any]:
    """As `networkx.articulation_points`, in the order of the nodes."""
    from goffish.algorithms.structure.in_memory import Blocks

    return map(G.nodes.__getitem__, np.flatnonzero(Blocks(G.plain).memberships > 1).tolist())


def bridges(G: BackendGraph, root: Any = None) -> Iterator[tuple[Any, Any]]:
    """As `networkx.bridges` of the whole graph."""
    from goffish.algorithms.structure.in_memory import Blocks

    ends = np.sort(np.stack(Blocks(G.plain).bridges), axis=0)
    return zip(*([G.nodes[v] for v in column.tolist()] for column in ends[:, np.lexsort(ends[::-1])]), strict=True)


def has_bridges(G: BackendGraph, root: Any = None) -> bool:
    """As `networkx.has_bridges` of the whole graph."""
    from goffish.algorithms.structure.in_memory import Blocks

    return Blocks(G.plain).bridges[0].size > 0


def maximal_matching(G: BackendGraph) -> set[tuple[Any, Any]]:
    """As `networkx.maximal_matching`: edges are taken in the order of the graph."""
    from goffish.algorithms.structure import kernels

    partner = np.full(len(G), -1)
    # Edges are in the order of their first ends.
    kernels.match(np.searchsorted(G.src, np.arange(len(G) + 1)), G.dst, partner)
    first = np.flatnonzero(partner > np.arange(len(G)))
    return {(G.nodes[u], G.nodes[v]) for u, v in zip(first.tolist(), partner[first].tolist(), strict=True)}


def maximal_independent_set(G: BackendGraph, nodes: Any = None, seed: Any = None) -> list[Any]:
    """As `networkx.maximal_independent_set`, with another set for each seed.

    Parameters
    ----------
    nodes : iterable, optional
        Nodes of the set; unknown ones, or neighbors, raise `networkx.NetworkXUnfeasible`.
    seed : int, random.Random, numpy generator or None
        The same seed gives the same set, but not the one that networkx finds with it.
    """
    import networkx as nx
    from networkx.utils import create_py_random_state

    from goffish.algorithms.structure import kernels

    random = create_py_random_state(seed)
    given = list(dict.fromkeys(nodes or ()))
    if any(node not in G for node in given):
        raise nx.NetworkXUnfeasible(f"{set(given)} is not a subset of the nodes of G")
    n, first = len(G), np.array([G.position[node] for node in given], np.int64)
    order, state = (
        np.concatenate((first, np.random.default_rng(random.getrandbits(64)).permutation(n))),
        np.zeros(n, np.int8),
    )
    kernels.choose_independent(G.plain.offsets, G.plain.targets, order, state)
    if (state[first] != 1).any() or np.isin(G.src[G.src == G.dst], first).any():
        raise nx.NetworkXUnfeasible(f"{set(given)} is not an independent set of G")
    rest = order[first.size :]
    state[first] = 2
    return [*given, *map(G.nodes.__getitem__, rest[state[rest] == 1].tolist())]


def greedy_color(G: BackendGraph, strategy: Any = "largest_first", interchange: bool = False) -> dict[Any, int]:
    """As `networkx.greedy_color` of an undirected graph in descending order of degree."""
    from goffish.algorithms.structure.in_memory import colors_of, order_by_degree

    order = order_by_degree(G.plain, descending=True)
    color, _ = colors_of(G.plain, order)
    return dict(zip(map(G.nodes.__getitem__, order.tolist()), color[order].tolist(), strict=True))


def label_propagation_communities(G: BackendGraph) -> ValuesView[set[Any]]:
    """As `networkx.community.label_propagation_communities`: the same communities in the same order."""
    from goffish.algorithms.structure.in_memory import labels_of

    return dict(enumerate(groups(G.nodes, labels_of(G.plain)[0]))).values()


def can_span(
    G: Any,
    algorithm: Any = "kruskal",
    weight: Any = "weight",
    keys: Any = True,
    data: Any = True,
    ignore_nan: Any = False,
) -> Verdict:
    """Whether a spanning forest is answered."""
    return True if algorithm == "kruskal" else "algorithms other than kruskal"


def can_bridge(G: Any, root: Any = None) -> Verdict:
    """Whether the bridges of a graph are answered."""
    return True if root is None else "root"


def can_choose(G: Any, nodes: Any = None, seed: Any = None) -> Verdict:
    """Whether an independent set is answered."""
    return True if len(G) else "graphs without nodes"


def can_color(G: Any, strategy: Any = "largest_first", interchange: Any = False) -> Verdict:
    """Whether a coloring is answered."""
    if G.is_directed():
        return "colorings of directed graphs"
    return True if strategy == "largest_first" and not interchange else "strategies other than largest_first"
