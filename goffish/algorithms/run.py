"""`run`: any algorithm by name, or a program, on a graph in memory or a partitioned one."""

from __future__ import annotations

from typing import Any

from goffish.algorithms.algorithm import Note
from goffish.algorithms.catalogue import make
from goffish.algorithms.dispatch import RUN_OPTIONS, AnyGraph, Units, answer
from goffish.errors import InputError
from goffish.gopher import Result, SubgraphProgram
from goffish.gopher.engine import ENGINES
from goffish.graph.guards import expect


def run(
    algorithm: str | SubgraphProgram,
    graph: AnyGraph | None,
    engine: str = "auto",
    *,
    parts: int | None = None,
    method: str | None = None,
    units: Units | None = None,
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
    parts, method
        How to partition a graph in memory, on the engine (default: one part per thread of all ranks, METIS).
    units : {"components", "single", "vertex"}, optional
        Unit of computation: subgraphs, whole partitions, or vertices. Default: as the graph was partitioned.
    note : callable, optional
        Called with a line of text by whole-graph kernels that may take long.
    **options
        ``comm``, ``spark``, ``output``, ``threads``, ``max_supersteps``, ``checkpoint_dir``, ``checkpoint_every``,
        ``resume`` and ``progress`` as of `goffish.gopher.RunOptions`; all others are the algorithm's. With ``output``
        ranks and executors write the table at once where the algorithm allows it. ``max_supersteps`` and
        ``checkpoint_every`` ask for the engine; ``threads``, ``checkpoint_dir`` and ``resume`` serve whole-graph
        kernels as well. ``progress`` does not change which of the two answers: a kernel has no supersteps.

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
    expect(algorithm, (str, SubgraphProgram), "algorithm", "give the name of one, or an instance such as MyProgram()")
    running = {name: options.pop(name) for name in RUN_OPTIONS & options.keys()}
    what = make(algorithm, options) if isinstance(algorithm, str) else algorithm
    if what is algorithm and options:
        raise InputError(f"options {', '.join(options)}: give them to the program when you make it")
    return answer(what, graph, engine, parts=parts, method=method, units=units, note=note, **running)
