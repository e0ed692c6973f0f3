"""`run`: any algorithm or program, on a graph in memory or a partitioned one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from goffish.algorithms.algorithm import Algorithm, Note
from goffish.algorithms.catalogue import make
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import Result, SubgraphProgram, run_program
from goffish.gopher.folder import check_folder, write_folder
from goffish.gopher.local import Progress
from goffish.gopher.run import ENGINES, run_on_ranks
from goffish.graph import Graph
from goffish.graph.guards import GRAPH_ADVICE, expect, path_name, whole_number
from goffish.graph.parallel import thread_count
from goffish.partial import local_path
from goffish.partition.cut import partition_graph

if TYPE_CHECKING:
    from goffish.gopher.mpi import Team

Units = Literal["components", "single", "vertex"]
UNITS: tuple[Units, ...] = ("components", "single", "vertex")

#: Algorithms whose program gives the final table, so that ranks can write its rows without bringing them together.
_FINAL_TABLES = {
    "components", "bfs", "sssp", "pagerank", "blockrank", "triangles", "cores", "max-value", "counts", "quotient",
}  # fmt: skip


def run(
    algorithm: str | SubgraphProgram,
    graph: Graph | PartitionedGraph | None,
    engine: str = "auto",
    *,
    comm: Any = None,
    spark: Any = None,
    output: str | Path | None = None,
    parts: int | None = None,
    method: str | None = None,
    units: Units | None = None,
    threads: int | None = None,
    max_supersteps: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    note: Note | None = None,
    **options: Any,
) -> Result:
    """Run an algorithm by name, or a program of your own.

    Parameters
    ----------
    algorithm : str or SubgraphProgram
        A name from `goffish.algorithms.catalogue.ALGORITHMS`, or an instance of your program.
    graph : Graph or PartitionedGraph
        A graph in memory is partitioned first where the engine is asked for.
    engine : {"auto", "local", "mpi", "spark"}
        ``auto`` answers a graph in memory by the algorithm's whole-graph kernel, where it has one and nothing that
        only the engine offers is asked for; a partitioned graph always runs on the engine. ``mpi`` is called alike by
        all ranks that were started together; each loads its own partitions of a store, and of a graph in memory
        rank 0's is taken (other ranks may give ``None``).
    comm : mpi4py.MPI.Comm, optional
        For ``mpi``; default: ``MPI.COMM_WORLD``.
    spark : pyspark.sql.SparkSession, optional
        For ``spark``; default: the running session, or `goffish.spark.session()`.
    output : path, optional
        For ``mpi`` and ``spark``: a folder for the table as Parquet, written by all ranks or executors at once where
        the algorithm allows it; the result then holds no rows.
    parts, method
        How to partition a graph in memory, on the engine (default: one part per thread of all ranks, METIS).
    units : {"components", "single", "vertex"}, optional
        Unit of computation: sub-graphs, whole partitions, or vertices. Default: as the graph was partitioned.
    threads, max_supersteps, checkpoint_dir, checkpoint_every, resume
        See `goffish.gopher.run_program`; any but `threads` asks for the engine, but `checkpoint_dir` and `resume` serve
        whole-graph kernels that may run for hours as well. Default for `checkpoint_every`: 10.
    progress : callable, optional
        Called by the engine after each superstep with its number, the sub-graphs that ran, the messages sent and the
        share of the work that is done (None where a program cannot tell); a whole-graph kernel has no supersteps, and
        `progress` does not change which of the two answers.
    note : callable, optional
        Called with a line of text by whole-graph kernels that may take long.
    **options
        Of the algorithm.

    Returns
    -------
    Result
        On ``mpi`` rank 0 has it; the others have a plain `Result` with the same summary, without rows and counters.

    Raises
    ------
    InputError
        Unknown algorithm, option or vertex label; a graph that the algorithm cannot work on.
    JobError
        The program failed while it ran.
    """
    if engine not in ("auto", *ENGINES):
        raise InputError(f"engine={engine!r}: choose one of {', '.join(('auto', *ENGINES))}")
    if engine != "mpi" and comm is not None:
        raise InputError("comm is for engine='mpi'")
    if engine in ("auto", "local") and output is not None:
        raise InputError("output is for engine='mpi' and engine='spark'")
    if engine != "spark" and spark is not None:
        raise InputError("spark is for engine='spark'")
    if engine == "spark" and threads is not None:
        raise InputError(f"threads={threads}: Spark shares out its own processors; leave out threads")
    if units is not None and units not in UNITS:
        raise InputError(f"units={units!r}: choose one of {', '.join(UNITS)}")
    expect(algorithm, (str, SubgraphProgram), "algorithm", "give the name of one, or an instance such as MyProgram()")
    if graph is not None or engine != "mpi":
        expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    job = make(algorithm, options) if isinstance(algorithm, str) else None
    if job is None and options:
        raise InputError(f"options {', '.join(options)}: give them to the program when you make it")
    thread_count(threads)
    _check_engine_options(max_supersteps, checkpoint_dir, checkpoint_every, resume, progress)
    if job is not None and job.in_memory:
        _refuse_engine(
            job, engine=None if engine == "auto" else engine, parts=parts, method=method, units=units,
            max_supersteps=max_supersteps, checkpoint_dir=checkpoint_dir,
        )  # fmt: skip
        graph = graph.to_graph() if isinstance(graph, PartitionedGraph) else graph
    if job is not None and isinstance(graph, Graph) and engine == "auto":
        asked = (parts, method, units, max_supersteps, checkpoint_every)
        if not job.needs_engine() and all(option is None for option in asked):
            if checkpoint_dir is None:
                return replace(job.whole(graph, threads, note), algorithm=job.name)
            if job.resumes_whole():
                found = job.whole_resumable(graph, threads, note, local_path(checkpoint_dir), resume)
                return replace(found, algorithm=job.name)
    if engine == "mpi":
        from goffish.gopher.mpi.job import open_team

        running = {
            "threads": threads, "max_supersteps": max_supersteps, "checkpoint_dir": checkpoint_dir,
            "checkpoint_every": 10 if checkpoint_every is None else checkpoint_every, "resume": resume,
            "progress": progress,
        }  # fmt: skip
        with open_team(comm) as team:
            return _on_ranks(
                team, algorithm if job is None else job, graph, output, (parts, method, units), running, note
            )
    assert graph is not None
    if output is not None:
        check_folder(output)
    partitioned, seconds = _partitioned(graph, job, parts, method, units, threads)
    for label in [] if job is None else job.labels():
        partitioned.find(label)
    program = job.program(partitioned.info.finder) if job is not None else algorithm
    assert isinstance(program, SubgraphProgram)
    final = job is None or job.name in _FINAL_TABLES
    result = run_program(
        program, partitioned, engine="local" if engine == "auto" else engine, spark=spark,
        output=output if final else None, threads=threads,
        max_supersteps=max_supersteps, checkpoint_dir=checkpoint_dir,
        checkpoint_every=10 if checkpoint_every is None else checkpoint_every, resume=resume, progress=progress,
    )  # fmt: skip
    if output is not None and final:
        return result if job is None else replace(result, algorithm=job.name)
    result = _concluded(job, partitioned, result, seconds, note)
    return result if output is None else _written(result, output)


def _written(result: Result, output: str | Path) -> Result:
    """The result without its rows, which are in a folder now."""
    write_folder(result.table, output, result.algorithm)
    told = {"rows": result.table.num_rows, "parts": 1}
    return Result(result.algorithm, result.table.slice(0, 0), {**result.summary, **told}, result.stats)


def _concluded(
    job: Algorithm | None, graph: PartitionedGraph, result: Result, seconds: float, note: Note | None
) -> Result:
    """The algorithm's answer from what its program gave; `seconds` went into partitioning."""
    stats = result.stats
    if stats is not None and seconds:
        stats = replace(stats, phases={"partition": round(seconds, 6), **stats.phases})
    if job is None:
        return replace(result, stats=stats)
    assert stats is not None
    answer = job.conclude(graph, result.table, stats, note)
    return replace(answer, algorithm=job.name, summary={**answer.summary, **result.summary})


def _on_ranks(
    team: Team,
    what: Algorithm | SubgraphProgram | str,
    graph: Graph | PartitionedGraph | None,
    output: str | Path | None,
    cut: tuple[int | None, str | None, Units | None],
    running: dict[str, Any],
    note: Note | None,
) -> Result:
    """Run on the ranks of a team; all of them come here."""
    from goffish.gopher.mpi.job import check_label, share_graph

    job = what if isinstance(what, Algorithm) else None
    seconds = 0.0
    with team.together("output"):
        if output is not None and team.rank == 0:
            check_folder(output)
    if isinstance(graph, PartitionedGraph) and graph.path is not None and cut[2] in (None, graph.info.finder):
        with team.together("partitioning"):
            partitioned, _ = _partitioned(graph, job, *cut, running["threads"])
    else:
        parts, method, units = cut
        ready = isinstance(graph, PartitionedGraph)
        threads = team.local_threads() if running["threads"] is None else running["threads"]
        total = int(team.settle(None, "partitioning", threads).sum())

        def make() -> PartitionedGraph:
            nonlocal seconds
            expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
            assert graph is not None
            made, seconds = _partitioned(
                graph, job, total if parts is None and not ready else parts, method, units, None
            )
            return made

        partitioned = share_graph(team, make)
    for label in [] if job is None else job.labels():
        check_label(team, partitioned, label)
    program: Any = what
    with team.together("options"):
        if job is not None:
            # Made once: options that are left out may be drawn by chance.
            program = job.program(partitioned.info.finder)
    if job is not None:
        program = team.comm.bcast(program, root=0)
    final = job is None or job.name in _FINAL_TABLES
    result, answered = run_on_ranks(program, partitioned, team, output=output if final else None, **running)
    with team.together("result"):
        if team.rank == 0 and not (final and output is not None):
            result = _concluded(job, answered, result, seconds, note)
            if output is not None:
                result = _written(result, output)
    result = result if job is None else replace(result, algorithm=job.name)
    summary = team.comm.bcast(dict(result.summary), root=0)
    return result if team.rank == 0 else replace(result, summary=summary)


def _check_engine_options(
    max_supersteps: Any, checkpoint_dir: Any, checkpoint_every: Any, resume: bool, progress: Any
) -> None:
    """Refuse what the engine could not follow, before any work is done and whichever route is taken."""
    if max_supersteps is not None:
        whole_number(max_supersteps, "max_supersteps")
    if checkpoint_every is not None:
        whole_number(checkpoint_every, "checkpoint_every")
    if checkpoint_dir is not None:
        path_name(checkpoint_dir, "checkpoint_dir")
        local_path(checkpoint_dir)
    elif resume or checkpoint_every is not None:
        raise InputError(f"{'resume' if resume else 'checkpoint_every'} needs checkpoint_dir")
    if progress is not None and not callable(progress):
        raise InputError(f"progress={progress!r}: give a function of (superstep, sub-graphs that ran, messages)")


def _refuse_engine(job: Algorithm, **asked: Any) -> None:
    """Refuse what only the engine offers, for an algorithm that has no program."""
    given = [name for name, value in asked.items() if value is not None]
    if given:
        raise InputError(f"{job.name} is computed on the whole graph in memory: leave out {', '.join(given)}")


def _partitioned(
    graph: Graph | PartitionedGraph,
    job: Algorithm | None,
    parts: int | None,
    method: str | None,
    units: Units | None,
    threads: int | None,
) -> tuple[PartitionedGraph, float]:
    """The graph cut into the wanted units, and the seconds that took."""
    undirected = job is not None and job.undirected
    begun = time.perf_counter()
    if isinstance(graph, PartitionedGraph):
        if method is not None:
            raise InputError(
                f"method={method!r}: the graph is partitioned already; gf.partition(graph, ...) cuts it anew"
            )
        if parts is not None and parts != graph.num_partitions:
            raise InputError(f"parts={parts}: the graph is partitioned into {graph.num_partitions} already")
        turned = undirected and graph.info.directed
        if not turned and (units is None or units == graph.info.finder):
            return graph, 0.0
        whole = graph.to_graph()
        cut = build_layout(
            whole.to_undirected() if turned else whole, graph.owner(), graph.num_partitions,
            finder=units or graph.info.finder,  # type: ignore[arg-type]
            partitioner=graph.info.partitioner,
        )  # fmt: skip
        return cut, time.perf_counter() - begun
    if undirected:
        graph = graph.to_undirected()
    cut = partition_graph(
        graph,
        thread_count(threads) if parts is None else parts,
        "metis" if method is None else method,
        units=units or "components",
    )
    return cut, time.perf_counter() - begun
