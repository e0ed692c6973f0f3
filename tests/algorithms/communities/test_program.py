"""The partitioned Louvain on the engine (docs/specs/communities.md, sections 3.3, 3.4, 3.7 and 7)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.communities.levels import Level
from goffish.algorithms.communities.sequential import sequential_louvain
from goffish.algorithms.communities.subgraph import master, rounds
from goffish.algorithms.communities.subgraph.messages import Kind
from goffish.algorithms.communities.subgraph.program import PartitionedLouvain
from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.gopher import Result, run_program
from goffish.graph import Graph, from_edges
from tests.algorithms.communities.louvain_cases import (
    cliques,
    dense,
    lfr,
    nx_modularity,
    planted,
    random_graph,
    to_graph,
    to_nx,
)
from tests.cases import no_graph_is_small

SEEDS = st.integers(0, 10_000)
PAPER: dict[str, Any] = {"repair_rounds": 0, "refine": False}
VARIANTS: tuple[dict[str, Any], ...] = (
    PAPER,
    {"repair_rounds": 3, "refine": False},
    {"repair_rounds": 2, "refine": True},
    {"repair_rounds": 2, "refine": True, "connected": True},
    {"repair_rounds": 2, "refine": False, "connected": True},
    {**PAPER, "connected": True},
)


def run(
    graph: Graph, owner: np.ndarray, k: int, finder: str = "components", threads: int = 2, **options: Any
) -> Result:
    layout = build_layout(graph, owner.astype(np.int32), k, finder=finder)  # type: ignore[arg-type]
    return run_program(PartitionedLouvain(**options), layout, threads=threads)


def figure(result: Result, name: str) -> float:
    assert result.stats is not None
    return float(result.stats.aggregates[name])


def labels(result: Result) -> np.ndarray:
    found: np.ndarray = result.table["community"].to_numpy()
    return found


def check(result: Result, graph: nx.Graph, resolution: float = 1.0) -> None:
    """Checks 5 and 9 of a result: contiguous nested levels, the modularity that is claimed, whole communities."""
    n = graph.number_of_nodes()
    found = [name for name in result.table.column_names if name.startswith("level_")]
    columns = [result.table[name].to_numpy() for name in found]
    assert found == [f"level_{i}" for i in range(1, len(found) + 1)]
    assert len(found) == (figure(result, "levels") if n else 0)
    for column in columns:
        assert np.array_equal(np.unique(column), np.arange(column.max() + 1))
    for fine, coarse in itertools.pairwise(columns):
        assert np.unique(np.stack((fine, coarse)), axis=1).shape[1] == fine.max() + 1
    assert np.array_equal(columns[-1], labels(result))
    assert abs(figure(result, "modularity") - nx_modularity(graph, labels(result), resolution)) < 1e-9
    for part in nx.connected_components(graph):
        members = np.fromiter(part, int)
        assert not np.isin(labels(result)[np.setdiff1d(np.arange(n), members)], labels(result)[members]).any()


@given(st.integers(1, 40), st.integers(0, 120), st.integers(1, 6), SEEDS, st.sampled_from(VARIANTS), st.booleans())
def test_every_variant_gives_what_it_claims(
    n: int, edges: int, k: int, seed: int, options: dict[str, Any], weighted: bool
) -> None:
    graph = random_graph(n, edges, seed, weighted=weighted)
    owner = np.random.default_rng(seed).integers(0, k, n)
    result = run(to_graph(graph, weighted=weighted), owner, k, seed=seed, **options)
    check(result, graph)
    if options.get("connected"):
        strong = nx.Graph((u, v) for u, v, w in graph.edges(data="weight") if w >= 0)
        strong.add_nodes_from(graph)
        for c in np.unique(labels(result)):
            assert nx.is_connected(strong.subgraph(np.flatnonzero(labels(result) == c).tolist()))


@given(
    st.integers(1, 40), st.integers(0, 120), SEEDS, st.sampled_from(("components", "single", "vertex")), st.booleans()
)
def test_one_partition_equals_the_sequential_method_bit_for_bit(
    n: int, edges: int, seed: int, finder: str, directed: bool
) -> None:
    """Check 3, with weights that do not add up exactly."""
    graph = random_graph(n, edges, seed, directed=directed)
    for _, _, data in graph.edges(data=True):
        data["weight"] /= 7.0
    found = to_graph(graph)
    for order in ("random", "descending"):
        wanted = sequential_louvain(found, seed=seed, order=order)
        got = run(found, np.zeros(n), 1, finder, seed=seed, order=order, **PAPER)
        assert np.array_equal(labels(got), wanted.membership)
        assert figure(got, "modularity") == wanted.modularity[-1]
        assert figure(got, "levels") == len(wanted.maps)


@given(st.integers(1, 30), st.integers(0, 90), st.integers(1, 5), SEEDS, st.sampled_from(VARIANTS))
@settings(max_examples=30)
@pytest.mark.slow
def test_units_and_threads_do_not_change_the_answer(
    n: int, edges: int, k: int, seed: int, options: dict[str, Any]
) -> None:
    """Check 7; the engine hands out inboxes in one order whatever the order of arrival."""
    graph = to_graph(random_graph(n, edges, seed))
    owner = np.random.default_rng(seed).integers(0, k, n)
    first = run(graph, owner, k, seed=seed, threads=1, **options).table
    for finder, threads in (("components", 3), ("single", 2), ("vertex", 2)):
        with no_graph_is_small():
            assert run(graph, owner, k, finder, threads, seed=seed, **options).table.equals(first)


@given(
    st.integers(1, 30), st.integers(0, 90), st.integers(1, 5), SEEDS,
    st.sampled_from([options for options in VARIANTS if not options["refine"]]),
)  # fmt: skip
@settings(max_examples=30)
def test_the_published_variants_analyse_directed_graphs_as_the_sum_of_both_directions(
    n: int, edges: int, k: int, seed: int, options: dict[str, Any]
) -> None:
    graph = random_graph(n, edges, seed, directed=True)
    both = nx.Graph()
    both.add_nodes_from(graph)
    for u, v, weight in graph.edges(data="weight"):
        before = both.get_edge_data(u, v, {"weight": 0.0})["weight"]
        both.add_edge(u, v, weight=before + weight)
    owner = np.random.default_rng(seed).integers(0, k, n)
    check(run(to_graph(graph), owner, k, **options), both)


@pytest.mark.parametrize("kind", ["metis", "random"])
@pytest.mark.parametrize("k", [1, 2, 3, 8, 60])
@pytest.mark.slow
def test_merge_invariants(kind: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check 4, for P in {1, 2, 3, 8, n}."""
    merged: list[tuple[np.ndarray, Level]] = []
    original = master.merge_rows
    monkeypatch.setattr(master, "merge_rows", lambda *rows: merged.append(original(*rows)) or merged[-1])
    for seed in range(3):
        graph = random_graph(60, 200, seed)
        found = to_graph(graph)
        owner = (
            np.random.default_rng(seed).integers(0, k, 60)
            if kind == "random"
            else gf.partition(found, k, "metis").owner()
        )
        result = run(found, owner, k, seed=seed, **PAPER)
        names, small = merged.pop()
        matrix = dense(small)
        assert matrix.sum() == pytest.approx(nx.to_numpy_array(graph).sum() + sum(
            w for u, v, w in graph.edges(data="weight") if u == v
        ))  # fmt: skip
        assert np.array_equal(matrix, matrix.T)
        level = result.table["level_1"].to_numpy()
        assert abs(small.modularity(1.0) - nx_modularity(graph, level)) < 1e-9
        assert figure(result, "merged_modularity") == small.modularity(1.0)
        assert np.array_equal(names, np.arange(int(figure(result, "level_1_communities"))))
        # Ids of a partition are one range, in order of partitions.
        ranges = [level[owner == p] for p in range(k) if (owner == p).any()]
        assert all(a.max() + 1 == b.min() for a, b in itertools.pairwise(ranges))
        assert all(np.unique(r).size == r.max() - r.min() + 1 for r in ranges)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_messages_of_the_published_scheme(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check 8: supersteps 1 to 5 are S0-S3 with the count, ghosts, pieces, the master, the answer."""
    graph = lfr(2000, 1)
    layout = gf.partition(graph, k, "metis")
    seen: list[np.ndarray] = []
    original = master.finish
    monkeypatch.setattr(
        "goffish.algorithms.communities.subgraph.program.finish",
        lambda program, batch, step: (seen.append(step.messages.copy()), original(program, batch, step)),
    )
    result = run_program(PartitionedLouvain(**PAPER), layout)
    assert result.stats is not None
    sent = result.stats.per_superstep("messages")
    assert result.stats.supersteps == 5
    assert sent[0] == k * k
    owner = layout.owner()
    src, dst, _, _ = graph.edge_columns()
    ends = np.concatenate((np.stack((src, owner[dst]), 1), np.stack((dst, owner[src]), 1)))
    pairs = np.unique(ends[owner[ends[:, 0]] != ends[:, 1]], axis=0)
    assert sent[1] == len(pairs)
    (inbox,) = seen
    assert (inbox["kind"] == Kind.HEAD).sum() == k
    assert set(inbox["kind"].tolist()) == {Kind.HEAD, Kind.ROW}
    assert sent[2] == inbox.size
    assert figure(result, "cut_weight") == 2 * (owner[src] != owner[dst]).sum()


def test_ring_of_cliques() -> None:
    """Check 11."""
    graph = cliques()
    aligned = run(graph, np.arange(48) // 6, 8, **PAPER)
    assert np.array_equal(aligned.table["level_1"].to_numpy(), np.arange(48) // 6)
    halves = run(graph, np.arange(48) % 2, 2, **PAPER)
    assert figure(halves, "level_1_communities") == 16
    assert figure(halves, "merged_modularity") == pytest.approx(0.3125, abs=1e-12)
    assert figure(halves, "modularity") == pytest.approx(0.8125, abs=1e-12)


def test_repair_reaches_the_cliques_in_the_first_half_round(monkeypatch: pytest.MonkeyPatch) -> None:
    qualities: list[float] = []
    original = rounds.answer

    def answer(program: Any, batch: Any, step: Any, piece: Any) -> bool:
        if batch.partition == 0:
            qualities.append(step.aggregated("inside") - step.aggregated("squares"))
        return original(program, batch, step, piece)

    monkeypatch.setattr("goffish.algorithms.communities.subgraph.program.answer", answer)
    result = run(cliques(), np.arange(48) % 2, 2, repair_rounds=3, refine=False)
    assert qualities[:2] == pytest.approx([0.3125, 0.8125], abs=1e-12)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(qualities))
    assert figure(result, "merged_vertices") == 8
    assert figure(result, "modularity") == pytest.approx(0.8125, abs=1e-12)


def test_two_triangles_that_the_partition_splits() -> None:
    """Check 13."""
    graph = from_edges([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3])
    for owner in (np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 1, 1, 0]), np.arange(6)):
        for options in VARIANTS[1:4]:
            result = run(graph, owner, 6, **options)
            assert figure(result, "modularity") == pytest.approx(0.5, abs=1e-12)
            assert figure(result, "communities") == 2


@given(st.integers(10, 60), st.integers(10, 200), st.integers(2, 6), SEEDS)
@settings(max_examples=10)
def test_rounds_never_lose_modularity(n: int, edges: int, k: int, seed: int) -> None:
    """Check 5 for rounds: what the master merges is at least what level 1 left."""
    graph = random_graph(n, edges, seed)
    found, owner = to_graph(graph), np.random.default_rng(seed).integers(0, k, n)
    values = [
        figure(run(found, owner, k, seed=seed, refine=False, repair_rounds=r), "merged_modularity") for r in range(4)
    ]
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize(
    ("n", "edges", "owner"),
    [
        (0, [], []), (1, [], [0]), (3, [], [0, 2, 2]), (2, [(0, 1)], [0, 1]), (2, [(0, 1)], [3, 3]),
        (2, [(0, 0), (1, 1)], [0, 1]), (4, [(0, 1), (2, 3)], [0, 1, 0, 1]), (4, [(0, 1), (1, 2), (2, 0)], [4, 2, 1, 0]),
        (3, [(0, 1), (1, 2), (1, 1)], [1, 1, 4]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_degenerate_inputs(
    n: int, edges: list[tuple[int, int]], owner: list[int], options: dict[str, Any], weight: float
) -> None:
    """Check 10: parts without vertices or inner edges, vertices with only cut edges, loops only, weights 0."""
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((u, v, weight) for u, v in edges)
    result = run(to_graph(graph), np.array(owner), 5, **options)
    if n == 0:
        assert result.table.num_rows == 0
        return
    check(result, graph)
    if not edges or not weight:
        assert np.array_equal(np.sort(labels(result)), np.arange(n))
        assert figure(result, "modularity") == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("options", VARIANTS[1:5])
def test_a_run_goes_on_from_every_checkpoint(tmp_path: Path, options: dict[str, Any], directed: bool) -> None:
    graph = to_graph(random_graph(60, 240, 5, directed=directed))
    layout = build_layout(graph, (np.arange(60) % 3).astype(np.int32), 3)
    wanted = run_program(PartitionedLouvain(**options), layout)
    assert wanted.stats is not None
    last = wanted.stats.supersteps
    for stop in {*range(1, min(6, last)), *range(6, last, 15), last - 1}:
        folder = tmp_path / str(stop)
        with pytest.raises(Exception, match="not finished"):
            run_program(
                PartitionedLouvain(**options), layout, max_supersteps=stop, checkpoint_dir=folder, checkpoint_every=1
            )
        again = run_program(PartitionedLouvain(**options), layout, checkpoint_dir=folder, resume=True)
        assert again.table.equals(wanted.table)
        assert again.stats is not None
        for name, value in wanted.stats.aggregates.items():
            assert name in again.stats.aggregates
            assert name.endswith("_seconds") or again.stats.aggregates[name] == value


def test_arcs_that_only_come_in_from_outside() -> None:
    """More ghosts than rows of the remote table: partition 0 has no arc that leaves it."""
    src, dst = np.repeat(np.arange(8, 24), 2), np.tile(np.arange(8), 4)
    graph = from_edges(src, dst, labels=np.arange(24), directed=True)
    owner = np.minimum(np.arange(24) // 8, 2)
    both = nx.Graph(list(zip(src.tolist(), dst.tolist(), strict=True)))
    ordered = nx.Graph()
    ordered.add_nodes_from(range(24))
    ordered.add_edges_from(both.edges)
    for options in VARIANTS:
        check(run(graph, owner, 3, **options), ordered)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["metis", "hash"])
@pytest.mark.parametrize("k", [1, 4, 16, 64])
def test_refined_is_at_least_as_good_as_sequential(method: str, k: int) -> None:
    """The default reaches the sequential modularity to 0.001 whatever the partitioner."""
    for graph in (planted(5000, 0.4, (20, 100), (9, 50), 2), gf.read("data/email-enron.txt.gz")):
        result = run_program(PartitionedLouvain(), gf.partition(graph, k, method))
        assert figure(result, "modularity") >= sequential_louvain(graph).modularity[-1] - 1e-3
        if graph.num_vertices < 30_000:
            check(result, to_nx(graph))


@pytest.mark.parametrize(("option", "value"), [("repair_rounds", -1), ("order", ""), ("resolution", -1.0)])
def test_options_out_of_range_are_named(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        PartitionedLouvain(**{option: value})


def test_weights_that_add_up_to_infinity_are_refused() -> None:
    with pytest.raises(InputError, match="scale all weights by the same factor"):
        run(from_edges([0, 1], [1, 2], [1.7e308, 1.7e308]), np.zeros(3), 1)


def test_max_levels_and_resolution() -> None:
    graph = lfr(2000, 2)
    owner = np.arange(2000) * 4 // 2000
    one = run(graph, owner, 4, max_levels=1)
    assert figure(one, "levels") == 1
    few, many = (figure(run(graph, owner, 4, resolution=r), "communities") for r in (0.05, 4.0))
    assert few < many
    check(run(graph, owner, 4, resolution=4.0), to_nx(graph), 4.0)


@pytest.mark.parametrize("options", [PAPER, {"repair_rounds": 3, "refine": False}])
def test_the_global_null_model(options: dict[str, Any]) -> None:
    """Level 1 with all degrees and the weight of the whole graph (docs/specs/communities.md, section 3.6)."""
    graph = lfr(3000, 5)
    for k in (1, 4):
        owner = np.arange(3000) * k // 3000
        local, wide = (run(graph, owner, k, null_model=model, **options) for model in ("local", "global"))
        check(wide, to_nx(graph))
        assert wide.stats is not None
        assert local.stats is not None
        assert wide.stats.supersteps >= local.stats.supersteps + (0 if options["repair_rounds"] else 1)
        if k == 1:
            assert np.array_equal(labels(wide), labels(local))
        else:
            assert not np.array_equal(labels(wide), labels(local))
            assert figure(wide, "modularity") >= 0.97 * figure(local, "modularity")


def test_messages_may_come_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check 7: batches handed to the engine in a shuffled order give the same answer."""
    from goffish.gopher import worker

    graph, owner = lfr(2000, 3), np.random.default_rng(1).integers(0, 5, 2000)
    expected = [labels(run(graph, owner, 5, **options)) for options in VARIANTS]
    deliver, rng = worker.Worker.deliver, np.random.default_rng(7)

    def shuffled(self: Any, batches: Any, *rest: Any, **named: Any) -> Any:
        given = list(batches)
        return deliver(self, [given[i] for i in rng.permutation(len(given))], *rest, **named)

    monkeypatch.setattr(worker.Worker, "deliver", shuffled)
    for options, wanted in zip(VARIANTS, expected, strict=True):
        assert np.array_equal(labels(run(graph, owner, 5, **options)), wanted)
