"""Sides of bipartite graphs and projections, against networkx."""

from __future__ import annotations

import re
from itertools import pairwise

import networkx as nx
import numpy as np
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


def test_labels_attributes_and_errors() -> None:
    graph = gf.from_edges(["a", "b", "b", "c"], ["x", "x", "y", "y"], isolated=["z"], vertex_attributes={"h": range(6)})
    found = gf.bipartite_projection(graph, ["c", "a", "b"])
    assert found.edges.to_pylist() == [
        {"source": "a", "target": "b", "weight": 1.0}, {"source": "b", "target": "c", "weight": 1.0},
    ]  # fmt: skip
    assert found.vertices.to_pylist() == [{"vertex": v, "h": h} for h, v in enumerate("abc")]
    empty = gf.from_edges([], [])
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
        (["a", "b", "c"], {"weighting": "most"}, "weighting='most': choose one of shared, newman"),
        (["a", "b", "c"], {"threads": 0}, "threads=0"),
    ):
        with pytest.raises(gf.InputError, match=message):
            gf.bipartite_projection(graph, vertices, **options)  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="convert a PartitionedGraph"):
        gf.bipartite_projection(parted, ["a"])  # type: ignore[arg-type]
