"""Time series on Spark: instances as DataFrame rows, to map over, merge, or iterate over in the order of time.

The three patterns of docs/specs/time-series.md, section 3.1, are Spark jobs over the same store: independent is a map
over instances, eventually dependent a map and a merge, sequentially dependent an iteration. Executors open the store
themselves.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, Slice
from goffish.gofs.series import Instance, Series, as_series, open_series
from goffish.gopher.spark.session import running_session, slots
from goffish.gopher.spark.tasks import forget_archives
from goffish.graph.guards import whole_number
from goffish.spark.frames import schemas_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 1 << 16
#: Tasks for each processor, so that slow ones do not hold up the others.
_TASKS = 3
#: Columns that are no attributes.
_OWN = ("id", "src", "dst", "far", "timestep")


class SeriesFrames(NamedTuple):
    """Instances as DataFrames; an input of `goffish.spark.motifs`."""

    vertices: DataFrame
    edges: DataFrame


def map_instances(
    series: Series | PartitionedGraph | str | Path,
    function: Callable[[Instance], Any],
    schema: str,
    *,
    start: Any = None,
    end: Any = None,
    attributes: Sequence[str] | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Apply a function to every instance of a time series on the executors (the independent pattern).

    Parameters
    ----------
    series : Series, PartitionedGraph, str or path-like
        A series, or the path or URI of its store, which executors must be able to open.
    function : callable
        Takes an `Instance` and returns a table (Arrow, or a mapping of columns). It is sent to the executors.
    schema : str
        Columns that `function` returns, such as ``"vertex bigint, rank double"``.
    start, end : int, datetime or str, optional
        Select instances that start at `start` or later and before `end` [default: all].
    attributes : sequence of str, optional
        Attributes that `function` may read [default: all].
    spark : SparkSession, optional
        Session [default: the running session, or `goffish.spark.session`].

    Returns
    -------
    DataFrame
        ``timestep`` and the columns of `schema`. Group the rows to merge them (the eventually dependent pattern). A
        task processes the instances of whole packs.

    Raises
    ------
    InputError
        If an attribute is unknown, the range is outside the series, or `schema` has a column ``timestep``.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
    >>> from goffish.spark import map_instances, session
    >>> schema = SeriesSchema(edge=(Attribute("exists", "bool", default=True),))
    >>> days = [InstanceData(0, 1), InstanceData(1, 2, {"edge.exists": [True, False]})]
    >>> store = write_series(gf.from_edges([1, 2], [2, 3]), "days.store", schema, days, unit="1")
    >>> def edges(day):
    ...     return {"edges": [sum(day.edge("exists").to_pylist())]}
    >>> found = map_instances(store, edges, "edges bigint", spark=session())
    >>> sorted(tuple(row) for row in found.collect())
    [(0, 2), (1, 1)]
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import LongType, StructField, StructType

    opened, own = as_series(series), running_session(spark)
    for name in attributes or ():
        opened.schema[name]
    columns = own.createDataFrame([], schema).schema
    if "timestep" in columns.names:
        raise InputError("schema: timestep is added automatically; omit it")
    full = StructType([StructField("timestep", LongType()), *columns.fields])
    numbers = opened.between(start, end)
    job = _Mapped(*_place(opened), tuple(numbers), to_arrow_schema(full), function, _tuple(attributes))
    return _rows(own, len(job.groups)).mapInArrow(job, full)


def series_frames(
    series: Series | PartitionedGraph | str | Path,
    *,
    start: Any = None,
    end: Any = None,
    attributes: Sequence[str] | None = None,
    spark: SparkSession | None = None,
) -> SeriesFrames:
    """Convert the instances of a time series to two DataFrames, with the columns that GraphFrames and `motifs` expect.

    Parameters
    ----------
    series : Series, PartitionedGraph, str or path-like
        A series, or the path or URI of its store, which executors must be able to open.
    start, end : int, datetime or str, optional
        Select instances that start at `start` or later and before `end` [default: all].
    attributes : sequence of str, optional
        Attributes (``vertex.NAME``, ``edge.NAME``) that become columns [default: all except ``exists``].
    spark : SparkSession, optional
        Session [default: the running session, or `goffish.spark.session`].

    Returns
    -------
    vertices : DataFrame
        ``id`` (the label), ``timestep`` and attributes; one row per instance in which the vertex exists.
    edges : DataFrame
        ``src``, ``dst``, ``timestep`` and attributes; one row per instance in which the edge exists. An undirected edge
        is two rows, one for each direction; a self-loop is one row.

    Raises
    ------
    InputError
        If an attribute is unknown or has the name of another column, or the range is outside the series.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
    >>> from goffish.spark import series_frames, session
    >>> schema = SeriesSchema(edge=(Attribute("exists", "bool", default=True),))
    >>> days = [InstanceData(0, 1), InstanceData(1, 2, {"edge.exists": [True, False]})]
    >>> store = write_series(gf.from_edges([1, 2], [2, 3]), "days.store", schema, days, unit="1")
    >>> vertices, edges = series_frames(store, spark=session())
    >>> vertices.count(), edges.count()
    (6, 6)
    """
    opened, own = as_series(series), running_session(spark)
    return _frames(opened, tuple(opened.between(start, end)), attributes, own)


def iterate_instances(
    series: Series | PartitionedGraph | str | Path,
    state: DataFrame,
    step: Callable[[DataFrame, DataFrame, DataFrame, int], DataFrame],
    *,
    start: Any = None,
    end: Any = None,
    attributes: Sequence[str] | None = None,
    keep_every: int = 5,
) -> DataFrame:
    """Carry a state from instance to instance of a time series (the sequentially dependent pattern).

    Parameters
    ----------
    series : Series, PartitionedGraph, str or path-like
        A series, or the path or URI of its store, which executors must be able to open.
    state : DataFrame
        State before the first instance, in any form.
    step : callable
        Called with the state, the vertices and edges of the instance (see `series_frames`) and the timestep; returns
        the next state.
    start, end : int, datetime or str, optional
        Select instances that start at `start` or later and before `end` [default: all].
    attributes : sequence of str, optional
        Attributes (``vertex.NAME``, ``edge.NAME``) that become columns [default: all except ``exists``].
    keep_every : int
        Number of instances after which the state is computed and its lineage truncated, to keep query plans short
        [default: 5].

    Returns
    -------
    DataFrame
        State after the last instance.

    Raises
    ------
    InputError
        If an attribute is unknown or has the name of another column, the range is outside the series, or `keep_every`
        is not a positive integer.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
    >>> from goffish.spark import iterate_instances, session
    >>> schema = SeriesSchema(edge=(Attribute("exists", "bool", default=True),))
    >>> days = [InstanceData(0, 1), InstanceData(1, 2, {"edge.exists": [True, False]})]
    >>> store = write_series(gf.from_edges([1, 2], [2, 3]), "days.store", schema, days, unit="1")
    >>> def add(state, vertices, edges, timestep):
    ...     return state.union(edges.selectExpr("count(*) as rows"))
    >>> state = session().createDataFrame([(0,)], "rows bigint")
    >>> [row[0] for row in iterate_instances(store, state, add).collect()]
    [0, 4, 2]
    """
    opened, own = as_series(series), state.sparkSession
    every = whole_number(keep_every, "keep_every", 1)
    for count, number in enumerate(opened.between(start, end), 1):
        state = step(state, *_frames(opened, (number,), attributes, own), number)
        if count % every == 0:
            state = state.localCheckpoint()
    return state


def _frames(
    series: Series, numbers: tuple[int, ...], attributes: Sequence[str] | None, spark: SparkSession
) -> SeriesFrames:
    chosen = _chosen(series, attributes)
    label = pa.field("id", series.graph.slice(0).labels().type)
    time = pa.field("timestep", pa.int64())
    fields = {
        place: [pa.field(name.split(".", 1)[1], series.schema[name].arrow_type) for name in names]
        for place, names in chosen.items()
    }
    ends = [label.with_name("src"), label.with_name("dst")]
    far = [ends[0], pa.field("far", pa.int64())]

    def made(kind: type[_OfPartition], *columns: pa.Field) -> DataFrame:
        schema, arrow = schemas_of(pa.schema(columns).empty_table())
        job = kind(*_place(series), numbers, arrow, series.num_partitions)
        return _rows(spark, len(job.groups) * series.num_partitions).mapInArrow(job, schema)

    edges = made(_Inside, *ends, time, *fields["edge"])
    if int(np.sum(series.graph.info.subgraphs)) > 1:
        cut = made(_Between, *far, time, *fields["edge"])
        schema, arrow = schemas_of(pa.schema([far[1], ends[1]]).empty_table())
        names = _rows(spark, series.num_partitions).mapInArrow(_Numbers(*_place(series), arrow), schema)
        edges = edges.unionAll(cut.join(names, "far").select(*edges.columns))
    vertices = made(_Vertices, label, time, *fields["vertex"])
    if "vertex.exists" in series.schema:  # an edge exists where both its ends do
        for end in ("src", "dst"):
            edges = edges.join(vertices.selectExpr(f"id as {end}", "timestep"), [end, "timestep"], "left_semi")
        edges = edges.select("src", "dst", "timestep", *(field.name for field in fields["edge"]))
    return SeriesFrames(vertices, edges)


def _chosen(series: Series, attributes: Sequence[str] | None) -> dict[str, list[str]]:
    names = [n for n in series.schema if not n.endswith(".exists")] if attributes is None else list(attributes)
    found: dict[str, list[str]] = {"vertex": [], "edge": []}
    for name in names:
        series.schema[name]
        place, own = name.split(".", 1)
        if own in _OWN:
            raise InputError(f"attribute {name!r}: the DataFrame has a column of this name; omit it from attributes")
        found[place].append(name)
    return found


# -- tasks


@dataclass(frozen=True)
class _Job(ABC):
    """Rows of numbers → rows of a DataFrame."""

    path: str
    fingerprint: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            series = _open(self.path, self.fingerprint)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for table in self.tables(series, number):
                        yield from table.to_batches(max_chunksize=_BATCH_ROWS)
        finally:
            forget_archives()

    @abstractmethod
    def tables(self, series: Series, number: int) -> Iterator[pa.Table]:
        """What one number stands for."""


@dataclass(frozen=True)
class _OfInstances(_Job):
    numbers: tuple[int, ...]
    schema: pa.Schema

    @property
    def groups(self) -> list[int]:
        """Packs that hold instances which are asked for; a pack is read by one task of a partition."""
        pack = _open(self.path, self.fingerprint).pack
        return sorted({number // pack for number in self.numbers})

    def of_group(self, series: Series, index: int) -> list[int]:
        group = self.groups[index]
        return [number for number in self.numbers if number // series.pack == group]


@dataclass(frozen=True)
class _Mapped(_OfInstances):
    function: Callable[[Instance], Any]
    attributes: tuple[str, ...] | None

    def tables(self, series: Series, number: int) -> Iterator[pa.Table]:
        for at in self.of_group(series, number):
            start = int(series.starts[at])
            (instance,) = series.instances(start, start + 1, self.attributes)
            made = self.function(instance)
            table = made if isinstance(made, pa.Table) else pa.table(dict(made))
            missing = [name for name in self.schema.names[1:] if name not in table.column_names]
            if missing:
                raise InputError(f"the function returned no column {missing[0]!r}, which is in the schema")
            table = table.select(self.schema.names[1:])
            table = table.add_column(0, "timestep", pa.array(np.full(table.num_rows, at, np.int64)))
            yield table.cast(self.schema)


@dataclass(frozen=True)
class _OfPartition(_OfInstances):
    partitions: int

    def tables(self, series: Series, number: int) -> Iterator[pa.Table]:
        group, partition = divmod(number, self.partitions)
        for at in self.of_group(series, group):
            table = self.table(series, partition, at)
            times = pa.array(np.full(table.num_rows, at, np.int64))
            table = table.append_column("timestep", times)
            yield table.select(self.schema.names).cast(self.schema)

    @abstractmethod
    def table(self, series: Series, partition: int, instance: int) -> pa.Table:
        """The rows of one partition and instance."""

    def values(self, series: Series, partition: int, instance: int, place: str, rows: Any) -> dict[str, Any]:
        """The attributes of some rows of the elements."""
        found = {}
        for name in (n for n in self.schema.names if n not in _OWN):
            column = series.values(partition, instance, f"{place}.{name}")
            found[name] = column[rows] if isinstance(column, np.ndarray) else column.take(pa.array(rows))
        return found


class _Vertices(_OfPartition):
    def table(self, series: Series, partition: int, instance: int) -> pa.Table:
        part = series.graph.slice(partition)
        rows = np.arange(part.num_vertices)
        if "vertex.exists" in series.schema:
            rows = np.flatnonzero(series.values(partition, instance, "vertex.exists"))
        labels = part.labels().take(pa.array(rows))
        return pa.table({"id": labels, **self.values(series, partition, instance, "vertex", rows)})


class _Inside(_OfPartition):
    """Arcs inside of subgraphs; `_Between` are the others, whose far end is only known by its number."""

    def table(self, series: Series, partition: int, instance: int) -> pa.Table:
        part = series.graph.slice(partition)
        arcs, labels = part.out_arcs, part.labels()
        elements = series.elements(partition)
        far = "far" in self.schema.names
        keep = (arcs.targets < 0) == far
        if "edge.exists" in series.schema:
            keep &= series.values(partition, instance, "edge.exists")[elements.edge_row]
        chosen = np.flatnonzero(keep)
        source = np.repeat(np.arange(part.num_vertices), np.diff(arcs.offsets))[chosen]
        columns = {"src": labels.take(pa.array(source)), **self.ends(part, source, chosen)}
        return pa.table(columns | self.values(series, partition, instance, "edge", elements.edge_row[chosen]))

    def ends(self, part: Slice, source: Any, chosen: Any) -> dict[str, Any]:
        unit = np.searchsorted(part.subgraph_offsets, source, side="right") - 1
        local = part.subgraph_offsets[unit] + part.out_arcs.targets[chosen].astype(np.int64)
        return {"dst": part.labels().take(pa.array(local))}


class _Between(_Inside):
    def ends(self, part: Slice, source: Any, chosen: Any) -> dict[str, Any]:
        arcs = part.out_arcs
        unit = np.searchsorted(part.subgraph_offsets, source, side="right") - 1
        return {"far": arcs.remote_vertex[arcs.remote_offsets[unit] + ~arcs.targets[chosen].astype(np.int64)]}


@dataclass(frozen=True)
class _Numbers(_Job):
    """The partitioned number of every vertex, and its label."""

    schema: pa.Schema

    def tables(self, series: Series, number: int) -> Iterator[pa.Table]:
        part = series.graph.slice(number)
        numbers = np.arange(part.num_vertices) + part.vertex_start
        yield pa.table({"far": numbers, "dst": part.labels()}).cast(self.schema)


_cached: dict[tuple[str, str], Series] = {}


def _open(path: str, fingerprint: str) -> Series:
    """A series that this process has open already, or opens."""
    found = _cached.get((path, fingerprint))
    if found is None:
        found = open_series(path)
        if found.fingerprint() != fingerprint:
            raise InputError(f"{path}: was replaced during the job, or differs on this machine")
        _cached.clear()
        _cached[path, fingerprint] = found
    return found


# -- the driver's side


def _place(series: Series) -> tuple[str, str]:
    path = series.path if "://" in series.path else os.path.abspath(series.path)  # noqa: PTH100
    return path, series.fingerprint()


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, max(1, min(count, _TASKS * slots(spark))))
