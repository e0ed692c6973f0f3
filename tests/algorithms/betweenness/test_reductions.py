"""Every reduction alone and all together against networkx; identities.

See docs/specs/betweenness.md, sections 3.6 and 7.
"""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.betweenness.in_memory import betweenness
from goffish.algorithms.betweenness.plan import LAYOUTS, REDUCTIONS
from goffish.algorithms.betweenness.problem import problem_of
from goffish.algorithms.betweenness.reductions import fold_leaves, join_twins, side_vertices, split_blocks
from goffish.graph import Graph, from_edges
from tests.algorithms.betweenness.graphs import FAMILIES, make, to_graph

CASES = st.tuples(st.sampled_from(FAMILIES), st.integers(1, 40), st.integers(0, 100_000))
STEPS = (*REDUCTIONS, *LAYOUTS)
SUBSETS = ((), *((name,) for name in STEPS), STEPS)


def whole(G: nx.Graph, weight: str | None) -> np.ndarray:
    found = nx.betweenness_centrality(G, normalized=False, weight=weight)
    return np.array([found[v] for v in range(len(found))])


def problem(graph: Graph):
    ones = np.ones(graph.num_vertices)
    return problem_of(graph, False, ones, ones)[0]


@given(CASES)
def test_each_reduction_is_exact_without_weights(case):
    G = make(*case)
    graph, expected = to_graph(G), whole(G, None)
    for reductions in SUBSETS:
        found = betweenness(graph, weighted=False, reductions=reductions)
        np.testing.assert_allclose(found.scores, expected, rtol=1e-9, atol=1e-9, err_msg=f"{case} {reductions}")
        assert 0.0 <= found.share_left <= 1.0 + 1e-12


@given(CASES)
def test_each_reduction_is_exact_with_weights(case):
    G = make(*case)
    graph, expected = to_graph(G), whole(G, "weight")
    for reductions in SUBSETS:
        found = betweenness(graph, reductions=reductions).scores
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=f"{case} {reductions}")


@given(CASES)
def test_any_subset_of_reductions_is_exact_for_subsets_of_sources_and_targets(case):
    G = make(*case)
    rng = np.random.default_rng(case[2])
    n = G.number_of_nodes()
    sources, targets = (rng.permutation(n)[: int(rng.integers(0, n + 1))].tolist() for _ in range(2))
    chosen = [name for name in STEPS if rng.random() < 0.5]
    for weight in (None, "weight") if G.number_of_edges() else (None,):
        found = nx.betweenness_centrality_subset(G, sources, targets, weight=weight)
        expected = np.array([found[v] for v in range(n)])
        ours = betweenness(
            to_graph(G), weighted=weight is not None, sources=sources, targets=targets, reductions=chosen
        )
        np.testing.assert_allclose(ours.scores, expected, rtol=1e-9, atol=1e-9, err_msg=f"{case} {chosen}")


@given(CASES)
def test_folding_leaves_the_two_core_and_one_root_per_tree(case):
    G = make(*case)
    step = fold_leaves(problem(to_graph(G)))
    core = set(nx.k_core(G, 2))
    kept = set(step.place.tolist())
    assert core <= kept
    assert len(kept) == len(core) + sum(nx.is_tree(G.subgraph(c)) for c in nx.connected_components(G))
    assert step.smaller.out.sum() == G.number_of_nodes()
    for component in nx.connected_components(G):
        inside = [i for i, v in enumerate(step.place.tolist()) if v in component]
        assert step.smaller.out[inside].sum() == len(component)


@given(CASES)
def test_blocks_are_those_of_networkx_and_each_weighs_as_much_as_its_component(case):
    G = make(*case)
    step = split_blocks(problem(to_graph(G)))
    order, _, bounds = step.smaller.pieces
    found = [set(step.place[order[a:b]].tolist()) for a, b in pairwise(bounds)]
    expected = [block for block in nx.biconnected_components(G) if len(block) > 2]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    for (a, b), block in zip(pairwise(bounds), found, strict=True):
        assert step.smaller.out[order[a:b]].sum() == len(nx.node_connected_component(G, next(iter(block))))


@given(CASES)
def test_twins_are_the_classes_of_equal_neighbourhoods(case):
    G = make(*case)
    classes = {}
    for v in G:
        apart, together = frozenset(G[v]), frozenset(G[v]) | {v}
        classes.setdefault(apart if apart else v, set()).add(v)
        classes.setdefault(together, set()).add(v)
    merged = sum(len(c) - 1 for c in classes.values() if len(c) > 1)
    step = join_twins(problem(to_graph(G)))
    assert step.smaller.num_vertices == G.number_of_nodes() - merged
    assert step.smaller.times.sum() == G.number_of_nodes()


@given(CASES)
def test_side_vertices_have_cliques_for_neighbourhoods(case):
    G = make(*case)
    side = side_vertices(problem(to_graph(G)))
    for v in G:
        d = len(G[v])
        assert side[v] == (d > 0 and G.subgraph(G[v]).number_of_edges() == d * (d - 1) // 2)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([(0, 1), (1, 2), (2, 3), (3, 4)], [0, 3, 4, 3, 0]),
        ([(0, i) for i in range(1, 8)], [21, 0, 0, 0, 0, 0, 0, 0]),
        ([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)], [0, 0, 4, 3, 0]),
        ([(0, 1), (1, 2), (2, 3), (3, 0), (0, 4)], [3.5, 1, 0.5, 1, 0]),
        ([(i, (i + 1) % 8) for i in range(8)], [4.5] * 8),
        ([(0, 1)], [0, 0]),
    ],
)
def test_worked_examples_of_the_specification(edges, expected):
    src, dst = zip(*edges, strict=True)
    for reductions in SUBSETS:
        assert betweenness(from_edges(src, dst), reductions=reductions).scores.tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_paths_follow_the_closed_form_and_trees_need_no_search(n):
    i = np.arange(n)
    found = betweenness(from_edges(i[:-1], i[1:], labels=i))
    assert found.scores.tolist() == (i * (n - 1 - i)).tolist()
    if n > 2:
        assert found.share_left == pytest.approx(0.0, abs=1e-12)


@given(CASES)
def test_scores_add_up_to_the_inner_vertices_of_all_shortest_paths(case):
    G = make(*case)
    expected = sum(d - 1 for _, row in nx.all_pairs_shortest_path_length(G) for d in row.values() if d > 0) / 2
    assert betweenness(to_graph(G), weighted=False).scores.sum() == pytest.approx(expected, rel=1e-9)


def test_each_reduction_reports_what_it_saved():
    # A clique of six with a tail of four: 10 vertices and 38 arcs, of which the core has 6 and 30.
    src, dst = zip(*nx.lollipop_graph(6, 4).edges, strict=True)
    found = betweenness(from_edges(src, dst), reductions=["leaves"])
    assert [entry.reduction for entry in found.removed] == ["leaves"]
    assert found.work == 10 * 38
    assert found.share_left == pytest.approx(6 * 30 / 380)
