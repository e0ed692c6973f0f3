"""Numbering by a distributed sort: labels to vertex numbers, pairs of vertices to edge numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from goffish.streaming.ingest.spec import IngestSpec
from goffish.streaming.ingest.work import WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows that one task sorts; how many tasks there are changes no number.
_ROWS_PER_TASK = 1 << 19
_BITS = 33  # of `monotonically_increasing_id`, for the row inside a task


class Vertices(NamedTuple):
    """The vertices: `table` has the columns ``label`` and ``number``; labels that are just 0 … n-1 are `implicit`."""

    table: DataFrame
    size: int
    implicit: bool

    def label_type(self, spec: IngestSpec) -> str:
        """As the manifest of a store names it."""
        return "implicit" if self.implicit else {"integer": "int64", "text": "string"}[spec.labels]


def numbered(
    work: WorkFolder, step: str, table: DataFrame, by: list[str], rows: int, name: str
) -> tuple[DataFrame, int]:
    """`table` in the order of `by`, with the number of each row, from 0, in the column `name`; and how many rows.

    The rows are cut into ranges of keys, each range is sorted by one task and written; the number of a row is its place
    in the range plus the sizes of the ranges before. `rows`, an estimate of their number, decides how many ranges.
    """
    from pyspark.sql import functions as F

    tasks = max(1, min(10_000, rows // _ROWS_PER_TASK))

    def sort() -> DataFrame:
        ordered = table.repartitionByRange(tasks, *by) if tasks > 1 else table.coalesce(1)
        chunk = F.spark_partition_id()
        place = F.monotonically_increasing_id() - F.shiftleft(chunk.cast("bigint"), _BITS)
        return ordered.sortWithinPartitions(*by).withColumn("chunk", chunk).withColumn("place", place)

    stored = work.step(step, sort)
    if tasks == 1:
        return stored.drop("chunk").withColumnRenamed("place", name), stored.count()
    sizes = sorted((row["chunk"], row["count"]) for row in stored.groupBy("chunk").count().collect())
    starts, total = [], 0
    for chunk, size in sizes:
        starts.append((chunk, total))
        total += size
    first = F.broadcast(stored.sparkSession.createDataFrame(starts, "chunk int, start bigint"))
    named = stored.join(first, "chunk").withColumn(name, F.col("start") + F.col("place"))
    return named.drop("chunk", "place", "start"), total


def number_vertices(work: WorkFolder, rows: DataFrame, count: int) -> Vertices:
    """Number the labels in ascending order: whole numbers by value, texts by their bytes in UTF-8.

    That is the numbering of `goffish.graph.from_edges`.
    """
    from pyspark.sql import functions as F

    both = rows.select(F.col("source").alias("label")).union(rows.select("target")).distinct()
    table, number = numbered(work, "labels", both, ["label"], 2 * count, "number")
    implicit = False
    if table.schema["label"].dataType.typeName() == "long":
        ends: Any = table.agg(F.min("label"), F.max("label")).collect()[0]
        implicit = (ends[0], ends[1]) == (0, number - 1)
    return Vertices(table, number, implicit)


def with_numbers(rows: DataFrame, vertices: Vertices, *, directed: bool) -> DataFrame:
    """Rows with the numbers of their ends, ``u`` and ``v``, in place of the labels; undirected ones with u ≤ v."""
    from pyspark.sql import functions as F

    if vertices.implicit:
        found = rows.withColumnsRenamed({"source": "u", "target": "v"})
    else:
        found = rows
        for name, number in (("source", "u"), ("target", "v")):
            ends = vertices.table.select(F.col("label").alias(name), F.col("number").alias(number))
            found = found.join(ends, name)
        found = found.drop("source", "target")
    if directed:
        return found
    return found.withColumns({"u": F.least("u", "v"), "v": F.greatest("u", "v")})
