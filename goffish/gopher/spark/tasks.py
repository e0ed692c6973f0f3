"""What runs on the executors: the steps of one partition, as pure functions of the rows that Spark brings.

A task that Spark runs again, on this executor or on another, gives the same rows. Nothing is kept in the Python worker
but topology, which is read-only.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zipimport import zipimporter

import pyarrow as pa

from goffish import errors
from goffish.errors import GoffishError, InputError, JobError
from goffish.gofs import PartitionedGraph, Slice, open_store
from goffish.gopher.checkpoint import CheckpointFolder
from goffish.gopher.ledger import totals_of
from goffish.gopher.messages import Batch, message_dtype
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.spark.rows import MESSAGE, REPORT, STATE, Address, gathered, join, to_batch, unpack_values
from goffish.gopher.work import open_pool, run_all
from goffish.gopher.worker import Worker

Rows = Iterator[pa.RecordBatch]
#: Joined rows of one partition, by kind and source.
Found = Mapping[tuple[int, int], bytes]

#: Bytes of topology that a Python worker keeps open.
CACHE_BYTES = 2 << 30

_UNSHARED = "{} differs on this machine; checkpoint_dir must be shared by the driver and all executors"


@dataclass(frozen=True)
class Job:
    """Inputs of every task of a run.

    Attributes
    ----------
    path, fingerprint : str
        The store, and the version of it that the driver opened.
    address : Address
        Which tasks the partitions are brought to by the next shuffle.
    """

    program: SubgraphProgram
    path: str
    fingerprint: str
    address: Address

    def worker(self, partition: int) -> Worker:
        """The worker of a partition, as it is before `init`."""
        graph, part = open_slice(self.path, self.fingerprint, partition)
        return Worker(self.program, part, totals_of(graph), graph.subgraph_starts)

    def receive(self, found: Found) -> tuple[Worker, list[Batch]]:
        """The worker of a partition from its state, and what it was sent, in order of source partition."""
        dtype = message_dtype(self.program.message)
        return self.restore(found), [to_batch(data, dtype) for (kind, _), data in found.items() if kind == MESSAGE]

    def restore(self, found: Found) -> Worker:
        """The worker of a partition from its state."""
        partition = next(source for kind, source in found if kind == STATE)
        worker = self.worker(partition)
        state = unpack_values(found[STATE, partition])
        worker.halted = state.pop("halted")
        for name, values in state.items():
            worker.state[name] = (worker.state[name][0], values)
        return worker

    def remember(self, worker: Worker) -> Rows:
        """State and votes as rows."""
        values = {name: array for name, (_, array) in worker.state.items()}
        partition = worker.part.partition
        return self.address.pack_values(partition, STATE, partition, {"halted": worker.halted, **values})

    def report(self, values: Mapping[str, Any]) -> Rows:
        """Something for the driver."""
        return self.address.pack_values(-1, REPORT, values.get("partition", -1), values)


@dataclass(frozen=True)
class Task(ABC):
    """What is done with the rows of some partitions, one partition after the other."""

    job: Job

    def __call__(self, batches: Rows) -> Rows:
        return gathered(self._told(batches))

    def _told(self, batches: Rows) -> Rows:
        failed: list[Mapping[str, Any]] = []
        with _judged(failed):
            for place in self.places(batches):
                yield from self.rows(*place)
        for report in failed:
            yield from self.job.report(report)

    def places(self, batches: Rows) -> Iterator[tuple[int, Found]]:
        """The partitions that rows were brought for, each with its joined rows; those are let go in turn."""
        found = join(batches)
        for partition in list(found):
            yield partition, found.pop(partition)

    @abstractmethod
    def rows(self, partition: int, found: Found) -> Rows:
        """What becomes of a partition."""


@contextmanager
def _judged(failed: list[Mapping[str, Any]]) -> Iterator[None]:
    """Turns a failure that Spark could not mend into something for the driver."""
    try:
        yield
    except GoffishError as error:
        failed.append({"error": type(error).__name__, "text": str(error)})
    finally:
        forget_archives()


@dataclass(frozen=True)
class Begin(Task):
    """Rows of task numbers → state before superstep 1, or as a checkpoint has it with the messages it holds."""

    resumed: CheckpointFolder | None

    def places(self, batches: Rows) -> Iterator[tuple[int, Found]]:
        """The partitions of the tasks."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for partition in self.job.address.groups[number]:
                    yield partition, {}

    def rows(self, partition: int, found: Found) -> Rows:
        """State, messages, and their report for the driver."""
        job = self.job
        begun = time.perf_counter()
        worker = job.worker(partition)
        loaded = time.perf_counter()
        pending: list[Batch] = []
        if self.resumed is None:
            worker.init()
        else:
            loaded_parts = self.resumed.load([worker])
            if loaded_parts is None:
                raise JobError(
                    f"{self.resumed.path} differs on this machine; checkpoint_dir must be shared by all executors"
                )
            pending = loaded_parts[1][0]
        for source, batch in enumerate(pending):
            if batch.size:
                yield from job.address.pack(partition, MESSAGE, source, batch.tobytes())
        yield from job.remember(worker)
        yield from job.report(
            {
                "partition": partition,
                "waiting": int(worker.part.num_subgraphs - worker.halted.sum()),
                "combined": sum(batch.size for batch in pending),
                "load": loaded - begun,
                "init": time.perf_counter() - loaded,
            }
        )


@dataclass(frozen=True)
class Advance(Task):
    """State and messages → state after superstep `number` and the messages it sends; only counts if not `run`."""

    number: int
    aggregates: Mapping[str, Any]
    run: bool = True

    def rows(self, partition: int, found: Found) -> Rows:
        """State, messages, and what the driver counts."""
        job = self.job
        begun = time.perf_counter()
        worker, inbox = job.receive(found)
        with _placed(partition):
            active = worker.deliver(inbox)
            if not self.run:
                yield from job.report({"partition": partition, "active": active})
                return
            received = time.perf_counter()
            _run(worker.tasks(self.number, self.aggregates))
            computed = time.perf_counter()
            out = worker.collect()
        for target, batch in enumerate(out.outbox):
            if batch.size:
                yield from job.address.pack(target, MESSAGE, partition, batch.tobytes())
        yield from job.remember(worker)
        ahead = time.time() - time.perf_counter()
        yield from job.report(
            {
                "partition": partition,
                "active": active,
                "waiting": int(worker.part.num_subgraphs - worker.halted.sum()),
                "contributions": dict(out.contributions),
                "messages": out.sent,
                "combined": out.combined,
                "remote": out.remote,
                "remote_bytes": out.remote_bytes,
                "started": worker.started + ahead if active else 0.0,
                "ended": worker.ended + ahead if active else 0.0,
                "busy": worker.busy,
                "receive": received - begun,
                "compute": computed - received,
                "send": time.perf_counter() - computed,
            }
        )


@dataclass(frozen=True)
class Save(Task):
    """State and messages after superstep `number` → a part of a checkpoint."""

    number: int
    folder: CheckpointFolder

    def rows(self, partition: int, found: Found) -> Rows:
        """What the part is called."""
        worker, inbox = self.job.receive(found)
        if not self.folder.folder(self.number).is_dir():
            raise InputError(
                f"{self.folder.path} differs on this machine; checkpoint_dir must be shared by all executors"
            )
        name, digest = self.folder.write_part(self.number, worker, inbox)
        yield from self.job.report({"partition": partition, "name": name, "digest": digest})


@dataclass(frozen=True)
class Conclude(Task):
    """State → columns of the answer."""

    def rows(self, partition: int, found: Found) -> Rows:
        """The columns, for the driver."""
        yield from self.job.report({"partition": partition, "columns": self.job.restore(found).result()})


def raise_reported(reports: Sequence[Mapping[str, Any]]) -> None:
    """Raise the failure that a task reported, if any."""
    told = sorted((report["text"], report["error"]) for report in reports if "error" in report)
    if told:
        known = (InputError, errors.StoreError, errors.CheckpointError, errors.DataError)
        raise next((kind for kind in known if kind.__name__ == told[0][1]), JobError)(told[0][0])


def forget_archives() -> None:
    """Spare the next task in this Python worker 0.1 s.

    Spark invalidates the import caches before every task. Python 3.11 then reads the contents of every archive that it
    has ever imported from anew, Spark's own with its 1500 files first of all; an archive that is forgotten here is
    found again by the next import from it, without being read.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


@contextmanager
def _placed(partition: int) -> Iterator[None]:
    """Names the partition in a failure of the engine's own checks (user code is named by the worker)."""
    try:
        yield
    except JobError as error:
        text = str(error)
        raise type(error)(text if "partition " in text else f"partition {partition}: {text}") from error


def _run(tasks: list[tuple[int, Callable[[], None]]]) -> None:
    """Run a superstep's tasks on the processors that Spark gave to this one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    threads = 1 if context is None else context.cpus()
    if threads == 1 or len(tasks) < 2:
        for _, work in tasks:
            work()
        return
    tasks.sort(key=lambda task: -task[0])
    with open_pool(threads) as pool:
        run_all(pool, [work for _, work in tasks])


# -- topology, once per Python worker

_opened: dict[tuple[str, str], tuple[PartitionedGraph, dict[int, int]]] = {}


def open_slice(path: str, fingerprint: str, partition: int) -> tuple[PartitionedGraph, Slice]:
    """A partition of a store, from what this Python worker has open."""
    found = _opened.get((path, fingerprint))
    if found is None:
        graph = open_store(path)
        if graph.fingerprint() != fingerprint:
            raise InputError(f"{path}: was replaced during the job, or differs on this machine")
        _opened.clear()
        found = _opened[path, fingerprint] = (graph, {})
    graph, sizes = found
    part = graph.slice(partition)
    sizes[partition] = sum(a.nbytes for arcs in (part.out_arcs, part.in_arcs) for a in vars(arcs).values())
    if sum(sizes.values()) > CACHE_BYTES and len(sizes) > 1:
        # A worker that meets more partitions than it can hold begins anew with this one.
        graph = open_store(path)
        part = graph.slice(partition)
        _opened[path, fingerprint] = (graph, {partition: sizes[partition]})
    return graph, part
