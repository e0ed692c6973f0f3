"""Values of instances in memory, by functions of ends, vertices and timestep, for tests of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.gofs import PartitionedGraph
from goffish.gopher import Result, SubgraphBatch, run_program
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.timeline import Timeline

Function = Callable[..., Any]


class ArrayValues:
    """Instances of a graph in memory.

    Parameters
    ----------
    functions : mapping of str to callable
        ``"vertex.NAME"``: of (vertices, timestep); ``"edge.NAME"``: of (sources, targets, timestep). Vertices are
        numbers as read; a function gives one value for each.
    """

    def __init__(self, graph: PartitionedGraph, borders: Any, functions: Mapping[str, Function]) -> None:
        self.graph, self.functions = graph, functions
        borders = np.asarray(borders)
        self.starts, self.ends = (borders[:-1], borders[1:]) if borders.ndim == 1 else (borders[:, 0], borders[:, 1])

    def bound(self, batch: SubgraphBatch, instance: int, active: NDArray[np.int64]) -> Callable[[str], Any]:
        part = self.graph.slice(batch.partition)

        def read(name: str, subgraphs: Any = None) -> Any:
            if name.startswith("vertex."):
                return self.functions[name](part.vertex_ids.astype(np.int64), instance)
            incoming = name.startswith("in_edge.")
            ends = self._ends(part, part.in_arcs if incoming else part.out_arcs)
            return self.functions[name.removeprefix("in_")](*(ends[::-1] if incoming else ends), instance)

        return read

    def _ends(self, part: Any, arcs: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        source = np.repeat(np.arange(part.num_vertices), np.diff(arcs.offsets))
        unit = np.searchsorted(part.subgraph_offsets, source, side="right") - 1
        target = np.empty(source.size, np.int64)
        own = arcs.targets >= 0
        target[own] = part.vertex_ids[part.subgraph_offsets[unit[own]] + arcs.targets[own]]
        far = arcs.remote_vertex[arcs.remote_offsets[unit[~own]] + ~arcs.targets[~own]]
        target[~own] = self.graph.vertex_ids()[far]
        return part.vertex_ids[source].astype(np.int64), target


def run_series(
    program: TimeSeriesProgram, values: ArrayValues, timesteps: Any = None, given: Any = None, **running: Any
) -> Result:
    """Run a program over all instances, on the local engine unless told otherwise."""
    chosen = range(len(values.starts)) if timesteps is None else timesteps
    timeline = Timeline(program, values, chosen, given=given, merges=program.pattern == "eventual")
    found = run_program(timeline, values.graph, **{"threads": 1, **running})
    return replace(found, table=program.finish(found.table))


def told(result: Result, name: str) -> list[Any]:
    """A figure of each timestep, of those that were run."""
    assert result.stats is not None
    found = {
        int(key.split("@")[1]): value for key, value in result.stats.aggregates.items() if key.startswith(f"{name}@")
    }
    return [found[t] for t in sorted(found)]
