"""More instances for an existing series, from time-stamped edges, snapshots or tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import Growth, InstanceData, Series, append_instances, grown_template, open_series
from goffish.gofs.series.growth import find_in_template
from goffish.gofs.series.model import EXISTS, moment_text
from goffish.gofs.series.write import Progress
from goffish.graph import Graph, from_edges
from goffish.graph.columns import as_table
from goffish.graph.labels import as_id_column
from goffish.partition.streaming import place_new
from goffish.temporal.building import EdgeFinder, SeriesBuild, TimeUnit, length, time_column, unit_of
from goffish.temporal.events import MOST_WINDOWS, instances_of_windows, read_events, specification, with_whole_times
from goffish.temporal.snapshots import instances_of_files, timed_files, union_of
from goffish.temporal.tables import COLUMNS, Tables, instances_of_rows

#: Packs beyond those that a compact series has, before a hint is given.
MANY_GROUPS = 8


def append_from_events(
    path: str | Path,
    events: Any,
    *,
    window: Any = None,
    attributes: Mapping[str, str | tuple[str, str]] | None = None,
    source: str = "source",
    target: str = "target",
    time: str = "timestamp",
    time_unit: TimeUnit | None = None,
    self_loops: Literal["drop", "keep"] = "drop",
    progress: Progress | None = None,
) -> SeriesBuild:
    """Append windows made of time-stamped edges to the series of a store; the first begins where the last one ended.

    Parameters
    ----------
    path
        The store.
    events : table (Arrow, pandas, polars) or path
        As for `build_from_events`. Events before the end of the series are left out, and counted in a note. Vertices
        and edges that the template does not have become part of it; they do not exist in earlier instances. A template
        with weights takes those of new edges from the column ``weight``.
    window : int, timedelta or str, optional
        Length of every window; default: as long as the last one.
    attributes
        As for `build_from_events`: those of the series, all of them.
    time_unit : {"s", "ms", "us", "1"}, optional
        Of times that are numbers; default: "s", or "1" for a series without a calendar.

    Returns
    -------
    SeriesBuild
        Its `instances` are those that were added. Results are those of a series that was built of all events at once.

    Raises
    ------
    InputError
        Labels of another type than those of the template, attributes that are not those of the series, a missing column
        or time.
    StoreError
        No store, or one without a series.
    """
    series = open_series(path)
    time_unit = _unit(series, time_unit, "s")
    table = read_events(events) if isinstance(events, str | Path) else as_table(events, "events")
    for name in (source, target, time):
        if name not in table.column_names:
            raise InputError(f"no column {name!r} in the events; the columns are {', '.join(table.column_names)}")
    moments = time_column(table.column(time), time_unit, time)
    table = with_whole_times(table)
    spec = specification(attributes, table)
    _check_attributes(series, spec)
    limits = _limits(series, moments, None if window is None else length(window, time_unit, "window"))
    notes, inside = [], moments >= limits[0]
    if not inside.all():
        early = f"before {moment_text(int(limits[0]), series.unit)}, where the series ends"
        notes.append(f"{np.count_nonzero(~inside):,} of {inside.size:,} events are {early} and were skipped")
    ends = [as_id_column(table.column(name), name) for name in (source, target)]
    if self_loops == "drop":
        apart = np.asarray(pa.compute.not_equal(pa.array(ends[0]), pa.array(ends[1])))
        if (inside & ~apart).any():
            notes.append(f"{np.count_nonzero(inside & ~apart):,} events from a vertex to itself were skipped")
        alone = np.flatnonzero(inside & ~apart)
        inside &= apart
    else:
        alone = np.empty(0, np.int64)
    rows = np.flatnonzero(inside)
    u, v = (_taken(c, rows) for c in ends)
    store = series.graph
    more = _events_graph(store, (u, v, _taken(ends[0], alone)), table.take(pa.array(rows)))
    added = Added.to(series, more)
    edge = added.find(u, v, "")
    which = np.searchsorted(limits, moments[rows], side="right") - 1
    order = np.lexsort((moments[rows], edge, which))
    data = instances_of_windows(limits, which[order], edge[order], rows[order], spec, table)
    return added.write(path, data, notes, progress)


def append_from_snapshots(
    path: str | Path,
    snapshots: str | Path | Sequence[str | Path],
    *,
    pattern: str | None = None,
    time_format: str | None = None,
    start: Any = None,
    period: Any = None,
    time_unit: TimeUnit | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> SeriesBuild:
    """Append instances made of one edge list each to the series of a store.

    Parameters
    ----------
    path
        The store, with a series as of `build_from_snapshots`: ``edge.exists``, and ``edge.weight`` or not. Other
        attributes get their defaults.
    snapshots, pattern, time_format
        As for `build_from_snapshots`.
    start : moment, optional
        Where the first instance begins, without `pattern`; default: where the series ends.
    period : int, timedelta or str, optional
        Length of every instance; default, without `pattern`: as long as the last one of the series.
    time_unit : {"s", "ms", "us", "1"}, optional
        Of times that are numbers; default: "us", or "1" for a series without a calendar.
    **reading
        Options of `goffish.read`.

    Returns
    -------
    SeriesBuild
        As of `append_from_events`; new vertices and edges become part of the template likewise.

    Raises
    ------
    InputError
        As of `build_from_snapshots`; also labels of another type than those of the template, instances before the end
        of the series, and snapshots without weights for a series that has them.
    StoreError
        No store, or one without a series.
    """
    series = open_series(path)
    time_unit = _unit(series, time_unit, "us")
    if f"edge.{EXISTS}" not in series.schema:
        raise InputError(f"the series has no edge.{EXISTS}, which snapshots state; its attributes: {_names(series)}")
    if pattern is None and len(series):
        end, usual = int(series.ends[-1]), int(series.ends[-1] - series.starts[-1])
        calendar = series.unit == "us"
        if start is None:
            start = np.datetime64(end, "us") if calendar else end
        if period is None:
            period = timedelta(microseconds=usual) if calendar else usual
    files, starts, ends, _ = timed_files(snapshots, pattern, time_format, start, period, time_unit)
    options = {"directed": series.graph.info.directed, **reading}
    more, weighted = union_of(files, options)
    wanted = "edge.weight" in series.schema
    if wanted and not weighted and more.num_edges:
        raise InputError("the series has edge.weight, and a snapshot has edges without weights")
    added = Added.to(series, more)
    data = instances_of_files(files, starts, ends, options, added.find, weighted=wanted)
    notes = ["the series has no edge.weight: weights of the snapshots were left out"] if weighted and not wanted else []
    return added.write(path, data, notes, progress)


def append_from_table(
    path: str | Path,
    *,
    vertices: Any = None,
    edges: Any = None,
    starts: Sequence[Any] | None = None,
    ends: Sequence[Any] | None = None,
    period: Any = None,
    time_unit: TimeUnit | None = None,
    progress: Progress | None = None,
    **columns: str,
) -> SeriesBuild:
    """Append instances made of tables with a row for every value to the series of a store.

    Parameters
    ----------
    path
        The store.
    vertices, edges, starts, ends, period
        As for `build_from_table`; all columns with values are attributes of the series. Vertices and edges that the
        template does not have become part of it.
    time_unit : {"s", "ms", "us", "1"}, optional
        Of times that are numbers; default: "s", or "1" for a series without a calendar.
    **columns
        ``instance``, ``vertex``, ``source``, ``target``: columns with other names.

    Returns
    -------
    SeriesBuild
        As of `append_from_events`.

    Raises
    ------
    InputError
        As of `build_from_table`; also labels of another type than those of the template, a column that is no attribute
        of the series, and instances before the end of the series.
    StoreError
        No store, or one without a series.
    """
    series = open_series(path)
    time_unit = _unit(series, time_unit, "s")
    for name in columns.keys() - set(COLUMNS):
        raise InputError(f"unknown option {name!r}; accepted: {', '.join(COLUMNS)}")
    tables = Tables.of(vertices, edges, columns)
    for place, table in tables.tables.items():
        for name in table.column_names:
            if name not in tables.keys[place]:
                series.schema[f"{place}.{name}"]
    first, last, numbers = tables.times(starts, ends, period, time_unit)
    directed = series.graph.info.directed
    (alone,), (source, target) = tables.labels("vertex"), tables.labels("edge")
    added = Added.to(series, from_edges(
        source, target, directed=directed, self_loops="keep", parallel="first", isolated=alone
    ))  # fmt: skip
    rows, notes = tables.rows(added, numbers, first, series.unit)
    return added.write(path, instances_of_rows(first, last, rows), notes, progress)


@dataclass(frozen=True, eq=False)
class Added:
    """A graph that is added to the template of a series.

    Attributes
    ----------
    series : Series
    growth : Growth or None
        Without it, the template has all vertices and edges of the graph.
    """

    series: Series
    growth: Growth | None
    _finder: EdgeFinder
    _vertices: NDArray[np.int64]
    _edges: NDArray[np.int64]

    @classmethod
    def to(cls, series: Series, more: Graph) -> Added:
        """Add a graph; a new vertex goes to the partition where most of its neighbors are, unless that is too large.

        Raises
        ------
        InputError
            Labels of another type than those of the template, new edges without weights if it has weights.
        """
        store, finder = series.graph, EdgeFinder(more)
        elements = series.all_elements()
        try:
            found = find_in_template(store, elements, more)
        except InputError as error:
            raise InputError(f"the new instances do not fit the template: {error}") from None
        if (found.vertices >= 0).all() and (found.edges >= 0).all():
            return cls(series, None, finder, store.vertex_ids().astype(np.int64)[found.vertices], found.edges)
        if store.info.weighted and more.weights is None and (found.edges < 0).any():
            count = np.count_nonzero(found.edges < 0)
            raise InputError(f"{count:,} new edges have no weight, and the template has weights; append them as events")
        owner = (np.searchsorted(store.vertex_starts, found.vertices, side="right") - 1).astype(np.int32)
        owner = place_new(more, owner, np.array(store.info.vertices, np.int64))
        growth = grown_template(store, elements, more, found, owner)
        return cls(series, growth, finder, growth.vertices, growth.edges)

    def vertices(self, labels: Any, where: str) -> NDArray[np.int64]:
        """Numbers of vertices in the template, as of `EdgeFinder`."""
        return self._vertices[self._finder.vertices(labels, where)]

    def find(self, source: Any, target: Any, where: str) -> NDArray[np.int64]:
        """Numbers of edges in the template, as of `EdgeFinder`."""
        return self._edges[self._finder.find(source, target, where)]

    def write(
        self, path: str | Path, data: Iterable[InstanceData], notes: Sequence[str], progress: Progress | None
    ) -> SeriesBuild:
        """Append instances."""
        version = self.series.fingerprint()
        append_instances(path, data, growth=self.growth, version=version, progress=progress)
        after, growth = open_series(path), self.growth
        more = [] if growth is None else [
            f"added to the template: {growth.added('vertex'):,} vertices, {growth.added('edge'):,} edges"
        ]  # fmt: skip
        return SeriesBuild(after.graph, len(after) - len(self.series), (*notes, *more, *advice(after)))


def _unit(series: Series, time_unit: TimeUnit | None, usual: TimeUnit) -> TimeUnit:
    """The unit of times, which must fit the axis of the series."""
    time_unit = time_unit or ("1" if series.unit == "1" else usual)
    if unit_of(time_unit) != series.unit:
        kind = "has no calendar" if series.unit == "1" else "has a calendar"
        raise InputError(f"time_unit={time_unit!r}: the series {kind}")
    return time_unit


def _names(series: Series) -> str:
    return ", ".join(series.schema) or "none"


def _taken(column: Any, rows: NDArray[np.int64]) -> Any:
    return column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]


def _events_graph(store: PartitionedGraph, labels: tuple[Any, Any, Any], table: pa.Table) -> Graph:
    """The edges of events; weights of a template that has weights are those of the first event of each edge.

    `labels` are those of sources, of targets, and of vertices that have events with themselves alone.
    """
    weight, (source, target, alone) = None, labels
    if store.info.weighted:
        if "weight" not in table.column_names:
            raise InputError("no column 'weight' in the events: the template has weights, and new edges need them")
        weight = table.column("weight")
    return from_edges(
        source, target, weight, directed=store.info.directed, self_loops="keep", parallel="first", isolated=alone
    )  # fmt: skip


def advice(series: Series) -> list[str]:
    """A hint at what makes a series faster that has been appended to often."""
    groups, least = len(series.groups), -(-len(series) // series.pack)
    if groups < max(2 * least, least + MANY_GROUPS):
        return []
    return [
        f"the {len(series):,} instances lie in {groups:,} packs instead of {least:,}; "
        "goffish timeseries compact makes reading faster"
    ]


def _check_attributes(series: Series, spec: list[tuple[Any, str | None, str]]) -> None:
    """All attributes of the series, with their types, and no others."""
    has = {a.name: a.type for a in series.schema.edge if a.name != "exists"}
    given = {attribute.name: attribute.type for attribute, _, _ in spec}
    # First what is missing: who gives nothing gets the default, `count`, which is perhaps not one of the series.
    for name in [*sorted(has.keys() - given.keys()), *sorted(given)]:
        if name not in given:
            raise InputError(f"attributes: {name!r} is an attribute of the series; pass the same rule as in build")
        if name not in has:
            raise InputError(f"attributes: {name!r} is not one of the series, which has: {', '.join(has) or 'none'}")
        if has[name] != given[name]:
            raise InputError(f"attributes: {name!r} is {given[name]} here, and {has[name]} in the series")


def _limits(series: Series, moments: NDArray[np.int64], step: int | None) -> NDArray[np.int64]:
    """Borders of the windows that follow, as far as the last event."""
    if not len(series) and step is None:
        raise InputError("window is required: the series has no instances")
    step = step or int(series.ends[-1] - series.starts[-1])
    first = int(series.ends[-1]) if len(series) else (int(moments.min()) if moments.size else 0) // step * step
    count = 0 if not moments.size else max(0, (int(moments.max()) - first) // step + 1)
    if count > MOST_WINDOWS:
        raise InputError(
            f"{count:,} windows, at most {MOST_WINDOWS:,} are accepted; use a longer window or another unit"
        )
    return first + step * np.arange(count + 1, dtype=np.int64)
