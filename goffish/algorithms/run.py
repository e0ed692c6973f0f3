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
    """Run an algorithm by name, or your own program.

    Parameters
    ----------
    algorithm : str or SubgraphProgram
        Name of an algorithm, as in ``goffish run ALGORITHM``, or an instance of your program.
        ``goffish run --help`` lists the names.
    graph : Graph, PartitionedGraph or None
        Graph to analyze. The engine partitions a `Graph` first. With ``engine="mpi"`` only rank 0 needs a graph in
        memory; the other ranks may pass ``None``.
    engine : {"auto", "local", "mpi", "spark"}
        "auto" runs the in-memory kernel on a `Graph` if the algorithm has one and no option requires the engine,
        otherwise the local engine. A `PartitionedGraph` always runs on an engine. Call "mpi" from all ranks alike; each
        rank loads its own partitions of a store [default: "auto"].
    parts : int, optional
        Number of partitions of a `Graph` on the engine [default: one per thread of all ranks].
    method : str, optional
        Partitioning method of a `Graph` on the engine; see `goffish.partition` [default: "metis"].
    units : {"components", "single", "vertex"}, optional
        Unit of computation: subgraphs, whole partitions, or vertices [default: as the graph was partitioned].
    note : callable, optional
        Called with a line of text by long in-memory kernels.
    **options
        Options of the run, listed under Other Parameters, and all options of the algorithm.

    Returns
    -------
    Result
        Table, summary and, from an engine, counters. With "mpi", rank 0 holds the rows; the other ranks return the same
        summary without rows and counters.

    Other Parameters
    ----------------
    comm : mpi4py.MPI.Comm
        For "mpi": communicator [default: ``MPI.COMM_WORLD``].
    spark : pyspark.sql.SparkSession
        For "spark": session [default: the running session, or `goffish.spark.session`].
    output : path
        For "mpi" and "spark": folder or URI into which ranks or executors write the rows as Parquet. The returned table
        is then empty.
    threads : int
        Threads of this process; not for "spark" [default: the available cores].
    max_supersteps : int
        Fail if the program has not ended after this number of supersteps [default: unlimited]. Runs on the engine.
    checkpoint_dir : path
        Folder or URI for checkpoints [default: no checkpoints].
    checkpoint_every : int
        Number of supersteps between checkpoints [default: 10]. Runs on the engine.
    resume : bool
        Resume from the newest checkpoint in `checkpoint_dir`, or start from the beginning if there is none [default:
        False].
    progress : callable
        Called after each superstep with (superstep, active subgraphs, messages sent, share of the work done or None).

    Raises
    ------
    InputError
        If the algorithm, an option or a vertex label is unknown or out of range, or the algorithm does not support the
        graph.
    JobError
        If the program fails while it runs; the message names program, subgraph and superstep.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 5], [2, 3, 6])
    >>> gf.run("components", graph).to_dict()
    {1: 3, 2: 3, 3: 3, 5: 6, 6: 6}
    >>> gf.run("hops", graph, source=1).to_dict()
    {0: 1, 1: 1, 2: 1}
    """
    if engine not in ("auto", *ENGINES):
        raise InputError(f"engine={engine!r}: choose one of {', '.join(('auto', *ENGINES))}")
    expect(
        algorithm,
        (str, SubgraphProgram),
        "algorithm",
        "expected the name of an algorithm, or an instance such as MyProgram()",
    )
    running = {name: options.pop(name) for name in RUN_OPTIONS & options.keys()}
    what = make(algorithm, options) if isinstance(algorithm, str) else algorithm
    if what is algorithm and options:
        raise InputError(f"options {', '.join(options)}: pass them to the constructor of the program")
    return answer(what, graph, engine, parts=parts, method=method, units=units, note=note, **running)
