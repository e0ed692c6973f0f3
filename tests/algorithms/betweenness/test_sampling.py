"""Sampled betweenness against networkx's exact values and counted shortest paths."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.betweenness import _sampling_kernels as kernels
from goffish.algorithms.betweenness import sampling
from goffish.algorithms.betweenness.sampling import estimate_betweenness, largest, most_samples
from goffish.errors import InputError

GRAPHS = {
    "scale-free": nx.barabasi_albert_graph(300, 2, seed=1),
    "random, in pieces": nx.gnm_random_graph(300, 330, seed=2),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(15, 15)),
    "tree": nx.random_labeled_tree(200, seed=3),
    "directed": nx.gnm_random_graph(200, 700, seed=4, directed=True),
    "star": nx.star_graph(30),
}


def graph_of(G: Any) -> gf.Graph:
    ends = np.array(G.edges(), np.int64).reshape(-1, 2)
    return gf.from_edges(
        ends[:, 0], ends[:, 1], labels=np.arange(G.number_of_nodes()), directed=G.is_directed()
    )  # fmt: skip


def exact(G: Any) -> np.ndarray[Any, Any]:
    """Share of all ordered pairs."""
    n = G.number_of_nodes()
    values = nx.betweenness_centrality(G, normalized=False)
    return np.array([values[v] for v in range(n)]) * (1 if G.is_directed() else 2) / (n * (n - 1))


@pytest.mark.parametrize("name", GRAPHS)
def test_errors_are_within_the_bounds(name: str) -> None:
    G = GRAPHS[name]
    truth = exact(G)
    wrong = 0
    for seed in range(5):
        found = estimate_betweenness(graph_of(G), 0.03, 0.1, seed=seed)
        assert found.certain
        assert found.samples <= found.most
        assert np.all(found.below <= 0.03 + 1e-12)
        assert np.all(found.above <= 0.03 + 1e-12)
        inside = (found.score - found.below <= truth) & (truth <= found.score + found.above)
        wrong += not inside.all()
    assert wrong <= 1


@pytest.mark.parametrize("name", ["grid", "scale-free", "directed"])
def test_every_shortest_path_is_equally_likely(name: str) -> None:
    """With many samples the estimate goes to the exact value: mean of 0/1 variables, six standard deviations."""
    G = GRAPHS[name]
    n, samples = G.number_of_nodes(), 200_000
    graph = graph_of(G)
    backward = sampling._rows(*sampling._reverse(graph)) if G.is_directed() else None
    forward = sampling._rows(graph.offsets, graph.targets)
    with sampling._Sampler(forward, backward or forward, 7, 2) as sampler:
        sampler.draw(samples)
        score = sampler.counts / samples
    truth = exact(G)
    assert np.all(np.abs(score - truth) <= 6.0 * np.sqrt(np.maximum(truth, 1.0 / samples) / samples))
    assert score.sum() == pytest.approx(truth.sum(), rel=0.02)
    assert n == score.size


def test_the_paths_of_one_pair_are_equally_likely() -> None:
    """Between opposite corners of a 3 x 3 grid run six paths each, of which both pairs of corners share two."""
    G = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))
    paths = Counter(tuple(sorted(p[1:-1])) for s, t in ((0, 8), (2, 6)) for p in nx.all_shortest_paths(G, s, t))
    graph = graph_of(G)
    rows = sampling._rows(graph.offsets, graph.targets)
    seen: Counter[tuple[int, ...]] = Counter()
    counts, levels = np.zeros(9, np.int64), np.full((2, 9), -1, np.int32)
    room = (np.empty((2, 9)), np.empty((2, 9), np.int32), np.zeros(1, np.int64))
    for i in range(20_000):
        counts[:] = 0
        kernels.sample_paths(rows, rows, 3, i, i + 1, counts, levels, *room)
        assert np.all(levels == -1)
        if counts.sum() == 3:
            seen[tuple(np.flatnonzero(counts).tolist())] += 1
    assert set(seen) == set(paths)
    each = [seen[path] / paths[path] for path in paths]
    assert max(each) < 1.4 * min(each)


@given(st.integers(0, 2**31), st.integers(2, 5))
def test_threads_do_not_matter(seed: int, threads: int) -> None:
    graph = graph_of(GRAPHS["scale-free"])
    one = estimate_betweenness(graph, 0.1, 0.2, seed=seed, threads=1)
    more = estimate_betweenness(graph, 0.1, 0.2, seed=seed, threads=threads)
    assert one.samples == more.samples
    assert np.array_equal(one.score, more.score)
    other = estimate_betweenness(graph, 0.1, 0.2, seed=seed + 1)
    assert not np.array_equal(one.score, other.score)


def test_the_top_set_stops_sampling_early() -> None:
    """Three hubs far above the rest: their set is certain long before every value is known to a thousandth."""
    G = nx.disjoint_union_all([nx.star_graph(60), nx.star_graph(60), nx.star_graph(60), nx.path_graph(30)])
    G.add_edges_from([(0, 61), (61, 122), (122, 183)])
    graph, truth = graph_of(G), exact(G)
    everything = estimate_betweenness(graph, 0.005, 0.1)
    found = estimate_betweenness(graph, 0.005, 0.1, top=3)
    assert found.certain
    assert found.samples < everything.samples / 2
    assert found.top is not None
    assert set(found.top.tolist()) == set(np.argsort(-truth)[:3].tolist())


def test_a_tie_at_the_border_is_never_called_certain() -> None:
    found = estimate_betweenness(graph_of(nx.cycle_graph(20)), 0.02, 0.1, top=5)
    assert not found.certain
    assert found.top is not None
    assert found.top.size == 5


@given(st.data())
def test_no_shortest_path_is_longer(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 20))
    G = nx.gnm_random_graph(n, data.draw(st.integers(0, 2 * n)), seed=data.draw(st.integers(0, 1000)))
    longest = max((d for _, row in nx.all_pairs_shortest_path_length(G) for d in row.values()), default=0)
    bound = sampling._longest_path(graph_of(G))
    assert longest <= bound <= 2 * longest


def test_most_samples_follow_the_formula() -> None:
    """0.5 / ε² (⌊log2(inner vertices)⌋ + 1 + ln(2 / δ)); 9 edges have 8 inner vertices."""
    assert most_samples(9, 0.01, 0.1) == math.ceil(0.5 / 1e-4 * (3 + 1 + math.log(20)))
    assert most_samples(1, 0.1, 0.5) == math.ceil(0.5 / 1e-2 * (1 + math.log(4)))


def test_counts_beyond_floating_point() -> None:
    """Paths between far corners of a 600 x 600 grid would overflow: C(1198, 599) is 1e359."""
    graph = graph_of(nx.convert_node_labels_to_integers(nx.grid_2d_graph(600, 600)))
    rows = sampling._rows(graph.offsets, graph.targets)
    with sampling._Sampler(rows, rows, 1, 1) as sampler:
        sampler.draw(30)
        counts = sampler.counts
    assert 30 * 100 < counts.sum() < 30 * 1198
    assert counts.max() <= 30


@pytest.mark.parametrize("n", [0, 1, 2])
def test_graphs_without_inner_vertices(n: int) -> None:
    found = estimate_betweenness(graph_of(nx.path_graph(n)), top=1)
    assert found.score.tolist() == [0.0] * n
    assert found.certain


@pytest.mark.parametrize(
    ("option", "value"), [("epsilon", 0.0), ("epsilon", 1.0), ("delta", -1.0), ("delta", math.nan)]
)
def test_parameters_out_of_range(option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{option}=.* between 0 and 1"):
        estimate_betweenness(graph_of(nx.path_graph(5)), **{option: value})


def test_largest_takes_the_smaller_number_of_ties() -> None:
    for order in permutations(range(4)):
        score = np.array([3.0, 1.0, 3.0, 2.0])[list(order)]
        expected = sorted(range(4), key=lambda v: (-score[v], v))
        assert largest(score, 4).tolist() == expected
