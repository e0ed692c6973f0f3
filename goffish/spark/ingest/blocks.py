"""Rows on their way to other tasks, packed into blocks: Spark moves a few large rows where there were many small ones.

A task of the first half sorts its rows by where they go and makes Arrow IPC streams of them, `BLOCK_BYTES` each; a task
of the second half puts them together again. Row by row, Spark's shuffle takes most of the time of an ingest job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gopher.spark.tasks import forget_archives
from goffish.spark.ingest.keys import partition_keys
from goffish.spark.ingest.stored import Batches, Stored, gathered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of one Arrow batch between Spark and Python; with blocks of `BLOCK_BYTES` such a batch stays below 2^28 bytes.
BATCH_ROWS = 1 << 11
BLOCK_BYTES = 1 << 17
#: Rows that are sorted together.
_PACKED_ROWS = 1 << 20
#: With more targets than this, chance spreads them well enough.
_MOST_KEYS = 4096

_COLUMNS = "key int, target int, kind int, payload binary"
_SCHEMA = pa.schema([("key", pa.int32()), ("target", pa.int32()), ("kind", pa.int32()), ("payload", pa.binary())])


class Sent(NamedTuple):
    """Which rows go where: row numbers of a table (a row may go to several places), each with its target and kind."""

    table: pa.Table
    rows: NDArray[np.integer[Any]]
    target: NDArray[np.integer[Any]]
    kind: NDArray[np.integer[Any]] | int = 0


Route = Callable[[pa.Table], Sent]


@dataclass(frozen=True)
class Pack:
    """The first half: rows → blocks."""

    route: Route
    keys: Sequence[int] | None

    def __call__(self, batches: Batches) -> Batches:
        try:
            for table in gathered(batches, _PACKED_ROWS):
                yield from self._packed(table)
        finally:
            forget_archives()

    def _packed(self, table: pa.Table) -> Batches:
        sent = self.route(table)
        if not sent.rows.size:
            return
        kinds = int(np.max(sent.kind)) + 1
        place = sent.target.astype(np.int64) * kinds + sent.kind
        # NumPy sorts numbers of 16 bits digit by digit.
        order = np.argsort(place.astype(np.uint16) if place.max() < 1 << 16 else place, kind="stable")
        table, place = sent.table.take(pa.array(sent.rows[order])).combine_chunks(), place[order]
        limits = np.flatnonzero(np.diff(place, prepend=-1, append=-1))
        size = max(1, BLOCK_BYTES * table.num_rows // max(1, table.nbytes))
        spans = [
            (start, min(start + size, last))
            for first, last in zip(limits[:-1].tolist(), limits[1:].tolist(), strict=True)
            for start in range(first, last, size)
        ]
        target, kind = np.divmod(place[[start for start, _ in spans]], kinds)
        keys = target if self.keys is None else np.array(self.keys)[target]
        for begin in range(0, len(spans), BATCH_ROWS):
            some = slice(begin, begin + BATCH_ROWS)
            columns = [pa.array(column[some].astype(np.int32)) for column in (keys, target, kind)]
            payload = _encode(table.slice(start, end - start) for start, end in spans[some])
            yield pa.RecordBatch.from_arrays([*columns, payload], schema=_SCHEMA)


def exchange(
    spark: SparkSession,
    tables: Sequence[tuple[Stored | DataFrame, Route]],
    targets: int,
    function: Callable[[int, list[pa.Table | None]], pa.Table],
    schema: str,
) -> DataFrame:
    """What `function` makes of each target that rows were sent to.

    Parameters
    ----------
    tables
        Each with the routes of its rows.
    targets : int
        They are numbered from 0. Each has a separate task, up to 4,096 of them.
    function
        Called with the number of the target and, for each of `tables`, the rows that were sent from it.
    schema : str
        Columns of what `function` returns, in their order.
    """
    keys = partition_keys(targets) if targets <= _MOST_KEYS else None
    count = len(tables)

    def receive(batches: Batches) -> Batches:
        try:
            found: dict[int, list[list[pa.Buffer]]] = {}
            for batch in batches:
                numbers, sources = (batch.column(at).to_pylist() for at in (0, 1))
                for target, source, payload in zip(numbers, sources, batch.column(2), strict=True):
                    found.setdefault(target, [[] for _ in range(count)])[source].append(payload.as_buffer())
            for target in sorted(found):
                yield from function(target, [unpack(blocks) for blocks in found.pop(target)]).to_batches()
        finally:
            forget_archives()

    # The rows of a table say by their kind which one it was.
    blocks = [_blocks(spark, table, _From(route, number), keys) for number, (table, route) in enumerate(tables)]
    whole = blocks[0]
    for other in blocks[1:]:
        whole = whole.union(other)
    return whole.repartition(targets, "key").select("target", "kind", "payload").mapInArrow(receive, schema)


def grouped(
    spark: SparkSession,
    table: Stored | DataFrame,
    route: Route,
    sizes: tuple[int, int],
    function: Callable[[int, int, pa.Table | None], pa.Table],
    schema: str,
) -> DataFrame:
    """What `function` makes of each target and kind, with the rows that were sent there; one of them at a time.

    There are `sizes` targets and kinds; it is called for all of them, also where no row goes.
    """
    targets, kinds = sizes

    def receive(blocks: pa.Table) -> pa.Table:
        try:
            target, kind = (blocks.column(name)[0].as_py() for name in ("target", "kind"))
            return function(target, kind, unpack(value.as_buffer() for value in blocks.column("payload").drop_null()))
        finally:
            forget_archives()

    every = spark.range(targets * kinds).selectExpr(
        "0 AS key", f"CAST(id DIV {kinds} AS INT) AS target", f"CAST(id % {kinds} AS INT) AS kind",
        "CAST(NULL AS BINARY) AS payload",
    )  # fmt: skip
    return _blocks(spark, table, route, None).union(every).groupBy("target", "kind").applyInArrow(receive, schema)


def unpack(blocks: Iterable[pa.Buffer]) -> pa.Table | None:
    """The rows of some blocks; none if there are no blocks."""
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks]
    return pa.concat_tables(tables).combine_chunks() if tables else None


@dataclass(frozen=True)
class _From:
    route: Route
    number: int

    def __call__(self, table: pa.Table) -> Sent:
        return self.route(table)._replace(kind=self.number)


def _blocks(spark: SparkSession, table: Stored | DataFrame, route: Route, keys: Sequence[int] | None) -> DataFrame:
    pack = Pack(route, keys)
    return table.mapped(spark, pack, _COLUMNS) if isinstance(table, Stored) else table.mapInArrow(pack, _COLUMNS)


def _encode(tables: Iterable[pa.Table]) -> pa.Array:
    """Each table as an IPC stream: one column of bytes, which are copied once."""
    sink, limits = pa.BufferOutputStream(), [0]
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        limits.append(sink.tell())
    offsets = pa.py_buffer(np.array(limits, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(limits) - 1, [None, offsets, sink.getvalue()])
