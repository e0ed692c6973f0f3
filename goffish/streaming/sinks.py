"""Sinks: where records leave a flow. Files are published at checkpoints: a restart neither loses nor doubles."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from goffish.errors import InputError, JobError
from goffish.partial import local_path
from goffish.streaming.batches import Batch, as_arrow

#: Rows that a Parquet file collects before it writes a row group.
_ROW_GROUP = 1 << 17
_PART = re.compile(r"part(-\d+)?-(\d{8})\.\w+")


class Writer:
    """Writes the records of one run.

    Records are visible once `commit` has returned and nothing is `pending`. A checkpoint calls `prepare`, saves the
    number, and calls `commit` with it; after a crash between the two, `recover` does.

    Attributes
    ----------
    part : str
        Distinguishes the files of several processes.
    publishes : bool
        Whether records are visible only after `commit`; the latency of records counts until then.
    columns : bool
        Whether records have columns, which are the same for all.
    spool : Path or None
        Local folder in which the run keeps what writers prepare; None if it resumes from no checkpoint.
    """

    part = ""
    publishes = False
    columns = False
    spool: Path | None = None

    def write(self, batch: Batch) -> None:
        """Accept records.

        Parameters
        ----------
        batch : Batch
        """

    def prepare(self, number: int) -> None:
        """Make the records since the last call durable under the number of a checkpoint.

        Parameters
        ----------
        number : int
        """

    def commit(self, number: int) -> None:
        """Publish what was prepared.

        Parameters
        ----------
        number : int
        """

    @property
    def pending(self) -> bool:
        """Whether `commit` has returned but something is still to be published. Called often by workers."""
        return False

    def recover(self, number: int | None) -> None:
        """Publish what was prepared for the last checkpoint, and discard what came after it.

        Parameters
        ----------
        number : int or None
            ``None`` for a run that begins.
        """

    def interrupt(self) -> None:
        """Let `write` and `commit`, which another thread has called, give up what they wait for."""

    def close(self) -> None:
        """Discard what was not prepared."""


class Sink:
    """Target of records. Base class of sinks: this one drops them.

    Attributes
    ----------
    spools : bool
        Whether writers keep what they prepare in their `Writer.spool`.
    """

    spools: ClassVar[bool] = False

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders in which writers on all hosts see each other's files."""
        return ()

    def check(self) -> None:
        """Raise an error if the target cannot be written."""

    def check_unused(self) -> None:
        """Raise an error if another run has written to the target, as a run that begins would add to it."""

    def writer(self, name: str) -> Writer:
        """Return a writer for a run.

        Parameters
        ----------
        name : str
            Name of the operator, for messages.

        Returns
        -------
        Writer
        """
        return Writer()


class FolderWriter(Writer):
    """Collects records in a hidden file, which is renamed to the number of the checkpoint when it is committed."""

    suffix = ""
    publishes = True

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.empty = True

    @property
    def _partial(self) -> Path:
        return self.folder / f".part{self._of}-{os.getpid()}.partial"

    @property
    def _of(self) -> str:
        return f"-{self.part}" if self.part else ""

    def _prepared(self, number: int) -> Path:
        return self.folder / f".part{self._of}-{number:08d}{self.suffix}.prepared"

    def _error(self, error: OSError) -> JobError:
        reason = os.strerror(error.errno) if error.errno else error  # Arrow's texts name its functions
        return JobError(f"operator {self.name}: {self.folder}: cannot be written ({reason})")

    def write(self, batch: Batch) -> None:
        """Accept records."""
        try:
            self.add(batch)
            self.empty = False
        except OSError as error:
            raise self._error(error) from None

    def add(self, batch: Batch) -> None:
        """Write records to the hidden file."""

    def finish(self) -> None:
        """Complete the hidden file."""

    def prepare(self, number: int) -> None:
        """Make the records since the last call durable under the number of a checkpoint."""
        if self.empty:
            return
        try:
            self.finish()
            with self._partial.open("rb") as file:
                os.fsync(file.fileno())
            self._partial.replace(self._prepared(number))
            _sync_folder(self.folder)
        except OSError as error:
            raise self._error(error) from None
        self.empty = True

    def commit(self, number: int) -> None:
        """Publish what was prepared."""
        prepared = self._prepared(number)
        if prepared.exists():
            try:
                prepared.replace(self.folder / f"part{self._of}-{number:08d}{self.suffix}")
                _sync_folder(self.folder)
            except OSError as error:
                raise self._error(error) from None

    def recover(self, number: int | None) -> None:
        """Publish what was prepared for the last checkpoint, and discard what came after it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = (_PART.fullmatch(one.name) for one in self.folder.iterdir())
            published = [int(found[2]) for found in names if found and (found[1] or "") == self._of]
            newer = max(published, default=0)
            if newer > (number or 0):
                state = "a run that begins" if number is None else f"checkpoint {number}"
                raise InputError(
                    f"{self.folder}: has part {newer}, which is newer than {state}; "
                    "resume from the checkpoint that wrote it, or give an empty folder"
                )
            for earlier in sorted(self.folder.glob(f".part{self._of}-*{self.suffix}.prepared")):
                if number is not None and (found := int(earlier.name.split("-")[-1].split(".")[0])) <= number:
                    self.commit(found)
            for one in self.folder.glob(f".part{self._of}-*"):
                one.unlink()
        except OSError as error:
            raise self._error(error) from None

    def close(self) -> None:
        """Discard what was not prepared."""
        with suppress(OSError):
            self._partial.unlink()


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class ParquetWriter(FolderWriter):
    """Writes Parquet files with one schema.

    Attributes
    ----------
    waiting : list of pyarrow.RecordBatch
        What the next row group holds.
    """

    suffix, columns = ".parquet", True

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self._file: pq.ParquetWriter | None = None
        self.waiting: list[pa.RecordBatch] = []
        self._rows: list[Any] = []
        self._schema: pa.Schema | None = None

    def add(self, batch: Batch) -> None:
        """Write records to the hidden file."""
        if isinstance(batch.values, list):
            self._rows += batch.values
        else:
            self.convert()
            self.waiting.append(batch.values)
        if len(self._rows) + sum(map(len, self.waiting)) >= _ROW_GROUP:
            self.flush()

    def convert(self) -> None:
        """Convert rows that wait to Arrow."""
        if self._rows:
            self.waiting.append(as_arrow(self._rows, self.name))
            self._rows = []

    def flush(self) -> None:
        """Write what waits."""
        self.convert()
        if not self.waiting:
            return
        try:
            schema = pa.unify_schemas([one.schema for one in self.waiting], promote_options="permissive")
            if self._file is None:
                # Files of one run have one schema where possible: readers of the folder expect it.
                if self._schema is not None:
                    schema = pa.unify_schemas([self._schema, schema], promote_options="permissive")
                self._schema = schema
                self._file = pq.ParquetWriter(self._partial, schema)
            table = pa.concat_tables(
                [pa.Table.from_batches([one]) for one in self.waiting], promote_options="permissive"
            )
            missing = [field for field in self._schema if field.name not in table.schema.names]  # type: ignore[union-attr]
            for one in missing:
                table = table.append_column(one, pa.nulls(len(table), one.type))
            self._file.write_table(table.select(self._schema.names).cast(self._schema))  # type: ignore[union-attr]
        except pa.ArrowException as error:
            reason = " ".join(str(error).split())
            raise JobError(
                f"operator {self.name}: records do not fit the columns of {self.folder} ({reason})"
            ) from None
        except KeyError as error:
            raise JobError(f"operator {self.name}: {self.folder}: no column {error}") from None
        self.waiting = []

    def finish(self) -> None:
        """Complete the hidden file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Discard what was not prepared."""
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):
                self._file.close()
        super().close()


class _TextWriter(FolderWriter):
    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self._file: BinaryIO | None = None

    def put(self, text: str) -> None:
        """Write text to the hidden file."""
        if self._file is None:
            self._file = self._partial.open("wb")
            text = self.head() + text
        self._file.write(text.encode("utf-8", "surrogatepass"))

    def head(self) -> str:
        """Return the text that every file begins with."""
        return ""

    def finish(self) -> None:
        """Complete the hidden file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Discard what was not prepared."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        super().close()


def plain(value: Any) -> Any:
    """Return a value that JSON has no type for as text, or as a list."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, set | frozenset | Iterable) and not isinstance(value, str | bytes):
        return list(value)
    item = getattr(value, "item", None)
    return item() if item is not None else str(value)


class _JsonWriter(_TextWriter):
    suffix = ".jsonl"

    def add(self, batch: Batch) -> None:
        """Write records to the hidden file."""
        self.put("".join(f"{json.dumps(value, default=plain)}\n" for value in batch.rows()))


class _CsvWriter(_TextWriter):
    suffix, columns = ".csv", True

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self._names: list[str] = []

    def head(self) -> str:
        """Return the text that every file begins with."""
        return self._text([self._names])

    def _text(self, rows: Iterable[Iterable[Any]]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def add(self, batch: Batch) -> None:
        """Write records to the hidden file."""
        rows = [value if isinstance(value, dict) else {"value": value} for value in batch.rows()]
        self._names = self._names or list(rows[0])
        for row in rows:
            extra = [name for name in row if name not in self._names]
            if extra:
                raise JobError(
                    f"operator {self.name}: column {extra[0]!r} is not in the header of {self.folder}; "
                    f"the columns are {', '.join(self._names)}"
                )
        self.put(self._text([[_cell(row.get(name)) for name in self._names] for row in rows]))


def _cell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime | date) else value


@dataclass(frozen=True)
class FolderSink(Sink):
    """A folder of files in one format, one for each checkpoint."""

    path: str
    format: str

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder."""
        return (self.path,)

    def check(self) -> None:
        """Raise an error if the target cannot be written."""
        folder = local_path(self.path)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{self.path}: is a file; name a folder")
        existing = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        if not os.access(existing, os.W_OK):
            raise InputError(f"{self.path}: no permission to write in {existing}")

    def check_unused(self) -> None:
        """Raise an error if another run has written to the target, as a run that begins would add to it."""
        folder = local_path(self.path)
        written = sorted(one.name for one in folder.glob("part-*") if _PART.fullmatch(one.name))
        if written:
            raise InputError(
                f"{self.path}: has {written[-1]} of another run; resume from the checkpoint that wrote it, or give an "
                "empty folder"
            )

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        kinds = {"parquet": ParquetWriter, "jsonl": _JsonWriter, "csv": _CsvWriter}
        return kinds[self.format](local_path(self.path), name)


class _Printer(Writer):
    def write(self, batch: Batch) -> None:
        """Accept records."""
        lines = (value if isinstance(value, str) else json.dumps(value, default=plain) for value in batch.rows())
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


@dataclass(frozen=True)
class Print(Sink):
    """Standard output, a line for each record."""

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _Printer()


@dataclass
class _Caller(Writer):
    function: Callable[[Any], Any]
    name: str

    def write(self, batch: Batch) -> None:
        """Accept records."""
        for value in batch.rows():
            try:
                self.function(value)
            except Exception as error:
                shown = repr(value)[:200]
                raise JobError(f"operator {self.name}: {type(error).__name__}: {error} (record {shown})") from error


@dataclass(frozen=True)
class Call(Sink):
    """A function that is called for each record."""

    function: Callable[[Any], Any]

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _Caller(self.function, name)


@dataclass
class _Collector(Writer):
    values: list[Any]

    def write(self, batch: Batch) -> None:
        """Accept records."""
        self.values += batch.rows()


@dataclass(frozen=True)
class Collect(Sink):
    """A list in memory.

    Attributes
    ----------
    values : list
        The records of all runs since the sink was made.
    """

    values: list[Any] = field(default_factory=list)

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _Collector(self.values)


def write_parquet(path: str | Path) -> Sink:
    """Write records to Parquet files in a folder; each checkpoint publishes one.

    Parameters
    ----------
    path : str or Path
        Local folder; made if it does not exist.

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        The path is a URI.

    Notes
    -----
    Delivery is exactly-once when the flow has a checkpoint folder: a file is published by a rename after its
    checkpoint was saved, and a restart publishes or discards what was prepared.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.write_parquet("out").path
    'out'
    """
    local_path(path)
    return FolderSink(str(path), "parquet")


def write_json_lines(path: str | Path) -> Sink:
    """Write records to files with a JSON value on every line; each checkpoint publishes one.

    Parameters
    ----------
    path : str or Path
        Local folder; made if it does not exist.

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        The path is a URI.

    Notes
    -----
    Delivery is exactly-once, as with `write_parquet`.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.write_json_lines("out").format
    'jsonl'
    """
    local_path(path)
    return FolderSink(str(path), "jsonl")


def write_csv(path: str | Path) -> Sink:
    """Write records to CSV files with a header in a folder; each checkpoint publishes one.

    Parameters
    ----------
    path : str or Path
        Local folder; made if it does not exist.

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        The path is a URI.

    Notes
    -----
    Delivery is exactly-once, as with `write_parquet`. The columns are those of the first record.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.write_csv("out").format
    'csv'
    """
    local_path(path)
    return FolderSink(str(path), "csv")


def print_values() -> Sink:
    """Print records on standard output, a line of text or JSON for each. Delivery is at-least-once.

    Returns
    -------
    Sink

    Examples
    --------
    >>> import goffish as gf
    >>> flow = gf.stream.Flow("numbers")
    >>> _ = flow.source(gf.stream.generate(2)).sink(gf.stream.print_values())
    >>> _ = flow.run()
    0
    1
    """
    return Print()


def call(function: Callable[[Any], Any]) -> Sink:
    """Call a function for each record. Delivery is at-least-once.

    Parameters
    ----------
    function : callable
        Takes one record.

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        The argument is not callable.

    Examples
    --------
    >>> import goffish as gf
    >>> flow, seen = gf.stream.Flow("numbers"), []
    >>> _ = flow.source(gf.stream.generate(3)).sink(gf.stream.call(seen.append))
    >>> _ = flow.run()
    >>> seen
    [0, 1, 2]
    """
    if not callable(function):
        raise InputError(f"call: {type(function).__name__} is not callable; give a function of one record")
    return Call(function)


def collect() -> Collect:
    """Collect records in a list, for notebooks and tests.

    Returns
    -------
    Collect

    Examples
    --------
    >>> import goffish as gf
    >>> flow, seen = gf.stream.Flow("numbers"), gf.stream.collect()
    >>> _ = flow.source(gf.stream.generate(3)).sink(seen)
    >>> _ = flow.run()
    >>> seen.values
    [0, 1, 2]
    """
    return Collect()
