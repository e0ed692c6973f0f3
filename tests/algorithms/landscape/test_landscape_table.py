"""The table of a landscape against networkx, and against the hierarchy of Louvain that it is made of."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.landscape import in_memory as whole
from goffish.algorithms.landscape.levels import CommunityLandscape
from goffish.errors import InputError
from goffish.graph import from_edges
from tests.algorithms.landscape.landscape_graphs import karate
from tests.cases import Case, cases


def groups(found: gf.Communities, level: int) -> dict[int, set[int]]:
    """Vertices of every community; labels are 0 … n-1."""
    members: dict[int, set[int]] = defaultdict(set)
    for vertex, community in enumerate(found.membership_at(level).tolist()):
        members[community].add(vertex)
    return members


def rows_of(found: CommunityLandscape) -> dict[tuple[int, int], list[dict[str, Any]]]:
    rows: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in found.table.to_pylist():
        rows[row["level"], row["community"]].append(row)
    return rows


def check_rows(case: Case, found: CommunityLandscape, most: int, scores: Any) -> None:
    """Every column of every row; `scores` gives the betweenness of a community's members, by networkx."""
    rows, hierarchy = rows_of(found), found.communities
    for level in range(1, hierarchy.num_levels + 1):
        members = groups(hierarchy, level)
        above = groups(hierarchy, level + 1) if level < hierarchy.num_levels else None
        assert {c for at, c in rows if at == level} == set(members)
        for community, inside in members.items():
            told = rows[level, community]
            expected = scores(inside)
            assert [row["rank"] for row in told] == list(range(1, min(most, len(inside)) + 1))
            assert len({row["vertex"] for row in told} & inside) == len(told)
            for row in told:
                assert row["betweenness"] == pytest.approx(expected[row["vertex"]], abs=1e-7, rel=1e-9)
            best = sorted((expected[v] for v in inside), reverse=True)[:most]
            assert [row["betweenness"] for row in told] == pytest.approx(best, abs=1e-7, rel=1e-9)
            within = sum(w for u, v, w in case.nx.edges(data="weight", default=1) if u in inside and v in inside)
            cut = sum(w for u, v, w in case.nx.edges(data="weight", default=1) if (u in inside) != (v in inside))
            assert (told[0]["size"], told[0]["internal_weight"], told[0]["cut_weight"]) == (
                len(inside), pytest.approx(within, abs=1e-9), pytest.approx(cut, abs=1e-9),
            )  # fmt: skip
            if above is None:
                assert told[0]["parent"] is None
            else:
                assert inside <= above[told[0]["parent"]], "a community that is not part of its parent"


@given(cases(), st.integers(1, 4))
def test_every_row_against_networkx(case: Case, most: int) -> None:
    expected = nx.betweenness_centrality(case.nx, normalized=False)
    found = gf.landscape(case.graph, members=most)
    check_rows(case, found, most, lambda inside: expected)
    assert found.summary["modularity"] == gf.louvain(case.graph).modularity
    order = [(-row["level"], -row["size"], row["community"], row["rank"]) for row in found.table.to_pylist()]
    assert order == sorted(order), "coarsest level first, then the largest community"


@settings(max_examples=40)
@given(cases())
def test_paths_within_the_community(case: Case) -> None:
    found = gf.landscape(case.graph, paths="community", members=3)
    check_rows(case, found, 3, lambda inside: nx.betweenness_centrality(case.nx.subgraph(inside), normalized=False))


@settings(max_examples=30)
@given(cases())
def test_weights_as_lengths(case: Case) -> None:
    for u, v in case.nx.edges:
        case.nx.edges[u, v]["weight"] = 1.0 + (u * 7 + v * 7) % 5
    edges = list(case.nx.edges(data="weight"))
    if not edges:
        return
    src, dst, weight = (list(column) for column in zip(*edges, strict=True))
    graph = from_edges(src, dst, weight, directed=case.nx.is_directed(), labels=np.arange(len(case.nx)))
    expected = nx.betweenness_centrality(case.nx, normalized=False, weight="weight")
    check_rows(case, gf.landscape(graph, weighted=True), 5, lambda inside: expected)


def test_columns_are_those_of_louvain() -> None:
    graph = karate()
    found = gf.landscape(graph, resolution=1.5, seed=3, refine="leiden")
    for level in range(1, found.communities.num_levels + 1):
        described = gf.louvain(graph, resolution=1.5, seed=3, refine="leiden").at_level(level).describe()
        expected = {row["community"]: row for row in described.to_pylist()}
        for (at, community), told in rows_of(found).items():
            if at == level:
                for name in ("size", "internal_weight", "cut_weight"):
                    assert told[0][name] == pytest.approx(expected[community][name])


def test_only_the_coarsest_levels() -> None:
    graph = karate()
    every, few = gf.landscape(graph), gf.landscape(graph, levels=1)
    top = every.communities.num_levels
    assert top > 1
    assert few.table.to_pylist() == [row for row in every.table.to_pylist() if row["level"] == top]
    assert gf.landscape(graph, levels=99).table.equals(every.table)


def test_sampled_values_and_their_bounds() -> None:
    G = nx.karate_club_graph()
    exact = nx.betweenness_centrality(G, normalized=False, weight=None)
    found = gf.landscape(karate(), epsilon=0.05, seed=2)
    sampled = {row["vertex"]: row for row in gf.betweenness(karate(), epsilon=0.05, seed=2).table.to_pylist()}
    assert found.summary["betweenness"] == "sampled"
    for row in found.table.to_pylist():
        assert {name: row[name] for name in ("betweenness", "least", "most")} == pytest.approx(
            {name: sampled[row["vertex"]][name] for name in ("betweenness", "least", "most")}
        )
        assert row["least"] - 1e-9 <= exact[row["vertex"]] <= row["most"] + 1e-9


def test_sampling_where_exact_values_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "AFFORDABLE", 34 * 156 - 1)
    monkeypatch.setattr(whole, "DEFAULT_EPSILON", 0.1)
    assert gf.landscape(karate()).summary["epsilon"] == 0.1
    assert gf.landscape(karate(), epsilon=0.0).summary["betweenness"] == "exact"
    assert gf.landscape(karate(), paths="community").summary["betweenness"] == "exact"
    monkeypatch.setattr(whole, "AFFORDABLE", 34 * 156)
    assert gf.landscape(karate()).summary["betweenness"] == "exact"


def test_ties_go_to_the_larger_degree_then_the_smaller_number() -> None:
    # Two triangles on a common edge, and a leaf: vertices 0 and 1 are alike, so are 2 and 3.
    found = gf.landscape(from_edges([0, 0, 0, 1, 1], [1, 2, 3, 2, 3], labels=np.arange(4)), resolution=0.0, levels=1)
    assert found.table["vertex"].to_pylist() == [0, 1, 2, 3]
    pair = gf.landscape(from_edges([5, 5, 5], [6, 7, 8]), resolution=0.0, levels=1, members=2)
    assert pair.table["vertex"].to_pylist() == [5, 6]


@pytest.mark.parametrize("labels", [[], [7], [7, 8, 9]], ids=len)
@pytest.mark.parametrize("paths", ["graph", "community"])
def test_without_edges(labels: list[int], paths: Any) -> None:
    found = gf.landscape(from_edges([], [], labels=np.array(labels, np.int64)), paths=paths)
    assert [(row["vertex"], row["size"], row["betweenness"]) for row in found.table.to_pylist()] == [
        (label, 1, 0.0) for label in labels
    ]
    assert found.table.schema.field("parent").type == "int64"


def test_threads_stores_and_runs_do_not_change_it() -> None:
    graph = karate()
    expected = gf.landscape(graph, threads=1).table
    assert gf.landscape(graph, threads=2).table.equals(expected)
    stored = gf.landscape(gf.partition(graph, parts=3))
    by_label = {(row["level"], row["size"], row["rank"], row["vertex"]) for row in expected.to_pylist()}
    assert {(row["level"], row["size"], row["rank"], row["vertex"]) for row in stored.table.to_pylist()} == by_label


def test_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_louvain(*args: Any, progress: Any, **options: Any) -> gf.Communities:
        progress(2, 3, 0.25)
        return louvain(*args, progress=progress, **options)

    louvain = whole.louvain
    monkeypatch.setattr(whole, "louvain", slow_louvain)
    said: list[str] = []
    gf.landscape(gf.read("data/power.metis.gz"), note=said.append)
    assert said[0] == "communities: stage 2, pass 3, +0.25000"
    assert said[-1] == "betweenness: 100.0 % of the arc visits"
    gf.landscape(gf.read("data/power.metis.gz"), epsilon=0.1, note=said.append)
    assert said[-1].endswith(" samples")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"members": 0}, "members=0"),
        ({"levels": 0}, "levels=0"),
        ({"epsilon": 1.0}, "epsilon=1.0"),
        ({"epsilon": 0.1, "weighted": True}, "omit weighted"),
        ({"epsilon": 0.1, "paths": "community"}, "omit paths"),
        ({"paths": "all"}, "'graph' or 'community'"),
        ({"weighted": True}, "no weights"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_refused(options: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        gf.landscape(karate(), **options)


def test_no_engine() -> None:
    with pytest.raises(InputError, match="omit engine, parts"):
        gf.run("landscape", karate(), engine="local", parts=2)
