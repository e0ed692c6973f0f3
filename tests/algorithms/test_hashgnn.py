"""HashGNN features against its definition, with one set of features and one minimum at a time."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.walks import in_memory
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build

MASK = (1 << 64) - 1
OWN, NEAR, AMONG = range(3)


def mixed(x: int) -> int:
    """One number of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@lru_cache(1 << 16)
def hashed(seed: int, step: int, draw: int, which: int, feature: int) -> int:
    return mixed(mixed(mixed(mixed(seed) ^ step) ^ (3 * draw + which)) ^ feature)


def defined(
    neighbors: list[set[int]], features: list[set[int]], iterations: int, density: int, influence: float, seed: int
) -> list[set[int]]:
    for step in range(1, iterations + 1):
        drawn: list[set[int]] = [set() for _ in features]
        for v, near in enumerate(neighbors):
            for draw in range(density):

                def key(which: int, feature: int, at: tuple[int, int] = (step, draw)) -> int:
                    return hashed(seed, *at, which, feature)

                own = min(features[v], key=lambda f: key(OWN, f), default=None)
                chosen = {min(features[u], key=lambda f: key(NEAR, f)) for u in near if features[u]}
                other = min(chosen, key=lambda f: key(AMONG, f), default=None)
                if own is not None and other is not None and influence:
                    drawn[v].add(other if key(AMONG, other) >> 11 < influence * (key(OWN, own) >> 11) else own)
                elif own is not None:
                    drawn[v].add(own)
                elif other is not None and influence:
                    drawn[v].add(other)
        features = drawn
    return features


def sets(vectors: np.ndarray) -> list[set[int]]:
    assert vectors.dtype == np.uint8 and vectors.max(initial=0) <= 1
    return [set(np.flatnonzero(row).tolist()) for row in vectors]


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.integers(1, 3), st.sampled_from([0.0, 0.25, 1.0, 1e9]), st.integers(0, 1 << 62))
def test_features_equal_those_of_the_definition(
    case: tuple[int, list[tuple[int, int]]], directed: bool, iterations: int, influence: float, seed: int
) -> None:
    """Breaks when a minimum is over other features, or a vertex without features or neighbors is not as defined."""
    n, edges = case
    neighbors: list[set[int]] = [set() for _ in range(n)]
    for u, v in edges:
        neighbors[u].add(v)
        if not directed:
            neighbors[v].add(u)
    if not n:
        return
    rows = np.random.default_rng(seed).random((n, 5)) < 0.3
    graph = build(n, edges, directed)
    loops = graph.arc_sources()[graph.arc_sources() == graph.targets].tolist()
    neighbors = [near - {v} | ({v} if v in loops else set()) for v, near in enumerate(neighbors)]
    options = {"iterations": iterations, "density": 3, "neighbor_influence": influence, "seed": seed}
    found = gf.hashgnn(graph, rows, **options, threads=2)
    expected = defined(neighbors, sets(rows.astype(np.uint8)), iterations, 3, influence, seed)
    assert sets(found) == expected


def test_random_features_threads_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gf.from_networkx(nx.gnm_random_graph(300, 1500, seed=1))
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), False, graph.num_edges)
    options = {"dimension": 50, "density": 8, "initial_density": 3, "seed": 9}
    vectors = gf.hashgnn(graph, **options)
    assert vectors.sum(axis=1).min() > 0 and vectors.sum(axis=1).max() <= 8 and vectors.any(axis=0).sum() > 30
    neighbors = [set(graph.neighbors(v).tolist()) for v in range(300)]
    initial = [{mixed(hashed(9, 0, 0, OWN, v) ^ j) % 50 for j in range(3)} for v in range(300)]
    assert sets(vectors) == defined(neighbors, initial, 2, 8, 1.0, 9)
    monkeypatch.setattr(in_memory, "STEPS", 500)
    for threads in (1, 3):
        assert gf.hashgnn(graph, **options, threads=threads).tobytes() == vectors.tobytes()
    assert (gf.hashgnn(wide, **options) == vectors).all()
    assert (gf.hashgnn(graph, **options | {"seed": 10}) != vectors).any()
    # Vertices of one of two cliques share more features than vertices of both.
    barbell = gf.hashgnn(gf.from_networkx(nx.barbell_graph(12, 0)), dimension=256, iterations=1).astype(np.int64)
    near = barbell @ barbell.T
    assert near[:11, :11].mean() > 3 * near[:11, 13:].mean()


def test_features_of_tables_labels_and_stores(tmp_path: Path) -> None:
    graph = gf.from_edges(["a", "b", "b"], ["b", "c", "d"])
    matrix = np.array([[1, 0], [0, 1], [0, 0], [1, 1]])
    expected = gf.hashgnn(graph, matrix, seed=1)
    table = pa.table({"one": [1, 0, 1], "vertex": ["d", "b", "a"], "two": [True, True, False]})
    file = gf.Result("features", table).write(tmp_path / "features.parquet")
    for features in (table, table.to_pandas(), str(file), matrix.astype(float), matrix.tolist()):
        assert (gf.hashgnn(graph, features, seed=1) == expected).all()
    found = gf.run("hashgnn", gf.partition(graph, parts=2), features=table, seed=1).table
    assert found.column_names == ["vertex", "x0", "x1"] and found["vertex"].to_pylist() == list("abcd")
    assert np.column_stack([found["x0"], found["x1"]]).tolist() == expected.tolist()
    assert gf.hashgnn(gf.from_edges([], []), dimension=5).shape == (0, 5)


def test_errors() -> None:
    graph = gf.from_edges(["a", "b"], ["b", "c"])
    for features, message in (
        ([[0], [1]], r"features: shape \(2, 1\); expected a row for each of the 3 vertices"),
        (np.zeros((3, 0)), r"features: shape \(3, 0\)"),
        ([[1], [0, 1], []], "features: shape"),
        ([[0], [1], [2]], "features: values must be 0 or 1, or truth values"),
        ([[0], [1], [np.nan]], "features: values must be 0 or 1"),
        ([["x"], ["y"], ["z"]], "features: values must be 0 or 1"),
        (pa.table({"x": [1]}), "features: no column 'vertex'; available: x"),
        (pa.table({"vertex": ["a"]}), "features: no column but 'vertex'"),
        (pa.table({"vertex": ["a", "a"], "x": [1, 1]}), "features: a vertex is in several rows"),
        (pa.table({"vertex": ["q"], "x": [1]}), "unknown vertex 'q'"),
        (pa.table({"vertex": ["a"], "x": pa.array([None], pa.int64())}), "features: column 'x': values must be 0 or 1"),
        ("none.csv", "features='none.csv' must be an existing table file"),
    ):
        with pytest.raises(gf.InputError, match=message):
            gf.hashgnn(graph, features)
    for options, message in (
        ({"dimension": 0}, "dimension=0"), ({"iterations": 0}, "iterations=0"), ({"density": 0}, "density=0"),
        ({"initial_density": 0}, "initial_density=0"), ({"neighbor_influence": -1.0}, "neighbor_influence=-1"),
        ({"neighbor_influence": float("nan")}, "neighbor_influence=nan"), ({"seed": -1}, "seed=-1"),
        ({"threads": 0}, "threads=0"),
    ):  # fmt: skip
        with pytest.raises(gf.InputError, match=message):
            gf.hashgnn(graph, **options)
    few, many = gf.from_edges([0], [1]), gf.from_edges([0], [1], isolated=np.arange(2_000_000))
    for where, options, message in (
        (many, {"dimension": 1 << 20}, r"dimension=1048576: 2,000,000 vectors do not fit in memory: 2,097\.2 GB, of "),
        (many, {"density": 1 << 16}, "density=65536: the features of 2,000,000 vertices do not fit in memory"),
        (few, {"dimension": 1 << 20, "density": 1 << 16}, "density=65536: the order of the features in each draw do"),
    ):
        with pytest.raises(gf.InputError, match=message):
            gf.hashgnn(where, **options)
