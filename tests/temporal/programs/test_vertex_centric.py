"""Applications give the same on subgraphs, whole partitions and single vertices.

See docs/specs/time-series.md, section 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from goffish.gofs import build_layout
from goffish.temporal.instances import InstanceComponents, InstancePageRank
from goffish.temporal.memes import HashtagAggregation, MemeTracking
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.tdsp import TimeDependentShortestPath
from goffish.temporal.vehicles import VehicleTracking
from tests.temporal.arrays import ArrayValues, run_series
from tests.temporal.programs.test_instances import flags
from tests.temporal.programs.test_tdsp import latencies, series

PROGRAMS: tuple[TimeSeriesProgram, ...] = (
    TimeDependentShortestPath(0),
    TimeDependentShortestPath(0, semantics="departure"),
    MemeTracking("A1", "seen"),
    HashtagAggregation("A1", "seen"),
    InstanceComponents(vertex_exists="there"),
    InstancePageRank(iterations=4, vertex_exists="there"),
    VehicleTracking("A1", 0, 2.0, "latency", "seen"),
)


@pytest.mark.slow
@settings(max_examples=35)
@given(series())
def test_units_do_not_matter(case: Any) -> None:
    """Seven programs on 35 random series: 245 comparisons of three units."""
    graph, owner, parts, borders, least, seed = case
    latency = latencies(graph.directed, least, seed)
    vertex, edge = flags(graph.directed, seed, 8)
    seen = np.random.default_rng(seed).random((len(borders) - 1, graph.num_vertices)) < 0.4
    functions = {
        "edge.latency": lambda u, v, t: latency(u, v, t).astype(np.float64),
        "edge.exists": edge,
        "vertex.there": vertex,
        "vertex.seen": lambda v, t: pa.array([["other", "A1"] if seen[t][x] else ["other"] for x in v]),
    }
    for program in PROGRAMS:
        tables = []
        for finder in ("components", "single", "vertex"):
            layout = build_layout(graph, owner, parts, finder=finder)  # type: ignore[arg-type]
            table = run_series(program, ArrayValues(layout, borders, functions)).table
            keys = [(name, "ascending") for name in ("timestep", "vertex") if name in table.column_names]
            tables.append(table.sort_by(keys).to_pydict())
        for other in tables[1:]:
            assert other.keys() == tables[0].keys()
            for name, column in tables[0].items():
                # Predecessors on paths of equal length may differ; sums of ranks are in another order.
                if name == "rank":
                    assert other[name] == pytest.approx(column, abs=1e-12)
                elif name != "parent":
                    assert other[name] == column, (program.name(), name)
