"""A result as a folder: Parquet parts, written where the rows are, and a manifest; published when complete."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from goffish.errors import InputError, StoreError
from goffish.partial import local_path

#: Readers of Parquet folders (Arrow, pandas, Spark) pass over names that begin with an underscore.
MANIFEST = "_manifest.json"
_FORMAT = "goffish-result"


class Part(NamedTuple):
    """One file of a result folder."""

    name: str
    rows: int
    size: int


def check_folder(path: str | Path) -> None:
    """Refuse a place where no result folder can be written, before any work is done for it."""
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


class FolderWriter:
    """Writes a result folder beside its final name, and gives it that name in the end.

    One process calls `begin` before any other calls `write`, and `publish` after all have written. A result that lay
    there before is replaced. A part may be written more than once with the same rows, as Spark does after a loss.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        absolute = target.absolute()
        self._temporary = absolute.with_name(f".{absolute.name}.partial")
        self._old = absolute.with_name(f".{absolute.name}.old")

    def begin(self) -> None:
        """Make the temporary folder, empty."""
        try:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir()
        except OSError as error:
            raise self._failed(error) from error

    def write(self, number: int, table: pa.Table) -> Part:
        """Write one part; two writers of the same one do not disturb each other."""
        import pyarrow.parquet as pq

        file = self._temporary / f"part-{number:05d}.parquet"
        own = self._temporary / f"_{file.name}.{uuid.uuid4().hex}"
        try:
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
        except OSError as error:
            raise self._failed(error) from error

    def publish(self, algorithm: str, parts: Sequence[Part]) -> None:
        """Write the manifest and let the folder take the place of what was there; other files are of lost attempts."""
        body = {
            "format": _FORMAT, "version": 1, "algorithm": algorithm, "rows": sum(part.rows for part in parts),
            "parts": [part._asdict() for part in parts],
        }  # fmt: skip
        target = self.target.absolute()
        try:
            for file in self._temporary.iterdir():
                if file.name not in {part.name for part in parts}:
                    file.unlink()
            with (self._temporary / MANIFEST).open("w", encoding="utf-8") as stream:
                stream.write(json.dumps(body, indent=1) + "\n")
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
        except OSError as error:
            raise self._failed(error) from error

    def discard(self) -> None:
        """Remove what has been written so far."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _failed(self, error: OSError) -> InputError:
        return InputError(f"{self.target}: cannot be written ({error.strerror or error})")


def write_folder(table: pa.Table, path: str | Path, algorithm: str) -> Path:
    """Write a whole table as a result folder of one part."""
    writer = FolderWriter(local_path(path))
    try:
        writer.begin()
        writer.publish(algorithm, [writer.write(0, table)])
    except BaseException:
        writer.discard()
        raise
    return writer.target


def read_folder(path: Path) -> pa.Table:
    """The rows of a result folder, part after part.

    Raises
    ------
    StoreError
        There is no manifest, or a part is missing or damaged.
    """
    import pyarrow.parquet as pq

    try:
        body = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if body["format"] != _FORMAT:
            raise ValueError("unknown format")
        parts = [Part(str(part["name"]), int(part["rows"]), int(part["size"])) for part in body["parts"]]
    except FileNotFoundError:
        raise StoreError(f"{path}: not a complete result folder (no {MANIFEST})") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path / MANIFEST}: damaged ({error})") from None
    tables = []
    for part in parts:
        try:
            if (path / part.name).stat().st_size != part.size:
                raise ValueError("its size differs from the manifest")
            tables.append(pq.ParquetFile(path / part.name).read())
        except (OSError, ValueError, pa.ArrowException) as error:
            raise StoreError(f"{path / part.name}: missing or damaged ({error})") from error
    return pa.concat_tables(tables) if tables else pa.table({})
