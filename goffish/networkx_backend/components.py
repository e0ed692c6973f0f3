"""Connectivity as networkx asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.networkx_backend.graph import BackendGraph


def groups(nodes: list[Any], number: NDArray[np.integer[Any]]) -> Iterator[set[Any]]:
    """The sets of nodes that share a number (0 ≤ number < n), in the order of their first nodes."""
    n = number.size
    first = np.empty(n, np.int64)
    first[number[::-1]] = np.arange(n)[::-1]  # the last of several writes stays
    key = first[number]
    order = np.argsort(key, kind="stable")
    borders = np.flatnonzero(np.diff(key[order])) + 1
    begin = 0
    for end in [*borders.tolist(), *([n] if n else [])]:
        yield set(map(nodes.__getitem__, order[begin:end].tolist()))
        begin = end


def connected_components(G: BackendGraph) -> Iterator[set[Any]]:
    """As `networkx.connected_components`: the components in the order of their first nodes."""
    return groups(G.nodes, G.component)


def number_connected_components(G: BackendGraph) -> int:
    """As `networkx.number_connected_components`."""
    # Each component is numbered by one of its own vertices.
    return int(np.count_nonzero(G.component == np.arange(len(G))))


def is_connected(G: BackendGraph) -> bool:
    """As `networkx.is_connected`; a graph without nodes raises `networkx.NetworkXPointlessConcept`."""
    if not len(G):
        import networkx as nx

        raise nx.NetworkXPointlessConcept("Connectivity is undefined for a graph without nodes")
    return number_connected_components(G) == 1


def node_connected_component(G: BackendGraph, n: Any) -> set[Any]:
    """As `networkx.node_connected_component`; an unknown node raises `KeyError`."""
    members = np.flatnonzero(G.component == G.component[G.position[n]])
    return set(map(G.nodes.__getitem__, members.tolist()))


def weakly_connected_components(G: BackendGraph) -> Iterator[set[Any]]:
    """As `networkx.weakly_connected_components`: the components in the order of their first nodes."""
    return connected_components(G)


def number_weakly_connected_components(G: BackendGraph) -> int:
    """As `networkx.number_weakly_connected_components`."""
    return number_connected_components(G)


def is_weakly_connected(G: BackendGraph) -> bool:
    """As `networkx.is_weakly_connected`; a graph without nodes raises `networkx.NetworkXPointlessConcept`."""
    return is_connected(G)


def strongly_connected_components(G: BackendGraph) -> Iterator[set[Any]]:
    """As `networkx.strongly_connected_components`: a component comes before those from which it is reached."""
    from goffish.algorithms.components.in_memory import strong_component_of

    number = strong_component_of(G.plain)
    order = np.argsort(-number, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if order.size else ():
        yield set(map(G.nodes.__getitem__, members.tolist()))


def number_strongly_connected_components(G: BackendGraph) -> int:
    """As `networkx.number_strongly_connected_components`."""
    return sum(1 for _ in strongly_connected_components(G))


def is_strongly_connected(G: BackendGraph) -> bool:
    """As `networkx.is_strongly_connected`; a graph without nodes raises `networkx.NetworkXPointlessConcept`."""
    if not len(G):
        import networkx as nx

        raise nx.NetworkXPointlessConcept("Connectivity is undefined for a graph without nodes")
    return number_strongly_connected_components(G) == 1
