"""Tables of vertices: one row for each vertex, or for each vertex and instance, of the rows that describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from goffish.spark.ingest.clean import ORDER
from goffish.spark.ingest.edges import Windows, with_instance
from goffish.spark.ingest.labels import Vertices, beside
from goffish.spark.ingest.spec import VertexTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What becomes of a row: the first of its vertex (and instance), one that says the same, one that says otherwise.
KEPT, MERGED, DUPLICATE = "kept", "merged", "duplicate"


class VertexRows(NamedTuple):
    """The usable rows of a table of vertices.

    `table` has the columns ``label``, ``instance`` where the table has timestamps, ``order``, the attributes ``a0`` …,
    ``state`` (`KEPT`, `MERGED` or `DUPLICATE`), `ORDER` without the input, ``input`` and ``row`` (of duplicates).
    """

    of: VertexTable
    table: DataFrame

    def numbered(self, vertices: Vertices, spark: SparkSession) -> DataFrame:
        """Rows that count: ``number`` of the vertex in place of the label."""
        rows = self.table.where(self.table["state"] != DUPLICATE).drop(*ORDER, "row")
        if vertices.implicit:
            return rows.withColumnRenamed("label", "number")
        return rows.join(beside(vertices.table.frame(spark), vertices.size), "label").drop("label")


def mark_rows(rows: DataFrame, of: VertexTable, windows: Windows | None) -> DataFrame:
    """The table of `VertexRows` from the ordered rows of `goffish.spark.ingest.clean.parsed_vertices`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found, by = rows, ["label"]
    if of.timestamp is not None and windows is not None:
        found, by = with_instance(found, windows).drop("time"), ["label", "instance"]
    ordered = Window.partitionBy(*by).orderBy("order")
    values = F.struct(
        F.lit(0).alias("none"), *(f"a{at}" for at, one in enumerate(of.attributes.values()) if not one.is_list)
    )
    same = values.eqNullSafe(F.first(values).over(ordered))
    state = F.when(F.row_number().over(ordered) == 1, KEPT).when(same, MERGED).otherwise(DUPLICATE)
    found = found.withColumn("state", state)
    return found.withColumn("row", F.when(F.col("state") == DUPLICATE, F.col("row")))
