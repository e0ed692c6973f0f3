"""What jobs may read: files and stores of the server's data folders, and what clients uploaded."""

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
#: Characters of a URI that errors quote.
_SHOWN = 200


class Inputs:
    """Resolves URIs of inputs.

    Parameters
    ----------
    folders : sequence of Path
        That clients may read below.
    uploads : Path
        Where uploads are kept.
    most_bytes : int
        Of one upload.
    most_bytes_kept : int
        Of all uploads that are kept, and of those under way as they were announced.
    """

    def __init__(self, folders: Sequence[Path], uploads: Path, most_bytes: int, most_bytes_kept: int) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._uploads, self._most = uploads, most_bytes
        for unfinished in uploads.glob(".*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        self._room = _Room(most_bytes_kept)
        for path in uploads.glob("*"):
            self._room.take(path.name, sum(file.stat().st_size for file in path.rglob("*")), force=True)

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
            Nothing of that name may be read. A file outside the data folders gives the same error as none at all.
        """
        shown = repr(uri if len(uri) <= _SHOWN else f"{uri[:_SHOWN]}…")
        if uri.startswith(UPLOAD):
            number, _, name = uri.removeprefix(UPLOAD).partition("/")
            path = self._uploads / number / name
            if re.fullmatch("[0-9a-f]{20,40}", number) and _NAME.fullmatch(name) and path.is_file():
                os.utime(path.parent)
                return str(path)
            raise InputError(f"no upload {shown}")
        for folder in self._folders:
            # A NUL, a name that is too long, a loop of links, a folder that the server may not enter.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                path = (folder / uri.removeprefix("file://")).resolve()
                if path.is_relative_to(folder) and path != folder and (path.is_file() or path.is_dir()):
                    return str(path)
        raise InputError(f"nothing called {shown} in the server's data folders")

    def forget(self, before: float, used: Collection[str]) -> None:
        """Delete uploads that were used for the last time before a moment, except those of the URIs in `used`."""
        needed = {uri.removeprefix(UPLOAD).partition("/")[0] for uri in used if uri.startswith(UPLOAD)}
        for path in self._uploads.glob("[!.]*"):
            with contextlib.suppress(FileNotFoundError):
                if path.name not in needed and path.stat().st_mtime < before:
                    shutil.rmtree(path, ignore_errors=True)
                    self._room.leave(path.name)

    def upload(self, name: str, total_bytes: int, sha256: str) -> Upload:
        """Begin an upload.

        Raises
        ------
        InputError
            A name or size that is not accepted.
        TooMuch
            There is no room among the uploads.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"start.name: {name[:80]!r}; give letters, digits, dots, dashes, no folders")
        if not 0 < total_bytes <= self._most:
            raise InputError(f"start.total_bytes: {total_bytes:,}; 1 to {self._most:,} are accepted")
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            raise InputError("start.sha256: give 64 hexadecimal digits")
        return Upload(self._uploads, self._room, name, total_bytes, sha256)


class _Room:
    """Bytes of the folders of uploads, those under way as they were announced."""

    def __init__(self, most: int) -> None:
        self._most, self._lock, self._taken = most, threading.Lock(), dict[str, int]()
        self._total = 0

    def take(self, folder: str, size: int, *, force: bool = False) -> None:
        with self._lock:
            if self._total + size > self._most and not force:
                told = f"all uploads together may have {self._most:,} bytes; {size:,} more are too many"
                raise TooMuch(told)
            self._total += size - self._taken.get(folder, 0)
            self._taken[folder] = size

    def leave(self, folder: str) -> int:
        with self._lock:
            size = self._taken.pop(folder, 0)
            self._total -= size
        return size


class Upload:
    """An upload under way; its file appears when all of it is there and right, and the same file has the same URI."""

    def __init__(self, uploads: Path, room: _Room, name: str, total_bytes: int, sha256: str) -> None:
        number = hashlib.sha256(f"{sha256}/{name}".encode()).hexdigest()[:40]
        self._uploads, self._room, self._final = uploads, room, uploads / number
        self._name, self._total, self._sha256 = name, total_bytes, sha256
        self._folder = uploads / f".{secrets.token_hex(10)}"
        self._hash, self.bytes = hashlib.sha256(), 0
        self._file: BinaryIO | None = None
        #: Whoever drops it waits for the piece that is just being written.
        self._lock, self._dropped = threading.Lock(), False
        room.take(self._folder.name, total_bytes)

    def write(self, data: bytes) -> None:
        """A piece more.

        Raises
        ------
        InputError
            More than was announced.
        """
        self.bytes += len(data)
        if self.bytes > self._total:
            raise InputError(f"data: more than the {self._total:,} bytes that were announced")
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
        """The URI of it.

        Raises
        ------
        InputError
            Bytes are missing, or others than announced.
        """
        if self.bytes != self._total:
            raise InputError(f"data: {self.bytes:,} bytes of the {self._total:,} that were announced")
        if self._hash.hexdigest() != self._sha256:
            raise InputError("data: its SHA-256 is not the one that was announced; send it again")
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
                # The same file is there already.
                os.utime(self._final)
                shutil.rmtree(self._folder, ignore_errors=True)
                self._room.leave(self._folder.name)
            else:
                self._room.take(self._final.name, self._room.leave(self._folder.name), force=True)
        write_through(self._final)
        write_through(self._uploads)
        return f"{UPLOAD}{self._final.name}/{self._name}"

    def drop(self) -> None:
        """Leave nothing of it; after `finish` that changes nothing."""
        with self._lock:
            self._dropped = True
            if self._file is not None:
                self._file.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._room.leave(self._folder.name)
