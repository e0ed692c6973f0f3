"""Structural invariants of the layout (docs/specs/engine.md, section 6), against networkx."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.components.subgraph import ConnectedComponents
from goffish.algorithms.paths.subgraph import SingleSourceShortestPath
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import run_program
from goffish.graph import from_edges
from tests.cases import Case, cases


def subgraph_of(layout: PartitionedGraph) -> dict[int, int]:
    """Subgraph of each vertex label."""
    found = {}
    for part in layout.slices():
        for s in range(part.num_subgraphs):
            for v in part.vertex_ids[part.subgraph_offsets[s] : part.subgraph_offsets[s + 1]]:
                found[int(v)] = part.subgraph_start + s
    return found


def arcs_of(layout: PartitionedGraph) -> tuple[Counter, Counter]:
    """All arcs by label as the slices tell them: inside subgraphs, and remote."""
    ids = layout.vertex_ids()
    local, remote = Counter(), Counter()
    for part in layout.slices():
        rows = part.out_arcs
        for s in range(part.num_subgraphs):
            low = part.subgraph_offsets[s]
            for v in range(low, part.subgraph_offsets[s + 1]):
                for t in rows.targets[rows.offsets[v] : rows.offsets[v + 1]]:
                    if t >= 0:
                        local[int(part.vertex_ids[v]), int(part.vertex_ids[low + t])] += 1
                    else:
                        row = rows.remote_offsets[s] + ~t
                        remote[int(part.vertex_ids[v]), int(ids[rows.remote_vertex[row]])] += 1
    return local, remote


@given(cases())
def test_subgraphs_are_the_components_of_each_partition(case: Case) -> None:
    layout = case.layout()
    of = subgraph_of(layout)
    assert sorted(of) == list(range(case.graph.num_vertices))
    wanted = set()
    for p in range(case.k):
        inside = case.nx.subgraph(np.flatnonzero(case.owner == p).tolist())
        pieces = nx.weakly_connected_components if case.nx.is_directed() else nx.connected_components
        wanted |= {frozenset(c) for c in pieces(inside)}
    found: dict[int, set[int]] = {}
    for v, s in of.items():
        found.setdefault(s, set()).add(v)
    assert {frozenset(c) for c in found.values()} == wanted
    smallest = [min(found[s]) for s in sorted(found)]
    for p in range(case.k):
        first, last = layout.subgraph_starts[p : p + 2]
        assert smallest[first:last] == sorted(smallest[first:last])


@given(cases())
def test_local_and_remote_arcs_partition_the_edges(case: Case) -> None:
    layout = case.layout()
    of = subgraph_of(layout)
    local, remote = arcs_of(layout)
    both = [(u, v) for u, v in case.nx.edges]
    if not case.nx.is_directed():
        both += [(v, u) for u, v in case.nx.edges]
    assert local + remote == Counter(both)
    assert all(of[u] == of[v] for u, v in local)
    assert all(case.owner[u] != case.owner[v] for u, v in remote)


@given(cases())
def test_remote_tables_resolve_to_the_right_subgraph(case: Case) -> None:
    layout = case.layout()
    of, ids = subgraph_of(layout), layout.vertex_ids()
    for part in layout.slices():
        for arcs in (part.out_arcs, part.in_arcs):
            assert [of[int(ids[v])] for v in arcs.remote_vertex] == arcs.remote_subgraph.tolist()
            for s in range(part.num_subgraphs):
                rows = arcs.remote_vertex[arcs.remote_offsets[s] : arcs.remote_offsets[s + 1]]
                assert (np.diff(rows) > 0).all()


@given(cases())
def test_quotient_graph_equals_that_of_networkx(case: Case) -> None:
    layout = case.layout()
    of = subgraph_of(layout)
    wanted = Counter()
    for u, v in case.nx.edges:
        if of[u] != of[v]:
            wanted[of[u], of[v]] += 1
            wanted[of[v], of[u]] += 1
    found = Counter()
    for part in layout.slices():
        for s in range(part.num_subgraphs):
            for row in range(part.neighbor_offsets[s], part.neighbor_offsets[s + 1]):
                found[part.subgraph_start + s, int(part.neighbor_subgraph[row])] = int(part.neighbor_links[row])
    assert found == wanted
    quotient = nx.Graph(list(wanted))
    quotient.add_nodes_from(range(layout.num_subgraphs))
    undirected = case.nx.to_undirected() if case.nx.is_directed() else case.nx
    assert nx.number_connected_components(quotient) == nx.number_connected_components(undirected)


@given(cases(), st.sampled_from(("components", "single", "vertex")))
def test_putting_the_graph_together_again_gives_the_same_graph(case: Case, finder: str) -> None:
    again = case.layout(finder).to_graph()
    assert np.array_equal(again.offsets, case.graph.offsets)
    assert np.array_equal(again.targets, case.graph.targets)
    assert np.array_equal(again.weights, case.graph.weights)
    assert again.num_edges == case.graph.num_edges


def test_one_partition_of_a_connected_graph_is_one_subgraph_without_messages() -> None:
    graph = from_edges(np.arange(99), np.arange(1, 100))
    layout = build_layout(graph, np.zeros(100, np.int32), 1)
    assert layout.num_subgraphs == 1
    result = run_program(SingleSourceShortestPath(0), layout)
    assert result.stats is not None
    assert (result.stats.supersteps, result.stats.messages) == (1, 0)


@given(cases(families=("grid", "random", "preferential", "tree", "small-world")))
def test_every_vertex_its_own_partition_counts_like_vertex_centric(case: Case) -> None:
    n = case.graph.num_vertices
    alone = build_layout(case.graph, np.arange(n, dtype=np.int32), n)
    vertex = case.layout("vertex")
    for make in (ConnectedComponents, lambda: SingleSourceShortestPath(0)):
        a, b = run_program(make(), alone), run_program(make(), vertex)
        assert a.stats is not None
        assert b.stats is not None
        assert (a.stats.supersteps, a.stats.messages) == (b.stats.supersteps, b.stats.messages)
        # Parents may differ between equally short paths; distances and components may not.
        assert a.table.columns[1].equals(b.table.columns[1])


def test_cells_split_a_partition_into_smaller_subgraphs() -> None:
    graph = from_edges(np.arange(9), np.arange(1, 10))
    cells = (np.arange(10) // 4).astype(np.int32)
    layout = build_layout(graph, np.zeros(10, np.int32), 1, cells=cells)
    assert layout.slice(0).subgraph_offsets.tolist() == [0, 4, 8, 10]
    assert run_program(ConnectedComponents(), layout).to_dict() == dict.fromkeys(range(10), 9)


@pytest.mark.parametrize("k", [1, 3])
def test_empty_graph_and_empty_partitions(k: int) -> None:
    empty = from_edges([], [])
    layout = build_layout(empty, np.empty(0, np.int32), k)
    assert (layout.num_subgraphs, layout.num_vertices) == (0, 0)
    result = run_program(ConnectedComponents(), layout)
    assert result.table.num_rows == 0
    assert layout.to_graph().num_vertices == 0


@pytest.mark.parametrize("owner", [[0, 3], [0], [-1, 0]])
def test_a_wrong_owner_is_refused(owner: list[int]) -> None:
    with pytest.raises(InputError, match="owner"):
        build_layout(from_edges([0], [1]), np.array(owner), 2)


def test_topology_is_read_only() -> None:
    layout = build_layout(from_edges([0], [1]), np.zeros(2, np.int32), 1)
    with pytest.raises(ValueError, match="read-only"):
        layout.slice(0).out_arcs.targets[0] = 5
