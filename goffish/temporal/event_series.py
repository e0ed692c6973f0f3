"""Time-stamped edges that a stored series holds as lists of times: reading them by partition, and all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.files import open_folder
from goffish.gofs.series import Series, SeriesCounters, SeriesSchema
from goffish.gofs.store import read_manifest
from goffish.gopher import SubgraphBatch
from goffish.graph.parallel import thread_count
from goffish.temporal.event_paths import (
    COLUMNS,
    FAR,
    PathKind,
    TimedEdges,
    as_values,
    best_paths,
    both_ways,
    durations,
    whole_numbers,
)
from goffish.temporal.figures import slice_sizes
from goffish.temporal.in_memory import fits
from goffish.temporal.motifs import count_events, counts_table
from goffish.temporal.run import SeriesResult, moments

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note

#: Bytes of the largest attribute of events that is read into memory as a whole.
MOST_BYTES = 2 * 2**30


class EventNames(NamedTuple):
    """Where a series holds its events.

    Attributes
    ----------
    times : str
        Edge attribute with a list of the times of the events on the edge.
    duration : int or str
        Travel time of all events, or the edge attribute that holds it: a list aligned with `times`, or a number for all
        events on an edge in an instance.
    order : str, optional
        Edge attribute with a list aligned with `times`: ranks of events at the same time.
    """

    times: str
    duration: int | str = 0
    order: str | None = None

    def attributes(self) -> tuple[str, ...]:
        """Return the attributes, as programs declare them."""
        return tuple(dict.fromkeys(f"edge.{name}" for name in self if isinstance(name, str)))

    def check(self, schema: SeriesSchema) -> None:
        """Refuse attributes that do not exist, or do not hold what they should.

        Raises
        ------
        InputError
            The message names the attribute and how to store one.
        """
        if f"edge.{self.times}" not in schema:
            known = ", ".join(schema) or "none"
            raise InputError(
                f"no attribute 'edge.{self.times}' with the times of events in this series (available: {known}); build "
                f"the series with --attribute {self.times}=list:timestamp"
            )
        for name in self.attributes():
            kind = schema[name].type
            single = name == f"edge.{self.duration}" and kind.startswith(("int", "uint"))
            if not single and not kind.startswith(("list<int", "list<uint")):
                raise InputError(f"{name} has type {kind}; expected list<int64>, with one integer per event")


class EventRows(NamedTuple):
    """Events by the row (edge, or arc) that they are on."""

    row: NDArray[np.int64]
    time: NDArray[np.int64]
    duration: NDArray[np.int64]
    order: NDArray[np.int64]


def event_rows(names: EventNames, column: Callable[[str], Any]) -> EventRows:
    """Take the events of an instance out of the columns of its edge attributes.

    Raises
    ------
    InputError
        A time beyond 2^60, a negative duration, or lists of different lengths.
    """
    times = column(names.times)
    counts = pc.list_value_length(times).fill_null(0).to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(counts.size), counts)

    def per_event(name: str) -> Any:
        values = column(name)
        if isinstance(values, np.ndarray):
            return values[row]
        own = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        if not np.array_equal(own, counts):
            raise InputError(f"edge.{name}: lists differ in length from those of edge.{names.times}")
        return values.flatten().to_numpy(zero_copy_only=False)

    time = whole_numbers(f"edge.{names.times}", per_event(names.times))
    if isinstance(names.duration, str):
        took = durations(per_event(names.duration), f"edge.{names.duration}")
    else:
        took = np.full(row.size, names.duration, np.int64)
    order = np.zeros(row.size, np.int64)
    if names.order is not None:
        order = whole_numbers(f"edge.{names.order}", per_event(names.order))
    return EventRows(row, time, took, order)


def arc_events(names: EventNames, batch: SubgraphBatch, *, incoming: bool = False) -> EventRows:
    """Return the events on the arcs of a partition, those that start there or (`incoming`) end there."""
    prefix = "in_edge." if incoming else "edge."
    return event_rows(names, lambda name: batch.attribute(prefix + name))


def arc_ends(
    batch: SubgraphBatch, arc: NDArray[np.int64], *, incoming: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the vertex that each arc is listed at, and its other end: r < 0 is row ~r of `SubgraphBatch.remotes`."""
    rows = batch.in_rows if incoming else batch.rows
    near = np.asarray(np.searchsorted(rows.offsets, arc, side="right") - 1, np.int64)
    unit = np.searchsorted(rows.starts, near, side="right") - 1
    target = rows.targets[arc].astype(np.int64)
    far = np.where(target < 0, target - rows.remote_starts[unit], target + rows.starts[unit])
    return near, far


def next_bound(name: str, instance: int, span: tuple[int, int], bound: int | None, *, descending: bool = False) -> int:
    """Check that the events of an instance lie beyond those of all instances before it; gives the new bound.

    Raises
    ------
    InputError
        They do not: the times and the instances disagree.
    """
    soonest, latest = span
    if bound is not None and (latest >= bound if descending else soonest <= bound):
        problem = f"{latest}, which is not before {bound}" if descending else f"{soonest}, which is not after {bound}"
        other = "a later" if descending else "an earlier"
        raise InputError(
            f"instance {instance}: edge.{name} holds {problem} in {other} instance; expected times that ascend with "
            "the instances"
        )
    return soonest if descending else latest


class StoredEvents(NamedTuple):
    """Events between vertices that are numbered as the graph was read."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    time: NDArray[np.int64]
    duration: NDArray[np.int64]
    order: NDArray[np.int64]

    def sorted(self) -> StoredEvents:
        """Return the events in the order of time; `order`, then the ends break ties."""
        rows = np.lexsort((self.target, self.source, self.order, self.time))
        return StoredEvents(*(column[rows] for column in self))


def stored_events(
    series: Series, instances: Sequence[int], names: EventNames, note: Note | None = None
) -> StoredEvents:  # fmt: skip
    """Read the events of some instances (ascending) into memory, in the order of time."""
    parts = _own_edges(series)
    pieces = [StoredEvents(*np.empty((5, 0), np.int64))]
    bound = None
    for done, instance in enumerate(instances):
        found = []
        for partition, (own, source, target) in enumerate(parts):
            events = event_rows(names, _reader(series, partition, instance))
            row, *columns = (column[own[events.row]] for column in events)
            found.append(StoredEvents(source[row], target[row], *columns))
        times = np.concatenate([one.time for one in found]) if found else np.empty(0, np.int64)
        if times.size:
            bound = next_bound(names.times, instance, (int(times.min()), int(times.max())), bound)
        pieces += found
        if note is not None:
            note(f"{done + 1:,} of {len(instances):,} instances")
    return StoredEvents(*(np.concatenate(columns) for columns in zip(*pieces, strict=True))).sorted()


def _reader(series: Series, partition: int, instance: int) -> Callable[[str], Any]:
    return lambda name: series.values(partition, instance, f"edge.{name}")


def _own_edges(series: Series) -> list[tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]]:
    """For each partition and row: whether the edge was in no row before, and the numbers of its ends."""
    numbers = series.graph.vertex_ids().astype(np.int64)
    edges = [series.elements(partition).edge_id for partition in range(series.num_partitions)]
    seen = np.zeros(max((int(one.max(initial=-1)) for one in edges), default=-1) + 1, np.bool_)
    found = []
    for partition, edge in enumerate(edges):
        own = np.zeros(edge.size, np.bool_)
        own[np.unique(edge, return_index=True)[1]] = True
        own &= ~seen[edge]
        seen[edge] = True
        source, target = series.edge_ends(partition)
        found.append((own, numbers[source], numbers[target]))
    return found


def events_fit(series: Series, names: EventNames) -> bool:
    """Whether the template and the events are small enough for the memory of one process."""
    manifest = read_manifest(open_folder(series.path))
    return fits(series) and all(sum(slice_sizes(series, manifest, name)) <= MOST_BYTES for name in names.attributes())


class PathQuery(NamedTuple):
    """Which paths are searched: options of `goffish.temporal_paths`; `undirected`: take directed edges both ways."""

    vertex: int | str
    kind: PathKind = "earliest-arrival"
    start: int | None = None
    end: int | None = None
    undirected: bool = False


def paths_in_memory(
    series: Series,
    names: EventNames,
    query: PathQuery,
    *,
    start: Any = None,
    end: Any = None,
    side_by_side: int | None = None,
    note: Note | None = None,
) -> SeriesResult:
    """As `goffish.temporal.event_programs.EventPaths`, with the events of the instances in a range in memory."""
    before, instances, kind = series.counters(), series.between(start, end), query.kind
    events = stored_events(series, instances, names, note)
    labels = series.graph.labels_by_number()
    at = labels.index(pa.scalar(query.vertex, labels.type)).as_py()
    edges = TimedEdges(events.source, events.target, events.time, events.time + events.duration)
    if query.undirected or not series.graph.info.directed:
        edges = both_ways(edges)
    if edges.begin.size:
        found = best_paths(edges, len(labels), at, kind, query.start, query.end)[0]
    else:
        value = np.full(len(labels), FAR)
        value[at] = start_value(query)
        found = as_values(value, kind)
    return _answered(series, instances, pa.table({"vertex": labels, COLUMNS[kind]: found}), events, before)


def start_value(query: PathQuery) -> int:
    """Return what the path without an edge gives, as kernels count; `FAR` if that depends on the events."""
    if query.kind == "latest-departure":
        return FAR if query.end is None else -query.end
    if query.kind == "earliest-arrival":
        return FAR if query.start is None else query.start
    return 0


def triangles_in_memory(
    series: Series,
    names: EventNames,
    within: int,
    *,
    start: Any = None,
    end: Any = None,
    side_by_side: int | None = None,
    note: Note | None = None,
) -> SeriesResult:
    """As `goffish.temporal.event_programs.EventTriangles`, with the events of the instances in a range in memory."""
    before, instances = series.counters(), series.between(start, end)
    events = stored_events(series, instances, names, note)
    found = count_events(
        series.graph.num_vertices, events.source, events.target, events.time, within, threads=thread_count(side_by_side)
    )
    return _answered(series, instances, counts_table(found), events, before)


def _answered(
    series: Series, instances: Sequence[int], table: pa.Table, events: StoredEvents, before: SeriesCounters
) -> SeriesResult:  # fmt: skip
    numbers = np.array(instances, np.int64)
    timesteps = pa.table({
        "timestep": pa.array(numbers),
        "start": moments(series.starts[numbers], series.unit),
        "end": moments(series.ends[numbers], series.unit),
    })  # fmt: skip
    summary = {"timesteps": len(instances), "events": int(events.time.size)}
    return SeriesResult("", table, summary, None, timesteps, series.counters() - before)
