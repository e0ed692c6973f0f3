"""Numbering by a distributed sort: labels to vertex numbers, pairs of vertices to edge numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.slices import distinct
from goffish.graph.labels import vertex_dtype
from goffish.spark.ingest.blocks import Sent, exchange
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.stored import FILES, Counted, Keep, Stored, Target, Write, schema_of
from goffish.spark.ingest.work import Shared, WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows that one task sorts; how many tasks there are changes no number.
_ROWS_PER_TASK = 1 << 18
#: Vertices that a join sends to all executors: some 100 MB in the memory of the driver's JVM.
_SMALL = 1 << 20
#: Labels whose range is at most so many times their number are looked up in a table of the range.
_SPARSE = 8


class Vertices(NamedTuple):
    """The vertices, ascending.

    `table` has the columns ``label`` and ``number``; labels that are just 0 … n-1 are `implicit`. `labels` and `first`
    find the numbers of whole numbers, as `Ends` says.
    """

    table: Stored
    size: int
    implicit: bool
    labels: Shared | None = None
    first: int | None = None

    def ends(self, *, directed: bool) -> Ends:
        """What numbers the ends of links."""
        return Ends(directed, self.labels, self.first)

    def label_type(self, spec: IngestSpec) -> str:
        """As the manifest of a store names it."""
        return "implicit" if self.implicit else {"integer": "int64", "text": "string"}[spec.labels]


def tasks_for(rows: int) -> int:
    """Among how many tasks rows are divided that have to be sorted."""
    return max(1, min(10_000, rows // _ROWS_PER_TASK))


def in_ranges(table: DataFrame, by: str, rows: int) -> DataFrame:
    """`table` sorted by a column; `rows`, an estimate, decides in how many tasks."""
    tasks = tasks_for(rows)
    cut = table.repartitionByRange(tasks, by) if tasks > 1 else table.repartition(1)
    return cut.sortWithinPartitions(by)


def number_vertices(
    work: WorkFolder, rows: Stored | DataFrame, more: Sequence[Stored | DataFrame], sample: pa.Table, count: int
) -> Vertices:
    """Number the labels in ascending order: whole numbers by value, texts by their bytes in UTF-8.

    That is the numbering of `goffish.graph.from_edges`. Labels are the columns ``source`` and ``target`` of `rows` and
    `sample`, some of them, and ``label`` of `more`; there are about `count` rows.
    """
    kind = schema_of(rows).field("source").type
    whole = kind == pa.int64()
    tables = [_columns(rows, "source", "target"), *(_columns(table, "label") for table in more)]
    schema = pa.schema([("label", kind)])

    def sort(target: Target) -> tuple[DataFrame, pa.Schema]:
        if whole:
            bounds = _label_bounds(sample, count)
            keep = Keep(target, _sort_labels)
            routed = [(table, _ToLabels(bounds)) for table in tables]
            return exchange(work.spark, routed, bounds.size + 1, keep, FILES), schema
        frames = [frame_of(table, work.spark) for table in tables]
        every = frames[0].selectExpr("source AS label").union(frames[0].select("target"))
        for frame in frames[1:]:
            every = every.union(frame)
        return in_ranges(every.distinct(), "label", count).mapInArrow(Write(target, schema), FILES), schema

    stored = work.stored(*work.written("labels", sort))
    size, numbers = stored.size, Counted(stored.starts)
    table = stored.with_column("number", pa.int64(), numbers)
    if not whole:
        return Vertices(table, size, implicit=False)
    labels = stored.collected().column("label").to_numpy()
    if not size or (labels[0], labels[-1]) == (0, size - 1):
        return Vertices(table, size, implicit=size > 0)
    first, width = int(labels[0]), int(labels[-1]) - int(labels[0]) + 1
    if width > _SPARSE * size:
        return Vertices(table, size, implicit=False, labels=work.share(labels))
    places = np.zeros(width, vertex_dtype(size))
    places[labels - first] = np.arange(size)
    return Vertices(table, size, implicit=False, labels=work.share(places), first=first)


def _columns(table: Stored | DataFrame, *names: str) -> Stored | DataFrame:
    return table.select(*names)


def frame_of(table: Stored | DataFrame, spark: SparkSession) -> DataFrame:
    """A table for Spark's operators."""
    return table.frame(spark) if isinstance(table, Stored) else table


def _label_bounds(sample: pa.Table, count: int) -> NDArray[np.int64]:
    """Where ranges begin that hold about as many distinct labels each, from a sample; they change no number."""
    tasks = tasks_for(count)
    if tasks == 1 or not sample.num_rows:
        return np.empty(0, np.int64)
    found = distinct(np.concatenate([column.to_numpy() for column in sample.columns]))
    return distinct(found[np.arange(1, tasks) * found.size // tasks]).astype(np.int64)


@dataclass(frozen=True)
class _ToLabels:
    """Sends each label of some columns to its range, once for all rows that are sent together."""

    bounds: NDArray[np.int64]

    def __call__(self, table: pa.Table) -> Sent:
        labels = distinct(np.concatenate([column.to_numpy() for column in table.columns]))
        target = np.searchsorted(self.bounds, labels, side="right")
        return Sent(pa.table({"label": labels}), np.arange(labels.size), target)


def _sort_labels(chunk: int, tables: Sequence[pa.Table | None]) -> pa.Table:
    labels = distinct(np.concatenate([table.column("label").to_numpy() for table in tables if table is not None]))
    return pa.table({"label": labels})


@dataclass(frozen=True)
class Ends:
    """Numbers the ends of links: ``u`` and ``v`` in place of the labels; undirected ones with u ≤ v.

    Attributes
    ----------
    labels : shared column, optional
        All labels, ascending, or, with `first`, the number of each label from there on. Default: the labels, or the
        columns ``u`` and ``v``, are the numbers.
    """

    directed: bool
    labels: Shared | None = None
    first: int | None = None

    def __call__(self, links: pa.Table) -> pa.Table:
        names = ("u", "v") if "u" in links.column_names else ("source", "target")
        u, v = (self._numbers(links.column(name).to_numpy()) for name in names)
        if not self.directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        return links.drop_columns(names).append_column("u", pa.array(u)).append_column("v", pa.array(v))

    def _numbers(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.labels is None:
            return ends
        known = self.labels.value
        return np.searchsorted(known, ends) if self.first is None else known[ends - self.first].astype(np.int64)


def beside(table: DataFrame, size: int) -> DataFrame:
    """A table with one row for each of `size` vertices, marked for sending it to all executors while it is small."""
    from pyspark.sql import functions as F

    return F.broadcast(table) if size <= _SMALL else table


def with_numbers(rows: Stored | DataFrame, vertices: Vertices, spark: SparkSession) -> Stored | DataFrame:
    """Rows with the numbers of their ends, ``u`` and ``v``, in place of labels that are texts."""
    if schema_of(rows).field("source").type == pa.int64():
        return rows
    rows, known = frame_of(rows, spark), vertices.table.frame(spark)
    for name, number in (("source", "u"), ("target", "v")):
        ends = known.selectExpr(f"label AS {name}", f"number AS {number}")
        rows = rows.join(beside(ends, vertices.size), name)
    return rows.drop("source", "target")
