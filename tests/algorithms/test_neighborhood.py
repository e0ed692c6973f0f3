"""Neighborhood functions, against all distances of SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import dijkstra

import goffish as gf
from goffish.graph import Graph


def random_graph(n: int, m: int, directed: bool) -> Graph:
    rng = np.random.default_rng(n)
    return gf.from_edges(
        rng.integers(0, n, m), rng.integers(0, n, m), labels=np.arange(n), directed=directed, self_loops="keep"
    )


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("n", "m"), [(300, 250), (800, 2400), (1500, 15_000)])
@pytest.mark.slow
def test_pairs_are_near_the_exact_ones(n: int, m: int, directed: bool) -> None:
    """Fails when a step is lost or against the arcs, or an estimate is off by more than four standard errors."""
    graph = random_graph(n, m, directed)
    matrix = scipy.sparse.csr_array((np.ones(graph.num_arcs), graph.targets, graph.offsets), shape=(n, n))
    lengths = dijkstra(matrix, unweighted=True)
    hops = lengths[np.isfinite(lengths)].astype(int)
    exact = np.cumsum(np.bincount(hops))
    for registers, seed in ((1024, 0), (1024, 5), (64, 1)):
        found = gf.neighborhood_function(graph, registers=registers, seed=seed)
        pairs = found.table["pairs"].to_numpy()
        # A hop that adds few pairs may go unseen.
        assert exact.size - 3 <= pairs.size <= exact.size
        error = 4 * 1.04 / np.sqrt(registers)
        assert np.abs(pairs / exact[: pairs.size] - 1).max() < error
        apart = hops[hops > 0]
        assert found.summary["mean_distance"] == pytest.approx(apart.mean(), rel=error)
        assert abs(found.summary["effective_diameter"] - np.percentile(hops, 90)) <= 1 + error * exact.size


def test_threads_seeds_and_kinds() -> None:
    graph = random_graph(3000, 9000, True)
    table = gf.neighborhood_function(graph, seed=3, threads=1).table
    assert table == gf.neighborhood_function(graph, seed=3, threads=4).table
    assert table != gf.neighborhood_function(graph, seed=4).table
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), True, graph.num_edges)
    assert gf.neighborhood_function(wide, seed=3).table == table
    assert gf.neighborhood_function(gf.partition(graph, 2, "range"), seed=3).table.num_rows > 5


def test_small_and_long_graphs() -> None:
    empty = gf.neighborhood_function(gf.from_edges([], []))
    assert (list(empty), empty.summary["mean_distance"]) == ([(0, 0.0)], 0.0)
    alone = gf.neighborhood_function(gf.from_edges([], [], labels=["a"]), registers=1024)
    assert [round(pairs) for _, pairs in alone] == [1]
    n = 2000
    line = gf.neighborhood_function(gf.from_edges(np.arange(n - 1), np.arange(1, n)), registers=16)
    assert 1000 < len(line) <= n


def test_errors() -> None:
    graph = gf.from_edges([1], [2])
    for options, reason in (
        ({"registers": 48}, "registers=48 must be a power of two"),
        ({"registers": 8}, "greater than or equal to 16"),
        ({"registers": 1 << 20}, "less than or equal to 65536"),
        ({"seed": "x"}, "seed='x'"),
    ):
        with pytest.raises(gf.InputError, match=reason):
            gf.neighborhood_function(graph, **options)
