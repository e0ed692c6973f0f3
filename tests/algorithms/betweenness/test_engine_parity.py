"""What betweenness accepts in memory, it accepts on an engine: targets, endpoints, shares of vertices, errors."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import InputError
from tests.algorithms.betweenness.engine_cases import Case, cases, cut, make_graph


def by_definition(graph: nx.Graph, sources: set[int], targets: set[int], *, endpoints: bool) -> dict[int, float]:
    """Shortest paths of every ordered pair, one after the other; halved where the graph is undirected."""
    weight = "weight" if nx.is_weighted(graph) and graph.number_of_edges() else None
    found = dict.fromkeys(graph, 0.0)
    for s in sources:
        for t in targets - {s}:
            if not nx.has_path(graph, s, t):
                continue
            paths = list(nx.all_shortest_paths(graph, s, t, weight=weight))
            for path in paths:
                for v in path if endpoints else path[1:-1]:
                    found[v] += 1.0 / len(paths)
    return found if graph.is_directed() else {v: value / 2.0 for v, value in found.items()}


@given(cases(largest=16), st.data())
@settings(max_examples=20)
@pytest.mark.slow
def test_targets_and_endpoints_on_engines_as_by_definition(case: Case, data: st.DataObject) -> None:
    directed = data.draw(st.booleans())
    graph = make_graph(case.family, case.n, case.seed, weighted=case.weighted, directed=directed)
    n = graph.number_of_nodes()
    some = st.none() | st.lists(st.integers(0, n - 1), min_size=1, max_size=5, unique=True)
    sources, targets = data.draw(some), data.draw(some)
    options: dict[str, Any] = {
        "sources": sources, "targets": targets, "endpoints": data.draw(st.booleans()),
        "variant": data.draw(st.sampled_from(["default", "ms"])),
        "max_concurrent": data.draw(st.sampled_from([None, 3])),
    }  # fmt: skip
    found = gf.betweenness(cut(graph, case.parts, case.k, case.seed), **options).to_dict()
    wanted = by_definition(
        graph, set(graph if sources is None else sources), set(graph if targets is None else targets),
        endpoints=options["endpoints"],
    )  # fmt: skip
    assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("parts", [2, *(pytest.param(parts, marks=pytest.mark.slow) for parts in (1, 3, 4, 5))])
def test_values_are_those_in_memory(parts: int) -> None:
    """Leaves hang at a core across partitions; two more components, one of them a tree without targets."""
    graph = nx.karate_club_graph()
    for u, v in ((33, 34), (34, 35), (0, 36), (36, 37), (40, 41), (41, 42), (50, 51), (51, 52), (52, 50)):
        graph.add_edge(u, v)
    whole = gf.from_networkx(nx.Graph(graph.edges))
    store = gf.partition(whole, parts, "hash")
    for options in (
        {"endpoints": True}, {"endpoints": True, "normalized": True}, {"targets": [35, 0, 51]},
        {"targets": [0, 37], "sources": [35, 5, 50], "endpoints": True},
        {"targets": [5], "normalized": True},
    ):  # fmt: skip
        expected = gf.betweenness(whole, **options).to_dict()  # type: ignore[arg-type]
        assert gf.betweenness(store, **options).to_dict() == pytest.approx(expected, abs=1e-9)  # type: ignore[arg-type]


def test_a_share_of_the_vertices_is_a_number_of_them() -> None:
    store = gf.partition(gf.from_networkx(nx.karate_club_graph()), 3)
    options = {"batch": 34, "pivots": 34}
    share = gf.betweenness(store, top="10%", **options)
    assert share.table.equals(gf.betweenness(store, top=4, **options).table)
    assert share.table.num_rows == 4


@pytest.mark.parametrize("parts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_errors_stay_within_epsilon(parts: int) -> None:
    """Every value; with fewer searches than vertices, or else the exact values."""
    n = 80
    graph = nx.barabasi_albert_graph(n, 2, seed=1)
    store = gf.partition(gf.from_networkx(graph), parts)
    exact = np.array(list(nx.betweenness_centrality(graph, normalized=False).values()))
    pairs = n * (n - 1) / 2
    found = gf.betweenness(store, epsilon=0.3, delta=0.1)
    table = {name: found.table[name].to_numpy() for name in ("betweenness", "least", "most")}
    assert 0 < found.summary["samples"] == found.summary["most_samples"] < n
    assert found.summary["certain"]
    assert (np.abs(table["betweenness"] - exact) <= 0.3 * pairs).all()
    assert ((table["least"] <= exact + 1e-9) & (exact <= table["most"] + 1e-9)).all()
    assert np.abs(table["betweenness"] - exact).max() > 1e-6
    sure = gf.betweenness(store, epsilon=0.01, top=3, normalized=True)
    assert sure.table["vertex"].to_pylist() == np.argsort(-exact)[:3].tolist()
    assert sure.table["betweenness"].to_numpy() == pytest.approx(np.sort(exact)[::-1][:3] / ((n - 1) * (n - 2) / 2))
    assert sure.summary["certain_members"] == 3


def test_a_comparison_counts_as_the_run_does() -> None:
    store = gf.partition(gf.from_networkx(nx.karate_club_graph()), 2)
    for options in ({"targets": [0, 1]}, {"endpoints": True}, {"epsilon": 0.01}):
        exact = gf.betweenness(store, pivots=None if "epsilon" in options else 34, compare=True, **options)  # type: ignore[arg-type]
        assert exact.summary["largest_error_share"] == pytest.approx(0.0, abs=1e-12)


def test_what_engines_do_not_follow_is_named() -> None:
    store = gf.partition(gf.from_networkx(nx.path_graph(5)), 2)
    for options, problem in (
        ({"reductions": "none"}, "reductions works only in memory"),
        ({"variant": "msl-published", "targets": [1]}, "targets requires variant='default' or 'ms'"),
        ({"variant": "msl-published", "endpoints": True}, "endpoints requires variant='default' or 'ms'"),
        ({"variant": "msl-published", "epsilon": 0.1}, "omit variant"),
        ({"targets": [99]}, "unknown vertex 99"),
        ({"epsilon": 0.1, "pivots": 3}, "omit pivots"),
    ):
        with pytest.raises(InputError, match=problem) as raised:
            gf.betweenness(store, **options)  # type: ignore[arg-type]
        assert "\n" not in str(raised.value)
