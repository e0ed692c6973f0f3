"""Random graphs have the distributions that they claim, and depend on the seed alone."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

import goffish as gf
from goffish.errors import InputError

MODELS: dict[str, Any] = {
    "rmat": lambda **given: gf.generators.rmat(12, **given),
    "rmat directed": lambda **given: gf.generators.rmat(12, directed=True, **given),
    "erdos_renyi": lambda **given: gf.generators.erdos_renyi(3000, 0.01, **given),
    "blocks": lambda **given: gf.generators.stochastic_block_model([900, 0, 100], np.full((3, 3), 0.05), **given),
    "barabasi_albert": lambda **given: gf.generators.barabasi_albert(5000, 3, **given),
    "watts_strogatz": lambda **given: gf.generators.watts_strogatz(5000, 6, 0.2, **given),
    "lfr": lambda **given: gf.generators.lfr(2000, degrees=(10, 50), communities=(20, 100), **given),
}


def same(first: gf.Graph, second: gf.Graph) -> bool:
    return np.array_equal(first.targets, second.targets) and np.array_equal(first.offsets, second.offsets)


@pytest.mark.parametrize("name", MODELS)
def test_seeds_and_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goffish.graph.generators._TASK", 1 << 9)
    draw = MODELS[name]
    graph = draw(seed=4, threads=1)
    assert all(same(graph, draw(seed=4, threads=threads)) for threads in (2, 5))
    monkeypatch.setattr("goffish.graph.generators._TASK", 1 << 30)
    assert same(graph, draw(seed=4))
    assert not same(graph, draw(seed=5))
    sources = graph.arc_sources()
    assert not (sources == graph.targets).any()
    keys = sources.astype(np.int64) * len(graph) + graph.targets
    assert np.unique(keys).size == keys.size


def near(count: float, trials: float, chance: float) -> bool:
    """Whether a binomial number is as far from its mean as one in a million at most."""
    return abs(count - trials * chance) < 5 * math.sqrt(trials * chance * (1 - chance)) + 1


def test_every_pair_has_the_same_chance() -> None:
    n, p, draws = 12, 0.3, 2000
    for directed in (False, True):
        counts = np.zeros((n, n))
        for seed in range(draws):
            graph = gf.generators.erdos_renyi(n, p, directed=directed, seed=seed)
            counts[graph.arc_sources(), graph.targets] += 1
        pairs = counts[~np.eye(n, dtype=bool)]
        assert all(near(count, draws, p) for count in pairs) and counts.trace() == 0
        # Neighboring pairs are independent of one another: the number of edges has the variance of a binomial one.
        assert near(pairs.sum() / (1 if directed else 2), draws * n * (n - 1) / (1 if directed else 2), p)


def test_chances_of_one_and_zero() -> None:
    assert gf.generators.erdos_renyi(40, 1).num_edges == 780
    assert gf.generators.erdos_renyi(40, 1, directed=True).num_edges == 1560
    assert gf.generators.erdos_renyi(40, 0).num_edges == gf.generators.erdos_renyi(0, 1).num_edges == 0


def test_blocks() -> None:
    sizes, chances = np.array([300, 200, 400]), np.array([[0.1, 0.02, 0], [0.01, 0.3, 0.05], [0.2, 0, 1]])
    graph = gf.generators.stochastic_block_model(sizes, chances, directed=True, seed=1)
    block = graph.vertices["block"].to_numpy()
    assert np.bincount(block).tolist() == sizes.tolist()
    counts = np.zeros((3, 3))
    np.add.at(counts, (block[graph.arc_sources()], block[graph.targets]), 1)
    for i, j in np.ndindex(3, 3):
        assert near(counts[i, j], sizes[i] * (sizes[j] - (i == j)), chances[i, j])


def test_quadrants() -> None:
    """Breaks when scrambled numbers are no permutation, or a level has other chances."""
    assert gf.generators.rmat(5, 2000, probabilities=(0.25,) * 4).num_edges == 32 * 31 // 2
    graph = gf.generators.rmat(1, 1 << 16, probabilities=(0.4, 0.3, 0.2, 0.1), directed=True)
    assert graph.num_edges == 2
    rng, scale, factor = np.random.default_rng(0), 14, 8
    src, dst = np.zeros((2, factor << scale), np.int64)
    for _ in range(scale):
        quadrant = rng.choice(4, src.size, p=[0.57, 0.19, 0.19, 0.05])
        src, dst = 2 * src + quadrant // 2, 2 * dst + quadrant % 2
    expected = gf.from_edges(src, dst, directed=True)
    found = gf.generators.rmat(scale, factor, directed=True, seed=3)
    assert found.num_edges == pytest.approx(expected.num_edges, rel=0.01)
    for first, second in zip(degrees(found), degrees(expected), strict=True):
        assert first[0] == pytest.approx(second[0], rel=0.1)
        assert np.count_nonzero(first) == pytest.approx(np.count_nonzero(second), rel=0.02)


def degrees(graph: gf.Graph) -> tuple[Any, Any]:
    table = graph.degrees()
    return tuple(-np.sort(-table[name].to_numpy()) for name in ("in_degree", "out_degree"))


def test_preferential_attachment() -> None:
    """The part of vertices with k edges or more is m(m + 1) / k(k + 1) (Bollobás and others, 2001)."""
    n, m = 100_000, 4
    graph = gf.generators.barabasi_albert(n, m, seed=2)
    assert gf.connected_components(graph).summary["components"] == 1
    degree = np.asarray(graph.degree)
    for k in (6, 8, 16, 40):
        assert np.mean(degree >= k) == pytest.approx(m * (m + 1) / (k * (k + 1)), rel=0.06)
    assert gf.generators.barabasi_albert(1, 3).num_edges == gf.generators.barabasi_albert(0, 3).num_edges == 0


def test_small_worlds() -> None:
    ring = gf.generators.watts_strogatz(20, 4, 0)
    assert nx.utils.graphs_equal(gf.to_networkx(ring), nx.watts_strogatz_graph(20, 4, 0))
    graph = gf.generators.watts_strogatz(10_000, 4, 0.3, seed=1)
    edges = graph.edges
    apart = np.abs(edges["source"].to_numpy() - edges["target"].to_numpy())
    assert near(np.count_nonzero(np.minimum(apart, 10_000 - apart) > 2), 20_000, 0.3)


@pytest.mark.parametrize("periodic", [False, True])
def test_grids(periodic: bool) -> None:
    for rows, columns in ((1, 1), (2, 2), (3, 5), (0, 4)):
        expected = nx.grid_2d_graph(rows, columns, periodic=periodic)
        expected.remove_edges_from(list(nx.selfloop_edges(expected)))
        found = gf.generators.grid(rows, columns, periodic=periodic)
        edges = {frozenset((u * columns + v, x * columns + y)) for (u, v), (x, y) in expected.edges}
        assert {frozenset(row.values()) for row in found.edges.to_pylist()} == edges and len(found) == rows * columns


def test_degrees_that_are_given() -> None:
    rng = np.random.default_rng(1)
    for seed in range(30):
        wanted = rng.integers(0, 8, 60)
        wanted[0] += wanted.sum() % 2
        graph = gf.generators.configuration_model(wanted, seed=seed)
        assert np.asarray(graph.degree).tolist() == wanted.tolist()
        arriving = rng.permutation(wanted)
        table = gf.generators.configuration_model(wanted, arriving, seed=seed).degrees()
        assert table["out_degree"].to_pylist() == wanted.tolist()
        assert table["in_degree"].to_pylist() == arriving.tolist()
    impossible = gf.generators.configuration_model([5, 1, 0, 0])
    assert np.asarray(impossible.degree).tolist() == [1, 1, 0, 0]
    graphs = {frozenset(map(frozenset, graph_edges(seed))) for seed in range(200)}
    assert len(graphs) == 3, "the three perfect matchings of four vertices"


def graph_edges(seed: int) -> list[tuple[int, int]]:
    return [tuple(row.values()) for row in gf.generators.configuration_model([1, 1, 1, 1], seed=seed).edges.to_pylist()]  # type: ignore[misc]


@pytest.mark.parametrize(("mixing", "degree"), [(0.1, 8), (0.5, 20.5), (1.0, 12)])
def test_planted_communities(mixing: float, degree: float) -> None:
    graph = gf.generators.lfr(5000, degrees=(degree, 60), communities=(30, 150), mixing=mixing, seed=7)
    community, edges = graph.vertices["community"].to_numpy(), graph.edges
    sizes = np.bincount(community)
    assert sizes.sum() == 5000 and sizes.min() >= 30 and sizes.max() <= 150
    away = community[edges["source"].to_numpy()] != community[edges["target"].to_numpy()]
    assert np.mean(away) == pytest.approx(mixing, abs=0.02)
    found = np.asarray(graph.degree)
    assert found.mean() == pytest.approx(degree, rel=0.05) and found.max() <= 60
    assert len(np.unique(sizes)) > 10


def test_communities_of_equal_size() -> None:
    graph = gf.generators.lfr(105, degrees=(4, 6), communities=(10, 10), mixing=0.2, seed=1)
    assert np.bincount(graph.vertices["community"].to_numpy()).tolist() == [*[10] * 10, 5]


def test_times() -> None:
    ring = gf.relabel(gf.generators.watts_strogatz(30, 2, 0), [f"v{i}" for i in range(30)])
    events = gf.generators.with_times(ring, 500, 60, seed=2)
    times = events.edges["timestamp"].to_numpy()
    assert events.num_edges == 500 and set(times) == set(range(60))
    kept = {frozenset((row["source"], row["target"])) for row in events.edges.to_pylist()}
    assert kept == {frozenset(row.values()) for row in ring.edges.to_pylist()}
    arrivals = gf.temporal_paths(*events.edges.columns, "v0", directed=False)
    assert arrivals.table.num_rows > 1


G = gf.generators


@pytest.mark.parametrize(("call", "message"), [
    (lambda: G.rmat(41), "scale=41: must be at most 40"), (lambda: G.rmat(-1), "scale=-1: must be an integer"),
    (lambda: G.rmat(3, probabilities=(1, 1, 0, 0)), "add up to 1"), (lambda: G.rmat(3, seed=-1), "seed=-1"),
    (lambda: G.rmat(40, 1 << 30), "do not fit in memory"), (lambda: G.rmat(3, threads=0), "threads=0"),
    (lambda: G.rmat(3, probabilities="abcd"), "numbers from 0 to 1"),
    (lambda: G.erdos_renyi(3, 1.5), "probability=1.5: must be numbers from 0 to 1"),
    (lambda: G.erdos_renyi(3, np.nan), "numbers from 0 to 1"),
    (lambda: G.erdos_renyi(2.5, 0.1), "n=2.5: must be an integer"),
    (lambda: G.stochastic_block_model([1, 2], [[0.1]]), r"shape \(1, 1\), expected \(2, 2\)"),
    (lambda: G.stochastic_block_model([1, 1], [[0, 1], [0, 0]]), "must be symmetric"),
    (lambda: G.stochastic_block_model([-1], [[0]]), "sizes: must be one column of non-negative integers"),
    (lambda: G.barabasi_albert(3, 0), "edges=0: must be an integer of at least 1"),
    (lambda: G.watts_strogatz(5, 3, 0), "degree=3: must be even and below n=5"),
    (lambda: G.watts_strogatz(4, 4, 0), "degree=4: must be even and below n=4"),
    (lambda: G.grid(-1, 2), "rows=-1"), (lambda: G.configuration_model([1, 2]), "add up to 3, which is odd"),
    (lambda: G.configuration_model([1.5, 0.5]), "non-negative integers"),
    (lambda: G.configuration_model([1, 1], [1]), "as many as degrees"),
    (lambda: G.configuration_model([1, 1], [1, 2]), "with the same sum"),
    (lambda: G.lfr(100, degrees=(20, 60), communities=(5, 10)), "Allow larger ones, or more mixing"),
    (lambda: G.lfr(100, degrees=(20, 10)), "the average must be from 1 to the largest"),
    (lambda: G.lfr(100, communities=(50, 10)), "expected \\(smallest, largest\\)"),
    (lambda: G.lfr(10), "the smallest is at most n"), (lambda: G.lfr(0), "n=0"),
    (lambda: G.with_times(gf.from_edges([], []), 3, 4), "has no edges"),
    (lambda: G.with_times(G.grid(2, 2), 3, 0), "span=0"), (lambda: G.with_times("x", 3, 4), "expected a goffish Graph"),
])  # fmt: skip
def test_refused(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
