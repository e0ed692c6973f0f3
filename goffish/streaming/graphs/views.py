"""What a query sees of a live graph: elements that satisfy its predicates, and members of clusters that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.streaming.graphs import view_kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.pattern_kernels import EDGE_ON
from goffish.streaming.graphs.patterns import Deltas, Moves, Net, Numbers, Pattern, predicates_of
from goffish.streaming.graphs.predicate_kernels import ALL, ANY, NOT, OFF, RENEWED
from goffish.streaming.graphs.predicates import Flips, Predicates
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Changes, State
from goffish.streaming.graphs.trees import alike
from goffish.streaming.graphs.updates import (
    NONE,
    REMOVE_EDGE,
    REMOVE_VERTEX,
    SET_EDGE,
    SET_VERTEX,
    TIME,
    UNSET_EDGE,
    UNSET_VERTEX,
)
from goffish.streaming.key_table import longer

#: What happens at a time, in this order: ends of queries, expirations, beginnings, records, late ones, and instances.
END, EXPIRATION, BEGINNING, RECORD, LATE, INSTANCE = 1, 2, 3, 4, 5, 6
#: Changes of attributes of vertices and edges: set, removed, and removed with the element.
_OPS_OF_VALUES = (SET_VERTEX, UNSET_VERTEX, REMOVE_VERTEX), (SET_EDGE, UNSET_EDGE, REMOVE_EDGE)
#: Largest kind of a change.
_MOST_KINDS = 127


class Ticks(NamedTuple):
    """Records that were applied.

    Attributes
    ----------
    times : array
    asn : int
        Number of the first one.
    until : int
        Time up to which all records are applied.
    late : bool array, optional
        Those that are late.
    instance : int, optional
        Time of all changes, as the records between two times are not known.
    """

    times: Numbers
    asn: int
    until: int
    late: NDArray[np.bool_] | None = None
    instance: int | None = None


class Batch(NamedTuple):
    """What some records have changed, for all queries.

    Attributes
    ----------
    flips : Flips
        Ordered by predicate.
    times : array
        Of the records.
    asn : int
        Number of the first record.
    until : int
        Time up to which all records are applied.
    places : array
        Of the flips, in the order in which they happened.
    rows : dict
        Where the flips of each predicate are.
    changes : Changes
        Of the graph.
    late : bool array, optional
        Records that are late.
    instance : int, optional
        Time of all changes, as the records between two times are not known.
    """

    flips: Flips
    times: Numbers
    asn: int
    until: int
    places: Numbers
    rows: dict[int, slice]
    changes: Changes
    late: NDArray[np.bool_] | None = None
    instance: int | None = None

    @classmethod
    def of(cls, changes: Changes, flips: Flips, ticks: Ticks) -> Batch:
        """Order flips by predicate."""
        places = np.arange(len(flips.programs))
        firsts = places[:1].tolist()
        if len(places) > 1:
            places = np.argsort(flips.programs, kind="stable")
            flips = flips.take(places)
            firsts += (1 + np.flatnonzero(np.diff(flips.programs))).tolist()
        rows = {int(flips.programs[a]): slice(a, b) for a, b in pairwise([*firsts, len(places)])}
        return cls(flips, ticks.times, ticks.asn, ticks.until, places, rows, changes, *ticks[3:])

    @property
    def last(self) -> tuple[int, int]:
        """Phase and number of the last record."""
        return RECORD if self.instance is None else INSTANCE, self.asn + len(self.times) - 1

    def phases(self, records: Numbers) -> Numbers:
        """Return the phases of some records."""
        if self.late is None or not len(self.late):
            return np.full(len(records), RECORD)
        return np.where(self.late[records], LATE, RECORD)


class _Values(NamedTuple):
    """Values of attributes: records, numbers among those that are measured, elements, kinds and bits."""

    records: Numbers
    at: Numbers
    elements: Numbers
    kinds: Kinds
    bits: Bits


class _Window(NamedTuple):
    """Edges that were seen within a span."""

    span: int
    seen: Numbers
    sources: Numbers
    targets: Numbers
    live: NDArray[np.bool_]


class _Formulas(NamedTuple):
    """Predicates that depend on members of clusters, as instructions in postfix order.

    Attributes
    ----------
    firsts : array, shape (formulas + 1,)
        First instruction of each formula: that of all vertices whose edges are seen comes before those of the roles.
    codes : int8 array
    counts : array
        Parts that an instruction joins, or the part that it stands for.
    topics : array
        Parts by topic, -1 for one whose members the pattern follows only.
    passes : bool array
        Topics whose members the pattern follows.
    of_edges : bool
        Whether the first formula says anything.
    roles, first : int
        Parts that are roles, and the kind of change of the first part that is neither a role nor a topic.
    """

    firsts: Numbers
    codes: NDArray[np.int8]
    counts: Numbers
    topics: Numbers
    passes: NDArray[np.bool_]
    of_edges: bool
    roles: int
    first: int


class _Truth(NamedTuple):
    """Parts of formulas, and formulas, that hold for vertices; `stack` has space for the parts of one of them."""

    parts: NDArray[np.bool_]
    truth: NDArray[np.bool_]
    stack: NDArray[np.bool_]


class View:
    """What a query sees.

    Parameters
    ----------
    query : Query
    pattern : Pattern
    encoder : Encoder

    Attributes
    ----------
    topics : tuple of str
        Topics whose members it follows: those of the pattern, and those of its predicates.
    expirations : array
        Times at which edges expired in the last step.
    """

    def __init__(self, query: syntax.Query, pattern: Pattern, encoder: Encoder) -> None:
        self._query, self._pattern, self._encoder = query, pattern, encoder
        nothing = np.zeros(0, np.int64)
        self._window: _Window | None = None
        if query.window is not None and pattern.sees_edges:
            self._window = _Window(query.window.micros, nothing, nothing, nothing, nothing.astype(np.bool_))
        self._timers: tuple[Numbers, Numbers, int] = nothing, nothing, 0
        self.expirations = nothing
        self._programs: list[tuple[int, int]] = []
        self._measured: tuple[list[int], list[int]] = [], []
        nodes, rest = _split([*predicates_of(query.where, "node", "vertex"), *pattern.narrowed])
        self._nodes = nodes  # of vertices whose edges are seen
        self._parts: list[list[syntax.Predicates]] = []
        mixed = []
        for number, role in enumerate(pattern.roles):
            own, others = _split(pattern.predicates(role))
            if number < len(pattern.groups):  # the first topic is in place of vertices
                others = others[1:] if others and isinstance(others[0], syntax.Member) else others
            self._parts.append([*own, *nodes] if role else [])
            mixed.append([*others, *rest] if role else [])
        self.topics: tuple[str | None, ...] = pattern.groups
        self._formulas: _Formulas | None = None
        if rest or any(mixed):
            self._formulas = self._compile([rest, *mixed])
        none = np.zeros((0, 0), np.bool_)
        self._truth = _Truth(none, none, np.zeros(0, np.bool_))
        self._net = Net.empty()

    def _compile(self, formulas: list[list[Any]]) -> _Formulas:
        """Turn predicates into instructions, and add parts that are predicates without members."""
        codes: list[tuple[int, int]] = []
        filters: dict[str, int] = {}
        plain: dict[str, int] = {}

        def add(part: Any) -> None:
            if isinstance(part, syntax.Member):
                codes.append((view_kernels.PART, -1 - filters.setdefault(part.topic, len(filters))))
            elif not _has_members(part):
                if str(part) not in plain:
                    plain[str(part)] = len(self._parts)
                    self._parts.append([syntax.Predicates((part,))])
                codes.append((view_kernels.PART, plain[str(part)]))
            elif isinstance(part, syntax.Not):
                add(part.part)
                codes.append((NOT, 1))
            else:
                for one in part.parts:
                    add(one)
                codes.append((ALL if isinstance(part, syntax.All) else ANY, len(part.parts)))

        firsts = [0]
        for number, parts in enumerate(formulas):
            if number:
                codes.append((view_kernels.PART, number - 1))
            for part in parts:
                add(part)
            codes.append((ALL, len(parts) + (number > 0)))
            firsts.append(len(codes))
        pattern, count, groups = self._pattern, len(self._parts), len(self._pattern.groups)
        first = pattern.first_value + len(pattern.measured) + len(pattern.measured_of_edges) + pattern.follows_times
        if first + 2 * (count - len(pattern.roles)) > _MOST_KINDS:
            raise CgqlError("too many predicates beside members of clusters; use fewer", self._query.at)
        self.topics = (*pattern.groups, *filters)
        return _Formulas(
            np.array(firsts), np.array([code for code, _ in codes], np.int8),
            np.array([at if at >= 0 else count - 1 - at for _, at in codes]),
            np.array([-1] * groups + [count + at for at in range(len(filters))]),
            np.array([one is not None for one in pattern.groups] + [False] * len(filters), np.bool_),
            bool(formulas[0]), len(pattern.roles), first,
        )  # fmt: skip

    def bind(self, vertices: Predicates, edges: Predicates) -> None:
        """Add the predicates of this query to those of all."""
        query, pattern = self._query, self._pattern
        try:
            self._measured = (
                [self._encoder.name(name) for name in pattern.measured],
                [self._encoder.name(name) for name in pattern.measured_of_edges],
            )
        except InputError as error:
            raise CgqlError(str(error), query.at) from None
        roles, others = len(pattern.roles), 0 if self._formulas is None else self._formulas.first
        self._programs = [
            (vertices.add(parts), EDGE_ON + 1 + 2 * number if number < roles else others + 2 * (number - roles))
            for number, parts in enumerate(self._parts)
        ]
        if pattern.sees_edges:
            parts = [*predicates_of(query.where, "edge"), *predicates_of(query.arguments, "edge")]
            ends = vertices.add(self._nodes) if self._nodes else -1
            renewed = self._window is not None or pattern.follows_times
            self._programs += [(-1 - edges.add(parts, ends, renewed=renewed), 0)]
            self._programs += [
                (-1 - edges.add(parts), EDGE_ON + 1 + 2 * (roles + number))
                for number, parts in enumerate(pattern.edge_roles)
            ]

    def programs(self, vertices: int) -> list[int]:
        """Return the numbers of the predicates of this query, those of edges after those of the vertices."""
        return [program if program >= 0 else vertices - 1 - program for program, _ in self._programs]

    def saved(self) -> tuple[Any, ...]:
        """Return the state, for `install`."""
        times, edges, count = self._timers
        return self._window, (times[:count], edges[:count], count), self._truth, self._net

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of another one of the same query.

        Raises
        ------
        ValueError
            The state is of something else.
        """
        if not alike(saved, (self._window, self._timers, self._truth, self._net)):
            raise ValueError("what it sees has another form")
        self._window, self._timers, self._truth, self._net = saved

    def changes(self, batch: Batch, state: State) -> bool:
        """Whether it sees anything of a batch, beside members of clusters."""
        if self._timers[2] and self._timers[0][0] <= batch.until:
            return True
        if self._pattern.follows_values and len(batch.changes.ops):
            return True
        return not batch.rows.keys().isdisjoint(self.programs(len(state.vertices)))

    def first(self, batch: Batch, state: State, moves: Mapping[str, Moves]) -> Deltas:
        """Return all that it sees as the query begins."""
        return self._see(batch, state, moves, self._first_values)

    def see(self, batch: Batch, state: State, moves: Mapping[str, Moves]) -> Deltas:
        """Return what it sees of changes, until the time of the batch."""
        deltas = self._see(batch, state, moves, self._changed_values)
        if batch.instance is None:
            return deltas
        self.expirations = self.expirations[:0]  # these were not seen one by one either
        stamps = np.full((3, len(deltas.kinds)), [[batch.instance], [INSTANCE], [batch.asn]])
        return deltas._replace(times=stamps[0], phases=stamps[1], asns=stamps[2])

    def _see(
        self, batch: Batch, state: State, moves: Mapping[str, Moves], values: Callable[[Batch, State], _Values]
    ) -> Deltas:
        parts = [self._flips(batch, state)]
        if self._pattern.follows_values:
            found = values(batch, state)
            if self._pattern.follows_times:
                found = _joined([found, self._times(batch, state)])
            # Elements have their values when they appear, and until they are gone.
            rows, gone = self._values(found, batch), found.kinds == NONE
            parts = [Deltas._make(one[~gone] for one in rows), *parts, Deltas._make(one[gone] for one in rows)]
        for number, topic in enumerate(self.topics):  # clusters follow what they depend on
            if topic is not None and len(moves[topic].vertices):
                parts.append(moves[topic].deltas(number))
        deltas = parts[0]
        if len(parts) > 1:
            columns: Any = zip(*parts, strict=True)
            merged = Deltas._make(map(np.concatenate, columns))
            order = np.lexsort((merged.asns, merged.phases, merged.times))
            deltas = Deltas._make(column[order] for column in merged)
        return deltas if self._formulas is None else self._narrow(self._formulas, deltas, state)

    def _flips(self, batch: Batch, state: State) -> Deltas:
        flips, places, kinds = batch.flips, [], []
        for program, (_, kind) in zip(self.programs(len(state.vertices)), self._programs, strict=True):
            if program not in batch.rows:
                continue
            rows = batch.rows[program]
            found, states = np.arange(rows.start, rows.stop), flips.states[rows]
            if kind == 0 and self._window is None and (states == RENEWED).any():
                found, states = found[states != RENEWED], states[states != RENEWED]
            places.append(found)
            kinds.append((states != OFF) + np.int8(kind))
        chosen, of_roles = np.zeros(0, np.int64), np.zeros(0, np.int8)
        if len(places) == 1:
            chosen, of_roles = places[0], kinds[0]
        elif places:
            chosen, of_roles = np.concatenate(places), np.concatenate(kinds)
            order = np.argsort(batch.places[chosen], kind="stable")
            chosen, of_roles = chosen[order], of_roles[order]
        flips = flips.take(chosen)
        times = batch.times[flips.records] if len(batch.times) else np.zeros(len(of_roles), np.int64)
        if self._window is not None:
            return self._slide(self._window, flips, of_roles, times, batch, state)
        return Deltas(
            of_roles, flips.elements, flips.sources, flips.targets, times, batch.phases(flips.records),
            flips.records + batch.asn, np.ones(len(times), np.bool_),
        )  # fmt: skip

    def _slide(
        self, window: _Window, flips: Flips, kinds: NDArray[np.int8], times: Numbers, batch: Batch, state: State
    ) -> Deltas:
        """Let edges expire."""
        edges = len(state.graph.edges.alive)
        if edges > len(window.live):
            had = len(window.live)
            self._window = window = _Window(window.span, *(longer(one, had, edges) for one in window[1:]))
        nothing = np.zeros(0, np.int64)
        made = nothing, nothing, nothing.astype(np.int8), nothing, nothing, nothing, 0
        self._timers, (*columns, count) = view_kernels.slide(
            flips, kinds, times, window, batch.until, self._timers, made
        )
        places, at, found, elements, sources, targets = (column[:count] for column in columns)
        record = places >= 0
        self.expirations = at[~record]
        asns = np.zeros(count, np.int64)
        asns[record] = flips.records[places[record]] + batch.asn
        phases = np.full(count, EXPIRATION)
        phases[record] = batch.phases(flips.records[places[record]])
        return Deltas(found, elements, sources, targets, at, phases, asns, np.ones(count, np.bool_))

    def _narrow(self, formulas: _Formulas, deltas: Deltas, state: State) -> Deltas:
        """Let elements go that depend on members of clusters which are none."""
        vertices, edges = len(state.graph.vertices), len(state.graph.edges.alive)
        had = self._truth.parts.shape[1]
        if vertices > had:
            filters = int(np.count_nonzero(formulas.topics >= 0))
            parts = np.zeros((len(self._parts) + filters, vertices), np.bool_)
            truth = np.zeros((len(formulas.firsts) - 1, vertices), np.bool_)
            stack = np.zeros(len(formulas.codes), np.bool_)
            # Without members, vertices can satisfy that they are none; those of roles must exist.
            truth[0] = view_kernels.holds(formulas, 0, parts, 0, stack)
            if had:
                parts[:, :had], truth[:, :had] = self._truth.parts, self._truth.truth
            self._truth = _Truth(parts, truth, stack)
        if formulas.of_edges:
            self._net = self._net.fit(vertices, edges, deltas)
        nothing = np.zeros(0, np.int64)
        made = nothing.astype(np.int8), nothing, nothing, nothing, nothing, 0
        *columns, count = view_kernels.narrow(deltas, formulas, self._truth, self._net, made)
        kinds, elements, sources, targets, rows = (column[:count] for column in columns)
        return Deltas(
            kinds, elements, sources, targets, deltas.times[rows], deltas.phases[rows], deltas.asns[rows],
            deltas.begins[rows],
        )  # fmt: skip

    def _first_values(self, batch: Batch, state: State) -> _Values:
        """Return the values of attributes that are measured."""
        found, graph, first = [], state.graph, 0
        for attributes, names in zip((graph.of_vertices, graph.of_edges), self._measured, strict=True):
            rows = np.array(names, np.intp)
            if len(batch.times):
                rows = rows[:0]  # it begins before these records, which the graph already has
            at, elements = (one.astype(np.int64) for one in np.nonzero(attributes.kinds[rows] != NONE))
            kinds, bits = attributes.kinds[rows[at], elements], attributes.bits[rows[at], elements]
            found.append(_Values(np.zeros(len(at), np.int64), at + first, elements, kinds, bits))
            first += len(names)  # attributes of edges are numbered after those of vertices
        return _joined(found)

    def _changed_values(self, batch: Batch, state: State) -> _Values:
        """Return values that were set, or that are gone."""
        changes, found, first = batch.changes, [], 0
        for ops, names in zip(_OPS_OF_VALUES, self._measured, strict=True):
            set_or_not, gone = np.isin(changes.ops, ops[:2]), changes.ops == ops[2]
            rows = [np.flatnonzero(set_or_not & (changes.names == name) | gone) for name in names]
            at = np.repeat(first + np.arange(len(rows)), [len(one) for one in rows])
            every = np.concatenate([np.zeros(0, np.int64), *rows])
            columns = changes.records, changes.elements, changes.kinds, changes.bits
            records, elements, kinds, bits = (column[every] for column in columns)
            found.append(_Values(records, at, elements, kinds, bits))
            first += len(names)
        return _joined(found)

    def _times(self, batch: Batch, state: State) -> _Values:
        """Return the times when edges that the query sees were seen."""
        kinds = [kind for _, kind in self._programs]
        program = self.programs(len(state.vertices))[kinds.index(0)]
        flips = batch.flips.take(batch.rows.get(program, slice(0)))
        flips = flips.take(flips.states != OFF)
        at = np.full(len(flips.states), sum(map(len, self._measured)))
        return _Values(flips.records, at, flips.elements, np.full(len(at), TIME, np.int8), flips.seen)

    def _values(self, values: _Values, batch: Batch) -> Deltas:
        codes, numbers = self._pattern.encoded(values.kinds, values.bits)
        times = batch.times[values.records] if len(batch.times) else values.records
        return Deltas(
            (self._pattern.first_value + values.at).astype(np.int8), values.elements, codes.astype(np.int64), numbers,
            times, batch.phases(values.records), values.records + batch.asn, np.ones(len(times), np.bool_),
        )  # fmt: skip


def _joined(parts: list[_Values]) -> _Values:
    columns: Any = zip(*parts, strict=True)
    return _Values._make(map(np.concatenate, columns))


def _has_members(part: Any) -> bool:
    """Whether a predicate depends on members of clusters."""
    parts: Iterable[Any] = ()
    if isinstance(part, syntax.All | syntax.Any):
        parts = part.parts
    elif isinstance(part, syntax.Not):
        parts = (part.part,)
    return isinstance(part, syntax.Member) or any(map(_has_members, parts))


def _split(given: Iterable[syntax.Predicates]) -> tuple[list[syntax.Predicates], list[Any]]:
    """Return predicates, and the parts of them that depend on members of clusters."""
    plain: list[syntax.Predicates] = []
    mixed: list[Any] = []
    for one in given:
        rest = [part for part in one.parts if _has_members(part)]
        mixed += rest
        kept = tuple(part for part in one.parts if not _has_members(part))
        if kept or not rest:
            plain.append(syntax.Predicates(kept))
    return plain, mixed
