"""Continuous queries on a live graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs import pattern_kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.centrality import Centrality
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.checks import Checked, check
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.clusters import Cluster, Component
from goffish.streaming.graphs.motifs import Motif
from goffish.streaming.graphs.pattern_kernels import EDGE_ON
from goffish.streaming.graphs.patterns import (
    Degree,
    Deltas,
    Found,
    Match,
    Neighbourhood,
    Numbers,
    Pattern,
    Reach,
    predicates_of,
)
from goffish.streaming.graphs.predicate_kernels import OFF, RENEWED
from goffish.streaming.graphs.predicates import Flips, Predicates
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Changes, State
from goffish.streaming.graphs.temporal import Occurrence, Temporal
from goffish.streaming.graphs.topics import Events, Stamps, Topic
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

#: What happens at a time, in this order: ends of queries, expirations, beginnings, and records.
_END, _EXPIRATION, _BEGINNING, _RECORD = 1, 2, 3, 4
#: Changes of attributes of vertices and edges: set, removed, and removed with the element.
_OPS_OF_VALUES = (SET_VERTEX, UNSET_VERTEX, REMOVE_VERTEX), (SET_EDGE, UNSET_EDGE, REMOVE_EDGE)
_Stamp = tuple[int, int, int]
_PATTERNS: dict[str, type[Pattern]] = {
    "Centrality": Centrality, "Cluster": Cluster, "Component": Component, "Degree": Degree, "Match": Match,
    "Motif": Motif, "Neighbourhood": Neighbourhood, "Reach": Reach,
}  # fmt: skip
#: Takes the topic and its new events.
Take = Callable[[str, pa.Table], None]


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
    changes : Changes
        Of the graph.
    """

    flips: Flips
    times: Numbers
    asn: int
    until: int
    places: Numbers
    changes: Changes

    @classmethod
    def of(cls, changes: Changes, flips: Flips, times: Numbers, asn: int, until: int) -> Batch:
        """Order flips by predicate."""
        places = np.argsort(flips.programs, kind="stable")
        return cls(flips.take(places), times, asn, until, places, changes)

    def rows(self, program: int) -> slice:
        """Return where the flips of a predicate are."""
        return slice(*np.searchsorted(self.flips.programs, [program, program + 1]).tolist())


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


class Query:
    """A query that runs.

    Parameters
    ----------
    checked : Checked
    encoder : Encoder
    most : int
        Events that are kept.
    named : mapping
        Queries by topic, at least those that this one names.

    Attributes
    ----------
    topic : Topic
    begun : bool
        Whether there was a first observation.
    published : list of Occurrence
        Events of the last step, if other queries name this one.
    """

    def __init__(self, checked: Checked, encoder: Encoder, most: int, named: Mapping[str, Query]) -> None:
        query = self._query = checked.query
        _check_available(checked)
        self._pattern = _PATTERNS[query.pattern](query)
        self._encoder = encoder
        self.topic = Topic(checked.topic, self._pattern, encoder, most)
        self.named = {topic: named[topic] for topic in checked.after}
        self._temporal = None
        if any(isinstance(one, syntax.Temporal | syntax.Ordered) for one in query.where):
            self._temporal = Temporal(query, {name: one.presence for name, one in self.named.items()})
        self.published: list[Occurrence] = []
        self.followed = False
        for one in self.named.values():
            one.followed = True
        for constraint in query.where:
            if (
                isinstance(constraint, syntax.Temporal)
                and constraint.shares
                and isinstance(constraint.of, syntax.Topic)
            ):
                self._pattern.lists_all = self.named[constraint.of.name]._pattern.lists_all = True
        own = None if query.every is None else query.every.micros
        #: Time between observations: its own, or that of a topic that it names.
        self.every: int | None = own or next((one.every for one in self.named.values() if one.every), None)
        nothing = np.zeros(0, np.int64)
        self._window: _Window | None = None
        if query.window is not None and self._pattern.sees_edges:
            self._window = _Window(query.window.micros, nothing, nothing, nothing, nothing.astype(np.bool_))
        self._timers: tuple[Numbers, Numbers, int] = nothing, nothing, 0
        self._statuses = {
            status for status in self._pattern.statuses
            if all(
                (status == one.right.value) == (one.operator == "=") for one in query.where
                if isinstance(one, syntax.Comparison) and str(one.left) == "status"
                and isinstance(one.right, syntax.Literal)
            )
        }  # fmt: skip
        self._shows_initial = not any(str(one) == "initial = false" for one in query.options)
        self._programs: list[tuple[int, int]] = []
        self._measured: tuple[list[int], list[int]] = [], []
        self._observation = 0  # number of the one that goes on, with `every`
        self._last: _Stamp = FIRST, 0, 0  # the last tick
        self._end: int | None = None
        self.begun = False

    def __str__(self) -> str:
        return str(self._query)

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
        nodes = [*predicates_of(query.where, "node", "vertex"), *pattern.narrowed]
        self._programs = [
            (vertices.add([*pattern.predicates(role), *nodes]), EDGE_ON + 1 + 2 * number)
            for number, role in enumerate(pattern.roles)
        ]
        if pattern.sees_edges:
            parts = [*predicates_of(query.where, "edge"), *predicates_of(query.arguments, "edge")]
            ends = vertices.add(nodes) if nodes else -1
            renewed = self._window is not None or pattern.follows_times
            self._programs += [(-1 - edges.add(parts, ends, renewed=renewed), 0)]
            self._programs += [
                (-1 - edges.add(parts), EDGE_ON + 1 + 2 * (len(pattern.roles) + number))
                for number, parts in enumerate(pattern.edge_roles)
            ]

    def programs(self, vertices: int) -> list[int]:
        """Return the numbers of the predicates of this query, those of edges after those of the vertices."""
        return [program if program >= 0 else vertices - 1 - program for program, _ in self._programs]

    def begin(self, batch: Batch, time: int, state: State) -> pa.Table | None:
        """Find the first answers at a time, from all that exists."""
        self.begun = True
        if isinstance(self._query.duration, syntax.For):
            self._end = time + self._query.duration.span.micros
        deltas = self._see(batch, state)
        if self._follows_values:
            deltas = self._with_values(deltas, self._first_values(state), state, 0, batch)
        deltas.times[:], deltas.phases[:], deltas.asns[:], deltas.begins[:] = time, _BEGINNING, 0, False
        self._last = time, _BEGINNING, 0
        if self.every is not None:
            self._observation = time // self.every
        found = self._follow(deltas, state, ends=True)
        if not self._shows_initial:
            found = Found._make(column[:0] for column in found)
        return self._publish(found, _stamps([self._last]), _stamps([self._last]), initial=True)

    def step(self, batch: Batch, state: State) -> list[pa.Table]:
        """Follow changes, and return the events."""
        end = self._end if self._end is not None and self._end <= batch.until else None
        if end is not None:
            batch = batch._replace(until=end - 1)
        deltas = self._see(batch, state)
        if self._follows_values:
            deltas = self._with_values(deltas, self._changed_values(batch.changes), state, batch.asn, batch)
        if end is not None:
            deltas = Deltas._make(column[deltas.times < end] for column in deltas)
            batch = batch._replace(times=batch.times[batch.times < end])
        self.published = []
        tables = []
        if len(deltas.kinds) or self._pattern.pending or self._temporal is not None:
            tables.append(self._observe(deltas, batch, state, ends=end is not None))
        if self._temporal is not None:
            # Events of an observation that goes on may have happened since it began.
            reached = batch.until if self.every is None else batch.until // self.every * self.every
            tables.append(self._send(self._temporal.expire(reached)))
        self._note(batch)
        if end is not None:
            tables.append(self.close("expired", end))
        return [one for one in tables if one is not None]

    @property
    def presence(self) -> tuple[str, ...]:
        """Statuses that say that there is an answer."""
        return tuple(self._pattern.statuses[code] for code in sorted(self._pattern.presence))

    def pass_over(self, batch: Batch) -> None:
        """Note that records were applied."""
        self.published = []
        self._note(batch)

    def _note(self, batch: Batch) -> None:
        if len(batch.times):
            self._last = max(self._last, (int(batch.times[-1]), _RECORD, batch.asn + len(batch.times) - 1))

    def close(self, reason: str, time: int) -> pa.Table:
        """End the query."""
        return self.topic.close(reason, _stamps([(time, _END, 0)]))

    def answers(self) -> pa.Table:
        """Return the answers as of the last observation."""
        return self.topic.answers(*self._pattern.answers())

    def is_concerned(self, batch: Batch, state: State) -> bool:
        """Whether something happens to this query."""
        if self._pattern.pending or self._temporal is not None or (self._end is not None and self._end <= batch.until):
            return True
        if self._timers[2] and self._timers[0][0] <= batch.until:
            return True
        if self._follows_values and len(batch.changes.ops):
            return True
        rows = map(batch.rows, self.programs(len(state.vertices)))
        return any(one.start < one.stop for one in rows)

    def _see(self, batch: Batch, state: State) -> Deltas:
        """Return what this query sees, until the time of the batch."""
        flips, places, kinds = batch.flips, [], []
        for program, (_, kind) in zip(self.programs(len(state.vertices)), self._programs, strict=True):
            rows = batch.rows(program)
            found, states = np.arange(rows.start, rows.stop), flips.states[rows]
            if kind == 0 and self._window is None and (states == RENEWED).any():
                found, states = found[states != RENEWED], states[states != RENEWED]
            if len(found):
                places.append(found)
                kinds.append((states != OFF) + np.int8(kind))
        if not places:
            flips, of_roles = flips.take(slice(0)), np.zeros(0, np.int8)
        else:
            chosen, of_roles = np.concatenate(places), np.concatenate(kinds)
            if len(chosen) > 1:
                order = np.argsort(batch.places[chosen], kind="stable")
                chosen, of_roles = chosen[order], of_roles[order]
            flips = flips.take(chosen)
        times = batch.times[flips.records] if len(batch.times) else np.zeros(len(of_roles), np.int64)
        if self._window is None:
            phases = np.full(len(times), _RECORD)
            return Deltas(
                of_roles, flips.elements, flips.sources, flips.targets, times, phases, flips.records + batch.asn,
                np.ones(len(times), np.bool_),
            )  # fmt: skip
        return self._slide(flips, of_roles, times, batch, state)

    def _slide(self, flips: Flips, kinds: NDArray[np.int8], times: Numbers, batch: Batch, state: State) -> Deltas:
        """Let edges expire."""
        assert self._window is not None
        edges = len(state.graph.edges.alive)
        if edges > len(self._window.live):
            had = len(self._window.live)
            self._window = _Window(self._window.span, *(longer(one, had, edges) for one in self._window[1:]))
        nothing = np.zeros(0, np.int64)
        made = nothing, nothing, nothing.astype(np.int8), nothing, nothing, nothing, 0
        self._timers, (*columns, count) = pattern_kernels.slide(
            flips, kinds, times, self._window, batch.until, self._timers, made
        )
        places, at, found, elements, sources, targets = (column[:count] for column in columns)
        record = places >= 0
        asns = np.zeros(count, np.int64)
        asns[record] = flips.records[places[record]] + batch.asn
        phases = np.where(record, _RECORD, _EXPIRATION)
        return Deltas(found, elements, sources, targets, at, phases, asns, np.ones(count, np.bool_))

    @property
    def _follows_values(self) -> bool:
        pattern = self._pattern
        return bool(pattern.measured or pattern.measured_of_edges or pattern.follows_times)

    def _first_values(self, state: State) -> _Values:
        """Return the values of attributes that are measured."""
        found, graph, first = [], state.graph, 0
        for attributes, names in zip((graph.of_vertices, graph.of_edges), self._measured, strict=True):
            rows = np.array(names, np.intp)
            at, elements = (one.astype(np.int64) for one in np.nonzero(attributes.kinds[rows] != NONE))
            kinds, bits = attributes.kinds[rows[at], elements], attributes.bits[rows[at], elements]
            found.append(_Values(np.zeros(len(at), np.int64), at + first, elements, kinds, bits))
            first += len(names)  # attributes of edges are numbered after those of vertices
        return self._joined(found)

    def _changed_values(self, changes: Changes) -> _Values:
        """Return values that were set, or that are gone."""
        found, first = [], 0
        for ops, names in zip(_OPS_OF_VALUES, self._measured, strict=True):
            set_or_not, gone = np.isin(changes.ops, ops[:2]), changes.ops == ops[2]
            rows = [np.flatnonzero(set_or_not & (changes.names == name) | gone) for name in names]
            at = np.repeat(first + np.arange(len(rows)), [len(one) for one in rows])
            every = np.concatenate([np.zeros(0, np.int64), *rows])
            columns = changes.records, changes.elements, changes.kinds, changes.bits
            records, elements, kinds, bits = (column[every] for column in columns)
            found.append(_Values(records, at, elements, kinds, bits))
            first += len(names)
        return self._joined(found)

    @staticmethod
    def _joined(parts: list[_Values]) -> _Values:
        columns: Any = zip(*parts, strict=True)
        return _Values._make(map(np.concatenate, columns))

    def _times(self, batch: Batch, state: State) -> _Values:
        """Return the times when edges that the query sees were seen."""
        kinds = [kind for _, kind in self._programs]
        program = self.programs(len(state.vertices))[kinds.index(0)]
        flips = batch.flips.take(batch.rows(program))
        flips = flips.take(flips.states != OFF)
        at = np.full(len(flips.states), sum(map(len, self._measured)))
        return _Values(flips.records, at, flips.elements, np.full(len(at), TIME, np.int8), flips.seen)

    def _with_values(self, deltas: Deltas, values: _Values, state: State, asn: int, batch: Batch) -> Deltas:
        """Insert values between what else has changed."""
        if self._pattern.follows_times:
            values = self._joined([values, self._times(batch, state)])
        codes, numbers = self._pattern.encoded(values.kinds, values.bits)
        times = batch.times[values.records] if len(batch.times) else values.records
        rows = Deltas(
            (self._pattern.first_value + values.at).astype(np.int8), values.elements, codes.astype(np.int64), numbers,
            times, np.full(len(times), _RECORD), values.records + asn, np.ones(len(times), np.bool_),
        )  # fmt: skip
        # Elements have their values when they appear, and until they are gone.
        gone = values.kinds == NONE
        parts = Deltas._make(one[~gone] for one in rows), deltas, Deltas._make(one[gone] for one in rows)
        columns: Any = zip(*parts, strict=True)
        both = Deltas._make(map(np.concatenate, columns))
        order = np.lexsort((both.asns, both.phases, both.times))
        return Deltas._make(column[order] for column in both)

    def _observe(self, deltas: Deltas, batch: Batch, state: State, *, ends: bool) -> pa.Table | None:
        if self.every is None:
            columns = deltas.times, deltas.phases, deltas.asns
            deltas.begins[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
            firsts = np.concatenate([[0], np.flatnonzero(deltas.begins)])  # none goes on before the first one
            stamps = Stamps._make(column[firsts] if len(column) else column for column in columns)
            return self._publish(self._follow(deltas, state, ends=True), stamps, stamps, initial=False)
        numbers = deltas.times // self.every
        deltas.begins[:] = np.diff(numbers, prepend=self._observation) > 0
        observations = [self._observation, *numbers[deltas.begins].tolist()]
        stamps = _stamps([self._last_before((number + 1) * self.every, deltas, batch) for number in observations])
        self._observation = observations[-1]
        whole = ends or batch.until // self.every > self._observation
        found = self._follow(deltas, state, ends=whole)
        expirations = deltas.times[deltas.phases == _EXPIRATION]
        if len(expirations):
            self._last = max(self._last, (int(expirations[-1]), _EXPIRATION, 0))
        released = [((number + 1) * self.every, 0, 0) for number in observations]
        if ends and self._end is not None:
            released[-1] = min(released[-1], (self._end, _END, 0))
        return self._publish(found, stamps, _stamps(released), initial=False)

    def _last_before(self, boundary: int, deltas: Deltas, batch: Batch) -> _Stamp:
        """Return the last tick before the end of an observation."""
        found = [self._last]
        before = int(np.searchsorted(batch.times, boundary)) - 1
        if before >= 0:
            found.append((int(batch.times[before]), _RECORD, batch.asn + before))
        expirations = deltas.times[(deltas.phases == _EXPIRATION) & (deltas.times < boundary)]
        if len(expirations):
            found.append((int(expirations[-1]), _EXPIRATION, 0))
        return max(found)

    def _follow(self, deltas: Deltas, state: State, *, ends: bool) -> Found:
        self._pattern.see(self._encoder)
        self._pattern.fit(len(state.graph.vertices), len(state.graph.edges.alive), deltas)
        return self._pattern.step(deltas, ends=ends)

    def _publish(self, found: Found, stamps: Stamps, released: Stamps, *, initial: bool) -> pa.Table | None:
        """Publish what was found, or what follows from it and from events of other topics."""
        if not len(found.keys) and self._temporal is None:
            return None
        events = self.topic.events_of(found, stamps, released, initial=initial)
        if self._temporal is None and not self.followed:
            chosen = np.array([status in self._statuses for status in self._pattern.statuses])
            return self.topic.publish(events if chosen.all() else events.take(np.flatnonzero(chosen[events.codes])))
        own = self._occurrences(events)
        if self._temporal is not None:
            last = (LAST if self._end is None else self._end, _END, 0)
            others = {
                name: [event for event in (one.history() if initial else one.published) if event.released <= last]
                for name, one in self.named.items()
            }
            own = self._temporal.step(own, others)
        return self._send(own)

    def history(self) -> list[Occurrence]:
        """Return the events that are kept."""
        return [one for events in self.topic.kept for one in self._occurrences(events)]

    def _occurrences(self, events: Events) -> list[Occurrence]:
        pattern = self._pattern
        rows = zip(
            *(zip(*(column.tolist() for column in part), strict=True) for part in events[:2]),
            *(column.tolist() for column in events[2:]), strict=True,
        )  # fmt: skip
        return [
            Occurrence(
                stamp, released, pattern.statuses[code], code, code in pattern.opening, code < pattern.closing,
                tuple(key) if isinstance(key, list) else key, value, initial, pattern.vertices(key, value),
            )
            for stamp, released, code, key, value, initial in rows
        ]  # fmt: skip

    def _send(self, events: list[Occurrence]) -> pa.Table | None:
        events = [one for one in events if one.status in self._statuses]
        self.published += events
        if not events:
            return None
        codes, keys, initial = (np.array([getattr(one, name) for one in events]) for name in ("code", "key", "initial"))
        values = np.empty(len(events), self._pattern.dtype)
        values[:] = [one.value for one in events]
        stamps, released = (_stamps([getattr(one, name) for one in events]) for name in ("stamp", "released"))
        return self.topic.publish(Events(stamps, released, codes, keys, values, initial))


class Queries:
    """All queries on a graph.

    Parameters
    ----------
    state : State
    encoder : Encoder
    most : int
        Events of each topic that are kept.
    """

    def __init__(self, state: State, encoder: Encoder, most: int) -> None:
        self._state, self._encoder, self._most = state, encoder, most
        self._running: dict[str, Query] = {}
        self._takes: dict[str, Take] = {}
        self._sent: deque[tuple[str, pa.Table]] = deque()
        self.all: dict[str, Query] = {}
        self._checked: dict[str, syntax.Query] = {}

    def submit(self, text: str, parameters: Mapping[str, Any], take: Take | None, now: int) -> list[str]:
        """Register queries, and find their first answers if time has begun; return their topics."""
        script = parse(text)
        checked = check(script, parameters, self._checked)
        cancelled = [part for part in script.statements if isinstance(part, syntax.Cancel)]
        for part in cancelled:
            if part.topic not in self._running:
                raise CgqlError(f"topic {part.topic}: no such query runs", part.at)
        new: dict[str, Query] = {}
        for one in checked:
            new[one.topic] = Query(one, self._encoder, self._most, self.all | new)
        gone = {part.topic for part in cancelled}
        kept = [query for topic, query in self._running.items() if topic not in gone]
        try:
            predicates = self._predicates([*kept, *new.values()])
        except InputError:
            self._predicates(list(self._running.values()))
            raise
        for topic in gone & self._running.keys():
            self._end(topic, "cancelled", now)
        flips = self._state.watch(*predicates, {n for one in new.values() for n in one.programs(len(predicates[0]))})
        self._checked |= {one.topic: one.query for one in checked}
        self._running |= new
        self.all |= new
        if take is not None:
            self._takes |= dict.fromkeys(new, take)
            for query in new.values():
                query.topic.is_taken = True
        if now > FIRST:
            self._begin(list(new), Batch.of(Changes.empty(0), flips, np.zeros(0, np.int64), 0, now), now)
        return list(new)

    def cancel(self, topic: str, now: int) -> None:
        """End a query.

        Raises
        ------
        InputError
            There is none.
        """
        if topic not in self._running:
            raise InputError(f"topic {topic}: no such query runs; running are {', '.join(self._running) or 'none'}")
        self._end(topic, "cancelled", now)
        self._state.watch(*self._predicates(list(self._running.values())), ())

    def step(self, changes: Changes, flips: Flips, times: Numbers, asn: int, until: int) -> None:
        """Follow what some records have changed, until a time."""
        if not self._running:
            return
        waiting = [topic for topic, query in self._running.items() if not query.begun]
        if waiting and not len(times):
            return  # time begins with the first record
        if waiting:
            self._begin(waiting, Batch.of(Changes.empty(0), flips.take(slice(0)), times, asn, until), int(times[0]))
        batch = Batch.of(changes, flips, times, asn, until)
        running = list(self._running.values())
        for query in running:
            topic = query.topic.name
            if topic not in self._running:
                continue  # as a topic that it names has failed
            try:
                if query.is_concerned(batch, self._state):
                    self._send(topic, query.step(batch, self._state))
                else:
                    query.pass_over(batch)
            except JobError as error:
                self._end(topic, f"failed({error})", until)
        ended = [query for query in running if query.topic.closed is not None]
        for query in ended:
            self._running.pop(query.topic.name, None)
            query.published = []
        if ended:
            self._state.watch(*self._predicates(list(self._running.values())), ())

    def _begin(self, topics: list[str], batch: Batch, time: int) -> None:
        for topic in topics:
            if topic not in self._running:
                continue  # as a topic that it names has failed
            try:
                self._send(topic, [self._running[topic].begin(batch, time, self._state)])
            except JobError as error:
                self._end(topic, f"failed({error})", time)

    def _end(self, topic: str, reason: str, time: int) -> None:
        """End a query before its time, and those that name it."""
        self._send(topic, [self._running.pop(topic).close(reason, time)])
        for other, query in list(self._running.items()):
            if topic in query.named and other in self._running:
                self._end(other, f"failed(topic {topic})", time)

    def _predicates(self, queries: list[Query]) -> tuple[Predicates, Predicates]:
        """Return the predicates of some queries."""
        found = Predicates(self._encoder, edges=False), Predicates(self._encoder, edges=True)
        for query in queries:
            query.bind(*found)
        return found

    def _send(self, topic: str, tables: list[pa.Table | None]) -> None:
        if topic in self._takes:
            self._sent += [(topic, table) for table in tables if table is not None]

    def deliver(self) -> None:
        """Call the functions that take events; one that fails leaves no query behind the graph."""
        while self._sent:
            topic, table = self._sent.popleft()
            self._takes[topic](topic, table)


def _check_available(checked: Checked) -> None:
    """Refuse what is not there yet."""
    query = checked.query
    if query.pattern not in _PATTERNS:
        raise CgqlError(f"pattern {query.pattern}: not available yet; choose from {', '.join(_PATTERNS)}", query.at)
    if query.duration is not None and not isinstance(query.duration, syntax.For):
        raise CgqlError(f"{query.duration}: not available yet; accepted is FOR", query.duration.at)
    for option in query.options:
        if option.name != "initial":
            raise CgqlError(f"WITH {option.name}: not available yet", option.at)


def _stamps(given: list[_Stamp]) -> Stamps:
    return Stamps(*(np.array(column, np.int64) for column in zip(*given, strict=True)))
