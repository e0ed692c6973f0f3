"""Continuous queries on a live graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.errors import InputError, JobError
from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs.centrality import Centrality
from goffish.streaming.graphs.cgql import extensions, syntax
from goffish.streaming.graphs.cgql.checks import Checked, check
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.clusters import Cluster, Component
from goffish.streaming.graphs.custom import CustomPattern, Hosted
from goffish.streaming.graphs.evolved import Evolved
from goffish.streaming.graphs.motifs import Motif
from goffish.streaming.graphs.patterns import (
    Degree,
    Deltas,
    Found,
    Match,
    Moves,
    Neighbourhood,
    Numbers,
    Pattern,
    Reach,
)
from goffish.streaming.graphs.plans import plan_of
from goffish.streaming.graphs.predicates import Flips, Predicates
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import NO_CHANGES, Changes, State
from goffish.streaming.graphs.temporal import Occurrence, Temporal
from goffish.streaming.graphs.times import Span, span_after, span_of
from goffish.streaming.graphs.topics import Events, Stamps, Topic
from goffish.streaming.graphs.trees import alike
from goffish.streaming.graphs.views import BEGINNING, END, EXPIRATION, Batch, Ticks, View

_Stamp = tuple[int, int, int]
_PATTERNS: dict[str, type[Pattern]] = {
    "Centrality": Centrality, "Cluster": Cluster, "Component": Component, "Degree": Degree, "Evolved": Evolved,
    "Match": Match, "Motif": Motif, "Neighbourhood": Neighbourhood, "Reach": Reach,
}  # fmt: skip
#: Attributes of a query that are its state, beside those of its pattern and topic.
_KEPT = ("_observation", "_last", "_end", "span", "begun")
#: Takes the topic and its new events.
Take = Callable[[str, pa.Table], None]
#: Takes a time in the past, queries that begin then, and what takes their events.
Past = Callable[[int, list[tuple[Checked, Span | None]], Take | None], None]


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
        self._pattern = _pattern_of(query)
        self._encoder = encoder
        options = {one.name: getattr(one.value, "value", None) for one in query.options}
        self._shows_initial = options.get("initial", True)
        self.topic = Topic(checked.topic, self._pattern, encoder, most, options.get("limit"))
        self.named = {topic: named[topic] for topic in checked.after}
        self._temporal = None
        if any(isinstance(one, syntax.Temporal | syntax.Ordered) for one in query.where):
            presence = {name: one.presence for name, one in self.named.items()}
            self._temporal = Temporal(query, presence, self._pattern.clusters)
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
        self._view = View(query, self._pattern, encoder)
        #: Queries whose clusters it follows, and what has become of the members of its clusters in the last step.
        self._clusters = {topic: named[topic] for topic in self._view.topics if topic is not None}
        self.moves = Moves.none()
        for one in self._clusters.values():
            if isinstance(one._query.duration, syntax.Between) and one._query.duration.repeats:
                raise CgqlError(f"topic {one.topic.name}: repeats; its clusters cannot be followed", query.at)
            one.of_clusters.follow_members()
        self._statuses = {
            status for status in self._pattern.statuses
            if all(
                (status == one.right.value) == (one.operator == "=") for one in query.where
                if isinstance(one, syntax.Comparison) and str(one.left) == "status"
                and isinstance(one.right, syntax.Literal)
            )
        }  # fmt: skip
        self._observation = 0  # number of the one that goes on, with `every`
        self._last: _Stamp = FIRST, 0, 0  # the last tick
        self._end: int | None = None
        #: When it begins and ends if that is not now; and whether there was a first observation.
        self.span: Span | None = None
        self.begun = False

    def __str__(self) -> str:
        return str(self._query)

    @property
    def plan(self) -> dict[str, str]:
        """How it is evaluated."""
        statuses = [one for one in self._pattern.statuses if one in self._statuses]
        return plan_of(self._query, self._pattern, statuses, sleeps=not self.is_restless)

    def take_over(self, topic: Topic) -> None:
        """Let the topic of a query that has ended go on."""
        self.topic = topic
        topic.reopen(self._pattern)

    def bind(self, vertices: Predicates, edges: Predicates) -> None:
        """Add the predicates of this query to those of all."""
        self._view.bind(vertices, edges)

    def programs(self, vertices: int) -> list[int]:
        """Return the numbers of the predicates of this query, those of edges after those of the vertices."""
        return self._view.programs(vertices)

    @property
    def of_clusters(self) -> Cluster:
        """Its pattern, if others name its clusters."""
        assert isinstance(self._pattern, Cluster)
        return self._pattern

    @property
    def shape(self) -> tuple[bool, bool]:
        """Whether keys are edges, and whether events show a value."""
        return self._pattern.of_edges, self._pattern.value is not None

    def ranks(self, keys: Numbers) -> list[Numbers]:
        """Return numbers that order keys as their labels do."""
        return self._pattern.ranks(self._encoder, keys)

    def members(self) -> Moves:
        """Return the members of its clusters as of the last observation."""
        vertices, clusters = self.of_clusters.members()
        nothing = np.zeros_like(clusters)
        return Moves(nothing, nothing, nothing, vertices, nothing, clusters)

    def begin(self, batch: Batch, time: int, state: State) -> pa.Table | None:
        """Find the first answers at a time, from all that exists."""
        self.begun = True
        if self.span is not None:
            self._end = self.span.end
        elif isinstance(self._query.duration, syntax.For) and self._query.wall_span is None:
            self._end = time + self._query.duration.span.micros
        deltas = self._view.first(batch, state, {topic: one.members() for topic, one in self._clusters.items()})
        deltas.times[:], deltas.phases[:], deltas.asns[:], deltas.begins[:] = time, BEGINNING, 0, False
        self._last = time, BEGINNING, 0
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
        deltas = self._view.see(batch, state, {topic: one.moves for topic, one in self._clusters.items()})
        if batch.instance is not None:
            batch = batch._replace(times=np.array([batch.instance]))
        if end is not None:
            deltas = Deltas._make(column[deltas.times < end] for column in deltas)
            batch = batch._replace(times=batch.times[batch.times < end])
        self.published, self.moves = [], Moves.none()
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
        self.published, self.moves = [], Moves.none()
        self._note(batch)

    def _note(self, batch: Batch) -> None:
        if len(batch.times):
            self._last = max(self._last, (int(batch.times[-1]), *batch.last))

    def close(self, reason: str, time: int) -> pa.Table:
        """End the query."""
        # Before the first record there is no time, and readers expect one.
        return self.topic.close(reason, _stamps([(0 if time == FIRST else time, END, 0)]))

    def answers(self) -> pa.Table:
        """Return the answers as of the last observation."""
        return self.topic.answers(*self._pattern.answers())

    @property
    def is_restless(self) -> bool:
        """Whether something can happen to it although no predicate has changed for any element."""
        bounds = self.every is not None or self.span is not None or self._end is not None
        ends = isinstance(self._query.duration, syntax.For) and self._query.wall_span is None
        return (
            bounds or ends or self._query.window is not None
            or bool(self._clusters) or self._temporal is not None or self._pattern.follows_values
        )  # fmt: skip

    def is_concerned(self, batch: Batch, state: State) -> bool:
        """Whether something happens to this query."""
        if self._pattern.pending or self._temporal is not None or (self._end is not None and self._end <= batch.until):
            return True
        if any(len(one.moves.vertices) for one in self._clusters.values()):
            return True
        return self._view.changes(batch, state)

    def saved(self) -> dict[str, Any]:
        """Return the state, for `install`."""
        return {name: getattr(self, name) for name in _KEPT} | {
            "view": self._view.saved(), "pattern": self._pattern.saved(), "topic": self.topic.saved(),
            "temporal": None if self._temporal is None else self._temporal.saved(),
        }  # fmt: skip

    def install(self, saved: dict[str, Any]) -> None:
        """Take the place of another query of the same text.

        Raises
        ------
        ValueError
            The state is of something else.
        """
        for name in _KEPT:
            if not alike(saved[name], getattr(self, name)):
                raise ValueError(f"{self.topic.name}: {name} has another form")
            setattr(self, name, saved[name])
        self._view.install(saved["view"])
        self._pattern.install(saved["pattern"])
        self._pattern.see(self._encoder, Moves.none().deltas(0))
        self.topic.install(saved["topic"])
        if self._temporal is not None:
            self._temporal.install(saved["temporal"])

    @property
    def slots(self) -> tuple[Numbers, Numbers]:
        """Return the vertices and edges that the state refers to, beside those that exist."""
        pattern = self._pattern
        found = [pattern.touched, *(pattern.slots(events.keys, events.values) for events in self.topic.events_kept)]
        if self.topic.closed is not None:  # answers stay as they were
            found.append(pattern.slots(*pattern.answers()))
        if self._temporal is not None:
            events, vertices, shown = self._temporal.subjects
            values = np.empty(len(events), pattern.dtype)
            values[:] = [one.value for one in events]
            found.append(pattern.slots(np.array([one.key for one in events], np.int64), values))
            found.append(pattern.slots(np.array(sorted(shown), np.int64), values[:0]))
            more = vertices.union(*(one.vertices for one in events))
            found.append((np.array(sorted(more), np.int64), np.zeros(0, np.int64)))
        of_vertices, of_edges = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return of_vertices, of_edges

    def _observe(self, deltas: Deltas, batch: Batch, state: State, *, ends: bool) -> pa.Table | None:
        if self.every is None:
            columns = deltas.times, deltas.phases, deltas.asns
            if len(deltas.begins) > 1:
                deltas.begins[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
            found = self._follow(deltas, state, ends=True)
            if not len(found.keys) and self._pattern.moved is None and self._temporal is None:
                return None  # as of most records that come alone
            firsts = np.concatenate([[0], np.flatnonzero(deltas.begins)])  # none goes on before the first one
            stamps = Stamps._make(column[firsts] if len(column) else column for column in columns)
            return self._publish(found, stamps, stamps, initial=False)
        numbers = deltas.times // self.every
        deltas.begins[:] = np.diff(numbers, prepend=self._observation) > 0
        observations = [self._observation, *numbers[deltas.begins].tolist()]
        stamps = _stamps([self._last_before((number + 1) * self.every, batch) for number in observations])
        self._observation = observations[-1]
        whole = ends or batch.until // self.every > self._observation
        found = self._follow(deltas, state, ends=whole)
        expirations = self._view.expirations
        if len(expirations):
            self._last = max(self._last, (int(expirations[-1]), EXPIRATION, 0))
        released = [((number + 1) * self.every, 0, 0) for number in observations]
        if ends and self._end is not None:
            released[-1] = min(released[-1], (self._end, END, 0))
        return self._publish(found, stamps, _stamps(released), initial=False)

    def _last_before(self, boundary: int, batch: Batch) -> _Stamp:
        """Return the last tick before the end of an observation."""
        found = [self._last]
        before = int(np.searchsorted(batch.times, boundary)) - 1
        if before >= 0:
            phase, _ = batch.last
            found.append((int(batch.times[before]), phase, batch.asn + before))
        expirations = self._view.expirations
        expirations = expirations[expirations < min(boundary, boundary if self._end is None else self._end)]
        if len(expirations):
            found.append((int(expirations[-1]), EXPIRATION, 0))
        return max(found)

    def _follow(self, deltas: Deltas, state: State, *, ends: bool) -> Found:
        deltas = self._pattern.see(self._encoder, deltas)
        self._pattern.fit(len(state.graph.vertices), len(state.graph.edges.alive), deltas)
        return self._pattern.step(deltas, ends=ends)

    def _publish(self, found: Found, stamps: Stamps, released: Stamps, *, initial: bool) -> pa.Table | None:
        """Publish what was found, or what follows from it and from events of other topics."""
        if self._pattern.moved is not None:
            observations, *columns = self._pattern.moved
            self.moves = Moves(*(column[observations] for column in stamps), *columns)
        if not len(found.keys) and self._temporal is None:
            return None
        events = self.topic.events_of(found, stamps, released, initial=initial)
        if self._temporal is None and not self.followed:
            chosen = np.array([status in self._statuses for status in self._pattern.statuses])
            return self.topic.publish(events if chosen.all() else events.take(np.flatnonzero(chosen[events.codes])))
        own = self._occurrences(events)
        if self._temporal is not None:
            last = (LAST if self._end is None else self._end, END, 0)
            others = {
                name: [event for event in (one.history() if initial else one.published) if event.released <= last]
                for name, one in self.named.items()
            }
            own = self._temporal.step(own, others)
        return self._send(own)

    def history(self) -> list[Occurrence]:
        """Return the events that are kept."""
        return [one for events in self.topic.events_kept for one in self._occurrences(events)]

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


class _Index(NamedTuple):
    """Running queries: those that look at all records, and the others by their predicates.

    Attributes
    ----------
    topics : list of str
        In the order in which queries follow records.
    restless : list of int
        Positions of queries for which something may happen at any time.
    by_program : dict
        Positions of the others.
    waiting : list of str
        Topics of queries that begin with the first record.
    coming : list of Query
        Those that begin at a time.
    """

    topics: list[str]
    restless: list[int]
    by_program: dict[int, list[int]]
    waiting: list[str]
    coming: list[Query]

    def concerned(self, batch: Batch) -> list[str]:
        """Return the topics of queries for which something may have happened, in their order."""
        found = set(self.restless)
        for program in batch.rows:
            found.update(self.by_program.get(program, ()))
        return [self.topics[at] for at in sorted(found)]


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
        self._index: _Index | None = None
        #: Topics of queries that have begun in the past, which are not among these.
        self.past = set[str]()
        #: By topic, when queries end by the clock of the machine, in microseconds since 1970.
        self.deadlines: dict[str, int] = {}

    def submit(
        self, script: syntax.Script, parameters: Mapping[str, Any], take: Take | None, now: int, past: Past,
        clock: int,
    ) -> list[str]:  # fmt: skip
        """Register queries, and find their first answers if time has begun; return their topics.

        Parameters
        ----------
        script : Script
        parameters : mapping
        take : callable, optional
            Takes events.
        now : int
            Time up to which records are applied.
        past : callable
            Takes a time in the past, and queries that begin then with their spans.
        clock : int
            Time of the machine, in microseconds since 1970.
        """
        checked = check(script, parameters, self._checked)
        cancelled = [part for part in script.statements if isinstance(part, syntax.Cancel)]
        for part in cancelled:
            if part.topic not in self._running:
                raise CgqlError(f"topic {part.topic}: no such query runs", part.at)
        spans = {one.topic: span_of(one.query, now) for one in checked}
        earlier = {
            topic: span.start
            for topic, span in spans.items() if span is not None and span.start is not None and span.start < now
        }  # fmt: skip
        for one in checked:
            for name in one.after:
                if name in self.past or earlier.get(name) != earlier.get(one.topic):
                    raise CgqlError(
                        f"topic {name}: queries that begin in the past name each other only, with the same beginning",
                        one.query.at,
                    )
        for start in sorted(set(earlier.values())):
            some = [one for one in checked if earlier.get(one.topic) == start]
            past(start, [(one, spans[one.topic]) for one in some], take)
        rest = [(one, spans[one.topic]) for one in checked if one.topic not in earlier]
        self.add(rest, take, now, [part.topic for part in cancelled])
        self._checked |= {one.topic: one.query for one in checked}
        self.past |= earlier.keys()
        for one in checked:
            if one.query.wall_span is not None:
                self.deadlines[one.topic] = clock + one.query.wall_span
        return [one.topic for one in checked]

    def add(self, checked: list[tuple[Checked, Span | None]], take: Take | None, now: int, gone: list[str]) -> None:
        """Register queries that were checked, and end others.

        Parameters
        ----------
        checked : list of (Checked, Span or None)
        take : callable, optional
        now : int
        gone : list of str
            Topics of queries that end.
        """
        new: dict[str, Query] = {}
        for one, span in checked:
            new[one.topic] = self._made(one, self.all | new)
            new[one.topic].span = span
        kept = [query for topic, query in self._running.items() if topic not in gone]
        try:
            predicates = self._predicates([*kept, *new.values()])
        except InputError:
            self._predicates(list(self._running.values()))
            raise
        for topic in gone:
            if topic in self._running:  # and did not end with one that it names
                self._end(topic, "cancelled", now)
        flips = self._state.watch(*predicates, {n for one in new.values() for n in one.programs(len(predicates[0]))})
        self._checked |= {one.topic: one.query for one, _ in checked}
        self._running |= new
        self.all |= new
        if take is not None:
            for topic in new:
                self.take(topic, take)
        if now > FIRST:
            begin = [topic for topic, one in new.items() if one.span is None]
            self._begin(begin, Batch.of(NO_CHANGES, flips, Ticks(np.zeros(0, np.int64), 0, now)), now)

    def _made(self, checked: Checked, named: Mapping[str, Query]) -> Query:
        found = Query(checked, self._encoder, self._most, named)
        found.topic.flags_late = self._state.written is not None
        return found

    def follow(self, state: State) -> None:
        """Follow another graph."""
        self._state = state

    def next_start(self, until: int) -> int | None:
        """Return when the next query begins whose time has come."""
        coming = (self._index or self._make_index()).coming
        starts = [one.span.start for one in coming if one.span is not None and not one.begun]
        return min((start for start in starts if start is not None and start <= until), default=None)

    def resolve(self, time: int) -> None:
        """Let the times of queries that are counted from the first record be counted from a time."""
        for topic, one in self._running.items():
            if one.span is not None and one.span.start is None:
                one.span = span_of(self._checked[topic], time)

    def begin_at(self, start: int) -> None:
        """Find the first answers of the queries that begin at a time."""
        topics = [
            topic for topic, one in self._running.items()
            if one.span is not None and not one.begun and one.span.start == start
        ]  # fmt: skip
        vertices, edges = self._predicates(list(self._running.values()))
        wanted = {number for topic in topics for number in self._running[topic].programs(len(vertices))}
        flips = self._state.watch(vertices, edges, wanted)
        self._begin(topics, Batch.of(NO_CHANGES, flips, Ticks(np.zeros(0, np.int64), 0, start)), start)

    def _again(self, query: Query) -> None:
        """Let a query that repeats wait for its next span."""
        topic = query.topic.name
        closed = query.topic.closed
        assert closed is not None
        span = span_after(self._checked[topic], int(closed.stamps.times[0])) if closed.reason == "expired" else None
        if span is None:
            return
        [checked] = check(parse(str(query)), {}, {name: one for name, one in self._checked.items() if name != topic})
        fresh = self._made(checked, self.all)
        fresh.span = span
        fresh.take_over(query.topic)
        self.all[topic] = self._running[topic] = fresh
        self._running = {name: one for name, one in self.all.items() if name in self._running}  # in order
        for one in self.all.values():
            if topic in one.named:
                one.named[topic], fresh.followed = fresh, True

    def saved(self) -> tuple[Any, ...]:
        """Return the state, for `install`."""
        others = [str(query) for topic, query in self._checked.items() if topic in self.past]
        return [(str(one), one.saved()) for one in self.all.values()], list(self._running), others, self.deadlines

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of other queries.

        Raises
        ------
        InputError, ValueError
            The state is of something else.
        """
        queries, running, others, *deadlines = saved
        for text in others:
            [checked] = check(parse(text), {}, self._checked)
            self._checked[checked.topic] = checked.query
            self.past.add(checked.topic)
        for text, one in queries:
            [checked] = check(parse(text), {}, self._checked)
            query = self._made(checked, self.all)
            query.install(one)
            self.all[checked.topic], self._checked[checked.topic] = query, checked.query
        self._running = {topic: self.all[topic] for topic in running}
        self.deadlines = dict(*deadlines)
        self._state.watch(*self._predicates(list(self._running.values())), ())

    def take(self, topic: str, take: Take) -> None:
        """Pass events of a topic to a function from now on."""
        self._takes[topic] = take
        self.all[topic].topic.is_heard = True

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

    def due(self, clock: int) -> list[str]:
        """Return the topics of queries whose deadline has come."""
        self.deadlines = {topic: at for topic, at in self.deadlines.items() if topic in self._running}
        return [topic for topic, at in self.deadlines.items() if at <= clock]

    def expire(self, topic: str, now: int) -> None:
        """End a query whose deadline has come.

        Raises
        ------
        InputError
            There is none.
        """
        if self.deadlines.pop(topic, None) is None or topic not in self._running:
            raise InputError(f"topic {topic}: no such query runs until a deadline")
        self._send(topic, [self._running.pop(topic).close("expired", now)])
        self._state.watch(*self._predicates(list(self._running.values())), ())

    def step(self, changes: Changes, flips: Flips, ticks: Ticks) -> None:
        """Follow what some records have changed, until a time."""
        times, until = ticks.times, ticks.until
        if not self._running:
            return
        index = self._index or self._make_index()
        if index.waiting and not len(times):
            return  # time begins with the first record
        if index.waiting:
            waits = Batch.of(NO_CHANGES, flips.take(slice(0)), ticks)
            self._begin(index.waiting, waits, int(times[0]))
            index = self._make_index()
        batch, before = Batch.of(changes, flips, ticks), len(self._running)
        stepped = []
        for topic in index.concerned(batch):
            query = self._running.get(topic)
            if query is None or not query.begun:
                continue  # as its time has not come, or a topic that it names has failed
            stepped.append(query)
            try:
                if query.is_concerned(batch, self._state):
                    self._send(topic, query.step(batch, self._state))
                else:
                    query.pass_over(batch)
            except JobError as error:
                self._end(topic, f"failed({error})", until)
        for query in stepped:
            query.published, query.moves = [], Moves.none()
        ended = [query for query in stepped if query.topic.closed is not None]
        for query in ended:
            self._running.pop(query.topic.name, None)
            self._again(query)
        if ended or len(self._running) < before:
            self._state.watch(*self._predicates(list(self._running.values())), ())

    def _make_index(self) -> _Index:
        running = self._running.items()
        by_program: dict[int, list[int]] = {}
        for at, (_, query) in enumerate(running):
            for program in () if query.is_restless else query.programs(len(self._state.vertices)):
                by_program.setdefault(program, []).append(at)
        self._index = _Index(
            list(self._running), [at for at, (_, query) in enumerate(running) if query.is_restless], by_program,
            [topic for topic, query in running if not query.begun and query.span is None],
            [query for _, query in running if not query.begun and query.span is not None],
        )  # fmt: skip
        return self._index

    def _begin(self, topics: list[str], batch: Batch, time: int) -> None:
        for topic in topics:
            if topic not in self._running:
                continue  # as a topic that it names has failed
            try:
                self._send(topic, [self._running[topic].begin(batch, time, self._state)])
            except JobError as error:
                self._end(topic, f"failed({error})", time)
        for topic in topics:  # queries that have begun with them look at all events that are kept
            self.all[topic].published = []

    def _end(self, topic: str, reason: str, time: int) -> None:
        """End a query before its time, and those that name it."""
        self._send(topic, [self._running.pop(topic).close(reason, time)])
        for other, query in list(self._running.items()):
            if topic in query.named and other in self._running:
                self._end(other, f"failed(topic {topic})", time)

    def _predicates(self, queries: list[Query]) -> tuple[Predicates, Predicates]:
        """Return the predicates of some queries."""
        self._index = None
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


def _pattern_of(query: syntax.Query) -> Pattern:
    """Return a new object for the answers of a query."""
    if query.pattern in _PATTERNS:
        return _PATTERNS[query.pattern](query)
    custom = extensions.pattern_class(query.pattern, query.at)
    if not issubclass(custom, CustomPattern):
        raise CgqlError(f"pattern {query.pattern}: is not a subclass of goffish.stream.CustomPattern", query.at)
    try:
        return Hosted(query, custom)
    except Exception as error:
        raise CgqlError(f"pattern {query.pattern}: {type(error).__name__}: {error}", query.at) from error


def _stamps(given: list[_Stamp]) -> Stamps:
    return Stamps(*(np.array(column, np.int64) for column in zip(*given, strict=True)))
