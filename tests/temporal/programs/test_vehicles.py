"""A vehicle that is followed from camera to camera, against bounded searches with networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.temporal.vehicles import VehicleTracking
from tests.temporal.arrays import ArrayValues, run_series
from tests.temporal.programs.test_tdsp import latencies, series


def oracle(graph: Any, borders: Any, length: Any, seen: Any, speed: float) -> list[tuple[int, int, float]]:
    position, reach, found = 0, 0.0, []
    for t in range(len(borders) - 1):
        reach += speed * (borders[t + 1] - borders[t])
        roads = nx.DiGraph()
        roads.add_nodes_from(range(graph.num_vertices))
        src, dst = graph.arc_sources().astype(np.int64), graph.targets.astype(np.int64)
        roads.add_weighted_edges_from(zip(src.tolist(), dst.tolist(), length(src, dst, t).tolist(), strict=True))
        near = nx.single_source_dijkstra_path_length(roads, position, cutoff=reach)
        matches = sorted((d, v) for v, d in near.items() if seen[t][v])
        if matches:
            position, reach = matches[0][1], 0.0
            found.append((t, position, matches[0][0]))
    return found


@given(series(), st.sampled_from([0.5, 1.0, 3.0]))
def test_random_series(case: Any, speed: float) -> None:
    graph, owner, parts, borders, least, seed = case
    latency = latencies(graph.directed, least, seed)
    length = lambda u, v, t: latency(u, v, t).astype(np.float64)  # noqa: E731
    seen = np.random.default_rng(seed).random((len(borders) - 1, graph.num_vertices)) < 0.3
    plates = lambda v, t: pa.array([["other", "A1"] if seen[t][x] else ["other"] for x in v])  # noqa: E731
    values = ArrayValues(build_layout(graph, owner, parts), borders, {"edge.distance": length, "vertex.plates": plates})
    found = run_series(VehicleTracking("A1", 0, speed), values).table
    rows = [(row["timestep"], row["vertex"], row["distance"]) for row in found.to_pylist()]
    assert rows == oracle(graph, borders, length, seen, speed)


def test_speed_is_checked() -> None:
    with pytest.raises(InputError, match="max_speed=0: must be greater than 0"):
        VehicleTracking("A1", 0, 0)
