"""Maximum flows and minimum cuts against networkx and SciPy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow as scipy_flow

import goffish as gf
from goffish.algorithms.flows.in_memory import MaximumFlow
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build

Case = tuple[int, list[tuple[int, int]]]


def check(graph: Graph, found: MaximumFlow, source: int, target: int) -> None:
    """The flow is one, has the value that is reported, and fills a cut: no other flow has a larger value."""
    src, dst, weight, _ = graph.edge_columns()
    capacity = np.ones(src.size) if weight is None else weight
    flow, cut = (found.table[name].to_numpy() for name in ("flow", "cut"))
    assert (flow <= capacity).all() and (flow >= (0.0 if graph.directed else -capacity)).all()
    n = graph.num_vertices
    balance = np.bincount(src, flow, n) - np.bincount(dst, flow, n)
    between = np.ones(n, np.bool_)
    between[[source, target]] = False
    assert balance[between] == pytest.approx(0.0, abs=1e-9)
    assert (balance[source], balance[target]) == pytest.approx((found.value, -found.value))
    side = found.sides["source_side"].to_numpy(zero_copy_only=False)
    assert side[source] and not side[target]
    assert capacity[cut].sum() == pytest.approx(found.value)
    leaves = side[src] & ~side[dst] if graph.directed else side[src] != side[dst]
    assert (cut == leaves).all()
    assert found.summary == {"value": found.value, "cut_edges": cut.sum(), "source_side": side.sum()}


def reference(graph: Graph) -> nx.Graph:
    """The same graph with the capacities of parallel edges added up, as networkx has no flows of multigraphs."""
    whole = nx.DiGraph() if graph.directed else nx.Graph()
    whole.add_nodes_from(range(graph.num_vertices))
    src, dst, weight, _ = graph.edge_columns()
    capacity = np.ones(src.size) if weight is None else weight
    for u, v, c in zip(src.tolist(), dst.tolist(), capacity.tolist(), strict=True):
        whole.add_edge(u, v, capacity=c + (whole[u][v]["capacity"] if whole.has_edge(u, v) else 0.0))
    return whole


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.sampled_from(["none", "integers", "fractions"]), st.data())
def test_flows_equal_those_of_networkx(case: Case, directed: bool, kind: str, data: st.DataObject) -> None:
    """Breaks when a path is left, a vertex finds a parent below itself, or another cut is nearer to the target."""
    n, edges = case
    numbers = {"integers": st.integers(0, 4), "fractions": st.sampled_from([0.0, 0.1, 0.3, 1.7, 1e9])}
    drawn = st.none() if kind == "none" else st.lists(numbers[kind], min_size=len(edges), max_size=len(edges))
    graph = build(n, edges, directed, weight=data.draw(drawn))
    if n == 1:
        with pytest.raises(gf.InputError, match="source and target are the same vertex 0"):
            gf.maximum_flow(graph, 0, 0)
        return
    source, target = data.draw(st.permutations(range(n)))[:2]
    found = gf.maximum_flow(graph, source, target)
    check(graph, found, source, target)
    value, (before, _) = nx.minimum_cut(reference(graph), source, target)
    assert found.value == (pytest.approx(value, abs=1e-9) if kind == "fractions" else value)
    if kind != "fractions":
        assert set(found.sides.filter(pc.field("source_side"))["vertex"].to_pylist()) == before


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_larger_graphs(kind: type) -> None:
    """Values of SciPy; breaks when the repair of trees goes wrong that are deeper than those of small graphs."""
    rng = np.random.default_rng(4)
    side = 24
    ids = np.arange(side * side).reshape(side, side)
    grid = (
        np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()]),
        np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()]),
    )
    shapes = {"grid": grid, "random": tuple(rng.integers(0, 600, (2, 2400)))}
    for src, dst in shapes.values():
        for directed in (False, True):
            n, ends = 602, rng.permutation(576)
            # Many sources and targets, so that many paths share the capacities between them.
            src_all = np.concatenate([src, np.full(50, 600), ends[50:100]])
            dst_all = np.concatenate([dst, ends[:50], np.full(50, 601)])
            weight = np.concatenate([rng.integers(1, 30, src.size), np.full(100, 60)])
            options = {"labels": np.arange(n), "directed": directed, "parallel": "sum"}
            graph = gf.from_edges(src_all, dst_all, weight, **options)  # type: ignore[arg-type]
            graph = Graph(graph.offsets, graph.targets.astype(kind), directed, graph.num_edges, graph.weights)
            found = gf.maximum_flow(graph, 600, 601)
            check(graph, found, 600, 601)
            assert graph.weights is not None
            matrix = csr_array((graph.weights.astype(np.int32), graph.targets.astype(np.int32), graph.offsets))
            assert found.value == scipy_flow(matrix, 600, 601).flow_value > 500.0
            assert (found.table["flow"].to_numpy() % 1.0 == 0.0).all()


def test_long_paths_and_extreme_capacities() -> None:
    n = 20_000
    path = gf.from_edges(np.arange(n - 1), np.arange(1, n), np.r_[np.full(n // 2, 5.0), 2.0, np.full(n // 2 - 2, 5.0)])
    found = gf.maximum_flow(path, 0, n - 1)
    assert found.summary == {"value": 2.0, "cut_edges": 1, "source_side": n // 2 + 1}
    assert (found.table["flow"].to_numpy() == 2.0).all()
    # Small flows on edges of large capacity are not rounded away.
    wide = gf.from_edges([0, 0, 1, 2], [1, 2, 3, 3], [1e140, 1e-140, 0.1, 1e140])
    found = gf.maximum_flow(wide, 0, 3)
    assert found.to_dict() == {(0, 1): 0.1, (0, 2): 1e-140, (1, 3): 0.1, (2, 3): 1e-140}
    big = gf.from_edges([0, 1, 0], [1, 2, 2], [2.0**52, 2.0**52 + 1, 1.0])
    assert gf.maximum_flow(big, 0, 2).value == 2.0**52 + 1


def test_labels_options_and_errors() -> None:
    graph = gf.from_edges(["a", "b", "a", "c"], ["b", "d", "c", "d"], [1.0, 4.0, 2.0, 0.0], isolated=["z"])
    found = gf.maximum_flow(graph, "d", "a")
    assert found.to_dict() == {("a", "b"): -1.0, ("a", "c"): 0.0, ("b", "d"): -1.0, ("c", "d"): 0.0}
    assert gf.maximum_flow(graph, "a", "d", weighted=False).value == 2.0
    assert gf.maximum_flow(graph, "a", "z").summary == {"value": 0.0, "cut_edges": 0, "source_side": 4}
    parted = gf.maximum_flow(gf.partition(graph, parts=2), "d", "a")
    assert (parted.to_dict(), parted.value) == (found.to_dict(), 1.0)
    for ends, message in (
        (("a", "a"), "source and target are the same vertex 'a'"),
        (("a", "x"), "x"),
        (("x", "a"), "x"),
        ((1, "a"), "1"),
    ):
        with pytest.raises(gf.InputError, match=message):
            gf.maximum_flow(graph, *ends)
    with pytest.raises(gf.InputError, match="weights must be 0 or from"):
        gf.maximum_flow(gf.from_edges([1], [2], [1e200]), 1, 2)
    with pytest.raises(gf.InputError):
        gf.maximum_flow(gf.from_edges([], []), 1, 2)
    with pytest.warns(gf.errors.GoffishWarning, match="threads=2 has no effect"):
        gf.maximum_flow(graph, "a", "d", threads=2)
