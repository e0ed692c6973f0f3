"""What is answered here, what is left to networkx, and what networkx is told about it."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from networkx.utils.backends import _registered_algorithms

from goffish.networkx_backend import convert, interface
from goffish.networkx_backend.info import FUNCTIONS, get_info

KARATE = nx.karate_club_graph()
DIRECTED = nx.gnm_random_graph(20, 60, seed=1, directed=True)
MULTI = nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 0)])
LOUVAIN = nx.community.louvain_communities


def by_length(u: object, v: object, data: dict[str, Any]) -> int:
    return 2


DECLINED: list[tuple[Callable[..., Any], nx.Graph, dict[str, Any]]] = [
    (nx.pagerank, KARATE, {"nstart": dict.fromkeys(KARATE, 1)}),
    (nx.pagerank, DIRECTED, {"dangling": {0: 1}}),
    (nx.pagerank, KARATE, {"personalization": {0: 3, 1: -1}}),
    (nx.pagerank, MULTI, {"alpha": -0.5}),
    (nx.eigenvector_centrality, KARATE, {"nstart": dict.fromkeys(KARATE, 1)}),
    (nx.eigenvector_centrality, KARATE, {"weight": by_length, "max_iter": 1000}),
    (nx.katz_centrality, KARATE, {"beta": dict.fromkeys(KARATE, 1)}),
    (nx.katz_centrality, DIRECTED, {"alpha": -0.01}),
    (nx.jaccard_coefficient, KARATE, {}),
    (nx.preferential_attachment, KARATE, {}),
    (nx.astar_path, KARATE, {"source": 0, "target": 33, "heuristic": lambda u, v: 0}),
    (nx.astar_path_length, KARATE, {"source": 0, "target": 33, "cutoff": 9}),
    (nx.bipartite.sets, nx.path_graph(3), {"top_nodes": {0: 1, 2: 1}.keys()}),
    (nx.triangles, MULTI, {}),
    (nx.triangles, KARATE, {"nodes": iter([0, 1])}),
    (nx.clustering, DIRECTED, {}),
    (nx.clustering, KARATE, {"weight": "weight"}),
    (nx.average_clustering, DIRECTED, {}),
    (nx.transitivity, DIRECTED, {}),
    (nx.core_number, DIRECTED, {}),
    (nx.single_source_dijkstra_path_length, KARATE, {"source": 0, "weight": by_length}),
    (nx.shortest_path_length, KARATE, {"source": 0, "weight": "weight", "method": "bellman-ford"}),
    (nx.all_pairs_dijkstra_path_length, KARATE, {"weight": by_length}),
    (nx.betweenness_centrality, KARATE, {"weight": by_length}),
    (nx.edge_betweenness_centrality, KARATE, {"weight": by_length}),
    (nx.betweenness_centrality_subset, KARATE, {"sources": [0, 0], "targets": [33]}),
    (nx.betweenness_centrality_subset, KARATE, {"sources": range(3), "targets": {}.keys()}),
    (nx.edge_betweenness_centrality_subset, KARATE, {"sources": [0], "targets": [33]}),
    (nx.closeness_centrality, KARATE, {"distance": by_length}),
    (nx.harmonic_centrality, KARATE, {"distance": by_length}),
    (nx.harmonic_centrality, KARATE, {"nbunch": {1: 2}.keys()}),
    (LOUVAIN, KARATE, {"resolution": -1, "seed": 1}),
    (LOUVAIN, KARATE, {"threshold": float("inf"), "seed": 1}),
    (nx.community.louvain_partitions, KARATE, {"resolution": -1, "seed": 1}),
]


def listed(answer: Any) -> Any:
    return list(answer) if hasattr(answer, "__next__") else answer


@pytest.mark.parametrize(
    ("function", "graph", "options"),
    DECLINED,
    ids=lambda x: getattr(x, "__name__", None) or str(x)[:40].split(" at 0x")[0],
)
def test_declined(function: Callable[..., Any], graph: nx.Graph, options: dict[str, Any]) -> None:
    assert isinstance(interface.can_run(function.__name__, (graph,), options), str), "a reason is a text"
    with pytest.raises(NotImplementedError, match="not implemented by 'goffish' backend for the given arguments"):
        function(graph, **options, backend="goffish")
    with nx.config.backend_priority(algos=["goffish"]):
        found = listed(function(graph, **options))
    if "nodes" in options:
        options = {"nodes": [0, 1]}  # an iterator is used up by now
    assert found == listed(function(graph, **options, backend="networkx"))


@pytest.mark.parametrize("weight", [-1, "heavy", None])
def test_declined_by_what_the_edges_hold(weight: Any) -> None:
    graph = nx.Graph([(0, 1, {"weight": weight})])
    for function in (nx.pagerank, LOUVAIN):
        with pytest.raises(NotImplementedError):
            function(graph, backend="goffish")


def test_declined_by_self_loops() -> None:
    graph = nx.Graph([(0, 0), (0, 1), (2, 1)])
    with pytest.raises(NotImplementedError):
        nx.adamic_adar_index(graph, [(0, 2)], backend="goffish")


@pytest.mark.parametrize("weight", [1e308, 10**400], ids=["sum", "number"])
def test_declined_by_what_a_personalization_adds_up_to(weight: float) -> None:
    with pytest.raises(NotImplementedError):
        nx.pagerank(KARATE, personalization={0: weight, 1: weight}, backend="goffish")


def test_networkx_knows_the_functions() -> None:
    info = get_info()
    assert set(info["functions"]) == set(FUNCTIONS)
    for name in FUNCTIONS:
        ours = inspect.signature(getattr(interface, name))
        theirs = inspect.signature(_registered_algorithms[name].orig_func)
        assert [(p.name, p.default) for p in ours.parameters.values()] == [
            (p.name, p.default) for p in theirs.parameters.values()
        ], name
        assert "goffish" in _registered_algorithms[name].backends
    routed = {name for name in interface.__all__ if name in _registered_algorithms}
    assert routed == set(FUNCTIONS), "a function is routed but not told, or told but not routed"
    assert "goffish : Compiled multithreaded kernels" in nx.pagerank.__doc__


def test_checks_take_what_the_functions_take() -> None:
    """networkx passes arguments by position; a check that counts them otherwise would decline at random."""
    for name, check in interface._CHECKS.items():
        taken = list(inspect.signature(getattr(interface, name)).parameters)
        assert list(inspect.signature(check).parameters) == taken[: len(inspect.signature(check).parameters)], name


def used(caplog: pytest.LogCaptureFixture, function: Callable[..., Any], *args: Any, **options: Any) -> bool:
    """Whether a call without `backend=` ran here."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "networkx.utils.backends"), nx.config.backend_priority(algos=["goffish"]):
        listed(function(*args, **options))
    return any("Using backend 'goffish'" in record.message for record in caplog.records)


def test_small_graphs_stay_in_networkx(caplog: pytest.LogCaptureFixture) -> None:
    assert not used(caplog, nx.core_number, nx.path_graph(199))
    assert used(caplog, nx.core_number, nx.path_graph(200))


SHORT: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (nx.connected_components, (), {}),
    (nx.is_connected, (), {}),
    (nx.has_path, (0, 199), {}),
    (nx.descendants_at_distance, (0, 3), {}),
    (nx.triangles, (5,), {}),
    (nx.clustering, (), {"nodes": [1, 2, 3]}),
    (nx.shortest_path_length, (0,), {}),
    (nx.shortest_path_length, (0, 5, "weight"), {}),
    (nx.shortest_path_length, (), {"target": 5}),
    (nx.single_source_shortest_path_length, (0,), {}),
    (nx.single_source_dijkstra_path_length, (0, 3), {}),
    (nx.single_source_dijkstra_path_length, (0,), {"cutoff": 3}),
    (nx.closeness_centrality, (5,), {}),
    (nx.harmonic_centrality, (), {"nbunch": 5}),
    (nx.harmonic_centrality, (None, None, [7]), {}),
]


@pytest.mark.parametrize(("function", "args", "options"), SHORT)
def test_short_questions_stay_in_networkx_until_there_is_a_conversion(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    graph = nx.path_graph(200)
    assert not used(caplog, function, graph, *args, **options)
    assert not graph.__networkx_cache__.get("backends"), "nothing was converted for it"
    nx.core_number(graph, backend="goffish")
    options["G"] = graph
    if not args:
        assert used(caplog, function, **options)
    else:
        del options["G"]
        assert used(caplog, function, graph, *args, **options)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (nx.core_number, ()),
        (nx.triangles, ()),
        (nx.closeness_centrality, ()),
        (nx.harmonic_centrality, (range(100),)),
        (nx.betweenness_centrality, (20,)),
        (nx.edge_betweenness_centrality, ()),
        (nx.clustering, (range(100),)),
        (nx.pagerank, ()),
        (nx.shortest_path_length, ()),
        (nx.shortest_path_length, (0, None, "weight")),
        (nx.single_source_dijkstra_path_length, (0,)),
        (nx.community.modularity, ([range(100), range(100, 200)],)),
    ],
)
def test_long_questions_are_answered_here(
    function: Callable[..., Any], args: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    assert used(caplog, function, nx.path_graph(200), *args)


def test_converted_graphs_are_dispatched_whatever_their_size(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "networkx.utils.backends")
    assert nx.triangles(convert(KARATE)) == nx.triangles(KARATE)
    assert any("Using backend 'goffish' for call to 'triangles'" in r.message for r in caplog.records)


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.slow
def test_chosen_by_the_environment() -> None:
    code = (
        "import logging, sys; logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format='%(message)s')\n"
        "import networkx as nx; nx.core_number(nx.path_graph(1000))"
    )
    assert "Using backend 'goffish' for call to 'core_number'" in run_python(code, NETWORKX_BACKEND_PRIORITY="goffish")
    assert "Using backend" not in run_python(code, NETWORKX_BACKEND_PRIORITY="")


def test_networkx_starts_without_our_libraries() -> None:
    heavy = ("numba", "pyarrow", "pydantic", "goffish.graph")
    code = f"import sys, networkx; print([m for m in {heavy} if m in sys.modules], 'goffish' in sys.modules)"
    assert run_python(code) == "[] True", "every import of networkx would pay for them"
