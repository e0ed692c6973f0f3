"""What a live graph does with records and commands, as a function of these only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from goffish.errors import CheckpointError, InputError
from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.cgql.checks import Checked
from goffish.streaming.graphs.cgql.syntax import CgqlError, Script
from goffish.streaming.graphs.instances import difference, numbers_in
from goffish.streaming.graphs.predicates import NO_FLIPS, Predicates
from goffish.streaming.graphs.queries import Queries, Query, Take
from goffish.streaming.graphs.records import Encoder, Records
from goffish.streaming.graphs.sequencer import Ready, Released, Sequencer
from goffish.streaming.graphs.state import NO_CHANGES, Changes, State
from goffish.streaming.graphs.times import Span
from goffish.streaming.graphs.updates import LATE, LIST, OF_VERTICES, OPS, TEXT
from goffish.streaming.graphs.views import Ticks
from goffish.streaming.key_table import Keys, KeyTable

#: Labels that have been in use at least, before those that are not in use any more are given up.
_LEAST = 1 << 16
#: Forms of entries of the log: records, queries, the end of a query, that of all records, and that of a query whose
#: deadline has come.
FEED, SUBMIT, CANCEL, END, EXPIRE = 16, 17, 18, 19, 20
#: In place of entries that are not kept any more: the next instance of the engine.
INSTANCE = -1
Numbers = NDArray[np.int64]


class Options(NamedTuple):
    """Options of a live graph; times are in microseconds."""

    lateness: int = 5_000_000
    idle: int = 60_000_000
    window: int = 1_000_000
    streams: int = 1024
    attributes: int = 256
    events: int = 100_000
    late: int = 0
    tombstone_ttl: int = 3_600_000_000

    @property
    def takes_late(self) -> bool:
        """Whether late records are applied."""
        return LATE[self.late] == "apply"


class Mark(NamedTuple):
    """What an encoder has, to find what is added later."""

    vertices: tuple[int, int]
    edges: tuple[int, int]
    texts: tuple[int, int]
    lists: int
    names: int
    streams: int


class Added(NamedTuple):
    """Labels, values and names with their numbers, in the order in which an encoder has added them."""

    vertices: Keys
    edges: Keys
    texts: Keys
    lists: int
    sizes: Numbers
    kinds: Kinds
    bits: Bits
    first_name: int
    names: list[str]
    streams: list[str]

    @staticmethod
    def mark(encoder: Encoder) -> Mark:
        """Return what an encoder has."""
        values = encoder.values
        return Mark(
            encoder.vertices.mark, encoder.edges.mark, values.texts.mark, values.number_of_lists,
            len(encoder.names), len(encoder.streams),
        )  # fmt: skip

    @classmethod
    def since(cls, encoder: Encoder, mark: Mark) -> Added:
        """Return what an encoder has beside that."""
        values = encoder.values
        tables = (encoder.vertices, mark.vertices), (encoder.edges, mark.edges), (values.texts, mark.texts)
        vertices, edges, texts = (table.taken(table.since(one)) for table, one in tables)
        return cls(
            vertices, edges, texts, mark.lists, *values.lists_from(mark.lists), mark.names,
            list(encoder.names)[mark.names :], list(encoder.streams)[mark.streams :],
        )  # fmt: skip

    def add_to(self, encoder: Encoder) -> None:
        """Add all to an encoder that had the same before.

        Raises
        ------
        ValueError
            It had something else.
        """
        for table, keys in zip(
            (encoder.vertices, encoder.edges, encoder.values.texts), (self.vertices, self.edges, self.texts),
            strict=True,
        ):  # fmt: skip
            if not np.array_equal(table.slots(keys.labels()), keys.slots):
                raise ValueError("labels have other numbers")
        numbers = encoder.values.add_lists(self.sizes, self.kinds, self.bits)
        if not np.array_equal(numbers, self.lists + np.arange(len(self.sizes))):
            raise ValueError("lists have other numbers")
        if [encoder.name(name) for name in self.names] != [*range(self.first_name, len(encoder.names))]:
            raise ValueError("names have other numbers")
        for name in self.streams:
            encoder.stream(name)


class Arrival(NamedTuple):
    """Records as they arrive.

    Attributes
    ----------
    records : Records
    rejected : int
        How many others were not accepted.
    now : float
        Seconds of a clock.
    """

    records: Records
    rejected: int
    now: float

    def packed(self) -> tuple[Any, ...]:
        """Return the columns as small as they are."""
        columns: tuple[NDArray[Any], ...] = self.records
        return tuple(map(_narrow, columns)), self.rejected, self.now

    @classmethod
    def unpacked(cls, packed: tuple[Any, ...], encoder: Encoder | None) -> Arrival:
        """Return what was packed, after a look at it.

        Raises
        ------
        ValueError
            The columns do not fit together, or with the encoder.
        """
        columns, rejected, now = packed
        kinds = [np.int8 if name in ("ops", "kinds") else np.int64 for name in Records._fields]
        records = Records(*(_widened(column, kind) for column, kind in zip(columns, kinds, strict=True)))
        if encoder is not None:
            _check(records, encoder)
        return cls(records, int(rejected), float(now))


def _narrow(column: NDArray[Any]) -> Any:
    """Return a column as its first number, the step and the size if the steps are equal, or in few bytes."""
    if len(column) > 1 and column.dtype == np.int64:
        first, step = int(column[0]), int(column[1]) - int(column[0])
        # The last one is looked at first, as few columns are that regular.
        if int(column[-1]) == first + step * (len(column) - 1) and np.all(np.diff(column) == step):
            return first, step, len(column)
    if not len(column) or column.dtype != np.int64:
        return column
    least, most = int(column.min()), int(column.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return column.astype(kind)
    return column


def _widened(column: Any, kind: Any) -> Any:
    if isinstance(column, tuple):
        first, step, size = column
        if not 0 <= size < 1 << 32:
            raise ValueError("a size is not accepted")
        return first + step * np.arange(size, dtype=np.int64)
    if column.ndim != 1 or column.dtype.kind != "i":
        raise ValueError("a column has another form")
    return column.astype(kind)


def _check(records: Records, encoder: Encoder) -> None:
    """Refuse records that compiled code cannot take."""

    def require(holds: Any) -> None:
        if not np.all(holds):
            raise ValueError("records do not fit together")

    size, updates, values = len(records.times), len(records.ops), len(records.names)
    require([len(records.streams) == size, len(records.seqs) == size, len(records.firsts) == size + 1])
    require([len(one) == updates for one in (records.elements, records.sources, records.targets)])
    require([len(records.first_values) == updates + 1, len(records.kinds) == values, len(records.bits) == values])
    for firsts, last in ((records.firsts, updates), (records.first_values, values)):
        require([firsts[0] == 0, firsts[-1] == last])
        require(np.diff(firsts) >= 0)
    require((records.ops >= 0) & (records.ops < len(OPS)))
    require((records.streams >= 0) & (records.streams < len(encoder.streams)))
    require((records.names >= 0) & (records.names < len(encoder.names)))
    of_vertices = OF_VERTICES[records.ops]
    most = np.where(of_vertices, encoder.vertices.count, encoder.edges.count)
    heartbeat = records.ops == len(OPS) - 1
    require((records.elements < most) & ((records.elements >= 0) | heartbeat))
    for ends in (records.sources, records.targets):
        require((ends < encoder.vertices.count) & ((ends >= 0) | (records.ops != OPS.index("+e"))))
    texts = records.bits[records.kinds == TEXT]
    require((texts >= 0) & (texts < encoder.values.texts.count))
    require((records.kinds >= 0) & (records.kinds <= TEXT + 2))


class Follower(Protocol):
    """Follows changes of the graph, and is notified when labels may have the numbers of others."""

    def take(self, changes: Changes, times: Numbers, until: int) -> None: ...

    def renumber(self) -> None: ...

    def deliver(self) -> None: ...


class Past(Protocol):
    """Returns a replica as of a time, and the entries of the log that follow: forms, what was added, and the rest."""

    def __call__(self, time: int) -> tuple[Replica, Iterable[tuple[int, Added, Any]]] | None: ...


class Engine:
    """The graph, the order of records, and the queries.

    Parameters
    ----------
    options : Options

    Attributes
    ----------
    encoder : Encoder
    sequencer : Sequencer
    state : State
    queries : Queries
    counts : dict
        Numbers of records.
    replicas : list of Replica
        Of queries that have begun in the past.
    limit : int
        Records of later times are not applied.
    followers : WeakSet of Follower
        Take changes of the graph.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.replicas: list[Replica] = []
        self.limit = LAST
        self.followers = WeakSet[Follower]()
        self.referred: tuple[Numbers, ...] = ()  # numbers of vertices, edges and texts that are not given up
        self.encoder = Encoder(options.streams, options.attributes)
        longest = options.tombstone_ttl if options.takes_late else -1
        self.sequencer = Sequencer(options.lateness, options.idle / 1e6, -(-options.window // 64) * 64, longest)
        self.state = State(self.encoder, takes_late=options.takes_late)
        self.queries = Queries(self.state, self.encoder, options.events)
        late = ["applied_late"] if options.takes_late else []
        self.counts = dict.fromkeys(("accepted", "applied", *late, "duplicate", "late", "rejected"), 0)
        self.clock = 0.0
        self._last = FIRST
        self._in_use = [0, 0, 0]  # labels of vertices and of edges, and texts, after they were last given up

    @property
    def now(self) -> int:
        """Time up to which all records are applied; that of the last one after `end`.

        Before the first one, it would depend on how many wait.
        """
        reached = self.sequencer.watermark
        return self._last if reached == LAST or self._last == FIRST else reached

    def take(self, arrival: Arrival) -> Released:
        """Take records, and apply those that are complete."""
        self.clock = arrival.now
        released = self.sequencer.push(arrival.records, list(self.encoder.streams), arrival.now)
        sizes = len(arrival.records) + arrival.rejected, len(released.duplicates), len(released.late)
        for name, size in zip(("accepted", "duplicate", "late"), sizes, strict=True):
            self.counts[name] += size
        self.counts["rejected"] += arrival.rejected
        if released.ready.late is not None:
            self.counts["applied_late"] += int(released.ready.late.sum())
        self._apply(released.ready)
        return released

    def end(self) -> None:
        """Apply all records that wait."""
        self._apply(self.sequencer.end(list(self.encoder.streams)))

    def submit(
        self, script: Script, parameters: Mapping[str, Any], take: Take | None, past: Past | None, clock: int = 0
    ) -> list[str]:
        """Register queries; return their topics."""
        made: list[Replica] = []

        def begin(start: int, given: list[tuple[Checked, Span | None]], take: Take | None) -> None:
            found = None if past is None else past(start - 1)
            if found is None:
                duration = given[0][0].query.duration
                assert duration is not None
                what = "give the live graph a folder as state" if past is None else "the log does not go back that far"
                raise CgqlError(f"{duration}: is in the past; {what}", duration.at)
            replica, entries = found
            replica.engine.queries.add(given, take, replica.engine.now, [])
            for query in replica.engine.queries.all.values():
                query.topic.shows_resolution = replica.by_instances
            for form, added, held in entries:
                replica.follow(form, added, held)
            made.append(replica)

        topics = self.queries.submit(script, parameters, take, self.now, begin, clock)
        self.replicas += made
        return topics

    def cancel(self, topic: str) -> None:
        """End a query."""
        for replica in self.replicas:
            if topic in replica.engine.queries.all:
                replica.engine.cancel(topic)
                return
        self.queries.cancel(topic, self.now)

    def expire(self, topic: str) -> None:
        """End a query whose deadline has come."""
        self.queries.expire(topic, self.now)

    @property
    def topics(self) -> dict[str, Query]:
        """All queries by topic."""
        found = dict(self.queries.all)
        for replica in self.replicas:
            found |= replica.engine.queries.all
        return found

    def subscribe(self, topic: str, take: Take) -> None:
        """Pass events of a topic to a function from now on."""
        engines = (self, *(replica.engine for replica in self.replicas))
        next(one for one in engines if topic in one.queries.all).queries.take(topic, take)

    def deliver(self) -> None:
        """Call the functions that take events."""
        self.queries.deliver()
        for replica in self.replicas:
            replica.engine.queries.deliver()
        for one in list(self.followers or ()):
            one.deliver()

    def move_to(self, other: Engine, records: Records, pending: Records) -> None:
        """Follow what has changed until an instance, whose sequencer continues with records that wait.

        Parameters
        ----------
        other : Engine
            The instance.
        records : Records
            Its difference from this engine.
        pending : Records
            Those that wait, with the numbers of this engine.
        """
        before, time = self.now, other.now
        self.counts, self.clock = dict(other.counts), other.clock
        watermark, _, *rest = other.sequencer.saved()
        self.sequencer.install((watermark, pending if len(pending) else None, *rest))
        nothing = NO_CHANGES, NO_FLIPS
        none, asn = np.zeros(0, np.int64), self.counts["applied"]
        while (start := self.queries.next_start(time)) is not None:
            self.queries.step(*nothing, Ticks(none, asn, start - 1))
            self.queries.begin_at(start)
        changes, flips = self.state.apply(records)
        changes = changes._replace(records=np.zeros_like(changes.records))
        flips = flips._replace(records=np.zeros_like(flips.records))
        self.queries.step(changes, flips, Ticks(np.array([before]), asn, time, instance=time))
        self._last = other._last
        if watermark == LAST:
            self.queries.step(*nothing, Ticks(none, asn, LAST))

    def _apply(self, ready: Ready) -> None:
        """Apply records up to each time at which a query begins, and then the others."""
        if len(ready.records) and self.limit < LAST:
            ready = ready.take(np.flatnonzero(ready.records.times <= self.limit))
        records = ready.records
        if len(records) and self._last == FIRST:
            self.queries.resolve(int(records.times[0]))
        until = self.sequencer.watermark
        last = int(records.times[-1]) if len(records) else self._last
        while (start := self.queries.next_start(last if until == LAST else until)) is not None:
            places = np.arange(len(ready.records))
            before = int(np.searchsorted(ready.records.times, start))
            self._step(ready.take(places[:before]), start - 1)
            self.queries.begin_at(start)
            ready = ready.take(places[before:])
        self._step(ready, until)
        tables = zip(self.tables, self._in_use, strict=True)
        due = [at for at, (table, used) in enumerate(tables) if table.used >= max(_LEAST, 2 * used)]
        if due:  # and no records are left that refer to some
            self._give_up(due)

    def _step(self, ready: Ready, until: int) -> None:
        records = ready.records
        changes, flips = NO_CHANGES, NO_FLIPS
        if len(records):
            changes, flips = self.state.apply(records, ready.moments)
            self._last = int(records.times[-1])
        first = self.counts["applied"]
        self.counts["applied"] += len(records)
        for one in self.followers or ():
            one.take(changes, records.times, until)
        self.queries.step(changes, flips, Ticks(records.times, first + 1, until, ready.late))

    @property
    def tables(self) -> tuple[KeyTable, ...]:
        """Labels of vertices and edges, and texts."""
        return self.encoder.vertices, self.encoder.edges, self.encoder.values.texts

    def leave_queries(self) -> None:
        """Go on without the queries."""
        self.replicas = []
        self.queries = Queries(self.state, self.encoder, self.options.events)
        self.state.watch(Predicates(self.encoder, edges=False), Predicates(self.encoder, edges=True), ())

    def rest(self) -> None:
        """Give up the graph, as no query follows it any more; their events remain."""
        self.state = State(self.encoder, takes_late=self.options.takes_late)
        self.queries.follow(self.state)
        self.sequencer.end(list(self.encoder.streams))

    def _give_up(self, due: list[int]) -> None:
        """Let new labels and texts of some tables have the numbers of those that nothing refers to any more."""
        vertices, edges, texts = used = self.state.used(self.now - self.options.tombstone_ttl)
        waiting = self.sequencer.pending
        of_vertices = OF_VERTICES[waiting.ops]
        vertices[waiting.elements[of_vertices]] = True
        of_edges = ~of_vertices & (waiting.elements >= 0)
        edges[waiting.elements[of_edges]] = True
        for ends in (waiting.sources, waiting.targets):
            vertices[ends[ends >= 0]] = True
        texts[waiting.bits[waiting.kinds == TEXT]] = True
        for query in self.queries.all.values():
            for mask, slots in zip(used, query.slots, strict=False):
                mask[slots] = True
        for mask, slots in zip(used, self.referred, strict=False):
            mask[slots[slots >= 0]] = True
        given_up = False
        for at in due:
            table, mask = self.tables[at], used[at]
            free = table.slots_in_use
            free = free[~mask[free]]
            if len(free):
                table.free(free)
                given_up = True
                if self.state.written is not None and at < 2:
                    self.state.written.forget(free, edges=at == 1)
            self._in_use[at] = table.used
        for one in self.followers if given_up else ():
            one.renumber()

    def saved(self) -> dict[str, Any]:
        """Return all of it, for `install`."""
        encoder = self.encoder
        return {
            "tables": tuple(table.saved() for table in self.tables), "lists": encoder.values.lists_from(0),
            "names": list(encoder.names), "streams": list(encoder.streams), "sequencer": self.sequencer.saved(),
            "graph": self.state.saved(), "counts": self.counts, "last": self._last, "clock": self.clock,
            "in_use": list(self._in_use), "queries": self.queries.saved(),
            "replicas": [(tuple(one.numbers), one.engine.saved()) for one in self.replicas],
        }  # fmt: skip

    def install(self, saved: dict[str, Any], name: str) -> None:
        """Take the place of another engine with the same options.

        Parameters
        ----------
        saved : dict
        name : str
            For messages.

        Raises
        ------
        CheckpointError
            The parts do not fit together.
        """
        try:
            encoder = self.encoder
            for table, one in zip(self.tables, saved["tables"], strict=True):
                table.install(one)
            encoder.values.add_lists(*saved["lists"])
            for one in saved["names"]:
                encoder.name(one)
            for one in saved["streams"]:
                encoder.stream(one)
            self.sequencer.install(saved["sequencer"])
            self.state.install(saved["graph"])
            self.counts |= saved["counts"]
            self._last, self._in_use = saved["last"], saved["in_use"]
            self.clock = saved["clock"]
            self.queries.install(saved["queries"])
            for numbers, one in saved["replicas"]:
                replica = Replica(Engine(self.options), list(numbers))
                replica.engine.install(one, name)
                self.replicas.append(replica)
        except CgqlError as error:  # it was accepted before: a pattern of another package is not there any more
            raise InputError(f"{name}: {error}") from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, InputError) as error:
            raise CheckpointError(f"{name}: is damaged ({error})") from None


class Replica:
    """An engine that follows the log of another one, with queries that began in the past.

    Parameters
    ----------
    engine : Engine
        As of an entry of that log.
    numbers : list of array, optional
        Of vertices, edges, texts, lists and names: by their number in the log, their number in the engine.
    """

    def __init__(self, engine: Engine, numbers: list[Numbers] | None = None) -> None:
        self.engine = engine
        #: Whether it begins before the log.
        self.by_instances = False
        encoder = engine.encoder
        counts = (*(one.count for one in engine.tables), encoder.values.number_of_lists, len(encoder.names))
        self.numbers = [np.arange(count) for count in counts] if numbers is None else numbers
        engine.referred = tuple(self.numbers[:3])

    def follow(self, form: int, added: Added, held: Any) -> None:
        """Do what an entry of the log says, except for other queries.

        Parameters
        ----------
        form : int
        added : Added
        held : Arrival or Engine
            Of records, or the next instance.

        Raises
        ------
        CheckpointError
            The log is damaged.
        """
        if self._has_ended():
            return
        if form == INSTANCE:
            self._move_to(held)
            return
        try:
            self._number(added)
            if form == FEED:
                held = held._replace(records=self._renumbered(held.records))
        except (IndexError, ValueError, InputError) as error:
            raise CheckpointError(f"the log is damaged ({error})") from None
        if form == FEED:
            self.engine.take(held)
        elif form == END:
            self.engine.end()
        if self._has_ended():
            self.engine.rest()

    def _move_to(self, instance: Engine) -> None:
        engine = self.engine
        self.numbers = numbers_in(engine.encoder, instance.encoder)
        engine.referred = tuple(self.numbers[:3])
        records = difference(engine.state, instance.state.graph, self.numbers)
        engine.move_to(instance, records, self._renumbered(instance.sequencer.pending))
        if self._has_ended():
            engine.rest()

    def _has_ended(self) -> bool:
        queries = self.engine.queries.all.values()
        return bool(queries) and all(one.topic.closed is not None for one in queries)

    def _number(self, added: Added) -> None:
        encoder = self.engine.encoder
        for at, keys in enumerate((added.vertices, added.edges, added.texts)):
            if len(keys.slots):
                self._set(at, keys.slots, self.engine.tables[at].slots(keys.labels()))
        bits = added.bits.copy()
        texts = added.kinds == TEXT
        bits[texts] = self.numbers[2][bits[texts]]
        self._set(
            3, added.lists + np.arange(len(added.sizes)), encoder.values.add_lists(added.sizes, added.kinds, bits)
        )
        names = [encoder.name(name) for name in added.names]
        self._set(4, added.first_name + np.arange(len(names)), np.array(names, np.int64))
        for name in added.streams:
            encoder.stream(name)
        self.engine.referred = tuple(self.numbers[:3])

    def _set(self, at: int, places: Numbers, numbers: Numbers) -> None:
        known, size = self.numbers[at], int(places.max(initial=-1)) + 1
        if size > len(known):
            known = np.concatenate([known, np.full(max(size, 2 * len(known)) - len(known), -1)])
        known[places] = numbers
        self.numbers[at] = known

    def _renumbered(self, records: Records) -> Records:
        vertices, edges, texts, lists, names = self.numbers
        of_vertices, bits = OF_VERTICES[records.ops], records.bits.copy()
        elements = records.elements.copy()
        for rows, known in ((of_vertices, vertices), (~of_vertices & (elements >= 0), edges)):
            elements[rows] = known[elements[rows]]
        ends = [column.copy() for column in (records.sources, records.targets)]
        for column in ends:
            column[column >= 0] = vertices[column[column >= 0]]
        for kind, known in ((TEXT, texts), (LIST, lists)):
            bits[records.kinds == kind] = known[bits[records.kinds == kind]]
        new = {
            "elements": elements, "sources": ends[0], "targets": ends[1], "names": names[records.names], "bits": bits
        }  # fmt: skip
        return Records(**(records._asdict() | new))
