"""Sides of bipartite graphs and projections, against networkx."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.bipartite import in_memory
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build

Case = tuple[int, list[tuple[int, int]]]


@settings(max_examples=200)
@given(EDGES, st.booleans())
def test_sides_equal_those_of_networkx(case: Case, directed: bool) -> None:
    """Breaks when an edge inside a side is missed, or the cycle that is named is none or even."""
    n, edges = case
    graph = build(n, edges, directed)
    reference = nx.Graph(edges)
    reference.add_nodes_from(range(n))
    try:
        nx.bipartite.color(reference)
    except nx.NetworkXError:
        with pytest.raises(gf.InputError, match="graph is not bipartite") as raised:
            gf.bipartition(graph)
        if loop := re.search(r"vertex (\d+) has a self-loop", str(raised.value)):
            assert reference.has_edge(int(loop[1]), int(loop[1]))
        else:
            around = list(map(int, str(raised.value).split(": ")[-1].split(" - ")))
            assert around[0] == around[-1] and len(around) % 2 == 0 and len(set(around)) == len(around) - 1
            assert all(reference.has_edge(u, v) for u, v in pairwise(around))
        return
    found = gf.bipartition(graph)
    side = found.to_dict()
    assert all(side[u] != side[v] for u, v in edges) and set(side) == set(range(n))
    assert all(side[min(members)] == 0 for members in nx.connected_components(reference))
    assert found.summary == {"side_0": n - sum(side.values()), "side_1": sum(side.values())}


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans())
def test_projections_equal_those_of_networkx(case: Case, directed: bool, few: bool) -> None:
    """Even vertices are on one side, odd ones on the other; breaks when a shared neighbor is missed or counts twice."""
    n, drawn = case
    edges = [(u, v) for u, v in drawn if (u + v) % 2]
    graph, vertices = build(n, edges, directed), list(range(0, n, 2))
    reference = nx.Graph(edges)
    reference.add_nodes_from(range(-1, n))  # networkx refuses an empty other side
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "STEPS", 1 if few else 1 << 20)
        shared = gf.bipartite_projection(graph, vertices, threads=2)
        newman = gf.bipartite_projection(graph, np.arange(n) % 2 == 0, weighting="newman", threads=1)
    for found, make in (
        (shared, nx.bipartite.weighted_projected_graph),
        (newman, nx.bipartite.collaboration_weighted_projected_graph),
    ):
        expected = make(reference, vertices)
        edges_found = {(row["source"], row["target"]): row["weight"] for row in found.edges.to_pylist()}
        wanted = {(min(e), max(e)): pytest.approx(expected.edges[e]["weight"]) for e in expected.edges}
        assert edges_found == wanted and list(found) == vertices
        assert found.num_edges == len(wanted) and (np.diff(found.targets)[_inside(found)] > 0).all()


def _inside(graph: Graph) -> np.ndarray:
    """Whether two neighboring arcs are of the same row."""
    sources = graph.arc_sources()
    return sources[1:] == sources[:-1]


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_larger_projections(kind: type) -> None:
    """SciPy's product of the incidence matrix with its transpose; the same bits with any number of threads."""
    rng = np.random.default_rng(3)
    people, things = rng.integers(0, 900, 3000), rng.zipf(1.6, 3000) % 600
    graph = gf.from_edges(people, 900 + things, labels=np.arange(1500))
    graph = Graph(graph.offsets, graph.targets.astype(kind), False, graph.num_edges)
    side = np.arange(1500) < 900
    incidence = gf.to_scipy(graph).tocsr()[:900, 900:]
    product = (incidence @ incidence.T).tolil()
    product.setdiag(0)
    found = [gf.bipartite_projection(graph, side, threads=threads) for threads in (1, 3)]
    assert (gf.to_scipy(found[0]).tocsr() != product.tocsr()).nnz == 0 < product.nnz
    assert found[1].weights.tobytes() == found[0].weights.tobytes()
    assert found[1].targets.tobytes() == found[0].targets.tobytes()


def test_labels_attributes_tables_and_errors(tmp_path: Path) -> None:
    graph = gf.from_edges(["a", "b", "b", "c"], ["x", "x", "y", "y"], isolated=["z"], vertex_attributes={"h": range(6)})
    found = gf.bipartite_projection(graph, ["c", "a", "b"])
    assert found.edges.to_pylist() == [
        {"source": "a", "target": "b", "weight": 1.0}, {"source": "b", "target": "c", "weight": 1.0},
    ]  # fmt: skip
    assert found.vertices.to_pylist() == [{"vertex": v, "h": h} for h, v in enumerate("abc")]
    table = pa.table({"vertex": ["a", "b", "c", "a"], "source": [1, 2, 3, 4]})
    file = str(gf.Result("side", table).write(tmp_path / "side.parquet"))
    for given_side in (table, table.to_pandas(), file, table.drop_columns("source").rename_columns(["source"])):
        assert gf.bipartite_projection(graph, given_side).edges == found.edges
        assert gf.run("bipartite-projection", graph, vertices=given_side).table == found.edges
    connected = graph.largest_component()
    assert gf.run("bipartite-projection", gf.partition(connected, parts=2)).table == found.edges
    assert gf.bipartite_projection(connected).edges == found.edges
    empty = gf.from_edges([], [])
    assert gf.bipartite_projection(empty).num_vertices == 0
    assert (gf.bipartite_projection(empty, []).num_vertices, len(gf.bipartition(empty))) == (0, 0)
    parted = gf.partition(graph, parts=2)
    assert gf.run("bipartition", parted).to_dict() == gf.bipartition(graph).to_dict()
    n = 100_001
    with pytest.raises(gf.InputError, match=r"cycle of 100,001 vertices: .* - … - ") as raised:
        gf.bipartition(gf.from_edges(np.arange(n), np.roll(np.arange(n), -1)))
    assert len(str(raised.value)) < 200
    for vertices, options, message in (
        (["a", "x"], {}, "edge a - x is between two of the given vertices"),
        (["a"], {}, "edge b - x is between two vertices that are not given"),
        (["a", "q"], {}, "q"),
        ([True], {}, "vertices"),
        (None, {}, "vertices: the graph is not connected; name the vertices of one side"),
        (pa.table({"side": ["a"]}), {}, "vertices: no column 'vertex' or 'source'; available: side"),
        ("none.csv", {}, "none.csv: no such file"),
        (["a", "b", "c"], {"weighting": "most"}, "weighting='most': choose one of shared, newman"),
        (["a", "b", "c"], {"threads": 0}, "threads=0"),
    ):
        with pytest.raises(gf.InputError, match=message):
            gf.bipartite_projection(graph, vertices, **options)  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="convert a PartitionedGraph"):
        gf.bipartite_projection(parted, ["a"])  # type: ignore[arg-type]


def largest_betas(reference: nx.Graph, side: set[int], alpha: int) -> dict[int, int]:
    """For each vertex the largest beta of an (alpha, beta)-core with it: vertices are removed until all have enough."""
    best = dict.fromkeys(reference, 0)
    for beta in range(1, len(reference) + 1):
        core = reference.copy()
        while few := [v for v, degree in core.degree if degree < (alpha if v in side else beta)]:
            core.remove_nodes_from(few)
        if not core:
            break
        best |= dict.fromkeys(core, beta)
    return best


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.integers(1, 4), st.integers(1, 4))
def test_cores_equal_those_of_removals(case: Case, directed: bool, alpha: int, beta: int) -> None:
    """Breaks when parallel edges count, or a vertex is removed too early or stays although its neighbors are gone."""
    n, drawn = case
    edges = [(u, v) for u, v in drawn if (u + v) % 2]
    reference = nx.Graph(edges)
    reference.add_nodes_from(range(n))
    expected = largest_betas(reference, set(range(0, n, 2)), alpha)
    graph, even = build(n, edges, directed), np.arange(n) % 2 == 0
    found = gf.bipartite_cores(graph, alpha, vertices=even)
    assert found.to_dict("core") == expected
    assert found.to_dict("side") == {v: v % 2 for v in range(n)}
    assert found.summary == {"vertices": n, "largest": max(expected.values(), default=0)}
    core = gf.bipartite_cores(graph, alpha, beta, even)
    assert core.to_dict("core") == {v: value for v, value in expected.items() if value >= beta}
    assert core.summary["vertices"] == len(core)


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_larger_cores(kind: type) -> None:
    rng = np.random.default_rng(4)
    graph = gf.from_edges(rng.integers(0, 60, 400), 60 + rng.integers(0, 30, 400) ** 2 // 30, labels=np.arange(90))
    made = Graph(graph.offsets, graph.targets.astype(kind), False, graph.num_edges)
    reference, side = gf.to_networkx(graph), set(range(60))
    for alpha in (1, 2, 4, 1 << 40):
        found = gf.bipartite_cores(made, alpha, vertices=list(side)).to_dict("core")
        assert found == largest_betas(reference, side, alpha)
        assert any(found.values()) == (alpha < 100)


def test_cores_of_labels_paths_and_errors() -> None:
    graph = gf.from_edges(["a", "a", "b", "b"], ["x", "y", "x", "y"])
    assert gf.bipartite_cores(gf.partition(graph, parts=2)).to_dict("core") == dict.fromkeys("abxy", 2)
    assert gf.bipartite_cores(graph, beta=3).table.num_rows == 0
    n = 200_000
    path = gf.bipartite_cores(gf.from_edges(np.arange(n - 1), np.arange(1, n)))
    assert path.table["core"].to_pylist() == [0, *[1] * (n - 1)]
    assert gf.bipartite_cores(gf.from_edges([], [])).summary == {"vertices": 0, "largest": 0}
    for options, message in (
        ({"alpha": 0}, "alpha=0"), ({"alpha": 1 << 70}, "alpha="), ({"beta": 0}, "beta=0"), ({"alpha": 1.5}, "alpha="),
        ({"vertices": ["a"]}, "edge b - x is between two vertices that are not given"),
        ({"vertices": ["q"]}, "unknown vertex 'q'"),
    ):  # fmt: skip
        with pytest.raises(gf.InputError, match=message):
            gf.bipartite_cores(graph, **options)  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="graph is not bipartite"):
        gf.bipartite_cores(gf.from_edges([1, 2, 3], [2, 3, 1]))
