"""Folders that hold a store: local ones (memory-mapped) and any fsspec URI."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from goffish.errors import StoreError
from goffish.gofs import leases
from goffish.partial import is_uri, local_path, partial_file
from goffish.storage import open_filesystem, reason_of

_Found = TypeVar("_Found")

#: Seconds between two attempts to lock a folder.
_LOOK_S = 0.05
#: Files that are read or written at a time in object storage.
_REMOTE_FILES = 16
#: Bytes of a file that are in memory at a time.
_PIECE = 8 << 20


class NoSuchFileError(StoreError):
    """A file is not in its folder."""


class TooLargeError(StoreError):
    """A file is larger than what is accepted."""


class Folder(Protocol):
    """The few operations that a store needs of the place it lies in; names are relative, with ``/``."""

    location: str
    #: Whether `read` maps a file, so that it stays readable after it has been replaced.
    maps: bool
    #: Files that are read or written at a time.
    at_once: int
    #: Mapped files whose checksums were verified since the folder was opened.
    verified: set[str]

    def read(self, name: str, most: int | None = None) -> pa.Buffer:
        """Read a file as it is at one moment.

        Raises
        ------
        TooLargeError
            It has more than `most` bytes.
        """
        ...

    def open(self, name: str) -> pa.NativeFile:
        """Open a file of which a part is read."""

    def size(self, name: str) -> int | None: ...
    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """The file appears whole or not at all."""

    def upload(self, name: str, source: Path) -> None:
        """Write a local file, in pieces; it appears whole or not at all.

        Raises
        ------
        FileNotFoundError
            There is no such local file.
        """

    def download(self, name: str, target: Path, most: int | None = None, *, end: bool = False) -> None:
        """Read a file that does not change into a local one, in pieces: `most` bytes at most, the last ones if `end`.

        Raises
        ------
        TooLargeError
            It is larger, and not the end is asked for; the local file stays as it was.
        """

    def delete(self, name: str) -> None: ...
    def delete_all(self, names: Sequence[str]) -> None:
        """Delete files that `list` has named."""

    def locked(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Held by the one process that writes; another one waits for it as long as `wait_s`, then fails."""

    def list(self) -> list[str]: ...
    def listed_sizes(self) -> dict[str, int]:
        """The sizes of files in bytes, as far as one request returns them."""


def open_folder(path: str | Path) -> Folder:
    """A `Folder` for a local path or a URI (``s3://``, ``memory://`` …)."""
    return _RemoteFolder(str(path)) if is_uri(path) else _LocalFolder(local_path(path))


def side_by_side(threads: int, work: Callable[..., _Found], *given: Iterable[Any]) -> list[_Found]:
    """Do some work for each of several files, on threads, and return what it gives."""
    if threads == 1:
        return list(map(work, *given))
    with ThreadPoolExecutor(threads, "goffish files") as pool:
        try:
            return list(pool.map(work, *given))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _LocalFolder:
    maps, at_once = True, 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path)
        self.verified: set[str] = set()
        self._new = not path.exists()

    def read(self, name: str, most: int | None = None) -> pa.Buffer:
        try:
            with pa.memory_map(str(self.path / name)) as file:
                if most is not None and file.size() > most:
                    raise _too_large(f"{self.path / name}", most)
                return file.read_buffer()
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchFileError(f"{self.path / name}: no such file") from None
        except OSError as error:
            raise StoreError(f"{self.path / name}: cannot be read ({error.strerror or error})") from error

    def open(self, name: str) -> pa.NativeFile:
        return pa.memory_map(str(self.path / name))

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return None

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        target = self.path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with partial_file(target) as temporary, temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException as error:
            self._tidy(target.parent)
            if isinstance(error, OSError):
                raise StoreError(f"{target}: cannot be written ({error.strerror or error})") from error
            raise

    def upload(self, name: str, source: Path) -> None:
        with source.open("rb") as file:
            target = self.path / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with partial_file(target) as temporary, temporary.open("wb") as stream:
                    shutil.copyfileobj(file, stream, _PIECE)
                    stream.flush()
                    os.fsync(stream.fileno())
            except OSError as error:
                raise StoreError(f"{target}: cannot be written ({error.strerror or error})") from error

    def download(self, name: str, target: Path, most: int | None = None, *, end: bool = False) -> None:
        try:
            file = (self.path / name).open("rb")
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchFileError(f"{self.path / name}: no such file") from None
        except OSError as error:
            raise StoreError(f"{self.path / name}: cannot be read ({error.strerror or error})") from error
        with file:
            _keep(file, target, f"{self.path / name}", most, end=end)

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[None]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror or error})") from error
        try:
            self._lock(descriptor, wait_s)
            yield
        finally:
            os.close(descriptor)  # and with it the lock, as after a kill
            self._tidy(self.path)

    def _lock(self, descriptor: int, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreError(f"{self.path}: another process is writing this store; retry later") from None
            time.sleep(_LOOK_S)

    def delete(self, name: str) -> None:
        target = self.path / name
        target.unlink(missing_ok=True)
        self._tidy(target.parent)

    def delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def _tidy(self, folder: Path) -> None:
        """Remove a folder in the store, and the store's own if it was made here, where they are empty now."""
        for place in (folder, self.path):
            if place != self.path or self._new:
                with contextlib.suppress(OSError):
                    place.rmdir()

    def list(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return sorted(p.relative_to(self.path).as_posix() for p in self.path.rglob("*") if p.is_file())

    def listed_sizes(self) -> dict[str, int]:
        return {}  # there may be many other files, and `size` is fast


class _RemoteFolder:
    maps, at_once = False, _REMOTE_FILES

    def __init__(self, uri: str) -> None:
        self.location = uri.rstrip("/")
        self.verified: set[str] = set()
        self._lease: leases.Lease | None = None
        try:
            self._fs, self._root = open_filesystem(self.location)
        except (ImportError, ValueError) as error:
            raise StoreError(f"{uri}: {error}") from error
        except OSError as error:
            raise StoreError(f"{uri}: cannot be reached ({reason_of(error)})") from error

    @contextmanager
    def _used(self, name: str, doing: str) -> Iterator[None]:
        """Storage that does not answer, or refuses, is an error in one line."""
        where = f"{self.location}/{name}" if name else self.location
        try:
            yield
        except OSError as error:
            reason = reason_of(error)
            if reason == "no such file":
                raise NoSuchFileError(f"{where}: {reason}") from error
            raise StoreError(f"{where}: cannot be {doing} ({reason})") from error

    def _full(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"  # not a path object: the root of HTTP is a URL

    def read(self, name: str, most: int | None = None) -> pa.Buffer:
        with self._used(name, "read"):
            if most is None:
                return pa.py_buffer(self._fs.cat_file(self._full(name)))
            if self._fs.size(self._full(name)) == 0:  # of which no range can be asked for
                return pa.py_buffer(b"")
            # In one request: the file may be replaced at any time.
            data = self._fs.cat_file(self._full(name), start=0, end=most + 1)
        if len(data) > most:
            raise _too_large(f"{self.location}/{name}", most)
        return pa.py_buffer(data)

    def open(self, name: str) -> pa.NativeFile:
        with self._used(name, "read"):
            return pa.PythonFile(self._fs.open(self._full(name), "rb", cache_type="none"), mode="r")

    def size(self, name: str) -> int | None:
        with self._used(name, "read"):
            try:
                return int(self._fs.size(self._full(name)))
            except FileNotFoundError as error:
                if reason_of(error) != "no such file":
                    raise
                return None

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        full = self._full(name)
        self._check_lease()
        with self._used(name, "written"):
            # Object stores publish an object only when its upload is complete.
            try:
                self._fs.pipe_file(full, bytes(data))
            except FileNotFoundError:  # where there are folders, which object stores have no need of
                self._fs.makedirs(full.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(full, bytes(data))

    def upload(self, name: str, source: Path) -> None:
        source.stat()  # not an error of storage
        full = self._full(name)
        self._check_lease()
        with self._used(name, "written"):
            try:
                self._fs.put_file(str(source), full)
            except FileNotFoundError:
                self._fs.makedirs(full.rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(source), full)

    def download(self, name: str, target: Path, most: int | None = None, *, end: bool = False) -> None:
        with self._used(name, "read"), self._fs.open(self._full(name), "rb", cache_type="none") as file:
            _keep(file, target, f"{self.location}/{name}", most, end=end)

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[None]:
        lease = leases.Lease(self._fs, self._root, self.location)
        lease.acquire(wait_s)
        self._lease = lease
        try:
            yield
        finally:
            self._lease = None
            lease.release()

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def delete(self, name: str) -> None:
        self._check_lease()
        with self._used(name, "deleted"):
            if self._fs.exists(self._full(name)):
                self._fs.rm_file(self._full(name))

    def delete_all(self, names: Sequence[str]) -> None:
        self._check_lease()
        with self._used("", "deleted"):
            if names:
                self._fs.rm([self._full(name) for name in names])

    def list(self) -> list[str]:
        with self._used("", "read"):
            self._fs.invalidate_cache()  # other processes write files too
            found: Any = self._fs.find(self._root) if self._fs.exists(self._root) else []
            self._fs.invalidate_cache()  # or one that is made later would not be there, in inner folders either
        return sorted(name for f in found if not _of_lease(name := self._relative(f)))

    def _relative(self, full: str) -> str:
        return str(PurePosixPath(full).relative_to(PurePosixPath(self._root)))

    def listed_sizes(self) -> dict[str, int]:
        protocols = self._fs.protocol
        if "http" in ((protocols,) if isinstance(protocols, str) else protocols):
            return {}  # servers have no listings, or one for each folder
        found = {}
        with contextlib.suppress(OSError, ValueError):  # not allowed, perhaps; the files may be
            self._fs.invalidate_cache()
            for name, entry in self._fs.find(self._root, detail=True).items():
                if entry.get("size") is not None and not _of_lease(relative := self._relative(name)):
                    found[relative] = int(entry["size"])
        return found


def _keep(file: Any, target: Path, shown: str, most: int | None, *, end: bool) -> None:
    """Copy a file that may change to a local one."""
    if end and most is not None:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
    left = most
    with partial_file(target) as temporary, temporary.open("wb") as stream:
        while piece := file.read(_PIECE if left is None else min(_PIECE, left + 1)):
            if left is not None:
                if len(piece) > left and not end:
                    raise _too_large(shown, most)
                piece = piece[:left]
                left -= len(piece)
            stream.write(piece)
            if end and left == 0:
                break


def _too_large(shown: str, most: int | None) -> TooLargeError:
    return TooLargeError(f"{shown}: larger than the accepted {most:,} bytes")


def _of_lease(name: str) -> bool:
    return name.startswith(f"{leases.FOLDER}/")
