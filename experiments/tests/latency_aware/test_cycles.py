"""Cycles: their order against networkx and by hand (unit check 7), and problems that hold them."""

from __future__ import annotations

import random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.latency_aware.cycles import CyclicProblem, cyclic_order, first_component
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.hybrid import hill_climbing
from goffish.scheduling.policies.latency_aware.score import PlacementProblem, evaluate
from tests.scheduling.policies.latency_aware.cases import placements, problems, slow_score
from tests.scheduling.policies.latency_aware.test_hill_climbing import plain


def random_graph(seed: int, acyclic: bool) -> tuple[int, list[tuple[int, int]]]:
    """Vertices and edges; self-loops among them unless `acyclic`."""
    draw = random.Random(seed)
    size, density = draw.randint(1, 12), draw.choice([0.1, 0.2, 0.4])
    names = draw.sample(range(size), size)
    pairs = [(names[a], names[b]) for a in range(size) for b in range(size) if a < b or not acyclic]
    return size, [pair for pair in pairs if draw.random() < density]


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


@pytest.mark.slow
def test_order_of_three_thousand_graphs() -> None:
    """Every vertex exactly once, and no edge backwards in any of 1500 graphs without cycles.

    See docs/specs/latency-aware.md, section 3.6.
    """
    for seed in range(3000):
        count, edges = random_graph(seed, seed % 2 == 0)
        order = [v for level in cyclic_order(count, edges) for v in level]
        assert sorted(order) == list(range(count))
        if seed % 2 == 0:
            rank = {v: at for at, v in enumerate(order)}
            assert all(rank[a] < rank[b] for a, b in edges)


@given(problems())
def test_order_without_cycles_is_that_of_the_product(problem: PlacementProblem) -> None:
    levels = cyclic_order(problem.operators, [(a, b) for a, b in problem.edges.tolist()])
    assert problem.order.tolist() == [v for level in levels for v in level]


@given(problems(cyclic=CyclicProblem), st.data())
def test_scores_against_definitions(problem: PlacementProblem, data: st.DataObject) -> None:
    """§2.7: edges that point backwards in the order do not count for latency, but as all others for the rest."""
    place = data.draw(placements(problem))
    found = evaluate(problem, place)
    value, violations, overload = slow_score(problem, place)
    assert found.value == pytest.approx(value, abs=1e-12)
    assert (found.violations, found.overload) == (violations, pytest.approx(overload, abs=1e-12))


@given(problems(cyclic=CyclicProblem), st.data())
def test_climbs_as_the_plain_one(problem: PlacementProblem, data: st.DataObject) -> None:
    start = data.draw(placements(problem))
    found = hill_climbing(problem, start)
    assert (found.placement.tolist(), list(found.tried)) == plain(problem, start, False)
