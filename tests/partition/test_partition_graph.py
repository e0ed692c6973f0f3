"""`partition_graph`: its limits, and what splitting declares (sizes, determinism, the same answers)."""

from __future__ import annotations

import time
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import InputError
from goffish.partition import assign
from goffish.partition.cut import MOST_PARTS
from tests.partition.partition_graphs import edgeless, grid, random_graphs, to_networkx


def sizes(cut: gf.PartitionedGraph) -> np.ndarray:
    return np.concatenate([np.diff(part.subgraph_offsets) for part in cut.slices()])


def rings(count: int, length: int) -> gf.Graph:
    """Components of one size: each a ring with random chords."""
    v = np.arange(count * length)
    first, chord = v // length * length, np.random.default_rng(1).integers(0, length, v.size)
    return gf.from_edges(np.tile(v, 2), np.concatenate([first + (v + 1) % length, first + chord]))


def star(leaves: int) -> gf.Graph:
    return gf.from_edges(np.zeros(leaves, int), np.arange(1, leaves + 1))


@pytest.mark.parametrize("parts", [10**9, MOST_PARTS + 1])
def test_the_number_of_partitions_is_limited(parts: int) -> None:
    with pytest.raises(InputError, match="at most 65,536 partitions for a graph of 4 vertices"):
        gf.partition(grid(2, 2), parts)


def test_more_partitions_than_vertices_are_fine() -> None:
    assert gf.partition(grid(2, 2), 100).num_partitions == 100


def test_a_partitioned_graph_is_cut_anew() -> None:
    graph = gf.from_edges(["a", "b", "c"], ["b", "c", "d"], [1.0, 2.0, 3.0])
    again = gf.partition(gf.partition(graph, 4, "range"), 2)
    assert again.num_partitions == 2
    assert gf.to_arrow(again.to_graph()).equals(gf.to_arrow(graph))


@pytest.mark.parametrize(
    "options",
    [{"split": "a"}, {"split": 1.5}, {"split": 0}, {"split": True}, {"split": 2, "units": "single"},
     {"split": 2, "units": "vertex"}, {"units": "nonsense"}, {"threads": "2"}, {"method": 5}, {"method": []}],
)  # fmt: skip
def test_options_out_of_range(options: Any) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        gf.partition(grid(3, 3), 2, **options)


def test_assign_takes_graphs_only() -> None:
    for given_graph in (None, nx.path_graph(3), gf.partition(grid(2, 2), 1)):
        with pytest.raises(InputError, match="Graph"):
            assign(given_graph, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph", [grid(40, 30), rings(30, 40), star(1000), edgeless(9)], ids=["grid", "rings", "star", "none"]
)
@pytest.mark.parametrize("split", [1, 7, 100, 10_000])
def test_no_subgraph_is_larger_than_the_split(graph: gf.Graph, split: int) -> None:
    whole, cut = gf.partition(graph, 3), gf.partition(graph, 3, split=split)
    assert sizes(cut).max() <= split * 1.03
    assert np.array_equal(cut.owner(), gf.partition(graph, 3).owner())
    if split >= sizes(whole).max():
        assert sizes(cut).tolist() == sizes(whole).tolist()
    assert cut.fingerprint() == gf.partition(graph, 3, split=split).fingerprint()


def test_few_pieces_more_than_needed() -> None:
    assert sizes(gf.partition(rings(100, 20), 1, split=10)).size <= 1.1 * 200
    assert sizes(gf.partition(grid(100, 100), 1, split=1000)).size <= 1.3 * 10


def test_many_large_subgraphs_are_split_at_once() -> None:
    graph = rings(1000, 20)
    begun = time.perf_counter()
    cut = gf.partition(graph, 2, "range", split=10)
    assert time.perf_counter() - begun < 15  # 84 s with one METIS process for each
    assert sizes(cut).max() <= 10


@settings(max_examples=15, deadline=None)
@given(graph=random_graphs(), parts=st.integers(1, 3), split=st.integers(1, 6))
def test_programs_answer_right_on_split_graphs(graph: gf.Graph, parts: int, split: int) -> None:
    if not graph.num_vertices:
        return
    oracle = to_networkx(graph)
    cut = gf.partition(graph, parts, "hash", split=split)
    assert sizes(cut).max() <= split
    components = nx.connected_components(oracle.to_undirected())
    assert gf.connected_components(cut).to_dict() == {v: max(c) for c in components for v in c}
    lengths = nx.single_source_dijkstra_path_length(oracle, 0)
    assert gf.sssp(cut, 0).to_dict() == {v: lengths.get(v, np.inf) for v in range(graph.num_vertices)}
    simple = nx.Graph(oracle.to_undirected())
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    if not graph.directed:
        assert gf.triangles(cut).to_dict() == nx.triangles(simple)
