"""Communities as results: figures, levels, comparison, and operations on divisions."""

from __future__ import annotations

import doctest
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.communities import agreement, divisions
from goffish.algorithms.communities.communities import (
    Communities,
    make_communities,
    match_ids,
    merge_small,
    modularity,
    normalise,
)
from goffish.errors import InputError
from goffish.gopher.result import read_table
from goffish.graph import Graph

Pair = tuple[Any, Graph]


def pair(n: int, edges: list[tuple[int, int, float]], *, directed: bool, weighted: bool) -> Pair:
    """The same graph in networkx and in GoFFish: loops and parallel edges kept."""
    G = nx.MultiDiGraph() if directed else nx.MultiGraph()
    G.add_nodes_from(range(n))
    G.add_weighted_edges_from([(u, v, w if weighted else 1.0) for u, v, w in edges])
    src, dst, weight = (np.array([edge[i] for edge in edges]) for i in range(3))
    graph = gf.from_edges(
        src.astype(np.int64), dst.astype(np.int64), weight.astype(float) if weighted else None, directed=directed,
        labels=np.arange(n), self_loops="keep", parallel="keep",
    )  # fmt: skip
    return G, graph


@st.composite
def divided_graphs(draw: st.DrawFn, *, whole: bool = False, largest: int = 14) -> tuple[Any, Graph, list[int]]:
    """A small graph with loops and parallel edges, and a division with arbitrary ids."""
    n = draw(st.integers(1, largest))
    weights = st.integers(0, 5) if whole else st.just(0.0) | st.floats(1e-3, 10.0)  # networkx squares their sum
    ends = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(ends, ends, weights), max_size=3 * n))
    G, graph = pair(n, edges, directed=draw(st.booleans()), weighted=draw(st.booleans()))
    return G, graph, draw(st.lists(st.integers(-2, 6), min_size=n, max_size=n))


def groups(ids: Any) -> list[set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for v, c in enumerate(ids):
        found[int(c)].add(v)
    return list(found.values())


def flat(graph: Graph, membership: Any, **more: Any) -> Communities:
    """A result of one level."""
    ids = normalise(membership)
    return make_communities(graph, [ids], modularity=modularity(graph, ids), **more)


@pytest.fixture
def karate() -> Communities:
    """Two levels: four communities, then the two clubs."""
    G = nx.karate_club_graph()
    clubs = np.array([G.nodes[v]["club"] == "Officer" for v in G]).astype(np.int64)
    ids = normalise(clubs * 2 + (np.arange(34) % 2))
    upper = np.zeros(4, np.int64)
    upper[ids] = clubs
    graph = gf.from_networkx(G, weight=None)
    return make_communities(graph, [ids, upper], modularity=modularity(graph, clubs), summary_extra={"seed": 3})


# Modularity


@given(divided_graphs(), st.sampled_from([0.0, 0.5, 1.0, 2.5]))
def test_modularity_is_that_of_networkx(case: tuple[Any, Graph, list[int]], resolution: float) -> None:
    G, graph, ids = case
    expected = (
        nx.community.modularity(G, groups(ids), resolution=resolution) if G.size("weight") > 0 else 0.0
    )  # networkx divides by zero
    assert modularity(graph, ids, resolution) == pytest.approx(expected, abs=1e-12)


def test_modularity_of_known_divisions() -> None:
    triangles = nx.disjoint_union(nx.complete_graph(3), nx.complete_graph(3))
    assert modularity(gf.from_networkx(triangles), [0, 0, 0, 1, 1, 1]) == 0.5
    ring = nx.ring_of_cliques(8, 6)
    assert modularity(gf.from_networkx(ring), np.arange(48) // 6) == pytest.approx(0.8125, abs=1e-15)
    assert modularity(gf.from_edges([], [], isolated=range(4)), [0, 1, 2, 3]) == 0.0


def test_modularity_with_the_smallest_and_largest_weights() -> None:
    src, dst, ids = [0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3], [0, 0, 0, 1, 1, 1]
    expected = modularity(gf.from_edges(src, dst), ids)
    for scale in (1e-140, 1e140):
        scaled = gf.from_edges(src, dst, np.full(7, scale))
        assert modularity(scaled, ids) == pytest.approx(expected, rel=1e-12)
        assert merge_small(scaled, np.arange(6), 3).tolist() == ids


@pytest.mark.parametrize(
    ("ids", "resolution", "told"),
    [
        ([0, 1], 1.0, r"membership has shape \(2,\), expected \(3,\)"),
        ([0.0, 1.0, 1.0], 1.0, "must be integers"),
        ([[0], [1], [2]], 1.0, "shape"),
        ([[0], [1, 2], 3], 1.0, "one column"),
        (np.array([0, 1, 2**63], np.uint64), 1.0, "int64"),
        ([0, 1, 2], -1.0, "resolution=-1.0"),
        ([0, 1, 2], float("nan"), "resolution=nan"),
        ([0, 1, 2], "high", "resolution='high'"),
    ],
)
def test_modularity_of_what_is_no_division(ids: Any, resolution: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        modularity(gf.from_edges([0, 1], [1, 2]), ids, resolution)
    with pytest.raises(InputError, match="graph is of type"):
        modularity(nx.path_graph(3), [0, 0, 0])  # type: ignore[arg-type]


def test_modularity_of_a_large_graph_is_that_of_igraph() -> None:
    import igraph

    G = igraph.Graph.Barabasi(20_000, 5)
    graph = gf.from_edges(*np.array(G.get_edgelist()).T)
    ids = np.arange(20_000) % 97
    assert modularity(graph, ids) == pytest.approx(G.modularity(ids), abs=1e-12)


# Numbers of communities


@given(st.lists(st.one_of(st.integers(-3, 8), st.integers(-(2**63), 2**63 - 1)), max_size=40))
def test_normal_ids_follow_first_appearance(ids: list[int]) -> None:
    seen: dict[int, int] = {}
    expected = [seen.setdefault(c, len(seen)) for c in ids]
    assert normalise(np.array(ids, np.int64)).tolist() == expected


@given(st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 6)), max_size=40))
def test_matched_ids_follow_the_largest_overlaps(rows: list[tuple[int, int]]) -> None:
    old, new = [a for a, _ in rows], [b for _, b in rows]
    shared = Counter((a, b) for a, b in rows if a >= 0)
    given_ids: dict[int, int] = {}
    for a, b in sorted(shared, key=lambda ab: (-shared[ab], *ab)):
        if b not in given_ids and a not in given_ids.values():
            given_ids[b] = a
    fresh = max(old, default=-1) + 1
    for b in sorted(set(new)):
        if b not in given_ids:
            given_ids[b], fresh = fresh, fresh + 1
    got = match_ids(np.array(old, np.int64), np.array(new, np.int64))
    assert got.tolist() == [given_ids[b] for b in new]


def test_matching_many_communities_needs_no_table_of_pairs() -> None:
    old = np.arange(400_000) // 4
    shuffled = np.random.default_rng(1).permutation(100_000)
    assert np.array_equal(match_ids(old, shuffled[old]), old)


def test_ids_that_cannot_be_matched() -> None:
    with pytest.raises(InputError, match="old: row 1 holds -2; ids must be at least -1"):
        match_ids([0, -2], [0, 0])
    with pytest.raises(InputError, match="new: row 0 holds -1; ids must be at least 0"):
        match_ids([0, 0], [-1, 0])
    with pytest.raises(InputError, match="old has shape"):
        match_ids([0], [0, 1])


# Merging small communities


def merged_slowly(G: Any, ids: list[int], least: int) -> list[int]:
    """The rule as it is written, in exact arithmetic (whole weights)."""
    community = {v: list(dict.fromkeys(ids)).index(c) for v, c in enumerate(ids)}
    directed = G.is_directed()
    edges = [(u, v, Fraction(w)) for u, v, w in G.edges(data="weight")]
    if not directed:
        edges += [(v, u, w) for u, v, w in edges]
    total = sum(w for *_, w in edges) or Fraction(1)
    stuck: set[int] = set()
    while True:
        size = Counter(community.values())
        small = [c for c in sorted(size, key=lambda c: (size[c], c)) if size[c] < least and c not in stuck]
        if not small:
            return [community[v] for v in range(len(ids))]
        c = small[0]
        out: Counter[int] = Counter()
        into: Counter[int] = Counter()
        near: dict[int, Fraction] = defaultdict(Fraction)
        for u, v, w in edges:
            a, b = community[u], community[v]
            out[a] += w  # type: ignore[assignment]
            into[b] += w  # type: ignore[assignment]
            if (a == c) != (b == c):
                near[b if a == c else a] += w
        if not near:
            stuck.add(c)
            continue
        gain = {d: near[d] / total - (out[c] * into[d] + out[d] * into[c]) / total**2 for d in near}
        best = min(gain, key=lambda d: (-gain[d], d))
        community = {v: best if d == c else d for v, d in community.items()}


@given(divided_graphs(whole=True), st.integers(0, 8))
def test_small_communities_are_joined_as_the_rule_says(case: tuple[Any, Graph, list[int]], least: int) -> None:
    G, graph, ids = case
    got = merge_small(graph, ids, least)
    assert got.tolist() == normalise(merged_slowly(G, ids, least)).tolist()


@given(st.integers(20, 40), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(2, 12), st.integers(0, 10_000))
def test_many_single_vertices_are_joined_as_the_rule_says(
    n: int, density: int, directed: bool, weighted: bool, least: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    edges = [(u, v, float(w)) for u, v, w in rng.integers(0, [n, n, 6], (density * n // 2, 3)).tolist()]
    G, graph = pair(n, edges, directed=directed, weighted=weighted)
    got = merge_small(graph, np.arange(n), least)
    assert got.tolist() == normalise(merged_slowly(G, list(range(n)), least)).tolist()


@given(divided_graphs(), st.integers(1, 8), st.sampled_from([0.5, 1.0, 2.0]))
def test_what_stays_small_has_no_neighbour(case: tuple[Any, Graph, list[int]], least: int, resolution: float) -> None:
    G, graph, ids = case
    got = merge_small(graph, ids, least, resolution=resolution)
    size = Counter(got.tolist())
    assert all(size[c] >= least for u, v in G.edges() for c in (got[u], got[v]) if got[u] != got[v])
    assert got.tolist() == normalise(got).tolist()
    assert all(len({got[v] for v in group}) == 1 for group in groups(ids)), "communities are joined, never split"


def test_isolated_vertices_stay_alone() -> None:
    graph = gf.from_edges([0, 1], [1, 2], isolated=[3, 4])
    assert merge_small(graph, [0, 1, 2, 3, 4], 3).tolist() == [0, 0, 0, 1, 2]


def test_thousands_of_small_communities_are_merged() -> None:
    G = nx.barabasi_albert_graph(30_000, 3, seed=1)
    got = merge_small(gf.from_networkx(G), np.arange(30_000), 20)
    size = np.bincount(got)
    assert size.min() >= 20
    assert size.size > 100, "joining must not end in one heap: modularity keeps the neighbours apart"
    with pytest.raises(InputError, match="min_size=-1"):
        merge_small(gf.from_networkx(nx.path_graph(3)), [0, 1, 2], -1)


# The result


def test_figures_of_a_result(karate: Communities) -> None:
    assert karate.num_levels == 2
    assert karate.num_communities == 2
    assert dict(karate.summary) == {"communities": 2, "modularity": karate.modularity, "levels": 2, "seed": 3}
    assert karate.modularity == pytest.approx(0.35823, abs=1e-5)  # the split of the club: Newman and Girvan 2004
    assert repr(karate) == "Communities(louvain: 2 of 34 vertices, modularity 0.3582, levels 2)"
    assert karate.table.column_names == ["vertex", "community"]
    assert karate.to_dict() == dict(enumerate(karate.membership.tolist()))
    assert karate.to_sets() == groups(karate.membership)


def test_levels_compose(karate: Communities) -> None:
    assert karate.membership_at(1).tolist() == karate.maps[0].tolist()
    assert karate.membership_at(2).tolist() == [karate.maps[1][c] for c in karate.maps[0]]
    assert karate.hierarchy.schema.types == [pa.int64()] * 3
    assert karate.hierarchy.to_pylist() == [
        {"level": level, "vertex": v, "community": c}
        for level in (1, 2)
        for v, c in enumerate(karate.membership_at(level).tolist())
    ]
    lower = karate.at_level(1)
    G = nx.karate_club_graph()
    assert lower.modularity == pytest.approx(nx.community.modularity(G, groups(lower.membership), weight=None))
    assert dict(lower.summary) == {"communities": 4, "modularity": lower.modularity, "levels": 1, "seed": 3}
    assert lower.table["community"].to_pylist() == karate.membership_at(1).tolist()
    assert lower.hierarchy.num_rows == 34
    assert karate.at_level(2) is karate
    for level in (0, 3, -1, 1.0, True, "1"):
        with pytest.raises(InputError, match="must be from 1 to 2"):
            karate.membership_at(level)  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.lists(st.integers(0, 4), min_size=10, max_size=10),
    st.randoms(use_true_random=False),
)
def test_results_do_not_depend_on_how_a_search_counts(first: list[int], second: list[int], random: Any) -> None:
    graph = gf.from_edges([], [], isolated=range(len(first)))
    lower = normalise(first)
    upper = normalise(second[: lower.max() + 1])
    names_low, names_up = list(range(lower.max() + 1)), list(range(upper.max() + 1))
    random.shuffle(names_low)
    random.shuffle(names_up)
    other_lower = np.array(names_low)[lower]
    other_upper = np.empty(len(names_low), np.int64)
    other_upper[names_low] = np.array(names_up)[upper]
    a = make_communities(graph, [lower, upper], modularity=0.0)
    b = make_communities(graph, [other_lower, other_upper], modularity=0.0)
    assert a.hierarchy.equals(b.hierarchy)
    assert all(np.array_equal(x, y) for x, y in zip(a.maps, b.maps, strict=True))
    assert groups(b.membership) == groups(other_upper[other_lower])
    assert all(normalise(b.membership_at(level)).tolist() == b.membership_at(level).tolist() for level in (1, 2))


@pytest.mark.parametrize(
    ("maps", "told"),
    [
        ([], "at least one level"),
        ([[0, 0]], r"steps, level 1 has shape \(2,\), expected \(3,\)"),
        ([[0, 0, 2]], "steps, level 1: ids must be consecutive, from 0"),
        ([[0, -1, 1]], "steps, level 1: ids must be consecutive, from 0"),
        ([[0, 0, 1], [0, 0, 0]], r"steps, level 2 has shape \(3,\), expected \(2,\)"),
    ],
)
def test_maps_that_do_not_fit(maps: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        make_communities(gf.from_edges([0, 1], [1, 2]), maps, modularity=0.0)


def test_a_graph_without_vertices() -> None:
    empty = make_communities(gf.from_edges([], []), [np.empty(0, np.int64)], modularity=0.0)
    assert empty.num_communities == 0
    assert empty.to_sets() == []
    assert empty.describe().num_rows == empty.hierarchy.num_rows == 0


@given(divided_graphs())
def test_descriptions_against_plain_counting(case: tuple[Any, Graph, list[int]]) -> None:
    G, graph, ids = case
    table = flat(graph, ids).describe(central=2).to_pylist()
    total = 2 * G.size("weight")
    for row, members in zip(table, groups(ids), strict=True):
        inner = G.subgraph(members)
        cut = sum(w for u, v, w in G.edges(data="weight") if (u in members) != (v in members))
        volume = sum(d for _, d in G.degree(members, weight="weight"))
        assert row["size"] == len(members)
        assert row["internal_weight"] == pytest.approx(inner.size("weight"))
        assert row["cut_weight"] == pytest.approx(cut)
        assert row["volume"] == pytest.approx(volume)
        assert row["conductance"] == pytest.approx(
            cut / max(min(volume, total - volume), cut) if cut else 0.0, abs=1e-9
        )
        simple = nx.DiGraph(inner) if G.is_directed() else nx.Graph(inner)
        simple.remove_edges_from(list(nx.selfloop_edges(simple)))
        assert row["density"] == (pytest.approx(nx.density(simple)) if len(members) > 1 else None)
        degree = dict(inner.degree(weight="weight"))
        assert [degree[v] for v in row["central"]] == pytest.approx(sorted(degree.values(), reverse=True)[:2])


def test_central_members_of_equal_rank_go_by_number() -> None:
    names = ["d", "c", "b", "a"]
    graph = gf.from_edges([0, 1, 2, 3], [1, 2, 3, 0], labels=names)
    result = flat(graph, [0, 0, 0, 0])
    assert result.describe(central=3)["central"].to_pylist() == [["d", "c", "b"]]
    assert result.describe(central=0)["central"].to_pylist() == [[]]
    assert result.describe(central=99)["central"].to_pylist() == [names]
    with pytest.raises(InputError, match="central=-1"):
        result.describe(central=-1)


def test_conductance_is_that_of_networkx(karate: Communities) -> None:
    G = nx.karate_club_graph()
    for row, members in zip(karate.describe().to_pylist(), karate.to_sets(), strict=True):
        assert row["conductance"] == pytest.approx(nx.conductance(G, members))


# Comparison with a known truth


def test_truth_of_every_kind(karate: Communities) -> None:
    truth = karate.membership_at(1)
    named = {v: f"c{c}" for v, c in enumerate(truth.tolist())}
    table = pa.table({"extra": range(34), "vertex": list(named), "community": list(named.values())})
    backwards = table.take(np.arange(33, -1, -1))
    expected = karate.compare(truth)
    assert expected["compared"] == 34
    assert 0 < expected["ari"] < 1
    for given_truth in (
        list(named.values()), named, table, backwards, backwards.to_pandas(), pl.from_arrow(backwards),
        backwards.to_batches()[0], karate.at_level(1), pd.Series(truth), pa.array(truth),
        {v: ("c", c) for v, c in enumerate(truth.tolist())},
    ):  # fmt: skip
        assert karate.compare(given_truth) == pytest.approx(expected)
    assert karate.compare(karate) == pytest.approx({"nmi": 1, "ari": 1, "ami": 1, "compared": 34})


def test_only_what_both_know_is_compared(karate: Communities) -> None:
    from sklearn.metrics import adjusted_rand_score

    some = {5: "x", 30: "y", 7: "x", 99: "y", 16: None}
    ids = karate.membership
    expected = adjusted_rand_score(["x", "y", "x"], ids[[5, 30, 7]])
    got = karate.compare(some)
    assert (got["compared"], got["ari"]) == (3, pytest.approx(expected))
    partly = np.array([np.nan] * 30 + [1.0, 1.0, 2.0, 2.0])
    assert karate.compare(partly)["compared"] == 4


def test_labels_are_matched_whatever_their_order_and_type() -> None:
    graph = gf.from_edges(["30", "4"], ["4", "100"])
    result = flat(graph, [0, 0, 1])
    by_label = dict(zip(graph.label_column().to_pylist(), "aab", strict=True))
    assert result.compare(by_label)["ari"] == 1.0
    assert result.compare({int(k): v for k, v in by_label.items()})["compared"] == 3


@pytest.mark.parametrize(
    ("truth", "told"),
    [
        ({}, "no community for any vertex of this graph"),
        ({99: 1}, "no community for any vertex of this graph"),
        ({"alice": 1}, "vertex labels have type"),
        ({1.5: 1}, "integers or strings"),
        ({0: [1]}, "hashable"),
        ([0, 1], "2 rows, the graph 34 vertices"),
        (None, "truth is None"),
        (3, "columns vertex and community"),
        ("file.csv", "columns vertex and community"),
        (pa.table({"node": [0], "community": [1]}), "no column 'vertex'; available: node, community"),
        (pa.table({"vertex": [0], "group": [1]}), "no column 'community'; available: vertex, group"),
        (pa.table({"vertex": [0, 0], "community": [1, 2]}), "several rows for vertex 0"),
        (pa.table({"vertex": [0, None], "community": [1, 2]}), "row 1 has no vertex label"),
    ],
)
def test_truth_that_says_nothing(karate: Communities, truth: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        karate.compare(truth)


def test_examples() -> None:
    for module in (divisions, agreement):
        found = doctest.testmod(module)
        assert (found.failed, found.attempted > 0) == (0, True)


# Files


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "arrow"])
def test_tables_are_written(karate: Communities, tmp_path: Path, suffix: str) -> None:
    levels = read_table(karate.write_hierarchy(tmp_path / f"levels.{suffix}"))
    assert levels.to_pylist() == karate.hierarchy.to_pylist()
    rows = read_table(karate.write_communities(tmp_path / f"communities.{suffix}")).to_pylist()
    expected = karate.describe().to_pylist()
    for row in expected if suffix == "csv" else ():
        row["central"] = ";".join(map(str, row["central"]))
    assert rows == expected
    with pytest.raises(InputError, match="suffix"):
        karate.write_communities(tmp_path / "communities.xls")
