"""Betweenness as users call it: options, top lists, agreement of the three ways to compute it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import goffish as gf
from goffish.errors import InputError

KARATE = nx.karate_club_graph()
TRUTH = nx.betweenness_centrality(KARATE, normalized=False)


def karate() -> gf.Graph:
    ends = np.array(KARATE.edges())
    return gf.from_edges(ends[:, 0], ends[:, 1])


def ranked(number: int) -> list[int]:
    return sorted(TRUTH, key=lambda v: (-TRUTH[v], v))[:number]


def test_exact_values_in_memory_and_on_the_engine() -> None:
    assert gf.betweenness(karate()).to_dict() == pytest.approx(TRUTH)
    cut = gf.partition(karate(), parts=3)
    assert gf.betweenness(cut).to_dict() == pytest.approx(TRUTH)
    assert gf.betweenness(cut, normalized=True).to_dict() == pytest.approx(nx.betweenness_centrality(KARATE))
    assert gf.betweenness(gf.partition(gf.from_edges([1], [2]), 1), normalized=True).to_dict() == {1: 0, 2: 0}


def test_normalized_values_of_directed_graphs_on_the_engine() -> None:
    graph = gf.generators.erdos_renyi(40, 0.08, directed=True, seed=2)
    expected = nx.betweenness_centrality(gf.to_networkx(graph))
    assert gf.run("betweenness", graph, "local", parts=3, normalized=True).to_dict() == pytest.approx(expected)


@pytest.mark.parametrize(("top", "number"), [(3, 3), ("10%", 4), ("100%", 34), (99, 34)])
def test_top_lists_fall(top: Any, number: int) -> None:
    found = gf.betweenness(karate(), top=top)
    assert found.table["vertex"].to_pylist() == ranked(number)
    assert found.to_dict() == pytest.approx({v: TRUTH[v] for v in ranked(number)})


def test_bounds_of_samples_hold_the_truth() -> None:
    found = gf.betweenness(karate(), epsilon=0.05, delta=0.01, top=34)
    least, most = found.to_dict("least"), found.to_dict("most")
    assert all(least[v] <= TRUTH[v] <= most[v] for v in TRUTH)
    half = gf.betweenness(karate(), epsilon=0.05, delta=0.01, normalized=True, top=34).to_dict()
    scale = 33 * 32 / 2
    assert {v: b * scale for v, b in half.items()} == pytest.approx(found.to_dict())


def test_published_leaf_removal_loses_the_star() -> None:
    """A star's hub stands between all its leaves; without them nothing is left.

    See docs/specs/betweenness.md, section 3.6.
    """
    star = gf.from_edges([0] * 9, list(range(1, 10)))
    store = gf.partition(star, parts=2)
    assert gf.betweenness(store).to_dict()[0] == 36.0
    assert set(store.run("betweenness", variant="msl-published").to_dict().values()) == {0.0}


def test_pivots_find_the_top_on_the_engine() -> None:
    found = gf.partition(karate(), parts=3).run("betweenness", top=3, batch=8)
    assert set(found.to_dict()) == set(ranked(3))
    assert found.summary["pivots"] <= 34


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"top": 0}, "top=0 must be a number of vertices"),
        ({"top": "0%"}, "top='0%' must be a number of vertices"),
        ({"top": "many"}, "top='many' must be a number of vertices"),
        ({"epsilon": 1.5}, "epsilon=1.5 should be less than 1"),
        ({"epsilon": 0.1, "weighted": True}, "no weights"),
        ({"epsilon": 0.1, "endpoints": True}, "omit endpoints"),
        ({"epsilon": 0.1, "sources": [1]}, "omit sources"),
        ({"reductions": "leaves,trees"}, "'trees'"),
        ({"sources": [777]}, "777"),
        ({"weighted": True}, "no weights"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        gf.betweenness(karate(), **options)


def test_edges_by_their_ends() -> None:
    found = gf.edge_betweenness(karate())
    table = found.table.to_pydict()
    truth = {frozenset(e): b for e, b in nx.edge_betweenness_centrality(KARATE, normalized=False).items()}
    ends = zip(table["source"], table["target"], strict=True)
    assert {frozenset(e): b for e, b in zip(ends, table["betweenness"], strict=True)} == pytest.approx(truth)
    plain = gf.edge_betweenness(karate(), reductions="none")
    assert plain.summary == {"searched": 1.0}
    assert plain.table["betweenness"].to_pylist() == pytest.approx(table["betweenness"])
