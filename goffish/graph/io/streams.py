"""Where bytes come from: local files, pipes and fsspec URLs, decompressed in blocks by a second thread."""

from __future__ import annotations

import io
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.storage import open_filesystem, reason_of

Progress = Callable[[int, int | None], None]

#: Decompressed bytes parsed at a time, and space in front of them for the unfinished rest of the block before.
BLOCK, MARGIN = 4 << 20, 1 << 20

#: Vertices or edges that a header may declare whatever the file holds.
DECLARED = 1 << 22
#: Most bytes that a compressed byte of a text stands for: gzip cannot exceed 1032, and graphs are far below.
_LARGEST_RATIO = 1100

_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}


class Block(NamedTuple):
    """Bytes ``data[start:end]``, ending at a cut; the file's last line has been given a newline."""

    data: NDArray[np.uint8]
    start: int
    end: int


class Source:
    """Something that can be read from its beginning, more than once.

    Parameters
    ----------
    path
        Local path (also a pipe, which is spooled to a temporary file) or any fsspec URL.
    progress
        Called with (compressed bytes read, total or None) once per block.
    """

    def __init__(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        self.name = os.fspath(path)
        self.progress = progress
        self.local: Path | None = None
        self._spool: BinaryIO | None = None
        self.total: int | None = None
        if is_url(self.name):
            self.total = self._url_size()
            return
        self.local = Path(self.name).expanduser()
        try:
            status = self.local.stat()
            if stat.S_ISDIR(status.st_mode):
                raise InputError(f"{self.name}: is a directory; expected a file")
            if stat.S_ISREG(status.st_mode):
                with self.local.open("rb"):
                    self.total = status.st_size
            else:
                self._spool = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 (lives as long as the source)
                with self.local.open("rb") as pipe:
                    shutil.copyfileobj(pipe, self._spool, BLOCK)
                self.total = self._spool.tell()
        except OSError as error:
            raise InputError(_describe(self.name, error)) from None

    def _url_size(self) -> int | None:
        with _readable(self.name):
            system, path = url_filesystem(self.name)
            size = system.info(path).get("size")
            return None if size is None else int(size)

    @property
    def estimated_bytes(self) -> int:
        return self.total or BLOCK

    def check_declared(self, line: int, what: str, count: int, bytes_each: int) -> None:
        """Refuse a header that declares more than the bytes of the file can hold, before anything is allocated for it.

        Raises
        ------
        FormatError
        """
        if self.total is None or count <= DECLARED:
            return
        with self.raw() as raw:
            most = self.total * (1 if _codec(raw.read(10)) is None else _LARGEST_RATIO) // bytes_each + 1
        if count > most:
            problem = f"the header declares {count:,} {what}; {self.total:,} bytes hold at most {max(most, DECLARED):,}"
            raise FormatError(self.name, line, problem)

    @contextmanager
    def raw(self) -> Iterator[BinaryIO]:
        """The bytes as stored, seekable where the place allows it."""
        with _readable(self.name):
            if self._spool is not None:
                self._spool.seek(0)
                yield self._spool
            elif self.local is not None:
                with self.local.open("rb", buffering=0) as file:
                    yield cast(BinaryIO, file)
            else:
                system, path = url_filesystem(self.name)
                with system.open(path, "rb") as file:
                    yield cast(BinaryIO, file)

    @contextmanager
    def text(self) -> Iterator[tuple[Callable[[memoryview], int], Callable[[], int]]]:
        """Two functions: fill a buffer with decompressed bytes; compressed bytes taken so far."""
        with self.raw() as raw:
            codec = _codec(raw.read(10))
            raw.seek(0)
            if codec is None:
                yield cast(io.RawIOBase, raw).readinto, raw.tell
                return
            stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec)

            def fill(buffer: memoryview) -> int:
                try:
                    return int(stream.readinto(buffer))
                except (pa.ArrowException, OSError, EOFError) as error:
                    raise FormatError(self.name, None, f"the {codec} data is damaged or truncated ({error})") from None

            yield fill, raw.tell

    def head(self, size: int) -> bytes:
        """The first decompressed bytes, at most `size`."""
        buffer = bytearray(size)
        with self.text() as (fill, _):
            return bytes(buffer[: _fill(fill, memoryview(buffer))])

    def read_all(self) -> bytes:
        """Everything, decompressed; for formats that cannot be streamed."""
        pieces = []
        with self.text() as (fill, taken):
            while True:
                buffer = bytearray(BLOCK)
                count = _fill(fill, memoryview(buffer))
                pieces.append(bytes(buffer[:count]))
                if self.progress is not None:
                    self.progress(taken(), self.total)
                if count < BLOCK:
                    return b"".join(pieces)

    def mapped(self) -> Any:
        """Everything as stored: a local file as a mapping of which changes stay in this process, or else its bytes."""
        if self.local is not None and self._spool is None:
            with _readable(self.name), self.local.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if self.total else b""
        with self.raw() as raw:
            return bytearray(raw.read())

    def blocks(self, *, lines: bool) -> Iterator[Block]:
        """Decompressed blocks, each ending after a whole line (`lines`) or between two words.

        The next block is read and decompressed by a second thread while the caller parses this one. A block's
        memory is used again after the next one.
        """
        buffers = [np.empty(MARGIN + BLOCK + 2, np.uint8) for _ in range(2)]
        rest = buffers[1][:0]
        with self.text() as (fill, taken), ThreadPoolExecutor(1) as thread:

            def load(buffer: NDArray[np.uint8]) -> tuple[int, int]:
                return _fill(fill, memoryview(buffer.data)[MARGIN : MARGIN + BLOCK]), taken()

            turn, pending = 0, thread.submit(load, buffers[0])
            while True:
                count, done = pending.result()
                data = buffers[turn]
                start, end = MARGIN - rest.size, MARGIN + count
                data[start:MARGIN] = rest
                turn = 1 - turn
                last = count < BLOCK
                if last:
                    data[end] = 10
                    cut = end + 1 if end > start and data[end - 1] != 10 else end
                else:
                    pending = thread.submit(load, buffers[turn])
                    cut = _last_cut(data, start, end, lines)
                rest = data[cut:end]
                if rest.size > MARGIN and not last:
                    raise FormatError(self.name, None, f"a line exceeds {MARGIN:,} bytes")
                if self.progress is not None:
                    self.progress(done, self.total)
                if cut > start:
                    yield Block(data, start, cut)
                if last:
                    return


def is_url(name: str) -> bool:
    return "://" in name


def url_filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system and path for a URL."""
    try:
        return open_filesystem(url)
    except (ValueError, ImportError) as error:
        raise InputError(f"{url}: {error}") from None
    except OSError as error:
        raise InputError(f"{url}: cannot be reached ({reason_of(error)})") from None


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(_describe(name, error)) from None


def _describe(name: str, error: OSError) -> str:
    reason = reason_of(error)
    if reason == "no such file":
        return f"{name}: no such file"
    if isinstance(error, PermissionError):
        return f"{name}: no permission to read it"
    return f"{name}: cannot be read ({reason})"


def _codec(magic: bytes) -> str | None:
    """Compression by the first bytes: names lie, for one after a browser has decompressed a download."""
    if magic[:3] == b"BZh" and magic[4:10] == b"1AY&SY":
        return "bz2"
    return next((codec for codec, start in _MAGIC.items() if magic.startswith(start)), None)


def _fill(fill: Callable[[memoryview], int], buffer: memoryview) -> int:
    count = 0
    while count < len(buffer):
        got = fill(buffer[count:])
        if not got:
            break
        count += got
    return count


def _last_cut(data: NDArray[np.uint8], start: int, end: int, lines: bool) -> int:
    """Position after the last line end (or blank) of the block, looking back from its end."""
    step = 4096
    while end > start:
        window = data[max(start, end - step) : end]
        hits = np.flatnonzero(window == 10 if lines else window <= 32)
        if hits.size:
            return end - window.size + int(hits[-1]) + 1
        end -= window.size
    return start
