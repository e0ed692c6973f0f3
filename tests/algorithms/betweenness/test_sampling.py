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
from scipy import stats

import goffish as gf
from goffish.algorithms.betweenness import sampling
from goffish.algorithms.betweenness import sampling_kernels as kernels
from goffish.algorithms.betweenness.sampling import estimate_betweenness, largest, most_samples
from goffish.errors import InputError
from tests.algorithms.betweenness import graphs

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


def exact(G: Any, weight: str | None = None) -> np.ndarray[Any, Any]:
    """Share of all ordered pairs."""
    n = G.number_of_nodes()
    values = nx.betweenness_centrality(G, normalized=False, weight=weight)
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


def drawn(graph: gf.Graph, samples: int, seed: int = 7) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Estimates from so many samples, and their random part."""
    folded = sampling._Folded(sampling.measured_problem(graph, None, None, None)[0])
    with sampling._Sampler(folded.core, folded.owner, seed, 2) as sampler:
        sampler.draw(samples)
        share = folded.expand(sampler.counts / samples)
    return folded.closed + share, share


def assert_unbiased(graph: gf.Graph, truth: np.ndarray[Any, Any], samples: int) -> None:
    """The estimate goes to the exact value: means of 0/1 variables, six standard deviations."""
    score, share = drawn(graph, samples)
    deviation = np.sqrt(np.maximum(share, 1.0 / samples) / samples)
    assert np.all(np.abs(score - truth) <= np.where(share > 0, 6.0 * deviation, 20.0 / samples) + 1e-12)
    assert score.sum() == pytest.approx(truth.sum(), rel=0.02)


@pytest.mark.parametrize("name", ["grid", "scale-free", "tree", "random, in pieces", "directed"])
@pytest.mark.slow
def test_every_shortest_path_is_equally_likely(name: str) -> None:
    assert_unbiased(graph_of(GRAPHS[name]), exact(GRAPHS[name]), 200_000)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("family", ["grid", "random", "lollipop", "cycle-and-star", "subdivided"])
@pytest.mark.slow
def test_every_lightest_path_is_equally_likely(family: str, directed: bool) -> None:
    """Weights from 1 to 3, so that many pairs have several paths."""
    G = graphs.make(family, 60, 5, directed=directed)
    for _, _, data in G.edges(data=True):
        data["weight"] = float(data["weight"] % 3 + 1)
    assert_unbiased(graphs.to_graph(G), exact(G, "weight"), 60_000)


def test_weights_are_looked_at_unless_told_not_to() -> None:
    G = graphs.make("grid", 60, 5)
    graph = graphs.to_graph(G)
    for weighted, weight in ((None, "weight"), (True, "weight"), (False, None)):
        found, truth = estimate_betweenness(graph, 0.03, 0.01, weighted=weighted), exact(G, weight)
        assert np.all((found.score - found.below <= truth + 1e-12) & (truth <= found.score + found.above + 1e-12))
    assert np.abs(exact(G, "weight") - exact(G)).max() > 0.1
    with pytest.raises(InputError, match="no weights"):
        estimate_betweenness(graph.unweighted(), weighted=True)


def test_lengths_that_add_nothing() -> None:
    """1 + 1e-17 is 1: the way back from the target must not look for a shorter distance."""
    graph = gf.from_edges([0, 1, 2, 3], [1, 2, 3, 0], [1.0, 1e-17, 1.0, 3.0], labels=np.arange(4))
    score, _ = drawn(graph, 2_000)
    assert score[1] == pytest.approx(4 / 12, abs=0.06)
    assert score[[0, 3]].tolist() == [0.0, 0.0]


def test_trees_need_no_samples() -> None:
    """Everything hangs on one vertex, so that the closed form is all there is."""
    G = GRAPHS["tree"]
    found = estimate_betweenness(graph_of(G), 0.001)
    assert found.score == pytest.approx(exact(G))
    assert found.below.max() == 0.0
    assert found.above.max() < 1e-3


def test_parallel_arcs_are_one_way() -> None:
    """Of two ways around a square, one has a double edge: both are as likely, as in networkx for a simple graph."""
    graph = gf.from_edges([0, 0, 1, 2, 3], [1, 1, 2, 3, 0], labels=np.arange(4), parallel="keep")
    score, _ = drawn(graph, 40_000)
    assert score == pytest.approx(np.full(4, 1 / 12), abs=0.01)


def test_the_paths_of_one_pair_are_equally_likely() -> None:
    """Between opposite corners of a 3 x 3 grid run six paths each, of which both pairs of corners share two."""
    G = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))
    paths = Counter(tuple(sorted(p[1:-1])) for s, t in ((0, 8), (2, 6)) for p in nx.all_shortest_paths(G, s, t))
    rows = sampling.measured_problem(graph_of(G), None, None, None)[0].unsigned_arcs
    seen: Counter[tuple[int, ...]] = Counter()
    counts, levels = np.zeros(9, np.int64), np.full((2, 9), -1, np.int32)
    room = (np.empty((2, 9)), np.empty((2, 9), np.int32), np.zeros(1, np.int64))
    for i in range(20_000):
        counts[:] = 0
        kernels.sample_paths(rows, rows, np.arange(9, dtype=np.int32), 3, i, i + 1, counts, levels, *room)
        assert np.all(levels == -1)
        if counts.sum() == 3:
            seen[tuple(np.flatnonzero(counts).tolist())] += 1
    assert set(seen) == set(paths)
    each = [seen[path] / paths[path] for path in paths]
    assert max(each) < 1.4 * min(each)


@given(st.integers(1, 5_000), st.floats(0.0, 1.0), st.floats(-40.0, -0.01))
def test_bounds_are_exact_binomial_ones(samples: int, share: float, log_failure: float) -> None:
    """At each end of the interval, what was seen or more of it has the probability asked for, or hardly less."""
    hits = round(share * samples)
    below, above = np.empty(1), np.empty(1)
    kernels.error_bounds(np.array([hits]), np.array([log_failure]), samples, below, above)
    low, high = hits / samples - below[0], hits / samples + above[0]
    for bound, tail in (
        (low, stats.binom.logsf(hits - 1, samples, low)),
        (high, stats.binom.logcdf(hits, samples, high)),
    ):
        if 1e-9 < bound < 1.0 - 1e-9 and bound != hits / samples:
            assert tail <= log_failure + 1e-3
            # The series that takes the place of the tail is a little larger, most so near the middle.
            assert tail >= log_failure - 1.0 or log_failure > -3.0


def test_the_failure_is_shared_out_whole() -> None:
    hits = np.random.default_rng(1).geometric(0.1, 1000) - 1
    failure, _ = sampling._share_out(hits, 1000, np.full(1000, 0.01), 0.09)
    assert 2.0 * failure.sum() == pytest.approx(0.09, rel=1e-6)
    looks = list(sampling._looks(1000, 5000))
    assert sum(share for _, share in looks) == pytest.approx(1.0)
    assert [size for size, _ in looks] == sorted({size for size, _ in looks})
    assert looks[-1][0] == 5000


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
    assert found.members < 5
    assert found.top is not None
    assert found.top.size == 5


def test_certain_members_are_members() -> None:
    G = GRAPHS["scale-free"]
    truth = set(np.argsort(-exact(G), kind="stable")[:10].tolist())
    found = estimate_betweenness(graph_of(G), 0.005, 0.01, top=10)
    assert found.top is not None
    assert 1 <= found.members <= len(truth & set(found.top.tolist()))
    assert found.certain == (found.members == 10)


@given(st.data())
def test_no_shortest_path_is_longer(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 20))
    G = nx.gnm_random_graph(n, data.draw(st.integers(0, 2 * n)), seed=data.draw(st.integers(0, 1000)))
    longest = max((d for _, row in nx.all_pairs_shortest_path_length(G) for d in row.values()), default=0)
    bound = sampling._longest_path(sampling.measured_problem(graph_of(G), None, None, None)[0])
    assert longest <= bound <= 2 * longest


def test_most_samples_follow_the_formula() -> None:
    """0.5 / ε² (⌊log2(inner vertices)⌋ + 1 + ln(1 / failure)); 9 edges have 8 inner vertices."""
    assert most_samples(9, 0.01, 0.1) == math.ceil(0.5 / 1e-4 * (3 + 1 + math.log(10)))
    assert most_samples(1, 0.1, 0.5) == math.ceil(0.5 / 1e-2 * (1 + math.log(2)))


def test_counts_beyond_floating_point() -> None:
    """Paths between far corners of a 600 x 600 grid would overflow: C(1198, 599) is 1e359."""
    number = np.arange(600 * 600).reshape(600, 600)
    ends = [
        np.concatenate((number[:, :-1].ravel(), number[:-1].ravel())),
        np.concatenate((number[:, 1:].ravel(), number[1:].ravel())),
    ]
    graph = gf.from_edges(*ends, labels=np.arange(number.size))
    for measured, samples in ((graph, 30), (alike_but_one(graph), 4)):
        _, share = drawn(measured, samples)
        assert 100 < share.sum() < 1198
        assert share.max() <= 1.0


def alike_but_one(graph: gf.Graph) -> gf.Graph:
    """Weights of 1 and a single longer one, so that they are not passed over."""
    src, dst, _, _ = graph.edge_columns()
    weights = np.ones(src.size)
    weights[0] = 2.0
    return gf.from_edges(src, dst, weights, labels=np.arange(graph.num_vertices))


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
