"""A result as a folder: Parquet parts, written where the rows are, and a manifest; published when complete."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from goffish.errors import InputError, StoreError
from goffish.gofs.files import Folder, NoSuchFileError, open_folder, side_by_side
from goffish.partial import check_storage, is_uri, local_path
from goffish.storage import open_filesystem, reason_of

#: Readers of Parquet folders (Arrow, pandas, Spark) pass over names that begin with an underscore.
MANIFEST = "_manifest.json"
_PARTIAL = "_partial"
_FORMAT = "goffish-result"


class Part(NamedTuple):
    """One file of a result folder."""

    name: str
    rows: int
    size: int


def check_folder(path: str | Path) -> None:
    """Refuse a place where no result folder can be written, before any work is done for it."""
    if is_uri(path):
        check_storage(str(path))
        names = open_folder(path).list()
        if names and MANIFEST not in names and any(not name.startswith(f"{_PARTIAL}/") for name in names):
            raise InputError(f"{path}: is neither empty nor a result folder; choose another folder")
        return
    target = local_path(path)
    if target.exists() and not target.is_dir():
        raise InputError(f"{path}: is a file; expected a folder")
    if target.is_dir() and not (target / MANIFEST).exists() and any(target.iterdir()):
        raise InputError(f"{path}: is neither empty nor a result folder; choose another folder")
    parent = target.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist")
    if not os.access(parent, os.W_OK):
        raise InputError(f"{path}: no permission to write in {parent}")


def folder_writer(path: str | Path) -> FolderWriter:
    """A `FolderWriter` for a local path or a URI."""
    return _StoredFolder(str(path)) if is_uri(path) else _LocalFolder(local_path(path))


class FolderWriter(ABC):
    """Writes the parts of a result folder where readers do not see them, and publishes them together.

    One process calls `begin` before any other calls `write`, and `publish` after all have written. A result that lay
    there before is replaced. A part may be written more than once with the same rows, as Spark does after a loss.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    @abstractmethod
    def begin(self) -> None:
        """Remove what an earlier attempt has left."""

    @abstractmethod
    def write(self, number: int, table: pa.Table, of: str = "part") -> Part:
        """Write one part; two writers of the same one do not disturb each other. Names begin with `of`."""

    @abstractmethod
    def publish(self, algorithm: str, parts: Sequence[Part], kept: Sequence[Part] = ()) -> None:
        """Let the parts take the place of what was there, apart from `kept`; other files are of lost attempts."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what has been written so far."""


def _body(algorithm: str, parts: Sequence[Part]) -> bytes:
    body = {
        "format": _FORMAT, "version": 1, "algorithm": algorithm, "rows": sum(part.rows for part in parts),
        "parts": [part._asdict() for part in parts],
    }  # fmt: skip
    return (json.dumps(body, indent=1) + "\n").encode()


class _LocalFolder(FolderWriter):
    """Writes beside the final name, and gives the folder that name in the end."""

    def __init__(self, target: Path) -> None:
        super().__init__(str(target))
        self._target = target.absolute()
        self._temporary = self._target.with_name(f".{self._target.name}.partial")
        self._old = self._target.with_name(f".{self._target.name}.old")

    def begin(self) -> None:
        with self._used():
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir(parents=True)

    def write(self, number: int, table: pa.Table, of: str = "part") -> Part:
        import pyarrow.parquet as pq

        file = self._temporary / f"{of}-{number:05d}.parquet"
        own = self._temporary / f"_{file.name}.{uuid.uuid4().hex}"
        with self._used():
            if not self._temporary.is_dir():
                raise InputError(
                    f"{self.target} is a different folder on this machine; it must be shared by all writers"
                )
            try:
                with own.open("xb") as stream:
                    pq.write_table(table, stream)
                    stream.flush()
                    os.fsync(stream.fileno())
                size = own.stat().st_size
                own.replace(file)
            finally:
                own.unlink(missing_ok=True)
            return Part(file.name, table.num_rows, size)

    def publish(self, algorithm: str, parts: Sequence[Part], kept: Sequence[Part] = ()) -> None:
        target = self._target
        with self._used():
            for file in self._temporary.iterdir():
                if file.name not in {part.name for part in parts}:
                    file.unlink()
            for part in kept:
                try:
                    (self._temporary / part.name).hardlink_to(target / part.name)
                except OSError:  # not on every file system
                    shutil.copyfile(target / part.name, self._temporary / part.name)
            with (self._temporary / MANIFEST).open("wb") as stream:
                stream.write(_body(algorithm, [*kept, *parts]))
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                shutil.rmtree(self._old, ignore_errors=True)
                target.rename(self._old)
            try:
                self._temporary.rename(target)
            except OSError:
                with contextlib.suppress(OSError):
                    self._old.rename(target)
                raise
            shutil.rmtree(self._old, ignore_errors=True)

    def discard(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    @contextmanager
    def _used(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.target}: cannot be written ({error.strerror or error})") from error


class _StoredFolder(FolderWriter):
    """Writes below a name that readers pass over; in the end the parts move to names that no earlier result had.

    Object storage has no step for several objects: the manifest, which is written last, says which parts count.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri.rstrip("/"))

    def _partial(self) -> Folder:
        return open_folder(f"{self.target}/{_PARTIAL}")

    def begin(self) -> None:
        self.discard()

    def write(self, number: int, table: pa.Table, of: str = "part") -> Part:
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        data = sink.getvalue()
        name = f"{of}-{number:05d}-{uuid.uuid4().hex[:8]}.parquet"
        self._partial().write(name, data)
        return Part(name, table.num_rows, data.size)

    def publish(self, algorithm: str, parts: Sequence[Part], kept: Sequence[Part] = ()) -> None:
        folder = open_folder(self.target)
        before = [name for name in folder.list() if not name.startswith(f"{_PARTIAL}/")]
        try:
            system, place = open_filesystem(self.target)

            def move(part: Part) -> None:
                system.mv(f"{place}/{_PARTIAL}/{part.name}", f"{place}/{part.name}")

            side_by_side(folder.at_once, move, parts)
        except OSError as error:
            raise InputError(f"{self.target}: cannot be written ({reason_of(error)})") from error
        folder.write(MANIFEST, _body(algorithm, [*kept, *parts]))
        current = {part.name for part in kept} | {MANIFEST}
        folder.delete_all([name for name in before if name not in current])
        self.discard()

    def discard(self) -> None:
        partial = self._partial()
        partial.delete_all(partial.list())


def write_folder(table: pa.Table, path: str | Path, algorithm: str) -> None:
    """Write a whole table as a result folder of one part."""
    writer = folder_writer(path)
    try:
        writer.begin()
        writer.publish(algorithm, [writer.write(0, table)])
    except BaseException:
        writer.discard()
        raise


def folder_parts(path: str | Path) -> list[Part]:
    """The parts of a result folder, local or at a URI.

    Raises
    ------
    StoreError
        There is no manifest, or it is damaged.
    """
    try:
        body = json.loads(bytes(open_folder(path).read(MANIFEST)))
        if body["format"] != _FORMAT:
            raise ValueError("unknown format")
        return [Part(str(part["name"]), int(part["rows"]), int(part["size"])) for part in body["parts"]]
    except NoSuchFileError:
        raise StoreError(f"{path}: not a complete result folder (no {MANIFEST})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}/{MANIFEST}: damaged ({error})") from None


def read_folder(path: str | Path) -> pa.Table:
    """The rows of a result folder, part after part.

    Raises
    ------
    StoreError
        There is no manifest, or a part is missing or damaged.
    """
    import pyarrow.parquet as pq

    folder = open_folder(path)

    def read(part: Part) -> Any:
        try:
            data = folder.read(part.name)
            if data.size != part.size:
                raise ValueError("its size differs from the manifest")
            return pq.ParquetFile(pa.BufferReader(data)).read()
        except (StoreError, OSError, ValueError, pa.ArrowException) as error:
            raise StoreError(f"{path}/{part.name}: missing or damaged ({error})") from error

    tables = side_by_side(folder.at_once, read, folder_parts(path))
    return pa.concat_tables(tables) if tables else pa.table({})
