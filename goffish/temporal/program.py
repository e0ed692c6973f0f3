"""Base class of programs over a time series: one BSP per instance, and the steps between them."""

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
    """Base class of programs over a time series (docs/specs/time-series.md, section 3).

    In each instance all subgraphs are active at first. `compute` is called superstep by superstep until all subgraphs
    have halted and no messages are left; then `end_of_timestep` is called once per subgraph. In the eventually
    dependent pattern `merge` follows as a separate BSP.

    Override `compute` (and `merge`, `end_of_timestep`), which receive one subgraph, or `compute_batch` (and
    `merge_batch`, `end_of_timestep_batch`), which receive all subgraphs of a partition.

    Attributes
    ----------
    pattern : {"independent", "eventual", "sequential"}
        Whether an instance depends on the previous one. The first two patterns keep no state between timesteps, so that
        timesteps can run in any order and concurrently.
    descending : bool
        Whether a sequential program runs from the last instance to the first [default: False].
    message, combine, state, aggregators, attributes, rows, label_columns, nullable
        As in `SubgraphProgram`; ``aggregators`` cover the BSP of one timestep.
    values : sequence of str
        Attributes of the instances that the program reads with ``sg.attribute(NAME)`` (``"vertex.NAME"``,
        ``"edge.NAME"``).
    emits : mapping of str to dtype
        Columns of the rows that `TimeStep.emit` adds. The result consists of these rows, with the column ``timestep``
        and, if they represent vertices, ``vertex``.
    emits_vertices : bool
        Whether emitted rows represent vertices.
    reports : mapping of str to {"sum", "min", "max", "and", "or"}
        Metrics of each timestep, contributed by `TimeStep.report`.

    Examples
    --------
    >>> import goffish as gf
    >>> class Sizes(gf.TimeSeriesProgram):
    ...     pattern = "independent"
    ...     reports = {"vertices": "sum"}
    ...     def compute(self, sg, step):
    ...         step.report("vertices", sg.num_vertices)
    ...         step.vote_to_halt()
    """

    pattern: Pattern = "sequential"
    descending: bool = False
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
        """Prepare the state before the first timestep; in the first two patterns before every timestep.

        Parameters
        ----------
        sg : Subgraph or SubgraphBatch
            A subgraph, or all subgraphs of a partition if the program defines `compute_batch`.
        """

    def compute(self, sg: Any, step: Any) -> None:
        """Run one superstep of one subgraph.

        Parameters
        ----------
        sg : Subgraph
            The subgraph, its state and the attributes of the instance.
        step : TimeStep
            Inbox, aggregators, sending, reports and emitted rows.
        """
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        """Finish a timestep of one subgraph; called for all subgraphs, halted or not.

        Parameters
        ----------
        sg : Subgraph
            The subgraph.
        step : TimeStep
            Sending to the next timestep, reports and emitted rows.
        """

    def merge(self, sg: Any, step: Any) -> None:
        """Run one superstep of the merge of one subgraph (eventually dependent pattern).

        Parameters
        ----------
        sg : Subgraph
            The subgraph.
        step : TimeStep
            Inbox, aggregators and sending.
        """
        step.vote_to_halt()

    def compute_batch(self, batch: Any, step: Any) -> None:
        """Run one superstep of all active subgraphs of a partition.

        Parameters
        ----------
        batch : SubgraphBatch
            All subgraphs of the partition.
        step : BatchTimeStep
            Inbox, aggregators, sending, reports and emitted rows.
        """
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def end_of_timestep_batch(self, batch: Any, step: Any) -> None:
        """Finish a timestep of all subgraphs of a partition.

        Parameters
        ----------
        batch : SubgraphBatch
            All subgraphs of the partition.
        step : BatchTimeStep
            Sending to the next timestep, reports and emitted rows.
        """

    def merge_batch(self, batch: Any, step: Any) -> None:
        """Run one superstep of the merge of all active subgraphs of a partition.

        Parameters
        ----------
        batch : SubgraphBatch
            All subgraphs of the partition.
        step : BatchTimeStep
            Inbox, aggregators and sending.
        """
        step.vote_to_halt()

    def result(self, sg: Any) -> Mapping[str, ArrayLike]:
        """Return the columns of the result after the last timestep; not used if the program emits rows.

        Parameters
        ----------
        sg : Subgraph or SubgraphBatch
            A subgraph, or all subgraphs of a partition if the program defines `compute_batch`.

        Returns
        -------
        mapping of str to array-like
            Columns with one value per row (see `rows`).
        """
        return {}

    def finish(self, table: pa.Table) -> pa.Table:
        """Complete the assembled result table.

        Parameters
        ----------
        table : pyarrow.Table
            Rows of all partitions.

        Returns
        -------
        pyarrow.Table
            The final table [default: unchanged].
        """
        return table

    def notes(self, timesteps: pa.Table) -> list[str]:
        """Return remarks about the run, such as data that could not be used.

        Parameters
        ----------
        timesteps : pyarrow.Table
            One row per timestep, with the reports.

        Returns
        -------
        list of str
            One line each [default: none].
        """
        return []

    @classmethod
    def name(cls) -> str:
        """Return the name of the program, for messages and counters.

        Returns
        -------
        str
            Name of the class.
        """
        return cls.__name__

    @classmethod
    def is_batched(cls) -> bool:
        """Return whether the program defines `compute_batch`.

        Returns
        -------
        bool
            ``True`` if it does.
        """
        return cls.compute_batch is not TimeSeriesProgram.compute_batch


def check_series_program(program: TimeSeriesProgram) -> None:
    """Reject invalid declarations.

    Raises
    ------
    InputError
        If a declaration is invalid; the message names it and the accepted values.
    """
    if not isinstance(program, TimeSeriesProgram):
        raise InputError(f"{program!r} is not a program; expected an instance of your TimeSeriesProgram class")
    if isinstance(program, SubgraphProgram):
        raise InputError(f"{program.name()}: derive from TimeSeriesProgram alone")
    if program.pattern not in PATTERNS:
        raise InputError(f"{program.name()}: pattern={program.pattern!r}: choose one of {', '.join(PATTERNS)}")
    if program.descending and program.pattern != "sequential":
        raise InputError(f"{program.name()}: descending requires the sequential pattern")
    for name in program.values:
        if not name.startswith(("vertex.", "edge.")):
            raise InputError(f"{program.name()}: values={name!r}: write vertex.NAME or edge.NAME")
    twice = set(program.aggregators) & set(program.reports)
    if twice:
        raise InputError(f"{program.name()}: {sorted(twice)[0]!r} is an aggregator and a report")
