"""Numbering by a distributed sort: labels to vertex numbers, pairs of vertices to edge numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.work import WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows that one task sorts; how many tasks there are changes no number.
_ROWS_PER_TASK = 1 << 18
#: Vertices that a join sends to all executors: some 100 MB in the memory of the driver's JVM.
_SMALL = 1 << 20
_BITS = 33  # of `monotonically_increasing_id`, for the row inside a task


class Vertices(NamedTuple):
    """The vertices: `table` has the columns ``label`` and ``number``; labels that are just 0 … n-1 are `implicit`."""

    table: DataFrame
    size: int
    implicit: bool

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

    def sort() -> DataFrame:
        every = rows.select(F.col("source").alias("label")).union(rows.select("target"))
        for table in more:
            every = every.union(table.select("label"))
        ordered = in_ranges(every.distinct(), ["label"], count).sortWithinPartitions("label")
        ordered = ordered.withColumn("chunk", F.spark_partition_id())
        place = F.monotonically_increasing_id() - F.shiftleft(F.col("chunk").cast("bigint"), _BITS)
        return ordered.withColumn("place", place)

    stored = work.step("labels", sort)
    sizes = sizes_of(stored)
    number = sum(sizes.values())
    table = numbered(stored, sizes, "number")
    implicit = False
    if table.schema["label"].dataType.typeName() == "long":
        ends: Any = table.agg(F.min("label"), F.max("label")).collect()[0]
        implicit = (ends[0], ends[1]) == (0, number - 1)
    return Vertices(table, number, implicit)


def beside(table: DataFrame, size: int) -> DataFrame:
    """A table with one row for each of `size` vertices, marked for sending it to all executors while it is small."""
    from pyspark.sql import functions as F

    return F.broadcast(table) if size <= _SMALL else table


def with_numbers(rows: DataFrame, vertices: Vertices, *, directed: bool) -> DataFrame:
    """Rows with the numbers of their ends, ``u`` and ``v``, in place of the labels; undirected ones with u ≤ v."""
    from pyspark.sql import functions as F

    if vertices.implicit:
        found = rows.withColumnsRenamed({"source": "u", "target": "v"})
    else:
        found = rows
        for name, number in (("source", "u"), ("target", "v")):
            ends = vertices.table.select(F.col("label").alias(name), F.col("number").alias(number))
            found = found.join(beside(ends, vertices.size), name)
        found = found.drop("source", "target")
    if directed:
        return found
    return found.withColumns({"u": F.least("u", "v"), "v": F.greatest("u", "v")})
