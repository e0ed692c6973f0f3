"""What a program that follows a live graph on several workers consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from goffish.errors import InputError
from goffish.streaming.graphs.programs import kernels
from goffish.streaming.key_table import longer

if TYPE_CHECKING:
    from goffish.streaming.graphs.programs.part import Change, Part
    from goffish.streaming.graphs.rows import Net

Numbers = NDArray[np.int64]
Array = NDArray[Any]
_COMBINED = {"min": np.minimum, "max": np.maximum, "sum": np.add, "union": np.bitwise_or}


class Column(NamedTuple):
    """An array with one entry, or `width` of them, for each vertex.

    Attributes
    ----------
    dtype : data type
    initial : value
        Of vertices that are new.
    width : int
        0 for one number for each vertex.
    """

    dtype: DTypeLike
    initial: Any = 0
    width: int = 0


class LiveProgram:
    """A program that follows a live graph on several workers; derive from it, and pass it to `LiveGraph.run`.

    Each worker has a part of the vertices, with all their edges, and a copy of the program. Changes are taken in
    epochs. In each of them, `changes` is called once on every worker, and then `messages` until no messages are left:
    what is sent in one superstep arrives in the next one. Vertices are places in arrays, which have entries for the
    vertices of a worker and for those of others that they are adjacent to.

    Attributes
    ----------
    directed : bool
        Whether edges have directions. Loops are left out, and parallel edges count as one.
    state : mapping of str to Column
        Arrays of the program, which are ``ctx.state[name]``.
    combine : {"min", "max", "sum", "union"}, optional
        How messages to one vertex become one; `union` is that of bits.
    rounds : int
        How often `settle` is called in epochs in which edges or vertices are removed.
    events : mapping of str to type
        Columns of events: `numpy` types, or ``"vertex"``.
    vertex_columns : tuple of str
        Columns of results that have numbers of vertices.
    named : mapping of str to sequence of labels
        Vertices that options name: ``ctx.named`` has their numbers.
    movable : bool
        Whether vertices may get another worker between two epochs, with their rows of `state`. The rows stay, for
        vertices that are then those of another worker. Workers can only be added and removed if they may.
    common : tuple of str
        Attributes that change while the program runs, alike on all workers: workers that are added get them.
    totals : tuple of str
        Attributes, numbers or arrays, of which only the sum over all workers counts: what workers that are removed
        have of them is added to those of another one.
    """

    directed: bool = True
    movable: ClassVar[bool] = False
    common: ClassVar[tuple[str, ...]] = ()
    totals: ClassVar[tuple[str, ...]] = ()
    state: Mapping[str, Column] = {}
    combine: Literal["min", "max", "sum", "union"] | None = None
    rounds: int = 0
    events: Mapping[str, Any] = {}
    vertex_columns: ClassVar[tuple[str, ...]] = ()
    named: Mapping[str, Sequence[int | str]] = {}

    def start(self, ctx: Context) -> None:
        """Begin on a worker, before the first epoch.

        Parameters
        ----------
        ctx : Context
        """

    def moved(self, ctx: Context, came: Numbers, went: Numbers) -> None:
        """Take note that vertices have got another worker, before the changes of an epoch.

        Parameters
        ----------
        ctx : Context
        came, went : int64 arrays
            Vertices that this worker has got, and those that it had.
        """

    def changes(self, ctx: Context, change: Change) -> None:
        """Take the changes of an epoch, which the graph has already.

        Parameters
        ----------
        ctx : Context
        change : Change
        """

    def messages(self, ctx: Context, targets: Numbers, values: Array) -> None:
        """Take messages.

        Parameters
        ----------
        ctx : Context
        targets : int64 array
            Vertices of the worker; each once if messages are combined.
        values : array
            As sent.
        """

    def settle(self, ctx: Context, number: int) -> None:
        """Go on when no messages are left, in an epoch in which something was removed.

        Parameters
        ----------
        ctx : Context
        number : int
            How often it was called before in this epoch.
        """

    def finish(self, ctx: Context) -> Any:
        """Emit events at the end of an epoch, and return what the worker has to say about it.

        Parameters
        ----------
        ctx : Context

        Returns
        -------
        object
            For `aggregate`.
        """
        return None

    def aggregate(self, partials: Sequence[Any]) -> Any:
        """Return the value of an epoch from what the workers returned.

        Parameters
        ----------
        partials : sequence
            Of `finish`, by worker.

        Returns
        -------
        object
        """
        return None

    def result(self, ctx: Context) -> Mapping[str, Array]:
        """Return columns of the result.

        Parameters
        ----------
        ctx : Context

        Returns
        -------
        mapping of str to array
            With an entry for each vertex in ``ctx.vertices``.
        """
        return {}


class Context:
    """What a program sees of a worker.

    Attributes
    ----------
    epoch, superstep : int
    settled : int
        How often `LiveProgram.settle` was called in this epoch.
    removes : bool
        Whether something was removed in this epoch, on any worker.
    state : dict of str to array
    shared : array
        What all workers passed to `share` in the superstep before.
    named : dict of str to array
        Numbers of the vertices that options name.
    """

    def __init__(self, part: Part, program: LiveProgram, named: Mapping[str, Numbers]) -> None:
        self._part, self._columns, self.named = part, program.state, dict(named)
        self._combine = program.combine
        self.epoch = self.superstep = self.settled = 0
        self.removes = False
        self.shared: Array = np.zeros(0, np.int64)
        self.state: dict[str, Array] = {
            name: np.zeros((0, one.width) if one.width else 0, one.dtype) for name, one in program.state.items()
        }
        self._group_of = np.zeros(0, np.int64)
        self._sent: list[tuple[Numbers, Array]] = []
        self._shared: list[Array] = []
        self._emitted: list[tuple[str, dict[str, Array]]] = []
        self._events = program.events

    # The graph.

    @property
    def part(self) -> Part:
        """The part of the worker, for kernels."""
        return self._part

    @property
    def net(self) -> Net:
        """Neighbors, for kernels."""
        return self._part.net

    @property
    def owned(self) -> NDArray[np.bool_]:
        """Which vertices are those of the worker, also of those that were removed."""
        return self._part.owned

    @property
    def vertices(self) -> Numbers:
        """Vertices of the worker that exist."""
        return np.flatnonzero(self._part.present)

    @property
    def numbers(self) -> Numbers:
        """Numbers of the vertices in the whole graph: the same on all workers, whichever there are."""
        return self._part.numbers

    def degrees(self, vertices: Numbers, *, incoming: bool = False) -> Numbers:
        """Return how many neighbors vertices of the worker have.

        Parameters
        ----------
        vertices : int64 array
        incoming : bool
            By edges to them, if edges have directions.

        Returns
        -------
        int64 array
        """
        rows = self._part.net.into if incoming else self._part.net.out
        if not len(rows.adjacency.sizes):
            return np.zeros(len(vertices), np.int64)
        return rows.adjacency.sizes[vertices].astype(np.int64)

    def neighbors(self, vertices: Numbers, *, incoming: bool = False) -> tuple[Numbers, Numbers]:
        """Return the neighbors of vertices of the worker.

        Parameters
        ----------
        vertices : int64 array
        incoming : bool
            By edges to them, if edges have directions.

        Returns
        -------
        places, neighbors : int64 arrays
            For each neighbor, the place in `vertices` of the vertex that it is one of, and the neighbor.
        """
        sizes = self.degrees(vertices, incoming=incoming)
        rows = self._part.net.into if incoming else self._part.net.out
        places = np.repeat(np.arange(len(vertices)), sizes)
        if not len(places):
            return places, places
        begins = np.cumsum(sizes) - sizes
        at = np.arange(len(places)) + np.repeat(rows.adjacency.starts[vertices] - begins, sizes)
        return places, rows.others[at].astype(np.int64)

    # Messages and events.

    def send(self, targets: Array, values: Array) -> None:
        """Send messages, which arrive in the next superstep.

        Parameters
        ----------
        targets : int array
            Vertices.
        values : array
            One number for each, or one row of numbers.

        Raises
        ------
        InputError
            There are not as many values as targets.
        """
        targets, values = np.asarray(targets, np.int64), np.asarray(values)
        if targets.ndim != 1 or values.shape[:1] != targets.shape:
            raise InputError(f"send: {targets.shape} targets and {values.shape} values; pass one value for each target")
        if len(targets):
            self._sent.append((targets, values))

    def share(self, values: Array) -> None:
        """Send numbers to all workers; in the next superstep, they are in `shared` on each of them.

        Parameters
        ----------
        values : array
        """
        if len(values):
            self._shared.append(np.asarray(values))

    def emit(self, status: str, **columns: Array) -> None:
        """Emit events, which are published at the end of the epoch.

        Parameters
        ----------
        status : str
        **columns
            As in `LiveProgram.events`; vertices by their numbers in the whole graph.

        Raises
        ------
        InputError
            The columns are others.
        """
        if columns.keys() != self._events.keys():
            raise InputError(f"emit: has the columns {sorted(columns)}; the program names {sorted(self._events)}")
        made = {name: np.atleast_1d(columns[name]) for name in self._events}
        if len({len(one) for one in made.values()}) > 1:
            raise InputError("emit: the columns differ in length")
        if len(next(iter(made.values()), ())):
            self._emitted.append((status, made))

    # For the worker.

    def fit(self) -> None:
        """Make space in the arrays for all vertices."""
        size = self._part.names.capacity
        for name, column in self._columns.items():
            self.state[name] = _taller(self.state[name], column, size)
        if size > len(self._group_of):
            self._group_of = np.zeros(size, np.int64)

    def reset(self, vertices: Numbers) -> None:
        """Give vertices the state of new ones."""
        for name, column in self._columns.items():
            self.state[name][vertices] = column.initial

    def combined(self, parts: Sequence[tuple[Numbers, Array]]) -> tuple[Numbers, Array]:
        """Return messages as columns, and those to one vertex as one if the program says so.

        Raises
        ------
        InputError
            Messages differ in form.
        """
        parts = [one for one in parts if len(one[0])]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if len({one[1].shape[1:] for one in parts}) > 1:
            raise InputError("messages of one superstep: values differ in the number of columns")
        targets = np.concatenate([one[0] for one in parts])
        values = np.concatenate([one[1] for one in parts])
        if self._combine is None:
            return targets, values
        groups = np.empty(len(targets), np.int64)
        firsts = kernels.group_targets(targets, self._group_of, groups)
        if len(firsts) == len(targets):
            return targets, values
        found = values[firsts]
        rest = np.ones(len(targets), np.bool_)
        rest[firsts] = False
        _COMBINED[self._combine].at(found, groups[rest], values[rest])
        return targets[firsts], found

    def taken(self) -> tuple[tuple[Numbers, Array], Array]:
        """Return what was sent and shared since the last time."""
        sent, self._sent = self._sent, []
        shared, self._shared = self._shared, []
        return self.combined(sent), np.concatenate(shared) if shared else np.zeros(0, np.int64)

    def events(self) -> list[tuple[str, dict[str, Array]]]:
        """Return the events since the last time."""
        emitted, self._emitted = self._emitted, []
        return emitted


def _taller(values: Array, column: Column, size: int) -> Array:
    had = len(values)
    if size <= had:
        return values
    if values.ndim == 1:
        found = longer(values, had, size)
    else:
        found = np.zeros((size, column.width), values.dtype)
        found[:had] = values
    found[had:] = column.initial
    return found
