"""Dispatch: an algorithm or program on a graph is answered by a whole-graph kernel, or by an engine."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import fields, replace
from typing import Any, Literal

from goffish.algorithms.algorithm import Algorithm, Note
from goffish.errors import GoffishWarning, InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import Result, RunOptions, SubgraphProgram
from goffish.gopher.folder import check_folder, write_folder
from goffish.gopher.run import check_fit, open_engine
from goffish.graph import Graph, Parallel
from goffish.graph.guards import GRAPH_ADVICE, expect
from goffish.notebook import following, in_notebook
from goffish.partition.cut import partition_graph
from goffish.threads import interruptible

Units = Literal["components", "single", "vertex"]
UNITS: tuple[Units, ...] = ("components", "single", "vertex")
AnyGraph = Graph | PartitionedGraph

#: Names of the options of `answer`, and so of `goffish.run`, that are no options of an algorithm.
RUN_OPTIONS = frozenset({field.name for field in fields(RunOptions)} | {"parts", "method", "units", "note"})


def answer(
    what: Algorithm | SubgraphProgram,
    graph: AnyGraph | None,
    engine: str = "auto",
    *,
    parts: int | None = None,
    method: str | None = None,
    units: Units | None = None,
    note: Note | None = None,
    **running: Any,
) -> Result:
    """Answer by a whole-graph kernel or an engine; see `goffish.run`, whose options these are."""
    given = parts, method, units
    # IPython is imported in the kernel of a notebook, and hardly anywhere else.
    if "IPython" not in sys.modules or not in_notebook() or note is not None or running.get("progress") is not None:
        return _answer(what, graph, engine, given, note, running)
    name = what.name if isinstance(what, Algorithm) else type(what).__name__
    with following(name) as (progress, line):
        return _answer(what, graph, engine, given, line, running | {"progress": progress})


def _answer(
    what: Algorithm | SubgraphProgram,
    graph: AnyGraph | None,
    engine: str,
    cut: tuple[int | None, str | None, Units | None],
    note: Note | None,
    running: dict[str, Any],
) -> Result:
    parts, method, units = cut
    options = RunOptions(engine="local" if engine == "auto" else engine, **running)
    if units is not None and units not in UNITS:
        raise InputError(f"units={units!r}: choose one of {', '.join(UNITS)}")
    if not isinstance(graph, Graph | PartitionedGraph) and (graph is not None or engine != "mpi"):
        expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    job = what if isinstance(what, Algorithm) else None
    if job is not None and job.in_memory:
        asked = {
            "engine": None if engine == "auto" else engine, "parts": parts, "method": method, "units": units,
            "max_supersteps": options.max_supersteps, "checkpoint_dir": options.checkpoint_dir,
        }  # fmt: skip
        given = [name for name, value in asked.items() if value is not None]
        if given:
            raise InputError(f"{job.name} runs only in memory; omit {', '.join(given)}")
        graph = graph.to_graph() if isinstance(graph, PartitionedGraph) else graph
    if job is not None and isinstance(graph, Graph) and engine == "auto" and not job.needs_engine():
        only_engines = (parts, method, units, options.max_supersteps, options.checkpoint_every)
        if all(option is None for option in only_engines):
            if options.threads is not None and (single := job.single_threaded()):
                message = f"threads={options.threads} has no effect: {single} uses one thread; omit threads"
                warnings.warn(message, GoffishWarning, stacklevel=4)
            # Algorithms of one thread make only their kernel interruptible, so that this thread reuses its memory.
            work = 0 if job.one_thread else graph.num_arcs
            if options.checkpoint_dir is None:
                found = interruptible(work, job.whole, graph, options.threads, note)
                return replace(found, algorithm=job.name)
            if job.resumes_whole():
                folder = os.fspath(options.checkpoint_dir)
                found = interruptible(work, job.whole_resumable, graph, options.threads, note, folder, options.resume)
                return replace(found, algorithm=job.name)
    return _on_engine(what, graph, cut, options, note)


def _on_engine(
    what: Algorithm | SubgraphProgram,
    graph: AnyGraph | None,
    cut: tuple[int | None, str | None, Units | None],
    options: RunOptions,
    note: Note | None,
) -> Result:
    """Answer on an engine; on ranks all of them come here."""
    job = what if isinstance(what, Algorithm) else None
    parts, method, units = cut
    seconds = 0.0

    def make(workers: int) -> PartitionedGraph:
        nonlocal seconds
        expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
        assert graph is not None
        wanted = workers if parts is None and isinstance(graph, Graph) else parts
        parallel = job.parallel if job is not None and job.undirected else None
        made, seconds = _partitioned(graph, parallel, wanted, method, units)
        return made

    output = options.output
    in_parts = output is not None and (job is None or job.final_table)
    with open_engine(options if in_parts else replace(options, output=None)) as engine:
        with engine.together("output"):
            if output is not None and engine.leads:
                check_folder(output)
        stored = isinstance(graph, PartitionedGraph) and graph.path is not None and units in (None, graph.info.finder)
        partitioned = engine.share(make, everywhere=stored)
        for label in [] if job is None else job.labels():
            engine.check_label(partitioned, label)
        if isinstance(what, Algorithm):
            # Made once: options that are left out may be drawn by chance, and only one process may have all labels.
            made: Any = None
            with engine.together("options"):
                if engine.leads:
                    made = what.program(partitioned)
            program: SubgraphProgram = engine.same(made)
        else:
            program = what
        check_fit(program, partitioned)
        result, answered = engine.run(program, partitioned)
        with engine.together("result"):
            if engine.leads and not in_parts:
                result = _concluded(job, answered, result, seconds, note)
                if output is not None:
                    write_folder(result.table, output, result.algorithm)
                    counts = {"rows": result.table.num_rows, "parts": 1}
                    empty = result.table.slice(0, 0)
                    result = Result(result.algorithm, empty, {**result.summary, **counts}, result.stats)
        summary = engine.same(dict(result.summary))
    result = result if job is None else replace(result, algorithm=job.name)
    return result if engine.leads else replace(result, summary=summary)


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
    found = job.conclude(graph, result.table, stats, note)
    return replace(found, algorithm=job.name, summary={**found.summary, **result.summary})


def _partitioned(
    graph: AnyGraph, parallel: Parallel | None, parts: int | None, method: str | None, units: Units | None
) -> tuple[PartitionedGraph, float]:
    """The graph cut into the wanted units, and the seconds that took; without directions if `parallel` is given."""
    begun = time.perf_counter()
    if isinstance(graph, PartitionedGraph):
        if method is not None:
            raise InputError(
                f"method={method!r}: the graph is already partitioned; partition it again with gf.partition(graph, ...)"
            )
        if parts is not None and parts != graph.num_partitions:
            raise InputError(f"parts={parts}: the graph already has {graph.num_partitions} partitions; omit parts")
        turned = parallel if graph.info.directed else None
        if turned is None and (units is None or units == graph.info.finder):
            return graph, 0.0
        whole = graph.to_graph()
        cut = build_layout(
            whole if turned is None else whole.to_undirected(parallel=turned), graph.owner(), graph.num_partitions,
            finder=units or graph.info.finder,  # type: ignore[arg-type]
            partitioner=graph.info.partitioner,
        )  # fmt: skip
        return cut, time.perf_counter() - begun
    assert parts is not None
    cut = partition_graph(
        graph if parallel is None else graph.to_undirected(parallel=parallel), parts,
        "metis" if method is None else method, units=units or "components",
    )  # fmt: skip
    return cut, time.perf_counter() - begun
