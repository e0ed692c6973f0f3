"""Base class of subgraph programs: messages, state and aggregators."""

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
    """One column of program state: its level, type and initial value.

    A column of the level "free" belongs to the partition, has any length and is empty at first.
    """

    level: Level
    dtype: np.dtype[Any]
    fill: Any = 0


def per_vertex(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """Declare a state column with one value per vertex.

    Parameters
    ----------
    dtype : dtype-like
        Type of the values, such as ``"int64"``: boolean, integer or floating point.
    fill : scalar
        Initial value [default: 0].

    Returns
    -------
    StateColumn
        Declaration for `SubgraphProgram.state`.

    Raises
    ------
    TypeError
        If `dtype` is not a type.

    Examples
    --------
    >>> import goffish as gf
    >>> class Ranks(gf.SubgraphProgram):
    ...     state = {"rank": gf.per_vertex("float64", 1.0)}
    >>> Ranks.state["rank"].level
    'vertex'
    """
    return StateColumn("vertex", np.dtype(dtype), fill)


def per_subgraph(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """Declare a state column with one value per subgraph.

    Parameters
    ----------
    dtype : dtype-like
        Type of the values, such as ``"int64"``: boolean, integer or floating point.
    fill : scalar
        Initial value [default: 0].

    Returns
    -------
    StateColumn
        Declaration for `SubgraphProgram.state`.

    Raises
    ------
    TypeError
        If `dtype` is not a type.

    Examples
    --------
    >>> import goffish as gf
    >>> class Sizes(gf.SubgraphProgram):
    ...     state = {"size": gf.per_subgraph("int64")}
    >>> Sizes.state["size"].level
    'subgraph'
    """
    return StateColumn("subgraph", np.dtype(dtype), fill)


def per_remote(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """Declare a state column with one value per remote vertex of a subgraph.

    A remote vertex (ghost) is a vertex of another subgraph at the far end of an arc.

    Parameters
    ----------
    dtype : dtype-like
        Type of the values, such as ``"int64"``: boolean, integer or floating point.
    fill : scalar
        Initial value [default: 0].

    Returns
    -------
    StateColumn
        Declaration for `SubgraphProgram.state`.

    Raises
    ------
    TypeError
        If `dtype` is not a type.

    Examples
    --------
    >>> import goffish as gf
    >>> class Ghosts(gf.SubgraphProgram):
    ...     state = {"sent": gf.per_remote("bool", False)}
    >>> Ghosts.state["sent"].level
    'remote'
    """
    return StateColumn("remote", np.dtype(dtype), fill)


def per_neighbor(dtype: DTypeLike, fill: Any = 0) -> StateColumn:
    """Declare a state column with one value per neighboring subgraph.

    Parameters
    ----------
    dtype : dtype-like
        Type of the values, such as ``"int64"``: boolean, integer or floating point.
    fill : scalar
        Initial value [default: 0].

    Returns
    -------
    StateColumn
        Declaration for `SubgraphProgram.state`.

    Raises
    ------
    TypeError
        If `dtype` is not a type.

    Examples
    --------
    >>> import goffish as gf
    >>> class Links(gf.SubgraphProgram):
    ...     state = {"received": gf.per_neighbor("int64", -1)}
    >>> Links.state["received"].fill
    -1
    """
    return StateColumn("neighbor", np.dtype(dtype), fill)


def per_partition(dtype: DTypeLike) -> StateColumn:
    """Declare a state column of any length per partition; assigning to ``batch["name"]`` replaces its values."""
    return StateColumn("free", np.dtype(dtype))


class SubgraphProgram:
    """Base class of programs that run on the Gopher engine.

    Override `compute`, which is called once per active subgraph and superstep, or `compute_batch`, which is called once
    per partition with all its active subgraphs and suits programs with many small subgraphs. All threads share one
    instance: keep options on ``self`` and everything that changes in `state`.

    Attributes
    ----------
    message : mapping of str to dtype
        Payload columns of a message.
    combine : {"min", "max", "sum"} or None
        Merge messages to the same target before they leave a partition: keep the message with the smallest or largest
        first payload column, or add up all payload columns.
    state : mapping of str to StateColumn
        Columns that persist between supersteps, accessed as ``sg["name"]``; checkpoints contain exactly these.
    aggregators : mapping of str to {"sum", "min", "max", "and", "or"}
        Values reduced over all subgraphs, readable in the next superstep.
    attributes : sequence of str
        Attributes that the program reads (``"vertex.NAME"``, ``"edge.NAME"``).
    rows : {"vertex", "subgraph", "free"}
        What a row of the result represents.
    label_columns : sequence of str
        Result columns that hold vertex numbers (``sg.vertex_ids``); returned as labels, and -1 as null.
    nullable : sequence of str
        Further result columns in which -1 stands for null.
    needs_connected : bool
        Whether the program requires connected units; if so, partition-centric graphs are rejected.
    may_change : frozenset of str
        Options (attributes of the instance) that may differ when a run resumes from a checkpoint.
    share_done : str
        Name of the aggregator that holds the completed share of the work, 0 to 1.

    Examples
    --------
    >>> import goffish as gf
    >>> class Sizes(gf.SubgraphProgram):
    ...     rows = "subgraph"
    ...     def compute(self, sg, step):
    ...         step.vote_to_halt()
    ...     def result(self, sg):
    ...         return {"size": [sg.num_vertices]}
    >>> gf.run(Sizes(), gf.from_edges([1, 2, 5], [2, 3, 6]), parts=1).table["size"].to_pylist()
    [3, 2]
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

        Parameters
        ----------
        sg : Subgraph or SubgraphBatch
            A subgraph, or all subgraphs of a partition if the program defines `compute_batch`.
        """

    def compute(self, sg: Subgraph, step: Superstep) -> None:
        """Run one superstep of one subgraph.

        Parameters
        ----------
        sg : Subgraph
            The subgraph and its state.
        step : Superstep
            Inbox, aggregators and sending.
        """
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        """Run one superstep of all active subgraphs of a partition.

        Parameters
        ----------
        batch : SubgraphBatch
            All subgraphs of the partition and their state.
        step : BatchStep
            Inbox, aggregators and sending; `BatchStep.active` lists the subgraphs to run.
        """
        raise InputError(f"{self.name()}: define compute or compute_batch")

    def result(self, sg: Any) -> Mapping[str, ArrayLike]:
        """Return the columns of the result after the last superstep.

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
        return cls.compute_batch is not SubgraphProgram.compute_batch


def check_program(program: SubgraphProgram) -> None:
    """Reject invalid declarations before the job starts.

    Raises
    ------
    InputError
        If a declaration is invalid; the message names it and the accepted values.
    """
    if not isinstance(program, SubgraphProgram):
        raise InputError(f"{program!r} is not a program; expected an instance of your SubgraphProgram class")
    name = program.name()
    if program.combine is not None and program.combine not in ("min", "max", "sum"):
        raise InputError(f"{name}: combine={program.combine!r}: choose min, max, sum or None")
    if program.combine is not None and not program.message:
        raise InputError(f"{name}: combine={program.combine!r} requires a message column")
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
            raise InputError(f"{name}: state column {column!r} belongs to partitions, which requires compute_batch")
        if kind.dtype.kind not in "biuf":
            raise InputError(f"{name}: state column {column!r} has type {kind.dtype}; use numbers")
    message_dtype(program.message)
