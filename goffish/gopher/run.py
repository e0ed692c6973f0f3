"""Run a program on an engine and put its answer into the user's labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gofs import PartitionedGraph
from goffish.gopher.checkpoint import CheckpointFolder, stable
from goffish.gopher.local import Columns, Progress, run_local
from goffish.gopher.program import SubgraphProgram, check_program
from goffish.gopher.result import Result
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.gopher.mpi import Team

ENGINES = ("local", "mpi", "spark")


def run_program(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    *,
    engine: str = "local",
    comm: Any = None,
    spark: Any = None,
    output: str | Path | None = None,
    threads: int | None = None,
    max_supersteps: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run `program` on a partitioned graph.

    Parameters
    ----------
    engine : {"local", "mpi", "spark"}
        ``mpi`` is called by all ranks of a communicator alike, see `goffish.gopher.mpi`; ``spark`` on the driver only,
        see `goffish.gopher.spark`.
    comm : mpi4py.MPI.Comm, optional
        For ``mpi``; default: ``MPI.COMM_WORLD``.
    spark : pyspark.sql.SparkSession, optional
        For ``spark``; default: the running session, or `goffish.spark.session()`.
    output : path, optional
        For ``mpi`` and ``spark``: a folder into which every rank, or every task of an executor, writes its rows as
        Parquet; the result then holds none.
    threads : int, optional
        Of this process. Default: the cores it may use, on ``mpi`` shared with the ranks that may use the same ones.
    max_supersteps : int, optional
        Fail the job when it has not ended by then.
    checkpoint_dir : path, optional
        Write a checkpoint there every `checkpoint_every` supersteps.
    resume : bool
        Go on from the newest checkpoint in `checkpoint_dir`; start anew where there is none.
    progress : callable, optional
        Called after each superstep with (superstep, sub-graphs that ran, messages sent, share of the work done or
        None).

    Returns
    -------
    Result
        Rows in the order of the vertices as the graph was read. On ``mpi`` rank 0 has it, and the other ranks have a
        result with the same summary, without rows and counters.
    """
    check_running(program, graph, engine, threads, checkpoint_dir, checkpoint_every, resume)
    if engine != "mpi" and comm is not None:
        raise InputError("comm is for engine='mpi'")
    if engine == "local" and output is not None:
        raise InputError("output is for engine='mpi' and engine='spark'")
    if engine != "spark" and spark is not None:
        raise InputError("spark is for engine='spark'")
    if engine == "local":
        columns, stats = run_local(
            program,
            graph,
            threads=threads or len(os.sched_getaffinity(0)),
            max_supersteps=max_supersteps,
            checkpoints=_checkpoints(program, graph, checkpoint_dir, checkpoint_every),
            resume=resume,
            progress=progress,
        )
        return Result(program.name(), assemble(program, graph, columns), {"supersteps": stats.supersteps}, stats)
    if engine == "spark":
        if threads is not None:
            raise InputError(f"threads={threads}: Spark shares out its own processors; leave out threads")
        from goffish.gopher.spark import run_spark, write_spark

        running: dict[str, Any] = {
            "spark": spark, "max_supersteps": max_supersteps,
            "checkpoints": _checkpoints(program, graph, checkpoint_dir, checkpoint_every),
            "checkpoint_every": checkpoint_every, "resume": resume, "progress": progress,
        }  # fmt: skip
        if output is not None:
            parts, stats = write_spark(program, graph, output, **running)
            told = {"supersteps": stats.supersteps, "rows": sum(part.rows for part in parts), "parts": len(parts)}
            return Result(program.name(), pa.table({}), told, stats)
        columns, stats = run_spark(program, graph, **running)
        return Result(program.name(), assemble(program, graph, columns), {"supersteps": stats.supersteps}, stats)
    from goffish.gopher.mpi.job import open_team

    with open_team(comm) as team:
        return run_on_ranks(
            program, graph, team, output=output, threads=threads, max_supersteps=max_supersteps,
            checkpoint_dir=checkpoint_dir, checkpoint_every=checkpoint_every, resume=resume, progress=progress,
        )[0]  # fmt: skip


def run_on_ranks(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    team: Team,
    *,
    output: str | Path | None = None,
    threads: int | None = None,
    max_supersteps: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[Result, PartitionedGraph]:
    """As `run_program` on the ranks of a team; also the graph, on rank 0 with the labels that came from other ranks."""
    from goffish.gopher.mpi.answer import gather_answer
    from goffish.gopher.mpi.engine import run_mpi
    from goffish.gopher.mpi.job import check_same
    from goffish.gopher.mpi.output import write_answer

    check_same(team, program, graph)
    with team.together("checkpoints"):
        checkpoints = _checkpoints(program, graph, checkpoint_dir, checkpoint_every)
    columns, stats = run_mpi(
        program, graph, team, threads=threads, max_supersteps=max_supersteps, checkpoints=checkpoints, resume=resume,
        progress=progress,
    )  # fmt: skip
    summary = {"supersteps": stats.supersteps}
    counters = None if team.rank else stats
    if output is not None:
        rows, parts = write_answer(team, program, graph, columns, local_path(output), program.name())
        return Result(program.name(), pa.table({}), {**summary, "rows": rows, "parts": parts}, counters), graph
    found = gather_answer(team, program, graph, columns)
    table = pa.table({})
    with team.together("result"):
        if found is not None:
            table, graph = assemble(program, found[1], found[0]), found[1]
    return Result(program.name(), table, summary, counters), graph


def check_running(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    engine: str,
    threads: int | None,
    checkpoint_dir: str | Path | None,
    checkpoint_every: int,
    resume: bool,
) -> None:
    """Refuse what no engine could follow, before any work is done."""
    if engine not in ENGINES:
        raise InputError(f"engine={engine!r}: choose one of {', '.join(ENGINES)}")
    check_program(program)
    if program.needs_connected and graph.info.finder == "single":
        raise InputError(f"{program.name()} needs connected sub-graphs; this graph's units are whole partitions")
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads}: at least 1")
    if checkpoint_every < 1:
        raise InputError(f"checkpoint_every={checkpoint_every}: at least 1")
    if checkpoint_dir is not None:
        local_path(checkpoint_dir)
    elif resume:
        raise InputError("resume needs checkpoint_dir")


def _checkpoints(
    program: SubgraphProgram, graph: PartitionedGraph, path: str | Path | None, every: int
) -> CheckpointFolder | None:
    if path is None:
        return None
    given = {name: value for name, value in vars(program).items() if name not in program.may_change}
    options = {name: stable(name, value) for name, value in sorted(given.items())}
    identity = {"program": program.name(), "options": options, "graph": graph.fingerprint()}
    return CheckpointFolder(local_path(path), every, identity)


def assemble(program: SubgraphProgram, graph: PartitionedGraph, parts: Columns) -> pa.Table:
    """The table of a run from the columns of all partitions, in their order."""
    filled = [columns for columns in parts if columns]
    names = list(filled[0]) if filled else []
    for part in filled:
        if list(part) != names:
            raise JobError(f"{program.name()}, result: columns {names} in one partition, {list(part)} in another")
    values: dict[str, NDArray[Any]] = {n: np.concatenate([c[n] for c in filled]) for n in names}
    columns: dict[str, Any] = {}
    if program.rows == "vertex":
        order = graph.read_order()
        columns["vertex"] = graph.labels().take(pa.array(order))
        values = {name: column[order] for name, column in values.items()}
    elif program.rows == "subgraph":
        columns["partition"] = np.repeat(np.arange(graph.num_partitions), graph.info.subgraphs)
        columns["subgraph"] = np.arange(graph.num_subgraphs)
    for name, column in values.items():
        if name in program.label_columns:
            columns[name] = graph.labels_by_number().take(pa.array(column, mask=column < 0))
        elif name in program.nullable:
            columns[name] = pa.array(column, mask=column < 0)
        else:
            columns[name] = column
    return pa.table(columns)
