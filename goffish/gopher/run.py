"""Run a program on an engine and put its answer into the user's labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gopher.engine import Engine, RunOptions
from goffish.gopher.local import LocalEngine
from goffish.gopher.program import SubgraphProgram, check_program
from goffish.gopher.result import Result
from goffish.graph.guards import options_of


def run_program(program: SubgraphProgram, graph: PartitionedGraph, **options: Any) -> Result:
    """Run `program` on a partitioned graph.

    Parameters
    ----------
    **options
        ``engine``, ``threads``, ``max_supersteps``, ``checkpoint_dir`` and others: see `goffish.gopher.RunOptions`.

    Returns
    -------
    Result
        Rows in the order of the vertices as the graph was read. On ``mpi`` rank 0 has it, and the other ranks have a
        result with the same summary, without rows and counters.

    Raises
    ------
    InputError
        A program or an option that means nothing.
    JobError
        The program failed while it ran.
    """
    return run_with(program, graph, options_of(RunOptions, options))


def run_with(program: SubgraphProgram, graph: PartitionedGraph, options: RunOptions) -> Result:
    """As `run_program`."""
    check_fit(program, graph)
    with open_engine(options) as engine:
        return engine.run(program, graph)[0]


def check_fit(program: SubgraphProgram, graph: PartitionedGraph) -> None:
    """Refuse a program that cannot run on a graph, before any work is done."""
    check_program(program)
    if program.needs_connected and graph.info.finder == "single":
        raise InputError(f"{program.name()} requires connected subgraphs; the units of this graph are whole partitions")


@contextmanager
def open_engine(options: RunOptions) -> Iterator[Engine]:
    """The engine that was asked for, for the length of a job."""
    if options.engine == "mpi":
        from goffish.gopher.mpi.job import MpiEngine, open_team

        with open_team(options.comm) as team:
            yield MpiEngine(team, options)
    elif options.engine == "spark":
        from goffish.gopher.spark import SparkEngine

        yield SparkEngine(options)
    else:
        yield LocalEngine(options)
