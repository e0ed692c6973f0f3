"""Patterns of queries: what they look at, and the state of their answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.streaming.graphs import kernels, pattern_kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.pattern_kernels import EDGE_ON, FAR, INCOMING, OUTGOING
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Adjacency, arrow_column, fitted, no_adjacency
from goffish.streaming.key_table import KeyTable, longer

#: Bytes and sources of one query.
_MOST_BYTES, _MOST_SOURCES = 1 << 30, 4096
_SIDES = {"out": OUTGOING, "in": INCOMING, "both": OUTGOING | INCOMING}
_LOW = (1 << 32) - 1
#: Edges for which it does not matter whether they are of the same vertex.
_FEW = 16
Numbers = NDArray[np.int64]


class Deltas(NamedTuple):
    """What a query sees of changes, in order.

    Attributes
    ----------
    kinds : int8 array
        ``EDGE_OFF``, ``EDGE_ON``, and in the same way two numbers for each role of vertices.
    elements, sources, targets : arrays
    times, phases, asns : arrays
        Of the ticks.
    begins : bool array
        Whether an observation begins.
    """

    kinds: NDArray[np.int8]
    elements: Numbers
    sources: Numbers
    targets: Numbers
    times: Numbers
    phases: Numbers
    asns: Numbers
    begins: NDArray[np.bool_]


class Found(NamedTuple):
    """What has become of answers: observations, codes of statuses, keys and values."""

    observations: Numbers
    codes: NDArray[np.int8]
    keys: Numbers
    values: NDArray[Any]


class Net(NamedTuple):
    """Edges that a query sees."""

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    outgoing: Adjacency
    incoming: Adjacency

    @classmethod
    def empty(cls) -> Net:
        """Return a net without edges."""
        nothing = np.zeros(0, np.int32)
        return cls(nothing, nothing, no_adjacency(), no_adjacency())

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> Net:
        """Return a net with space for some more edges."""
        net = self
        if vertices > len(net.outgoing.starts) or edges > len(net.sources):
            net = Net(
                longer(net.sources, len(net.sources), edges), longer(net.targets, len(net.targets), edges),
                fitted(net.outgoing, vertices, edges), fitted(net.incoming, vertices, edges),
            )  # fmt: skip
        new = deltas.kinds == EDGE_ON
        return net._replace(
            outgoing=with_space(net.outgoing, deltas.sources[new]),
            incoming=with_space(net.incoming, deltas.targets[new]),
        )


def with_space(adjacency: Adjacency, vertices: Numbers) -> Adjacency:
    """Return an adjacency with space for one more edge of each of some vertices."""
    few = len(vertices) < _FEW
    if few and adjacency.used[0] + 4 * (adjacency.sizes[vertices] + _FEW).sum() <= len(adjacency.pool):
        return adjacency
    vertices, counts = np.unique(vertices, return_counts=True)
    larger = adjacency.sizes[vertices] + counts
    more = larger > adjacency.spaces[vertices]
    # Blocks double: all of a vertex together are less than four times as large as it needs.
    most = int(adjacency.used[0] + np.maximum(4 * larger[more], 2 * kernels.LEAST_SPACE).sum())
    if most <= len(adjacency.pool):
        return adjacency
    return adjacency._replace(pool=longer(adjacency.pool, int(adjacency.used[0]), 2 * most))


class _Space:
    """Lists of compiled code that grow, and keep their space."""

    def __init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.touched: tuple[Numbers, Numbers, int] = nothing, nothing, 0
        self.found: tuple[Any, ...] = nothing, nothing.astype(np.bool_), nothing, nothing, 0

    def keep(self, result: tuple[Any, Any]) -> Found:
        """Keep what a kernel returned, and return a copy of what it found."""
        self.touched, (*columns, count) = result
        self.found = *columns, 0
        observations, opening, keys, values = (column[:count].copy() for column in columns)
        return Found(observations, opening.astype(np.int8), keys, values)

    @property
    def pending(self) -> bool:
        """Whether answers were touched since the last observation."""
        return self.touched[2] > 0


class Pattern(ABC):
    """State of the answers of a query.

    Parameters
    ----------
    query : Query
    """

    #: Statuses in the order in which they are published: of answers that are none any more first. And how many of
    #: them end an answer, which ones begin one, and which ones say that there is one.
    statuses: ClassVar[tuple[str, ...]]
    closing: ClassVar[int] = 1
    opening: ClassVar[frozenset[int]] = frozenset([1])
    presence: ClassVar[frozenset[int]] = frozenset([1])
    #: Columns of a key, whether they are ids of edges, and the column of the value.
    columns: ClassVar[tuple[str, ...]]
    of_edges: bool = False
    value: ClassVar[str | None] = None
    #: Type of the values.
    dtype: ClassVar[Any] = np.int64
    #: Attributes of vertices whose values are followed.
    measured: tuple[str, ...] = ()
    #: The same of edges; and whether the times count at which these were last seen.
    measured_of_edges: tuple[str, ...] = ()
    follows_times: bool = False
    #: Arguments with predicates on vertices, and predicates that make differences between edges that the query sees.
    roles: tuple[str, ...] = ()
    edge_roles: Sequence[Sequence[syntax.Predicates]] = ()
    #: What the first attribute is in `Deltas.kinds`.
    first_value: int = EDGE_ON + 5
    sees_edges: bool = True

    def __init__(self, query: syntax.Query) -> None:
        self._query = query
        self._arguments: dict[str, Any] = {
            one.name: one.value.value
            for one in query.arguments
            if isinstance(one, syntax.NamedValue) and isinstance(one.value, syntax.Literal)
        }
        self._space = _Space()
        self._keys: tuple[Any, ...] = ()
        #: Whether events have all vertices that they are about, however many there are.
        self.lists_all = False

    @property
    def pending(self) -> bool:
        """Whether answers may have changed since the last observation."""
        return self._space.pending

    @abstractmethod
    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        """Make space for what is to be followed."""

    @abstractmethod
    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        """Follow changes; the last observation ends or goes on."""

    @abstractmethod
    def answers(self) -> tuple[Numbers, Numbers]:
        """Return keys and values as of the last observation."""

    def parts(self, keys: Numbers) -> tuple[Numbers, ...]:
        """Return the slots that keys consist of."""
        return (keys,)

    def vertices(self, key: Any, value: Any) -> frozenset[int]:
        """Return the vertices that an event is about."""
        return frozenset([key])

    def predicates(self, role: str) -> list[syntax.Predicates]:
        """Return the predicates of a role."""
        return predicates_of(self._query.arguments, role)

    def encoded(self, kinds: Kinds, bits: Bits) -> tuple[NDArray[np.int8], Numbers]:
        """Return values of attributes in two numbers."""
        return kinds, bits

    def _table_of(self, encoder: Encoder, part: int) -> KeyTable:
        return encoder.edges if self.of_edges else encoder.vertices

    def labels(self, encoder: Encoder, keys: Numbers) -> list[list[Any]]:
        """Return what keys consist of, as it is written."""
        found: Any = (self._table_of(encoder, at).keys(part) for at, part in enumerate(self.parts(keys)))
        return [one if isinstance(one, list) else one.to_pylist() for one in found]

    def ranks(self, encoder: Encoder, keys: Numbers) -> list[Numbers]:
        """Return numbers that order keys as their labels do."""
        found = []
        for at, part in enumerate(self.parts(keys)):
            columns = self._table_of(encoder, at).columns
            if not columns[0][part].any():  # integers
                found.append(columns[1][part])
                continue
            slots, places = np.unique(part, return_inverse=True)
            ordered = slots.copy()
            kernels.sort_by_key(columns, ordered)
            ranks = np.empty(len(slots), np.int64)
            ranks[np.searchsorted(slots, ordered)] = np.arange(len(slots))
            found.append(ranks[places])
        return found

    def shown(self, encoder: Encoder, keys: Numbers, values: NDArray[Any]) -> dict[str, pa.Array]:
        """Return the columns of keys and values."""
        parts = zip(self.columns, self.parts(keys), strict=True)
        columns = {name: arrow_column(self._table_of(encoder, 0).keys(part)) for name, part in parts}
        return columns if self.value is None else columns | {self.value: pa.array(values)}

    @property
    def narrowed(self) -> list[syntax.Predicates]:
        """Predicates on all vertices that the query sees, beside those of its clauses."""
        return []

    def see(self, encoder: Encoder) -> None:
        """Take what compiled code needs beside changes, before a step."""
        self._keys = encoder.vertices.columns


class Match(Pattern):
    """Vertices or edges that satisfy a predicate."""

    statuses, columns = ("UNMATCHED", "MATCHED"), ("id",)

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        self.of_edges = any(getattr(one, "name", None) == "edge" for one in query.arguments)
        self.roles = () if self.of_edges else ("vertex",)
        self.sees_edges = self.of_edges
        self._current, self._held, self._ends = np.zeros(0, np.bool_), np.zeros(0, np.bool_), np.zeros(0, np.int64)

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        size = edges if self.of_edges else vertices
        self._current, self._held = (longest(one, size) for one in (self._current, self._held))
        if self.of_edges:
            self._ends = longest(self._ends, size)

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        space = self._space
        return space.keep(
            pattern_kernels.match(deltas, self._current, self._held, self._ends, space.touched, space.found, 0, ends)
        )

    def answers(self) -> tuple[Numbers, Numbers]:
        keys = np.flatnonzero(self._held)
        return keys, np.zeros_like(keys)

    def vertices(self, key: int, value: Any) -> frozenset[int]:
        return frozenset([value >> 32, value & _LOW]) if self.of_edges else frozenset([key])


class DegreeRule(NamedTuple):
    """Which degrees count, and when an answer opens and stays."""

    sides: int
    distinct: bool
    bound: float
    less: bool
    equal: bool
    more: bool
    clear: float


class Degree(Pattern):
    """Vertices with some number of edges."""

    statuses, columns, value, roles = ("CLEARED", "RAISED"), ("vertex",), "degree", ("vertex",)

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        [compared] = [one for one in query.arguments if isinstance(one, syntax.Comparison)]
        operator, right = compared.operator, compared.right
        assert isinstance(right, syntax.Literal)
        self._rule = DegreeRule(
            _SIDES[self._arguments.get("direction", "both")], bool(self._arguments.get("distinct", False)),
            float(right.value), operator in ("<", "<=", "!="), operator in ("=", "<=", ">="),
            operator in (">", ">=", "!="), float(self._arguments.get("clear", np.inf)),
        )  # fmt: skip
        self._net = Net.empty()
        nothing = np.zeros(0, np.int64)
        self._degrees, self._chosen, self._held = nothing, nothing.astype(np.bool_), nothing

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        before = len(self._held)
        self._degrees, self._chosen, self._held = (
            longest(one, vertices) for one in (self._degrees, self._chosen, self._held)
        )
        self._held[before:] = -1
        if self._rule.distinct:
            self._net = self._net.fit(vertices, edges, deltas)

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        space = self._space
        return space.keep(
            pattern_kernels.degree(
                deltas, self._net, self._degrees, self._chosen, self._held, self._rule, space.touched, space.found, 0,
                ends,
            )
        )  # fmt: skip

    def answers(self) -> tuple[Numbers, Numbers]:
        keys = np.flatnonzero(self._held >= 0)
        return keys, self._held[keys]


class HopRule(NamedTuple):
    """Sides of vertices from which hops lead on, and how many of them count."""

    sides: int
    most: int


class Hops(NamedTuple):
    """Hops from sources.

    Attributes
    ----------
    hops : int32 array, shape (rows, vertices)
    rows : array, shape (vertices,)
        Row of a source, or -1.
    sources, used : arrays, shape (rows,)
        Source of a row, or the next row that is free.
    free : array, shape (1,)
    sinks, losing : bool arrays, shape (vertices,)
        Vertices that are looked for, and scratch space.
    """

    hops: NDArray[np.int32]
    rows: Numbers
    sources: Numbers
    used: NDArray[np.bool_]
    free: Numbers
    sinks: NDArray[np.bool_]
    losing: NDArray[np.bool_]


class Reach(Pattern):
    """Pairs of a source and a sink that it reaches."""

    statuses, columns, value = ("UNREACHABLE", "REACHABLE"), ("source", "sink"), "hops"
    roles: tuple[str, ...] = ("source", "sink")
    _direction = "out"

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        most = self._arguments.get("hops", int(FAR) - 1)
        self._rule = HopRule(_SIDES[self._arguments.get("direction", self._direction)], min(most, int(FAR) - 1))
        self._net = Net.empty()
        nothing = np.zeros(0, np.int64)
        self._state = Hops(
            np.zeros((0, 0), np.int32), nothing, nothing, nothing.astype(np.bool_), np.full(1, -1),
            nothing.astype(np.bool_), nothing.astype(np.bool_),
        )  # fmt: skip

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        self._net = self._net.fit(vertices, edges, deltas)
        state, before = self._state, len(self._state.rows)
        if vertices > before:
            state = state._replace(
                rows=longest(state.rows, vertices), sinks=longest(state.sinks, vertices),
                losing=longest(state.losing, vertices),
            )  # fmt: skip
            state.rows[before:] = -1
            state.sinks[before:] = "sink" not in self.roles
        used = int(state.used.sum())
        rows = used + int((deltas.kinds == EDGE_ON + 2).sum())
        if rows > len(state.used) or vertices > state.hops.shape[1]:
            state = self._more_rows(state, rows, vertices)
        self._state = state

    def _more_rows(self, state: Hops, rows: int, vertices: int) -> Hops:
        had, count = len(state.used), len(state.used)
        if rows > had:
            count = max(rows, min(2 * had, _MOST_SOURCES))
        if count > _MOST_SOURCES:
            raise JobError(f"limit: {rows:,} sources; accepted are {_MOST_SOURCES:,}")
        if 4 * count * vertices > _MOST_BYTES:
            count = rows
        if 4 * count * vertices > _MOST_BYTES:
            raise JobError(f"limit: {rows:,} sources of {vertices:,} vertices need more than {_MOST_BYTES >> 20:,} MiB")
        hops = np.full((count, vertices), FAR, np.int32)
        hops[:had, : state.hops.shape[1]] = state.hops
        sources = longer(state.sources, had, count)
        if count > had:
            sources[had:] = np.arange(had + 1, count + 1)
            sources[-1] = state.free[0]
        free = np.array([had]) if count > had else state.free
        return state._replace(hops=hops, sources=sources, used=longer(state.used, had, count), free=free)

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        space = self._space
        return space.keep(
            pattern_kernels.distances(deltas, self._net, self._state, self._rule, space.touched, space.found, 0, ends)
        )

    def answers(self) -> tuple[Numbers, Numbers]:
        state = self._state
        found: dict[int, int] = {}
        for row in np.flatnonzero(state.used).tolist():
            source = int(state.sources[row])
            reached = np.flatnonzero((state.hops[row] != FAR) & state.sinks)
            keys = (source << 32) + reached[reached != source]
            found |= dict(zip(keys.tolist(), state.hops[row][keys & _LOW].tolist(), strict=True))
        keys, olds, count = self._space.touched
        for key, old in zip(keys[:count][::-1].tolist(), olds[:count][::-1].tolist(), strict=True):
            found[key] = old  # the first value since the last observation counts
        kept = {key: hops for key, hops in found.items() if hops != FAR}
        return np.array(list(kept), np.int64), np.array(list(kept.values()), np.int64)

    def parts(self, keys: Numbers) -> tuple[Numbers, ...]:
        return keys >> 32, keys & _LOW

    def vertices(self, key: int, value: Any) -> frozenset[int]:
        return frozenset([key >> 32, key & _LOW])


class Neighbourhood(Reach):
    """Vertices near centers."""

    statuses, columns, roles = ("LEFT", "ENTERED"), ("center", "vertex"), ("center",)
    _direction = "both"


def longest(column: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a column with space for some elements."""
    return longer(column, len(column), size) if size > len(column) else column


def predicates_of(parts: Iterable[Any], *names: str) -> list[syntax.Predicates]:
    """Return the predicates of some arguments or constraints."""
    return [one.predicates for one in parts if isinstance(one, syntax.NamedPredicates) and one.name in names]
