"""Parsed rows in files of the working folder: those that are kept, in their order, and those that a rule stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.gopher.spark.tasks import forget_archives
from goffish.spark.ingest.clean import ORDER
from goffish.spark.ingest.sources import FILE_BITS, TABLE_BITS
from goffish.spark.ingest.stored import FILES, Batches, File, Stored, Target, gathered, part_of_task, schema_of
from goffish.spark.ingest.work import WorkFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows of one file: few enough for the texts in which they say where they come from.
_FILE_ROWS = 1 << 18
#: One of so many rows is in the sample, or more of a small file.
_SAMPLED, _LEAST = 1 << 10, 64
_KINDS = {"input": pa.int32(), "file": pa.string(), "block": pa.int64()}

Split = tuple[int, str, int]


class Rows(NamedTuple):
    """The rows of some inputs.

    Attributes
    ----------
    kept, rejected : Stored
        Those without a rule, in the columns of `goffish.spark.ingest.clean.parsed_rows` without it, and the others:
        `ORDER`, ``rule`` and ``row``.
    rules : Counter
        How many rows each rule stops.
    splits : list of list of (int, str, int)
        The pieces of input files in each file of `kept`, whose column ``split`` holds their places in the list. One
        task of Spark has read all rows of a piece, one after the other.
    sample : pa.Table
        Labels of some rows that are kept, ``source`` and ``target``, where they have these.
    """

    kept: Stored
    rejected: Stored
    rules: Counter[str]
    splits: list[list[Split]]
    sample: pa.Table


def keep_rows(work: WorkFolder, name: str, make: Callable[[], DataFrame], *, every_row: bool = False) -> Rows:
    """Write the rows of `parsed_rows` or `parsed_vertices`, in one pass over the inputs.

    Parameters
    ----------
    every_row
        The raw rows of those that are kept will be asked for.
    """

    def write(target: Target) -> tuple[DataFrame, pa.Schema]:
        table = make()
        left = [*_KINDS, "rule", *([] if every_row else ["row"])]
        kept = pa.schema([one for one in schema_of(table) if one.name not in left]).append(
            pa.field("split", pa.int32())
        )
        return table.mapInArrow(_Write(target, kept), FILES), kept

    files, schema = work.written(name, write)
    kept = [file for file in files if file.rows]
    rejected = [File(*file.about["rejected"]) for file in files if file.about["rejected"]]
    bad = pa.schema([*_KINDS.items(), ("at", pa.int64()), ("rule", pa.string()), ("row", pa.string())])
    rules = Counter[str]()
    for file in files:
        rules.update(file.about["rules"])
    ends = [end for end in ("source", "target") if end in schema.names]
    sample = {
        end: pa.array([one for file in kept for one in file.about["sample"][at]], schema.field(end).type)
        for at, end in enumerate(ends)
    }
    splits: list[list[Split]] = [[tuple(one) for one in file.about["splits"]] for file in kept]
    return Rows(work.stored(kept, schema), work.stored(rejected, bad), rules, splits, pa.table(sample))


def ordered(parts: Sequence[Rows], old: int | None = None) -> Stored:
    """The rows that are kept with `ORDER` and a number, ``order``, that sorts them as those columns do.

    Parameters
    ----------
    old
        Input whose rows with a ``time`` are edges of the instances of a store that rows are added to: their order is
        negative.
    """
    every = [one for part in parts for one in part.splits]
    turn = {split: at for at, split in enumerate(sorted({split for splits in every for split in splits}))}
    bits = TABLE_BITS if len(turn) < 1 << (63 - TABLE_BITS) else FILE_BITS
    first = parts[0].kept
    files = tuple(file for part in parts for file in part.kept.files)
    found = Stored(first.place, files, first.schema)
    turns = [np.array([turn[split] for split in splits], np.int64) for splits in every]
    ours = [np.array([split[0] == old for split in splits], bool) for splits in every]
    timed = "time" in first.schema.names and old is not None
    found = found.with_column("order", pa.int64(), _Order(turns, bits, ours if timed else None))
    for at, (name, kind) in enumerate(_KINDS.items()):
        values = [pa.array([split[at] for split in splits], kind) for splits in every]
        found = found.with_column(name, kind, _OfSplit(values))
    return found.select(*(name for name in found.schema.names if name != "split"))


@dataclass(frozen=True)
class _Order:
    """The turn of a row's piece in the upper bits, its place in the piece in the lower ones."""

    turns: list[NDArray[np.int64]]
    bits: int
    old: list[NDArray[np.bool_]] | None

    @property
    def needs(self) -> tuple[str, ...]:
        return ("split", "at") if self.old is None else ("split", "at", "time")

    def __call__(self, number: int, table: pa.Table, rows: int) -> pa.Array:
        split = table.column("split").to_numpy()
        order = table.column("at").to_numpy() & np.int64((1 << self.bits) - 1)
        order |= self.turns[number][split] << np.int64(self.bits)
        if self.old is not None:
            order[self.old[number][split] & table.column("time").is_valid().to_numpy()] = -1
        return pa.array(order)


@dataclass(frozen=True)
class _OfSplit:
    """What all rows of a piece have in common."""

    values: list[pa.Array]
    needs: tuple[str, ...] = ("split",)

    def __call__(self, number: int, table: pa.Table, rows: int) -> pa.Array:
        return self.values[number].take(table.column("split").combine_chunks())


@dataclass(frozen=True)
class _Write:
    """Parsed rows → files, one row of `FILES` for some rows each."""

    target: Target
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        part = part_of_task()
        try:
            for table in gathered(batches, _FILE_ROWS):
                yield from self._written(part, table).to_batches()
        finally:
            forget_archives()

    def _written(self, part: int, table: pa.Table) -> pa.Table:
        stopped = table.column("rule").is_valid()
        bad = table.filter(stopped)
        splits, split = _splits(table)
        kept = table.append_column("split", pa.array(split))
        if bad.num_rows:
            kept = kept.filter(pc.invert(stopped))
        rejected = None
        if bad.num_rows:
            rejected = [self.target.write(bad.select([*ORDER, "rule", "row"])), bad.num_rows]
        rules = {row["values"]: row["counts"] for row in bad.column("rule").value_counts().to_pylist()}
        some = slice(None, None, max(1, min(_SAMPLED, kept.num_rows // _LEAST)))
        ends = [end for end in ("source", "target") if end in kept.column_names]
        sample = [kept.column(end)[some].to_pylist() for end in ends]
        kept = kept.select(self.schema.names).cast(self.schema)
        return self.target.report(part, kept, splits=splits, rejected=rejected, rules=rules, sample=sample)


def _splits(table: pa.Table) -> tuple[list[Split], NDArray[np.int32]]:
    """The pieces of files that rows come from, and the place of each row's piece among them."""
    columns = [table.column(name).combine_chunks() for name in _KINDS]
    new = np.zeros(table.num_rows, bool)
    new[:1] = True
    for column in columns:
        new[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    first = np.flatnonzero(new)
    splits = list(zip(*(column.take(pa.array(first)).to_pylist() for column in columns), strict=True))
    return splits, (np.cumsum(new) - 1).astype(np.int32)
