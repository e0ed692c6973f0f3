"""What a user writes: a program against subgraphs, its messages, state and aggregators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from goffish.errors import InputError
from goffish.gopher.messages import message_dtype
from goffish.gopher.superstep import REDUCTIONS, BatchStep, Superstep
from goffish.gopher.views import Subgraph, SubgraphBatch

Level = Literal["vertex", "subgraph", "remote", "neighbor", "free"]


@dataclass(frozen=True)
class StateColumn:
    """One column of program state: a value per element of `level`, with its type and first value.

    A column of the level "free" belongs to the partition and has any number of values, none at first.
    """

    level: Level
    dtype: np.dtype[Any]
    fill: Any = 0


def per_vertex(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """State with one value for each vertex of a subgraph."""
    return StateColumn("vertex", np.dtype(dtype), fill)


def per_subgraph(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """State with one value for each subgraph."""
    return StateColumn("subgraph", np.dtype(dtype), fill)


def per_remote(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """State with one value for each remote vertex of a subgraph (its ghost)."""
    return StateColumn("remote", np.dtype(dtype), fill)


def per_neighbor(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """State with one value for each neighbouring subgraph."""
    return StateColumn("neighbor", np.dtype(dtype), fill)


def per_partition(dtype: DTypeLike) -> StateColumn:
    """State of any length, of a partition: what is assigned to ``batch["name"]`` takes the place of what was there."""
    return StateColumn("free", np.dtype(dtype))


class SubgraphProgram:
    """Base class of every program that runs on the Gopher engine.

    Override `compute` (called once per active subgraph and superstep) or `compute_batch` (called once per
    partition with all its active subgraphs; the form for programs that treat many small subgraphs at once). An
    instance is shared by all threads: keep options on ``self`` and everything that changes in `state`.

    Attributes
    ----------
    message : mapping of str to dtype
        Payload columns of a message.
    combine : {"min", "max", "sum"} or None
        Merge messages to the same target before they leave a partition: keep the message whose first payload column is
        least or largest, or add up all payload columns.
    state : mapping of str to StateColumn
        Columns that survive from superstep to superstep, reached as ``sg["name"]``; checkpoints hold exactly these.
    aggregators : mapping of str to {"sum", "min", "max", "and", "or"}
        Values reduced over all subgraphs, visible in the next superstep.
    attributes : sequence of str
        Attributes that the program reads (``"vertex.NAME"``, ``"edge.NAME"``).
    rows : {"vertex", "subgraph", "free"}
        What a row of the result stands for.
    label_columns : sequence of str
        Result columns that hold vertex numbers as the graph was read (``sg.vertex_ids``), shown as labels; -1 as null.
    needs_connected : bool
        The answer is right only if every unit is connected, so partition-centric graphs are refused.
    may_change : frozenset of str
        Options (attributes of the instance) that a run which goes on from a checkpoint may give anew.
    nullable : sequence of str
        Further result columns in which -1 stands for null.
    share_done : str
        Name of the aggregator that holds the share of the work that is done, 0 to 1, for those who wait.
    """

    message: Mapping[str, DTypeLike] = {}
    combine: ClassVar[Literal["min", "max", "sum"] | None] = None
    state: Mapping[str, StateColumn] = {}
    aggregators: ClassVar[Mapping[str, Literal["sum", "min", "max", "and", "or"]]] = {}
    attributes: tuple[str, ...] = ()
    rows: ClassVar[Literal["vertex", "subgraph", "free"]] = "vertex"
    label_columns: ClassVar[tuple[str, ...]] = ()
    nullable: ClassVar[tuple[str, ...]] = ()
    needs_connected: ClassVar[bool] = False
    may_change: ClassVar[frozenset[str]] = frozenset()
    share_done: ClassVar[str] = ""

    def init(self, sg: Any) -> None:
        """Prepare the state before superstep 1.

        `sg` is a `Subgraph`, or a whole `SubgraphBatch` when the program defines `compute_batch`.
        """

    def compute(self, sg: Subgraph, step: Superstep) -> None:
        """Do one superstep of one subgraph."""
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        """Do one superstep of all active subgraphs of a partition."""
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def result(self, sg: Any) -> Mapping[str, ArrayLike]:
        """Columns of the answer after the last superstep, one value per row (see `rows`)."""
        return {}

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    @classmethod
    def is_batched(cls) -> bool:
        """Whether the program defines `compute_batch`."""
        return cls.compute_batch is not SubgraphProgram.compute_batch


def check_program(program: SubgraphProgram) -> None:
    """Refuse declarations that mean nothing, before the job starts.

    Raises
    ------
    InputError
        Naming the declaration and what is accepted.
    """
    if not isinstance(program, SubgraphProgram):
        raise InputError(f"{program!r} is not a program: give an instance of your SubgraphProgram class")
    name = program.name()
    if program.combine is not None and program.combine not in ("min", "max", "sum"):
        raise InputError(f"{name}: combine={program.combine!r}: choose min, max, sum or None")
    if program.combine is not None and not program.message:
        raise InputError(f"{name}: combine={program.combine!r} needs a message column to compare")
    if program.rows not in ("vertex", "subgraph", "free"):
        raise InputError(f"{name}: rows={program.rows!r}: choose vertex, subgraph or free")
    for aggregator, how in program.aggregators.items():
        if how not in REDUCTIONS:
            raise InputError(f"{name}: aggregator {aggregator!r} is {how!r}: choose one of {', '.join(REDUCTIONS)}")
    for column, kind in program.state.items():
        if not isinstance(kind, StateColumn):
            raise InputError(
                f"{name}: state column {column!r} is {kind!r}: declare it with per_vertex, per_subgraph, per_remote, "
                "per_neighbor or per_partition"
            )
        if kind.level == "free" and not program.is_batched():
            raise InputError(f"{name}: state column {column!r} is of partitions: define compute_batch")
        if kind.dtype.kind not in "biuf":
            raise InputError(f"{name}: state column {column!r} has type {kind.dtype}; use numbers")
    message_dtype(program.message)
