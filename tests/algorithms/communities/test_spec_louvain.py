"""Statistical acceptance checks 14 to 18 of docs/specs/communities.md, on LFR-like graphs (see `planted`).

E is the signed loss against the sequential modularity in percent, of means over seeds.
"""

from __future__ import annotations

from functools import cache

import networkx as nx
import numpy as np
import pytest

import goffish as gf
from goffish.algorithms.communities.sequential import sequential_louvain
from goffish.algorithms.communities.settings import ORDERS
from goffish.algorithms.communities.subgraph.program import PartitionedLouvain
from goffish.gofs import PartitionedGraph
from goffish.gopher import run_program
from goffish.graph import Graph
from tests.algorithms.communities.louvain_cases import lfr, planted, to_nx

SEEDS = range(5)


@cache
def paper_graph(n: int) -> Graph:
    return lfr(n, 1)


@cache
def mixed_graph(tenths: int) -> Graph:
    """50 K vertices, mean degree about 15, mixing 0.3 or 0.5."""
    return planted(50_000, tenths / 10, (20, 50) if tenths == 3 else (20, 100), (9, 50), 1)


@cache
def cut(graph: Graph, k: int, method: str) -> PartitionedGraph:
    return gf.partition(graph, k, method)


@cache
def sequential(graph: Graph) -> float:
    return float(np.mean([sequential_louvain(graph, seed=s).modularity[-1] for s in SEEDS]))


def loss(graph: Graph, k: int, method: str = "metis", repair_rounds: int = 0) -> float:
    found = []
    for seed in SEEDS:
        program = PartitionedLouvain(seed=seed, repair_rounds=repair_rounds, refine=False)
        stats = run_program(program, cut(graph, k, method)).stats
        assert stats is not None
        found.append(stats.aggregates["modularity"])
    return 100.0 * (1.0 - float(np.mean(found)) / sequential(graph))


@pytest.mark.slow
def test_sequential_equals_networkx_on_average() -> None:
    """Check 14."""
    graph = paper_graph(10_000)
    other = to_nx(graph)
    theirs = np.mean(
        [nx.community.modularity(other, nx.community.louvain_communities(other, seed=s)) for s in range(3)]
    )
    assert sequential(graph) == pytest.approx(float(theirs), rel=5e-4)


@pytest.mark.slow
def test_loss_of_the_published_scheme() -> None:
    """Check 15."""
    assert loss(paper_graph(10_000), 32) < 0.4
    assert loss(paper_graph(50_000), 128) < 0.25
    assert loss(paper_graph(50_000), 32) < loss(paper_graph(10_000), 32)


@pytest.mark.parametrize(
    ("n", "k", "most"),
    [(10_000, 32, 0.08), (10_000, 128, 0.15), (50_000, 128, 0.08)],
)
@pytest.mark.slow
def test_loss_after_three_rounds(n: int, k: int, most: float) -> None:
    """Check 16."""
    assert loss(paper_graph(n), k, repair_rounds=3) < most


@pytest.mark.parametrize(("tenths", "k"), [(3, 128), (5, 8), (5, 128)])
@pytest.mark.slow
def test_loss_after_three_rounds_with_weaker_communities(tenths: int, k: int) -> None:
    assert loss(mixed_graph(tenths), k, repair_rounds=3) < 0.08


@pytest.mark.slow
def test_hash_partitions_need_the_rounds() -> None:
    """Check 17: cut edges really are ignored in level 1, and eight rounds make up for it."""
    assert loss(mixed_graph(5), 8, "hash") > 10.0
    assert loss(mixed_graph(5), 8, "hash", repair_rounds=8) < 1.0


def test_orders() -> None:
    """Check 18."""
    graphs = [lfr(10_000, seed) for seed in range(5)]
    runs = {order: [sequential_louvain(g, order=order) for g in graphs] for order in ORDERS}
    passes = {order: np.mean([r.passes[0] for r in found]) for order, found in runs.items()}
    assert passes["descending"] <= passes["ascending"]
    quality = [np.mean([r.modularity[-1] for r in found]) for found in runs.values()]
    assert max(quality) - min(quality) < 5e-4 * max(quality)


@pytest.mark.slow
def test_loss_on_250_thousand_vertices() -> None:
    """Check 15, large."""
    graph = paper_graph(250_000)
    for k in (8, 64):
        assert loss(graph, k) < 0.03
    assert loss(graph, 128) < 0.05
    assert loss(graph, 128) < loss(paper_graph(50_000), 128)
