"""Tables as Parquet files that executors write and read through fsspec, for storage that Spark has no connector for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from goffish.gofs.files import open_folder
from goffish.gopher.folder import Part, folder_writer
from goffish.gopher.spark.tasks import forget_archives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]

_COLUMNS = "name string, rows bigint, size bigint"
#: Rows of one batch on the way back.
_BATCH_ROWS = 1 << 14


def write_result_parts(table: DataFrame, target: str, of: str) -> list[Part]:
    """Write each partition of a table, which fits the memory of its task, as a part of a result folder."""
    return sorted(_collected(table.mapInArrow(_WriteResult(target, of), _COLUMNS)))


def read_parts(spark: SparkSession, place: str, names: Sequence[str], schema: Any) -> DataFrame:
    """The rows of files of a folder or URI, with a schema of Spark."""
    from pyspark.sql.pandas.types import to_arrow_schema

    rows = spark.range(0, len(names), 1, max(1, len(names)))
    return rows.mapInArrow(_Read(place, tuple(names), to_arrow_schema(schema)), schema)


def _collected(table: DataFrame) -> list[Part]:
    return [Part(row["name"], row["rows"], row["size"]) for row in table.collect()]


def _reported(part: Part) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [part._asdict()], pa.schema([("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])
    )


@dataclass(frozen=True)
class _WriteResult:
    target: str
    of: str

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        try:
            found, context = list(batches), TaskContext.get()
            if found and context is not None:
                table = pa.Table.from_batches(found)
                yield _reported(folder_writer(self.target).write(context.partitionId(), table, self.of))
        finally:
            forget_archives()


@dataclass(frozen=True)
class _Read:
    place: str
    names: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        import pyarrow.parquet as pq

        try:
            folder = open_folder(self.place)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    table = pq.ParquetFile(pa.BufferReader(folder.read(self.names[number]))).read()
                    yield from table.select(self.schema.names).cast(self.schema).to_batches(_BATCH_ROWS)
        finally:
            forget_archives()
