"""Inputs of jobs: files and stores in the server's data folders, and uploads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO

from goffish.errors import InputError
from goffish.services.api.limits import TooMuch
from goffish.services.runners.folder import write_through
from goffish.services.store.spec import UPLOAD

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
#: Maximum characters of a URI quoted in errors.
_SHOWN = 200


class Inputs:
    """Resolve the URIs of inputs.

    Parameters
    ----------
    folders : sequence of Path
        Data folders.
    uploads : Path
        Folder of uploads.
    most_bytes : int
        Maximum size of one upload.
    most_bytes_kept : int
        Maximum total size of stored uploads and of announced uploads in progress.
    """

    def __init__(self, folders: Sequence[Path], uploads: Path, most_bytes: int, most_bytes_kept: int) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._uploads, self._most = uploads, most_bytes
        for unfinished in uploads.glob(".*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        self._quota = _Quota(most_bytes_kept)
        for path in uploads.glob("*"):
            self._quota.take(path.name, sum(file.stat().st_size for file in path.rglob("*")), force=True)

    def resolve(self, uri: str) -> str:
        """Resolve the URI of a file or store.

        Parameters
        ----------
        uri : str
            A path below a data folder, or what an upload returned.

        Returns
        -------
        str
            An absolute path, without symbolic links.

        Raises
        ------
        InputError
            The file does not exist or is outside the data folders; both give the same error.
        """
        shown = repr(uri if len(uri) <= _SHOWN else f"{uri[:_SHOWN]}…")
        if uri.startswith(UPLOAD):
            number, _, name = uri.removeprefix(UPLOAD).partition("/")
            path = self._uploads / number / name
            if re.fullmatch("[0-9a-f]{20,40}", number) and _NAME.fullmatch(name) and path.is_file():
                os.utime(path.parent)
                return str(path)
            raise InputError(f"upload {shown} not found")
        for folder in self._folders:
            # NUL characters, long names, symlink loops, missing permissions.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                path = (folder / uri.removeprefix("file://")).resolve()
                if path.is_relative_to(folder) and path != folder and (path.is_file() or path.is_dir()):
                    return str(path)
        raise InputError(f"{shown} not found in the server's data folders")

    def forget(self, before: float, used: Collection[str]) -> None:
        """Delete uploads last used before a time, except those of the URIs in `used`."""
        needed = {uri.removeprefix(UPLOAD).partition("/")[0] for uri in used if uri.startswith(UPLOAD)}
        for path in self._uploads.glob("[!.]*"):
            with contextlib.suppress(FileNotFoundError):
                if path.name not in needed and path.stat().st_mtime < before:
                    shutil.rmtree(path, ignore_errors=True)
                    self._quota.leave(path.name)

    def upload(self, name: str, total_bytes: int, sha256: str) -> Upload:
        """Begin an upload.

        Raises
        ------
        InputError
            The name, size or checksum is invalid.
        TooMuch
            The total size of uploads is exceeded.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"start.name: {name[:80]!r} is invalid; use letters, digits, dots and dashes, no folders")
        if not 0 < total_bytes <= self._most:
            raise InputError(f"start.total_bytes: {total_bytes:,}; 1 to {self._most:,} are accepted (--max-upload)")
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            raise InputError("start.sha256: must be 64 hexadecimal digits")
        return Upload(self._uploads, self._quota, name, total_bytes, sha256)


class _Quota:
    """Quota of stored uploads, including the announced size of those in progress."""

    def __init__(self, most: int) -> None:
        self._most, self._lock, self._taken = most, threading.Lock(), dict[str, int]()
        self._total = 0

    def take(self, folder: str, size: int, *, force: bool = False) -> None:
        with self._lock:
            if self._total + size > self._most and not force:
                problem = f"{size:,} bytes exceed the free upload space; limit {self._most:,} bytes (--max-uploads)"
                raise TooMuch(problem)
            self._total += size - self._taken.get(folder, 0)
            self._taken[folder] = size

    def leave(self, folder: str) -> int:
        with self._lock:
            size = self._taken.pop(folder, 0)
            self._total -= size
        return size


class Upload:
    """Upload in progress; the file appears once complete and verified. Equal files have equal URIs."""

    def __init__(self, uploads: Path, quota: _Quota, name: str, total_bytes: int, sha256: str) -> None:
        number = hashlib.sha256(f"{sha256}/{name}".encode()).hexdigest()[:40]
        self._uploads, self._quota, self._final = uploads, quota, uploads / number
        self._name, self._total, self._sha256 = name, total_bytes, sha256
        self._folder = uploads / f".{secrets.token_hex(10)}"
        self._hash, self.bytes = hashlib.sha256(), 0
        self._file: BinaryIO | None = None
        #: `drop` waits for a write in progress.
        self._lock, self._dropped = threading.Lock(), False
        quota.take(self._folder.name, total_bytes)

    def write(self, data: bytes) -> None:
        """Append a chunk.

        Raises
        ------
        InputError
            The data exceed the announced size.
        """
        self.bytes += len(data)
        if self.bytes > self._total:
            raise InputError(f"data: exceeds the announced {self._total:,} bytes")
        self._hash.update(data)
        with self._lock:
            if not self._dropped:
                self._opened().write(data)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._folder.mkdir(parents=True)
            self._file = (self._folder / self._name).open("wb")
        return self._file

    def finish(self) -> str:
        """Verify the upload, store it and return its URI.

        Raises
        ------
        InputError
            The size or checksum differs from the announced one.
        """
        if self.bytes != self._total:
            raise InputError(f"data: {self.bytes:,} of the announced {self._total:,} bytes received")
        if self._hash.hexdigest() != self._sha256:
            raise InputError("data: the SHA-256 differs from the announced one; send the file again")
        with self._lock:
            file = self._opened()
            file.flush()
            os.fsync(file.fileno())
            file.close()
            try:
                self._folder.rename(self._final)
            except OSError:
                if not self._final.is_dir():
                    raise
                # The same file was uploaded before.
                os.utime(self._final)
                shutil.rmtree(self._folder, ignore_errors=True)
                self._quota.leave(self._folder.name)
            else:
                self._quota.take(self._final.name, self._quota.leave(self._folder.name), force=True)
        write_through(self._final)
        write_through(self._uploads)
        return f"{UPLOAD}{self._final.name}/{self._name}"

    def drop(self) -> None:
        """Delete an unfinished upload; no effect after `finish`."""
        with self._lock:
            self._dropped = True
            if self._file is not None:
                self._file.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._quota.leave(self._folder.name)
