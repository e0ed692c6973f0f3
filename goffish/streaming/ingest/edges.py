"""Rows become edges: duplicates are merged, time is cut into instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from goffish.errors import InputError
from goffish.streaming.ingest.clean import ORDER, value_columns
from goffish.streaming.ingest.labels import numbered
from goffish.streaming.ingest.spec import IngestSpec
from goffish.streaming.ingest.work import WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Instances of one store; more are a sign of a period in the wrong unit.
_MOST_INSTANCES = 1_000_000


class Windows(NamedTuple):
    """`size` instances of `period` microseconds each, the first of which begins at `start`."""

    start: int
    period: int
    size: int


def find_windows(rows: DataFrame, spec: IngestSpec) -> Windows:
    """The instances that cover all rows.

    Without a given start the first one begins at a whole multiple of the period since 1970 (UTC).

    Raises
    ------
    InputError
        There would be more than a million.
    """
    from pyspark.sql import functions as F

    assert spec.instances is not None
    period = spec.instances.period
    ends = rows.agg(F.min("time"), F.max("time")).collect()[0]
    start = spec.instances.start
    if start is None:
        start = int(ends[0]) // period * period
    count = (int(ends[1]) - start) // period + 1
    if count > _MOST_INSTANCES:
        raise InputError(
            f"instances.period: {period / 1e6:g} s would make {count:,} instances of these rows; at most "
            f"{_MOST_INSTANCES:,} are accepted: take a longer period, or set clean.window"
        )
    return Windows(start, period, count)


def with_instance(rows: DataFrame, windows: Windows) -> DataFrame:
    """Adds the number of the instance that each row belongs to."""
    from pyspark.sql import functions as F

    return rows.withColumn("instance", F.expr(f"(time - {windows.start}) div {windows.period}"))


def split_duplicates(rows: DataFrame, by: list[str]) -> DataFrame:
    """Marks, for the rule ``duplicates: drop``, every row but the first of each edge: the column ``again``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return rows.withColumn("again", F.row_number().over(Window.partitionBy(*by).orderBy(*ORDER)) > 1)


def merge(rows: DataFrame, by: list[str], spec: IngestSpec) -> DataFrame:
    """One row for each key in `by`, with the values that ``clean.duplicates`` chooses.

    ``first`` means the order of the inputs, of their files by name, and of the rows in a file; ``min`` takes the row of
    the smallest weight, the first one on ties; ``sum`` adds the weights up in that order and takes the attributes of
    the first. That is what `goffish.graph.from_edges` does.
    """
    from pyspark.sql import functions as F

    names, how = value_columns(spec), spec.clean.duplicates
    if not names:
        return rows.select(*by).distinct()
    order = F.struct(*ORDER)
    if how == "min" and spec.weight is not None:
        order = F.struct("weight", *ORDER)
    chosen = [F.min_by(F.struct(*names), order).alias("chosen")]
    columns: dict[str, Any] = {name: F.col(f"chosen.{name}") for name in names}
    if how == "sum" and spec.weight is not None:
        listed = F.array_sort(F.collect_list(F.struct(*ORDER, "weight")))
        chosen.append(F.aggregate(listed, F.lit(0.0), lambda total, row: total + row["weight"]).alias("total"))
        columns["weight"] = F.col("total")
    return rows.groupBy(*by).agg(*chosen).select(*by, *(value.alias(name) for name, value in columns.items()))


def make_edges(work: WorkFolder, links: DataFrame, spec: IngestSpec, count: int) -> tuple[DataFrame, int]:
    """The edges of the template, numbered by their ends: ``edge``, ``u``, ``v`` and the values; and how many."""
    by = ["u", "v"]
    if spec.clean.duplicates == "keep":
        kept = links.select(*by, *value_columns(spec), *ORDER)
        edges, number = numbered(work, "edges", kept, [*by, *ORDER], count, "edge")
        return edges.drop(*ORDER), number
    edges, number = numbered(work, "edges", merge(links, by, spec), by, count, "edge")
    if spec.clean.duplicates == "sum" and spec.weight is not None:
        _check_sums(edges)
    return edges, number


def _check_sums(edges: DataFrame) -> None:
    endless = edges.where(edges["weight"] == float("inf")).count()
    if endless:
        raise InputError(
            f"clean.duplicates = 'sum': the weights of {endless:,} edges add up to infinity; scale the weights down"
        )
