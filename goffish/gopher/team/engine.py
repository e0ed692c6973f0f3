"""The engine of a team: partitions spread over its members, each superstep ended by one exchange of typed buffers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np

from goffish.errors import InputError, JobError
from goffish.gofs import PartitionedGraph
from goffish.gopher.checkpoint import LEAVING, Checkpoint, CheckpointFolder, LeavingError
from goffish.gopher.engine import Columns, Progress
from goffish.gopher.ledger import PHASES, Ledger, check_limit, fold, totals_of
from goffish.gopher.messages import Batch, message_dtype
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.stats import RunStats
from goffish.gopher.team.exchange import Control, Exchange, pack_tables, unpack_tables
from goffish.gopher.team.team import Stopped, Team
from goffish.gopher.work import open_pool, partitions_of, run_all
from goffish.gopher.worker import StepOutput, Worker


def run_team(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    team: Team,
    *,
    threads: int | None = None,
    max_supersteps: int | None = None,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[Columns, RunStats]:
    """Run a program on all members of a team; answers, supersteps and counters are those of `run_local`, bit for bit.

    Parameters
    ----------
    program, graph
        The same on every member, which loads only the slices of its partitions.
    threads : int, optional
        Of this member. Default: `Team.local_threads`.
    checkpoints : CheckpointFolder, optional
        In a folder that all members see. Those of other engines, and of any other number of members, are taken up too.
    progress : callable, optional
        Called on the first member.

    Returns
    -------
    columns : list of dict, one per partition of this member (see `partitions_of`)
        What the program's `result` returned.
    stats : RunStats
        Of the whole run on the first member, of this one on others. Phases are the longest over the members, except
        that ``exchange`` is the shortest: its duration on the member that did not wait.

    Raises
    ------
    JobError
        On every member alike; the message names partition and superstep.
    """
    return _Run(program, graph, team, threads, max_supersteps, checkpoints, progress).run(resume)


class _Run:
    def __init__(
        self,
        program: SubgraphProgram,
        graph: PartitionedGraph,
        team: Team,
        threads: int | None,
        max_supersteps: int | None,
        checkpoints: CheckpointFolder | None,
        progress: Progress | None,
    ) -> None:
        self.program, self.graph, self.team = program, graph, team
        self.max_supersteps, self.checkpoints, self.progress = max_supersteps, checkpoints, progress
        self.threads = team.local_threads() if threads is None else threads
        owned = partitions_of(graph, team.size)
        self.mine = owned[team.rank]
        numbers = ", ".join(map(str, self.mine[:8])) + (" …" if len(self.mine) > 8 else "")
        self.whose = f"partition{'s' * (len(self.mine) > 1)} {numbers}" if self.mine else "no partition"
        self.exchange = Exchange(team, owned, list(program.aggregators), message_dtype(program.message))
        self.ledger = Ledger(program, graph)
        self.counted = 0

    def doing(self, what: str) -> str:
        """The current task of this member, for error messages; reported to the monitoring process."""
        text = f"{self.whose}, {what}"
        self.team.watch(text)
        return text

    def run(self, resume: bool) -> tuple[Columns, RunStats]:
        graph, ledger, team = self.graph, self.ledger, self.team
        here = team.threads_here(self.threads)
        with open_pool(self.threads) as pool:
            with ledger.phase("load"), team.together(self.doing("loading")):
                slices = list(pool.map(graph.slice, self.mine))
                totals, starts = totals_of(graph), graph.subgraph_starts
                workers = [Worker(self.program, s, totals, starts, here) for s in slices]
            pending: list[list[Batch]] = [[] for _ in workers]
            aggregates: Mapping[str, Any] = {}
            number = 0
            found = self._restore(workers) if self.checkpoints is not None and resume else None
            if found is not None:
                restored, pending = found
                number, aggregates = restored.superstep, restored.aggregates
                ledger.reported = restored.reported
                if team.rank == 0:
                    ledger.rows = restored.rows
                    self.counted = len(ledger.rows)
            else:
                with ledger.phase("init"), team.together(self.doing("init")):
                    run_all(pool, [w.init for w in workers], team.listen)
            while True:
                number += 1
                with ledger.phase("exchange"):
                    active = self._deliver(pool, workers, pending, number)
                if not active:
                    break
                try:
                    check_limit(self.program, number, self.max_supersteps, active)
                except JobError as error:
                    raise team.alike(error) from None
                pending, aggregates = self._superstep(pool, workers, number, aggregates, active)
            with ledger.phase("result"), team.together(self.doing("result")):
                columns = run_all(pool, [w.result for w in workers], team.listen)
        self._collect_rows()
        return columns, self._stats(number - 1)

    def _deliver(self, pool: Executor, workers: list[Worker], pending: list[list[Batch]], number: int) -> int:
        failure: Exception | None = None
        active = 0
        doing = self.doing(f"superstep {number}")
        try:
            active = sum(pool.map(lambda w, b: w.deliver(b), workers, pending))
        except Exception as error:
            failure = JobError(f"{doing}: {error}") if isinstance(error, JobError) else error
            self.team.alarm()
        return int(self.team.settle(failure, doing, active).sum())

    def _superstep(
        self,
        pool: Executor,
        workers: list[Worker],
        number: int,
        aggregates: Mapping[str, Any],
        active: int,
    ) -> tuple[list[list[Batch]], Mapping[str, Any]]:
        ledger, team = self.ledger, self.team
        ran = [int(w.active.size) for w in workers]
        failure: Exception | None = None
        outputs: list[StepOutput] = []
        control: Control | None = None
        doing = self.doing(f"superstep {number}")
        try:
            with ledger.phase("compute"):
                tasks = [task for w in workers for task in w.tasks(number, aggregates)]
                tasks.sort(key=lambda task: -task[0])
                run_all(pool, [work for _, work in tasks], team.listen)
            with ledger.phase("exchange"):
                outputs = list(pool.map(Worker.collect, workers))
                control = self.exchange.prepare(outputs)
        except Stopped as stopped:
            failure = stopped
        except Exception as error:
            failure = error
            team.alarm()
        with ledger.phase("exchange"):
            heard = self.exchange.agree(control or self.exchange.failed(failure))
            team.judge(heard.statuses, failure, doing)
            assert control is not None
            pending = self.exchange.deliver(control, heard)
            aggregates = fold(self.program, heard.contributions)
            ledger.reported.update(aggregates)
        ledger.count(number, workers, ran, outputs)
        saves = self.checkpoints is not None and self.checkpoints.due(number, heard.asked)
        if self.checkpoints is not None and saves:
            with ledger.phase("checkpoint"):
                self._save(self.checkpoints, number, workers, pending, aggregates)
        if self.progress is not None and team.rank == 0:
            self.progress(number, active, heard.sent, aggregates.get(self.program.share_done))
        if saves and heard.asked == LEAVING:
            raise team.alike(LeavingError(f"ended with a checkpoint of superstep {number}"))
        return pending, aggregates

    # -- checkpoints: every member writes its partitions, the first publishes them

    def _save(
        self,
        checkpoints: CheckpointFolder,
        number: int,
        workers: list[Worker],
        pending: list[list[Batch]],
        aggregates: Mapping[str, Any],
    ) -> None:
        team = self.team
        doing = self.doing(f"superstep {number}, checkpoint")
        with team.together(doing):
            if team.rank == 0:
                checkpoints.begin(number)
        written: dict[str, str] = {}
        with team.together(doing):
            if not checkpoints.has_begun(number):
                raise InputError(
                    f"{checkpoints.path} differs on this machine; --checkpoint-dir must be shared by {team.all_called}"
                )
            written = checkpoints.write_parts(number, workers, pending)
        found = team.gather("\n".join(f"{digest} {name}" for name, digest in written.items()).encode())
        self._collect_rows()
        with team.together(doing):
            if found is not None:
                lines = [line for block in found for line in block.tobytes().decode().splitlines()]
                checksums = {name: digest for digest, _, name in (line.partition(" ") for line in lines)}
                checkpoints.publish(
                    number, dict(sorted(checksums.items())), aggregates, self.ledger.reported, self.ledger.rows
                )

    def _restore(self, workers: list[Worker]) -> tuple[Checkpoint, list[list[Batch]]] | None:
        assert self.checkpoints is not None
        team = self.team
        failure: Exception | None = None
        found = None
        doing = self.doing("resume")
        try:
            found = self.checkpoints.load(workers)
        except Exception as error:
            failure = error
            team.alarm()
        supersteps = team.settle(failure, doing, -1 if found is None else found[0].superstep)
        if (supersteps != supersteps[0]).any():
            raise InputError(
                f"{self.checkpoints.path} has other checkpoints on other machines; --checkpoint-dir must be shared by "
                f"{team.all_called}"
            )
        return found

    # -- counters

    def _collect_rows(self) -> None:
        """Bring the counter rows of all members since the last time to the first."""
        ledger = self.ledger
        found = self.team.gather(pack_tables([ledger.table(self.counted)]))
        if found is None:
            self.counted = len(ledger.rows)
            return
        for block in found[1:]:
            ledger.rows += unpack_tables(block)[0].to_pylist()
        ledger.rows.sort(key=lambda row: (row["superstep"], row["partition"]))
        self.counted = len(ledger.rows)

    def _stats(self, supersteps: int) -> RunStats:
        figures = [*(self.ledger.phases[name] for name in PHASES), float(self.threads)]
        figures_of_all = self.team.everyone(np.array(figures).view(np.int64)).view(np.float64)
        longest = figures_of_all[:, :-1].max(axis=0)
        longest[PHASES.index("exchange")] = figures_of_all[:, PHASES.index("exchange")].min()
        self.ledger.phases = dict(zip(PHASES, longest.tolist(), strict=True))
        return self.ledger.stats(self.team.engine, int(figures_of_all[:, -1].sum()), supersteps, self.team.size)
