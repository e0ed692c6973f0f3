"""Communities of every instance of a stored series, numbered alike over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from goffish.algorithms.communities.api import Louvain, louvain
from goffish.algorithms.dispatch import answer
from goffish.gofs.series import Instance
from goffish.graph.parallel import thread_count
from goffish.temporal.evolution import community_evolution
from goffish.temporal.instance_graph import InstanceGraphs
from goffish.temporal.run import SeriesResult, moments

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note


@dataclass(frozen=True, eq=False)
class CommunitySeries(SeriesResult):
    """Communities over time; `table` says in which one each vertex is, by ``timestep`` and ``vertex``.

    Attributes
    ----------
    events : pyarrow.Table
        See `goffish.temporal.evolution.Evolution`.
    """

    events: pa.Table = None


def evolve(
    graphs: InstanceGraphs,
    *,
    threshold: float = 0.3,
    resolution: float = 1.0,
    seed: int = 0,
    start: Any = None,
    end: Any = None,
    threads: int | None = None,
    note: Note | None = None,
    engine: str = "auto",
    running: Mapping[str, Any] | None = None,
) -> CommunitySeries:
    """Louvain in every instance, and `community_evolution` of what it finds.

    Vertices without an edge in an instance are in no community of it, unless an attribute says that they are there.

    Parameters
    ----------
    graphs : InstanceGraphs
    threshold : float
        See `community_evolution`.
    resolution, seed
        See `goffish.louvain`.
    start, end
        Only instances that begin in this half-open range.
    threads : int, optional
        Instances at a time in memory.
    engine : {"auto", "local", "mpi", "spark"}
        Where Louvain runs: in memory, or on one instance after the other, with vertices in their partitions of the
        store. Ids and events are found by the process that leads.
    running : mapping, optional
        Options of the run on an engine, such as ``threads``.

    Raises
    ------
    InputError
        A range outside the series.
    """
    series = graphs.series
    before = series.counters()
    instances = list(series.instances(start, end))

    def divide(instance: Instance) -> tuple[pa.Array, Any, float]:
        graph = graphs.graph(instance)
        if not graph.num_vertices:
            return graph.label_column(), np.empty(0, np.int64), 0.0
        found = louvain(graph, resolution=resolution, seed=seed, threads=1)
        return found.table["vertex"].combine_chunks(), found.table["community"].to_numpy(), found.summary["modularity"]

    def divide_on_engine(instance: Instance) -> tuple[pa.Array, Any, float]:
        graph = graphs.partitioned(instance)
        if not graph.num_vertices:
            return graph.labels(), np.empty(0, np.int64), 0.0
        made = answer(Louvain.checked(resolution=resolution, seed=seed), graph, engine, **(running or {}))
        if "community" not in made.table.column_names:  # a rank that is not the first
            return graph.labels()[:0], np.empty(0, np.int64), 0.0
        return made.table["vertex"].combine_chunks(), made.table["community"].to_numpy(), made.summary["modularity"]

    found = []
    with ThreadPoolExecutor(thread_count(threads)) as pool:
        divided = pool.map(divide, instances) if engine == "auto" else map(divide_on_engine, instances)
        for at, one in enumerate(divided):
            found.append(one)
            if note is not None:
                note(f"{at + 1:,} of {len(instances):,} instances")
    evolution = community_evolution([one[:2] for one in found], threshold=threshold)
    numbers = np.array([instance.number for instance in instances], np.int64)
    members, events = (_renumbered(table, numbers) for table in (evolution.members, evolution.events))
    timesteps = pa.table({
        "timestep": pa.array(numbers),
        "start": moments(series.starts[numbers], series.unit),
        "end": moments(series.ends[numbers], series.unit),
        "communities": pa.array([int(np.unique(one[1]).size) for one in found], pa.int64()),
        "modularity": pa.array([one[2] for one in found], pa.float64()),
    })  # fmt: skip
    counts = Counter(events["event"].to_pylist())
    summary = {"timesteps": len(instances), **{name: counts.get(name, 0) for name in _EVENTS}}
    members = members.select(["timestep", "vertex", "community"])
    return CommunitySeries("communities", members, summary, None, timesteps, series.counters() - before, events=events)


_EVENTS = ("born", "died", "grown", "shrunk", "continued", "split", "merged")


def _renumbered(table: pa.Table, numbers: Any) -> pa.Table:
    """Timesteps as the series numbers them, where a range was asked for."""
    at = table.column_names.index("timestep")
    return table.set_column(at, "timestep", pa.array(numbers[table["timestep"].to_numpy()]))
