"""Rows become edges: duplicates are merged, time is cut into instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.slices import distinct
from goffish.spark.ingest.blocks import exchange
from goffish.spark.ingest.clean import value_columns
from goffish.spark.ingest.labels import Ends, Vertices, frame_of, tasks_for, with_numbers
from goffish.spark.ingest.merge import Merge, ToRanges
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.stored import FILES, Counted, File, Stored, Target, schema_of
from goffish.spark.ingest.work import WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def split_duplicates(rows: DataFrame, by: list[str]) -> DataFrame:
    """Marks, for the rule ``duplicates: drop``, every row but the first of each edge: the column ``again``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return rows.withColumn("again", F.row_number().over(Window.partitionBy(*by).orderBy("order")) > 1)


class Edges(NamedTuple):
    """The edges of the template, `table`: ``edge`` (numbered by their ends), ``u``, ``v`` and the values.

    `entries` are those of the instances, in the same columns and ``instance``; there are `kept` of them (without
    instances: as many as edges). `loops` of the edges are self-loops.
    """

    table: Stored
    entries: Stored | None
    kept: int
    loops: int

    @property
    def size(self) -> int:
        return self.table.size


def find_bounds(
    sample: pa.Table, vertices: Vertices, windows: Windows | None, ends: Ends, count: int, spark: SparkSession
) -> ToRanges:
    """Ranges of the first end that hold about as many rows each, from a sample; they change no number of an edge."""
    tasks, spans = tasks_for(count), None if windows is None else (windows.start, windows.period)
    if tasks == 1 or not sample.num_rows:
        return ToRanges(np.empty(0, np.int64), ends, spans)
    if sample.schema.field("source").type != pa.int64():
        numbers = frame_of(with_numbers(spark.createDataFrame(sample), vertices, spark), spark)
        sample = numbers.toArrow().combine_chunks()
    first = np.sort(ends(sample).column("u").to_numpy())
    return ToRanges(distinct(first[np.arange(1, tasks) * first.size // tasks]).astype(np.int64), ends, spans)


def make_edges(
    work: WorkFolder, links: Callable[[], Stored | DataFrame], spec: IngestSpec, bounds: Callable[[], ToRanges]
) -> Edges:
    """Merge duplicates and number the edges.

    `links` have the ends (``source`` and ``target``, or ``u`` and ``v``), ``order``, the values, and ``time`` where
    there are instances. They are cut into ranges, each of which one task sorts and merges.

    Raises
    ------
    InputError
        The weights of an edge add up to infinity.
    """
    values, timed = value_columns(spec), spec.instances is not None

    def write(target: Target) -> tuple[DataFrame, pa.Schema]:
        ranges, table = bounds(), links()
        kinds = schema_of(table)
        ends = ["u", "v"] if "u" in kinds.names else ["source", "target"]
        chosen = table.select(*ends, *(["time"] if timed else []), "order", *values)
        own = [("u", pa.int64()), ("v", pa.int64()), ("instance", pa.int64()), ("place", pa.int64())]
        schema = pa.schema([*own, *(kinds.field(name) for name in values)])
        keep = _KeepEdges(target, Merge(spec.clean.duplicates, values, timed))
        return exchange(work.spark, [(chosen, ranges)], ranges.bounds.size + 1, keep, FILES), schema

    files, schema = work.written("edges", write)
    endless, loops = (sum(file.about[name] for file in files) for name in ("endless", "loops"))
    if endless:
        raise InputError(
            f"clean.duplicates = 'sum': the weights of {endless:,} edges add up to infinity; scale all weights down"
        )
    edges = work.stored(files, schema)
    table = edges.with_column("edge", pa.int64(), Counted(edges.starts)).select("edge", "u", "v", *values)
    if not timed:
        return Edges(table, None, table.size, loops)
    more = [File(*file.about["entries"]) for file in files]
    entries = work.stored(more, schema).with_column("edge", pa.int64(), Counted(edges.starts, ("place",)))
    entries = entries.select("edge", "u", "v", "instance", *values)
    return Edges(table, entries, entries.size, loops)


@dataclass(frozen=True)
class _KeepEdges:
    """Writes the edges of a range, and beside them those of the instances."""

    target: Target
    merge: Merge

    def __call__(self, chunk: int, tables: Sequence[pa.Table | None]) -> pa.Table:
        edges, about = self.merge(tables), dict[str, Any]()
        endless = pc.is_inf(edges.column("weight")) if "weight" in edges.column_names else pa.array([False])
        if self.merge.instances:
            own = edges.column("instance").is_valid()
            entries, edges = edges.filter(own), edges.filter(pc.invert(own))
            about["entries"] = [self.target.write(entries), entries.num_rows]
        loops = pc.equal(edges.column("u"), edges.column("v"))
        about |= {name: pc.sum(which).as_py() or 0 for name, which in (("endless", endless), ("loops", loops))}
        return self.target.report(chunk, edges, **about)
