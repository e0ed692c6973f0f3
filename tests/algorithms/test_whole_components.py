"""Whole-graph components against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.components import in_memory as whole
from goffish.algorithms.components.in_memory import component_of, connected_components
from goffish.graph import Graph, from_edges

EDGES = st.integers(0, 14).flatmap(
    lambda n: st.tuples(st.just(n + 1), st.lists(st.tuples(st.integers(0, n), st.integers(0, n)), max_size=25))
)


def build(n: int, edges: list[tuple[int, int]], directed: bool, **options: object) -> Graph:
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return from_edges(
        ends[:, 0], ends[:, 1], labels=np.arange(n), directed=directed, self_loops="keep", parallel="keep", **options
    )  # fmt: skip


def expected(n: int, edges: list[tuple[int, int]]) -> list[int]:
    reference = nx.Graph(edges)
    reference.add_nodes_from(range(n))
    out = [0] * n
    for members in nx.connected_components(reference):
        for v in members:
            out[v] = max(members)
    return out


@given(EDGES, st.booleans())
def test_one_pass_equals_networkx(case, directed):
    """A wrong label here means that an edge was not joined, or that directions were obeyed."""
    n, edges = case
    result = connected_components(build(n, edges, directed))
    assert result.table.column("vertex").to_pylist() == list(range(n))
    assert result.table.column("component").to_pylist() == expected(n, edges)


@given(EDGES)
def test_sampling_equals_networkx(case):
    """Small graphs are too sparse to be sampled by themselves; skipping the giant must not lose an edge."""
    n, edges = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "_SAMPLED_DEGREE", 0)
        patch.setattr(whole, "_SAMPLES", 3)
        assert component_of(build(n, edges, False)).tolist() == expected(n, edges)


@pytest.mark.parametrize("directed", [False, True])
def test_large_random_graph_equals_networkx(directed):
    """Many components beside a giant: fails when sampling mistakes the giant or flattening is incomplete."""
    rng = np.random.default_rng(1)
    for m in (900, 2000, 9000):
        edges = rng.integers(0, 2000, (m, 2)).tolist()
        assert component_of(build(2000, edges, directed)).tolist() == expected(2000, edges)


@pytest.mark.slow
def test_sixty_four_bit_targets_give_the_same_answer():
    graph = build(50, np.random.default_rng(2).integers(0, 50, (200, 2)).tolist(), False)
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), False, graph.num_edges)
    assert component_of(wide).dtype == np.int64
    assert component_of(wide).tolist() == component_of(graph).tolist()


def test_labels_come_back_and_the_summary_counts():
    graph = from_edges(["b", "d", "e"], ["a", "c", "d"], isolated=["z"])
    result = connected_components(graph)
    assert result.to_dict() == {"a": "b", "b": "b", "c": "e", "d": "e", "e": "e", "z": "z"}
    assert result.summary == {"components": 3, "largest": 3, "isolated": 1}
    assert connected_components(from_edges([10, 30], [20, 40])).to_dict() == {10: 20, 20: 20, 30: 40, 40: 40}


@pytest.mark.parametrize("directed", [False, True])
def test_graphs_without_edges(directed):
    none = connected_components(build(0, [], directed))
    assert none.table.num_rows == 0
    assert none.summary == {"components": 0, "largest": 0, "isolated": 0}
    assert connected_components(build(1, [], directed)).to_dict() == {0: 0}
