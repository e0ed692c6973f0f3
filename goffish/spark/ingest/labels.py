"""Numbering by a distributed sort: labels to vertex numbers, pairs of vertices to edge numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.slices import distinct
from goffish.graph.labels import vertex_dtype
from goffish.spark.ingest.blocks import Sent, exchange
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.work import Shared, WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows that one task sorts; how many tasks there are changes no number.
_ROWS_PER_TASK = 1 << 18
#: Vertices that a join sends to all executors: some 100 MB in the memory of the driver's JVM.
_SMALL = 1 << 20
#: Rows that are looked at for each range of edges or labels.
SAMPLED = 200
#: Labels whose range is at most so many times their number are looked up in a table of the range.
_SPARSE = 8
_LABELS = "label bigint, chunk int, place bigint"
_BITS = 33  # of `monotonically_increasing_id`, for the row inside a task


class Vertices(NamedTuple):
    """The vertices: `table` has the columns ``label`` and ``number``; labels that are just 0 … n-1 are `implicit`.

    `labels` and `first` find the numbers of whole numbers, as `Ends` says.
    """

    table: DataFrame
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


def in_ranges(table: DataFrame, by: list[str], rows: int) -> DataFrame:
    """`table` cut into ranges of the keys in `by`, in ascending order; `rows`, an estimate, decides how many."""
    tasks = tasks_for(rows)
    return table.repartitionByRange(tasks, *by) if tasks > 1 else table.repartition(1)


def numbered(table: DataFrame, sizes: Mapping[int, int], name: str) -> DataFrame:
    """The number of each row, from 0, in the column `name`, from its ``place`` in its ``chunk`` of so many rows.

    The ranges before hold all rows with smaller keys: their sizes are added up.
    """
    from pyspark.sql import functions as F

    if len(sizes) < 2:
        return table.drop("chunk").withColumnRenamed("place", name)
    chunks = np.array(sorted(sizes), np.int32)
    starts = np.cumsum([0, *(sizes[chunk] for chunk in chunks[:-1].tolist())], dtype=np.int64)
    first = F.broadcast(table.sparkSession.createDataFrame(pa.table({"chunk": chunks, "start": starts})))
    found = table.join(first, "chunk").withColumn(name, F.col("start") + F.col("place"))
    return found.drop("chunk", "place", "start")


def sizes_of(table: DataFrame) -> dict[int, int]:
    """Rows of each chunk."""
    return {row["chunk"]: int(row["count"]) for row in table.groupBy("chunk").count().collect()}


def number_vertices(work: WorkFolder, rows: DataFrame, more: Sequence[DataFrame], count: int) -> Vertices:
    """Number the labels in ascending order: whole numbers by value, texts by their bytes in UTF-8.

    That is the numbering of `goffish.graph.from_edges`. Labels are the columns ``source`` and ``target`` of `rows` and
    ``label`` of `more`; there are about `count` rows.
    """
    from pyspark.sql import functions as F

    whole = rows.schema["source"].dataType.typeName() == "long"
    tables = [rows.select("source", "target"), *(table.select("label") for table in more)]

    def sort() -> DataFrame:
        if whole:
            bounds = _label_bounds(tables, count)
            return exchange([(table, _ToLabels(bounds)) for table in tables], bounds.size + 1, _sort_labels, _LABELS)
        every = rows.select(F.col("source").alias("label")).union(rows.select("target"))
        for table in tables[1:]:
            every = every.union(table)
        ordered = in_ranges(every.distinct(), ["label"], count).sortWithinPartitions("label")
        ordered = ordered.withColumn("chunk", F.spark_partition_id())
        place = F.monotonically_increasing_id() - F.shiftleft(F.col("chunk").cast("bigint"), _BITS)
        return ordered.withColumn("place", place)

    stored = work.step("labels", sort)
    sizes = sizes_of(stored)
    table, size = numbered(stored, sizes, "number"), sum(sizes.values())
    if not whole:
        return Vertices(table, size, implicit=False)
    labels = np.sort(stored.select("label").toArrow().column("label").to_numpy())
    if not size or (labels[0], labels[-1]) == (0, size - 1):
        return Vertices(table, size, implicit=size > 0)
    first, width = int(labels[0]), int(labels[-1]) - int(labels[0]) + 1
    if width > _SPARSE * size:
        return Vertices(table, size, implicit=False, labels=work.share(labels))
    places = np.zeros(width, vertex_dtype(size))
    places[labels - first] = np.arange(size)
    return Vertices(table, size, implicit=False, labels=work.share(places), first=first)


def _label_bounds(tables: Sequence[DataFrame], count: int) -> NDArray[np.int64]:
    """Where ranges begin that hold about as many distinct labels each, from a sample; they change no number."""
    tasks = tasks_for(count)
    if tasks == 1:
        return np.empty(0, np.int64)
    some = [table.sample(min(1.0, SAMPLED * tasks / count), 1).toArrow() for table in tables]
    found = distinct(np.concatenate([column.to_numpy() for table in some for column in table.columns]))
    return found[np.arange(1, tasks) * found.size // tasks].astype(np.int64) if found.size else np.empty(0, np.int64)


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
    chunks = np.full(labels.size, chunk, np.int32)
    return pa.table({"label": labels, "chunk": chunks, "place": np.arange(labels.size)})


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


def with_numbers(rows: DataFrame, vertices: Vertices) -> DataFrame:
    """Rows with the numbers of their ends, ``u`` and ``v``, in place of labels that are texts."""
    from pyspark.sql import functions as F

    if rows.schema["source"].dataType.typeName() == "long":
        return rows
    for name, number in (("source", "u"), ("target", "v")):
        ends = vertices.table.select(F.col("label").alias(name), F.col("number").alias(number))
        rows = rows.join(beside(ends, vertices.size), name)
    return rows.drop("source", "target")
