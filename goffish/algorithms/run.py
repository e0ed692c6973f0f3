"""`run`: any algorithm or program, on a graph in memory or a partitioned one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from goffish.algorithms.catalogue import Algorithm, make
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import Result, SubgraphProgram, run_program
from goffish.gopher.local import Progress
from goffish.graph import Graph
from goffish.graph.parallel import thread_count
from goffish.partition.cut import partition_graph

Units = Literal["components", "single", "vertex"]
UNITS: tuple[Units, ...] = ("components", "single", "vertex")


def run(
    algorithm: str | SubgraphProgram,
    graph: Graph | PartitionedGraph,
    engine: str = "auto",
    *,
    parts: int | None = None,
    method: str = "metis",
    units: Units | None = None,
    threads: int | None = None,
    max_supersteps: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Result:
    """Run an algorithm by name, or a program of your own.

    Parameters
    ----------
    algorithm : str or SubgraphProgram
        A name from `goffish.algorithms.catalogue.ALGORITHMS`, or an instance of your program.
    graph : Graph or PartitionedGraph
        A graph in memory is partitioned first where the engine is asked for.
    engine : {"auto", "local"}
        ``auto`` answers a graph in memory by the algorithm's whole-graph kernel, where it has one and nothing that only the
        engine offers is asked for; a partitioned graph always runs on the engine.
    parts, method
        How to partition a graph in memory (default: one part per thread, METIS).
    units : {"components", "single", "vertex"}, optional
        Unit of computation: sub-graphs, whole partitions, or vertices. Default: as the graph was partitioned.
    threads, max_supersteps, checkpoint_dir, checkpoint_every, resume, progress
        See `goffish.gopher.run_program`.
    **options
        Of the algorithm.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        Unknown algorithm, option or vertex label; a graph that the algorithm cannot work on.
    JobError
        The program failed while it ran.
    """
    if engine not in ("auto", "local"):
        raise InputError(f"engine={engine!r}: choose one of auto, local")
    if units is not None and units not in UNITS:
        raise InputError(f"units={units!r}: choose one of {', '.join(UNITS)}")
    job = make(algorithm, options) if isinstance(algorithm, str) else None
    if job is None and options:
        raise InputError(f"options {', '.join(options)}: give them to the program when you make it")
    if job is not None and isinstance(graph, Graph) and engine == "auto":
        asked = (parts, units, max_supersteps, checkpoint_dir)
        if not job.needs_engine() and not resume and all(option is None for option in asked):
            thread_count(threads)
            return replace(job.whole(graph, threads), algorithm=job.name)
    partitioned, seconds = _partitioned(graph, job, parts, method, units, threads)
    for label in [] if job is None else job.labels():
        partitioned.find(label)
    program = job.program(partitioned.info.finder) if job is not None else algorithm
    assert isinstance(program, SubgraphProgram)
    result = run_program(
        program, partitioned, threads=threads, max_supersteps=max_supersteps, checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every, resume=resume, progress=progress,
    )  # fmt: skip
    stats = result.stats
    if stats is not None and seconds:
        stats = replace(stats, phases={"partition": round(seconds, 6), **stats.phases})
    if job is None:
        return replace(result, stats=stats)
    table, summary = job.finish(result.table)
    return Result(job.name, table, {**summary, **result.summary}, stats)


def _partitioned(
    graph: Graph | PartitionedGraph,
    job: Algorithm | None,
    parts: int | None,
    method: str,
    units: Units | None,
    threads: int | None,
) -> tuple[PartitionedGraph, float]:
    """The graph cut into the wanted units, and the seconds that took."""
    undirected = job is not None and job.undirected
    begun = time.perf_counter()
    if isinstance(graph, PartitionedGraph):
        if parts is not None and parts != graph.num_partitions:
            raise InputError(f"parts={parts}: the graph is partitioned into {graph.num_partitions} already")
        if undirected and graph.info.directed:
            assert job is not None
            raise InputError(f"{job.name} ignores directions: partition graph.to_undirected() for it")
        if units is None or units == graph.info.finder:
            return graph, 0.0
        cut = build_layout(
            graph.to_graph(), graph.owner(), graph.num_partitions, finder=units,
            partitioner=graph.info.partitioner,
        )  # fmt: skip
        return cut, time.perf_counter() - begun
    if undirected:
        graph = graph.to_undirected()
    cut = partition_graph(
        graph, thread_count(threads) if parts is None else parts, method, units=units or "components"
    )
    return cut, time.perf_counter() - begun
