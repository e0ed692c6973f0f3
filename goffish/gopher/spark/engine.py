"""The Spark engine: one barrier stage, whose tasks hold the partitions and exchange messages directly."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from goffish.errors import GoffishError, InputError, JobError
from goffish.gofs import PartitionedGraph, write_store
from goffish.gopher.checkpoint import CheckpointFolder
from goffish.gopher.engine import Columns, OneProcess, Progress, assemble
from goffish.gopher.folder import Part, check_folder, folder_writer
from goffish.gopher.ledger import Ledger
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.result import Result
from goffish.gopher.shared import SHARED_VARIABLE, remove_place, shared_place, temporary_place
from goffish.gopher.spark.progress import Watch
from goffish.gopher.spark.session import (
    LostError,
    cancelling,
    check_fixed,
    driver_host,
    in_background,
    is_local,
    loss,
    named,
    running_session,
    slots,
)
from goffish.gopher.spark.tasks import COLUMNS, Find, Run, Task, from_rows, raise_reported
from goffish.gopher.stats import RunStats
from goffish.gopher.work import partitions_of
from goffish.graph.labels import unknown_vertex
from goffish.partial import absolute_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How often a run is begun, and seconds to wait for an executor that replaces a lost one.
_ATTEMPTS, _REPLACED_S = 4, 30.0
#: What each task returned: values, and tables.
Answers = list[tuple[dict[str, Any], list[pa.Table]]]


class SparkEngine(OneProcess):
    """Partitions spread over the executors of a cluster; the driver leads."""

    def check_label(self, graph: PartitionedGraph, label: int | str) -> None:
        if graph.path is None or graph.path.startswith("memory:"):
            graph.find(label)
            return
        spark = running_session(self.options.spark)
        path, tasks = _place(graph.path), min(graph.num_partitions, slots(spark, graph.num_partitions))
        with named([f"look-up of {label!r}"]), cancelling(spark):
            answers = _collect(spark, Find(path, graph.fingerprint(), tasks, label), barrier=False)
        if not any(report["found"] for report, _ in answers):
            raise unknown_vertex(label, graph.num_vertices)

    def run(self, program: SubgraphProgram, graph: PartitionedGraph) -> tuple[Result, PartitionedGraph]:
        asked = self.options
        running: dict[str, Any] = {
            "spark": asked.spark, "max_supersteps": asked.max_supersteps,
            "checkpoints": asked.checkpoints(program, graph), "resume": asked.resume, "progress": asked.progress,
        }  # fmt: skip
        if asked.output is not None:
            parts, stats = write_spark(program, graph, asked.output, **running)
            summary = {"supersteps": stats.supersteps, "rows": sum(part.rows for part in parts), "parts": len(parts)}
            return Result(program.name(), pa.table({}), summary, stats), graph
        columns, stats = run_spark(program, graph, **running)
        summary = {"supersteps": stats.supersteps}
        return Result(program.name(), assemble(program, graph, columns), summary, stats), graph


def run_spark(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    *,
    spark: SparkSession | None = None,
    max_supersteps: int | None = None,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[Columns, RunStats]:
    """Run a program on a Spark cluster; answers, supersteps and counters are those of `run_local`, bit for bit.

    Parameters
    ----------
    program : SubgraphProgram
        Travels to the executors by cloudpickle, inside Spark's own tasks.
    graph : PartitionedGraph
        Of a store at a path or URI that the executors can open. A graph in memory is saved to a temporary store first,
        which is possible where the executors run on this machine, or where ``GOFFISH_SHARED`` names a place for it.
    spark : SparkSession, optional
        Default: the running session, or `goffish.spark.session()`. Spark Connect is supported.
    checkpoints : CheckpointFolder, optional
        In a folder that all executors see alike, for `resume`. Those of other engines are taken up too. After a loss
        the run continues from the newest one; without, it begins anew.
    max_supersteps, resume
        As for `run_local`.
    progress : callable, optional
        As for `run_local`; up to 0.1 s later, and never if the executors cannot connect to the driver.

    Returns
    -------
    columns : list of dict, one per partition
        What the program's `result` returned.
    stats : RunStats
        Phases are those of the task that took longest; ``load`` also has the time that Spark needed to start the tasks
        and to return what they found.

    Raises
    ------
    InputError
        The executors could not open the store, or their number is not fixed.
    JobError
        User code failed (the message names subgraph and superstep), `max_supersteps` was reached, or Spark gave up
        (`LostError`).
    """
    answers, stats = _on_spark(program, graph, spark, max_supersteps, checkpoints, resume, progress)
    found: Columns = [{} for _ in range(graph.num_partitions)]
    for partitions, (_, tables) in zip(partitions_of(graph, len(answers)), answers, strict=True):
        for partition, table in zip(partitions, tables, strict=True):
            found[partition] = {name: table[name].to_numpy() for name in table.column_names}
    return found, stats


def write_spark(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    output: str | Path,
    *,
    spark: SparkSession | None = None,
    max_supersteps: int | None = None,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Part], RunStats]:
    """Run a program as `run_spark` does, and let the executors write the answer, with the users' labels.

    Parameters
    ----------
    output : path
        A folder that driver and executors mount alike. It gets one Parquet file per task and a manifest, and
        appears whole, by one rename, or not at all. The rows of a file are in the order in which the graph was read.

    Returns
    -------
    parts : list of Part, one per task
    stats : RunStats

    Raises
    ------
    InputError
        As `run_spark`; also if the folder cannot be written, or is not the same one on the driver and an executor.
    JobError
        As `run_spark`; also if the partitions' columns cannot be brought under one schema.
    """
    check_folder(output)
    folder = folder_writer(absolute_place(output))
    try:
        folder.begin()
        answers, stats = _on_spark(
            program, graph, spark, max_supersteps, checkpoints, resume, progress, target=folder.target
        )
        parts = [Part(**report["part"]) for report, _ in answers]
        folder.publish(program.name(), parts)
    except BaseException:
        folder.discard()
        raise
    return parts, stats


def _on_spark(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    spark: SparkSession | None,
    max_supersteps: int | None,
    checkpoints: CheckpointFolder | None,
    resume: bool,
    progress: Progress | None,
    target: str | None = None,
) -> tuple[Answers, RunStats]:
    """What the tasks returned, and the counters; a graph without partitions has no tasks."""
    own = running_session(spark)
    check_fixed(own)
    if not graph.num_partitions:
        return [], Ledger(program, graph).stats("spark", slots(own, 1), 0)
    begun = time.perf_counter()
    secret = secrets.token_bytes(32)
    watch = None if progress is None else Watch(progress, driver_host(own), secret)
    with _stored(graph, own) as path, named([program.name()]), cancelling(own, f"goffish: {program.name()}"):
        tasks = min(graph.num_partitions, slots(own, graph.num_partitions))
        job = Run(
            path, graph.fingerprint(), tasks, program, secret, max_supersteps, checkpoints, resume, target,
            None if watch is None else watch.address,
        )  # fmt: skip
        try:
            answers = _despite_losses(own, job, watch)
        finally:
            if watch is not None:
                watch.stop()
    report, tables = answers[0]
    stats = RunStats(steps=tables.pop(0), **report["stats"])
    phases = dict(stats.phases)
    phases["load"] += max(0.0, time.perf_counter() - begun - sum(phases.values()))
    return answers, replace(stats, phases={name: round(seconds, 6) for name, seconds in phases.items()})


def _despite_losses(spark: SparkSession, job: Run, watch: Watch | None) -> Answers:
    """Run the stage, and run it again when a task is lost: Spark itself does not repeat stages that give results.

    An attempt has as many tasks as there are slots by then, and continues from the newest checkpoint of this run.
    """
    before = None if job.checkpoints is None else job.checkpoints.newest()
    beat = None if watch is None else watch.beat
    for left in reversed(range(_ATTEMPTS)):
        try:
            answers = _collect(spark, job, barrier=True, beat=beat)
        except GoffishError:
            raise
        except Exception as error:
            reason = loss(error)
            if reason is None:
                raise
            if not left:
                raise LostError(f"{job.program.name()}: a task was lost in {_ATTEMPTS} attempts: {reason}") from error
        else:
            if watch is not None:
                watch.close()
            return answers
        deadline = time.monotonic() + _REPLACED_S
        while (found := slots(spark, 0)) < job.tasks and time.monotonic() < deadline:
            time.sleep(0.2)
        again = job.checkpoints is not None and job.checkpoints.newest() != before
        job = replace(job, tasks=min(job.tasks, found), resume=job.resume or again)
    raise AssertionError


def _collect(spark: SparkSession, task: Task, *, barrier: bool, beat: Callable[[], None] | None = None) -> Answers:
    """Run all tasks of a stage; Ctrl-C is heard meanwhile."""
    frame = spark.range(0, task.tasks, 1, task.tasks).mapInArrow(task, COLUMNS, barrier=barrier)
    rows = in_background(spark, frame.collect, beat)
    found = from_rows(rows)
    raise_reported([report for report, _ in found.values()])
    if list(found) != list(range(task.tasks)):
        raise JobError(f"Spark returned the answers of {len(found)} of {task.tasks} tasks")
    return list(found.values())


def _place(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100


@contextmanager
def _stored(graph: PartitionedGraph, spark: SparkSession) -> Iterator[str]:
    """Where the executors find the graph."""
    path = graph.path
    if path is not None and not path.startswith("memory:"):
        yield _place(path)
        return
    if shared_place() is None and not is_local(spark):
        raise InputError(
            "executors on other machines cannot read a graph in memory; save it at a shared location with "
            f"graph.save(URI) or goffish partition FILE -o URI, or set {SHARED_VARIABLE} to a folder or URI for "
            "temporary stores"
        )
    folder = temporary_place()
    try:
        write_store(graph, folder)
        yield folder
    finally:
        remove_place(folder)
