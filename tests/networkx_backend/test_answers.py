"""Every routed function says what networkx says: the oracle is networkx's own code on the same graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.networkx_backend import convert, interface
from tests.networkx_backend.odd_graphs import odd_graphs

SIMPLE = (nx.Graph, nx.DiGraph)
WEIGHTED = nx.bipartite.weighted_projected_graph


def told(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The answer with iterators as lists, or the class of networkx's exception."""
    try:
        answer = function(*args, **options)
        return list(answer) if isinstance(answer, Iterator) else answer
    except (nx.NetworkXException, ZeroDivisionError, KeyError) as error:
        return type(error)


def types(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: types(v) for k, v in value.items()}
    return [types(v) for v in value] if isinstance(value, list | tuple) else type(value)


def same(function: Callable[..., Any], graph: nx.Graph, *args: Any, typed: bool = True, **options: Any) -> Any:
    """Compare the answers of networkx, of this backend, and of this backend for a converted graph."""
    expected = told(function, graph, *args, **options, backend="networkx")
    converted = convert(graph)
    for found in (
        told(function, graph, *args, **options, backend="goffish"),
        told(function, converted, *args, **options),
    ):
        assert found == expected
        if typed:
            assert types(found) == types(expected), "numpy scalars or other types than networkx's"
    return expected


@given(odd_graphs())
def test_components(graph: nx.Graph) -> None:
    weak = "weakly_" if graph.is_directed() else ""
    same(getattr(nx, f"{weak}connected_components"), graph)
    same(getattr(nx, f"number_{weak}connected_components"), graph)
    same(getattr(nx, f"is_{weak}connected"), graph)
    same(nx.is_weakly_connected if not weak else nx.is_connected, graph)  # both say NetworkXNotImplemented
    for node in [*graph, "nobody"]:
        same(nx.node_connected_component, graph, node)


@given(odd_graphs(), st.sampled_from([-1, 2, 3, 3.5, 4]))
def test_trusses(graph: nx.Graph, k: float) -> None:
    """Nodes, edges and all attributes of the subgraph."""
    graph.add_nodes_from(list(graph)[:2], color=["red"])
    expected, found = (told(nx.k_truss, graph, k, backend=name) for name in ("networkx", "goffish"))
    if isinstance(expected, type):
        assert found is expected
        return
    assert nx.utils.graphs_equal(found, expected) and list(found) == list(expected)
    assert type(found) is nx.Graph


@given(odd_graphs(), st.sampled_from([None, -1, 0, 1, 1.5, 2, float("inf"), float("nan")]))
def test_lengths_in_edges(graph: nx.Graph, cutoff: float | None) -> None:
    for node in [*list(graph)[:3], "nobody"]:
        lengths = same(nx.single_source_shortest_path_length, graph, node, cutoff=cutoff)
        if isinstance(lengths, dict):
            found = nx.single_source_shortest_path_length(graph, node, cutoff=cutoff, backend="goffish")
            assert list(found.values()) == list(lengths.values()), "the nearest nodes come first"
        same(nx.shortest_path_length, graph, node)
        same(nx.shortest_path_length, graph, target=node)
        for distance in (-1, 0, 1, 2, 1.5):
            same(nx.descendants_at_distance, graph, node, distance)
    same(nx.all_pairs_shortest_path_length, graph, cutoff=cutoff)
    same(nx.shortest_path_length, graph)


@given(odd_graphs(), st.data())
def test_pairs(graph: nx.Graph, data: st.DataObject) -> None:
    ends = st.sampled_from([*graph, "nobody"])
    source, target = data.draw(ends), data.draw(ends)
    same(nx.has_path, graph, source, target)
    same(nx.shortest_path_length, graph, source, target)
    same(nx.shortest_path_length, graph, source, target, weight="weight", typed=False)


@given(odd_graphs(), st.data())
def test_paths_between_nodes(graph: nx.Graph, data: st.DataObject) -> None:
    """Of several shortest paths, networkx's or another one."""
    ends = st.sampled_from([*graph, "nobody"])
    source, target = data.draw(ends), data.draw(ends)
    for weight in ("weight", "nothing", None):
        for function in (nx.shortest_path, nx.dijkstra_path, nx.bidirectional_dijkstra, nx.astar_path):
            expected = told(function, graph, source, target, weight=weight, backend="networkx")
            found = told(function, graph, source, target, weight=weight, backend="goffish")
            if isinstance(expected, type):
                assert found is expected
                continue
            path = found
            if function is nx.bidirectional_dijkstra:
                assert (found[0], type(found)) == (pytest.approx(expected[0], rel=1e-12), tuple)
                expected, path = expected[1], found[1]
            assert (path[0], path[-1]) == (source, target)
            lengths = [length_of(graph, nodes, weight) for nodes in (expected, path)]
            assert lengths[1] == pytest.approx(lengths[0], rel=1e-12)
        same(nx.dijkstra_path_length, graph, source, target, weight=weight, typed=False)
        expected, found = (
            told(nx.astar_path_length, graph, source, target, weight=weight, backend=name)
            for name in ("networkx", "goffish")
        )
        assert found is expected if isinstance(expected, type) else found == pytest.approx(expected, rel=1e-12)
    expected = told(nx.bidirectional_shortest_path, graph, source, target, backend="networkx")
    found = told(nx.bidirectional_shortest_path, graph, source, target, backend="goffish")
    assert found is expected if isinstance(expected, type) else len(found) == len(expected)


@given(odd_graphs(), st.data())
def test_paths_by_length(graph: nx.Graph, data: st.DataObject) -> None:
    """The first paths are as long as those of networkx, each is one, and none is there twice."""
    ends = st.sampled_from([*graph, "nobody"])
    source, target = data.draw(ends), data.draw(ends)
    for weight in ("weight", "nothing", None):
        expected, found = (
            told(lambda b=name, w=weight: [*islice(nx.shortest_simple_paths(graph, source, target, w, backend=b), 40)])
            for name in ("networkx", "goffish")
        )
        if isinstance(expected, type):
            assert found is expected
            continue
        assert len({tuple(map(id, path)) for path in found}) == len(found)
        assert all(nx.is_simple_path(graph, path) and (path[0], path[-1]) == (source, target) for path in found)
        lengths = [[length_of(graph, path, weight) for path in paths] for paths in (expected, found)]
        assert lengths[1] == pytest.approx(lengths[0], rel=1e-12)


@given(odd_graphs(), st.data())
def test_products_of_degrees(graph: nx.Graph, data: st.DataObject) -> None:
    ends = st.sampled_from([*graph, "nobody"] if data.draw(st.booleans()) or not graph else [*graph])
    same(nx.preferential_attachment, graph, data.draw(st.lists(st.tuples(ends, ends), max_size=6)))


def length_of(graph: nx.Graph, path: list[Any], weight: str | None) -> float:
    def shortest(data: Any) -> Any:
        return min(one.get(weight, 1) for one in (data.values() if graph.is_multigraph() else [data]))

    return float(sum(1 if weight is None else shortest(graph[u][v]) for u, v in pairwise(path)))


@given(odd_graphs())
def test_eccentricities(graph: nx.Graph) -> None:
    parts = nx.strongly_connected_components if graph.is_directed() else nx.connected_components
    for part in (graph, *map(graph.subgraph, list(parts(graph))[:3])):
        expected = told(nx.eccentricity, part, backend="networkx")
        assert told(nx.eccentricity, part, backend="goffish") == expected
        if isinstance(expected, dict) and expected:
            assert same(nx.diameter, part) == max(expected.values())
            same(nx.radius, part)
            for function in (nx.center, nx.periphery):
                found, theirs = (function(part, backend=name) for name in ("goffish", "networkx"))
                assert (len(found), set(found)) == (len(theirs), set(theirs))


@given(odd_graphs())
def test_graphs_without_cycles(graph: nx.Graph) -> None:
    same(nx.is_directed_acyclic_graph, graph)
    place = {v: i for i, v in enumerate(graph)}
    back = [edge for edge in graph.edges if place[edge[0]] >= place[edge[1]]]
    forward = graph.copy()
    forward.remove_edges_from(back if graph.is_directed() else [])
    same(nx.is_directed_acyclic_graph, forward)
    for one in (graph, forward):
        for weight in ("weight", "nothing"):
            same(nx.dag_longest_path_length, one, weight, typed=False)
            expected = told(nx.dag_longest_path, one, weight, backend="networkx")
            found = told(nx.dag_longest_path, one, weight, backend="goffish")
            assert found is expected if isinstance(expected, type) else type(found) is list


@given(odd_graphs(), st.sampled_from([None, -1, 0, 3, 4.5]))
def test_weighted_lengths(graph: nx.Graph, cutoff: float | None) -> None:
    # Where only some edges have a weight, whole lengths may be floats here.
    kinds = {type(w) for _, _, w in graph.edges(data="weight", default=1)}
    typed = len(kinds) <= 1
    for node in [*list(graph)[:3], "nobody"]:
        for weight in ("weight", "nothing", None):
            same(nx.single_source_dijkstra_path_length, graph, node, cutoff, weight, typed=typed)
        same(nx.shortest_path_length, graph, node, weight="weight", typed=typed)
        same(nx.shortest_path_length, graph, target=node, weight="weight", typed=typed)
    same(nx.all_pairs_dijkstra_path_length, graph, cutoff, typed=typed)
    same(nx.shortest_path_length, graph, weight="weight", typed=typed)


@given(odd_graphs(kinds=(nx.Graph,)), st.data())
def test_triangles_and_clustering(graph: nx.Graph, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from([*graph, "nobody"]), max_size=5))
    for nodes in (None, *list(graph)[:4], some, set(some)):
        same(nx.triangles, graph, nodes)
        same(nx.clustering, graph, nodes)
    for count_zeros in (True, False):
        same(nx.average_clustering, graph, count_zeros=count_zeros, typed=False)
        same(nx.average_clustering, graph, nodes=some, count_zeros=count_zeros, typed=False)
    same(nx.transitivity, graph)


@given(odd_graphs(kinds=(nx.Graph,)))
def test_cores(graph: nx.Graph) -> None:
    found = same(nx.core_number, graph)
    if isinstance(found, dict):
        assert list(nx.core_number(graph, backend="goffish")) == list(graph)


@given(
    odd_graphs(),
    st.sampled_from([0.0, 0.3, 0.85, 0.99]),
    st.sampled_from([1e-3, 1e-6, 1e-10]),
    st.sampled_from([0, 1, 5, 20, 100, 5000]),
    st.sampled_from(["weight", None]),
    st.data(),
)
def test_pagerank(
    graph: nx.Graph, alpha: float, tol: float, max_iter: int, weight: str | None, data: st.DataObject
) -> None:
    n = len(graph)
    personalization = None
    if data.draw(st.booleans()):
        nodes = st.sampled_from([*graph, "nobody"])
        personalization = data.draw(st.dictionaries(nodes, st.sampled_from([0, 1, 0.5, 3]), max_size=4))
    options = {"alpha": alpha, "personalization": personalization, "max_iter": max_iter, "weight": weight}
    expected = told(nx.pagerank, graph, tol=tol, **options, backend="networkx")
    found = told(nx.pagerank, graph, tol=tol, **options, backend="goffish")
    if expected is nx.PowerIterationFailedConvergence and isinstance(found, dict):
        # Fewer passes were enough here.
        expected = nx.pagerank(graph, tol=1e-13, **{**options, "max_iter": 20_000}, backend="networkx")
    if not isinstance(expected, dict):
        assert found is expected
        return
    assert list(found) == list(graph)
    assert all(type(rank) is float for rank in found.values())
    off = sum(abs(found[v] - expected[v]) for v in graph)
    assert off <= 2 * max(min(n * tol, 1e-6), n * tol * alpha / (1 - alpha)) + 1e-12


@given(odd_graphs(weights=("none", "floats", "positive", "integers")), st.sampled_from([1, 0.5, 2]), st.data())
def test_modularity(graph: nx.Graph, resolution: float, data: st.DataObject) -> None:
    numbers = [data.draw(st.integers(0, 3)) for _ in graph]
    parts = [{v for v, c in zip(graph, numbers, strict=True) if c == number} for number in range(4)]
    if data.draw(st.integers(0, 4)) == 0:
        parts.append(data.draw(st.sampled_from([{"nobody"}, set(graph), []])))
    for weight in ("weight", None):
        expected = told(nx.community.modularity, graph, parts, weight=weight, resolution=resolution, backend="networkx")
        for communities in (parts, iter(parts), [list(p) for p in parts]):
            found = told(nx.community.modularity, graph, communities, weight, resolution, backend="goffish")
            if isinstance(expected, type):
                assert found is expected
            else:
                assert type(found) is float
                assert found == pytest.approx(expected, abs=1e-12)


def test_negative_weights_have_a_modularity() -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, 2.0), (1, 2, -0.5), (2, 3, 1.0)])
    parts = [{0, 1}, {2, 3}]
    expected = nx.community.modularity(graph, parts, backend="networkx")
    assert nx.community.modularity(graph, parts, backend="goffish") == pytest.approx(expected, abs=1e-12)


def test_a_large_graph() -> None:
    """Sizes at which threads, samples and buckets come into play."""
    graph = nx.relabel_nodes(nx.barabasi_albert_graph(3000, 4, seed=3), lambda v: f"v{v * 7919 % 3000}")
    graph.add_edges_from((f"w{i}", f"w{i + 1}") for i in range(50))
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v]["weight"] = i * 31 % 17
    same(nx.connected_components, graph)
    same(nx.triangles, graph)
    same(nx.clustering, graph)
    same(nx.core_number, graph)
    same(nx.single_source_dijkstra_path_length, graph, "v5")
    same(nx.single_source_shortest_path_length, graph, "v5")
    expected = nx.pagerank(graph, tol=1e-12, backend="networkx")
    found = nx.pagerank(graph, backend="goffish")
    assert sum(abs(found[v] - expected[v]) for v in graph) < 2e-6, "n * tol would allow 3e-3"


@given(odd_graphs(), st.data())
def test_views(graph: nx.Graph, data: st.DataObject) -> None:
    """A multigraph's view counts neighbours that it hides."""
    edges = list(graph.edges(keys=True) if graph.is_multigraph() else graph.edges)
    nodes = data.draw(st.lists(st.sampled_from([*graph]), unique=True)) if graph else []
    some = data.draw(st.lists(st.sampled_from(edges), unique=True)) if edges else []
    for view in (
        graph.subgraph(nodes),
        graph.edge_subgraph(some),
        graph.reverse(copy=False) if graph.is_directed() else graph,
    ):
        weak = "weakly_" if graph.is_directed() else ""
        same(getattr(nx, f"{weak}connected_components"), view)
        same(nx.all_pairs_dijkstra_path_length, view, typed=False)
        assert convert(view).number_of_edges() == view.number_of_edges()


@given(odd_graphs(kinds=SIMPLE, weights=("none", "positive")), st.sampled_from([None, "weight"]))
def test_eigenvectors_and_walks(graph: nx.Graph, weight: str | None) -> None:
    """Dense eigenvectors are the oracle: networkx may stop early, or begin at random."""
    if not graph:
        same(nx.eigenvector_centrality, graph)
        same(nx.katz_centrality, graph)
        return
    matrix = nx.to_numpy_array(graph, weight=weight).T
    katz = nx.katz_centrality(graph, 0.01, 2.0, normalized=False, weight=weight, backend="goffish")
    exact = np.linalg.solve(np.eye(len(graph)) - 0.01 * matrix, np.full(len(graph), 2.0))
    assert list(katz) == list(graph) and list(katz.values()) == pytest.approx(exact.tolist(), rel=2e-9)
    unit = nx.katz_centrality(graph, 0.01, weight=weight, backend="goffish")
    assert list(unit.values()) == pytest.approx((exact / np.linalg.norm(exact)).tolist())
    if graph.number_of_edges() and not graph.is_directed():
        found = nx.eigenvector_centrality(graph, 1000, weight=weight, backend="goffish")
        x = np.array([found[v] for v in graph])
        largest = float(np.linalg.eigvalsh(matrix)[-1])
        assert np.linalg.norm(matrix @ x - largest * x) < 1e-8 * largest and x.min() >= 0
    if graph.number_of_edges() and len(graph) > 1:
        hubs, authorities = nx.hits(graph, 1000, backend="goffish")
        h, a = (np.array([values[v] for v in graph]) for values in (hubs, authorities))
        weights = nx.to_numpy_array(graph)
        square = weights.T @ weights
        assert h.sum() == pytest.approx(1) and a.sum() == pytest.approx(1)
        assert square @ a == pytest.approx(np.linalg.eigvalsh(square)[-1] * a, abs=1e-6)
        assert h == pytest.approx(weights @ a / (weights @ a).sum())


def test_iterations_that_do_not_converge() -> None:
    graph = nx.karate_club_graph()
    for function in (nx.eigenvector_centrality, nx.katz_centrality):
        with pytest.raises(nx.PowerIterationFailedConvergence):
            function(graph, max_iter=1, backend="goffish")
    with pytest.raises(nx.PowerIterationFailedConvergence):
        nx.katz_centrality(graph, 0.2, backend="goffish")


@given(odd_graphs(kinds=(nx.Graph,), loops=False), st.data())
def test_similarities(graph: nx.Graph, data: st.DataObject) -> None:
    ends = st.sampled_from([*graph, "nobody"] if data.draw(st.booleans()) or not graph else [*graph])
    pairs = data.draw(st.lists(st.tuples(ends, ends), max_size=6))
    for function in (nx.jaccard_coefficient, nx.adamic_adar_index, nx.resource_allocation_index):
        expected, found = (told(function, graph, pairs, backend=name) for name in ("networkx", "goffish"))
        if isinstance(expected, type):
            assert found is expected
            continue
        assert [pair[:2] for pair in found] == [pair[:2] for pair in expected]
        assert [pair[2] for pair in found] == pytest.approx([pair[2] for pair in expected])


@given(odd_graphs(), st.booleans(), st.booleans(), st.sampled_from(["weight", "nothing", None]))
def test_spanning_forests(graph: nx.Graph, keys: bool, data: bool, weight: str | None) -> None:
    """Edges, their order, and what they hold: of equal weights the first edges count."""
    same(nx.minimum_spanning_edges, graph, keys=keys, data=data, weight=weight)


@given(odd_graphs())
def test_biconnected_components(graph: nx.Graph) -> None:
    """The same sets, in another order."""
    for function in (nx.biconnected_components, nx.articulation_points, nx.bridges):
        expected, found = (told(function, graph, backend=backend) for backend in ("networkx", "goffish"))
        if isinstance(expected, list):
            expected, found = (
                sorted(map(repr, answer), key=str)
                if function is not nx.biconnected_components
                else sorted(sorted(map(repr, part)) for part in answer)
                for answer in (expected, found)
            )
        assert found == expected
    same(nx.is_biconnected, graph)
    same(nx.has_bridges, graph)


@given(odd_graphs(), st.data())
def test_choices_and_labels(graph: nx.Graph, data: st.DataObject) -> None:
    same(nx.maximal_matching, graph)
    if not graph.is_directed():
        colors = same(nx.greedy_color, graph)
        assert list(nx.greedy_color(graph, backend="goffish")) == list(colors)
    expected, found = (
        told(nx.community.label_propagation_communities, graph, backend=backend) for backend in ("networkx", "goffish")
    )
    if isinstance(expected, type):
        assert found is expected
        return
    assert list(found) == list(expected)
    if not len(graph):
        return
    # Without nodes, networkx refuses a first one that has a loop.
    nodes = data.draw(st.lists(st.sampled_from([*graph, "nobody"]), max_size=2)) or list(graph)[:1]
    expected, found = (
        told(nx.maximal_independent_set, graph, nodes, seed=1, backend=backend) for backend in ("networkx", "goffish")
    )
    if isinstance(expected, type):
        assert found is expected
        return
    assert set(nodes) <= set(found) and len(set(found)) == len(found)
    neighbors = {u for v in found for u in graph[v] if u != v}
    assert neighbors.isdisjoint(found) and neighbors | set(found) == set(graph)
    assert found == nx.maximal_independent_set(graph, nodes, seed=1, backend="goffish")


@given(odd_graphs(weights=("integers", "floats")), st.data())
def test_flows(graph: nx.Graph, data: st.DataObject) -> None:
    """Values and cuts of networkx; the flow may be another one of the same value."""
    ends = st.sampled_from([*graph, "nobody"])
    source, target = data.draw(ends), data.draw(ends)
    for *_, attributes in graph.edges(data=True):
        attributes.setdefault("weight", 3)
    for function in (nx.maximum_flow_value, nx.minimum_cut_value, nx.minimum_cut, nx.maximum_flow):
        expected, found, again = (
            told(function, asked, source, target, capacity="weight", **options)
            for asked, options in (
                (graph, {"backend": "networkx"}),
                (graph, {"backend": "goffish"}),
                (convert(graph), {}),
            )
        )
        assert found == again
        if isinstance(expected, type):
            assert found is expected
            continue
        wanted, value = (answer[0] if isinstance(answer, tuple) else answer for answer in (expected, found))
        assert value == pytest.approx(wanted, abs=1e-9)
        whole = all(type(w) is int for *_, w in graph.edges(data="weight"))
        assert type(value) is (int if whole else float) or not value
        if function is nx.minimum_cut and whole:
            assert found == expected
        if function is nx.maximum_flow:
            flow = found[1]
            assert {u: set(row) for u, row in flow.items()} == {u: set(graph[u]) for u in graph}
            for u in graph:
                assert all(0 <= amount <= graph[u][v]["weight"] for v, amount in flow[u].items())
                balance = sum(flow[u].values()) - sum(row.get(u, 0) for row in flow.values())
                sign = (u == source) - (u == target)
                assert balance == pytest.approx(sign * value, abs=1e-9)


def test_flows_that_are_left_to_networkx() -> None:
    """Edges without capacity have an infinite one."""
    graph = nx.DiGraph([(0, 1, {"capacity": 2}), (1, 2)])
    for asked, options in ((graph, {"backend": "goffish"}), (convert(graph), {})):
        with pytest.raises(NotImplementedError):
            nx.maximum_flow_value(asked, 0, 2, **options)
    with nx.config(backend_priority=["goffish"]):
        assert nx.maximum_flow_value(flowG=graph, _s=0, _t=2) == 2
    graph[1][2]["capacity"] = 1
    with pytest.raises(NotImplementedError):
        nx.minimum_cut(graph, 0, 2, flow_func=nx.algorithms.flow.edmonds_karp, backend="goffish")
    big = nx.DiGraph([(0, i, {"capacity": 2**52 + 1}) for i in (1, 2)])
    big.add_edges_from((i, 3, {"capacity": 2**52 + 1}) for i in (1, 2))
    with pytest.raises(NotImplementedError):
        nx.maximum_flow_value(big, 0, 3, backend="goffish")


@given(odd_graphs())
def test_bipartite_graphs(graph: nx.Graph) -> None:
    for function in (nx.bipartite.color, nx.is_bipartite, nx.bipartite.sets):
        same(function, graph)
    same(nx.bipartite.sets, graph, list(graph)[:2])


@given(odd_graphs(kinds=(nx.Graph,), loops=False), st.booleans(), st.randoms(use_true_random=False))
def test_projections(graph: nx.Graph, ratio: bool, random: Any) -> None:
    """Of the bipartite graph of nodes and edges, and of graphs that are left to networkx."""
    split = nx.Graph((node, ("edge", i)) for i, edge in enumerate(graph.edges) for node in edge)
    split.add_nodes_from(graph, weight=3)
    split.graph["name"] = "split"
    nodes = random.sample(list(graph), len(graph))
    for asked, chosen in ((split, nodes), (graph, nodes[:3])):
        for function, options in ((nx.bipartite.projected_graph, {}), (WEIGHTED, {"ratio": ratio})):
            expected = told(function, asked, chosen, **options, backend="networkx")
            with nx.config.backend_priority(algos=["goffish"]), pytest.MonkeyPatch.context() as patch:
                patch.setattr(interface, "should_run", lambda *_: True)
                answers = [told(function, asked, chosen, **options)]
            if asked is split and graph.edges:
                answers.append(told(function, convert(asked), chosen, **options))
            for found in answers:
                if isinstance(expected, type):
                    assert found is expected
                    continue
                assert list(found) == list(expected) and found.nodes == expected.nodes
                assert (found.adj, found.graph) == (expected.adj, expected.graph)
    for function in (nx.bipartite.projected_graph, WEIGHTED):
        with pytest.raises(NotImplementedError):
            function(nx.complete_graph(3), [0], backend="goffish")
        with pytest.raises(NotImplementedError):
            function(nx.DiGraph([(0, 1)]), [0], backend="goffish")
    plain = nx.Graph(split.edges)
    if plain:
        found = WEIGHTED(plain, [node for node in nodes if node in plain], backend="goffish")
        assert {type(w) for *_, w in found.edges(data="weight")} <= {int}
