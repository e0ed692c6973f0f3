"""What runs on the executors: one barrier stage, whose tasks hold their partitions for the whole run.

Nothing is kept in the Python worker afterwards but topology, which is read-only.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any
from zipimport import zipimporter

import pyarrow as pa

from goffish import errors
from goffish.errors import GoffishError, InputError, JobError
from goffish.gofs import PartitionedGraph, Slice, is_store, open_store
from goffish.gopher.checkpoint import CheckpointFolder
from goffish.gopher.engine import Columns
from goffish.gopher.folder import folder_writer
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.spark.links import joined
from goffish.gopher.spark.progress import reporting
from goffish.gopher.team.engine import run_team
from goffish.gopher.team.exchange import pack_tables, unpack_tables
from goffish.gopher.team.output import answer_table
from goffish.gopher.team.team import Team
from goffish.gopher.work import partitions_of

Rows = Iterator[pa.RecordBatch]

#: Columns of every row, for Spark and for Arrow: what a task returns is cut into blocks of bytes.
COLUMNS = "task int, sequence int, payload binary"
_SCHEMA = pa.schema([("task", pa.int32()), ("sequence", pa.int32()), ("payload", pa.binary())])

#: Bytes of one payload; Spark holds rows whole in memory.
BLOCK = 1 << 20
#: Bytes of topology that a Python worker keeps open.
CACHE_BYTES = 2 << 30


def to_rows(task: int, report: Mapping[str, Any], tables: list[pa.Table]) -> Rows:
    """What a task returns to the driver, as rows: values for JSON, and tables."""
    data = pack_tables([pa.table({"report": [json.dumps(report)]}), *tables])
    for sequence, first in enumerate(range(0, data.nbytes, BLOCK)):
        columns = [[task], [sequence], [data[first : first + BLOCK]]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def from_rows(rows: list[Any]) -> dict[int, tuple[dict[str, Any], list[pa.Table]]]:
    """The inverse of `to_rows`, by task; rows may come in any order."""
    blocks: dict[int, list[tuple[int, Any]]] = {}
    for task, sequence, payload in rows:
        blocks.setdefault(task, []).append((sequence, payload))
    found = {}
    for task, own in sorted(blocks.items()):
        first, *tables = unpack_tables(b"".join(payload for _, payload in sorted(own, key=lambda block: block[0])))
        found[task] = (json.loads(first["report"][0].as_py()), tables)
    return found


def raise_reported(reports: list[dict[str, Any]]) -> None:
    """Raise the failure that a task reported, if any."""
    failures = sorted((report["text"], report["error"]) for report in reports if "error" in report)
    if failures:
        known = (InputError, errors.StoreError, errors.CheckpointError, errors.DataError)
        raise next((kind for kind in known if kind.__name__ == failures[0][1]), JobError)(failures[0][0])


@dataclass(frozen=True)
class Task(ABC):
    """What each task of a stage does.

    Attributes
    ----------
    path, fingerprint : str
        The store, and the version of it that the driver opened.
    tasks : int
        Number of tasks; the partitions of each are those of `partitions_of`.
    """

    path: str
    fingerprint: str
    tasks: int

    def __call__(self, batches: Rows) -> Rows:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        try:
            for number in numbers:
                yield from self._answer(number)
        finally:
            forget_archives()

    def _answer(self, number: int) -> Rows:
        """The answer, or a failure that Spark could not mend by another attempt."""
        try:
            report, tables = self.run(number)
        except GoffishError as error:
            report, tables = {"error": type(error).__name__, "text": str(error)}, []
        return to_rows(number, report, tables)

    @abstractmethod
    def run(self, number: int) -> tuple[dict[str, Any], list[pa.Table]]:
        """The answer of a task."""


@dataclass(frozen=True)
class Find(Task):
    """Whether a label is a vertex of one of the task's partitions."""

    label: int | str

    def run(self, number: int) -> tuple[dict[str, Any], list[pa.Table]]:
        graph = open_graph(self.path, self.fingerprint)
        mine = partitions_of(graph, self.tasks)[number]
        return {"found": any(graph.slice(partition).find(self.label) >= 0 for partition in mine)}, []


@dataclass(frozen=True)
class Run(Task):
    """A program from its first superstep to its last.

    Attributes
    ----------
    secret : bytes
        Of this run.
    target : str, optional
        Folder for the rows; otherwise they are returned.
    driver : tuple of str and int, optional
        Where to report progress.
    """

    program: SubgraphProgram
    secret: bytes
    max_supersteps: int | None
    checkpoints: CheckpointFolder | None
    resume: bool
    target: str | None
    driver: tuple[str, int] | None

    def run(self, number: int) -> tuple[dict[str, Any], list[pa.Table]]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        host = context.getTaskInfos()[number].address.rpartition(":")[0].strip("[]")
        with joined(number, self.tasks, host, self.secret, context.allGather, context.cpus()) as team:
            with team.together("loading"):
                graph = open_graph(self.path, self.fingerprint)
            with reporting(None if number else self.driver, self.secret) as progress:
                columns, stats = run_team(
                    self.program, graph, team, max_supersteps=self.max_supersteps, checkpoints=self.checkpoints,
                    resume=self.resume, progress=progress,
                )  # fmt: skip
            report, tables = self._conclude(team, graph, columns)
        _forget_large([graph.slice(partition) for partition in partitions_of(graph, self.tasks)[number]])
        if number:
            return report, tables
        counters = {field.name: getattr(stats, field.name) for field in fields(stats) if field.name != "steps"}
        return {**report, "stats": counters}, [stats.steps, *tables]

    def _conclude(self, team: Team, graph: PartitionedGraph, columns: Columns) -> tuple[dict[str, Any], list[pa.Table]]:
        """The columns of the task's partitions, or the name of the file that has them."""
        if self.target is None:
            tables: list[pa.Table] = []
            with team.together("result"):
                tables = [pa.table(found) for found in columns]
            return {}, tables
        table = answer_table(team, self.program, graph, columns)
        report: dict[str, Any] = {}
        with team.together(self.target):
            if table is not None:
                report = {"part": folder_writer(self.target).write(team.rank, table)._asdict()}
        return report, []


def forget_archives() -> None:
    """Spare the next task in this Python worker 0.1 s.

    Spark invalidates the import caches before every task. Python 3.11 then reads the contents of every archive that it
    has ever imported from anew, Spark's own with its 1500 files first of all; an archive that is forgotten here is
    found again by the next import from it, without being read.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


# -- topology, once per Python worker

_opened: dict[tuple[str, str], tuple[PartitionedGraph, dict[int, int]]] = {}


def open_graph(path: str, fingerprint: str) -> PartitionedGraph:
    """A store, from what this Python worker has open."""
    found = _opened.get((path, fingerprint))
    if found is None:
        try:
            graph = open_store(path)
        except errors.StoreError as error:
            if is_store(path):
                raise
            raise InputError(f"{error}; executors must be able to open the store at the same path or URI") from error
        if graph.fingerprint() != fingerprint:
            raise InputError(f"{path}: was replaced during the job, or differs on this machine")
        _opened.clear()
        found = _opened[path, fingerprint] = (graph, {})
    return found[0]


def open_slice(path: str, fingerprint: str, partition: int) -> tuple[PartitionedGraph, Slice]:
    """A partition of a store, from what this Python worker has open."""
    graph = open_graph(path, fingerprint)
    sizes = _opened[path, fingerprint][1]
    part = graph.slice(partition)
    sizes[partition] = _size(part)
    if sum(sizes.values()) > CACHE_BYTES and len(sizes) > 1:
        # A worker that meets more partitions than it can hold begins anew with this one.
        graph = open_store(path)
        part = graph.slice(partition)
        _opened[path, fingerprint] = (graph, {partition: sizes[partition]})
    return graph, part


def _size(part: Slice) -> int:
    return sum(a.nbytes for arcs in (part.out_arcs, part.in_arcs) for a in vars(arcs).values())


def _forget_large(parts: list[Slice]) -> None:
    """Close the store if the next task should not find it open."""
    if sum(map(_size, parts)) > CACHE_BYTES:
        _opened.clear()
