"""Infomap and the map equation, against the definition in dense matrices and all divisions of small graphs."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import goffish as gf
from goffish.errors import InputError
from tests.algorithms.communities.graphs import planted
from tests.algorithms.communities.test_search import as_networkx, graphs, total_weight
from tests.algorithms.test_spectral import EDGES, Case, build, matrix


def flow_matrix(dense: NDArray[np.float64], directed: bool, damping: float = 0.85) -> NDArray[np.float64]:
    """Share of the steps of a walk that go from u to v; entry (u, v) of `dense` is the weight of the arc."""
    if not dense.any():
        return dense
    if not directed:
        both = dense + np.diag(np.diag(dense))
        return both / both.sum()
    strength = dense.sum(axis=1)
    to = strength / strength.sum()
    steps = np.divide(dense, strength[:, None], out=np.zeros_like(dense), where=strength[:, None] > 0)
    steps[strength == 0] = to
    jump = damping * steps + (1 - damping) * to
    jump[strength == 0] = to
    # The stationary distribution solves r = jump' r with sum 1.
    n = len(dense)
    rank = np.linalg.lstsq(np.vstack([jump.T - np.eye(n), np.ones(n)]), np.append(np.zeros(n), 1.0))[0]
    flows = rank[:, None] * np.where(strength[:, None] > 0, steps, 0.0)
    return flows / flows.sum()


def map_equation(flows: NDArray[np.float64], labels: Any) -> float:
    """Bits per step: the index code, and one code for each community."""

    def code(*uses: float) -> float:
        shares = np.array([use for use in uses if use > 1e-15])
        return float(-(shares * np.log2(shares / shares.sum())).sum())

    labels, visits = np.asarray(labels), flows.sum(axis=0)
    inside = [labels == c for c in np.unique(labels)]
    enter = [flows[~own][:, own].sum() for own in inside]
    leave = [flows[own][:, ~own].sum() for own in inside]
    return code(*enter) + sum(code(out, *visits[own]) for out, own in zip(leave, inside, strict=True))


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.85, 0.95]))
def test_communities(case: Case, directed: bool, weighted: bool, damping: float) -> None:
    """Breaks when a loop, a weight of 0, a parallel edge or a vertex without arcs is counted otherwise.

    The code is that of the communities, and not longer than that of the components; communities are connected.
    """
    n, edges = case
    graph = build(n, edges, directed) if weighted else build(n, edges, directed).unweighted()
    dense = matrix(n, edges, directed, weighted)
    flows = flow_matrix(dense, directed, damping)
    found = gf.infomap(graph, damping=damping, seed=len(edges), threads=1)
    assert found.codelength == pytest.approx(map_equation(flows, found.membership), abs=1e-6)
    _, pieces = connected_components(dense, directed=False)
    assert found.codelength <= map_equation(flows, pieces) + 1e-6
    same = found.membership[:, None] == found.membership
    assert connected_components(dense * same, directed=False)[0] == found.num_communities
    others = np.arange(n) % 3
    assert gf.codelength(graph, others, damping) == pytest.approx(map_equation(flows, others), abs=1e-6)


def divisions(n: int) -> list[list[int]]:
    """Every division of n vertices, numbered by the first vertices."""
    found: list[list[int]] = [[]]
    for _ in range(n):
        found = [[*one, c] for one in found for c in range(max(one, default=-1) + 2)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
def test_small_graphs_have_the_shortest_code(directed: bool) -> None:
    """Nearly always: single moves may end in a local minimum, hardly ever far from the best of all divisions."""
    best, close, cases = 0, 0, 60
    for seed in range(cases):
        theirs = nx.gnp_random_graph(7, 0.4, seed=seed, directed=directed)
        edges = [(u, v, 1 + (u * v) % 3) for u, v in theirs.edges]
        flows = flow_matrix(matrix(7, edges, directed, True), directed)
        shortest = min(map_equation(flows, one) for one in divisions(7))
        found = gf.infomap(build(7, edges, directed), trials=4).codelength
        assert found >= shortest - 1e-6
        best += found <= shortest + 1e-6
        close += found <= 1.01 * shortest + 1e-6
    assert best >= 0.85 * cases and close >= 0.9 * cases


#: Code lengths of igraph 1.0, `community_infomap(trials=10)`.
KARATE = 4.31179264580183


def test_known_graphs() -> None:
    karate = gf.from_networkx(nx.karate_club_graph()).unweighted()
    assert gf.infomap(karate).codelength <= 1.01 * KARATE
    assert gf.infomap(karate, trials=10).codelength == pytest.approx(KARATE, abs=1e-9)
    # A ring of cliques, each of which is a community.
    ring = gf.infomap(gf.from_networkx(nx.ring_of_cliques(8, 5)))
    assert sorted(map(sorted, ring.to_sets())) == [list(range(5 * c, 5 * c + 5)) for c in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_short_as_that_of_igraph(directed: bool, weighted: bool) -> None:
    igraph = pytest.importorskip("igraph")
    graph = planted(3000, groups=30, seed=2, mixing=0.35, weighted=weighted, directed=directed)
    src, dst, weight, _ = graph.edge_columns()
    theirs = igraph.Graph(n=3000, edges=np.stack([src, dst], axis=1), directed=directed)
    found = theirs.community_infomap(edge_weights=None if weight is None else weight.tolist(), trials=1)
    reference = gf.codelength(graph, found.membership)
    if not directed:
        assert reference == pytest.approx(found.codelength, rel=1e-9)
    assert gf.infomap(graph).codelength <= 1.01 * reference


@pytest.mark.parametrize("directed", [False, True])
def test_threads_and_types_change_nothing(directed: bool) -> None:
    graph = planted(1000, groups=20, seed=3, weighted=directed, directed=directed)
    wide = gf.Graph(graph.offsets, graph.targets.astype(np.int64), graph.directed, graph.num_edges, graph.weights)
    first = gf.infomap(graph, seed=1, threads=1)
    assert first.num_communities == 20
    assert first.modularity == pytest.approx(gf.modularity(graph, first.membership))
    for other in (gf.infomap(graph, seed=1, threads=3), gf.infomap(wide, seed=1)):
        assert (other.membership == first.membership).all() and other.codelength == first.codelength
    tried = [gf.infomap(graph, seed=1, trials=2, threads=threads) for threads in (1, 2)]
    assert (tried[0].membership == tried[1].membership).all()
    assert gf.infomap(gf.partition(graph, 2), seed=1).codelength == pytest.approx(first.codelength)
    assert gf.infomap(graph, seed=None).num_communities > 1


def test_extremes() -> None:
    nothing = gf.from_edges([], [])
    assert gf.infomap(nothing).num_communities == 0 == gf.codelength(nothing, [])
    lone = gf.infomap(gf.from_edges([], [], labels=[5, 6, 7]))
    assert (lone.num_communities, lone.codelength) == (3, 0.0)
    weightless = gf.from_edges([1, 2], [2, 3], [0.0, 0.0], directed=True)
    assert gf.infomap(weightless).codelength == 0.0
    wide = gf.infomap(gf.from_edges([1, 2, 3, 4], [2, 3, 4, 5], [1e-140, 1e140, 1e-140, 1e140]))
    assert wide.codelength == pytest.approx(1.0) and wide.membership.tolist() == [0, 1, 1, 2, 2]
    path = gf.infomap(gf.from_edges(np.arange(2000), np.arange(1, 2001)))
    assert 200 < path.num_communities < 1000 and path.without_small(3).summary.keys() == {
        "communities", "modularity", "levels", "passes",
    }  # fmt: skip
    assert gf.louvain(path.graph).codelength > path.codelength


@settings(max_examples=100)
@given(graphs())
def test_conductance(graph: gf.Graph) -> None:
    """As of networkx's degrees, in which a loop counts twice; in a directed graph, both directions of arcs count."""
    labels = np.arange(graph.num_vertices) % 3
    found = gf.conductance(graph, labels * 10 - 7)
    assert found.size == np.unique(labels).size
    theirs = as_networkx(graph)
    for c, value in enumerate(found):
        members = set(np.flatnonzero(labels == c).tolist())
        rest = set(theirs) - members
        cut = sum(w for u, v, w in theirs.edges.data("weight") if (u in members) != (v in members))
        least = min(sum(d for _, d in theirs.degree(side, weight="weight")) for side in (members, rest))
        assert value == pytest.approx(cut / least if cut else 0.0)
    assert total_weight(graph) or not found.any()


def test_refused() -> None:
    graph = gf.from_edges([1, 2], [2, 3], directed=True)
    for options, text in (
        ({"damping": 1.0}, "damping=1.0"), ({"trials": 0}, "trials=0"), ({"seed": -1}, "seed=-1"),
        ({"threshold": float("nan")}, "threshold=nan"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"infomap: {text}"):
            gf.infomap(graph, **options)
    with pytest.raises(InputError, match="negative"):
        gf.infomap(gf.from_edges([1], [2], [-1.0]))
    with pytest.raises(InputError, match=r"membership has shape \(2,\), expected \(3,\)"):
        gf.codelength(graph, [0, 1])
    with pytest.raises(InputError, match=r"membership has shape \(1,\), expected \(3,\)"):
        gf.conductance(graph, [0])
    with pytest.raises(InputError, match="damping=2"):
        gf.codelength(graph, [0, 1, 2], 2)
    with pytest.raises(InputError, match="community ids must be integers"):
        gf.codelength(graph, [0.5, 1.0, 2.0])
