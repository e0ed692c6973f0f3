"""What jobs may read: files and stores of the server's data folders, and what clients uploaded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from goffish.errors import InputError
from goffish.services.runners.folder import write_through
from goffish.services.server.limits import TooMuch

_UPLOAD = "upload:"
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")


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
        self._uploads, self._most, self._most_kept = uploads, most_bytes, most_bytes_kept
        for unfinished in uploads.glob(".*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        #: Folders with their bytes; of an upload under way also the folder that it will have.
        self._kept = {
            path.name: (sum(file.stat().st_size for file in path.rglob("*")), path.name) for path in uploads.glob("*")
        }
        self._lock = threading.Lock()

    def resolve(self, uri: str) -> str:
        """The path of an input.

        Raises
        ------
        InputError
            Nothing of that name that may be read; whether it is elsewhere on the computer is not told.
        """
        if "\0" in uri:
            raise InputError("input_uri: has a NUL in it")
        if uri.startswith(_UPLOAD):
            number, _, name = uri.removeprefix(_UPLOAD).partition("/")
            path = self._uploads / number / name
            if re.fullmatch("[0-9a-f]{40}", number) and _NAME.match(name) and path.is_file():
                os.utime(path.parent)
                return str(path)
            raise InputError(f"input_uri: no upload {uri!r}")
        for folder in self._folders:
            path = (folder / uri.removeprefix("file://")).resolve()
            if path.is_relative_to(folder) and path != folder and path.exists():
                return str(path)
        raise InputError(f"input_uri: nothing called {uri!r} in the server's data folders")

    def forget(self, keep_s: float) -> None:
        """Delete uploads that no job has been submitted with, or run with, for some seconds."""
        for path in self._uploads.glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > keep_s:
                    shutil.rmtree(path, ignore_errors=True)

    def _bytes_kept(self) -> int:
        kept = {}
        for folder, (size, final) in self._kept.items():
            # In this order: what is no longer under way has been renamed before.
            found = next((name for name in (folder, final) if (self._uploads / name).exists()), None)
            if found is not None:
                kept[found] = size, final
        self._kept = kept
        return sum(size for size, _ in kept.values())

    def upload(self, name: str, total_bytes: int, sha256: str) -> Upload:
        """Begin an upload.

        Raises
        ------
        InputError
            A name or size that is not accepted.
        TooMuch
            There is no room among the uploads.
        """
        if not _NAME.match(name):
            raise InputError(f"start.name: {name[:80]!r}; give letters, digits, dots, dashes, no folders")
        if not 0 < total_bytes <= self._most:
            raise InputError(f"start.total_bytes: {total_bytes:,}; 1 to {self._most:,} are accepted")
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            raise InputError("start.sha256: give 64 hexadecimal digits")
        with self._lock:
            if self._bytes_kept() + total_bytes > self._most_kept:
                told = f"all uploads together may have {self._most_kept:,} bytes; {total_bytes:,} more are too many"
                raise TooMuch(told)
            made = Upload(self._uploads, name, total_bytes, sha256)
            self._kept[made.folder.name] = total_bytes, made.number
        return made


class Upload:
    """An upload under way; its file appears when all of it is there and right, and the same file has the same URI."""

    def __init__(self, room: Path, name: str, total_bytes: int, sha256: str) -> None:
        self.number = hashlib.sha256(f"{sha256}/{name}".encode()).hexdigest()[:40]
        self._name, self._total, self._sha256 = name, total_bytes, sha256
        self.folder, self._room = room / f".{secrets.token_hex(10)}", room
        self.folder.mkdir(parents=True)
        self._file = (self.folder / name).open("wb")
        self._hash, self.bytes = hashlib.sha256(), 0

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
        self._file.write(data)

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
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        final = self._room / self.number
        try:
            self.folder.rename(final)
        except OSError:
            if not final.is_dir():
                raise
            os.utime(final)
            self.drop()
        write_through(final)
        write_through(self._room)
        return f"{_UPLOAD}{self.number}/{self._name}"

    def drop(self) -> None:
        """Leave nothing of an upload that was not finished."""
        self._file.close()
        shutil.rmtree(self.folder, ignore_errors=True)
