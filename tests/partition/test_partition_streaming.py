"""LDG and Fennel against the published formulas in plain Python."""

from __future__ import annotations

from math import ceil

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.graph import from_edges
from goffish.partition import assign, quality
from tests.partition.partition_graphs import grid, random_graphs, to_networkx


def room(n, parts, imbalance):
    return max(int(imbalance * n / parts), ceil(n / parts), 1)


def reference(graph, parts, score, *, capacity, order, passes):
    """Greedy streaming with score(neighbours there, load); ties: smaller load, then lower number."""
    simple = nx.Graph(to_networkx(graph))
    owner = {}
    for _ in range(passes):
        load = [0] * parts
        for v in order:
            near = [0] * parts
            for u in simple[v]:
                if u != v and u in owner:
                    near[owner[u]] += 1
            open_parts = [p for p in range(parts) if load[p] < capacity]
            owner[v] = min(open_parts, key=lambda p: (-score(near[p], load[p]), load[p], p))
            load[owner[v]] += 1
    return [owner[v] for v in range(graph.num_vertices)]


@given(
    graph=random_graphs(),
    parts=st.integers(1, 9),
    passes=st.integers(1, 3),
    imbalance=st.sampled_from([1.0, 1.3]),
)
def test_ldg_is_the_published_formula(graph, parts, passes, imbalance):
    n = graph.num_vertices
    capacity = room(n, parts, imbalance)
    owner = assign(graph, parts, "ldg", passes=passes, imbalance=imbalance)
    expected = reference(
        graph,
        parts,
        lambda c, load: c * (1 - load / capacity),
        capacity=capacity,
        order=range(n),
        passes=passes,
    )
    assert owner.tolist() == expected


@given(
    graph=random_graphs(),
    parts=st.integers(1, 9),
    passes=st.integers(1, 3),
    gamma=st.sampled_from([1.5, 2.0]),
)
def test_fennel_is_the_published_formula(graph, parts, passes, gamma):
    n = graph.num_vertices
    simple = nx.Graph(to_networkx(graph))
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    m = simple.number_of_edges()
    alpha = m * float(parts) ** (gamma - 1) / float(max(n, 1)) ** gamma
    owner = assign(graph, parts, "fennel", passes=passes, gamma=gamma)
    penalty = alpha * gamma * np.arange(n + 1, dtype=np.float64) ** (gamma - 1)
    capacity = room(n, parts, 1.1)
    expected = reference(
        graph, parts, lambda c, load: c - penalty[load], capacity=capacity, order=range(n), passes=passes
    )
    assert owner.tolist() == expected


@pytest.mark.parametrize("method", ["ldg", "fennel"])
def test_orders_of_arrival(method):
    """Numbering the vertices in their order of arrival and taking them as numbered is the same thing."""
    graph = nx.gnm_random_graph(60, 150, seed=2)
    src, dst = np.array(graph.edges).T
    plain = from_edges(src, dst, labels=np.arange(60))
    orders = {
        "degree": sorted(range(60), key=lambda v: -graph.degree[v]),
        "bfs": [
            v
            for c in sorted(nx.connected_components(graph), key=min)
            for v in [min(c), *(w for _, w in nx.bfs_edges(graph, min(c), sort_neighbors=sorted))]
        ],
    }
    for name, order in orders.items():
        place = np.argsort(order)
        moved = from_edges(place[src], place[dst], labels=np.arange(60))
        assert assign(plain, 4, method, order=name)[order].tolist() == assign(moved, 4, method).tolist()


@pytest.mark.parametrize("method", ["ldg", "fennel"])
@pytest.mark.parametrize("parts", [2, 7, 12])
def test_capacity_and_cut_on_the_grid(method, parts):
    graph = grid(40, 30)
    found = quality(graph, assign(graph, parts, method), parts)
    hashed = quality(graph, assign(graph, parts, "hash"), parts)
    assert found.part_vertices.max() <= room(1200, parts, 1.0 if method == "ldg" else 1.1)
    assert found.edge_cut < 0.6 * hashed.edge_cut


@pytest.mark.parametrize("method", ["ldg", "fennel"])
def test_further_passes_improve_a_shuffled_stream(method):
    graph = grid(40, 30)
    cuts = [quality(graph, assign(graph, 8, method, order="random", passes=p), 8).edge_cut for p in (1, 10)]
    assert cuts[1] < 0.8 * cuts[0]
