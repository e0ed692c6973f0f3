"""Centralities by this backend are those of networkx's own code, for any graph, option and seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.networkx_backend import convert
from tests.networkx_backend.odd_graphs import odd_graphs
from tests.networkx_backend.test_answers import told, types

EITHER = st.booleans()
WEIGHT = st.sampled_from([None, "weight", "nothing"])
POSITIVE = ("none", "floats", "positive")


def alike(function: Callable[..., Any], graph: nx.Graph, *args: Any, **options: Any) -> Any:
    """Compare with networkx, for the graph and for a converted one; only the last digits may differ."""
    expected = told(function, graph, *args, **options, backend="networkx")
    for found in (
        told(function, graph, *args, **options, backend="goffish"),
        told(function, convert(graph), *args, **options),
    ):
        assert types(found) == types(expected), "other types than networkx's"
        if isinstance(expected, dict):
            assert list(found) == list(expected) or function is nx.harmonic_centrality
            assert found == pytest.approx(expected, rel=1e-11, abs=1e-12, nan_ok=True)
        elif isinstance(expected, float):
            assert found == pytest.approx(expected, rel=1e-13)
        else:
            assert found is expected
    return expected


@given(odd_graphs(weights=POSITIVE), EITHER, EITHER, WEIGHT)
def test_betweenness(graph: nx.Graph, normalized: bool, endpoints: bool, weight: str | None) -> None:
    alike(nx.betweenness_centrality, graph, normalized=normalized, endpoints=endpoints, weight=weight)
    alike(nx.edge_betweenness_centrality, graph, normalized=normalized, weight=weight)


@given(odd_graphs(weights=POSITIVE), st.integers(1, 15), EITHER, EITHER, WEIGHT, st.integers(0, 9))
def test_betweenness_from_a_sample(
    graph: nx.Graph, k: int, normalized: bool, endpoints: bool, weight: str | None, seed: int
) -> None:
    options = {"k": k, "normalized": normalized, "weight": weight, "seed": seed}
    for function, more in ((nx.betweenness_centrality, {"endpoints": endpoints}), (nx.edge_betweenness_centrality, {})):
        if k <= len(graph):
            alike(function, graph, **options, **more)
        elif len(graph):
            for backend in ("networkx", "goffish"):
                with pytest.raises(ValueError, match="larger than population"):
                    function(graph, **options, **more, backend=backend)


@pytest.mark.parametrize("make", [lambda: 7, lambda: random.Random(7), lambda: np.random.default_rng(7)])
def test_every_kind_of_seed(make: Callable[[], Any]) -> None:
    graph = nx.gnm_random_graph(40, 80, seed=2)
    expected = nx.betweenness_centrality(graph, k=10, seed=make(), backend="networkx")
    assert nx.betweenness_centrality(graph, k=10, seed=make(), backend="goffish") == pytest.approx(expected, abs=1e-12)


def test_a_graph_that_is_left_to_networkx_has_not_used_the_seed() -> None:
    graph = nx.gnm_random_graph(40, 80, seed=2)
    nx.set_edge_attributes(graph, 0, "weight")
    options: dict[str, Any] = {"k": 10, "weight": "weight"}
    expected = nx.betweenness_centrality(graph, seed=random.Random(7), **options, backend="networkx")
    with nx.config.backend_priority(algos=["goffish"]):
        found = nx.betweenness_centrality(graph, seed=random.Random(7), **options)
    assert found == expected


@given(odd_graphs(weights=POSITIVE), EITHER, WEIGHT, st.data())
def test_betweenness_between_some(graph: nx.Graph, normalized: bool, weight: str | None, data: st.DataObject) -> None:
    some = st.lists(st.sampled_from([*graph, "nobody"]), unique=True, max_size=6)
    sources, targets = data.draw(some), data.draw(some)
    options = {"normalized": normalized, "weight": weight}
    if len(graph):
        alike(nx.betweenness_centrality_subset, graph, sources, targets, **options)
        alike(nx.betweenness_centrality_subset, graph, set(sources) - {"nobody"}, tuple(targets), **options)
    if "nobody" not in sources:
        alike(nx.edge_betweenness_centrality_subset, graph, sources, [*graph, "nobody"], **options)


@given(odd_graphs(), EITHER, WEIGHT)
def test_closeness(graph: nx.Graph, wf_improved: bool, distance: str | None) -> None:
    for u in (None, "nobody", *list(graph)[:3]):
        alike(nx.closeness_centrality, graph, u, distance, wf_improved=wf_improved)


@given(odd_graphs(), WEIGHT, st.data())
def test_harmonic(graph: nx.Graph, distance: str | None, data: st.DataObject) -> None:
    nodes = [*graph, "nobody"]
    named = st.sampled_from(nodes)
    some = st.one_of(st.none(), st.lists(named, max_size=6), st.sets(named), st.sampled_from([None, *graph]))
    alike(nx.harmonic_centrality, graph, data.draw(some), distance, data.draw(some))


@given(st.integers(5, 25), st.integers(0, 10_000))
def test_ties_of_rounded_lengths(n: int, seed: int) -> None:
    """0.1 + 0.2 is not 0.3: which paths are equally long depends on where the sums begin, in networkx and here."""
    graph = nx.gnm_random_graph(n, 2 * n, seed=seed)
    rng = random.Random(seed)
    nx.set_edge_attributes(graph, {e: rng.choice([0.1, 0.2, 0.3, 0.7]) for e in graph.edges}, "weight")
    graph.add_edges_from((("tail", i), ("tail", i + 1), {"weight": 0.1}) for i in range(4))
    graph.add_edge(0, ("tail", 0), weight=0.3)
    alike(nx.betweenness_centrality, graph, weight="weight")
    alike(nx.edge_betweenness_centrality, graph, weight="weight")


@pytest.mark.slow
def test_a_larger_graph() -> None:
    graph = nx.relabel_nodes(nx.barabasi_albert_graph(700, 2, seed=3), lambda v: f"v{v * 7919 % 700}")
    graph.add_edges_from((f"w{i}", f"w{i + 1}") for i in range(50))
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v]["weight"] = 1 + i * 31 % 5
    for weight in (None, "weight"):
        alike(nx.closeness_centrality, graph, distance=weight)
        alike(nx.harmonic_centrality, graph, distance=weight)
    alike(nx.betweenness_centrality, graph, k=50, seed=1)
    alike(nx.edge_betweenness_centrality, graph, k=50, seed=1, weight="weight")
