"""The order of cyclic graphs against networkx and by hand (unit check 7)."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.ordering import cyclic_order, first_component
from tests.scheduling.policies.latency_aware.cases import random_graph


@given(st.integers(0, 2**32), st.booleans())
def test_every_vertex_once_and_no_edge_backwards(seed: int, acyclic: bool) -> None:
    size, edges = random_graph(seed, acyclic)
    levels = cyclic_order(size, edges)
    order = [v for level in levels for v in level]
    assert sorted(order) == list(range(size))
    if acyclic:
        assert all(order.index(a) < order.index(b) for a, b in edges)


@given(st.integers(0, 2**32))
def test_first_component_is_fed_by_no_other(seed: int) -> None:
    size, edges = random_graph(seed, False)
    found = set(first_component(size, [[b for a, b in edges if a == v] for v in range(size)], lambda _: True))
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(size))
    assert found in list(nx.strongly_connected_components(graph))
    assert all(a in found for a, b in edges if b in found)


@pytest.mark.parametrize("fed", [1, 2])
def test_cycle_is_broken_where_the_source_feeds_it(fed: int) -> None:
    levels = cyclic_order(4, [(0, fed), (1, 2), (2, 1), (2, 3), (1, 3)])
    assert levels[:2] == [[0], [fed]]
    assert levels[-1] == [3]


def test_levels_by_hand() -> None:
    """Sources first, sinks last; of a cycle that nothing feeds the vertex with the most outgoing edges goes first."""
    assert cyclic_order(5, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]) == [[0], [1, 2], [3], [4]]
    assert cyclic_order(3, [(0, 1), (1, 2), (2, 0), (1, 0), (2, 2)])[0] == [1]
    assert cyclic_order(3, [(0, 1), (1, 2), (2, 0)]) == [[0], [1], [2]]
    assert cyclic_order(1, [(0, 0)]) == [[0]]


def test_refused() -> None:
    with pytest.raises(InputError, match="edge 0 -> 3: vertices are 0 to 2"):
        cyclic_order(3, [(0, 3)])
