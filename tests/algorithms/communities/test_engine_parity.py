"""What Louvain accepts in memory, it accepts on an engine: warm starts, fixed vertices, directed modularity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.communities.subgraph import program
from goffish.errors import InputError
from goffish.gofs import build_layout
from tests.algorithms.communities.louvain_cases import dense_modularity, planted, random_graph, to_graph

SEEDS = st.integers(0, 10_000)


def cut(graph: gf.Graph, k: int, seed: int) -> gf.PartitionedGraph:
    owner = np.random.default_rng(seed).integers(0, k, graph.num_vertices)
    return build_layout(graph, owner.astype(np.int32), k)


def by_formula(graph: nx.Graph, community: Any, resolution: float) -> float:
    """Newman's or Leicht and Newman's modularity, from the matrix."""
    label = np.asarray(community)
    matrix = nx.to_numpy_array(graph)
    if not graph.is_directed():
        matrix[np.diag_indices_from(matrix)] *= 2.0
        return dense_modularity(matrix, label) if resolution == 1.0 else np.nan
    total = matrix.sum()
    same = label[:, None] == label[None, :]
    expected = np.outer(matrix.sum(1), matrix.sum(0)) * (resolution / total) if total else 0.0
    return float(((matrix - expected) * same).sum() / total) if total else 0.0


@given(st.integers(1, 30), st.integers(0, 120), st.integers(1, 5), SEEDS, st.data())
@settings(max_examples=12)
def test_directed_modularity_is_maximized_and_reported(
    n: int, edges: int, k: int, seed: int, data: st.DataObject
) -> None:
    """On any parts, with and without rounds, loops and weights 0."""
    graph = random_graph(n, edges, seed, directed=True)
    refine = data.draw(st.sampled_from(["vertices", "leiden", "none"]))
    levels = data.draw(st.sampled_from([None, 1, 2]))
    resolution = data.draw(st.sampled_from([1.0, 0.7]))
    model = data.draw(st.sampled_from(["local", "global"]))
    parts = cut(to_graph(graph), k, seed)
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(program, "MOST_ROWS", -1)
        found = gf.louvain(parts, refine=refine, max_levels=levels, resolution=resolution, null_model=model)
    assert found.modularity == pytest.approx(by_formula(graph, found.membership, resolution), abs=1e-9)
    assert found.modularity == pytest.approx(gf.modularity(to_graph(graph), found.membership, resolution), abs=1e-9)
    if levels == 1:
        assert found.num_levels == 1


def two_way_groups() -> gf.Graph:
    """Two groups with as many arcs between them as inside, all from the first to the second."""
    rng = np.random.default_rng(4)
    one, other = np.arange(60), np.arange(60, 120)
    inside = [(u, v) for group in (one, other) for u in group for v in rng.choice(group, 6) if u != v]
    between = [(u, v) for u in one for v in rng.choice(other, 7)]
    src, dst = np.unique(np.array(inside + between), axis=0).T
    return gf.from_edges(src, dst, labels=np.arange(120), directed=True)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_directions_count_on_engines_as_in_memory(parts: int) -> None:
    """Where A and A + Aᵀ have different best divisions, an engine finds that of A."""
    graph = two_way_groups()
    whole = gf.louvain(graph).modularity
    found = gf.louvain(graph, parts=parts)
    symmetric = gf.louvain(graph.to_undirected())
    assert found.modularity >= whole - 0.01
    assert found.modularity > gf.modularity(graph, symmetric.membership) + 0.01
    assert found.at_level(1).modularity <= found.modularity + 1e-12


@given(st.integers(1, 30), st.integers(0, 90), st.integers(1, 5), SEEDS, st.data())
@settings(max_examples=12)
def test_fixed_vertices_stay_on_engines(n: int, edges: int, k: int, seed: int, data: st.DataObject) -> None:
    graph = to_graph(random_graph(n, edges, seed, directed=data.draw(st.booleans())))
    held = data.draw(st.dictionaries(st.integers(0, n - 1), st.sampled_from(["a", "b"]), max_size=6))
    refine = data.draw(st.sampled_from(["vertices", "leiden", "none"]))
    found = gf.louvain(cut(graph, k, seed), fixed=held, refine=refine)
    community = found.to_dict()
    for u in held:
        for v in held:
            assert (community[u] == community[v]) == (held[u] == held[v])
    assert found.modularity == pytest.approx(gf.modularity(graph, found.membership), abs=1e-9)


@given(st.integers(1, 30), st.integers(0, 90), st.integers(1, 5), SEEDS, st.booleans())
@settings(max_examples=12)
def test_a_warm_start_never_ends_below_where_it_began(n: int, edges: int, k: int, seed: int, directed: bool) -> None:
    """Any start, good or bad; isolated vertices are alone afterwards, wherever they started."""
    graph = to_graph(random_graph(n, edges, seed, directed=directed))
    rng = np.random.default_rng(seed)
    start = rng.integers(0, max(1, n // 3), n)
    fixed = np.flatnonzero(rng.random(n) < 0.2).tolist()
    found = gf.louvain(cut(graph, k, seed), initial=start, fixed=fixed)
    assert found.modularity >= gf.modularity(graph, start) - 1e-9
    community = found.membership
    for u in fixed:
        for v in fixed:
            assert (community[u] == community[v]) == (start[u] == start[v])
    back = graph.reverse.out_degrees if graph.directed else 0
    lonely = np.flatnonzero(graph.out_degrees + back == 0)
    for v in set(lonely.tolist()) - set(fixed):
        assert (community == community[v]).sum() == 1


@pytest.mark.parametrize("parts", [2, *(pytest.param(parts, marks=pytest.mark.slow) for parts in (1, 3, 5))])
def test_a_warm_start_keeps_ids_and_moves_what_is_misplaced(parts: int) -> None:
    """As in memory: the answer of a search is a fixed point, and single misplaced vertices go home."""
    graph = planted(1500, 0.2, (20, 50), (6, 20), 7)
    before = gf.louvain(graph)
    names = {v: 3 * c + 100 for v, c in before.to_dict().items()}
    misplaced = {v: names[(v + 700) % 1500] for v in (17, 503, 1188)}
    store = gf.partition(graph, parts=parts, method="hash")
    found = gf.louvain(store, initial=names | misplaced)
    same = np.mean([found.to_dict()[v] == names[v] for v in range(1500)])
    assert same > 0.98
    assert found.modularity >= before.modularity - 1e-3
    assert {v: found.to_dict()[v] for v in misplaced} == {v: names[v] for v in misplaced}
    kept = gf.louvain(store, initial=names | misplaced, fixed=list(misplaced)).to_dict()
    assert {v: kept[v] for v in misplaced} == misplaced
    assert found.table.equals(gf.louvain(store, initial=names | misplaced, threads=1).table)


def test_starts_from_files_and_labels_of_text(tmp_path: Path) -> None:
    """The command line gives tables by their files; a store has its labels in partitions."""
    ring = nx.relabel_nodes(nx.ring_of_cliques(4, 5), {v: f"v{v}" for v in range(20)})
    graph = gf.from_networkx(ring)
    labels = graph.label_column().to_pylist()
    start = {label: int(label[1:]) // 5 for label in labels}
    table = pa.table({"vertex": labels, "community": [start[label] + 7 for label in labels]})
    gf.gopher.result.write_table(table, tmp_path / "start.parquet")
    store = gf.partition(graph, parts=3).save(tmp_path / "ring.store")
    found = gf.run("louvain", gf.open(tmp_path / "ring.store"), initial=str(tmp_path / "start.parquet"))
    assert found.to_dict() == {label: start[label] + 7 for label in labels}
    held = gf.run("louvain", store, fixed={"v0": 0, "v1": 1})
    assert held.to_dict()["v0"] != held.to_dict()["v1"]


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    graph = gf.from_networkx(nx.ring_of_cliques(4, 5))
    store = gf.partition(graph, parts=2)
    for options, problem in (
        ({"fixed": {99: 1}}, "unknown vertex 99"),
        ({"fixed": [3], "initial": {0: 1}}, "vertex 3 has no community in initial"),
        ({"fixed": [3]}, "vertex 3 has no community in initial"),
        ({"initial": [0, 1]}, "initial has 2 rows, the graph 20 vertices"),
        ({"initial": {"a": 1}}, "initial: vertex labels have type string, those of the graph int64"),
        ({"initial": {0: 1}, "variant": "partitioned"}, "initial requires variant='default'"),
        ({"fixed": {0: 1}, "variant": "sequential"}, "fixed requires variant='default'"),
    ):
        for given_graph in (graph, store):
            with pytest.raises(InputError, match=problem) as raised:
                gf.louvain(given_graph, **options)  # type: ignore[arg-type]
            assert "\n" not in str(raised.value)


def test_a_run_with_a_start_resumes_and_refuses_another_start(tmp_path: Path) -> None:
    graph = planted(300, 0.2, (20, 40), (5, 15), 3)
    start = np.arange(300) % 7
    store = gf.partition(graph, parts=3)
    wanted = gf.louvain(store, initial=start)
    with pytest.raises(gf.JobError, match="not finished"):
        gf.louvain(store, initial=start, max_supersteps=3, checkpoint_dir=tmp_path, checkpoint_every=1)
    with pytest.raises(gf.GoffishError, match="start"):
        gf.louvain(store, initial=start % 5, checkpoint_dir=tmp_path, resume=True)
    again = gf.louvain(store, initial=start, checkpoint_dir=tmp_path, resume=True)
    assert again.table.equals(wanted.table)


@pytest.mark.slow
def test_passes_and_blocks_are_followed_on_engines() -> None:
    graph = planted(12_000, 0.4, (20, 100), (9, 40), 2)
    store = gf.partition(graph, parts=2)
    usual = gf.louvain(store, seed=3)
    assert not gf.louvain(store, seed=3, max_passes=1).table.equals(usual.table)
    many = gf.louvain(store, seed=3, blocks=4)
    assert many.modularity == pytest.approx(usual.modularity, abs=0.01)
