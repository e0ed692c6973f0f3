"""What all engines offer, and the options of a run: the same on every one of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gofs import PartitionedGraph
from goffish.gofs.files import open_folder
from goffish.gopher.checkpoint import CheckpointFolder, stable
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.result import Result
from goffish.graph.guards import path_name, whole_number
from goffish.graph.parallel import thread_count
from goffish.partial import absolute_place

ENGINES = ("local", "mpi", "spark")
#: Supersteps between two checkpoints.
CHECKPOINT_EVERY = 10

#: Called after every superstep: its number, subgraphs active, messages sent, and the share of the work done (or None).
Progress = Callable[[int, int, int, float | None], None]
Columns = list[dict[str, NDArray[Any]]]
T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """Where a program runs, and how.

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
        Of this process; not for ``spark``. Default: the cores it may use, on ``mpi`` shared with the ranks that may use
        the same ones.
    max_supersteps : int, optional
        Fail the job when it has not ended by then.
    checkpoint_dir : path, optional
        Write a checkpoint there every `checkpoint_every` supersteps.
    checkpoint_every : int, optional
        Default: 10.
    resume : bool
        Go on from the newest checkpoint in `checkpoint_dir`; start anew where there is none.
    progress : callable, optional
        Called after each superstep with (superstep, subgraphs that ran, messages sent, share of the work done or
        None).

    Raises
    ------
    InputError
        A value that no engine, or not this one, could follow.
    """

    engine: str = "local"
    comm: Any = None
    spark: Any = None
    output: str | Path | None = None
    threads: int | None = None
    max_supersteps: int | None = None
    checkpoint_dir: str | Path | None = None
    checkpoint_every: int | None = None
    resume: bool = False
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"engine={self.engine!r}: choose one of {', '.join(ENGINES)}")
        for name in ("comm", "spark", "output"):
            wanted = ("mpi", "spark") if name == "output" else ("mpi",) if name == "comm" else ("spark",)
            if getattr(self, name) is not None and self.engine not in wanted:
                raise InputError(f"{name} requires {' or '.join(f'engine={one!r}' for one in wanted)}")
        if self.engine == "spark" and self.threads is not None:
            raise InputError(f"threads={self.threads}: Spark manages its own threads; omit threads")
        if self.threads is not None:
            thread_count(self.threads)
        for name in ("max_supersteps", "checkpoint_every"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name)
        if self.checkpoint_dir is not None:
            path_name(self.checkpoint_dir, "checkpoint_dir")
            open_folder(self.checkpoint_dir)
        elif self.resume or self.checkpoint_every is not None:
            raise InputError(f"{'resume' if self.resume else 'checkpoint_every'} requires checkpoint_dir")
        if self.progress is not None and not callable(self.progress):
            raise InputError(f"progress={self.progress!r}: expected a function of (superstep, active, messages, share)")

    @property
    def every(self) -> int:
        """Supersteps between two checkpoints."""
        return CHECKPOINT_EVERY if self.checkpoint_every is None else self.checkpoint_every

    def checkpoints(self, program: SubgraphProgram, graph: PartitionedGraph) -> CheckpointFolder | None:
        """The folder for the checkpoints of a program on a graph."""
        if self.checkpoint_dir is None:
            return None
        given = {name: value for name, value in vars(program).items() if name not in program.may_change}
        options = {name: stable(name, value) for name, value in sorted(given.items())}
        identity = {"program": program.name(), "options": options, "graph": graph.fingerprint()}
        # Absolute, as executors work in other folders.
        return CheckpointFolder(absolute_place(self.checkpoint_dir), self.every, identity)


class Engine(Protocol):
    """Runs programs. All processes that take part make the same calls, in the same order.

    Attributes
    ----------
    leads : bool
        Whether this process has the answer.
    """

    leads: bool

    def together(self, doing: str) -> AbstractContextManager[None]:
        """A block of work that has gone well when it has in every process; otherwise all raise the same error."""

    def same(self, value: T) -> T:
        """The value of the process that leads, in all of them."""

    def share(self, make: Callable[[int], PartitionedGraph], *, everywhere: bool) -> PartitionedGraph:
        """The graph that the process that leads makes, or each for itself (`everywhere`).

        `make` is given the number of threads of all processes, one partition for each of which is a good number.
        """

    def check_label(self, graph: PartitionedGraph, label: int | str) -> None:
        """Refuse a label that is no vertex."""

    def run(self, program: SubgraphProgram, graph: PartitionedGraph) -> tuple[Result, PartitionedGraph]:
        """The result, and the graph with all labels that it needs.

        A process that does not lead has a result with the same summary, without rows and counters.
        """


class OneProcess:
    """What is simple where one process leads alone."""

    leads = True

    def __init__(self, options: RunOptions) -> None:
        self.options = options

    def together(self, doing: str) -> AbstractContextManager[None]:
        return nullcontext()

    def same(self, value: T) -> T:
        return value

    def share(self, make: Callable[[int], PartitionedGraph], *, everywhere: bool) -> PartitionedGraph:
        return make(thread_count(self.options.threads))

    def check_label(self, graph: PartitionedGraph, label: int | str) -> None:
        graph.find(label)


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
