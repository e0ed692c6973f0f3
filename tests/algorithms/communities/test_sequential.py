"""The sequential Louvain against networkx, brute force and closed forms (docs/specs/communities.md, section 7)."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.communities import level_kernels as kernels
from goffish.algorithms.communities import sequential
from goffish.algorithms.communities.levels import half_edges
from goffish.algorithms.communities.sequential import (
    collapse_in_order,
    run_level,
    sequential_louvain,
    split_parts,
    vertex_order,
)
from goffish.algorithms.communities.settings import ORDERS, Search
from goffish.errors import InputError
from goffish.graph import from_edges
from tests.algorithms.communities.louvain_cases import (
    check_hierarchy,
    cliques,
    dense,
    dense_modularity,
    nx_modularity,
    random_graph,
    to_graph,
)

SEEDS = st.integers(0, 10_000)


@given(st.integers(1, 30), st.integers(0, 90), SEEDS, st.booleans())
def test_modularity_is_that_of_networkx(n: int, edges: int, seed: int, weighted: bool) -> None:
    graph = random_graph(n, edges, seed, weighted=weighted)
    label = np.random.default_rng(seed).integers(0, n, n)
    matrix = half_edges(to_graph(graph, weighted=weighted))
    for resolution in (1.0, 0.4, 2.5):
        found = collapse_in_order(matrix, label)[1].modularity(resolution)
        assert abs(found - nx_modularity(graph, label, resolution)) < 1e-12


@given(st.integers(1, 15), st.integers(0, 60), SEEDS)
def test_a_directed_graph_is_symmetrised(n: int, edges: int, seed: int) -> None:
    graph = random_graph(n, edges, seed, directed=True)
    wanted = nx.to_numpy_array(graph, nodelist=range(n), weight="weight")
    assert np.array_equal(dense(half_edges(to_graph(graph))), wanted + wanted.T)


@given(st.integers(2, 12), st.integers(1, 40), SEEDS, st.data())
def test_gain_formula(n: int, edges: int, seed: int, data: st.DataObject) -> None:
    """Check 2: removing and inserting a vertex changes Q by (2/2m)(k_ic - tot_c k_i / 2m), each."""
    matrix = dense(half_edges(to_graph(random_graph(n, edges, seed))))
    rng = np.random.default_rng(seed)
    for _ in range(5):
        label = rng.integers(0, n, n)
        i, target = int(rng.integers(n)), int(rng.integers(n))
        k, two_m = matrix.sum(1), matrix.sum()
        if not two_m:
            continue

        def gain(c: int, k: np.ndarray = k, two_m: float = two_m, i: int = i, label: np.ndarray = label) -> float:
            others = (label == c) & (np.arange(n) != i)
            return 2.0 / two_m * (matrix[i, others].sum() - k[others].sum() * k[i] / two_m)

        moved = label.copy()
        moved[i] = target
        change = dense_modularity(matrix, moved) - dense_modularity(matrix, label)
        assert abs(change - (gain(target) - gain(label[i]))) < 1e-12


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(0, 200), SEEDS, st.sampled_from(ORDERS), st.booleans())
def test_no_single_move_improves_a_finished_level(n: int, edges: int, seed: int, order: str, weighted: bool) -> None:
    """Check 6, with eps = 0, by brute force over vertices and neighbouring communities."""
    graph = random_graph(n, edges, seed, weighted=weighted)
    matrix = half_edges(to_graph(graph, weighted=weighted))
    level = run_level(matrix, Search(order=order, seed=seed, threshold=0.0, refine="none"), (seed,))  # type: ignore[arg-type]
    full = dense(matrix)
    k, two_m, label = full.sum(1), full.sum(), level.label
    tot = np.bincount(label, k, n)
    for i in range(n) if two_m else ():

        def gain(c: int, i: int = i) -> float:
            members = (label == c) & (np.arange(n) != i)
            return float(full[i, members].sum() - (tot[c] - (k[i] if label[i] == c else 0.0)) * k[i] / two_m)

        around = np.unique(label[full[i] > 0])
        assert all(gain(int(c)) <= gain(int(label[i])) + 1e-9 for c in around)


@given(st.integers(1, 40), st.integers(0, 120), SEEDS, st.sampled_from(ORDERS))
def test_modularity_never_falls_and_the_hierarchy_is_sound(n: int, edges: int, seed: int, order: str) -> None:
    """Checks 5 and 9: pass by pass (by capping the passes), level by level."""
    graph = random_graph(n, edges, seed)
    found = to_graph(graph)
    run = sequential_louvain(found, seed=seed, order=order, eps=0.0)  # type: ignore[arg-type]
    check_hierarchy(run, n)
    assert run.sizes[0] == n
    assert run.sizes[-1] == run.membership.max() + 1
    label, values = np.arange(n), [nx_modularity(graph, np.arange(n))]
    for step, told in zip(run.maps, run.modularity, strict=True):
        label = step[label]
        values.append(nx_modularity(graph, label))
        assert abs(values[-1] - told) < 1e-12
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(values))
    for c in np.unique(run.membership):
        members = np.flatnonzero(run.membership == c)
        whole = nx.node_connected_component(graph, int(members[0]))
        assert set(members.tolist()) <= whole


@given(st.integers(2, 40), st.integers(1, 120), SEEDS)
def test_every_pass_gains(n: int, edges: int, seed: int) -> None:
    graph = random_graph(n, edges, seed)
    matrix = half_edges(to_graph(graph))
    degree = matrix.degree
    if not degree.sum():
        return
    values = []
    order = np.random.default_rng(seed).permutation(n)
    for passes in range(1, 5):
        label, tot = np.arange(n, dtype=np.int32), degree.copy()
        kernels.move_vertices(matrix.arcs, order, degree, degree.sum(), 1.0, 0.0, passes, label, tot)
        assert np.allclose(tot, np.bincount(label, degree, n), atol=1e-9)
        values.append(nx_modularity(graph, label))
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(values))


@given(st.integers(1, 30), st.integers(0, 90), SEEDS)
def test_collapse_adds_up_the_matrix(n: int, edges: int, seed: int) -> None:
    matrix = half_edges(to_graph(random_graph(n, edges, seed)))
    label = np.random.default_rng(seed).integers(0, n, n)
    compact, small = collapse_in_order(matrix, label)
    assert np.array_equal(compact, np.unique(label, return_inverse=True)[1])
    member = np.eye(small.num_vertices)[compact]
    assert np.array_equal(dense(small), member.T @ dense(matrix) @ member)


def test_same_seed_same_answer_and_scaled_weights_change_nothing() -> None:
    graph = random_graph(200, 900, 3)
    found = to_graph(graph)
    first, again = (sequential_louvain(found, seed=7) for _ in range(2))
    assert np.array_equal(first.membership, again.membership)
    for factor in (2.0**-40, 2.0**60):
        assert found.weights is not None
        src, dst, weight, _ = found.edge_columns()
        scaled = from_edges(src, dst, weight * factor, labels=np.arange(200), self_loops="keep")
        assert np.array_equal(sequential_louvain(scaled, seed=7).membership, first.membership)
    assert any(not np.array_equal(sequential_louvain(found, seed=s).membership, first.membership) for s in range(8, 12))


def test_orders_on_a_star_with_a_tail() -> None:
    graph = from_edges([0, 0, 0, 3, 4], [1, 2, 3, 4, 5], labels=np.arange(7))
    rows = half_edges(graph)

    def order(name: str) -> list[int]:
        return vertex_order(name, rows, (0,)).tolist()  # type: ignore[arg-type]

    assert order("natural") == list(range(7))
    assert order("ascending") == [6, 1, 2, 5, 3, 4, 0]
    assert order("descending") == [0, 3, 4, 1, 2, 5, 6]
    assert order("neighbour") == [1, 2, 3, 0, 4, 5, 6]
    assert sorted(order("random")) == list(range(7))


def test_karate_club_for_thirty_seeds() -> None:
    """Check 12: between 0.38 and the optimum 0.4198."""
    graph = nx.karate_club_graph()
    plain = nx.Graph(list(graph.edges))
    found = to_graph(plain, weighted=False)
    for seed in range(30):
        run = sequential_louvain(found, seed=seed)
        assert 0.38 <= run.modularity[-1] <= 0.41980
        assert abs(nx_modularity(plain, run.membership) - run.modularity[-1]) < 1e-12


def test_cliques_and_triangles() -> None:
    """Checks 11 and 13 without partitions."""
    run = sequential_louvain(cliques())
    assert run.modularity[-1] == pytest.approx(0.8125, abs=1e-12)
    assert np.array_equal(np.bincount(run.membership), np.full(8, 6))
    pair = sequential_louvain(from_edges([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]))
    assert pair.modularity[-1] == pytest.approx(0.5, abs=1e-12)
    assert pair.membership.max() == 1


@pytest.mark.parametrize("edges", [[], [(0, 0)], [(0, 1)], [(0, 1), (2, 2)]])
@pytest.mark.parametrize("weight", [0.0, 1.0, 3.5])
def test_tiny_graphs(edges: list[tuple[int, int]], weight: float) -> None:
    """Check 10."""
    for n in (0, 1, 3):
        kept = [(u, v) for u, v in edges if max(u, v) < n]
        graph = nx.Graph()
        graph.add_nodes_from(range(n))
        graph.add_weighted_edges_from((u, v, weight) for u, v in kept)
        run = sequential_louvain(to_graph(graph))
        check_hierarchy(run, n)
        assert run.modularity[-1] == pytest.approx(nx_modularity(graph, run.membership), abs=1e-12)
        if not kept or not weight:
            assert run.membership.tolist() == list(range(n))


def test_resolution_and_levels() -> None:
    graph = to_graph(random_graph(300, 1500, 1))
    counts = [sequential_louvain(graph, resolution=r).sizes[-1] for r in (0.2, 1.0, 5.0)]
    assert counts[0] < counts[1] < counts[2]
    one = sequential_louvain(graph, max_levels=1)
    assert len(one.maps) == 1
    assert np.array_equal(one.maps[0], sequential_louvain(graph).maps[0])


def test_a_level_ends_at_the_pass_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = to_graph(random_graph(300, 1500, 1))
    assert sequential_louvain(graph).passes[0] > 2
    monkeypatch.setattr(sequential, "MOST_PASSES", 2)
    assert max(sequential_louvain(graph).passes) <= 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("order", "best"), ("seed", -1), ("seed", 1.5), ("eps", -1e-3), ("eps", float("nan")), ("eps", "x"),
        ("resolution", float("inf")), ("resolution", True), ("max_levels", 0),
    ],
)  # fmt: skip
def test_options_out_of_range_are_named(option: str, value: object) -> None:
    with pytest.raises(InputError, match=option):
        sequential_louvain(cliques(), **{option: value})  # type: ignore[arg-type]


def test_weights_that_add_up_to_infinity_are_refused() -> None:
    with pytest.raises(InputError, match="scale all weights by the same factor"):
        sequential_louvain(from_edges([0, 1], [1, 2], [1.7e308, 1.7e308]))


def test_split_parts_are_connected() -> None:
    graph = half_edges(from_edges([0, 1, 3, 4, 2], [1, 2, 4, 5, 5], labels=np.arange(7)))
    assert split_parts(graph, np.array([0, 1, 0, 0, 0, 0, 0])).tolist() == [0, 1, 2, 2, 2, 2, 3]
