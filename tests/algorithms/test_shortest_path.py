"""Paths between two vertices, one or the k shortest, against networkx."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.graph import Graph, guards
from tests.algorithms.test_whole_paths import EDGES, build


def simple(n: int, edges: list[tuple[int, int, float]], directed: bool, weighted: bool) -> nx.Graph:
    """The lightest of parallel edges only."""
    out = nx.DiGraph() if directed else nx.Graph()
    out.add_nodes_from(range(n))
    for u, v, w in edges:
        length = w if weighted else 1
        if not out.has_edge(u, v) or out[u][v]["weight"] > length:
            out.add_edge(u, v, weight=length)
    return out


def check(reference: nx.Graph, rows: list[tuple[Any, ...]], source: Any, target: Any) -> float:
    """Rows of vertex and distance are a path without repeated vertices; gives its length."""
    vertices = [vertex for vertex, _ in rows]
    assert (vertices[0], vertices[-1], rows[0][1]) == (source, target, 0.0)
    assert len(set(vertices)) == len(vertices)
    for (u, before), (v, after) in pairwise(rows):
        assert after == before + reference[u][v]["weight"]
    return float(rows[-1][1])


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.floats(0.0, 1.0), st.integers(1, 40))
def test_paths_equal_those_of_networkx(case, directed, weighted, share, k):
    """Fails when the searches stop too early, when a bound is too high, or when a deviation is lost or found twice."""
    n, edges = case
    graph, reference = build(n, edges, directed, weighted), simple(n, edges, directed, weighted)
    source, target = 0, n - 1
    length = nx.single_source_dijkstra_path_length(reference, source).get(target)
    if length is None:
        for options in ({}, {"bounds": np.zeros(n)}, {"k": k}):
            with pytest.raises(gf.InputError, match=f"no path from {source} to {target}"):
                gf.shortest_path(graph, source, target, **options)
        return
    rest = nx.single_source_dijkstra_path_length(reference.reverse() if directed else reference, target)
    # Admissible, but not consistent.
    bounds = np.array([rest.get(v, math.inf) * (share if v % 2 else 1 - share) for v in range(n)])
    for options in ({}, {"bounds": np.zeros(n)}, {"bounds": np.where(np.isnan(bounds), 0.0, bounds)}):
        found = gf.shortest_path(graph, source, target, **options)
        assert check(reference, list(found), source, target) == pytest.approx(length, rel=1e-12)
        assert found.summary == {"length": found.table["distance"][-1].as_py(), "hops": len(found) - 1}
    paths = gf.shortest_path(graph, source, target, k=k)
    expected = list(islice(nx.shortest_simple_paths(reference, source, target, weight="weight"), k + 1))
    lengths = [nx.path_weight(reference, path, "weight") for path in expected]
    rows: dict[int, list[Any]] = {}
    for number, *row in paths:
        rows.setdefault(number, []).append(tuple(row))
    found_lengths = [check(reference, path, source, target) for path in rows.values()]
    assert list(rows) == list(range(1, len(lengths[:k]) + 1))
    assert found_lengths == pytest.approx(lengths[:k], rel=1e-12)
    assert found_lengths == sorted(found_lengths)
    assert len({tuple(v for v, _ in path) for path in rows.values()}) == len(rows), "a path was found twice"
    counts = {"paths": len(rows), "shortest": found_lengths[0], "longest": found_lengths[-1]}
    assert paths.summary == counts


@pytest.mark.parametrize("directed", [False, True])
def test_large_graphs(directed: bool) -> None:
    """Fails when a search from one end is cut off by the other, and where paths need more memory than at first."""
    rng = np.random.default_rng(4)
    n, m = 4000, 12_000
    src, dst, weight = rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(1, 100, m).astype(float)
    graph = gf.from_edges(src, dst, weight, labels=np.arange(n), directed=directed)
    reference = gf.to_networkx(graph)
    for target in rng.integers(0, n, 12).tolist():
        for weighted in (True, False):
            length = nx.single_source_dijkstra_path_length(reference, 0, weight="weight" if weighted else None)
            if target not in length:
                with pytest.raises(gf.InputError, match="no path"):
                    gf.shortest_path(graph, 0, target, weighted=weighted)
                continue
            found = gf.shortest_path(graph, 0, target, weighted=weighted)
            assert found.summary["length"] == length[target]
            if weighted:
                check(reference, list(found), 0, target)
    side = 12
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side))
    columns = np.array(grid.edges)
    square = gf.from_edges(columns[:, 0], columns[:, 1], directed=directed)
    # As many shortest paths as there are ways from corner to corner; with directions there are no others.
    ways = math.comb(22, 11)
    found = gf.shortest_path(square, 0, side * side - 1, k=3000)
    assert (found.summary, ways > 3000) == ({"paths": 3000, "shortest": 22.0, "longest": 22.0}, True)
    assert len({tuple(path) for path in found.table["vertex"].to_numpy().reshape(3000, 23).tolist()}) == 3000


def test_all_paths_are_found() -> None:
    graph = gf.from_networkx(nx.complete_graph(6))
    found = gf.shortest_path(graph, 0, 5, k=10**9)
    assert found.summary == {"paths": 65, "shortest": 1.0, "longest": 5.0}
    numbers, vertices = (found.table[name].to_numpy() for name in ("path", "vertex"))
    assert len({tuple(vertices[numbers == number].tolist()) for number in range(1, 66)}) == 65


def test_more_paths_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gf.from_networkx(nx.complete_graph(12))
    with pytest.raises(gf.InputError, match=r"k=4611686018427387904 "):
        gf.shortest_path(graph, 0, 5, k=1 << 62)
    monkeypatch.setattr(guards.os, "sysconf", lambda name: 1 << 11)
    with pytest.raises(gf.InputError, match=r"k=1,000,000,000: more than \d[\d,]+ paths do not fit in memory: 0\.0 GB"):
        gf.shortest_path(graph, 0, 5, k=10**9)


@pytest.mark.slow
def test_sixty_four_bit_targets_give_the_same_answer() -> None:
    rng = np.random.default_rng(8)
    graph = gf.from_edges(rng.integers(0, 99, 300), rng.integers(0, 99, 300), rng.random(300))
    wide = Graph(graph.offsets, graph.targets.astype(np.int64), False, graph.num_edges, graph.weights)
    for options in ({}, {"weighted": False}, {"bounds": np.zeros(len(graph))}, {"k": 9}):
        assert gf.shortest_path(graph, 0, 50, **options).table == gf.shortest_path(wide, 0, 50, **options).table


def test_long_paths_labels_and_stores() -> None:
    n = 300_000
    line = gf.from_edges(np.arange(n - 1), np.arange(1, n), np.full(n - 1, 0.5), directed=True)
    assert gf.shortest_path(line, 0, n - 1).summary == {"length": (n - 1) / 2, "hops": n - 1}
    assert gf.shortest_path(line, 0, n - 1, weighted=False).summary == {"length": float(n - 1), "hops": n - 1}
    assert gf.shortest_path(line, 0, n - 1, k=3).summary["paths"] == 1
    graph = gf.from_edges(["a", "b", "a"], ["b", "c", "c"], [1.0, 1.0, 3.0], directed=True)
    assert gf.shortest_path(graph, "a", "c").to_dict() == {"a": 0.0, "b": 1.0, "c": 2.0}
    found = gf.shortest_path(graph, "a", "c", k=2)
    assert found.to_dict() == {(1, "a"): 0.0, (1, "b"): 1.0, (1, "c"): 2.0, (2, "a"): 0.0, (2, "c"): 3.0}
    for options in ({}, {"k": 2}):
        assert gf.shortest_path(graph, "b", "b", **options).table["vertex"].to_pylist() == ["b"]
        cut = gf.partition(graph, parts=2)
        assert (
            gf.run("path", cut, source="a", target="c", **options).to_dict()
            == gf.shortest_path(graph, "a", "c", **options).to_dict()
        )


def test_bounds_from_coordinates() -> None:
    """Fails when a bound is above the distance for any vertex, or the search is not guided by it."""
    rng = np.random.default_rng(5)
    n = 400
    place = rng.random((n, 2))
    near = np.argsort(np.linalg.norm(place[:, None] - place[None], axis=2), axis=1)[:, 1:6]
    src, dst = np.repeat(np.arange(n), 5), near.ravel()
    straight = np.linalg.norm(place[src] - place[dst], axis=1)
    places = {"x": place[:, 0], "y": place[:, 1], "lon": 4 + place[:, 0], "lat": 50 + place[:, 1]}
    graph = gf.from_edges(
        src, dst, straight * (1 + rng.random(src.size)), labels=np.arange(n), vertex_attributes=places
    )
    for target in (3, 77, 200):
        distance = gf.sssp(graph, target).table["distance"].to_numpy()
        for options in ({}, {"columns": ("lon", "lat"), "great_circle": True}):
            bounds = gf.coordinate_bounds(graph, target, **options)
            assert (bounds <= distance).all()
            assert bounds.max() > 0.1 * distance[np.isfinite(distance)].max()
            found = gf.shortest_path(graph, 9, target, bounds=bounds).summary["length"]
            assert found == pytest.approx(distance[9], rel=1e-12)
        assert (
            gf.coordinate_bounds(graph, target, factor=1.0) >= gf.coordinate_bounds(graph, target, factor=0.5)
        ).all()
    # A quarter of the way around the Earth, and a known distance: Greenwich to the pole.
    globe = gf.from_edges([0], [1], vertex_attributes={"lon": [0.0, 0.0], "lat": [0.0, 90.0]})
    quarter = gf.coordinate_bounds(globe, 1, ("lon", "lat"), great_circle=True, factor=1.0)[0]
    assert quarter == pytest.approx(10_007_557, rel=1e-6)


def test_errors() -> None:
    graph = gf.from_edges([1, 2], [2, 3], vertex_attributes={"x": [0.0, 1.0, None], "y": [0.0, 1.0, 2.0]})
    for options, reason in (
        ({"bounds": [0.0]}, "a number for each of the 3 vertices"),
        ({"bounds": ["a", "b", "c"]}, "a number for each of the 3 vertices"),
        ({"bounds": [0.0, math.nan, 0.0]}, "numbers of at least 0"),
        ({"bounds": [0.0, -1.0, 0.0]}, "numbers of at least 0"),
        ({"bounds": [0.0, 1.0, 2.0]}, "must be 0 at the target 3"),
        ({"bounds": [0.0, 1.0, 0.0], "k": 2}, "mutually exclusive"),
        ({"k": 0}, "greater than or equal to 1"),
    ):
        with pytest.raises(gf.InputError, match=reason):
            gf.shortest_path(graph, 1, 3, **options)
    with pytest.raises(gf.InputError, match="no path from 1 to 3"):
        gf.shortest_path(graph, 1, 3, bounds=[math.inf, 1.0, 0.0])
    for source, target in ((1, 9), (9, 1)):
        with pytest.raises(gf.InputError, match="unknown vertex 9"):
            gf.shortest_path(graph, source, target)
    for columns, reason in (
        (("y", "z"), "no vertex attribute 'z'; available: x, y"),
        (("x", "y"), "'x': coordinates must be finite numbers"),
        ("xy", "two names of vertex attributes"),
    ):
        with pytest.raises(gf.InputError, match=reason):
            gf.coordinate_bounds(graph, 1, columns)
    with pytest.raises(gf.InputError, match="factor=-1"):
        gf.coordinate_bounds(graph, 1, ("y", "y"), factor=-1)
    with pytest.raises(gf.InputError, match="scale all weights"):
        gf.shortest_path(gf.from_edges([1], [2], [1e200]), 1, 2)
