"""Time-dependent shortest paths against searches over states and over departures, and the fixtures of §7."""

from __future__ import annotations

import heapq
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError, JobError
from goffish.gofs import build_layout
from goffish.graph import Graph, from_edges
from goffish.temporal.tdsp import TimeDependentShortestPath
from tests.cases import grid, grid_blocks
from tests.temporal.arrays import ArrayValues, run_series, told


def window_oracle(arcs: Any, borders: Any, source: int, latency: Any) -> dict[int, tuple[float, int]]:
    """Dijkstra over states (arrival, window), compared lexicographically (docs/specs/time-series.md, section 4.1)."""
    best: dict[int, tuple[float, int]] = {source: (float(borders[0]), 0)}
    heap = [(float(borders[0]), 0, source)]
    while heap:
        d, i, u = heapq.heappop(heap)
        if (d, i) > best[u]:
            continue
        for v in arcs.get(u, ()):
            for j in range(i, len(borders) - 1):
                arrival = max(d, borders[j]) + latency(u, v, j)
                if arrival <= borders[j + 1]:
                    if (arrival, j) < best.get(v, (np.inf, 0)):
                        best[v] = (arrival, j)
                        heapq.heappush(heap, (arrival, j, v))
                    break
    return best


def departure_oracle(arcs: Any, borders: Any, source: int, latency: Any) -> dict[int, float]:
    """Dijkstra with the least arrival over all departures; what lies beyond the series is not reached."""
    best = {source: float(borders[0])}
    heap = [(float(borders[0]), source)]
    while heap:
        d, u = heapq.heappop(heap)
        if d > best[u]:
            continue
        for v in arcs.get(u, ()):
            windows = [j for j in range(len(borders) - 1) if borders[j + 1] > d]
            arrival = min((max(d, borders[j]) + latency(u, v, j) for j in windows), default=np.inf)
            if arrival < best.get(v, np.inf):
                best[v] = arrival
                heapq.heappush(heap, (arrival, v))
    return {v: d for v, d in best.items() if d < borders[-1]}


def arcs_of(graph: Graph) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for u, v in zip(graph.arc_sources().tolist(), graph.targets.tolist(), strict=True):
        found.setdefault(u, []).append(v)
    return found


@st.composite
def series(draw: st.DrawFn) -> tuple[Graph, Any, int, list[int], int, int]:
    """Graph, owners, partitions, borders of the instances, least latency, seed."""
    n = draw(st.integers(1, 14))
    directed = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        graph = grid(draw(st.integers(2, 5)), draw(st.integers(2, 4)))
    else:
        edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
        ends = np.array(edges or np.empty((0, 2)), np.int64).reshape(-1, 2)
        graph = from_edges(ends[:, 0], ends[:, 1], directed=directed, labels=np.arange(n), self_loops="keep")
    parts = draw(st.integers(1, 4))
    owner = np.array(
        draw(st.lists(st.integers(0, parts - 1), min_size=graph.num_vertices, max_size=graph.num_vertices))
    )
    widths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    return (
        graph,
        owner.astype(np.int32),
        parts,
        [0, *np.cumsum(widths).tolist()],
        draw(st.integers(0, 1)),
        draw(st.integers(0, 999)),
    )


def latencies(directed: bool, least: int, seed: int) -> Any:
    def at(u: Any, v: Any, i: int) -> Any:
        a, b = (u, v) if directed else (np.minimum(u, v), np.maximum(u, v))
        return least + (a * 7919 + b * 104729 + i * 31 + seed) * 2654435761 % 2**32 // 7 % 8

    return at


@given(series())
def test_both_semantics_on_random_series(case: Any) -> None:
    graph, owner, parts, borders, least, seed = case
    latency = latencies(graph.directed, least, seed)
    layout = build_layout(graph, owner, parts)
    values = ArrayValues(layout, borders, {"edge.latency": lambda u, v, i: latency(u, v, i).astype(np.float64)})
    arcs = arcs_of(graph)
    window = run_series(TimeDependentShortestPath(0), values)
    exact = window_oracle(arcs, borders, 0, latency)
    found = window.table.to_pydict()
    assert {
        v: (a, t) for v, a, t in zip(found["vertex"], found["arrival"], found["timestep"], strict=True) if t is not None
    } == exact
    table = dict(zip(found["vertex"], found["arrival"], strict=True))
    for v, parent, t in zip(found["vertex"], found["parent"], found["timestep"], strict=True):
        if parent is not None:  # the predecessor, left in that window, gives the arrival
            assert max(table[parent], borders[t]) + latency(parent, v, t) == table[v]
            assert borders[t] <= table[v] <= borders[t + 1]
    assert sum(told(window, "finalised")) == len(exact)
    departure = run_series(TimeDependentShortestPath(0, semantics="departure"), values).table.to_pydict()
    reached = {v: a for v, a in zip(departure["vertex"], departure["arrival"], strict=True) if a < np.inf}
    assert reached == departure_oracle(arcs, borders, 0, latency)
    if least:  # an edge that takes no time can be used at the end of a window under W, but not under D
        assert all(reached.get(v, np.inf) <= a for v, (a, _) in exact.items() if a < borders[-1])


def test_constant_latencies_are_static_shortest_paths() -> None:
    graph = grid(8, 6)
    layout = build_layout(graph, grid_blocks(8, 6, 2, 2), 4)
    weight = lambda u, v, i=0: (1 + (u + v) * 5 % 7).astype(np.float64)  # noqa: E731
    static = nx.Graph()
    src = graph.arc_sources()
    static.add_weighted_edges_from(
        zip(src.tolist(), graph.targets.tolist(), weight(src, graph.targets).tolist(), strict=True)
    )
    exact = nx.single_source_dijkstra_path_length(static, 0)
    one = ArrayValues(layout, [0, 10**9], {"edge.latency": weight})
    many = ArrayValues(layout, np.arange(60) * 3, {"edge.latency": weight})
    for values, semantics in ((one, "window"), (one, "departure"), (many, "departure")):
        found = run_series(TimeDependentShortestPath(0, semantics=semantics), values).table
        assert dict(zip(found["vertex"].to_pylist(), found["arrival"].to_pylist(), strict=True)) == exact


LATENCIES = {("S", "A"): (4, 5, 2), ("S", "E"): (5, 5, 5), ("A", "C"): (3, 6, 4), ("E", "C"): (2, 9, 1)}


def test_tiny_fixture() -> None:
    graph = from_edges(*zip(*LATENCIES, strict=True), directed=True)
    names = graph.label_column().to_pylist()
    layout = build_layout(graph, np.array([name not in "SA" for name in names], np.int32), 2)
    pick = lambda u, v, i: np.array([LATENCIES[names[a], names[b]][i] for a, b in zip(u, v, strict=True)], float)  # noqa: E731
    values = ArrayValues(layout, [0, 5, 10, 15], {"edge.latency": pick})
    window = run_series(TimeDependentShortestPath("S"), values)
    rows = {row["vertex"]: (row["arrival"], row["timestep"]) for row in window.table.to_pylist()}
    assert rows == {"S": (0, 0), "A": (4, 0), "E": (5, 0), "C": (11, 2)}
    assert told(window, "supersteps") == [2, 1, 2]
    departure = run_series(TimeDependentShortestPath("S", semantics="departure"), values)
    assert {row["vertex"]: row["arrival"] for row in departure.table.to_pylist()}["C"] == 7


def grid_values(**functions: Any) -> ArrayValues:
    layout = build_layout(grid(40, 30), grid_blocks(40, 30, 3, 4), 12)
    latency = lambda u, v, i: (1 + ((u + v) * 7 + 3 * i) % 9).astype(np.float64)  # noqa: E731
    return ArrayValues(layout, np.arange(21) * 20, {"edge.latency": latency, **functions})


@pytest.mark.parametrize("threads", [1, 2])
def test_grid_fixture(threads: int) -> None:
    found = run_series(TimeDependentShortestPath(0), grid_values(), threads=threads)
    arrival = np.array(found.table.sort_by("vertex")["arrival"])
    assert told(found, "finalised") == [24, 62, 112, 149, 194, 228, 173, 154, 104]
    assert told(found, "supersteps") == [1, 3, 4, 4, 4, 3, 4, 3, 3]
    assert (arrival.max(), arrival[1199], arrival[620], arrival.sum()) == (180, 179, 90, 124_693)
    static = run_series(TimeDependentShortestPath(0), _first_instance_only())
    assert np.array(static.table.sort_by("vertex")["arrival"])[1199] == 183


def _first_instance_only() -> ArrayValues:
    values = grid_values()
    values.starts, values.ends = np.array([0]), np.array([10**6])
    return values


@pytest.mark.slow
def test_resumed_run_is_the_same(tmp_path: Any) -> None:
    """Stopped in the middle of every timestep, and taken up again."""
    values = grid_values()
    whole = run_series(TimeDependentShortestPath(0), values)
    for stop in (2, 9, 17, 30):
        folder = tmp_path / str(stop)
        with pytest.raises(JobError, match="not finished"):
            run_series(
                TimeDependentShortestPath(0), values, checkpoint_dir=folder, checkpoint_every=1, max_supersteps=stop
            )
        again = run_series(TimeDependentShortestPath(0), values, checkpoint_dir=folder, checkpoint_every=1, resume=True)
        assert again.table.equals(whole.table)
        assert told(again, "supersteps") == told(whole, "supersteps")


def test_edges_that_do_not_exist_and_gaps() -> None:
    """0-1 exists in the first instance only, 1-2 in the last; between them nothing moves."""
    graph = from_edges([0, 1], [1, 2], labels=np.arange(3))
    layout = build_layout(graph, np.array([0, 1, 1], np.int32), 2)
    exists = lambda u, v, i: (np.minimum(u, v) == 0) == (i == 0)  # noqa: E731
    latency = lambda u, v, i: np.full(u.size, 2.0)  # noqa: E731
    values = ArrayValues(layout, [[10, 15], [40, 44]], {"edge.latency": latency, "edge.there": exists})
    found = run_series(TimeDependentShortestPath(0, exists="there"), values).table.sort_by("vertex")
    assert found["arrival"].to_pylist() == [0, 2, 32]
    assert found["timestep"].to_pylist() == [0, 0, 1]


def test_impossible_latency_is_named() -> None:
    layout = build_layout(grid(3, 1), np.zeros(3, np.int32), 1)
    values = ArrayValues(layout, [0, 5, 9], {"edge.latency": lambda u, v, i: np.full(u.size, 4.0 - 5 * i)})
    with pytest.raises(
        JobError, match=r"timestep 1, compute, superstep 1: edge.latency is -1 for an edge of vertex number 0"
    ):
        run_series(TimeDependentShortestPath(2), values)
    with pytest.raises(InputError, match="choose window or departure"):
        TimeDependentShortestPath(0, semantics="other")  # type: ignore[arg-type]


def test_what_cannot_be_reached_does_not_keep_the_run_going() -> None:
    graph = from_edges([0, 2], [1, 3], labels=np.arange(4))
    values = ArrayValues(
        build_layout(graph, np.array([0, 1, 0, 1], np.int32), 2),
        np.arange(31) * 3,
        {"edge.latency": lambda u, v, i: np.full(u.size, 2.0)},
    )
    found = run_series(TimeDependentShortestPath(0), values)
    assert found.table.sort_by("vertex")["arrival"].to_pylist() == [0, 2, np.inf, np.inf]
    assert len(told(found, "supersteps")) <= 3
