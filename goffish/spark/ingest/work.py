"""The working folder of an ingest job: what each step made, so that a job that was killed goes on where it stopped."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.files import Folder, open_folder
from goffish.gopher.spark.session import is_local
from goffish.partial import absolute_place, is_uri, local_path
from goffish.spark.parts import read_parts, write_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Announce = Callable[[str], None]

#: Columns that a process keeps open.
_MOST_SHARED = 4


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
    """Steps as Parquet folders beside the store.

    A step is written under a separate name and counts only when its mark, an empty file, is there: whatever a killed
    job (or its JVM, which may live a moment longer) leaves behind is never read. Steps of another job, with another
    specification or other inputs, are removed. Spark writes a local folder; executors write a URI as they write the
    store, so that Spark needs no connector for it.

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

    def step(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """The table of a step: made, written and read back, or only read where an earlier run has finished it."""
        self._announce(name)
        attempt = self._done.get(name)
        if attempt is not None:
            return self._read(f"{name}-{attempt}", None)
        attempt = uuid.uuid4().hex[:12]
        table = make()
        if is_uri(self.place):
            parts = [part.name for part in write_parts(table, f"{self.place}/{name}-{attempt}")]
            about = {"parts": parts, "schema": table.schema.jsonValue()}
            self._folder.write(f"{name}-{attempt}/parts.json", json.dumps(about).encode())
        else:
            table.write.options(**_as_they_are(table)).parquet(f"file://{self.place}/{name}-{attempt}")
        self._folder.write(f"done.{name}.{attempt}", b"")
        self._done[name] = attempt
        return self._read(f"{name}-{attempt}", table.schema)

    def _read(self, folder: str, schema: Any) -> DataFrame:
        if is_uri(self.place):
            from pyspark.sql.types import StructType

            about = json.loads(bytes(self._folder.read(f"{folder}/parts.json")))
            return read_parts(
                self.spark, f"{self.place}/{folder}", about["parts"], StructType.fromJson(about["schema"])
            )
        # Spark would start a job to find columns that are known here.
        reader = self.spark.read if schema is None else self.spark.read.schema(schema)
        return reader.parquet(f"file://{self.place}/{folder}")

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


def _as_they_are(table: DataFrame) -> dict[str, str]:
    """Columns of wide numbers are written without looking for a dictionary, which costs time and finds none."""
    wide = [field.name for field in table.schema.fields if field.dataType.typeName() in ("long", "double")]
    return {f"parquet.enable.dictionary#{name}": "false" for name in wide}
