"""The working folder of an ingest job: what each step made, so that a job that was killed goes on where it stopped."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.files import Folder, open_folder
from goffish.gopher.spark.session import is_local
from goffish.partial import absolute_place, is_uri, local_path
from goffish.spark.ingest.stored import (
    FILES,
    File,
    Stored,
    Target,
    Write,
    decode_files,
    encode_files,
    files_of,
    schema_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Announce = Callable[[str], None]

#: Columns that a process keeps open.
_MOST_SHARED = 4
#: In the folder of a step: its files and their columns.
_FILES = "files.json"


def spark_path(path: str | Path, spark: SparkSession) -> str:
    """A path as Spark's connectors take it: on this machine, relative ones mean the folder that Python works in."""
    text = str(path)
    if "://" in text or not is_local(spark):
        return text
    return f"file://{Path(text).absolute()}"


@dataclass(frozen=True)
class Shared:
    """A column that all tasks read: a file of the working folder, which each process opens once."""

    place: str
    name: str
    dtype: str

    @property
    def value(self) -> NDArray[Any]:
        found = _opened.get(self)
        if found is None:
            found = np.frombuffer(open_folder(self.place).read(self.name), self.dtype)
            while len(_opened) >= _MOST_SHARED:
                _opened.pop(next(iter(_opened)))
            _opened[self] = found
        return found


_opened: dict[Shared, NDArray[Any]] = {}


class WorkFolder:
    """Steps as folders of Arrow files beside the store.

    A step is written under a separate name and counts only when its mark, an empty file, is there: whatever a killed
    job (or its JVM, which may live a moment longer) leaves behind is never read. Steps of another job, with another
    specification or other inputs, are removed. Executors write them as they write the store, so that Spark needs no
    connector for a URI.

    Parameters
    ----------
    place : str
        Folder, which this machine and all executors share, or URI; made when it is missing.
    key : str
        Digest of everything that the steps depend on.
    """

    def __init__(self, spark: SparkSession, place: str, key: str, announce: Announce) -> None:
        self.spark, self.place, self._announce = spark, absolute_place(place).rstrip("/"), announce
        self._folder: Folder = open_folder(self.place)
        self._shared: list[str] = []
        names = {name.partition("/")[0] for name in self._folder.list()}
        if names and f"key.{key}" not in names:
            self.remove()
            names = set()
        self.continued = bool(names)
        if not names:
            self._folder.write(f"key.{key}", b"")
        self._done = dict(name.split(".")[1:3] for name in names if name.startswith("done."))
        current = {f"{step}-{attempt}" for step, attempt in self._done.items()}
        for name in sorted(names - current):
            if "." not in name or name.startswith("shared."):
                self._remove(name)

    def step(self, name: str, make: Callable[[], DataFrame]) -> Stored:
        """The table of a step: made and written, or only found where an earlier run has finished it."""

        def write(target: Target) -> tuple[DataFrame, pa.Schema]:
            table = make()
            return table.mapInArrow(Write(target, schema_of(table)), FILES), schema_of(table)

        return self.stored(*self.written(name, write))

    def written(
        self, name: str, write: Callable[[Target], tuple[DataFrame, pa.Schema]]
    ) -> tuple[list[File], pa.Schema]:
        """The files of a step whose tasks write and report them (`FILES`), and the columns in them."""
        self._announce(name)
        if name not in self._done:
            attempt = uuid.uuid4().hex[:12]
            reports, schema = write(Target(self.place, f"{name}-{attempt}"))
            files = files_of(reports.toArrow())
            self._folder.write(f"{name}-{attempt}/{_FILES}", encode_files(files, schema))
            self._folder.write(f"done.{name}.{attempt}", b"")
            self._done[name] = attempt
        return decode_files(bytes(self._folder.read(f"{name}-{self._done[name]}/{_FILES}")))

    def stored(self, files: Iterable[File], schema: pa.Schema) -> Stored:
        """The table in some files of a step."""
        return Stored(self.place, tuple((file.name, file.rows) for file in files), schema)

    def table(self, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        """The table of a step that the driver makes and holds."""
        self._announce(name)
        if name not in self._done:
            sink, made = pa.BufferOutputStream(), make()
            with pa.ipc.new_file(sink, made.schema) as writer:
                writer.write_table(made)
            self._folder.write(f"{name}.arrow", sink.getvalue())
            self._folder.write(f"done.{name}.arrow", b"")
            self._done[name] = "arrow"
        return pa.ipc.open_file(self._folder.read(f"{name}.arrow")).read_all()

    def values(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A few plain values that a step has made beside its table."""
        if name not in self._done:
            self._folder.write(f"{name}.json", json.dumps(make()).encode())
            self._folder.write(f"done.{name}.json", b"")
            self._done[name] = "json"
        found: dict[str, Any] = json.loads(bytes(self._folder.read(f"{name}.json")))
        return found

    def share(self, values: NDArray[Any]) -> Shared:
        """Values that the tasks of the job read; those of one machine hold them once."""
        name = f"shared.{uuid.uuid4().hex}"
        self._folder.write(name, np.ascontiguousarray(values).tobytes())
        self._shared.append(name)
        return Shared(self.place, name, values.dtype.str)

    def forget(self, shared: Shared) -> None:
        """No task needs a shared column any more."""
        self._shared.remove(shared.name)
        self._folder.delete(shared.name)

    def release(self) -> None:
        """No task needs what was shared any more."""
        while self._shared:
            self._folder.delete(self._shared.pop())

    def remove(self) -> None:
        """The job is done: the steps are not needed any more."""
        if is_uri(self.place):
            self._folder.delete_all(self._folder.list())
        else:
            shutil.rmtree(local_path(self.place), ignore_errors=True)

    def _remove(self, name: str) -> None:
        if is_uri(self.place):
            self._folder.delete_all([one for one in self._folder.list() if one.partition("/")[0] == name])
        elif (path := local_path(self.place) / name).is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
