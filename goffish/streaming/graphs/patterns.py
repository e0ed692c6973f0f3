"""Patterns of queries: what they look at, and the state of their answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.streaming.graphs import kernels, pattern_kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.pattern_kernels import EDGE_ON, FAR, INCOMING, MOVE, OUTGOING, VALUE
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Adjacency, arrow_column, fitted, no_adjacency
from goffish.streaming.graphs.trees import alike
from goffish.streaming.key_table import KeyTable, longer

#: Bytes and sources of one query.
_MOST_BYTES, _MOST_SOURCES = 1 << 30, 4096
_SIDES = {"out": OUTGOING, "in": INCOMING, "both": OUTGOING | INCOMING}
_LOW = (1 << 32) - 1
#: Events list the vertices of clusters up to this size.
MOST_MEMBERS = 1000
#: Edges for which it does not matter whether they are of the same vertex.
_FEW = 16
Numbers = NDArray[np.int64]


class Deltas(NamedTuple):
    """What a query sees of changes, in order.

    Attributes
    ----------
    kinds : int8 array
        ``EDGE_OFF``, ``EDGE_ON``, and in the same way two numbers for each role of vertices; ``VALUE`` and the next
        ones for values of vertices; ``MOVE`` and the ones before it for moves between clusters.
    elements, sources, targets : arrays
        The last two are ends of an edge, what a value is and its bits, or clusters before and after a move.
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


class Moves(NamedTuple):
    """Vertices that have come into clusters of a topic, or have left them.

    Attributes
    ----------
    times, phases, asns : arrays
        Of the ticks.
    vertices, before, after : arrays
        Vertices, and the clusters in which they were and are; 0 is none.
    """

    times: Numbers
    phases: Numbers
    asns: Numbers
    vertices: Numbers
    before: Numbers
    after: Numbers

    @classmethod
    def none(cls) -> Moves:
        """Return no moves."""
        return cls(*[np.zeros(0, np.int64)] * 6)

    def deltas(self, topic: int) -> Deltas:
        """Return moves as changes, by the number of the topic."""
        size = len(self.vertices)
        return Deltas(
            np.full(size, MOVE - topic, np.int8), self.vertices, self.before, self.after, self.times, self.phases,
            self.asns, np.ones(size, np.bool_),
        )  # fmt: skip


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
        observations, opening, keys, values = (column[:count].copy() if count else column[:0] for column in columns)
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
    #: What follows the answers, for readers.
    operator: ClassVar[str]
    #: Type of the values.
    dtype: Any = np.int64
    #: Attributes of vertices whose values are followed.
    measured: tuple[str, ...] = ()
    #: The same of edges; and whether the times count at which these were last seen.
    measured_of_edges: tuple[str, ...] = ()
    follows_times: bool = False
    #: Arguments with predicates on vertices, topics whose clusters are in place of vertices there, and predicates that
    #: make differences between edges that the query sees.
    roles: tuple[str, ...] = ()
    groups: tuple[str | None, ...] = ()
    edge_roles: Sequence[Sequence[syntax.Predicates]] = ()
    #: What the first attribute is in `Deltas.kinds`.
    first_value: int = VALUE
    sees_edges: bool = True
    #: Attributes that are the state: named tuples, arrays and numbers.
    kept: ClassVar[tuple[str, ...]] = ()

    def __init__(self, query: syntax.Query) -> None:
        self._query = query
        self._arguments: dict[str, Any] = {
            one.name: one.value.value
            for one in query.arguments
            if isinstance(one, syntax.NamedValue) and isinstance(one.value, syntax.Literal)
        }
        #: Values of `WITH`: numbers, texts, flags or spans.
        self._options: dict[str, Any] = {one.name: getattr(one.value, "value", one.value) for one in query.options}
        self._space = _Space()
        self._keys: tuple[Any, ...] = ()
        #: Whether events have all vertices that they are about, however many there are.
        self.lists_all = False

    #: Moves of members of clusters in the last step, if they are followed: observations, vertices, and clusters.
    moved: tuple[Numbers, Numbers, Numbers, Numbers] | None = None

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

    def saved(self) -> dict[str, Any]:
        """Return the state, for `install`."""
        keys, olds, count = self._space.touched
        touched = keys[:count], olds[:count], count  # what follows is no state
        return {name: getattr(self, name) for name in self.kept} | {"touched": touched}

    def install(self, saved: Mapping[str, Any]) -> None:
        """Take the place of another pattern of the same query.

        Raises
        ------
        ValueError
            The state is of something else.
        """
        names = {"touched": self._space.touched} | {name: getattr(self, name) for name in self.kept}
        if saved.keys() != names.keys():
            raise ValueError(f"it has {', '.join(saved)}, and not {', '.join(names)}")
        for name, now in names.items():
            if not alike(saved[name], now):
                raise ValueError(f"{name} has another form")
            setattr(self._space if name == "touched" else self, name, saved[name])

    def slots(self, keys: Numbers, values: NDArray[Any]) -> tuple[Numbers, Numbers]:
        """Return the vertices and edges that keys and values consist of."""
        parts = (part for at, part in enumerate(self.parts(keys)) if not self._is_cluster(at))
        slots = np.concatenate([np.zeros(0, np.int64), *parts])
        return (slots[:0], slots) if self.of_edges else (slots, slots[:0])

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        """Return the vertices and edges of answers that were touched since the last observation."""
        keys, _, count = self._space.touched
        return self.slots(keys[:count], keys[:0])

    @property
    def follows_values(self) -> bool:
        """Whether it needs values of attributes."""
        return bool(self.measured or self.measured_of_edges or self.follows_times)

    def clusters(self, topic: str, key: Any) -> tuple[int, ...] | None:
        """Return the clusters of a topic that an event is about, or None if it is about none."""
        return None

    def predicates(self, role: str) -> list[syntax.Predicates]:
        """Return the predicates of a role."""
        return predicates_of(self._query.arguments, role)

    def encoded(self, kinds: Kinds, bits: Bits) -> tuple[NDArray[np.int8], Numbers]:
        """Return values of attributes in two numbers."""
        return kinds, bits

    def _table_of(self, encoder: Encoder, part: int) -> KeyTable:
        return encoder.edges if self.of_edges else encoder.vertices

    def _is_cluster(self, part: int) -> bool:
        """Whether a part of a key is a cluster."""
        return part < len(self.groups) and self.groups[part] is not None

    def _labels(self, encoder: Encoder, keys: Numbers) -> list[Any]:
        return [
            part if self._is_cluster(at) else self._table_of(encoder, at).keys(part)
            for at, part in enumerate(self.parts(keys))
        ]

    def labels(self, encoder: Encoder, keys: Numbers) -> list[list[Any]]:
        """Return what keys consist of, as it is written."""
        return [
            one if isinstance(one, list) else one.to_pylist() if isinstance(one, pa.Array) else one.tolist()
            for one in self._labels(encoder, keys)
        ]

    def ranks(self, encoder: Encoder, keys: Numbers) -> list[Numbers]:
        """Return numbers that order keys as their labels do."""
        found = []
        for at, part in enumerate(self.parts(keys)):
            if self._is_cluster(at):
                found.append(part)
                continue
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
        columns = dict(zip(self.columns, map(arrow_column, self._labels(encoder, keys)), strict=True))
        return columns if self.value is None else columns | {self.value: pa.array(values)}

    @property
    def narrowed(self) -> list[syntax.Predicates]:
        """Predicates on all vertices that the query sees, beside those of its clauses."""
        return []

    def see(self, encoder: Encoder, deltas: Deltas) -> Deltas:
        """Take what compiled code needs, before a step; return the changes as it needs them."""
        self._keys = encoder.vertices.columns
        return deltas


class Match(Pattern):
    """Vertices or edges that satisfy a predicate."""

    operator = "one flag for each element"
    statuses, columns = ("UNMATCHED", "MATCHED"), ("id",)
    kept = ("_current", "_held", "_ends")

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

    def slots(self, keys: Numbers, values: NDArray[Any]) -> tuple[Numbers, Numbers]:
        vertices, edges = super().slots(keys, values)
        return (np.concatenate([values >> 32, values & _LOW]) if self.of_edges else vertices), edges


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

    operator = "one number for each vertex"
    statuses, columns, value, roles = ("CLEARED", "RAISED"), ("vertex",), "degree", ("vertex",)
    kept = ("_net", "_degrees", "_chosen", "_held")

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
    """Sides of vertices from which hops lead on, how many of them count, and which pairs are answers.

    Attributes
    ----------
    sides, most : int
    alike : bool
        Whether sources and sinks are the same, which do not reach themselves.
    lists : int
        Members up to which groups are listed; 0 if they are not groups.
    """

    sides: int
    most: int
    alike: bool
    lists: int


class Side(NamedTuple):
    """Sources or sinks: groups of vertices, of which some are chosen.

    Attributes
    ----------
    chosen : bool array, shape (vertices,)
    groups, following, preceding : arrays, shape (vertices,)
        Group, or -1, and the next vertices in it.
    firsts : array, shape (groups,)
    """

    chosen: NDArray[np.bool_]
    groups: Numbers
    following: Numbers
    preceding: Numbers
    firsts: Numbers

    @classmethod
    def empty(cls) -> Side:
        """Return a side without groups."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing.astype(np.bool_), nothing, nothing, nothing, nothing)

    def fit(self, vertices: int, groups: int | None, *, chosen: bool) -> Side:
        """Return space for more vertices: each one is a group, unless there are some."""
        had = len(self.chosen)
        side = Side(
            longest(self.chosen, vertices), longest(self.groups, vertices), longest(self.following, vertices),
            longest(self.preceding, vertices), longest(self.firsts, vertices if groups is None else groups),
        )  # fmt: skip
        side.chosen[had:] = chosen
        side.groups[had:] = np.arange(had, len(side.groups)) if groups is None else -1
        side.following[had:] = side.preceding[had:] = -1
        before = len(self.firsts)
        side.firsts[before:] = np.arange(before, len(side.firsts)) if groups is None else -1
        return side


class Hops(NamedTuple):
    """Hops from sources.

    Attributes
    ----------
    hops : int32 array, shape (rows, vertices)
    held : int32 array, shape (rows, groups of sinks)
        Hops from sources to sinks at the last observation.
    rows : array, shape (groups of sources,)
        Row of a source, or -1.
    of_rows, seeds, used : arrays, shape (rows,)
        Source of a row, or the next row that is free; and how many vertices the source has.
    free, counts : arrays, shape (1,)
        First row that is free, and whether rows may be without a source.
    sources, sinks : Side
    losing : bool array, shape (vertices,)
        Scratch space.
    """

    hops: NDArray[np.int32]
    held: NDArray[np.int32]
    rows: Numbers
    of_rows: Numbers
    seeds: Numbers
    used: NDArray[np.bool_]
    free: Numbers
    counts: Numbers
    sources: Side
    sinks: Side
    losing: NDArray[np.bool_]


class Groups:
    """Numbers of clusters that have members; those of clusters that are gone are used again."""

    def __init__(self) -> None:
        self.ids = np.zeros(0, np.int64)
        self._numbers: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def numbers(self, ids: Numbers) -> Numbers:
        """Return the numbers of clusters, -1 for none."""
        found, places = np.unique(ids, return_inverse=True)
        return np.array([self._number(one) if one else -1 for one in found.tolist()], np.int64)[places]

    def _number(self, cluster: int) -> int:
        if cluster not in self._numbers:
            if not self._free:
                had = len(self.ids)
                self.ids = longer(self.ids, had, max(16, 2 * had))
                self._free = list(range(len(self.ids) - 1, had - 1, -1))
            number = self._numbers[cluster] = self._free.pop()
            self.ids[number] = cluster
        return self._numbers[cluster]

    def saved(self) -> tuple[Any, ...]:
        """Return the state, for `install`."""
        return self.ids, self._numbers, self._free

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of others."""
        self.ids, self._numbers, self._free = saved

    def release(self, numbers: Iterable[int]) -> None:
        """Let numbers go."""
        for number in numbers:
            del self._numbers[int(self.ids[number])]
            self._free.append(number)


class Pair(NamedTuple):
    """Hops between two groups, and the vertices of both."""

    hops: int
    vertices: NDArray[np.int64]


class Reach(Pattern):
    """Pairs of a source and a sink that it reaches; clusters if an argument names their topic."""

    operator = "hops from each source, breadth first; vertices that lose their last shortest path are reached anew"
    statuses, columns, value = ("UNREACHABLE", "REACHABLE"), ("source", "sink"), "hops"
    roles: tuple[str, ...] = ("source", "sink")
    kept = ("_net", "_state")
    _direction = "out"

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        if type(self) is Reach:
            self.groups = tuple(_topic_of(query, role) for role in self.roles)
        self._groups = [None if topic is None else Groups() for topic in self.groups] or [None, None]
        most = self._arguments.get("hops", int(FAR) - 1)
        grouped = any(one is not None for one in self._groups)
        self._rule = HopRule(
            _SIDES[self._arguments.get("direction", self._direction)], min(most, int(FAR) - 1),
            len(set(self.groups)) < 2, MOST_MEMBERS if grouped else 0,
        )  # fmt: skip
        self.dtype = object if grouped else np.int64
        self._net = Net.empty()
        nothing, hops = np.zeros(0, np.int64), np.zeros((0, 0), np.int32)
        self._state = Hops(
            hops, hops, nothing, nothing, nothing, nothing.astype(np.bool_), np.full(1, -1), np.zeros(1, np.int64),
            Side.empty(), Side.empty(), nothing.astype(np.bool_),
        )  # fmt: skip
        self._emptied = [set[int](), set[int]()]

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        self._net = self._net.fit(vertices, edges, deltas)
        state, (sources, sinks) = self._state, self._groups
        if vertices > len(state.losing):
            state = state._replace(losing=longest(state.losing, vertices))
        sizes = [None if one is None else len(one) for one in (sources, sinks)]
        spaces = vertices if sizes[0] is None else sizes[0], vertices if sizes[1] is None else sizes[1]
        if vertices > len(state.sources.chosen) or (spaces[0], spaces[1]) != (len(state.rows), state.held.shape[1]):
            before = len(state.rows)
            state = state._replace(
                sources=state.sources.fit(vertices, sizes[0], chosen=False),
                sinks=state.sinks.fit(vertices, sizes[1], chosen="sink" not in self.roles),
                rows=longest(state.rows, spaces[0]),
            )
            state.rows[before:] = -1
        more = int((deltas.kinds == EDGE_ON + 2).sum()) + int((deltas.kinds == MOVE).sum())
        rows = int(state.used.sum()) + more
        if sources is not None:
            rows = min(rows, spaces[0])
        if rows > len(state.used) or vertices > state.hops.shape[1] or spaces[1] > state.held.shape[1]:
            state = self._more_rows(state, rows, vertices, spaces[1])
        self._state = state

    @staticmethod
    def _more_rows(state: Hops, rows: int, vertices: int, sinks: int) -> Hops:
        had, count = len(state.used), len(state.used)
        if rows > had:
            count = max(rows, min(2 * had, _MOST_SOURCES))
        if count > _MOST_SOURCES:
            raise JobError(f"limit: {rows:,} sources; accepted are {_MOST_SOURCES:,}")
        if 4 * count * (vertices + sinks) > _MOST_BYTES:
            count = max(rows, had)
        if 4 * count * (vertices + sinks) > _MOST_BYTES:
            raise JobError(f"limit: {rows:,} sources of {vertices:,} vertices need more than {_MOST_BYTES >> 20:,} MiB")
        hops, held = np.full((count, vertices), FAR, np.int32), np.full((count, sinks), FAR, np.int32)
        hops[:had, : state.hops.shape[1]], held[:had, : state.held.shape[1]] = state.hops, state.held
        of_rows = longer(state.of_rows, had, count)
        if count > had:
            of_rows[had:] = np.arange(had + 1, count + 1)
            of_rows[-1] = state.free[0]
        return state._replace(
            hops=hops, held=held, of_rows=of_rows, seeds=longer(state.seeds, had, count),
            used=longer(state.used, had, count), free=np.array([had]) if count > had else state.free,
        )  # fmt: skip

    def saved(self) -> dict[str, Any]:
        groups = [None if one is None else one.saved() for one in self._groups]
        return super().saved() | {"groups": tuple(groups), "emptied": tuple(self._emptied)}

    def install(self, saved: Mapping[str, Any]) -> None:
        saved = dict(saved)
        for one, given in zip(self._groups, saved.pop("groups"), strict=True):
            if one is not None:
                one.install(given)
        self._emptied = list(saved.pop("emptied"))
        super().install(saved)

    def slots(self, keys: Numbers, values: NDArray[Any]) -> tuple[Numbers, Numbers]:
        vertices, edges = super().slots(keys, values)
        listed = (one.vertices for one in values if isinstance(one, Pair))
        return np.concatenate([vertices, *listed]), edges

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        keys, _, count = self._space.touched
        rows, sinks = self._state.of_rows[self._state.used], keys[:count] & _LOW
        parts = [part for part, groups in zip((rows, sinks), self._groups, strict=True) if groups is None]
        return np.concatenate([np.zeros(0, np.int64), *parts]), rows[:0]

    def see(self, encoder: Encoder, deltas: Deltas) -> Deltas:
        sources, targets = deltas.sources, deltas.targets
        for at, groups in enumerate(self._groups):
            moves = np.flatnonzero(deltas.kinds == MOVE - at)
            if groups is not None and len(moves):
                if sources is deltas.sources:
                    sources, targets = sources.copy(), targets.copy()
                for column in (sources, targets):
                    column[moves] = groups.numbers(column[moves])
                self._emptied[at].update(sources[moves][sources[moves] >= 0].tolist())
        return deltas._replace(sources=sources, targets=targets)

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        space, nothing = self._space, np.zeros(0, np.int64)
        rule = self._rule._replace(lists=1 << 62) if self.lists_all and self._rule.lists else self._rule
        touched, (made, (vertices, _), limits) = pattern_kernels.distances(
            deltas, self._net, self._state, rule, space.touched, (space.found, (nothing, 0), nothing), 0, ends
        )
        found = space.keep((touched, made))
        if not rule.lists:
            return found
        lists = np.split(vertices, limits[: len(found.keys)])
        values = np.empty(len(found.keys), object)
        values[:] = [Pair(hops, one) for hops, one in zip(found.values.tolist(), lists, strict=False)]
        keys = self._of_clusters(found.keys)
        if not self.pending:
            self._release()
        return found._replace(keys=keys, values=values)

    def _of_clusters(self, keys: Numbers) -> Numbers:
        """Return keys with ids of clusters in place of their numbers."""
        sides = [
            part if groups is None else groups.ids[part]
            for part, groups in zip((keys >> 32, keys & _LOW), self._groups, strict=True)
        ]
        return sides[0] << 32 | sides[1]

    def _release(self) -> None:
        """Let numbers of clusters go that have no members."""
        for groups, emptied, side in zip(
            self._groups, self._emptied, (self._state.sources, self._state.sinks), strict=True
        ):
            if groups is not None:
                groups.release(one for one in emptied if side.firsts[one] < 0)
            emptied.clear()

    def answers(self) -> tuple[Numbers, NDArray[Any]]:
        rows, sinks = np.nonzero(self._state.held[self._state.used] != FAR)
        rows = np.flatnonzero(self._state.used)[rows]
        values: NDArray[Any] = self._state.held[rows, sinks].astype(np.int64)
        keys = self._state.of_rows[rows] << 32 | sinks
        return (self._of_clusters(keys), values) if self._rule.lists else (keys, values)

    def parts(self, keys: Numbers) -> tuple[Numbers, ...]:
        return keys >> 32, keys & _LOW

    def shown(self, encoder: Encoder, keys: Numbers, values: NDArray[Any]) -> dict[str, pa.Array]:
        hops = values if values.dtype != object else [getattr(one, "hops", one) for one in values.tolist()]
        return super().shown(encoder, keys, np.array(hops, np.int64))

    def vertices(self, key: int, value: Any) -> frozenset[int]:
        return frozenset(value.vertices.tolist() if isinstance(value, Pair) else [key >> 32, key & _LOW])

    def clusters(self, topic: str, key: int) -> tuple[int, ...] | None:
        if topic not in self.groups:
            return None
        return tuple(one for one, of in zip((key >> 32, key & _LOW), self.groups, strict=True) if of == topic)


class Neighbourhood(Reach):
    """Vertices near centers."""

    statuses, columns, roles = ("LEFT", "ENTERED"), ("center", "vertex"), ("center",)
    _direction = "both"


def _topic_of(query: syntax.Query, role: str) -> str | None:
    """Return the topic whose clusters take the place of vertices."""
    parts = [part for one in predicates_of(query.arguments, role) for part in one.parts]
    return next((part.topic for part in parts if isinstance(part, syntax.Member)), None)


def longest(column: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a column with space for some elements."""
    return longer(column, len(column), size) if size > len(column) else column


def predicates_of(parts: Iterable[Any], *names: str) -> list[syntax.Predicates]:
    """Return the predicates of some arguments or constraints."""
    return [one.predicates for one in parts if isinstance(one, syntax.NamedPredicates) and one.name in names]
