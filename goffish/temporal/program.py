"""What a user writes to analyse a time series: one BSP per instance, and what happens between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pyarrow as pa
from numpy.typing import ArrayLike, DTypeLike

from goffish.errors import InputError
from goffish.gopher import StateColumn, SubgraphProgram

Pattern = Literal["independent", "eventual", "sequential"]
PATTERNS: tuple[Pattern, ...] = ("independent", "eventual", "sequential")


class TimeSeriesProgram:
    """Base class of every program over a time series (docs/specs/time-series.md, section 3).

    For each instance, in which all subgraphs are active at first, `compute` is called superstep by superstep until all
    subgraphs have halted and no message is left; then `end_of_timestep` is called once for each subgraph. In the
    eventually dependent pattern `merge` follows as a BSP of its own.

    Override `compute` (and `merge`, `end_of_timestep`), which get one subgraph each, or `compute_batch` (and
    `merge_batch`, `end_of_timestep_batch`), which get all subgraphs of a partition.

    Attributes
    ----------
    pattern : {"independent", "eventual", "sequential"}
        Whether an instance needs the results of the one before. In the first two nothing is remembered from one
        timestep to the next, so that timesteps can be run in any order, and side by side.
    message, combine, state, aggregators, attributes, rows, label_columns, nullable
        As for `goffish.gopher.SubgraphProgram`; ``aggregators`` are those of the BSP of one timestep.
    values : sequence of str
        Attributes of the instances that the program reads (``"vertex.NAME"``, ``"edge.NAME"``), by
        ``sg.attribute(NAME)``, while an instance is bound.
    emits : mapping of str to dtype
        Columns of the rows that `TimeStep.emit` gives; the answer then consists of these rows, with the column
        ``timestep`` and, where they stand for vertices, ``vertex``.
    reports : mapping of str to {"sum", "min", "max", "and", "or"}
        Figures that are told for each timestep, by `TimeStep.report`.
    """

    pattern: Pattern = "sequential"
    message: Mapping[str, DTypeLike] = {}
    combine: ClassVar[Literal["min", "max", "sum"] | None] = None
    state: Mapping[str, StateColumn] = {}
    aggregators: ClassVar[Mapping[str, Literal["sum", "min", "max", "and", "or"]]] = {}
    attributes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    emits: ClassVar[Mapping[str, DTypeLike]] = {}
    emits_vertices: ClassVar[bool] = True
    reports: ClassVar[Mapping[str, Literal["sum", "min", "max", "and", "or"]]] = {}
    rows: ClassVar[Literal["vertex", "subgraph", "free"]] = "vertex"
    label_columns: ClassVar[tuple[str, ...]] = ()
    nullable: ClassVar[tuple[str, ...]] = ()

    def init(self, sg: Any) -> None:
        """Prepare the state: before the first timestep; in the first two patterns before every one."""

    def compute(self, sg: Any, step: Any) -> None:
        """Do one superstep of one subgraph (`TimeStep`)."""
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        """Conclude a timestep of one subgraph; also called where it halted long ago."""

    def merge(self, sg: Any, step: Any) -> None:
        """Do one superstep of the merge of one subgraph (eventually dependent pattern)."""
        step.vote_to_halt()

    def compute_batch(self, batch: Any, step: Any) -> None:
        """Do one superstep of all active subgraphs of a partition (`BatchTimeStep`)."""
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def end_of_timestep_batch(self, batch: Any, step: Any) -> None:
        """Conclude a timestep of all subgraphs of a partition."""

    def merge_batch(self, batch: Any, step: Any) -> None:
        """Do one superstep of the merge of all active subgraphs of a partition."""
        step.vote_to_halt()

    def result(self, sg: Any) -> Mapping[str, ArrayLike]:
        """Columns of the answer when all is over, one value per row (see `rows`); unused where rows are emitted."""
        return {}

    def finish(self, table: pa.Table) -> pa.Table:
        """Complete the answer where all of it is in one place; default: as it is."""
        return table

    def notes(self, timesteps: pa.Table) -> list[str]:
        """What a user should know of the run, one line each, from its table of timesteps; default: nothing."""
        return []

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    @classmethod
    def is_batched(cls) -> bool:
        """Whether the program gets whole partitions."""
        return cls.compute_batch is not TimeSeriesProgram.compute_batch


def check_series_program(program: TimeSeriesProgram) -> None:
    """Refuse declarations that mean nothing.

    Raises
    ------
    InputError
        Naming the declaration and what is accepted.
    """
    if not isinstance(program, TimeSeriesProgram):
        raise InputError(f"{program!r} is not a program: give an instance of your TimeSeriesProgram class")
    if isinstance(program, SubgraphProgram):
        raise InputError(f"{program.name()}: derive from TimeSeriesProgram alone")
    if program.pattern not in PATTERNS:
        raise InputError(f"{program.name()}: pattern={program.pattern!r}: choose one of {', '.join(PATTERNS)}")
    for name in program.values:
        if not name.startswith(("vertex.", "edge.")):
            raise InputError(f"{program.name()}: values={name!r}: write vertex.NAME or edge.NAME")
    twice = set(program.aggregators) & set(program.reports)
    if twice:
        raise InputError(f"{program.name()}: {sorted(twice)[0]!r} is an aggregator and a report")
