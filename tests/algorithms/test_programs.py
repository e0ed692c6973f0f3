"""Every program against networkx or dense arithmetic on random graphs (docs/specs/engine.md, section 6)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from goffish.algorithms.catalogue import make
from goffish.algorithms.clustering.subgraph import CoreNumbers, GraphCounts, QuotientGraph, TriangleCount
from goffish.algorithms.components.subgraph import ConnectedComponents, MaxVertexValue, PartitionCentricComponents
from goffish.algorithms.pagerank.subgraph import BlockRank, PageRank
from goffish.algorithms.paths.subgraph import BreadthFirstSearch, SingleSourceShortestPath
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import run_program
from goffish.graph import from_edges
from tests.cases import Case, cases

FINDERS = st.sampled_from(("components", "single", "vertex"))
UNDIRECTED = ("grid", "random", "preferential", "tree", "small-world")


def components_of(graph: nx.Graph | nx.DiGraph) -> list[set[int]]:
    return list(nx.weakly_connected_components(graph) if graph.is_directed() else nx.connected_components(graph))


def quotient(layout: PartitionedGraph) -> nx.Graph:
    found = nx.Graph()
    found.add_nodes_from(range(layout.num_subgraphs))
    for part in layout.slices():
        source = part.subgraph_start + np.repeat(np.arange(part.num_subgraphs), np.diff(part.neighbor_offsets))
        found.add_edges_from(zip(source.tolist(), part.neighbor_subgraph.tolist(), strict=True))
    return found


def widest(graph: nx.Graph, starts: list[int]) -> int:
    """Largest eccentricity of the starts, each in its own component."""
    return max((max(nx.single_source_shortest_path_length(graph, s).values()) for s in starts), default=0)


@given(cases(), FINDERS)
def test_components_are_those_of_networkx_named_by_their_largest_vertex(case: Case, finder: str) -> None:
    layout = case.layout(finder)
    programs: list[Any] = [PartitionCentricComponents()] + ([ConnectedComponents()] if finder != "single" else [])
    wanted = {v: max(c) for c in components_of(case.nx) for v in c}
    for program in programs:
        assert run_program(program, layout).to_dict() == wanted


@given(cases())
def test_component_supersteps_follow_the_eccentricity_in_the_quotient_graph(case: Case) -> None:
    layout = case.layout()
    ids = layout.vertex_ids()
    subgraph = np.repeat(
        np.arange(layout.num_subgraphs),
        np.concatenate([np.diff(s.subgraph_offsets) for s in layout.slices()]) if layout.num_subgraphs else [],
    )
    of = dict(zip(ids.tolist(), subgraph.tolist(), strict=True))
    largest = [max(c) for c in components_of(case.nx)]
    stats = run_program(ConnectedComponents(), layout).stats
    assert stats is not None
    # Every subgraph sends in superstep 1, so a lone subgraph still takes 2: ecc + 2 exactly, as printed.
    assert stats.supersteps == widest(quotient(layout), [of[v] for v in largest]) + 2
    vertex = run_program(ConnectedComponents(), case.layout("vertex")).stats
    assert vertex is not None
    assert vertex.supersteps == widest(case.nx.to_undirected(), largest) + 2


@given(cases(), st.integers(0, 5))
def test_maximum_value_of_an_attribute(case: Case, seed: int) -> None:
    n = case.graph.num_vertices
    values = np.random.default_rng(seed).integers(-50, 50, n).astype(float)
    edges = np.array(case.nx.edges, np.int64).reshape(-1, 2)
    graph = from_edges(
        edges[:, 0], edges[:, 1], labels=np.arange(n), directed=case.nx.is_directed(),
        vertex_attributes={"height": values},
    )  # fmt: skip
    got = run_program(MaxVertexValue("height"), build_layout(graph, case.owner, case.k)).to_dict()
    assert got == {v: max(values[list(c)]) for c in components_of(case.nx) for v in c}


def test_maximum_value_is_exact_for_huge_labels_and_refuses_what_is_not_a_number() -> None:
    graph = from_edges([2**60, 2**60 + 1], [2**60 + 1, 2**60 + 2])
    table = run_program(MaxVertexValue(), build_layout(graph, np.array([0, 0, 1], np.int32), 2)).table
    assert table["value"].to_pylist() == [2**60 + 2] * 3
    for values in (["a", "b", "c"], [1.0, None, 2.0], [2**60, 1, 2]):
        named = from_edges([0, 1], [1, 2], vertex_attributes={"x": values})
        with pytest.raises(InputError, match="attribute 'x'"):
            run_program(MaxVertexValue("x"), build_layout(named, np.zeros(3, np.int32), 1))


def test_weights_that_add_up_to_infinity_are_refused_by_pagerank() -> None:
    graph = from_edges([0, 0, 1], [1, 2, 2], [1.7e308, 1.7e308, 1.0])
    with pytest.raises(InputError, match="scale all weights by the same factor"):
        run_program(PageRank(weighted=True), build_layout(graph, np.zeros(3, np.int32), 1))
    with pytest.raises(InputError, match="scale all weights by the same factor"):
        make("pagerank", {"weighted": True}).whole(graph, None)


def test_blockrank_is_limited_in_both_phases() -> None:
    graph, block = block_web(400, 1)
    layout = build_layout(graph, block.astype(np.int32), 20)
    stats = run_program(make("blockrank", {"max_iterations": 3, "tolerance": 1e-12}).program(layout), layout).stats
    assert stats is not None
    assert stats.supersteps <= 2 * 4 + 1


def fewest_remote_edges(case: Case, layout: PartitionedGraph, source: int) -> int:
    """c(s) of §4.3: over all vertices, the least number of remote edges on a shortest path."""
    import heapq

    best = {source: (0.0, 0)}
    heap = [(0.0, 0, source)]
    while heap:
        d, hops, v = heapq.heappop(heap)
        if (d, hops) > best[v]:
            continue
        for w, data in case.nx[v].items():
            found = (d + data["weight"], hops + int(case.owner[v] != case.owner[w]))
            if w not in best or found < best[w]:
                best[w] = found
                heapq.heappush(heap, (*found, w))
    return max(hops for _, hops in best.values())


def check_parents(case: Case, distance: dict[int, float], parent: dict[int, int | None], source: int) -> None:
    for v, p in parent.items():
        if v == source or not np.isfinite(distance[v]):
            assert p is None
        else:
            assert p is not None
            assert distance[p] + case.nx.edges[p, v]["weight"] == pytest.approx(distance[v], abs=1e-9)
    for v, d in distance.items():  # parents lead to the source: no cycle, also over edges of weight 0
        steps, at = 0, v
        while parent[at] is not None:
            at, steps = parent[at], steps + 1
            assert steps <= len(distance)
        assert at == source or not np.isfinite(d)


@given(cases(), FINDERS, st.integers(0, 10**6))
def test_distances_parents_and_supersteps_of_shortest_paths(case: Case, finder: str, pick: int) -> None:
    source = pick % case.graph.num_vertices
    layout = case.layout(finder)
    result = run_program(SingleSourceShortestPath(source), layout)
    wanted = nx.single_source_dijkstra_path_length(case.nx, source)
    distance = result.to_dict("distance")
    for v, d in distance.items():
        assert d == pytest.approx(wanted.get(v, np.inf), abs=1e-9)
    if "integer" in case.name:
        assert all(d == wanted.get(v, np.inf) for v, d in distance.items())
    check_parents(case, distance, result.to_dict("parent"), source)
    assert result.stats is not None
    if finder == "components" and "integer" in case.name:
        assert result.stats.supersteps <= fewest_remote_edges(case, layout, source) + 2


@given(cases(), FINDERS, st.integers(0, 10**6), st.sampled_from((None, 0, 1, 3)))
def test_hops_of_breadth_first_search(case: Case, finder: str, pick: int, limit: int | None) -> None:
    source = pick % case.graph.num_vertices
    result = run_program(BreadthFirstSearch(source, limit), case.layout(finder))
    wanted = nx.single_source_shortest_path_length(case.nx, source, cutoff=limit)
    distance, parent = result.to_dict("distance"), result.to_dict("parent")
    assert distance == {v: wanted.get(v) for v in range(case.graph.num_vertices)}
    for v, p in parent.items():
        if distance[v]:
            assert distance[p] == distance[v] - 1
            assert case.nx.has_edge(p, v)
        else:
            assert p is None


def power_iteration(case: Case, supersteps: int, weighted: bool, redistribute: bool) -> np.ndarray:
    """Dense PageRank, as many updates as supersteps less one."""
    n = case.graph.num_vertices
    matrix = np.zeros((n, n))
    for u, v, w in case.nx.edges(data="weight"):
        matrix[v, u] = w if weighted else 1.0
        if not case.nx.is_directed():
            matrix[u, v] = matrix[v, u]
    out = matrix.sum(axis=0)
    matrix = np.divide(matrix, out, where=out > 0, out=np.zeros_like(matrix))
    rank = np.full(n, 1.0 / n)
    for _ in range(supersteps - 1):
        lost = rank[out == 0].sum() if redistribute else 0.0
        rank = 0.15 / n + 0.85 * (matrix @ rank + lost / n)
    return rank


@given(cases(), FINDERS, st.integers(1, 30), st.booleans(), st.booleans())
def test_pagerank_with_fixed_supersteps(
    case: Case, finder: str, supersteps: int, weighted: bool, redistribute: bool
) -> None:
    program = PageRank(supersteps=supersteps, weighted=weighted, dangling="redistribute" if redistribute else "leak")
    result = run_program(program, case.layout(finder))
    assert result.stats is not None
    assert result.stats.supersteps == supersteps
    wanted = power_iteration(case, supersteps, weighted, redistribute)
    assert np.abs(result.table["rank"].to_numpy() - wanted).max() < 1e-12


@pytest.mark.slow
@given(cases(), FINDERS)
def test_converged_ranks_equal_networkx(case: Case, finder: str) -> None:
    wanted = nx.pagerank(case.nx, tol=1e-13, max_iter=2000, weight=None)
    personal = {0: 1.0, case.graph.num_vertices - 1: 3.0}
    personal_wanted = nx.pagerank(case.nx, personalization=personal, tol=1e-13, max_iter=2000, weight=None)
    layout = case.layout(finder)
    options: dict[str, Any] = {"supersteps": 3000, "tolerance": 1e-10, "dangling": "redistribute"}
    for program, reference in (
        (PageRank(**options), wanted),
        (BlockRank(**options), wanted),
        (PageRank(personalization=personal, **options), personal_wanted),
    ):
        rank = run_program(program, layout).to_dict()
        assert all(abs(rank[v] - reference[v]) < 1e-9 for v in reference)


@given(cases())
def test_blockrank_stays_within_ten_tolerances_of_converged_pagerank(case: Case) -> None:
    layout = case.layout()
    exact = run_program(PageRank(supersteps=3000, tolerance=1e-14), layout).table["rank"].to_numpy()
    got = run_program(BlockRank(tolerance=1e-4), layout).table["rank"].to_numpy()
    assert np.abs(got - exact).sum() < 10 * 1e-4


def block_web(cross: int, seed: int) -> tuple[Any, np.ndarray]:
    """A directed web of 20 unequal blocks with `cross` links between them (§4.7, the table)."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 150, 20)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    n = int(starts[-1])
    block = np.repeat(np.arange(20), sizes)
    ring = np.concatenate([np.roll(np.arange(a, b), -1) for a, b in pairwise(starts)])
    src, dst = [np.arange(n)], [ring]
    inside = rng.integers(0, n, 4 * n)
    # Preferential inside a block: a few pages get most links.
    near = starts[block[inside]] + (rng.random(4 * n) ** 3 * sizes[block[inside]]).astype(int)
    src += [inside, rng.integers(0, n, cross)]
    dst += [near, rng.integers(0, n, cross)]
    return from_edges(np.concatenate(src), np.concatenate(dst), directed=True, labels=np.arange(n)), block


@pytest.mark.parametrize("cross", [50, 400, 2000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_blockrank_start_is_no_worse_than_a_uniform_start(cross: int, seed: int) -> None:
    graph, block = block_web(cross, seed)
    layout = build_layout(graph, block.astype(np.int32), 20)
    program = BlockRank(local_tolerance=0.1, block_tolerance=1e-3, tolerance=10.0)
    table = run_program(program, layout).table
    start = table["local_rank"].to_numpy() * table["block_rank"].to_numpy()
    assert start.sum() == pytest.approx(1.0)
    n = graph.num_vertices
    src = graph.arc_sources()
    out = np.bincount(src, minlength=n)

    def sweeps(rank: np.ndarray, tolerance: float) -> int:
        for sweep in range(1, 500):
            new = 0.15 / n + 0.85 * np.bincount(graph.targets, rank[src] / out[src], n)
            change, rank = np.abs(new - rank).sum(), new
            if change < tolerance:
                return sweep
        raise AssertionError("no convergence")

    uniform = np.full(n, 1.0 / n)
    assert sweeps(start, 1e-3) <= sweeps(uniform, 1e-3)
    assert sweeps(start, 1e-6) <= sweeps(uniform, 1e-6)


@given(cases(families=UNDIRECTED), FINDERS)
def test_triangles_and_core_numbers(case: Case, finder: str) -> None:
    layout = case.layout(finder)
    triangles = run_program(TriangleCount(), layout)
    assert triangles.to_dict() == nx.triangles(case.nx)
    assert triangles.stats is not None
    assert triangles.stats.supersteps <= 4
    assert run_program(CoreNumbers(), layout).to_dict() == nx.core_number(case.nx)


@given(cases(families=("preferential", "small-world", "random")), FINDERS, st.integers(1, 40))
def test_triangles_asked_about_in_small_batches(case: Case, finder: str, batch_size: int) -> None:
    result = run_program(TriangleCount(batch_size), case.layout(finder))
    assert result.to_dict() == nx.triangles(case.nx)


@given(st.integers(2, 25), st.integers(0, 10_000), st.integers(1, 4))
def test_loops_and_parallel_edges_count_for_nothing_in_triangles_and_cores(n: int, seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, n, 4 * n), rng.integers(0, n, 4 * n)
    graph = from_edges(src, dst, labels=np.arange(n), self_loops="keep", parallel="keep")
    simple = nx.Graph([(u, v) for u, v in zip(src.tolist(), dst.tolist(), strict=True) if u != v])
    simple.add_nodes_from(range(n))
    layout = build_layout(graph, rng.integers(0, k, n), k)
    assert run_program(TriangleCount(), layout).to_dict() == nx.triangles(simple)
    assert run_program(CoreNumbers(), layout).to_dict() == nx.core_number(simple)


@given(cases())
def test_counts_and_quotient_graph(case: Case) -> None:
    layout = case.layout()
    table = run_program(GraphCounts(), layout).table
    arcs = case.graph.num_arcs
    assert sum(table["vertices"].to_pylist()) == case.graph.num_vertices
    assert sum(table["arcs"].to_pylist()) == arcs
    cut = sum(int(case.owner[u] != case.owner[v]) for u, v in case.nx.edges)
    assert sum(table["remote_arcs"].to_pylist()) == (cut if case.nx.is_directed() else 2 * cut)
    rows = run_program(QuotientGraph(), layout).table
    assert sum(rows["links"].to_pylist()) == 2 * cut
    pairs = set(zip(rows["subgraph"].to_pylist(), rows["neighbor"].to_pylist(), strict=True))
    assert pairs == {(a, b) for u, v in quotient(layout).edges for a, b in ((u, v), (v, u))}


@given(cases(), st.integers(0, 10**6))
def test_hop_counts(case: Case, pick: int) -> None:
    source = pick % case.graph.num_vertices
    job = make("hops", {"source": source})
    layout = case.layout()
    result = run_program(job.program(layout), layout)
    assert result.stats is not None
    table, summary = job.finish(result.table, result.stats)
    wanted = list(nx.single_source_shortest_path_length(case.nx, source).values())
    assert table.to_pydict() == {"hops": sorted(set(wanted)), "vertices": np.bincount(wanted).tolist()}
    assert summary["reached"] == len(wanted)


@given(cases())
def test_engine_and_whole_graph_answers_agree(case: Case) -> None:
    import goffish

    assume(case.graph.num_vertices > 0)
    layout = case.layout()
    for name, options in (("components", {}), ("bfs", {"source": 0}), ("sssp", {"source": 0}), ("pagerank", {})):
        whole = goffish.run(name, case.graph, **options)
        engine = goffish.run(name, layout, **options)
        value = whole.table.column_names[1]
        a, b = whole.table[value].to_pylist(), engine.table[value].to_pylist()
        assert a == pytest.approx(b, abs=2e-6), name
        if name == "pagerank":
            # Both prove the bound that was asked for, by different methods.
            assert set(whole.summary) == set(engine.summary) - {"supersteps"}
            assert max(whole.summary["error_bound"], engine.summary["error_bound"]) <= 1e-6
        shared = set(engine.summary) - {"supersteps", "iterations", "error_bound"}
        assert {n: whole.summary[n] for n in shared} == pytest.approx({n: engine.summary[n] for n in shared})
    if not case.nx.is_directed():
        for name in ("triangles", "cores"):
            whole, engine = goffish.run(name, case.graph), goffish.run(name, layout)
            assert whole.to_dict() == engine.to_dict()
            assert {n: whole.summary[n] for n in engine.summary if n != "supersteps"}.items() <= engine.summary.items()
