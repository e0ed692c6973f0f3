"""What all builders of time series share: the time axis, the numbers of edges, the written store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.definitions import duration_s
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import InstanceData, SeriesSchema, moment, write_series
from goffish.gofs.series.model import Unit
from goffish.gofs.series.slices import numbered
from goffish.gofs.series.write import Progress
from goffish.graph import Graph
from goffish.graph.labels import as_id_column, find_labels
from goffish.partition.cut import partition_graph

TimeUnit = Literal["s", "ms", "us", "1"]
#: Steps of the axis in one unit of the users' times; "1" is a series without a calendar.
STEPS: dict[str, int] = {"s": 1_000_000, "ms": 1000, "us": 1, "1": 1}


@dataclass(frozen=True)
class SeriesBuild:
    """What a builder made.

    Attributes
    ----------
    store : PartitionedGraph
        The template, opened from the store; `run_series` takes it, ``store.instances()`` lists its instances.
    instances : int
    notes : tuple of str
        What was done to the input beside what was asked for: rows that were sorted or left out.
    """

    store: PartitionedGraph
    instances: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoreOptions:
    """How a series is partitioned and packed; see `goffish.partition` and `goffish.gofs.series.write_series`.

    Parameters
    ----------
    parts, method
        Partitions, and how they are made.
    pack, bins
        Instances, and groups of subgraphs, of one slice.
    progress : callable, optional
        See `write_series`.
    """

    parts: int = 1
    method: str = "metis"
    pack: int | Literal["all"] = 10
    bins: int = 5
    progress: Progress | None = None

    def write(
        self,
        graph: Graph | PartitionedGraph,
        path: str | Path,
        schema: SeriesSchema,
        instances: Iterable[InstanceData],
        unit: Unit,
        notes: Sequence[str] = (),
    ) -> SeriesBuild:
        """Partition a graph, unless it is partitioned already, and write it with its series."""
        if isinstance(graph, Graph):
            graph = partition_graph(graph, self.parts, self.method)
        count = 0

        def counted() -> Iterable[InstanceData]:
            nonlocal count
            for data in instances:
                yield data
                count += 1

        store = write_series(
            graph, path, schema, counted(), pack=self.pack, bins=self.bins, unit=unit, progress=self.progress
        )
        return SeriesBuild(store, count, tuple(notes))


def unit_of(time_unit: str) -> Unit:
    """The axis for times in some unit."""
    if time_unit not in STEPS:
        raise InputError(f"time_unit={time_unit!r}: choose one of {', '.join(STEPS)}")
    return "1" if time_unit == "1" else "us"


def length(value: Any, time_unit: str, name: str) -> int:
    """A length of time in steps of the axis, at least one.

    Parameters
    ----------
    value : int, float, timedelta or str
        A number in the unit of the times, or of a series with a calendar also a `timedelta` or a text such as
        ``15min``, ``1h``, ``7d``.
    """
    steps: float = 0
    seconds = duration_s(value) if isinstance(value, str) else None
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        steps = float(value) * STEPS[time_unit]
    elif time_unit != "1" and seconds is not None:
        steps = seconds * 1e6
    elif time_unit != "1" and isinstance(value, timedelta):
        steps = value / timedelta(microseconds=1)
    if not 1 <= steps < 2**62 or steps != int(steps):
        more = "" if time_unit == "1" else " or a duration such as 15min, 1h, 7d"
        raise InputError(f"{name}={value!r}: must be a positive integer{more}")
    return int(steps)


def at(value: Any, time_unit: str, name: str) -> int:
    """A moment that the user gives, on the axis; plain numbers are in the unit of the times."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value) * STEPS[time_unit]
    return moment(value, unit_of(time_unit), name)


def time_column(column: Any, time_unit: str, name: str) -> NDArray[np.int64]:
    """A column of times (whole or fractional numbers, timestamps, dates, ISO texts) on the axis."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{name}: row {row} has no time")
    kind, steps = array.type, STEPS[time_unit]
    found: NDArray[np.int64]
    try:
        if pa.types.is_integer(kind):
            found = pc.multiply_checked(array.cast(pa.int64()), steps).to_numpy(zero_copy_only=False)
            return found
        if pa.types.is_floating(kind) and time_unit != "1":
            scaled = np.round(array.to_numpy(zero_copy_only=False) * steps)
            if np.isfinite(scaled).all() and (np.abs(scaled) < 2**62).all():
                found = scaled.astype(np.int64)
                return found
            raise ValueError("a time is not finite")
        if time_unit != "1" and not pa.types.is_floating(kind):
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                array = array.cast(pa.timestamp("us", "UTC") if _zoned(array) else pa.timestamp("us"))
            found = array.cast(pa.timestamp("us", getattr(array.type, "tz", None))).cast(pa.int64()).to_numpy()
            return found
        raise ValueError(f"it holds {kind}")
    except (pa.ArrowException, ValueError) as error:
        accepted = "whole numbers" if time_unit == "1" else "numbers, timestamps or ISO 8601 strings"
        raise InputError(f"{name}: not a column of times ({error}); expected {accepted}") from None


def event_times(column: Any, name: str = "timestamp") -> NDArray[np.int64]:
    """Times of events that are only compared: whole numbers as they are, dates and texts in microseconds since 1970."""
    number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return time_column(column, "1" if number else "us", name)


def _zoned(texts: pa.Array) -> bool:
    return len(texts) > 0 and re.search(r"(Z|[+-]\d\d:?\d\d)$", texts[0].as_py()) is not None


def ends_of(starts: NDArray[np.int64], period: int | None) -> NDArray[np.int64]:
    """Where instances end that begin at `starts` (ascending): after `period`, or where the next one begins.

    The last one is then as long as the one before it, or 1.
    """
    if period is not None:
        return starts + period
    last = starts[-1:] + (starts[-1:] - starts[-2:-1] if starts.size > 1 else 1)
    return np.concatenate((starts[1:], last))


class EdgeFinder:
    """Numbers of edges by the labels of their ends; of parallel edges the first."""

    def __init__(self, graph: Graph) -> None:
        self.graph = numbered(graph)
        sources = graph.arc_sources()
        keep = slice(None) if graph.directed else np.flatnonzero(sources <= graph.targets)
        self._keys = sources[keep].astype(np.int64) * graph.num_vertices + graph.targets[keep]
        assert self.graph.edge_of_arc is not None
        self._numbers = self.graph.edge_of_arc[keep]

    def find(self, source: Any, target: Any, where: str) -> NDArray[np.int64]:
        """Edge numbers; an unknown vertex or edge raises `InputError` that begins with `where`."""
        u, v = self.vertices(source, where), self.vertices(target, where)
        low, high = (u, v) if self.graph.directed else (np.minimum(u, v), np.maximum(u, v))
        keys = low * self.graph.num_vertices + high
        place = np.minimum(np.searchsorted(self._keys, keys), max(self._keys.size - 1, 0))
        bad = np.flatnonzero(self._keys[place] != keys) if self._keys.size else np.arange(keys.size)
        if bad.size:
            first, second = (label_of(column, int(bad[0])) for column in (source, target))
            raise InputError(f"{where}unknown edge {first!r} - {second!r}: not in the template")
        return self._numbers[place]

    def vertices(self, labels: Any, where: str) -> NDArray[np.int64]:
        """Vertex numbers; an unknown label raises `InputError` that begins with `where`."""
        try:
            return find_labels(self.graph.labels, self.graph.num_vertices, labels)
        except InputError as error:
            raise InputError(f"{where}{error}") from None


def label_of(column: Any, row: int) -> Any:
    """The label in a row of a column."""
    value = as_id_column(column, "vertex")[row]
    return value.as_py() if isinstance(value, pa.Scalar) else int(value)
