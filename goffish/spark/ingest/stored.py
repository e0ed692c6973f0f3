"""Tables of steps as Arrow files of the working folder, which tasks in Python write and read without Spark's JVM."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.files import Folder, open_folder
from goffish.gopher.spark.tasks import forget_archives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]

#: What a task reports of the files that it has written.
FILES = "part int, name string, rows bigint, about string"
#: Rows of one file that is written from a stream of rows.
_FILE_ROWS = 1 << 18
#: Rows that one task reads, unless more tasks would find work.
_TASK_ROWS = 1 << 20
#: Rows of one batch on the way to the JVM.
_BATCH_ROWS = 1 << 14


class File(NamedTuple):
    """A file in the working folder, with what else its task reports."""

    name: str
    rows: int
    about: Mapping[str, Any] = MappingProxyType({})


class Computed(Protocol):
    """A column that a file does not hold: how it follows from the columns that it `needs`."""

    @property
    def needs(self) -> tuple[str, ...]: ...

    def __call__(self, number: int, table: pa.Table, rows: int) -> pa.Array:
        """The values in the rows of the file with a number."""


@dataclass(frozen=True)
class Counted:
    """Numbers of rows, from that of the first row of each file on; or from a column of places.

    Attributes
    ----------
    starts : array of int64
        By file.
    """

    starts: NDArray[np.int64]
    needs: tuple[str, ...] = ()

    def __call__(self, number: int, table: pa.Table, rows: int) -> pa.Array:
        place = table.column(self.needs[0]).to_numpy() if self.needs else np.arange(rows)
        return pa.array(place + self.starts[number])


@dataclass(frozen=True)
class Stored:
    """A table in files of the working folder.

    Attributes
    ----------
    schema : pa.Schema
        The columns that are read.
    computed : mapping of str to Computed
        Those of them that are not in the files.
    """

    place: str
    files: tuple[tuple[str, int], ...]
    schema: pa.Schema
    computed: Mapping[str, Computed] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Rows of all files."""
        return sum(rows for _, rows in self.files)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each file."""
        return np.concatenate(([0], np.cumsum([rows for _, rows in self.files], dtype=np.int64)))[:-1].astype(np.int64)

    def select(self, *names: str) -> Stored:
        """Some of the columns, in this order."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))

    def with_column(self, name: str, kind: pa.DataType, computed: Computed) -> Stored:
        """Adds a column that the files do not hold."""
        return replace(
            self, schema=self.schema.append(pa.field(name, kind)), computed={**self.computed, name: computed}
        )

    def table(self, number: int) -> pa.Table:
        """The rows of one file."""
        return self._read(open_folder(self.place), number)

    def collected(self) -> pa.Table:
        """All rows, on this machine."""
        folder = open_folder(self.place)
        tables = [self._read(folder, number) for number in range(len(self.files))]
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def batches(self, numbers: Iterable[int]) -> Batches:
        """The rows of some files."""
        folder = open_folder(self.place)
        for number in numbers:
            yield from self._read(folder, number).to_batches()

    def mapped(self, spark: SparkSession, function: Callable[[Batches], Batches], schema: Any) -> DataFrame:
        """What `function` makes of the rows, in tasks that take some of the files each."""
        count = len(self.files)
        least = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        tasks = max(1, min(count, max(least, self.size // _TASK_ROWS)))
        return spark.range(0, count, 1, tasks).mapInArrow(_Mapped(self, function), schema)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows for Spark."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return self.mapped(spark, _small, from_arrow_schema(self.schema))

    def _read(self, folder: Folder, number: int) -> pa.Table:
        name, rows = self.files[number]
        names = self.schema.names
        needed = {one for column in names if column in self.computed for one in self.computed[column].needs}
        needed |= {column for column in names if column not in self.computed}
        data = folder.read(name)
        schema = pa.ipc.open_file(data).schema
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(one) for one in needed] or [0])
        table = pa.ipc.open_file(data, options=options).read_all()
        columns = [
            self.computed[one](number, table, rows) if one in self.computed else table.column(one) for one in names
        ]
        return pa.table(columns, schema=self.schema)


@dataclass(frozen=True)
class _Mapped:
    source: Stored
    function: Callable[[Batches], Batches]

    def __call__(self, batches: Batches) -> Batches:
        try:
            numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
            yield from self.function(self.source.batches(numbers))
        finally:
            forget_archives()


def _small(batches: Batches) -> Batches:
    for batch in batches:
        yield from pa.Table.from_batches([batch]).to_batches(_BATCH_ROWS)


@dataclass(frozen=True)
class Target:
    """Where the tasks of a step write. A task that runs twice writes other files: those count that are reported."""

    place: str
    step: str

    def write(self, table: pa.Table) -> str:
        """Write a file and return its name in the working folder."""
        sink = pa.BufferOutputStream()
        # Several times as fast as Parquet, and numbers that are near one another are still small.
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        name = f"{self.step}/{uuid.uuid4().hex}.arrow"
        open_folder(self.place).write(name, sink.getvalue())
        return name

    def report(self, part: int, table: pa.Table, **about: Any) -> pa.Table:
        """Write a file and return its row of `FILES`; files of one step are in the order of their parts."""
        return pa.table({
            "part": pa.array([part], pa.int32()), "name": [self.write(table)],
            "rows": pa.array([table.num_rows], pa.int64()), "about": [json.dumps(about)],
        })  # fmt: skip


@dataclass(frozen=True)
class Keep:
    """Writes what a function makes of the rows that were sent to a target, in place of returning it."""

    target: Target
    function: Callable[[int, Sequence[pa.Table | None]], pa.Table]

    def __call__(self, number: int, tables: Sequence[pa.Table | None]) -> pa.Table:
        return self.target.report(number, self.function(number, tables))


@dataclass(frozen=True)
class Write:
    """Writes the rows of Spark's partitions."""

    target: Target
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        part = part_of_task()
        try:
            for table in gathered(batches, _FILE_ROWS):
                yield from self.target.report(part, table.cast(self.schema)).to_batches()
        finally:
            forget_archives()


def part_of_task() -> int:
    """The number of Spark's partition that this task has; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def gathered(batches: Batches, rows: int) -> Iterator[pa.Table]:
    """Batches put together until they have so many rows."""
    found: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        found.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(found).combine_chunks()
            found, count = [], 0
    if found:
        yield pa.Table.from_batches(found).combine_chunks()


def files_of(reports: pa.Table) -> list[File]:
    """The files of rows of `FILES`, those of each part in the order in which its task wrote them."""
    order = np.argsort(reports.column("part").to_numpy(), kind="stable")
    rows = reports.take(pa.array(order)).to_pylist()
    return [File(row["name"], row["rows"], json.loads(row["about"])) for row in rows]


def encode_files(files: Sequence[File], schema: pa.Schema) -> bytes:
    """Files and the columns that they hold, as JSON."""
    kinds = base64.b64encode(schema.serialize()).decode()
    return json.dumps({"files": files, "schema": kinds}).encode()


def decode_files(data: bytes) -> tuple[list[File], pa.Schema]:
    """The inverse of `encode_files`."""
    found = json.loads(data)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"])))
    return [File(*file) for file in found["files"]], schema


def schema_of(table: Stored | DataFrame) -> pa.Schema:
    """The columns of a table as Arrow names them."""
    if isinstance(table, Stored):
        return table.schema
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(table.schema)
