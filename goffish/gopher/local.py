"""The local engine: all partitions in one process, on a pool of threads."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from goffish.gofs import PartitionedGraph
from goffish.gopher.checkpoint import CheckpointFolder, asked_for
from goffish.gopher.engine import Columns, OneProcess, Progress, assemble
from goffish.gopher.ledger import Ledger, check_limit, fold, totals_of
from goffish.gopher.messages import Batch
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.result import Result
from goffish.gopher.stats import RunStats
from goffish.gopher.work import open_pool, run_all
from goffish.gopher.worker import Worker
from goffish.graph.parallel import thread_count


class LocalEngine(OneProcess):
    """All partitions in this process."""

    def run(self, program: SubgraphProgram, graph: PartitionedGraph) -> tuple[Result, PartitionedGraph]:
        asked = self.options
        columns, stats = run_local(
            program,
            graph,
            threads=thread_count(asked.threads),
            max_supersteps=asked.max_supersteps,
            checkpoints=asked.checkpoints(program, graph),
            resume=asked.resume,
            progress=asked.progress,
        )
        summary = {"supersteps": stats.supersteps}
        return Result(program.name(), assemble(program, graph, columns), summary, stats), graph


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
    """Run a program on every partition until all subgraphs have halted and no message is left.

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
        User code failed (the message names subgraph and superstep), or `max_supersteps` was reached.
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
        self.ledger = Ledger(program, graph)

    def run(self, resume: bool) -> tuple[Columns, RunStats]:
        graph, ledger = self.graph, self.ledger
        with open_pool(self.threads, graph.num_vertices + graph.num_edges) as pool:
            with ledger.phase("load"):
                slices = graph.slices(self.threads)
                totals, starts = totals_of(graph), graph.subgraph_starts
                workers = [Worker(self.program, s, totals, starts, self.threads) for s in slices]
            pending: list[list[Batch]] = [[] for _ in workers]
            aggregates: Mapping[str, Any] = {}
            number = 0
            found = self.checkpoints.load(workers) if self.checkpoints is not None and resume else None
            if found is not None:
                restored, pending = found
                number, aggregates = restored.superstep, restored.aggregates
                ledger.rows, ledger.reported = restored.rows, restored.reported
            else:
                with ledger.phase("init"):
                    list(pool.map(Worker.init, workers))
            while True:
                number += 1
                with ledger.phase("exchange"):
                    active = sum(pool.map(lambda w, b: w.deliver(b), workers, pending))
                if not active:
                    break
                check_limit(self.program, number, self.max_supersteps, active)
                pending, aggregates = self._superstep(pool, workers, number, aggregates)
            with ledger.phase("result"):
                columns = list(pool.map(Worker.result, workers))
        return columns, ledger.stats("local", self.threads, number - 1)

    def _superstep(
        self, pool: Executor, workers: list[Worker], number: int, aggregates: Mapping[str, Any]
    ) -> tuple[list[list[Batch]], Mapping[str, Any]]:
        ledger = self.ledger
        active = [int(w.active.size) for w in workers]
        with ledger.phase("compute"):
            tasks = [task for w in workers for task in w.tasks(number, aggregates)]
            tasks.sort(key=lambda task: -task[0])
            run_all(pool, [work for _, work in tasks])
        with ledger.phase("exchange"):
            outputs = list(pool.map(Worker.collect, workers))
            pending = [[out.outbox[p] for out in outputs] for p in range(len(workers))]
            aggregates = fold(self.program, [out.contributions for out in outputs])
            ledger.reported.update(aggregates)
        ledger.count(number, workers, active, outputs)
        if self.checkpoints is not None and self.checkpoints.due(number, asked_for()):
            with ledger.phase("checkpoint"):
                self.checkpoints.save(number, workers, pending, aggregates, ledger.reported, ledger.rows)
        if self.progress is not None:
            share = aggregates.get(self.program.share_done)
            self.progress(number, sum(active), sum(out.sent for out in outputs), share)
        return pending, aggregates
