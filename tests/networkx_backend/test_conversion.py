"""Conversion to columns and back keeps everything; networkx's cache keeps conversions until the graph changes."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from goffish.errors import InputError
from goffish.networkx_backend import BackendGraph, convert, convert_to_nx
from goffish.networkx_backend.graph import convert_from_nx
from tests.networkx_backend.odd_graphs import THINGS, odd_graphs

EVERYTHING = {"preserve_edge_attrs": True, "preserve_node_attrs": True, "preserve_graph_attrs": True}


@given(odd_graphs())
def test_there_and_back(graph: nx.Graph) -> None:
    graph.graph["name"] = "a graph"
    for i, v in enumerate(graph):
        graph.nodes[v]["rank"] = i
    back = convert_to_nx(convert(graph))
    assert type(back) is type(graph)
    assert nx.utils.graphs_equal(back, graph)
    assert list(back) == list(graph)


@given(odd_graphs(weights=("none", "integers")))
def test_selected_attributes(graph: nx.Graph) -> None:
    for *_, data in graph.edges(data=True):
        data["colour"] = "red"
    found = convert_to_nx(convert_from_nx(graph, edge_attrs={"weight": 1, "length": None}))
    assert sorted(d["weight"] for *_, d in found.edges(data=True)) == sorted(
        d.get("weight", 1) for *_, d in graph.edges(data=True)
    )
    assert all(set(d) == {"weight"} for *_, d in found.edges(data=True))


def test_keys_of_parallel_edges() -> None:
    graph = nx.MultiGraph()
    graph.add_edge("a", "b", key="x", weight=2)
    graph.add_edge("b", "a", key=7)
    graph.add_edge("b", "b", key=("l", 1), colour="red")
    assert nx.utils.graphs_equal(convert_to_nx(convert(graph)), graph)


def test_node_attributes() -> None:
    graph = nx.Graph()
    graph.add_node("a", size=3, colour="red")
    graph.add_node("b")
    found = convert_to_nx(convert_from_nx(graph, node_attrs={"size": 0, "shape": None}))
    assert dict(found.nodes(data=True)) == {"a": {"size": 3}, "b": {"size": 0}}


def test_the_copy_is_independent() -> None:
    graph = nx.Graph([(0, 1, {"weight": 2})])
    converted = convert(graph)
    graph[0][1]["weight"] = 9
    back = convert_to_nx(converted)
    back[0][1]["weight"] = 8
    assert convert_to_nx(converted)[0][1]["weight"] == 2
    assert nx.single_source_dijkstra_path_length(converted, 0) == {0: 0, 1: 2}


def test_results_are_the_users_objects() -> None:
    graph = nx.Graph([(THINGS[0], THINGS[1])])
    [component] = nx.connected_components(graph, backend="goffish")
    assert {id(v) for v in component} == {id(THINGS[0]), id(THINGS[1])}


def test_nodes_that_equal_their_positions() -> None:
    """0.0 and True are 0 and 1 to Python's dictionaries; edges must find them."""
    graph = nx.Graph()
    graph.add_nodes_from([0.0, True, 2])
    graph.add_edge(0, 1)
    found = nx.core_number(graph, backend="goffish")
    assert found == {0: 1, 1: 1, 2: 0}
    assert [type(v) for v in found] == [float, bool, int]


def test_what_dispatch_asks() -> None:
    converted = convert(nx.MultiDiGraph([(0, 1), (0, 1), (1, "x")]))
    assert converted.is_directed()
    assert converted.is_multigraph()
    assert (len(converted), converted.number_of_nodes(), converted.number_of_edges()) == (3, 3, 3)
    assert list(converted) == [0, 1, "x"]
    assert "x" in converted
    assert [] not in converted
    assert repr(converted) == "BackendGraph(MultiDiGraph, 3 nodes, 3 edges)"
    assert convert(converted) is converted


def test_not_a_graph() -> None:
    with pytest.raises(InputError, match="expected a NetworkX graph"):
        convert([(0, 1)])


def conversions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    from goffish.networkx_backend import interface

    seen: list[dict[str, Any]] = []

    def counted(graph: nx.Graph, **options: Any) -> BackendGraph:
        seen.append(options)
        return convert_from_nx(graph, **options)

    monkeypatch.setattr(interface, "convert_from_nx", counted)
    return seen


def test_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = conversions(monkeypatch)
    graph = nx.karate_club_graph()
    nx.pagerank(graph, backend="goffish")
    nx.pagerank(graph, alpha=0.5, backend="goffish")
    nx.core_number(graph, backend="goffish")  # needs less than what is there
    nx.single_source_dijkstra_path_length(graph, 0, backend="goffish")
    assert len(seen) == 1
    nx.pagerank(graph, weight="other", backend="goffish")
    assert [s["edge_attrs"] for s in seen] == [{"weight": 1}, {"other": 1}]


def test_a_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = conversions(monkeypatch)
    graph = nx.Graph([(0, 1), (2, 3)])
    assert nx.number_connected_components(graph, backend="goffish") == 2
    graph.add_edge(1, 2)
    assert nx.number_connected_components(graph, backend="goffish") == 1
    assert len(seen) == 2


def test_functions_without_an_answer_get_a_networkx_graph() -> None:
    converted = convert(nx.karate_club_graph())
    with pytest.raises(NotImplementedError):
        nx.load_centrality(converted)
    nx.config.fallback_to_nx = True
    try:
        assert nx.load_centrality(converted) == nx.load_centrality(nx.karate_club_graph())
    finally:
        nx.config.fallback_to_nx = False


def test_whole_numbers_beyond_int64_are_left_to_networkx() -> None:
    graph = nx.Graph([(0, 1, {"weight": 2**80}), (1, 2, {"weight": 1})])
    with pytest.raises(NotImplementedError):
        nx.single_source_dijkstra_path_length(graph, 0, backend="goffish")
    with nx.config.backend_priority(algos=["goffish"]):
        assert nx.single_source_dijkstra_path_length(graph, 0)[2] == 2**80 + 1


@pytest.mark.parametrize(
    "weight", [None, "3", -1, float("nan"), float("inf"), 2**60, np.float32(0.1), 1j, [1, 2]], ids=repr
)
def test_strange_weights_are_left_to_networkx(weight: Any) -> None:
    graph = nx.path_graph(300)
    nx.set_edge_attributes(graph, 2, "weight")
    graph[0][1]["weight"] = weight

    def lengths(**options: Any) -> Any:
        try:
            return list(nx.single_source_dijkstra_path_length(graph, 299, **options).items())
        except (ValueError, TypeError) as error:
            return type(error)

    expected = lengths(backend="networkx")
    with nx.config.backend_priority(algos=["goffish"]):
        assert str(lengths()) == str(expected)


def test_a_graph_that_makes_its_rows_up() -> None:
    from networkx.algorithms.approximation.kcomponents import _AntiGraph

    anti = _AntiGraph(nx.path_graph(5))
    complement = nx.complement(nx.path_graph(5))
    assert nx.core_number(anti, backend="goffish") == nx.core_number(complement, backend="networkx")
    assert list(nx.connected_components(anti, backend="goffish")) == [set(range(5))]
