"""The Spark engine: partitions are rows of a DataFrame, and a superstep is one shuffle of it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from goffish.errors import InputError, JobError
from goffish.gofs import PartitionedGraph, write_store
from goffish.gopher.checkpoint import CheckpointFolder
from goffish.gopher.engine import Columns, OneProcess, Progress, assemble
from goffish.gopher.folder import FolderWriter, Part, check_folder
from goffish.gopher.ledger import Ledger, check_limit, fold
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.result import Result
from goffish.gopher.spark.output import Answer, Sample, Write, common_schema
from goffish.gopher.spark.rows import COLUMNS, REPORT, STATE, Address, unpack_values
from goffish.gopher.spark.session import borrowed, cancelling, checkpoint_place, is_local, named, slots
from goffish.gopher.spark.tasks import Advance, Begin, Conclude, Job, Save, raise_reported
from goffish.gopher.stats import RunStats
from goffish.gopher.work import partitions_of
from goffish.partial import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reports = list[dict[str, Any]]
Answered = TypeVar("Answered")


class SparkEngine(OneProcess):
    """Partitions spread over the executors of a cluster; the driver leads."""

    def run(self, program: SubgraphProgram, graph: PartitionedGraph) -> tuple[Result, PartitionedGraph]:
        asked = self.options
        running: dict[str, Any] = {
            "spark": asked.spark, "max_supersteps": asked.max_supersteps, "checkpoint_every": asked.every,
            "checkpoints": asked.checkpoints(program, graph), "resume": asked.resume, "progress": asked.progress,
        }  # fmt: skip
        if asked.output is not None:
            parts, stats = write_spark(program, graph, asked.output, **running)
            told = {"supersteps": stats.supersteps, "rows": sum(part.rows for part in parts), "parts": len(parts)}
            return Result(program.name(), pa.table({}), told, stats), graph
        columns, stats = run_spark(program, graph, **running)
        told = {"supersteps": stats.supersteps}
        return Result(program.name(), assemble(program, graph, columns), told, stats), graph


def run_spark(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    *,
    spark: SparkSession | None = None,
    max_supersteps: int | None = None,
    checkpoints: CheckpointFolder | None = None,
    checkpoint_every: int = 10,
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
        which is possible where the executors run on this machine.
    spark : SparkSession, optional
        Default: the running session, or `goffish.spark.session()`.
    checkpoints : CheckpointFolder, optional
        In a folder that driver and executors see alike, for `resume`. Those of other engines are taken up too.
    checkpoint_every : int
        After so many supersteps Spark writes everything to its own checkpoint folder, so that no lost executor takes a
        longer history with it.
    max_supersteps, resume, progress
        As for `run_local`.

    Returns
    -------
    columns : list of dict, one per partition
        What the program's `result` returned.
    stats : RunStats
        ``compute`` is the time in the program, spread over the cluster's processors, of the wall time of all
        supersteps; ``exchange`` is the rest: planning, launching, shuffling, and moving state and messages between the
        JVM and Python.

    Raises
    ------
    InputError
        The executors could not open the store, or Spark has no place for checkpoints.
    JobError
        User code failed (the message names subgraph and superstep), `max_supersteps` was reached, or Spark gave up.
    """
    options = (max_supersteps, checkpoints, checkpoint_every, progress)
    found, stats = _on_spark(program, graph, spark, options, resume, _Run.collect)
    return found or [], stats


def write_spark(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    output: str | Path,
    *,
    spark: SparkSession | None = None,
    max_supersteps: int | None = None,
    checkpoints: CheckpointFolder | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Part], RunStats]:
    """Run a program as `run_spark` does, and let the executors write the answer, with the users' labels.

    Parameters
    ----------
    output : path
        A folder that driver and executors mount alike. It gets one Parquet file per partition and a manifest, and
        appears whole, by one rename, or not at all. The rows of a file are in the order in which the graph was read.

    Returns
    -------
    parts : list of Part, one per partition
    stats : RunStats

    Raises
    ------
    InputError
        As `run_spark`; also if the folder cannot be written, or is not the same one on the driver and an executor.
    JobError
        As `run_spark`; also if the partitions' columns cannot be brought under one schema.
    """
    check_folder(output)
    target = local_path(output).absolute()
    options = (max_supersteps, checkpoints, checkpoint_every, progress)
    found, stats = _on_spark(program, graph, spark, options, resume, lambda run, frame: run.write(frame, target))
    if found is None:
        found = _publish(target, program.name(), list)
    return found, stats


def _on_spark(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    spark: SparkSession | None,
    options: tuple[int | None, CheckpointFolder | None, int, Progress | None],
    resume: bool,
    conclude: Callable[[_Run, DataFrame], Answered],
) -> tuple[Answered | None, RunStats]:
    """What `conclude` makes of the last DataFrame, and the counters; a graph without partitions has no DataFrame."""
    with borrowed(spark, graph.num_partitions) as own, _stored(graph, own) as path:
        if not graph.num_partitions:
            return None, Ledger(program, graph).stats("spark", slots(own), 0)
        run = _Run(program, graph, path, own, *options)
        with named(run.doing), checkpoint_place(own), cancelling(own):
            try:
                frame, supersteps = run.run(resume)
                run.tell("result")
                with run.ledger.phase("result"):
                    found = conclude(run, frame)
                return found, run.ledger.stats("spark", run.slots, supersteps)
            finally:
                run.forget()


@contextmanager
def _stored(graph: PartitionedGraph, spark: SparkSession) -> Iterator[str]:
    """Where the executors find the graph."""
    path = graph.path
    if path is not None and not path.startswith("memory:"):
        yield path if "://" in path else os.path.abspath(path)  # noqa: PTH100
        return
    if not is_local(spark):
        raise InputError(
            "executors on other machines cannot read a graph in memory; save it at a shared location with "
            "graph.save(URI) or goffish partition FILE -o URI"
        )
    folder = tempfile.mkdtemp(prefix="goffish-")
    try:
        write_store(graph, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Run:
    def __init__(
        self,
        program: SubgraphProgram,
        graph: PartitionedGraph,
        path: str,
        spark: SparkSession,
        max_supersteps: int | None,
        checkpoints: CheckpointFolder | None,
        checkpoint_every: int,
        progress: Progress | None,
    ) -> None:
        self.program, self.graph, self.spark = program, graph, spark
        self.max_supersteps, self.checkpoints, self.progress = max_supersteps, checkpoints, progress
        self.every = checkpoint_every
        self.slots = slots(spark)
        self.job = Job(program, path, graph.fingerprint(), self._address())
        self.ledger = Ledger(program, graph)
        self.doing = [program.name()]
        self.begun = time.time()
        self._kept: list[DataFrame] = []
        self._described = spark.sparkContext.getLocalProperty("spark.job.description")

    def run(self, resume: bool) -> tuple[DataFrame, int]:
        """All supersteps: the DataFrame after the last one, and their number."""
        ledger = self.ledger
        number, aggregates = 0, dict[str, Any]()
        restored = self.checkpoints.load([]) if self.checkpoints is not None and resume else None
        if restored is not None:
            number, aggregates = restored[0].superstep, dict(restored[0].aggregates)
            ledger.rows, ledger.reported = restored[0].rows, restored[0].reported
        self.tell("init")
        frame, reports = self._begin(self.checkpoints if restored is not None else None)
        while True:
            number += 1
            if not any(r["waiting"] or r["combined"] for r in reports):
                break
            self.tell(f"superstep {number}")
            if self.max_supersteps is not None and number > self.max_supersteps:
                with ledger.phase("exchange"):
                    counted = self._ask(self._shuffled(frame), Advance(self.job, number, aggregates, run=False))
                active = sum(r["active"] for r in counted)
                if not active:
                    break
                check_limit(self.program, number, self.max_supersteps, active)
            written = self.job
            after, reports = self._superstep(frame, number, aggregates)
            active = sum(r["active"] for r in reports)
            if not active:
                self.job = written
                break  # the messages were for partitions without subgraphs
            frame = after
            aggregates = fold(self.program, [r["contributions"] for r in reports])
            # The driver's clock: a task's own would begin anew with it, and say something else when it is run again.
            limit = getattr(self.program, "time_limit", None)
            if limit is not None:
                aggregates["late"] = time.time() - self.begun >= limit
            ledger.reported.update(aggregates)
            ended = not any(r["waiting"] or r["combined"] for r in reports)
            if number % self.every == 0 and not (ended and self.checkpoints is None):
                with ledger.phase("checkpoint"):
                    frame = self._checkpoint(frame, number, aggregates)
            if self.progress is not None:
                share = aggregates.get(self.program.share_done)
                self.progress(number, active, sum(r["messages"] for r in reports), share)
        return frame, number - 1

    def collect(self, frame: DataFrame) -> Columns:
        """The answer's columns, on the driver."""
        return [report["columns"] for report in self._of_all(frame.filter(f"kind = {STATE}"), Conclude(self.job))]

    def write(self, frame: DataFrame, target: Path) -> list[Part]:
        """The answer as a folder that the executors write."""
        state, job = frame.filter(f"kind = {STATE}"), self.job
        numbers = self.graph.info.label_type != "implicit" and bool(self.program.label_columns)
        block = max(1, -(-self.graph.num_vertices // self.graph.num_partitions)) if numbers else 0
        asked = self._keep(state.mapInArrow(Sample(job, block), COLUMNS))
        schema = common_schema(self.program, self._reports(asked))
        if block:
            state = self._shuffled(state.unionAll(self._shuffled(asked).mapInArrow(Answer(job), COLUMNS)))

        def parts() -> list[Part]:
            reports = self._of_all(state, Write(job, schema, target))
            return [Part(report["name"], report["rows"], report["size"]) for report in reports]

        return _publish(target, self.program.name(), parts)

    def _of_all(self, frame: DataFrame, task: Any) -> Reports:
        """Reports of the tasks of all partitions."""
        found = self._ask(frame, task)
        parts = self.graph.num_partitions
        if [report["partition"] for report in found] != list(range(parts)):
            raise JobError(f"{self.program.name()}: Spark returned {len(found)} of {parts} partitions")
        return found

    def tell(self, what: str) -> None:
        """What the job is doing, for errors and for Spark's own pages."""
        self.doing[0] = f"{self.program.name()}, {what}"
        self.spark.sparkContext.setJobDescription(f"goffish: {self.doing[0]}")

    def _begin(self, resumed: CheckpointFolder | None) -> tuple[DataFrame, Reports]:
        tasks = len(self.job.address.groups)
        with self.ledger.phase("init"):
            frame = self._keep(self.spark.range(0, tasks, 1, tasks).mapInArrow(Begin(self.job, resumed), COLUMNS))
            reports = self._reports(frame)
        loading = sum(r["load"] for r in reports)
        share = loading / max(loading + sum(r["init"] for r in reports), 1e-9)
        took = self.ledger.phases["init"]
        self.ledger.phases |= {"load": took * share, "init": took * (1 - share)}
        return frame, reports

    def _superstep(self, frame: DataFrame, number: int, aggregates: Mapping[str, Any]) -> tuple[DataFrame, Reports]:
        ledger = self.ledger
        before = ledger.phases["exchange"]
        with ledger.phase("exchange"):
            shuffled, groups = self._shuffled(frame), self.job.address.groups
            self._regroup()
            after = self._keep(shuffled.mapInArrow(Advance(self.job, number, aggregates), COLUMNS))
            reports = self._reports(after)
            self._drop_all_but(after)
        took = ledger.phases["exchange"] - before
        busy = {r["partition"]: r["compute"] for r in reports}
        tasks = [sum(busy.get(p, 0.0) for p in group) for group in groups]
        computing = min(took, max(*tasks, sum(tasks) / self.slots))
        ledger.phases["compute"] += computing
        ledger.phases["exchange"] -= computing
        for report in reports if any(r["active"] for r in reports) else ():
            ledger.rows.append(self._row(number, report))
        return after, reports

    def _row(self, number: int, report: Mapping[str, Any]) -> dict[str, Any]:
        counts = {name: report[name] for name in ("active", "messages", "combined", "remote", "remote_bytes")}
        times = {name: max(0.0, report[key] - self.begun) for name, key in (("start", "started"), ("end", "ended"))}
        return {"superstep": number, "partition": report["partition"], **counts, **times, "busy": report["busy"]}

    def _checkpoint(self, frame: DataFrame, number: int, aggregates: Mapping[str, Any]) -> DataFrame:
        """Cut the lineage, and write the checkpoint that a later job can resume from."""
        if self.checkpoints is not None:
            self.checkpoints.begin(number)
            saved = self._ask(self._shuffled(frame), Save(self.job, number, self.checkpoints))
            digests = {report["name"]: report["digest"] for report in saved}
            self.checkpoints.publish(number, digests, aggregates, self.ledger.reported, self.ledger.rows)
        cut = frame.checkpoint(eager=True)
        self._drop_all_but(None)
        return cut

    # -- DataFrames

    def _address(self) -> Address:
        """Tasks for the partitions: one for each processor, since each costs Spark more than it has to do."""
        parts = self.graph.num_partitions
        # A cluster that grows with the tasks that wait would not grow for fewer.
        elastic = self.spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        return Address.of(partitions_of(self.graph, parts if elastic else min(parts, self.slots)))

    def _regroup(self) -> None:
        """Executors may have come or gone: what is written from now on is for as many tasks as there are processors."""
        found = slots(self.spark)
        if found != self.slots:
            self.slots = found
            self.job = replace(self.job, address=self._address())

    def _shuffled(self, frame: DataFrame) -> DataFrame:
        """Every partition's state and what it is sent, brought to its task."""
        return frame.repartition(len(self.job.address.groups), "key")

    def _ask(self, frame: DataFrame, task: Any) -> Reports:
        return self._reports(frame.mapInArrow(task, COLUMNS))

    def _reports(self, frame: DataFrame) -> Reports:
        """Reports of the tasks to the driver, in order of partition; runs them."""
        # All columns: to choose some of them costs the driver 20 ms.
        rows = frame.filter(f"kind = {REPORT}").collect()
        told: dict[int, list[tuple[int, bytes]]] = {}
        for place, (*_, source, sequence, payload) in enumerate(rows):
            told.setdefault(source if source >= 0 else ~place, []).append((sequence, payload))
        reports = [unpack_values(b"".join(payload for _, payload in sorted(blocks))) for blocks in told.values()]
        raise_reported(reports)
        return sorted(reports, key=lambda report: int(report["partition"]))

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return frame

    def _drop_all_but(self, frame: DataFrame | None) -> None:
        for old in self._kept:
            if old is not frame:
                old.unpersist()
        self._kept = [] if frame is None else [frame]

    def forget(self) -> None:
        """Give back what Spark holds for this run."""
        try:
            self._drop_all_but(None)
            self.spark.sparkContext.setLocalProperty("spark.job.description", self._described)
        except Exception:
            # The session may be gone; what it held is gone with it.
            self._kept = []


def _publish(target: Path, name: str, write: Callable[[], list[Part]]) -> list[Part]:
    """A result folder with the parts that `write` leaves in it; what was there before stays if it fails."""
    folder = FolderWriter(target)
    try:
        folder.begin()
        parts = write()
        folder.publish(name, parts)
    except BaseException:
        folder.discard()
        raise
    return parts
