"""Components and ranks of each instance against networkx on what exists in it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.graph import Graph, from_networkx
from goffish.temporal.instances import InstanceComponents, InstancePageRank
from tests.temporal.arrays import ArrayValues, run_series, told
from tests.temporal.programs.test_tdsp import series


def flags(directed: bool, seed: int, share: int) -> tuple[Any, Any]:
    """Which vertices and edges exist, by a hash: functions of numbers and timestep."""

    def vertex(v: Any, t: int) -> Any:
        return (np.asarray(v) * 31 + t * 17 + seed) * 2654435761 % 2**32 // 64 % 10 < share

    def edge(u: Any, v: Any, t: int) -> Any:
        a, b = (u, v) if directed else (np.minimum(u, v), np.maximum(u, v))
        return (np.asarray(a) * 7919 + b * 104729 + t * 13 + seed) * 2654435761 % 2**32 // 64 % 10 < share

    return vertex, edge


def instance(graph: Graph, vertex: Any, edge: Any, t: int) -> Any:
    found = nx.DiGraph() if graph.directed else nx.Graph()
    n = np.arange(graph.num_vertices)
    found.add_nodes_from(n[vertex(n, t)].tolist())
    src, dst = graph.arc_sources().astype(np.int64), graph.targets.astype(np.int64)
    keep = edge(src, dst, t) & vertex(src, t) & vertex(dst, t)
    found.add_edges_from(zip(src[keep].tolist(), dst[keep].tolist(), strict=True))
    return found


def by_timestep(table: Any, name: str) -> dict[int, dict[int, Any]]:
    found: dict[int, dict[int, Any]] = {}
    for row in table.to_pylist():
        found.setdefault(row["timestep"], {})[row["vertex"]] = row[name]
    return found


@given(series(), st.sampled_from([5, 8, 10]), st.booleans())
def test_components_of_random_series(case: Any, share: int, all_vertices: bool) -> None:
    graph, owner, parts, borders, _, seed = case
    vertex, edge = flags(graph.directed, seed, share)
    if all_vertices:
        vertex = lambda v, t: np.ones(np.size(v), np.bool_)  # noqa: E731
    values = ArrayValues(build_layout(graph, owner, parts), borders, {"vertex.there": vertex, "edge.exists": edge})
    program = InstanceComponents(vertex_exists=None if all_vertices else "there")
    found = by_timestep(run_series(program, values).table, "component")
    for t in range(len(borders) - 1):
        exact = {v: max(c) for c in nx.connected_components(nx.Graph(instance(graph, vertex, edge, t))) for v in c}
        assert found.get(t, {}) == exact


@given(series(), st.sampled_from([6, 10]))
@pytest.mark.slow
def test_ranks_of_random_series(case: Any, share: int) -> None:
    graph, owner, parts, borders, _, seed = case
    vertex, edge = flags(graph.directed, seed, share)
    values = ArrayValues(build_layout(graph, owner, parts), borders[:4], {"vertex.there": vertex, "edge.exists": edge})
    program = InstancePageRank(vertex_exists="there", tolerance=1e-12, iterations=300)
    found = by_timestep(run_series(program, values, range(min(3, len(borders) - 1))).table, "rank")
    for t in range(min(3, len(borders) - 1)):
        exact = nx.pagerank(instance(graph, vertex, edge, t), tol=1e-13, max_iter=1000)
        assert found.get(t, {}) == pytest.approx(exact, abs=1e-9)


def test_ranks_stop_when_they_are_exact_enough() -> None:
    graph = nx.cycle_graph(12)
    values = ArrayValues(build_layout(from_networkx(graph), np.arange(12, dtype=np.int32) % 3, 3), [0, 1], {})
    found = run_series(InstancePageRank(edge_exists=None), values)
    assert told(found, "supersteps") == [4]
    assert found.table["rank"].to_pylist() == pytest.approx([1 / 12] * 12)


def test_options_are_checked() -> None:
    for options, text in (({"damping": 1.0}, "less than 1"), ({"iterations": 0}, "at least 1")):
        with pytest.raises(InputError, match=text):
            InstancePageRank(**options)  # type: ignore[arg-type]
