"""Algorithms of the catalogue on the graph of every instance of a series."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from goffish.algorithms.dispatch import answer
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import Instance
from goffish.graph import Graph
from goffish.temporal.instance_graph import InstanceGraphs
from goffish.temporal.run import SeriesResult, moments

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Algorithm, Note
    from goffish.gopher import Result

#: Options of `goffish.run` that have no meaning for many graphs, one after the other.
_REFUSED = ("output", "checkpoint_dir", "checkpoint_every", "resume", "parts", "method", "given")


def run_each_instance(
    algorithm: Algorithm,
    graphs: InstanceGraphs,
    *,
    engine: str = "auto",
    start: Any = None,
    end: Any = None,
    side_by_side: int = 1,
    note: Note | None = None,
    running: Mapping[str, Any] | None = None,
) -> SeriesResult:
    """Run an algorithm on the graph of each instance; the rows of all results, by ``timestep``.

    Parameters
    ----------
    algorithm : Algorithm
    graphs : InstanceGraphs
        On an engine, vertices are in their partitions of the store.
    engine : {"auto", "local", "mpi", "spark"}
    start, end
        Only instances that begin in this half-open range.
    side_by_side : int
        Instances at a time, by threads; on ranks one after the other.
    running : mapping, optional
        Options of the run, such as ``threads``.

    Raises
    ------
    InputError
        An option that does not apply, a range outside the series, or as of the algorithm.
    """
    series, running = graphs.series, dict(running or {})
    for name in _REFUSED:
        if running.get(name) is not None:
            raise InputError(f"{name} does not apply to an algorithm that runs on each instance; omit {name}")
        running.pop(name, None)
    if side_by_side > 1 and engine == "mpi":
        raise InputError("temporal_parallelism: on ranks, an algorithm runs on one instance after the other")
    before, instances = series.counters(), list(series.instances(start, end))
    done = 0

    def run(instance: Instance) -> Result | str | None:
        nonlocal done
        graph = graphs.graph(instance) if engine == "auto" else graphs.partitioned(instance)
        found: Result | str | None = None
        if graph.num_vertices:
            found = _absent(algorithm, graph) or answer(algorithm, graph, engine, **running)
        done += 1
        if note is not None:
            note(f"{done:,} of {len(instances):,} instances")
        return found

    if side_by_side > 1:
        if engine != "spark":
            running.setdefault("threads", 1)
        with ThreadPoolExecutor(side_by_side) as pool:
            found = list(pool.map(run, instances))
    else:
        found = [run(instance) for instance in instances]
    results = [(one.number, result) for one, result in zip(instances, found, strict=True)]
    left_out = [f"instance {number}: {text}" for number, text in results if isinstance(text, str)]
    rows = [(number, result) for number, result in results if result is not None and not isinstance(result, str)]
    if left_out and not rows:
        raise InputError(left_out[0])
    tables = [
        result.table.add_column(0, "timestep", pa.array(np.full(result.table.num_rows, number)))
        for number, result in rows
    ]
    table = (
        pa.concat_tables(tables, promote_options="default") if tables else pa.table({"timestep": pa.array([], "int64")})
    )
    numbers = np.array([one.number for one in instances], np.int64)
    timesteps: dict[str, Any] = {
        "timestep": pa.array(numbers),
        "start": moments(series.starts[numbers], series.unit),
        "end": moments(series.ends[numbers], series.unit),
    }
    summaries = [{} if result is None or isinstance(result, str) else result.summary for _, result in results]
    for name in dict.fromkeys(name for one in summaries for name in one):
        if all(isinstance(one.get(name), int | float | str | None) for one in summaries):
            timesteps[name] = pa.array([one.get(name) for one in summaries])
    reads = series.counters() - before
    summary = {"timesteps": len(instances)}
    return SeriesResult(algorithm.name, table, summary, None, pa.table(timesteps), reads, tuple(left_out))


def _absent(algorithm: Algorithm, graph: Graph | PartitionedGraph) -> str | None:
    """What is said of an instance without a vertex that the algorithm is asked about."""
    try:
        for label in algorithm.labels():
            graph.find(label)
    except InputError as error:
        return str(error)
    return None
