"""Rows become edges: duplicates are merged, time is cut into instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.slices import distinct
from goffish.spark.ingest.blocks import exchange
from goffish.spark.ingest.clean import value_columns
from goffish.spark.ingest.labels import SAMPLED, Vertices, numbered, tasks_for, with_numbers
from goffish.spark.ingest.merge import Merge, ToRanges
from goffish.spark.ingest.sources import FILE_BITS, TABLE_BITS
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.work import WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Instances of one store; more are a sign of a period in the wrong unit.
_MOST_INSTANCES = 1_000_000


class Windows(NamedTuple):
    """`size` instances of `period` microseconds each, the first of which begins at `start`.

    Those that are versions of a table have `moments` at which they begin; the ``time`` of their rows is their number.
    """

    start: int
    period: int
    size: int
    moments: Sequence[int] = ()

    @property
    def starts(self) -> NDArray[np.int64]:
        """When the instances begin, in microseconds since 1970."""
        if self.moments:
            return np.array(self.moments, np.int64)
        return self.start + self.period * np.arange(self.size, dtype=np.int64)

    @property
    def ends(self) -> NDArray[np.int64]:
        """When they end; the last version, whose end is unknown, a microsecond after its begin."""
        starts = self.starts
        return np.append(starts[1:], starts[-1:] + 1) if self.moments else starts + self.period


def find_windows(tables: Iterable[DataFrame], spec: IngestSpec) -> Windows:
    """The instances that cover the ``time`` of all rows of some tables.

    Without a given start the first one begins at a whole multiple of the period since 1970 (UTC).

    Raises
    ------
    InputError
        There would be more than a million.
    """
    from pyspark.sql import functions as F

    assert spec.instances is not None and spec.instances.period is not None
    period = spec.instances.period
    ends = [table.agg(F.min("time"), F.max("time")).collect()[0] for table in tables]
    start = spec.instances.start
    if start is None:
        start = min(int(low) for low, _ in ends if low is not None) // period * period
    count = (max(int(high) for _, high in ends if high is not None) - start) // period + 1
    if count > _MOST_INSTANCES:
        raise InputError(
            f"instances.period: {period / 1e6:g} s produces {count:,} instances; at most "
            f"{_MOST_INSTANCES:,} are accepted; use a longer period or set clean.window"
        )
    return Windows(start, period, count)


def with_instance(rows: DataFrame, windows: Windows) -> DataFrame:
    """Adds the number of the instance that each row belongs to."""
    from pyspark.sql import functions as F

    return rows.withColumn("instance", F.expr(f"(time - {windows.start}) div {windows.period}"))


def with_order(rows: DataFrame, splits: Iterable[tuple[int, str, int]]) -> DataFrame:
    """Rows with one number, ``order``, that sorts them as the columns `ORDER` do, which it replaces.

    `splits` are the distinct values of ``input``, ``file`` and ``block``. One task of Spark has read all rows of a
    split, one after the other.
    """
    from pyspark.sql import functions as F

    number, file, block = zip(*sorted(splits), strict=True) if splits else ((), (), ())
    turns = pa.table({
        "input": pa.array(number, pa.int32()), "file": pa.array(file), "block": pa.array(block, pa.int64()),
        "turn": pa.array(np.arange(len(number))),
    })  # fmt: skip
    found = rows.join(F.broadcast(rows.sparkSession.createDataFrame(turns)), ["input", "file", "block"])
    bits = TABLE_BITS if len(number) < 1 << (63 - TABLE_BITS) else FILE_BITS
    row = F.col("at").bitwiseAND((1 << bits) - 1)
    return found.withColumn("order", F.shiftleft("turn", bits).bitwiseOR(row)).drop("turn")


def split_duplicates(rows: DataFrame, by: list[str]) -> DataFrame:
    """Marks, for the rule ``duplicates: drop``, every row but the first of each edge: the column ``again``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return rows.withColumn("again", F.row_number().over(Window.partitionBy(*by).orderBy("order")) > 1)


class Edges(NamedTuple):
    """The edges of the template, `table`: ``edge`` (numbered by their ends), ``u``, ``v`` and the values.

    `entries` are those of the instances, in the same columns and ``instance``; there are `kept` of them (without
    instances: as many as edges).
    """

    table: DataFrame
    size: int
    entries: DataFrame | None
    kept: int


def find_bounds(rows: DataFrame, vertices: Vertices, spec: IngestSpec, count: int) -> ToRanges:
    """Ranges of the first end that hold about as many rows each, from a sample; they change no number of an edge."""
    tasks, ends = tasks_for(count), vertices.ends(directed=spec.directed)
    if tasks == 1:
        return ToRanges(np.empty(0, np.int64), ends)
    some = rows.select("source", "target").sample(min(1.0, SAMPLED * tasks / count), 1)
    first = np.sort(ends(with_numbers(some, vertices).toArrow().combine_chunks()).column("u").to_numpy())
    if not first.size:
        return ToRanges(first, ends)
    return ToRanges(distinct(first[np.arange(1, tasks) * first.size // tasks]).astype(np.int64), ends)


def make_edges(work: WorkFolder, links: DataFrame, spec: IngestSpec, bounds: Callable[[], ToRanges]) -> Edges:
    """Merge duplicates and number the edges.

    `links` has the ends (``source`` and ``target``, or ``u`` and ``v``), ``order``, the values, and ``instance`` where
    there are any. They are cut into ranges, each of which one task sorts and merges.

    Raises
    ------
    InputError
        The weights of an edge add up to infinity.
    """
    from pyspark.sql import functions as F

    values, timed = value_columns(spec), spec.instances is not None
    kinds = {field.name: field.dataType.simpleString() for field in links.schema.fields}
    schema = ", ".join(
        [
            "u bigint",
            "v bigint",
            "instance bigint",
            "place bigint",
            *(f"{name} {kinds[name]}" for name in values),
            "chunk int",
        ]
    )
    ends = ["u", "v"] if "u" in links.columns else ["source", "target"]
    columns = [*ends, *(["instance"] if timed else []), "order", *values]
    merge = Merge(spec.clean.duplicates, values, timed)

    def make() -> DataFrame:
        ranges = bounds()
        return exchange([(links.select(*columns), ranges)], ranges.bounds.size + 1, merge, schema)

    stored = work.step("edges", make)
    totals = {
        "edges": F.count_if(F.col("instance").isNull()),
        "kept": F.count("*"),
        "endless": F.count_if(F.col("weight") == float("inf")) if "weight" in values else F.lit(0),
    }
    counted = stored.groupBy("chunk").agg(*(value.alias(name) for name, value in totals.items())).collect()
    sizes = {row["chunk"]: int(row["edges"]) for row in counted}
    size, kept, endless = (sum(int(row[name]) for row in counted) for name in totals)
    if endless:
        raise InputError(
            f"clean.duplicates = 'sum': the weights of {endless:,} edges add up to infinity; scale all weights down"
        )
    edges = numbered(stored, sizes, "edge")
    template = edges.where("instance is null").drop("instance") if timed else edges.drop("instance")
    return Edges(template, size, edges.where("instance is not null") if timed else None, kept - size if timed else size)
