"""`local_components` against networkx: wrong here means wrong subgraphs everywhere in the engine."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from goffish.graph import Graph
from goffish.kernels.subgraphs import local_components
from tests.partition.partition_graphs import edgeless, grid, random_graphs, to_networkx


def reference(graph: Graph, cell: np.ndarray) -> list[set[int]]:
    local = nx.Graph(to_networkx(graph).to_undirected(as_view=False))
    local.remove_edges_from([(u, v) for u, v in local.edges if cell[u] != cell[v]])
    return sorted(nx.connected_components(local), key=min)


@given(graph=random_graphs(), parts=st.integers(1, 6), seed=st.integers(0, 1000))
def test_components_are_those_of_the_local_edges_in_order_of_their_smallest_vertex(graph, parts, seed):
    cell = np.random.default_rng(seed).integers(0, parts, graph.num_vertices)
    expected = reference(graph, cell)
    for symmetric in {False, not graph.directed}:
        component, count = local_components(graph.offsets, graph.targets, cell, symmetric=symmetric)
        assert count == len(expected)
        assert [set(np.flatnonzero(component == c).tolist()) for c in range(count)] == expected


def test_no_vertices_and_no_edges():
    for n in (0, 1, 5):
        component, count = local_components(edgeless(n).offsets, edgeless(n).targets, np.zeros(n, np.int32))
        assert count == n
        assert component.tolist() == list(range(n))


def test_blocks_of_the_grid_fixture():
    v = np.arange(1200)
    block = (v // 40) // 10 * 4 + (v % 40) // 10  # 3 x 4 equal blocks: 12 subgraphs (docs/specs/engine.md, section 6)
    assert local_components(grid(40, 30).offsets, grid(40, 30).targets, block)[1] == 12
