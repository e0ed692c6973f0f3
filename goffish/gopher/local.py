"""The local engine: all partitions in one process, on a pool of threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.gofs import PartitionedGraph
from goffish.gopher.checkpoint import CheckpointFolder, step_table
from goffish.gopher.messages import Batch
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.stats import RunStats
from goffish.gopher.superstep import Totals, reduce_values
from goffish.gopher.worker import StepOutput, Worker
from goffish.graph.parallel import wait_for

#: Called after each superstep with (superstep, sub-graphs that ran, messages sent).
Progress = Callable[[int, int, int], None]

Columns = list[dict[str, NDArray[Any]]]


def run_local(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    *,
    threads: int,
    max_supersteps: int | None = None,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[Columns, RunStats]:
    """Run a program on every partition until all sub-graphs have halted and no message is left.

    Parameters
    ----------
    threads : int
        Size of the pool. Tasks are started largest first; the result does not depend on it.
    max_supersteps : int, optional
        Fail the job when it has not ended by then.
    checkpoints, resume
        Where and how often to checkpoint, and whether to go on from the newest one.

    Returns
    -------
    columns : list of dict, one per partition
        What the program's `result` returned.
    stats : RunStats

    Raises
    ------
    JobError
        User code failed (the message names sub-graph and superstep), or `max_supersteps` was reached.
    """
    return _Run(program, graph, threads, max_supersteps, checkpoints, progress).run(resume)


class _Run:
    def __init__(
        self,
        program: SubgraphProgram,
        graph: PartitionedGraph,
        threads: int,
        max_supersteps: int | None,
        checkpoints: CheckpointFolder | None,
        progress: Progress | None,
    ) -> None:
        self.program, self.graph, self.threads = program, graph, threads
        self.max_supersteps, self.checkpoints, self.progress = max_supersteps, checkpoints, progress
        self.phases = dict.fromkeys(("load", "init", "compute", "exchange", "checkpoint", "result"), 0.0)
        self.rows: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self.begun = time.perf_counter()

    def run(self, resume: bool) -> tuple[Columns, RunStats]:
        graph, parts = self.graph, self.graph.num_partitions
        with _pool(self.threads) as pool:
            with self._phase("load"):
                slices = list(pool.map(graph.slice, range(parts)))
                totals = Totals(graph.num_vertices, graph.num_edges, graph.num_subgraphs, parts)
                workers = [Worker(self.program, s, totals, graph.subgraph_starts) for s in slices]
            pending: list[list[Batch]] = [[] for _ in workers]
            aggregates: Mapping[str, Any] = {}
            number = 0
            found = self.checkpoints.load(workers) if self.checkpoints is not None and resume else None
            if found is not None:
                restored, pending = found
                number, aggregates, self.rows = restored.superstep, restored.aggregates, restored.rows
                self.last = restored.reported
            else:
                with self._phase("init"):
                    list(pool.map(Worker.init, workers))
            while True:
                number += 1
                with self._phase("exchange"):
                    active = sum(pool.map(lambda w, b: w.deliver(b), workers, pending))
                if not active:
                    break
                if self.max_supersteps is not None and number > self.max_supersteps:
                    raise JobError(
                        f"{self.program.name()}: not finished after {self.max_supersteps} supersteps "
                        f"({active} sub-graphs still active)"
                    )
                pending, aggregates = self._superstep(pool, workers, number, aggregates)
            with self._phase("result"):
                columns = list(pool.map(Worker.result, workers))
        return columns, self._stats(number - 1)

    def _superstep(
        self, pool: ThreadPoolExecutor, workers: list[Worker], number: int, aggregates: Mapping[str, Any]
    ) -> tuple[list[list[Batch]], Mapping[str, Any]]:
        active = [int(w.active.size) for w in workers]
        with self._phase("compute"):
            tasks = [task for w in workers for task in w.tasks(number, aggregates)]
            tasks.sort(key=lambda task: -task[0])
            _run_all(pool, (work for _, work in tasks))
        with self._phase("exchange"):
            outputs = list(pool.map(Worker.collect, workers))
            pending = [[out.outbox[p] for out in outputs] for p in range(len(workers))]
            aggregates = _fold(self.program, outputs)
            self.last.update(aggregates)
        self._count(number, workers, active, outputs)
        if self.checkpoints is not None and self.checkpoints.due(number):
            with self._phase("checkpoint"):
                self.checkpoints.save(number, workers, pending, aggregates, self.last, self.rows)
        if self.progress is not None:
            self.progress(number, sum(active), sum(out.sent for out in outputs))
        return pending, aggregates

    def _count(self, number: int, workers: list[Worker], active: list[int], outputs: list[StepOutput]) -> None:
        for worker, ran, out in zip(workers, active, outputs, strict=True):
            idle = not ran
            self.rows.append(
                {
                    "superstep": number,
                    "partition": worker.part.partition,
                    "active": ran,
                    "messages": out.sent,
                    "combined": out.combined,
                    "remote": out.remote,
                    "remote_bytes": out.remote_bytes,
                    "start": 0.0 if idle else worker.started - self.begun,
                    "end": 0.0 if idle else worker.ended - self.begun,
                    "busy": worker.busy,
                }
            )

    def _stats(self, supersteps: int) -> RunStats:
        return RunStats(
            program=self.program.name(),
            engine="local",
            partitions=self.graph.num_partitions,
            threads=self.threads,
            subgraphs=self.graph.num_subgraphs,
            supersteps=supersteps,
            steps=step_table(self.rows),
            phases={name: round(seconds, 6) for name, seconds in self.phases.items()},
            edge_cut=self.graph.info.partitioner.get("edge_cut_share"),
            aggregates=dict(self.last),
        )

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.phases[name] += time.perf_counter() - begun


def _fold(program: SubgraphProgram, outputs: list[StepOutput]) -> dict[str, Any]:
    """Aggregates of all partitions, folded in partition order so that every engine rounds alike."""
    folded = {}
    for name, how in program.aggregators.items():
        values = [out.contributions[name] for out in outputs if name in out.contributions]
        if values:
            folded[name] = np.asarray(reduce_values(how, values)).item()
    return folded


def _run_all(pool: ThreadPoolExecutor, work: Iterable[Callable[[], None]]) -> None:
    futures = [pool.submit(task) for task in work]
    done, waiting = wait_for(futures)
    for future in waiting:
        future.cancel()
    for future in done:
        future.result()


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="gopher")
    try:
        yield pool
    finally:
        # After an error or Ctrl-C the user goes on at once: a kernel that still runs ends by itself, unheard.
        pool.shutdown(wait=False, cancel_futures=True)
