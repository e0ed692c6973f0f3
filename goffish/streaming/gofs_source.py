"""Instances of a time series in a store, as records."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import CheckpointError, InputError, StoreError
from goffish.gofs.series import Series, open_series
from goffish.gofs.series.model import EXISTS, Place
from goffish.streaming.sources import Position, Read, Reader, Source, checked_rate

_PLACES: dict[str, Place] = {"edges": "edge", "vertices": "vertex"}
#: Seconds between two looks at a store that is followed.
_LOOK_S = 1.0
#: Time in which instances are appended to a store that is opened, and between two attempts to open it.
_APPENDS_S, _OPENS_S = 5.0, 0.05
#: Columns that name the vertices.
_ENDS: dict[Place, tuple[str, ...]] = {"edge": ("source", "target"), "vertex": ("vertex",)}


def read_gofs(
    store: str | Path, what: str = "edges", *, attributes: Sequence[str] | None = None, start: Any = None,
    end: Any = None, follow: bool = False, rate: float | None = None,
) -> Source:  # fmt: skip
    """Read the instances of a time series as Arrow batches, one instance after another.

    The records are the edges or vertices that exist in an instance, with the columns ``source`` and ``target``, or
    ``vertex``, ``time``, the start of the instance, and the attributes. Every partition of the store is one of the
    source.

    Parameters
    ----------
    store : str or Path
        Folder or URI of a store with a time series.
    what : {"edges", "vertices"}
        Elements that become records.
    attributes : sequence of str, optional
        Attributes that become columns [default: all but ``exists``].
    start, end : int, datetime or str, optional
        Read instances that begin at `start` or later and before `end` [default: all].
    follow : bool
        Wait for instances that are appended.
    rate : float, optional
        Records per second [default: as fast as possible].

    Returns
    -------
    Source

    Raises
    ------
    InputError
        `what` is unknown, or the rate is not positive.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
    >>> schema = SeriesSchema(edge=(Attribute("cars", "int64"),))
    >>> hours = [InstanceData(0, 1, {"edge.cars": [7]}), InstanceData(1, 2, {"edge.cars": [9]})]
    >>> _ = write_series(gf.from_edges(["a"], ["b"]), "hours.store", schema, hours, unit="1")
    >>> flow, seen = gf.stream.Flow("cars"), gf.stream.collect()
    >>> _ = flow.source(gf.stream.read_gofs("hours.store"), time="time").sink(seen)
    >>> _ = flow.run()
    >>> seen.values[1]
    {'source': 'a', 'target': 'b', 'time': 1, 'cars': 9}
    """
    if what not in _PLACES:
        raise InputError(f"{store}: what = {what!r}: accepted are edges and vertices")
    chosen = None if attributes is None else tuple(attributes)
    return SeriesSource(str(store), _PLACES[what], chosen, start, end, follow, checked_rate(rate, str(store)))


@dataclass(frozen=True)
class SeriesSource(Source):
    """Elements of the instances of a time series.

    Attributes
    ----------
    store : str
    place : {"edge", "vertex"}
    attributes : tuple of str, optional
    start, end : optional
    follow : bool
    rate : float, optional
    """

    store: str
    place: Place
    attributes: tuple[str, ...] | None = None
    start: Any = None
    end: Any = None
    follow: bool = False
    rate: float | None = None

    def partitions(self) -> list[str]:
        """Return the numbers of the partitions of the store."""
        with open_series(self.store, prefetch=False) as series:
            self.columns(series)
            series.between(self.start, self.end)
            return [str(number) for number in range(series.num_partitions)]

    def columns(self, series: Series) -> dict[str, str]:
        """Return the attributes of the series by column.

        Raises
        ------
        InputError
            The series has no such attribute, or its name is that of another column.
        """
        names = self.attributes
        if names is None:
            of_place = (one.partition(".") for one in series.schema)
            names = tuple(name for place, _, name in of_place if place == self.place and name != EXISTS)
        for name in names:
            series.schema[f"{self.place}.{name}"]
            if name in (*_ENDS[self.place], "time"):
                raise InputError(
                    f"{self.store}: attribute {name!r} has the name of a column; leave it out of attributes"
                )
        return {name: f"{self.place}.{name}" for name in names}

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        return _SeriesReader(self, int(partition), position)


def _opened(store: str) -> Series:
    """Open a time series with its graph; again if instances were appended between the two."""
    end = time.monotonic() + _APPENDS_S
    while True:
        series = open_series(store)
        try:
            _ = series.graph
            return series
        except StoreError:
            series.close()
            if time.monotonic() > end:
                raise
            time.sleep(_OPENS_S)


class _SeriesReader(Reader):
    """Reads a partition; the position is the instance, the row in it, and a checksum of what is before."""

    def __init__(self, source: SeriesSource, partition: int, position: Position | None) -> None:
        self._source, self._partition = source, partition
        self._series = _opened(source.store)
        self._looked = time.monotonic()
        self._columns = source.columns(self._series)
        self._numbers = self._series.between(source.start, source.end)
        self._batch: pa.RecordBatch | None = None
        self._fixed: tuple[NDArray[np.int64], tuple[pa.Array, ...]] | None = None
        number, row = (self._numbers.start, 0) if position is None else position[:2]
        self.position = [number, row, self._checksum(number)]
        if position is not None and self.position != position:
            raise CheckpointError(
                f"{source.store}: the store was replaced after the checkpoint; restore it, or begin with another "
                "checkpoint folder"
            )

    def _checksum(self, number: int) -> int:
        """Return a checksum of the graph and of the instances before a number, which appending does not change."""
        info = self._series.graph.info
        return self._next_checksum(0, number, zlib.crc32(repr((info.vertices, info.arcs)).encode()))

    def _next_checksum(self, begin: int, end: int, checksum: int) -> int:
        times = np.column_stack((self._series.starts[begin:end], self._series.ends[begin:end]))
        return zlib.crc32(times.tobytes(), checksum)

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        number, row, checksum = self.position
        if number >= self._numbers.stop and not self._appended():
            self.done = not self._source.follow
            return None
        if self._batch is None:
            self._batch = self._read(number)
        part = self._batch.slice(row, limit)
        self.position = [number, row + len(part), checksum]
        if row + len(part) >= len(self._batch):
            self._batch = None
            self.position = [number + 1, 0, self._next_checksum(number, number + 1, checksum)]
        return Read(part if len(part) else [])

    def _appended(self) -> bool:
        """Look whether a store that is followed has more instances."""
        if not self._source.follow or time.monotonic() < self._looked + _LOOK_S:
            return False
        self._looked = time.monotonic()
        before = self._checksum(self.position[0])
        self._series.close()
        self._series = _opened(self._source.store)
        if self._checksum(self.position[0]) != before:
            raise InputError(f"{self._source.store}: the store was replaced; stores that are followed may only grow")
        self._numbers = self._series.between(self._source.start, self._source.end)
        return self.position[0] < self._numbers.stop

    def _read(self, number: int) -> pa.RecordBatch:
        series, place, partition = self._series, self._source.place, self._partition
        if self._fixed is None:
            self._fixed = self._vertices()
        mine, ends = self._fixed
        rows = mine
        if any(f"{one}.{EXISTS}" in series.schema for one in ("vertex", place)):
            rows = rows[np.isin(rows, series.existing(partition, number, place), assume_unique=True)]
        taken = pa.array(rows)
        moments = pa.array(np.full(rows.size, series.starts[number]))
        columns = {name: end.take(taken) for name, end in zip(_ENDS[place], ends, strict=True)}
        columns["time"] = moments.cast(pa.timestamp("us", "UTC")) if series.unit == "us" else moments
        for name, attribute in self._columns.items():
            columns[name] = series.column(partition, number, attribute).take(taken)
        return pa.record_batch(columns)

    def _vertices(self) -> tuple[NDArray[np.int64], tuple[pa.Array, ...]]:
        """Return the rows that are records of this partition, and the labels of the vertices of all rows."""
        series, graph = self._series, self._series.graph
        part = graph.slice(self._partition)
        if self._source.place == "vertex":
            return np.arange(part.num_vertices), (part.labels(),)
        first, second = series.edge_ends(self._partition)
        if not part.directed:
            # An edge between two subgraphs has a row in both; it is a record where its smaller end is.
            original = graph.vertex_ids()
            turned = original[first] > original[second]
            first, second = np.where(turned, second, first), np.where(turned, first, second)
        offsets = series.elements(self._partition).edge_offsets
        subgraph = np.repeat(np.arange(part.num_subgraphs), np.diff(offsets))
        limits = part.vertex_start + part.subgraph_offsets
        mine = np.flatnonzero((limits[subgraph] <= first) & (first < limits[subgraph + 1]))
        labels = graph.labels()
        return mine, tuple(labels.take(pa.array(end)) for end in (first, second))

    def close(self) -> None:
        """Close files."""
        self._series.close()
