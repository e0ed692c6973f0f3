"""Sources: where records are read from, in partitions with positions from which reading can be repeated."""

from __future__ import annotations

import csv
import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from goffish.errors import FormatError, InputError
from goffish.partial import is_uri
from goffish.storage import open_filesystem, reason_of

#: Bytes of a text file that are read at a time, and seconds between two listings of a folder that is followed.
_BLOCK, _LISTING_S = 1 << 20, 1.0
_LINE_END, _BLANKS = ord("\n"), ord(" ")
Position = list[int]


class BadLine(NamedTuple):
    """A line that is no record, with a message that names the file and the line."""

    text: str
    error: str


class Read(NamedTuple):
    """What a reader returns: records, and lines that are none.

    Attributes
    ----------
    values : pyarrow.RecordBatch or list
    bad : list of BadLine
    """

    values: pa.RecordBatch | list[Any]
    bad: Sequence[BadLine] = ()


class Reader(ABC):
    """Reads one partition.

    Attributes
    ----------
    position : list of int
        Where the next record begins; the same position always gives the same records.
    done : bool
        Whether the partition has ended.
    """

    position: Position
    done = False

    @abstractmethod
    def read(self, limit: int) -> Read | None:
        """Return the next records, and move the position behind them.

        Parameters
        ----------
        limit : int
            About how many records to return at most.

        Returns
        -------
        Read or None
            ``None`` if no record is available now.
        """

    def saved(self, position: Position) -> None:  # noqa: B027 (most readers keep nothing)
        """Drop what is only kept to read it again: reading can never begin before a position from now on.

        Parameters
        ----------
        position : list of int
            A position that this reader or an earlier one of the partition was at.
        """

    def close(self) -> None:  # noqa: B027 (most readers have none)
        """Close files."""


class Source(ABC):
    """Origin of records.

    Attributes
    ----------
    rate : float, optional
        Records per second.
    """

    rate: float | None = None

    @abstractmethod
    def partitions(self) -> list[str]:
        """Return the names of the partitions that exist now.

        Returns
        -------
        list of str
        """

    @abstractmethod
    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition.

        Parameters
        ----------
        partition : str
        position : list of int, optional
            Where an earlier reader was [default: the beginning].

        Returns
        -------
        Reader
        """

    @property
    def follows(self) -> bool:
        """Whether partitions can be added while the flow runs."""
        return False

    @property
    def here(self) -> bool:
        """Whether partitions can only be read on the machine where the run was started."""
        return False

    def check(self) -> None:
        """Raise an error if the source cannot be read."""
        self.partitions()

    def begin(self, *, resumed: bool) -> Source:
        """Return the source as one operator of a run reads it, whose partitions can share connections.

        Parameters
        ----------
        resumed : bool
            Whether the run continues from a checkpoint; partitions without a position are then new.

        Returns
        -------
        Source
        """
        return self


@dataclass(frozen=True)
class Files(Source):
    """Files of one format: a path, a pattern such as ``logs/*.jsonl``, or a folder."""

    path: str
    follow: bool = False
    rate: float | None = None
    speed: float | None = None

    suffixes: ClassVar[tuple[str, ...]] = ("",)

    @property
    def follows(self) -> bool:
        """Whether partitions can be added while the flow runs."""
        return self.follow

    def partitions(self) -> list[str]:
        """Return the names of the partitions that exist now."""
        system, path = filesystem_of(self.path)
        protocol = self.path.split("://", 1)[0] + "://" if is_uri(self.path) else ""
        try:
            if any(sign in path for sign in "*?["):
                found = sorted(str(one) for one in system.glob(path) if not system.isdir(one))
            elif system.isdir(path):
                every = sorted(str(one) for one in system.ls(path, detail=False))
                named = [one for one in every if not one.rstrip("/").rsplit("/", 1)[-1].startswith((".", "_"))]
                found = [one for one in named if one.endswith(self.suffixes) and not system.isdir(one)]
            else:
                found = [path] if system.exists(path) else []
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({reason_of(error)})") from None
        if not found and not self.follow:
            raise InputError(f"{self.path}: no such file; accepted: a file, a pattern, or a folder of {self._kinds()}")
        return [one if "://" in one else f"{protocol}{one}" for one in found]

    def _kinds(self) -> str:
        return " or ".join(self.suffixes)


def filesystem_of(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the path in it.

    Raises
    ------
    InputError
        It cannot be reached.
    """
    if not is_uri(path):
        path = str(Path(path.removeprefix("file://")).expanduser())
    try:
        return open_filesystem(path)
    except (ValueError, ImportError) as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be reached ({reason_of(error)})") from None


def _opened(path: str, *, follow: bool = False) -> Any:
    import fsspec

    if follow and path.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise InputError(f"{path}: compressed files cannot be followed; set follow=False, or give uncompressed files")
    try:
        system, name = filesystem_of(path)
        opened = system.open(name, "rb")
        kind = fsspec.utils.infer_compression(path)
        return opened if kind is None else fsspec.compression.compr[kind](opened, mode="rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason_of(error)})") from None


def _check_place(path: str, position: Position | None) -> None:
    """Refuse the position of a replay, which counts records that were returned behind it."""
    if position is not None and len(position) > 2:
        raise InputError(f"{path}: the checkpoint is of a run with speed; resume it with a speed, of any size")


class _LineReader(Reader):
    """Reads whole lines; the position is the byte and the number of the next line."""

    def __init__(self, path: str, position: Position | None, follow: bool) -> None:
        _check_place(path, position)
        self.path, self.follow = path, follow
        self._file = _opened(path, follow=follow)
        self.position = [0, 1] if position is None else list(position)
        if self.position[0]:
            self._file.seek(self.position[0])
        self._buffer = b""
        self._ends = np.empty(0, np.intp)  # of its lines, behind their ends
        self._line = 0  # the first one that was not returned

    def lines(self, limit: int) -> list[bytes]:
        """Return the next lines without their ends, at most `limit`; none at the end of the file."""
        block, count = self.block(limit)
        return block.split(b"\n")[:count]

    def block(self, limit: int) -> tuple[bytes, int]:
        """Return the next lines with their ends, at most `limit`, and their number; 0 at the end of the file."""
        while self._line == len(self._ends):
            try:
                read = self._file.read(_BLOCK)
            except (OSError, EOFError, ValueError) as error:
                raise FormatError(self.path, None, f"cannot be read ({' '.join(str(error).split())})") from None
            rest = self._buffer[self._begin :]
            self._buffer, self._line = rest + read, 0
            self._ends = np.flatnonzero(np.frombuffer(self._buffer, np.uint8) == _LINE_END) + 1
            if read:
                continue
            if self.follow:
                self._check_size()
                return b"", 0
            self.done = True
            if not rest:
                return b"", 0
            self._ends = np.append(self._ends, len(rest))  # the last line has no end
        begin, count = self._begin, min(limit, len(self._ends) - self._line)
        self._line += count
        block = self._buffer[begin : self._begin]
        self.position = [self.position[0] + len(block), self.position[1] + count]
        return block, count

    @property
    def _begin(self) -> int:
        """Where the first line that was not returned begins."""
        return int(self._ends[self._line - 1]) if self._line else 0

    def _check_size(self) -> None:
        system, name = filesystem_of(self.path)
        try:
            size = int(system.info(name)["size"])
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({reason_of(error)})") from None
        if size < self.position[0]:
            raise InputError(
                f"{self.path}: has {size:,} bytes, fewer than the {self.position[0]:,} that were read; "
                "files that are followed may only grow"
            )

    def close(self) -> None:
        """Close files."""
        self._file.close()


class _JsonReader(_LineReader):
    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        first = self.position[1]
        lines = self.lines(limit)
        if not lines:
            return None
        return parse_json(lines, lambda at: f"{self.path}:{first + at}", blank=True)


def parse_json(texts: list[bytes], place: Callable[[int], str], *, blank: bool = False) -> Read:
    """Parse JSON values.

    Parameters
    ----------
    texts : list of bytes
    place : callable
        Returns where a text is from, for messages.
    blank : bool
        Whether blank texts are left out, as lines are.

    Returns
    -------
    Read
    """
    try:
        # One call for all texts is several times as fast as one for each.
        values = json.loads(b"[" + b",".join(texts) + b"]") if _are_objects(texts) else []
        if len(values) == len(texts):
            return Read(values, [])
    except (ValueError, RecursionError):
        pass
    values, bad = [], []
    for at, text in enumerate(texts):
        if not blank or text.strip():
            try:
                values.append(json.loads(text))
            except (ValueError, RecursionError) as error:
                bad.append(BadLine(text.decode(errors="replace"), f"{place(at)}: not a JSON value ({error})"))
    return Read(values, bad)


def _are_objects(lines: list[bytes]) -> bool:
    """Whether all lines look like JSON objects, so that commas between them separate values."""
    return all(line[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in lines)


@dataclass(frozen=True)
class JsonLines(Files):
    """Files with a JSON value on every line."""

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz")

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        return _JsonReader(partition, position, self.follow)


class _CsvReader(_LineReader):
    def __init__(self, source: CsvFiles, path: str, position: Position | None) -> None:
        super().__init__(path, position, source.follow)
        self._source = source
        self._names: list[str] | None = None
        self._types: dict[str, pa.DataType] | None = None
        if self.position[0]:
            first = _CsvReader(source, path, None)
            first.read(1000)
            self._names, self._types = first._names, first._types
            first.close()

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        if self._names is None:
            # The types are those of the first thousand lines, wherever reading begins.
            head = self.lines(1)
            if not head:
                return None
            self._names = next(csv.reader([head[0].decode("utf-8-sig").rstrip("\r")], delimiter=self._source.separator))
            doubles = [name for at, name in enumerate(self._names) if name in self._names[:at]]
            if doubles:
                raise FormatError(self.path, 1, f"column {doubles[0]!r} is named twice")
            limit = 1000
        first = self.position[1]
        block, count = self.block(limit)
        if not count:
            return None
        if self._types is not None and not _has_blanks(block):
            with suppress(pa.ArrowInvalid):  # of a line, which is found below
                return Read(_batch(self._parse(block, self._types)), [])
        found = {number: line for number, line in enumerate(block.split(b"\n")[:count], first) if line.strip()}
        lines, numbers = list(found.values()), list(found)
        if not lines:
            return None
        if self._types is None:
            missing = [name for name in self._source.columns if name not in self._names]
            if missing:
                raise InputError(f"{self.path}: no column {missing[0]!r}; the columns are {', '.join(self._names)}")
            self._types = {field.name: field.type for field in self._infer(lines).schema}
        bad: list[BadLine] = []
        parts = list(self._parsed(lines, numbers, bad))
        return Read(_batch(pa.Table.from_batches(parts)) if parts else [], bad)

    def _infer(self, lines: list[bytes]) -> pa.Table:
        try:
            return self._parse(b"\n".join(lines), None)
        except pa.ArrowInvalid:
            kept = [line for line in lines if self._fits(line)]
            return self._parse(b"\n".join(kept), None) if kept else pa.table({name: [] for name in self._names or ()})

    def _fits(self, line: bytes) -> bool:
        try:
            self._parse(line, None)
        except pa.ArrowInvalid:
            return False
        return True

    def _parse(self, lines: bytes, types: dict[str, pa.DataType] | None) -> pa.Table:
        types = {**(types or {}), **self._source.column_types()}
        return pacsv.read_csv(
            pa.BufferReader(lines),
            pacsv.ReadOptions(column_names=self._names, use_threads=False, block_size=1 << 28),
            pacsv.ParseOptions(delimiter=self._source.separator),
            pacsv.ConvertOptions(
                column_types=types,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                include_columns=self._source.columns,
            ),
        )

    def _parsed(self, lines: list[bytes], numbers: list[int], bad: list[BadLine]) -> Iterator[pa.RecordBatch]:
        """Parse lines; halve them until the bad ones are found."""
        try:
            table = self._parse(b"\n".join(lines), self._types)
        except pa.ArrowInvalid as error:
            if len(lines) == 1:
                reason = " ".join(str(error).removeprefix("CSV parse error: ").split())
                bad.append(BadLine(lines[0].decode(errors="replace"), f"{self.path}:{numbers[0]}: {reason}"))
                return
            half = len(lines) // 2
            yield from self._parsed(lines[:half], numbers[:half], bad)
            yield from self._parsed(lines[half:], numbers[half:], bad)
        else:
            yield from table.combine_chunks().to_batches()


def _has_blanks(block: bytes) -> bool:
    """Return whether a line begins with a blank, and may have nothing else: such a line is no record."""
    data = np.frombuffer(block, np.uint8)
    firsts = data[np.flatnonzero(data[:-1] == _LINE_END) + 1]
    blanks: np.bool_ = np.any((firsts <= _BLANKS) & (firsts != _LINE_END))
    return bool(blanks) or data[0] <= _BLANKS


def _batch(table: pa.Table) -> pa.RecordBatch | list[Any]:
    found = table.combine_chunks().to_batches()
    return found[0] if found else []


@dataclass(frozen=True)
class CsvFiles(Files):
    """Files of comma-separated values with a header line and a record on every further line."""

    separator: str = ","
    types: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

    def column_types(self) -> dict[str, pa.DataType]:
        """Return the types of columns that are given."""
        try:
            return {name: pa.type_for_alias(kind) for name, kind in self.types}
        except ValueError as error:
            accepted = "Arrow types such as int64, float64, string or timestamp[us]"
            raise InputError(f"{self.path}: types: {error}; accepted are {accepted}") from None

    def check(self) -> None:
        """Raise an error if the source cannot be read."""
        self.column_types()
        super().check()

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        return _CsvReader(self, partition, position)


class ParquetReader(Reader):
    """Reads row groups; the position is the row group and the row in it."""

    def __init__(self, path: str, position: Position | None, columns: Sequence[str] = ()) -> None:
        _check_place(path, position)
        self.path, self._columns = path, columns
        self._raw = _opened(path)
        try:
            self._file = pq.ParquetFile(pa.PythonFile(self._raw, "r"))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(path, None, f"not a Parquet file ({' '.join(str(error).split())})") from None
        known = self._file.schema_arrow.names
        for name in columns:
            if name not in known:
                raise InputError(f"{path}: no column {name!r}; the columns are {', '.join(known)}")
        self.position = [0, 0] if position is None else list(position)
        self._group: pa.Table | None = None

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        group, row = self.position
        if group >= self._file.num_row_groups:
            self.done = True
            return None
        if self._group is None:
            try:
                self._group = self._file.read_row_group(group, list(self._columns) or None).combine_chunks()
            except (pa.ArrowException, OSError) as error:
                raise FormatError(self.path, None, f"row group {group}: {' '.join(str(error).split())}") from None
        part = self._group.slice(row, limit)
        self.position = [group, row + len(part)]
        if row + len(part) >= len(self._group):
            self.position, self._group = [group + 1, 0], None
        return Read(part.to_batches()[0] if len(part) else [], [])

    def close(self) -> None:
        """Close files."""
        self._raw.close()


@dataclass(frozen=True)
class ParquetFiles(Files):
    """Parquet files."""

    columns: tuple[str, ...] = ()

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        return ParquetReader(partition, position, self.columns)


class _Generated(Reader):
    def __init__(self, source: Generator, position: Position | None) -> None:
        self._source = source
        self.position = [0] if position is None else list(position)

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        begin, count = self.position[0], self._source.count
        end = begin + limit if count is None else min(begin + limit, count)
        self.position = [end]
        self.done = end == count
        numbers, function = range(begin, end), self._source.function
        if not numbers:
            return None
        return Read(list(numbers) if function is None else list(map(function, numbers)), [])


@dataclass(frozen=True)
class Generator(Source):
    """Records computed from their number."""

    function: Callable[[int], Any] | None = None
    count: int | None = None
    rate: float | None = None

    def partitions(self) -> list[str]:
        """Return the names of the partitions that exist now."""
        return ["generated"]

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        return _Generated(self, position)


class _Items(Reader):
    """Iterates; the position is the number of items."""

    def __init__(self, items: Iterable[Any], position: Position | None) -> None:
        self.position = [0] if position is None else list(position)
        self._items: Iterator[Any] = itertools.islice(items, self.position[0], None)

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        found: list[Any] = []
        for item in itertools.islice(self._items, limit):
            if isinstance(item, pa.RecordBatch):
                # One item: `limit` would split it, and a position could not name the parts.
                if not found:
                    self.position = [self.position[0] + 1]
                    return Read(item, [])
                self._items = itertools.chain([item], self._items)
                break
            found.append(item)
        self.position = [self.position[0] + len(found)]
        self.done = not found
        return Read(found, []) if found else None


@dataclass(frozen=True)
class Items(Source):
    """Values of an iterable of Python."""

    items: Iterable[Any] = field(default=())
    rate: float | None = None

    def partitions(self) -> list[str]:
        """Return the names of the partitions that exist now."""
        return ["items"]

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        items = self.items
        if isinstance(items, pa.Table):
            items = items.to_batches()
        elif isinstance(items, pa.RecordBatch):
            items = [items]
        return _Items(items, position)


def checked_rate(rate: float | None, what: str) -> float | None:
    """Return a number of records per second, after checking it.

    Raises
    ------
    InputError
        It is not positive.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise InputError(f"{what}: rate = {rate!r}: must be a positive number of records per second")
    return rate


def checked_speed(speed: float | None, what: str) -> float | None:
    """Return how fast event time passes, after checking it.

    Raises
    ------
    InputError
        It is not positive.
    """
    if speed is not None and not 0 < speed < float("inf"):
        raise InputError(f"{what}: speed = {speed!r}: must be a positive number, such as 10 for ten times as fast")
    return speed


def read_json_lines(
    path: str | Path, *, follow: bool = False, rate: float | None = None, speed: float | None = None
) -> Source:
    """Read files with a JSON value on every line.

    Parameters
    ----------
    path : str or Path
        File, pattern such as ``logs/*.jsonl``, folder, or URI of one. Compressed files are decompressed.
    follow : bool
        Wait for lines and files that are added.
    rate : float, optional
        Records per second [default: as fast as possible].
    speed : float, optional
        Read records when their event time passes, so many times as fast as they happened; requires ``time`` of
        `Flow.source` [default: as fast as possible].

    Returns
    -------
    Source

    Raises
    ------
    InputError
        The rate or the speed is not positive.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.read_json_lines("orders.jsonl", follow=True).follows
    True
    """
    return JsonLines(str(path), follow, checked_rate(rate, str(path)), checked_speed(speed, str(path)))


def read_csv(
    path: str | Path, *, follow: bool = False, rate: float | None = None, speed: float | None = None,
    separator: str = ",", types: dict[str, str] | None = None, columns: Sequence[str] | None = None,
) -> Source:  # fmt: skip
    """Read files of comma-separated values with a header line, as Arrow batches.

    Column types are those of the first thousand lines of a file. Values must not contain line ends.

    Parameters
    ----------
    path : str or Path
        File, pattern, folder, or URI of one. Compressed files are decompressed.
    follow : bool
        Wait for lines and files that are added.
    rate : float, optional
        Records per second [default: as fast as possible].
    speed : float, optional
        Read records when their event time passes, so many times as fast as they happened; requires ``time`` of
        `Flow.source` [default: as fast as possible].
    separator : str
    types : dict, optional
        Arrow types of columns, such as ``{"customer": "string"}``.
    columns : sequence of str, optional
        Columns to read; the others are not parsed [default: all].

    Returns
    -------
    Source

    Raises
    ------
    InputError
        The rate or the speed is not positive, the separator is not one character, or `columns` is no list of names.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.read_csv("orders.csv", types={"customer": "string"}).types
    (('customer', 'string'),)
    """
    if len(separator) != 1:
        raise InputError(f"{path}: separator = {separator!r}: must be one character")
    chosen, rate, speed = _names(columns, path), checked_rate(rate, str(path)), checked_speed(speed, str(path))
    return CsvFiles(str(path), follow, rate, speed, separator, tuple((types or {}).items()), chosen)


def _names(columns: Sequence[str] | None, path: str | Path) -> tuple[str, ...]:
    """Return the names of columns to read, after checking them; none for all columns."""
    if columns is None:
        return ()
    if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
        raise InputError(f"{path}: columns = {columns!r}: give a list of names")
    return tuple(dict.fromkeys(columns))


def read_parquet(
    path: str | Path, *, follow: bool = False, rate: float | None = None, speed: float | None = None,
    columns: Sequence[str] | None = None,
) -> Source:  # fmt: skip
    """Read Parquet files as Arrow batches.

    Parameters
    ----------
    path : str or Path
        File, pattern, folder, or URI of one.
    follow : bool
        Wait for files that are added; they must be complete when they get their name.
    rate : float, optional
        Records per second [default: as fast as possible].
    speed : float, optional
        Read records when their event time passes, so many times as fast as they happened; requires ``time`` of
        `Flow.source` [default: as fast as possible].
    columns : sequence of str, optional
        Columns to read [default: all].

    Returns
    -------
    Source

    Raises
    ------
    InputError
        The rate or the speed is not positive, or `columns` is no list of names.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.read_parquet("s3://lake/orders/", rate=1000).rate
    1000
    """
    rate, speed = checked_rate(rate, str(path)), checked_speed(speed, str(path))
    return ParquetFiles(str(path), follow, rate, speed, _names(columns, path))


def generate(
    function: Callable[[int], Any] | int | None = None, *, count: int | None = None, rate: float | None = None
) -> Source:
    """Compute records from their numbers 0, 1, 2 and so on.

    Parameters
    ----------
    function : callable or int, optional
        Returns the record of a number; must always return the same. A number is the `count`; by default the records
        are the numbers.
    count : int, optional
        Number of records [default: unlimited].
    rate : float, optional
        Records per second [default: as fast as possible].

    Returns
    -------
    Source

    Raises
    ------
    InputError
        The count is negative, or the rate is not positive.

    Examples
    --------
    >>> import goffish as gf
    >>> flow, squares = gf.stream.Flow("squares"), gf.stream.collect()
    >>> _ = flow.source(gf.stream.generate(lambda number: number**2, count=4)).sink(squares)
    >>> _ = flow.run()
    >>> squares.values
    [0, 1, 4, 9]
    """
    if isinstance(function, int):
        function, count = None, function
    if count is not None and count < 0:
        raise InputError(f"generate: count = {count}: must be 0 or more")
    return Generator(function, count, checked_rate(rate, "generate"))


def from_iterable(items: Iterable[Any], *, rate: float | None = None) -> Source:
    """Read the values of an iterable: records, or Arrow batches of records.

    To resume from a checkpoint, the iterable must give the same values again.

    Parameters
    ----------
    items : iterable
    rate : float, optional
        Records per second [default: as fast as possible].

    Returns
    -------
    Source

    Raises
    ------
    InputError
        The argument is not iterable, or the rate is not positive.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.from_iterable([1, 2, 3]).partitions()
    ['items']
    """
    if not isinstance(items, Iterable | pa.Table | pa.RecordBatch):
        raise InputError(f"from_iterable: {type(items).__name__} is not iterable; give a list or another iterable")
    return Items(items, checked_rate(rate, "from_iterable"))


#: Least time between batches of a source with a rate: of a few records, and of many, where processors are busy.
_FEW, _FEW_S, _MANY_S = 200, 0.001, 0.004


class Pace:
    """Limits the records of a source to a rate.

    Parameters
    ----------
    rate : float, optional
        Records per second.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate, self._begun, self._given = rate, time.monotonic(), 0
        self._last = self._begun

    def allowed(self, limit: int) -> int:
        """Return how many of `limit` records may be read now; less than `limit` only after a moment without any."""
        if self._rate is None:
            return limit
        now = time.monotonic()
        allowed = max(0, min(limit, int((now - self._begun) * self._rate) + 1 - self._given))
        waits = _FEW_S if allowed < _FEW else _MANY_S
        return allowed if allowed == limit or now >= self._last + waits else 0

    def took(self, count: int) -> None:
        """Count records that were read."""
        self._given += count
        self._last = time.monotonic()
