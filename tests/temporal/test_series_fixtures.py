"""The numbers of docs/specs/time-series.md, section 7, from plain Dijkstra and breadth-first search."""

from __future__ import annotations

from heapq import heappop, heappush
from pathlib import Path

import networkx as nx
import numpy as np

from goffish.gofs.series import open_series
from tests.temporal.fixtures import SeriesCase, grid_latency, grid_meme, tiny, track


def earliest_arrival(case: SeriesCase, source: int, window: int) -> dict[int, tuple[int, int]]:
    """(arrival, window of arrival) of every vertex under semantics W: Dijkstra over both, §4.1."""
    src, dst, _, _ = case.graph.edge_columns()
    arcs: dict[int, list[tuple[int, int]]] = {}
    for e, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        arcs.setdefault(u, []).append((v, e))
        if not case.graph.directed:
            arcs.setdefault(v, []).append((u, e))
    weights = [d.values["edge.latency"] for d in case.instances]
    best, heap = {source: (0, 0)}, [(0, 0, source)]
    while heap:
        d, i0, u = heappop(heap)
        if best[u] < (d, i0):
            continue
        for v, e in arcs.get(u, []):
            for i in range(i0, len(weights)):
                arrival = max(d, i * window) + int(weights[i][e])
                if arrival <= (i + 1) * window:
                    if v not in best or (arrival, i) < best[v]:
                        best[v] = (arrival, i)
                        heappush(heap, (arrival, i, v))
                    break
    return best


def test_tiny() -> None:
    case = tiny()
    labels = case.graph.label_column().to_pylist()
    found = earliest_arrival(case, labels.index("S"), case.expected["window"])
    assert {labels[v]: a for v, (a, _) in found.items()} == case.expected["arrival"]
    assert {labels[v]: t for v, (_, t) in found.items()} == case.expected["timestep"]
    assert sorted("".join(sorted(p.labels().to_pylist())) for p in case.layout.slices()) == ["AS", "CE"]


def test_grid() -> None:
    case = grid_latency()
    found = earliest_arrival(case, 0, 20)
    assert np.bincount([t for _, t in found.values()]).tolist() == case.expected["finalised"]
    arrivals = {v: a for v, (a, _) in found.items()}
    assert max(arrivals.values()) == case.expected["largest"]
    assert (arrivals[1199], arrivals[620]) == (case.expected["arrival_1199"], case.expected["arrival_620"])
    assert sum(arrivals.values()) == case.expected["sum"]
    src, dst, _, _ = case.graph.edge_columns()
    first = nx.Graph()
    first.add_weighted_edges_from(
        zip(src.tolist(), dst.tolist(), case.instances[0].values["edge.latency"], strict=True)
    )
    assert nx.dijkstra_path_length(first, 0, 1199) == case.expected["static_1199"]


def test_meme(tmp_path: Path) -> None:
    case = grid_meme()
    case.write(tmp_path / "s", pack=3)
    series = open_series(tmp_path / "s")
    holders = [{v for v, m in enumerate(i.vertex("memes").to_pylist()) if m} for i in series.instances()]
    assert [len(h) for h in holders] == case.expected["counts"]
    assert sum(case.expected["counts"]) == case.expected["total"]
    colour = track(as_networkx(case), holders)
    assert len(colour) == case.expected["coloured"]
    assert np.bincount(list(colour.values())).tolist() == case.expected["new"]
    assert sum(colour.values()) == case.expected["sum_of_times"]


def as_networkx(case: SeriesCase) -> nx.Graph:
    src, dst, _, _ = case.graph.edge_columns()
    found = nx.Graph()
    found.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
    return found
