"""The journal of records that clients push, and the forms in which they are sent."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from goffish.errors import CheckpointError, InputError, JobError
from goffish.partial import local_path
from goffish.streaming.checkpoints import lock_folder
from goffish.streaming.sources import Position

#: Forms of the payload of an entry; the keys of earlier entries are those at the beginning of a segment.
LINES, ARRAY, ARROW, _KEYS = 1, 2, 3, 0
#: Records of one request.
MOST_RECORDS = 1_000_000
#: A journal has this many segments at most; keys are kept for a day, and at most so many.
SEGMENTS, _KEY_S, _MOST_KEYS, _SEGMENT_BYTES_PER_KEY = 16, 86_400.0, 100_000, 128
#: Time for an earlier process to release an address or a journal.
_RELEASED_S = 3.0

_FRAME = struct.Struct("<II")  # bytes that follow, and their checksum
_HEAD = struct.Struct("<BId16s8s")  # form, records, time, key, digest
_KEY = struct.Struct("<dI16s8s")  # time, records, key, digest
NO_KEY, NO_DIGEST = bytes(16), bytes(8)
_ENCODED, _DIGIT = json.JSONDecoder(), "[0-9]"
_Result = TypeVar("_Result")


class Refused(Exception):
    """Records that are not accepted.

    Attributes
    ----------
    status : int
        As in HTTP: 400 malformed, 413 too large, 422 a key of other records, 429 and 503 to be sent again later.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Entry(NamedTuple):
    """The records of one request.

    Attributes
    ----------
    form : int
    records : int
    payload : bytes
    key, digest : bytes
        Of 16 and 8 bytes: the key that the client gave, and the digest of its records.
    time : float
        When they were accepted.
    """

    form: int
    records: int
    payload: bytes
    key: bytes = NO_KEY
    digest: bytes = NO_DIGEST
    time: float = 0.0

    def framed(self) -> bytes:
        """Return the bytes of the journal."""
        body = _HEAD.pack(self.form, self.records, self.time, self.key, self.digest) + self.payload
        return _FRAME.pack(len(body), zlib.crc32(body)) + body

    def values(self) -> pa.RecordBatch | list[Any]:
        """Return the records."""
        if self.form == ARROW:
            return read_arrow(self.payload)
        return read_array(self.payload) if self.form == ARRAY else read_lines(self.payload)


def _frames(data: bytes) -> Iterator[tuple[int, Entry]]:
    """Iterate over entries and the places where they end, until the first one that is not complete."""
    at = 0
    while at + _FRAME.size + _HEAD.size <= len(data):
        size, checksum = _FRAME.unpack_from(data, at)
        body = data[at + _FRAME.size : at + _FRAME.size + size]
        if len(body) < size or size < _HEAD.size or zlib.crc32(body) != checksum:
            return
        form, records, moment, key, digest = _HEAD.unpack_from(body)
        at += _FRAME.size + size
        yield at, Entry(form, records, body[_HEAD.size :], key, digest, moment)


def _files(path: Path) -> list[Path]:
    return sorted(path.glob(f"{_DIGIT * 16}.journal"))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from None


def _check_rest(path: Path, data: bytes, size: int, *, last: bool) -> None:
    """Refuse bytes after the last complete entry, unless they are the beginning of the next one."""
    at = size
    while last and at + _FRAME.size + _HEAD.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + length
        if _HEAD.size <= length and end <= len(data) and zlib.crc32(data[at + _FRAME.size : end]) == checksum:
            break
        at += 1
    else:
        if last:
            return
    raise CheckpointError(f"{path}: is damaged at byte {size:,}; restore it from a copy")


def read_entries(path: Path, first: int) -> Iterator[tuple[int, Entry]]:
    """Iterate over the complete entries of a journal, which another process may continue, with their numbers.

    Parameters
    ----------
    path : Path
        Folder.
    first : int
        Number of the first entry that is returned.

    Raises
    ------
    CheckpointError
        The entry is not in the journal any more, or a file is damaged.
    """
    names = _files(path)
    numbers = [int(name.stem) for name in names]
    if numbers and numbers[0] > first:
        raise CheckpointError(f"{path}: begins with entry {numbers[0]:,}; entry {first:,} is gone")
    for name, number, end in zip(names, numbers, [*numbers[1:], None], strict=False):
        if end is not None and end <= first:
            continue
        for _, entry in _frames(_bytes(name)):
            if entry.form == _KEYS:
                continue
            if number >= first:
                yield number, entry
            number += 1  # noqa: PLW2901
        if end is not None and number != end:
            raise CheckpointError(f"{name}: is damaged after entry {number - 1:,}; restore it from a copy")


# Payloads.


def read_lines(payload: bytes) -> list[Any]:
    """Return the values of lines of JSON.

    Raises
    ------
    Refused
        A line is not a JSON value, or there are too many; names the line.
    """
    if payload.count(b"\n") > MOST_RECORDS:
        raise Refused(413, f"more than {MOST_RECORDS:,} lines; send fewer records in one request")
    values, number = [], 0
    decode = _ENCODED.raw_decode
    try:
        for number, line in enumerate(payload.decode().split("\n"), 1):  # noqa: B007
            if line and not line.isspace():
                start = 0 if line[0] not in " \t\r" else len(line) - len(line.lstrip(" \t\r"))
                value, end = decode(line, start)
                if end < len(line) and line[end:].strip(" \t\r"):
                    raise ValueError(f"Extra data: column {end + 1}")
                values.append(value)
    except UnicodeDecodeError as error:
        number = payload.count(b"\n", 0, error.start) + 1
        raise Refused(400, f"line {number}: not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"line {number}: not a JSON value ({_reason(error)})") from None
    return values


def read_array(payload: bytes) -> list[Any]:
    """Return the values of a JSON array; another value is one record.

    Raises
    ------
    Refused
        It is not JSON, or has too many values.
    """
    try:
        found = json.loads(payload.decode())
    except UnicodeDecodeError:
        raise Refused(400, "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"line {error.lineno}: not a JSON value ({error.msg}: column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"not a JSON value ({_reason(error)})") from None
    values = found if isinstance(found, list) else [found]
    if len(values) > MOST_RECORDS:
        raise Refused(413, f"more than {MOST_RECORDS:,} records in one request")
    return values


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_arrow(payload: bytes) -> pa.RecordBatch:
    """Return the records of an Arrow IPC stream as one batch.

    Raises
    ------
    Refused
        It is damaged, compressed, or has too many records.
    """
    try:
        messages = pa.ipc.MessageReader.open_stream(payload)
        while True:
            try:
                message = messages.read_next_message()
            except StopIteration:
                break
            if _is_compressed(message.metadata.to_pybytes()):  # which could be of any size afterwards
                raise Refused(415, "compressed Arrow buffers are not accepted; write the stream without compression")
        table = pa.ipc.open_stream(payload).read_all()
        if len(table) > MOST_RECORDS:
            raise Refused(413, f"more than {MOST_RECORDS:,} records in one request")
        return checked_batch(table)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Refused(400, f"not an Arrow IPC stream ({' '.join(str(error).split())})") from None


def checked_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table from a client as one batch, after looking at all its values.

    Raises
    ------
    pyarrow.ArrowInvalid
    """
    table.validate(full=True)
    names = table.schema.names
    if len(set(names)) < len(names):
        raise pa.ArrowInvalid("two columns have the same name")
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the buffers of a message are compressed; its metadata is verified FlatBuffers of Arrow."""

    def table_field(table: int, number: int) -> int:
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        at = 4 + 2 * number
        if at >= struct.unpack_from("<H", metadata, vtable)[0]:
            return 0
        offset = struct.unpack_from("<H", metadata, vtable + at)[0]
        return table + offset if offset else 0

    def follow(place: int) -> int:
        return place + int(struct.unpack_from("<I", metadata, place)[0])

    message = follow(0)
    kind, header = table_field(message, 1), table_field(message, 2)
    if not kind or not header or metadata[kind] not in (2, 3):  # dictionary and record batches
        return False
    batch = follow(header)
    if metadata[kind] == 2:
        data = table_field(batch, 1)
        if not data:
            return False
        batch = follow(data)
    return bool(table_field(batch, 3))


# Journal.


class _Known(NamedTuple):
    """A key that is remembered: when it was accepted, its records and their digest."""

    time: float
    records: int
    digest: bytes


class Keys:
    """Keys of requests that were accepted: those of one day, up to a number.

    Parameters
    ----------
    most : int
    """

    def __init__(self, most: int = _MOST_KEYS) -> None:
        self._most = most
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def find(self, key: bytes) -> _Known | None:
        """Return what is known of a key."""
        return self._known.get(key)

    def add(self, entry: Entry) -> None:
        """Remember the key of an entry."""
        if entry.key == NO_KEY:
            return
        self._known[entry.key] = _Known(entry.time, entry.records, entry.digest)
        while len(self._known) > self._most or next(iter(self._known.values())).time < entry.time - _KEY_S:
            self._known.popitem(last=False)

    def to_entry(self) -> Entry:
        """Return all keys as an entry of a journal."""
        packed = (_KEY.pack(one.time, one.records, key, one.digest) for key, one in self._known.items())
        return Entry(_KEYS, 0, b"".join(packed))

    def install(self, entry: Entry) -> None:
        """Remember the keys of an entry of a journal."""
        for moment, records, key, digest in _KEY.iter_unpack(entry.payload):
            self._known[key] = _Known(moment, records, digest)


@dataclass
class _Segment:
    path: Path
    first: int
    size: int


class Journal:
    """Entries in numbered files, each of which is named by its first entry.

    Parameters
    ----------
    path : str or Path
        Folder.
    limit : int
        Bytes of all files, about.
    read_from : int
        Files in which all entries are before this number are not read.

    Attributes
    ----------
    end : int
        Number of the next entry.

    Raises
    ------
    InputError
        The folder cannot be written, or is in use.
    CheckpointError
        A file is missing or damaged.
    """

    def __init__(self, path: str | Path, limit: int, read_from: int = 0) -> None:
        self.path, self.limit, self._read_from = local_path(path), limit, read_from
        self.end = 0
        self.keys = Keys(min(_MOST_KEYS, self.segment_bytes // _SEGMENT_BYTES_PER_KEY))
        self._segments: list[_Segment] = []
        self._file: int | None = None
        self._mutex = threading.Lock()
        self._lock = patiently(lambda: lock_folder(self.path, path))
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def segment_bytes(self) -> int:
        """Bytes of a file, about."""
        return self.limit // SEGMENTS

    @property
    def begin(self) -> int:
        """Number of the first entry."""
        return self._segments[0].first if self._segments else self.end

    @property
    def size(self) -> int:
        """Bytes of all files."""
        with self._mutex:
            return sum(one.size for one in self._segments)

    def _recover(self) -> None:
        """Find the entries; the last file may end in the middle of one, which was not acknowledged."""
        names = _files(self.path)
        for at, name in enumerate(names):
            first, size = int(name.stem), 0
            if self._segments and first != self.end:
                raise CheckpointError(f"{name}: entries {self.end:,} to {first - 1:,} before it are missing")
            if at < len(names) - 1 and int(names[at + 1].stem) <= self._read_from:
                self.end = int(names[at + 1].stem)
                self._segments.append(_Segment(name, first, name.stat().st_size))
                continue
            data = _bytes(name)
            self.end = first
            for size, entry in _frames(data):  # noqa: B007
                if entry.form == _KEYS:
                    self.keys.install(entry)
                else:
                    self.keys.add(entry)
                    self.end += 1
            if size < len(data):
                _check_rest(name, data, size, last=at == len(names) - 1)
            if self.end == first:
                name.unlink()
                continue
            self._segments.append(_Segment(name, first, size))
        if self._segments:
            last = self._segments[-1]
            self._file = os.open(last.path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(self._file, last.size)

    def append(self, entries: list[Entry]) -> None:
        """Write entries and wait until they are on the disk.

        Raises
        ------
        Refused
            They cannot be written now, as on a full disk; the journal is as before.
        JobError
            The state of the journal is unknown.
        """
        data = b"".join(entry.framed() for entry in entries)
        begins = self._file is None or self._segments[-1].size >= self.segment_bytes
        path = self.path / f"{self.end:016d}.journal" if begins else self._segments[-1].path
        try:
            if begins:
                data = self.keys.to_entry().framed() + data
                # One of this name has no complete entry.
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            else:
                assert self._file is not None
                file = self._file
        except OSError as error:
            raise Refused(503, self._problem(error)) from None
        size = 0 if begins else self._segments[-1].size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as error:
            try:
                os.ftruncate(file, size)
                if begins:
                    os.close(file)
                    path.unlink()
            except OSError as other:
                raise JobError(self._problem(other)) from None
            raise Refused(503, self._problem(error)) from None
        try:
            os.fsync(file)
            if begins:
                self._sync_folder()
        except OSError as error:  # what is on the disk is unknown, and a second call would not report it
            raise JobError(self._problem(error)) from None
        with self._mutex:
            if begins:
                if self._file is not None:
                    os.close(self._file)
                self._file = file
                self._segments.append(_Segment(path, self.end, 0))
            self._segments[-1].size = size + len(data)
        self.end += len(entries)
        for entry in entries:
            self.keys.add(entry)

    def _problem(self, error: OSError) -> str:
        return f"{self.path}: the journal cannot be written ({error.strerror or error})"

    def _sync_folder(self) -> None:
        opened = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def check(self, position: Position) -> None:
        """Raise an error if what follows a position of a checkpoint is not in the journal.

        Raises
        ------
        CheckpointError
        """
        number, row = position
        if not self.begin <= number <= self.end or (row and number == self.end):
            raise CheckpointError(
                f"{self.path}: the journal has entries {self.begin:,} to {self.end - 1:,}, but the checkpoint resumes "
                f"at {number:,}; restore the journal, or begin with another checkpoint folder"
            )

    def replay(self, first: int) -> Iterator[Entry]:
        """Return an iterator over the entries that exist now, from a number."""
        segments = [replace(one) for one in self._segments]
        return self._replay(segments, [*(one.first for one in segments), self.end][1:], first)

    def _replay(self, segments: list[_Segment], ends: list[int], first: int) -> Iterator[Entry]:
        for segment, end in zip(segments, ends, strict=False):
            if end > first:
                framed = _frames(_bytes(segment.path)[: segment.size])
                entries = (entry for _, entry in framed if entry.form != _KEYS)
                yield from islice(entries, max(0, first - segment.first), None)

    def trim(self, first: int) -> None:
        """Remove files in which all entries are before a number."""
        with self._mutex:
            while len(self._segments) > 1 and self._segments[1].first <= first:
                with suppress(OSError):
                    self._segments[0].path.unlink()
                self._segments.pop(0)

    def close(self) -> None:
        """Let another run use the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.close()


def patiently(function: Callable[[], _Result]) -> _Result:
    """Return the result of a function, which is called again for a while if an earlier process is still to end."""
    end = time.monotonic() + _RELEASED_S
    while True:
        try:
            return function()
        except InputError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
