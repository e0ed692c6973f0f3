"""The partitioned betweenness as a program of the engine: units, directions, checkpoints, options."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.betweenness.subgraph.program import PartitionedBetweenness
from goffish.algorithms.betweenness.subgraph.steps import Compression
from goffish.errors import InputError, JobError
from goffish.gofs import build_layout
from goffish.gopher import run_program
from goffish.graph import Graph, from_edges
from goffish.partition.cut import partition_graph
from tests.algorithms.betweenness.engine_cases import (
    Case,
    brandes,
    cases,
    cut,
    figure,
    make_graph,
    run,
    to_graph,
    values,
)
from tests.cases import no_graph_is_small


@pytest.mark.slow
@given(cases(largest=40, directed=True), st.sampled_from((9, 40)))
@settings(max_examples=20)
def test_directed_graphs(case: Case, concurrent: int) -> None:
    """Ordered pairs are not halved, and leaves stay, whatever is said about compression."""
    wanted = brandes(case.graph())
    for compression in ("none", "exact"):
        found = run(case.layout(), max_concurrent=concurrent, compression=compression)
        np.testing.assert_allclose(values(found), wanted, rtol=1e-9, atol=1e-8)
        assert figure(found, "removed_edges") == 0


@given(cases(largest=24), st.booleans())
@settings(max_examples=20)
@pytest.mark.slow
def test_units_threads_and_concurrency_do_not_change_the_answer(case: Case, directed: bool) -> None:
    graph = make_graph(case.family, case.n, case.seed, weighted=case.weighted, directed=directed)
    first = run(cut(graph, case.parts, case.k, case.seed), threads=1, max_concurrent=7).table
    for finder, threads, concurrent in (("components", 3, 5), ("single", 2, 24), ("vertex", 2, 10)):
        layout = cut(graph, case.parts, case.k, case.seed, finder)
        with no_graph_is_small():
            assert run(layout, threads=threads, max_concurrent=concurrent).table.equals(first)


def test_every_vertex_a_unit_takes_a_superstep_per_hop() -> None:
    """Check 20's baseline: on a path of 12 in two halves, one crossing against eleven."""
    graph = nx.path_graph(12)
    for finder, hops in (("components", 1), ("vertex", 11)):
        found = run(cut(graph, "contiguous", 2, 0, finder), sources=[0], compression="none")
        assert figure(found, "hops_max") == hops
        assert figure(found, "path_supersteps") == figure(found, "dependency_supersteps") == hops + 1


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "none", "max_concurrent": 7},
        {"compression": "exact"},
        {"compression": "exact", "top": 5, "batch": 5, "stable": 2, "max_concurrent": 5},
        {"compression": "drop", "pivots_from": "core", "pivots": 6},
    ],
)
def test_a_run_goes_on_from_every_checkpoint(tmp_path: Path, options: dict[str, Any], directed: bool) -> None:
    if directed and options["compression"] == "drop":
        options = {**options, "compression": "none", "pivots_from": "all"}
    layout = cut(make_graph("tails", 16, 5, weighted=True, directed=directed), "scattered", 3, 1)
    wanted = run_program(PartitionedBetweenness(**options), layout)
    assert wanted.stats is not None
    last = wanted.stats.supersteps
    for stop in sorted({1, 2, *range(3, last, max(1, last // 4)), last - 1}):
        folder = tmp_path / str(stop)
        with pytest.raises(JobError, match="not finished"):
            run_program(
                PartitionedBetweenness(**options), layout, max_supersteps=stop, checkpoint_dir=folder,
                checkpoint_every=stop,
            )  # fmt: skip
        again = run_program(PartitionedBetweenness(**options), layout, checkpoint_dir=folder, resume=True)
        assert again.table.equals(wanted.table)
        assert again.stats is not None
        assert again.stats.aggregates == wanted.stats.aggregates


def test_a_program_may_run_again_on_another_graph() -> None:
    program = PartitionedBetweenness()
    for seed in (1, 2, 1):
        graph = make_graph("tails", 30, seed)
        found = run(cut(graph, "scattered", 3, seed), program)
        np.testing.assert_allclose(values(found), brandes(graph), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@given(cases(largest=40), st.integers(1, 50), st.integers(0, 50))
@settings(max_examples=20)
def test_estimates_are_scaled_sums_over_the_pivots(case: Case, pivots: int, seed: int) -> None:
    """Equation (7), with dependencies from networkx for the pivots that the seed draws."""
    graph = case.graph()
    n = graph.number_of_nodes()
    rank = np.random.default_rng(seed).permutation(n)
    drawn = np.flatnonzero(rank < pivots).tolist()
    found = run(case.layout(), pivots=pivots, seed=seed, compression="none", max_concurrent=60)
    assert figure(found, "pivots") == figure(found, "searches") == len(drawn)
    weight = "weight" if case.weighted and graph.number_of_edges() else None
    # Halved for unordered pairs there as here.
    sums = nx.betweenness_centrality_subset(graph, drawn, list(graph), weight=weight)
    wanted = np.array([sums[v] for v in range(n)]) * n / len(drawn)
    np.testing.assert_allclose(values(found), wanted, rtol=1e-9, atol=1e-8)
    listed = sorted(drawn, key=lambda v: rank[v])
    unscaled = values(run(case.layout(), sources=listed, compression="none", max_concurrent=60))
    np.testing.assert_allclose(unscaled * n / len(drawn), values(found), rtol=1e-12)


@given(cases(largest=30), st.booleans(), st.integers(0, 2**30 - 1), st.sampled_from(("none", "exact")))
@pytest.mark.slow
def test_sources_are_not_a_sample(case: Case, directed: bool, chosen: int, compression: Compression) -> None:
    """Paths from the sources to all vertices count once, on a store as in networkx and in memory; nothing is scaled."""
    case = replace(case, directed=directed)
    graph = case.graph()
    n = graph.number_of_nodes()
    sources = [v for v in range(n) if chosen >> v & 1]
    weight = "weight" if case.weighted and graph.number_of_edges() else None
    wanted = nx.betweenness_centrality_subset(graph, sources, list(graph), weight=weight)
    layout = case.layout()
    found = values(run(layout, sources=sources, compression=compression, max_concurrent=30))
    np.testing.assert_allclose(found, [wanted[v] for v in range(n)], rtol=1e-9, atol=1e-9)
    memory, store = (gf.betweenness(given, sources=sources).table for given in (to_graph(graph), layout))
    np.testing.assert_allclose(store["betweenness"], memory["betweenness"], rtol=1e-9, atol=1e-9)
    if sources:
        top = gf.betweenness(layout, sources=[*sources, sources[0]], top=n, stable=10**6, batch=3).to_dict()
        np.testing.assert_allclose([top[v] for v in range(n)], found, rtol=1e-9, atol=1e-9)


def test_sources_on_a_path() -> None:
    path = gf.from_edges([0, 1, 2, 3], [1, 2, 3, 4])
    for way in (path, gf.partition(path, 2, "range")):
        assert gf.betweenness(way, sources=[0]).to_dict() == {0: 0.0, 1: 1.5, 2: 1.0, 3: 0.5, 4: 0.0}


def test_estimates_from_sources_are_compared_with_the_paths_from_them() -> None:
    graph = make_graph("tails", 40, 3)
    found = gf.betweenness(cut(graph, "metis", 2, 0), sources=[1, 5, 9], compare=True).summary
    assert found["largest_error"] == pytest.approx(0.0, abs=1e-9)


@given(cases(families=("tails", "forest", "random", "preferential")))
@settings(max_examples=15)
@pytest.mark.slow
def test_dropped_leaves_are_dropped(case: Case) -> None:
    """As published: the answer is that of the 2-core, everything else is 0."""
    graph = case.graph()
    n = graph.number_of_nodes()
    core = nx.k_core(graph, 2)
    weight = "weight" if case.weighted and core.number_of_edges() else None
    inside = nx.betweenness_centrality(core, normalized=False, weight=weight)
    wanted = np.array([inside.get(v, 0.0) for v in range(n)])
    for pivots_from, population in (("all", n), ("core", None)):
        found = run(case.layout(), compression="drop", pivots_from=pivots_from, max_concurrent=60)
        np.testing.assert_allclose(values(found), wanted, rtol=1e-9, atol=1e-8)
        wanted_searches = population or n - int(figure(found, "removed_vertices"))
        assert figure(found, "pivots") == figure(found, "searches") == wanted_searches


def test_removed_vertices_are_searched_from_once_for_all() -> None:
    graph = make_graph("tails", 200, 1)
    core = len(nx.k_core(graph, 2))
    assert core < 150
    found = run(cut(graph, "scattered", 3, 0))
    assert figure(found, "pivots") == 200
    assert figure(found, "searches") == core


@pytest.mark.slow
def test_figures_of_a_run() -> None:
    graph = make_graph("grid", 60, 0)
    layout = cut(graph, "metis", 3, 0)
    found = run(layout, compression="none")
    owner = layout.owner()
    ends = np.array([(owner[u], owner[v]) for u, v in graph.edges])
    assert figure(found, "arcs") == 2 * len(ends)
    assert figure(found, "cut_arcs") == 2 * (ends[:, 0] != ends[:, 1]).sum()
    assert figure(found, "most_arcs") == np.bincount(ends.ravel()).max()
    assert figure(found, "rounds") == -(-graph.number_of_nodes() // 3)
    alone = run(layout, compression="none", max_concurrent=1)
    assert figure(alone, "rounds") == graph.number_of_nodes()
    for name in ("succ", "paths", "dep", "hops_mean", "hops_max", "cut_mean", "cut_max"):
        assert figure(alone, name) == pytest.approx(figure(found, name))
    assert found.stats is not None
    assert found.stats.busy_per_partition().size == 3


def test_labels_as_sources_and_graphs_without_edges() -> None:
    graph = from_edges(np.array(["a", "b"]), np.array(["b", "c"]))
    layout = build_layout(graph, np.array([0, 1, 0], np.int32), 3)
    assert run(layout, sources=["a", "b", "c"]).table.to_pydict()["betweenness"] == [0, 1, 0]
    for wrong in (["a", "x"], [1]):
        with pytest.raises(JobError, match=r"sources: 1 of \d are not vertices"):
            run(layout, sources=wrong)
    for n in (0, 1, 4):
        for options in ({}, {"top": 2}, {"compression": "none"}, {"compression": "drop"}, {"pivots": 1}):
            empty = build_layout(to_graph(nx.empty_graph(n)), np.zeros(n, np.int32), 2)
            assert values(run(empty, **options)).tolist() == [0.0] * n if n else True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": "both"}, "compression='both': choose one of exact, drop, none"),
        ({"pivots_from": "leaves"}, "pivots_from='leaves': choose one of all, core"),
        ({"pivots_from": "core"}, "requires compression='drop'"),
        ({"pivots_from": "core", "compression": "drop", "sources": [1]}, "requires compression='drop' and no sources"),
        ({"pivots": 0}, "pivots=0"),
        ({"pivots": 3, "sources": [1]}, "pivots and sources are mutually exclusive"),
        ({"sources": [1, 1]}, "each vertex label may occur only once"),
        ({"top": 0}, "top=0"),
        ({"batch": 0}, "batch=0"),
        ({"stable": 0}, "stable=0"),
        ({"max_change": -1}, "max_change=-1"),
        ({"max_concurrent": 0}, "max_concurrent=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        PartitionedBetweenness(**options)


def test_dropping_leaves_of_a_directed_graph() -> None:
    layout = cut(make_graph("tails", 20, 1, directed=True), "scattered", 2, 1)
    with pytest.raises(InputError, match="compression='drop' requires an undirected graph"):
        run(layout, compression="drop")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"compression": "drop"}, {"top": 5, "batch": 8}])
def test_a_time_limit_gives_an_estimate_that_going_on_makes_whole(tmp_path: Path, options: dict[str, Any]) -> None:
    layout = cut(make_graph("preferential", 60, 3, weighted=True, directed=False), "random", 3, 0)
    whole = run(layout, **options)
    part = run_program(
        PartitionedBetweenness(**options, time_limit=0.0), layout, checkpoint_dir=tmp_path, checkpoint_every=8
    )
    drawn = figure(part, "pivots")
    assert 0 < drawn < figure(whole, "pivots")
    assert figure(part, "rounds") == 1
    # The same as an estimate from that many pivots, where a pivot is a search.
    if options.get("compression") == "none":
        assert part.table.equals(run(layout, pivots=int(drawn), **options).table)
    on = run_program(PartitionedBetweenness(**options), layout, checkpoint_dir=tmp_path, resume=True)
    assert on.table.equals(whole.table)


@pytest.mark.slow
def test_an_estimate_after_a_time_limit_counts_the_pivots_of_trees() -> None:
    # Sources come in the order in which trees are first drawn: over many orders their mean is near the exact values.
    graph = nx.disjoint_union(nx.star_graph(12), nx.cycle_graph(20))
    graph.add_edge(0, 14)
    layout = cut(graph, "contiguous", 2, 0)
    wanted = brandes(graph)
    found = [values(run(layout, time_limit=0.0, max_concurrent=8, seed=seed)) for seed in range(60)]
    assert np.abs(np.mean(found, axis=0) - wanted).sum() < 0.1 * wanted.sum()


@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"compression": "drop"}, {"pivots": 9}])
@pytest.mark.slow
def test_those_who_wait_are_told_what_share_is_done(options: dict[str, Any]) -> None:
    shares: list[float | None] = []
    layout = cut(make_graph("tails", 60, 3), "random", 3, 0)
    program = PartitionedBetweenness(**options)
    found = run_program(program, layout, progress=lambda number, active, messages, share: shares.append(share))
    assert found.stats is not None
    assert len(shares) == found.stats.supersteps
    told = [share for share in shares if share is not None]
    assert told == sorted(told)
    assert len(set(told)) > 2
    assert told[0] == 0.0
    assert 0.5 < told[-1] <= 1.0


def diamonds(count: int, directed: bool) -> Graph:
    """A chain of diamonds, with 2^count shortest paths between its ends."""
    first = 3 * np.arange(count)
    src, dst = np.concatenate((first, first, first + 1, first + 2)), np.concatenate([first + i for i in (1, 2, 3, 3)])
    return from_edges(src, dst, directed=directed)


def exact_dependencies(graph: Graph, source: int) -> list[Fraction]:
    """Brandes' recursion in rational arithmetic."""
    rows = [graph.targets[a:b].tolist() for a, b in pairwise(graph.offsets.tolist())]
    level, paths, order = {source: 0}, {source: Fraction(1)}, [source]
    for u in order:
        for v in rows[u]:
            if v not in level:
                level[v], paths[v] = level[u] + 1, Fraction(0)
                order.append(v)
            if level[v] == level[u] + 1:
                paths[v] += paths[u]
    found = dict.fromkeys(range(graph.num_vertices), Fraction(0))
    for u in reversed(order):
        below = [v for v in rows[u] if level[v] == level[u] + 1]
        found[u] = sum((paths[u] / paths[v] * (1 + found[v]) for v in below), Fraction(0))
    found[source] = Fraction(0)
    return list(found.values())


@pytest.mark.parametrize("directed", [False, True])
def test_more_paths_than_a_float_can_count(directed: bool) -> None:
    graph = diamonds(1100, directed)
    wanted = [float(value) for value in exact_dependencies(graph, 0)]
    found = run(partition_graph(graph, 3, "range"), sources=[0, 5], threads=2).table["betweenness"].to_numpy()
    other = [float(value) for value in exact_dependencies(graph, 5)]
    factor = 1.0 if directed else 0.5
    np.testing.assert_allclose(found, factor * (np.array(wanted) + other), rtol=1e-11, atol=1e-8)
