"""The working folder of an ingest job: what each step made, so that a job that was killed goes on where it stopped."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from goffish.gopher.spark.session import is_local

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

Announce = Callable[[str], None]


def spark_path(path: str | Path, spark: SparkSession) -> str:
    """A path as Spark's connectors take it: on this machine, relative ones mean the folder that Python works in."""
    text = str(path)
    if "://" in text or not is_local(spark):
        return text
    return f"file://{Path(text).absolute()}"


class Shared(Protocol):
    """A column that all tasks read."""

    @property
    def value(self) -> NDArray[Any]: ...


class WorkFolder:
    """Steps as Parquet folders beside the store.

    A step is written under a separate name and counts only when its mark, an empty file, is there: whatever a killed
    job (or its JVM, which may live a moment longer) leaves behind is never read. Steps of another job, with another
    specification or other inputs, are removed.

    Parameters
    ----------
    place : str
        Folder that Spark's connectors can write; made when it is missing.
    key : str
        Digest of everything that the steps depend on.
    """

    def __init__(self, spark: SparkSession, place: str, key: str, announce: Announce) -> None:
        self.spark, self.place, self._announce = spark, place, announce
        self._files = Files(spark, place)
        self._shared: list[Broadcast[NDArray[Any]]] = []
        names = self._files.list()
        if names and f"key.{key}" not in names:
            self._files.delete()
            names = []
        self.continued = bool(names)
        if not names:
            self._files.touch(f"key.{key}")
        self._done = dict(name.split(".")[1:3] for name in names if name.startswith("done."))
        current = {f"{step}-{attempt}" for step, attempt in self._done.items()}
        for name in names:
            if "." not in name and name not in current:
                self._files.delete(name)

    def step(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """The table of a step: made, written and read back, or only read where an earlier run has finished it."""
        self._announce(name)
        attempt = self._done.get(name)
        if attempt is None:
            attempt = uuid.uuid4().hex[:12]
            table = make()
            table.write.options(**_as_they_are(table)).parquet(f"{self.place}/{name}-{attempt}")
            self._files.touch(f"done.{name}.{attempt}")
            self._done[name] = attempt
            # Spark would start a job to find the columns that are known here.
            return self.spark.read.schema(table.schema).parquet(f"{self.place}/{name}-{attempt}")
        return self.spark.read.parquet(f"{self.place}/{name}-{attempt}")

    def values(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A few plain values that a step has made beside its table."""
        if name not in self._done:
            self._files.write(f"{name}.json", json.dumps(make()))
            self._files.touch(f"done.{name}.json")
            self._done[name] = "json"
        found: dict[str, Any] = json.loads(self._files.read(f"{name}.json"))
        return found

    def share(self, values: NDArray[Any]) -> Shared:
        """Values that the tasks of the job read; each process of Python holds them once."""
        shared: Shared = self.spark.sparkContext.broadcast(values)
        self._shared.append(shared)
        return shared

    def release(self) -> None:
        """No task needs what was shared any more."""
        while self._shared:
            self._shared.pop().destroy()

    def remove(self) -> None:
        """The job is done: the steps are not needed any more."""
        self._files.delete()


def _as_they_are(table: DataFrame) -> dict[str, str]:
    """Columns of wide numbers are written without looking for a dictionary, which costs time and finds none."""
    wide = [field.name for field in table.schema.fields if field.dataType.typeName() in ("long", "double")]
    return {f"parquet.enable.dictionary#{name}": "false" for name in wide}


class Files:
    """Files under one folder, through Spark's own connectors (Hadoop's file systems)."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        context: Any = spark.sparkContext
        self._path_of = context._jvm.org.apache.hadoop.fs.Path
        self._place = place
        self._system = self._path_of(place).getFileSystem(context._jsc.hadoopConfiguration())

    def _path(self, name: str = "") -> Any:
        return self._path_of(f"{self._place}/{name}" if name else self._place)

    def list(self) -> list[str]:
        """Names in the folder; none where there is no folder."""
        if not self._system.exists(self._path()):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path()))

    def touch(self, name: str) -> None:
        """Make an empty file."""
        self._system.create(self._path(name), True).close()

    def write(self, name: str, text: str) -> None:
        stream = self._system.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def read(self, name: str) -> str:
        stream = self._system.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def delete(self, name: str = "") -> None:
        """Remove one name, or the folder with all in it."""
        self._system.delete(self._path(name), True)

    def version(self, uri: str) -> tuple[int, int]:
        """Size in bytes and time of the last change (milliseconds since 1970) of any file."""
        status = self._system.getFileStatus(self._path_of(uri))
        return int(status.getLen()), int(status.getModificationTime())
