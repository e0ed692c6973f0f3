"""Louvain through networkx: valid, nested, repeatable, and as good as networkx's own."""

from __future__ import annotations

import itertools
import random
from typing import Any

import igraph
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.networkx_backend import convert
from tests.networkx_backend.odd_graphs import odd_graphs

COMMUNITY = nx.community


def louvain(graph: nx.Graph, **options: Any) -> list[set[Any]]:
    return COMMUNITY.louvain_communities(graph, **options, backend="goffish")


@given(odd_graphs(weights=("none", "floats", "positive")), st.integers(0, 99))
def test_levels_are_nested_partitions(graph: nx.Graph, seed: int) -> None:
    levels = list(COMMUNITY.louvain_partitions(graph, seed=seed, backend="goffish"))
    assert levels
    for level in levels:
        assert COMMUNITY.is_partition(graph, level)
        position = {v: i for i, v in enumerate(graph)}
        firsts = [min(map(position.__getitem__, part)) for part in level]
        assert firsts == sorted(firsts), "communities come in the order of their first nodes"
    for fine, coarse in itertools.pairwise(levels):
        home = {v: i for i, part in enumerate(coarse) for v in part}
        assert all(len({home[v] for v in part}) == 1 for part in fine)
    assert louvain(graph, seed=seed) == levels[-1]
    assert louvain(convert(graph), seed=seed) == levels[-1]
    for level in range(1, len(levels) + 2):
        assert louvain(graph, seed=seed, max_level=level) == levels[min(level, len(levels)) - 1]
    if graph.number_of_edges():
        connected = list(nx.connected_components(graph.to_undirected()))
        assert all(any(part <= whole for whole in connected) for part in levels[-1])
        quality = [COMMUNITY.modularity(graph, level, backend="networkx") for level in levels]
        assert quality == sorted(quality) or np.allclose(quality, sorted(quality), atol=1e-12)
        assert quality[-1] >= COMMUNITY.modularity(graph, [{v} for v in graph], backend="networkx") - 1e-12


@pytest.mark.parametrize(
    "graph",
    [
        nx.karate_club_graph(),
        nx.les_miserables_graph(),
        nx.MultiGraph(nx.davis_southern_women_graph()),
        nx.planted_partition_graph(8, 40, 0.3, 0.01, seed=4),
        nx.connected_caveman_graph(20, 8),
        nx.planted_partition_graph(6, 20, 0.3, 0.02, seed=4, directed=True),
        nx.MultiDiGraph(nx.gn_graph(200, seed=5)),
    ],
    ids=["karate", "miserables", "women", "planted", "caveman", "directed", "tree"],
)
@pytest.mark.parametrize("weight", ["weight", None])
@pytest.mark.slow
def test_as_good_as_networkx(graph: nx.Graph, weight: str | None) -> None:
    def mean(backend: str) -> float:
        parts = [COMMUNITY.louvain_communities(graph, weight, seed=s, backend=backend) for s in range(12)]
        return float(np.mean([COMMUNITY.modularity(graph, p, weight, backend="networkx") for p in parts]))

    assert mean("goffish") > mean("networkx") - 0.01


def test_resolution() -> None:
    graph = nx.planted_partition_graph(8, 40, 0.3, 0.01, seed=4)
    sizes = [len(louvain(graph, resolution=r, seed=2)) for r in (0, 0.5, 1, 3, 1000)]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(graph)


def test_parallel_edges_add_up() -> None:
    simple, multi = nx.Graph(), nx.MultiGraph()
    for u, v, w in [(0, 1, 3), (1, 2, 1), (2, 3, 3), (3, 0, 1)]:
        simple.add_edge(u, v, weight=w)
        multi.add_edges_from([(u, v)] * w)
    assert louvain(simple, seed=1) == louvain(multi, seed=1) == [{0, 1}, {2, 3}]


@pytest.mark.parametrize(
    "make",
    [
        lambda: 7,
        lambda: random.Random(7),
        lambda: np.random.RandomState(7),
        lambda: np.random.default_rng(7),
    ],
    ids=["int", "Random", "RandomState", "Generator"],
)
def test_a_seed_decides(make: Any) -> None:
    graph = nx.gnm_random_graph(150, 450, seed=3)
    found = {str(louvain(graph, seed=make())) for _ in range(3)}
    assert len(found) == 1
    seed = make()
    if not isinstance(seed, int):
        assert len({str(louvain(graph, seed=seed)) for _ in range(5)}) > 1, "a generator goes on"


def test_without_a_seed_networkx_s_generator_decides() -> None:
    graph = nx.gnm_random_graph(150, 450, seed=3)

    def one() -> str:
        return str(louvain(graph))

    random.seed(5)
    first = one()
    assert len({first, *(one() for _ in range(5))}) > 1
    random.seed(5)
    assert one() == first


def test_corner_cases() -> None:
    assert louvain(nx.Graph()) == []
    assert louvain(nx.empty_graph(3)) == [{0}, {1}, {2}]
    assert louvain(nx.Graph([(0, 0), (1, 1)])) == [{0}, {1}]
    with pytest.raises(ZeroDivisionError):
        louvain(nx.Graph([(0, 1, {"weight": 0})]))
    with pytest.raises(ValueError, match="max_level"):
        louvain(nx.path_graph(3), max_level=0)
    again = COMMUNITY.louvain_partitions(nx.path_graph(30), seed=1, backend="goffish")
    next(again)[0].clear()
    assert COMMUNITY.is_partition(nx.path_graph(30), next(again)), "levels share no sets"


@pytest.mark.parametrize(
    "graph",
    [
        nx.karate_club_graph(),
        nx.planted_partition_graph(8, 40, 0.3, 0.01, seed=4),
        nx.MultiGraph(nx.gnm_random_graph(200, 500, seed=6)),
    ],
    ids=["karate", "planted", "random"],
)
def test_leiden_against_igraph(graph: nx.Graph) -> None:
    theirs = igraph.Graph(len(graph), list(graph.edges()))
    ours, best = [], []
    for seed in range(10):
        parts = COMMUNITY.leiden_communities(graph, None, seed=seed, backend="goffish")
        assert COMMUNITY.is_partition(graph, parts)
        assert all(nx.is_connected(graph.subgraph(part)) for part in parts)
        ours.append(COMMUNITY.modularity(graph, parts, None, backend="networkx"))
        random.seed(seed)
        best.append(theirs.community_leiden("modularity", n_iterations=2).modularity)
    assert np.mean(ours) > np.mean(best) - 0.01


def test_leiden_levels_and_seeds() -> None:
    graph = nx.gnm_random_graph(150, 450, seed=3)
    levels = list(COMMUNITY.leiden_partitions(graph, seed=1, backend="goffish"))
    assert all(COMMUNITY.is_partition(graph, level) for level in levels)
    for number, level in enumerate([*levels, levels[-1]], 1):
        assert COMMUNITY.leiden_communities(graph, max_level=number, seed=1, backend="goffish") == level
    with pytest.raises(NotImplementedError):
        COMMUNITY.leiden_communities(graph)  # networkx has none of its own
    with nx.config.backend_priority(algos=["goffish"]):
        assert COMMUNITY.leiden_communities(graph, seed=1) == levels[-1]
    with pytest.raises(nx.NetworkXNotImplemented):
        COMMUNITY.leiden_communities(graph.to_directed(), backend="goffish")
