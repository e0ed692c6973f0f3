"""A graph that follows a stream of changes."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.errors import CheckpointError, InputError, JobError
from goffish.gofs.times import Duration, event_time, microseconds, moments
from goffish.graph.graph import Graph, from_edges
from goffish.partial import local_path
from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs import durable
from goffish.streaming.graphs.catalogue import make_followed
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.vocabulary import Vocabulary, expanded, vocabulary_of
from goffish.streaming.graphs.delivery import Deliveries
from goffish.streaming.graphs.durable import Folder, read_log
from goffish.streaming.graphs.engine import CANCEL, END, EXPIRE, FEED, INSTANCE, SUBMIT, Added, Arrival, Engine, Options
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.parts import parts_of
from goffish.streaming.graphs.programs.bundled import program_of
from goffish.streaming.graphs.programs.placement import Partitioner
from goffish.streaming.graphs.programs.program import LiveProgram
from goffish.streaming.graphs.programs.run import ProgramRun, Settings, checked_count, workers_of
from goffish.streaming.graphs.queries import Query
from goffish.streaming.graphs.records import row_of
from goffish.streaming.graphs.recovery import History, recovered, replay, restored
from goffish.streaming.graphs.rows import labels_of
from goffish.streaming.graphs.updates import LATE
from goffish.streaming.journal import Refused
from goffish.streaming.sinks import Sink

_ERRORS = 1000
#: Seconds between two looks at the clock, as it may be set.
_LOOK_S = 60.0
#: How often the files of another process are looked for.
_ATTEMPTS = 3


class Limits(NamedTuple):
    """What a live graph has space for.

    Attributes
    ----------
    window : int
        How many sequence numbers, above those that are complete, are remembered for each stream, to find records that
        arrive twice.
    streams, attributes : int
        Largest numbers of streams, and of names of attributes: each name takes 9 bytes for each vertex and edge, and
        with ``late="apply"`` another 24 for each vertex and 33 for each edge.
    instances : int
        How many checkpoints, at least a day of event time apart, are kept in the folder after the log before them was
        removed.
    """

    window: int = 1_000_000
    streams: int = 1024
    attributes: int = 256
    instances: int = 30


_LIMITS = Limits()


class LiveGraph:
    """A graph that follows a stream of changes.

    Records may arrive late, twice, and in any order within `lateness`: the graph depends on what they say only.

    Parameters
    ----------
    lateness : str, float or timedelta
        By how much a record may be earlier than the latest one of its stream [default: 5 s]. Records are applied when
        no earlier ones are expected.
    idle : str, float or timedelta
        Streams without records for this time are not waited for [default: 60 s].
    late : {"side", "apply", "drop"}
        What becomes of records that arrive after their time was applied: they go to `on_error`, are applied at the
        current time unless what they change was changed at a later time, or are only counted.
    tombstone_ttl : str, float or timedelta
        With ``late="apply"``, how late records are that are applied, at most. As long, elements that were removed are
        remembered.
    limits : Limits
        What there is space for.
    events : int
        How many events of each query are kept.
    on_error : callable, optional
        Takes each record that is not applied because it is late or not accepted, and the reason. Otherwise, the last
        1,000 are kept in `errors`.
    state : str or Path, optional
        Folder in which everything is kept: records are there before `feed` returns, and a live graph with the folder
        of an earlier one goes on where that one ended, however it ended. One process uses it at a time.
    retention : str, float or timedelta
        How long the log of records is kept in `state`, in event time.

    Attributes
    ----------
    errors : deque of (record, str)
        Records that were not applied, with the reason.
    lock : threading.Condition
        Held while records are applied, and notified afterwards; other threads hold it to read.

    Raises
    ------
    InputError
        An argument is not accepted, or the folder has other options, is in use, or belongs to something else.
    CheckpointError
        What is in the folder is damaged.

    Examples
    --------
    >>> import goffish as gf
    >>> live = gf.stream.LiveGraph(lateness=0)
    >>> live.feed([
    ...     {"t": 1, "op": "+e", "src": "ann", "dst": "bob", "attrs": {"type": "follow"}},
    ...     {"t": 2, "op": "+e", "src": "bob", "dst": "eve", "attrs": {"type": "follow"}},
    ...     {"t": 3, "op": "-v", "id": "ann"},
    ... ])
    0
    >>> live
    LiveGraph(2 vertices, 1 edges, until 1970-01-01T00:00:03+00:00)
    >>> gf.connected_components(live.graph()).summary["components"]
    1
    """

    def __init__(
        self, *, lateness: Duration = 5.0, idle: Duration = 60.0, late: Literal["side", "apply", "drop"] = "side",
        tombstone_ttl: Duration = "1h", limits: Limits = _LIMITS, events: int = 100_000,
        on_error: Callable[[Any, str], None] | None = None, state: str | Path | None = None, retention: Duration = "7d",
    ) -> None:  # fmt: skip
        for name, value in (*limits._asdict().items(), ("events", events)):
            least = int(name != "instances")
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} = {value!r:.60}: must be at least {least}")
        if late not in LATE:
            raise InputError(f"late = {late!r:.60}: choose from {', '.join(LATE)}")
        self._options = Options(
            microseconds(lateness, "lateness", zero=True), microseconds(idle, "idle"), *limits[:3], events,
            LATE.index(late), microseconds(tombstone_ttl, "tombstone_ttl"),
        )  # fmt: skip
        kept = microseconds(retention, "retention")
        self.errors: deque[tuple[Any, str]] = deque(maxlen=_ERRORS)
        self._on_error = on_error or (lambda record, error: self.errors.append((record, error)))
        self._torn = ""  # why no records can be applied any more
        self._read: Path | None = None
        self._next = 0
        self._syncs: list[Callable[[], None]] = []
        self._ended: list[Callable[[], object]] = []
        self._vocabularies: dict[str, Vocabulary] = {}
        self._timer: threading.Timer | None = None
        self._engine = Engine(self._options)
        self._folder: Folder | None = None
        self._deliveries = Deliveries(events, None if state is None else local_path(state))
        self.lock = self._deliveries.changed
        if state is not None:
            self._folder = Folder(state, self._options, kept, limits.instances)
            try:
                self._engine = recovered(self._folder, self._options, self._deliveries.needed())
            except BaseException:
                self._folder.close()
                raise
        self._mark = Added.mark(self._engine.encoder)
        self._started = time.monotonic() - self._engine.clock
        self._set_timer()

    def feed(self, records: Any) -> int:
        """Take records of changes, and apply those that are complete.

        Parameters
        ----------
        records : table, path, or iterable of mappings
            Mappings have the fields ``t`` (event time: a timestamp, an ISO 8601 text or seconds since 1970), ``op``
            and, as the update needs them, ``id``, ``src``, ``dst``, ``attrs`` (names and values) and ``names`` (of
            attributes to be removed). Optional are ``stream``, and ``seq``: a number that is different for each record
            of a stream. ``op`` is one of ``+v``, ``-v``, ``+e``, ``-e``, ``+av``, ``-av``, ``+ae`` and ``-ae``, where
            ``a`` stands for attributes of vertices or edges; ``txn`` for a list of ``updates`` that are visible at
            once; or ``heartbeat``, which says that the stream has reached a time.

            A table (anything with ``__arrow_c_stream__``, or a Parquet file) has the same fields as columns, and every
            other column is an attribute. A path ending in ``.jsonl`` has a mapping in each line.

        Returns
        -------
        int
            Number of records that wait, as earlier ones may still come.

        Raises
        ------
        InputError
            A table lacks a column or has one of a type that is not accepted, or the file cannot be read. Records with
            values that are not accepted are rejected one by one.
        JobError
            An earlier call was interrupted while records were applied.

        Notes
        -----
        ``+e`` adds missing ends; for an edge that exists, it renews the attributes that are given and the time when it
        was last seen. Edges without ``id`` are named by their ends and the attribute ``type``, ``src>dst:type``. ``-v``
        also removes the edges of the vertex. Updates of what does not exist have no effect, and are counted.
        """
        self._deliveries.begin(lambda: [query.topic for query in self._engine.topics.values()])
        for part in parts_of(records):
            with self.lock:
                self._feed(part)
            self._deliveries.follow()
        return len(self._engine.sequencer)

    def _feed(self, part: Any) -> None:
        self._check()
        self._expire()
        is_table = isinstance(part, pa.Table)
        found = self._engine.encoder.table(part) if is_table else self._engine.encoder.rows(part)
        arrival = Arrival(found.records, len(found.rejected), time.monotonic() - self._started)
        with self._whole():
            packed = None if self._folder is None else arrival.packed()
            added = self._log(FEED, packed, len(found.records.ops))
            begun = time.monotonic()
            released = self._engine.take(arrival)
            self._follow(FEED, added, arrival)
            if self._folder is not None:
                self._folder.policy.measure(len(found.records.ops), time.monotonic() - begun)
        late = [] if LATE[self._options.late] == "drop" else released.late.tolist()
        reason = "late: records of this time have been applied"
        if self._options.takes_late:
            reason += ", and it is later than tombstone_ttl, or after the end"
        for place, error in [*found.rejected, *((found.places[row], reason) for row in late)]:
            self._on_error(row_of(part, place) if is_table else part[place], error)
        self._engine.deliver()
        if self._folder is not None and self._folder.policy.is_due(time.monotonic()):
            self.checkpoint()

    def end(self) -> None:
        """Apply all records that wait, as no more will come. Later records are late."""
        with self.lock:
            self._check()
            with self._whole():
                added = self._log(END, None)
                self._engine.end()
                self._follow(END, added)
            self._engine.deliver()
        self._deliveries.follow()

    def deliver(self, topic: str, sink: Sink, *, name: str | None = None, every: Duration = 1.0) -> None:
        """Deliver the events of a query to a sink, on a thread, from the first one on.

        Parameters
        ----------
        topic : str
        sink : Sink
            As `write_parquet`, `write_delta`, `write_kafka` or `post_json_lines` returns; a table for this topic
            alone. Other sinks get mappings, which also have the ``topic``.
        name : str, optional
            By which the delivery continues after this process has ended [default: the topic].
        every : str, float or timedelta
            How long events are collected for a file, a version of a table or a transaction.

        Raises
        ------
        InputError
            There is no such topic, the name is in use, the target is not accepted, or events are not kept any more.

        Notes
        -----
        With a folder, as `state`, a delivery continues after the last event that it has confirmed, and each event
        arrives exactly once in files, Delta tables and Kafka topics, and at least once, with the same ``event_id``,
        elsewhere, however this process ends. Call this before the first records are fed, so that no event is given up
        which is still to be delivered. Without a folder, events that were not delivered are lost with the process.

        When as many events wait as are kept of a query, `feed` waits. An error of a sink is raised by `feed`,
        `end`, `flush` or `close`.

        Examples
        --------
        >>> import goffish as gf
        >>> live, seen = gf.stream.LiveGraph(lateness=0), gf.stream.collect()
        >>> _ = live.submit("DETECT Match(vertex:{kind = host}) AS hosts")
        >>> live.deliver("hosts", seen)
        >>> _ = live.feed([{"t": 1, "op": "+v", "id": "a", "attrs": {"kind": "host"}}])
        >>> live.flush()
        >>> [(event["topic"], event["status"], event["id"]) for event in seen.values]
        [('hosts', 'MATCHED', 'a')]
        """
        with self.lock:
            self._check()
            seconds = microseconds(every, "every", zero=True) / 1e6
            self._deliveries.add(topic if name is None else name, self._query(topic).topic, sink, seconds)

    def flush(self) -> None:
        """Wait until all events are delivered.

        Raises
        ------
        JobError
            A delivery has failed.
        """
        self._deliveries.flush()

    def before_checkpoints(self, sync: Callable[[], None]) -> None:
        """Call a function before each checkpoint: to make durable what was written of the events before it.

        Parameters
        ----------
        sync : callable
        """
        self._syncs.append(sync)

    def after_deadlines(self, call: Callable[[], object]) -> None:
        """Call a function, on any thread, after queries have ended by the clock of the machine.

        Parameters
        ----------
        call : callable
            Must return at once.
        """
        self._ended.append(call)

    @classmethod
    def reading(cls, state: str | Path) -> LiveGraph:
        """Return the live graph in a folder, to look at, also while another process uses it.

        Parameters
        ----------
        state : str or Path

        Returns
        -------
        LiveGraph
            It accepts no records; `refresh` follows the other process.

        Raises
        ------
        InputError
            There is no live graph.
        CheckpointError
            The folder is damaged.
        """
        path = local_path(state)
        options = durable.options_of(path, state)
        if options is None:
            raise InputError(f"{state}: has no live graph")
        live = cls()
        live._options, live._torn, live._read = options, "is for reading only", path
        for attempt in range(_ATTEMPTS):
            try:
                live._engine, live._next, _ = restored(path, options)
                live.refresh()
                break
            except CheckpointError:  # or the other process has removed a file since it was listed
                if attempt == _ATTEMPTS - 1:
                    raise
        return live

    def refresh(self) -> bool:
        """Follow the process that uses the folder of a live graph that `reading` returned.

        Returns
        -------
        bool
            Whether there was something new.

        Raises
        ------
        InputError
            The live graph is not for reading only.
        CheckpointError
            The folder is damaged.
        """
        if self._read is None:
            raise InputError("refresh: only of a live graph that is for reading; see LiveGraph.reading")
        begun = self._next
        for number, form, held in read_log(self._read, begun):
            replay(self._engine, form, held, self._read, number)
            self._next = number + 1
        return self._next > begun

    def first_event(self, topic: str) -> int:
        """Return the number of the first event of a query that is kept.

        Parameters
        ----------
        topic : str

        Returns
        -------
        int

        Raises
        ------
        InputError
            There is no such topic.
        """
        return self._query(topic).topic.first

    def checkpoint(self) -> None:
        """Save the state in the folder now, so that less of the log is replayed later.

        Raises
        ------
        InputError
            The live graph has no folder.
        JobError
            The folder cannot be written.
        """
        self._check()
        if self._folder is None:
            raise InputError("checkpoint: the live graph has no folder; give one as state")
        for sync in self._syncs:
            sync()
        self._folder.save(self._engine.saved(), self._engine.now)

    def close(self, *, flush: bool = True) -> None:
        """Deliver all events, save the state if there is a folder, and let another process use it.

        No more records are accepted.

        Parameters
        ----------
        flush : bool
            Whether to wait until all events are delivered. With a folder, others are delivered by the next process.

        Raises
        ------
        JobError
            A delivery has failed, or the folder cannot be written; what was fed is in its log.
        """
        folder, self._folder = self._folder, None
        if self._timer is not None:
            self._timer.cancel()
        try:
            if flush and not self._torn:
                self._deliveries.flush()
            if folder is not None and not self._torn and folder.policy.bytes:
                for sync in self._syncs:
                    sync()
                folder.save(self._engine.saved(), self._engine.now)
        finally:
            self._deliveries.stop()
            if folder is not None:
                folder.close()
                self._torn = self._torn or "is closed"

    def __enter__(self) -> LiveGraph:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close(flush=kind is None)

    def _check(self) -> None:
        if self._torn:
            raise JobError(f"the live graph {self._torn}; make a new one")

    @contextmanager
    def _whole(self, *, done: bool = False) -> Iterator[None]:
        """Accept nothing more if this is interrupted, or cannot be written to the log although it is done."""
        try:
            yield
            if self._folder is not None:
                self._mark = Added.mark(self._engine.encoder)
        except Refused as error:
            if done:
                self._torn = "could not write to its log"
                raise JobError(str(error)) from None
            raise JobError(f"{error}; the records were not taken") from None
        except BaseException:
            self._torn = "was interrupted while it applied records"
            raise

    def _log(self, form: int, tree: Any, updates: int = 0) -> Added | None:
        """Write what is to be done to the log, with the labels and names that are new; return these."""
        if self._folder is None:
            return None
        added = Added.since(self._engine.encoder, self._mark)
        self._folder.append(form, (added, tree), updates)
        return added

    def _follow(self, form: int, added: Added | None, arrival: Arrival | None = None) -> None:
        """Let replicas do the same."""
        for replica in self._engine.replicas:
            assert added is not None
            replica.follow(form, added, arrival)

    def submit(
        self, text: str, parameters: Mapping[str, Any] | None = None, *,
        on_events: Callable[[str, pa.Table], None] | None = None,
    ) -> list[str]:  # fmt: skip
        """Register continuous queries.

        Parameters
        ----------
        text : str
            In CGQL: statements ``DETECT`` and ``CANCEL``, separated by semicolons. All are registered, or none. Or a
            pattern of openCypher, ``MATCH (a)-[:PAYS]->(b) WHERE a.age < b.age``.
        parameters : mapping, optional
            Values of words and of ``$name`` in the text: numbers, texts, true and false.
        on_events : callable, optional
            Called with a topic and a table of new events, while records are fed.

        Returns
        -------
        list of str
            The topics: names after ``AS``, or ``q1``, ``q2`` and so on.

        Raises
        ------
        CgqlError
            The text is not accepted; names the line and the column.

        Notes
        -----
        A query sees the vertices and edges that satisfy ``WHERE node:{…}`` and ``WHERE edge:{…}``, and with
        ``WINDOW d`` only edges that were seen within the time d. Answers are compared after every record, or with
        ``EMIT EVERY d`` when the event time is a multiple of d. Each answer that is new, or is none any more, is an
        event. Folded, all events of a topic give its answers.

        Examples
        --------
        >>> import goffish as gf
        >>> live = gf.stream.LiveGraph(lateness=0)
        >>> live.submit("DETECT Reach(source:{name = Ann}, sink:{kind = host}) AS paths")
        ['paths']
        >>> _ = live.feed([
        ...     {"t": 1, "op": "+v", "id": "a", "attrs": {"name": "Ann"}},
        ...     {"t": 2, "op": "+v", "id": "h", "attrs": {"kind": "host"}},
        ...     {"t": 3, "op": "+e", "src": "a", "dst": "b"},
        ...     {"t": 4, "op": "+e", "src": "b", "dst": "h"},
        ... ])
        >>> live.events("paths").select(["status", "source", "sink", "hops"]).to_pylist()
        [{'status': 'REACHABLE', 'source': 'a', 'sink': 'h', 'hops': 2}]
        """
        with self.lock:
            self._check()
            folder = self._folder
            history = None if folder is None else History(folder.path, self._options, folder.end)
            script, clock = expanded(parse(text), self._vocabularies), time.time_ns() // 1000
            topics = self._engine.submit(script, parameters or {}, on_events, history, clock)
            with self._whole(done=True):
                plain = {name: one for name, one in (parameters or {}).items() if type(one) in (int, float, str, bool)}
                self._log(SUBMIT, (str(script), plain, clock))
            self._set_timer()
            if any(topic not in self._engine.queries.all for topic in topics):
                self.checkpoint()  # what the replay for a query in the past needs may be gone later
            self._engine.deliver()
        return topics

    def follow(
        self, algorithm: str, *, weight: str | None = None, directed: bool = True, **options: Any
    ) -> Followed:  # fmt: skip
        """Keep the result of an algorithm up to date.

        Parameters
        ----------
        algorithm : str
            As in `goffish.run`; see Notes.
        weight : str, optional
            Numeric attribute of the edges; 1 where it is missing. Of parallel edges, the least one counts.
        directed : bool
            Whether edges have directions, for algorithms that use them.
        **options
            Options of the algorithm.

        Returns
        -------
        Followed
            Its ``result()`` is that of the algorithm on the graph as it is now; ``statistics`` are of the work for it,
            and ``close()`` ends it.

        Raises
        ------
        InputError
            Such an algorithm cannot be followed, or an option is not accepted.

        Notes
        -----
        Changes are followed when a result is asked for. Where they take longer than a full pass over the graph would,
        there is one.

        Examples
        --------
        >>> import goffish as gf
        >>> live = gf.stream.LiveGraph(lateness=0)
        >>> ranks = live.follow("pagerank", tolerance=1e-8)
        >>> _ = live.feed([{"t": 1, "op": "+e", "src": "ann", "dst": "bob"}])
        >>> {vertex: round(rank, 3) for vertex, rank in ranks.result().to_dict().items()}
        {'ann': 0.351, 'bob': 0.649}
        """
        engine = self._engine
        found = make_followed(engine.state, engine.encoder, algorithm, weight, directed, options)
        found.attach(self._check, engine.followers.discard)
        engine.followers.add(found)
        return found

    def run(
        self, program: str | LiveProgram, *, workers: int | tuple[int, int] = 2, partitioner: str | Partitioner = "ldg",
        every: Duration | None = "1s", changes: int = 10_000,
        on_events: Callable[[pa.Table], None] | None = None, **options: Any,
    ) -> ProgramRun:  # fmt: skip
        """Run a program that follows the graph on several worker processes of this machine.

        Parameters
        ----------
        program : str or LiveProgram
            ``components``, ``distances`` (``source=``), ``reachability`` (``sources=``, ``sinks=``), ``triangles``,
            ``degrees``, ``pagerank`` (``damping=``, ``tolerance=``, ``dangling=``, ``personalization=``), or a program
            of yours.
        workers : int or tuple of two int
            Number of processes; or the smallest and the largest one: one is added after 3 epochs in a row with more
            than 2 that are not complete, and removed after 10 in which workers were busy for less than 30 % of the
            time.
        partitioner : {"ldg", "fennel", "hash"} or Partitioner
            Decides which worker has a vertex, when the vertex is first seen.
        every : str, float or timedelta, optional
            Changes are taken in epochs of this event time; None: of `changes` only.
        changes : int
            Changes of an epoch, at most.
        on_events : callable, optional
            Called with a table of the events of an epoch, while records are fed or a result is asked for.
        **options
            Of a bundled program.

        Returns
        -------
        ProgramRun
            ``result()``, ``events()``, ``value``, ``statistics``, ``wait()``, ``scale()``, which changes the number of
            workers, and ``close()``, which ends them.

        Raises
        ------
        InputError
            An argument is not accepted.
        JobError
            A worker process did not start.

        Examples
        --------
        >>> import goffish as gf
        >>> live = gf.stream.LiveGraph(lateness=0)
        >>> with live.run("components", workers=1) as components:
        ...     _ = live.feed([{"t": 1, "op": "+e", "src": "ann", "dst": "bob"}])
        ...     components.result().to_dict()
        {'ann': 'ann', 'bob': 'ann'}
        """
        self._check()
        chosen = program_of(program, options)
        least, most = workers_of(workers, chosen)
        checked_count("changes", changes, 1 << 31)
        period = None if every is None else microseconds(every, "every")
        engine = self._engine
        settings = Settings(least, partitioner, period, changes, on_events, self._options.events, most=most)
        found = ProgramRun(engine.state, engine.encoder, chosen, settings, engine.now)
        found.attach(self._check, engine.followers.discard)
        engine.followers.add(found)
        return found

    def add_vocabulary(self, name: str, words: Mapping[str, str]) -> None:
        """Let words stand for predicates in queries that are submitted from now on.

        Parameters
        ----------
        name : str
            Queries have the words after ``WITH (vocabulary = name)``.
        words : mapping
            Predicates in braces, by word.

        Raises
        ------
        InputError
            The name is in use, or a word or a predicate is not accepted.

        Examples
        --------
        >>> import goffish as gf
        >>> live = gf.stream.LiveGraph(lateness=0)
        >>> live.add_vocabulary("social", {"friend": "{type IN (follow, like), weight > 2}"})
        >>> live.submit("DETECT Match(edge:{friend}) WITH (vocabulary = social) AS friends")
        ['friends']
        >>> live.query("friends")
        'DETECT Match(edge:{type IN ("follow", "like") AND weight > 2}) AS friends'
        """
        if name in self._vocabularies:
            raise InputError(f"vocabulary {name}: there is one of this name already")
        self._vocabularies[name] = vocabulary_of(name, words)

    def _set_timer(self) -> None:
        """Let the next query that ends by the clock end in time, although no records are fed."""
        deadlines = self._engine.queries.deadlines
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadlines and self._read is None and not self._torn:
            left = min(deadlines.values()) / 1e6 - time.time()
            self._timer = threading.Timer(min(max(0.0, left), _LOOK_S), _ring, [weakref.ref(self)])
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        """End queries whose deadline has come."""
        due = self._engine.queries.due(time.time_ns() // 1000) if self._engine.queries.deadlines else []
        for topic in due:
            self._engine.expire(topic)
            with self._whole(done=True):
                self._follow(EXPIRE, self._log(EXPIRE, topic))
        if due:
            self.lock.notify_all()
            for call in self._ended:
                call()

    def cancel(self, topic: str) -> None:
        """End a query; its events remain.

        Parameters
        ----------
        topic : str

        Raises
        ------
        InputError
            No such query runs.
        """
        with self.lock:
            self._check()
            self._engine.cancel(topic)
            with self._whole(done=True):
                self._follow(CANCEL, self._log(CANCEL, topic))
            self._engine.deliver()
        self._deliveries.follow()

    def subscribe(self, topic: str, on_events: Callable[[str, pa.Table], None], after: int | None = None) -> None:
        """Pass the events of a query to a function, which takes the place of an earlier one.

        Parameters
        ----------
        topic : str
        on_events : callable
            Called with the topic and a table of events, while records are fed.
        after : int, optional
            Number of the first event to be passed [default: only new ones]. A function that remembers the last
            ``offset`` receives each event once, also if this process ends and another one continues from its folder.

        Raises
        ------
        InputError
            There is no such topic, or the events are not kept any more.
        """
        query = self._query(topic)
        if after is not None:
            events = query.topic.events(after)
            if len(events):
                on_events(topic, events)
        self._engine.subscribe(topic, on_events)

    @property
    def topics(self) -> list[str]:
        """Topics of all queries, also of those that have ended."""
        return list(self._engine.topics)

    @property
    def failure(self) -> str:
        """Why records are not accepted any more, or a delivery has failed; empty otherwise."""
        return f"the live graph {self._torn}" if self._torn else self._deliveries.failure

    @property
    def ends(self) -> dict[str, int]:
        """Number of the next event of each topic."""
        with self.lock:
            return {topic: query.topic.count for topic, query in self._engine.topics.items()}

    def events(self, topic: str, after: int = 0, most: int | None = None) -> pa.Table:
        """Return the events of a query.

        Parameters
        ----------
        topic : str
        after : int
            Number of the first event to be returned.
        most : int, optional
            How many are returned at most.

        Returns
        -------
        pyarrow.Table
            In order: ``offset``, ``time``, ``status``, the columns of the key and of the value, ``initial`` for
            answers that were there when the query began, the ``reason`` of ``CLOSED``, and ``event_id``.

        Raises
        ------
        InputError
            There is no such topic, or the events are not kept any more.
        """
        with self.lock:
            return self._query(topic).topic.events(after, most)

    def answers(self, topic: str) -> pa.Table:
        """Return the current answers of a query.

        Parameters
        ----------
        topic : str

        Returns
        -------
        pyarrow.Table
            The columns of the key, in whose order the rows are, and of the value.

        Raises
        ------
        InputError
            There is no such topic.
        """
        with self.lock:
            return self._query(topic).answers()

    def query(self, topic: str) -> str:
        """Return the text of a query, with the values of its parameters.

        Parameters
        ----------
        topic : str

        Returns
        -------
        str

        Raises
        ------
        InputError
            There is no such topic.
        """
        return str(self._query(topic))

    def explain(self, text: str, parameters: Mapping[str, Any] | None = None) -> dict[str, dict[str, str]]:
        """Return how queries would be evaluated, without registering them.

        Parameters
        ----------
        text : str
            As of `submit`; topics that it names are among its own, or registered.
        parameters : mapping, optional

        Returns
        -------
        dict
            By topic, the steps from records to events: ``vertices`` and ``edges`` that are seen, sets of the pattern
            such as ``source``, the ``operator`` that follows the answers, when these are ``compared``, the ``events``,
            and for which records the query is ``evaluated``.

        Raises
        ------
        CgqlError
            The text is not accepted.

        Examples
        --------
        >>> import goffish as gf
        >>> text = "DETECT Degree(degree > 9) WINDOW 60s WHERE edge:{type = call} AS busy"
        >>> for step, what in gf.stream.LiveGraph().explain(text)["busy"].items():
        ...     print(f"{step}: {what}")
        vertices: all
        edges: {type = "call"}, for 1m after they were last seen
        operator: one number for each vertex
        compared: after each record
        events: CLEARED, RAISED
        evaluated: for all records, as time or other topics count
        """
        engine = Engine(self._options)
        for one in self._engine.topics.values():
            engine.submit(parse(str(one)), {}, None, None)
        script = expanded(parse(text), self._vocabularies)
        return {topic: engine.queries.all[topic].plan for topic in engine.submit(script, parameters or {}, None, None)}

    def _query(self, topic: str) -> Query:
        topics = self._engine.topics
        if topic not in topics:
            raise InputError(f"topic {topic}: unknown; choose from {', '.join(topics) or 'none'}")
        return topics[topic]

    @property
    def time(self) -> datetime | None:
        """Time up to which all records are applied; ``None`` before the first one and after `end`."""
        reached = self._engine.sequencer.watermark
        return None if reached in (FIRST, LAST) else moments(np.array([reached]))[0]

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return int(np.count_nonzero(self._engine.state.graph.vertices))

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(np.count_nonzero(self._engine.state.graph.edges.alive))

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of records, and of updates without effect.

        ``accepted = applied + duplicate + late + rejected + waiting``; ``applied_late`` of those that were applied were
        late. Updates without effect are of elements that do not exist (``unknown_element``), add an edge under the id
        of one with other ends (``edge_id_conflict``), or are of late records and older than what they would overwrite
        (``stale``).
        """
        return self._engine.counts | {
            "waiting": len(self._engine.sequencer), "unknown_element": self._engine.state.unknown,
            "edge_id_conflict": self._engine.state.conflicts, "stale": self._engine.state.stale,
        }  # fmt: skip

    @property
    def vertices(self) -> pa.Table:
        """Vertices and their attributes: ``id``, and a column for each attribute."""
        return self._engine.state.table(edges=False)

    @property
    def edges(self) -> pa.Table:
        """Edges: ``id``, ``source``, ``target``, ``last_seen``, and a column for each attribute."""
        return self._engine.state.table(edges=True)

    def graph(
        self, *, weight: str | None = None, directed: bool = True,
        parallel: Literal["min", "sum", "first", "keep"] = "min", at: datetime | str | float | None = None,
    ) -> Graph:  # fmt: skip
        """Return the current graph, or that of an earlier time, for the algorithms of the library.

        Parameters
        ----------
        weight : str, optional
            Numeric attribute of the edges; 1 where it is missing.
        directed : bool
        parallel : {"min", "sum", "first", "keep"}
            What becomes of several edges between two vertices, as in `from_edges`.
        at : datetime, str or float, optional
            Time of the last records that are applied: a timestamp, an ISO 8601 text or seconds since 1970, within what
            is kept in the folder of the live graph.

        Returns
        -------
        Graph
            Vertices are in the order of their first appearance.

        Raises
        ------
        InputError
            No edge has the attribute, a weight is negative, or the time is not within what is kept.
        """
        engine = self._engine if at is None else self._engine_at(at)
        graph, encoder = engine.state.graph, engine.encoder
        vertices, edges = np.flatnonzero(graph.vertices), np.flatnonzero(graph.edges.alive)
        numbers = np.cumsum(graph.vertices) - 1
        weights = None
        if weight is not None:
            weights = engine.state.numbers_of(weight)
            if weights is None:
                raise InputError(f"weight = {weight!r}: no edge has such an attribute")
            weights = np.nan_to_num(weights[edges], nan=1.0)
        return from_edges(
            numbers[graph.edges.sources[edges]], numbers[graph.edges.targets[edges]], weights, directed=directed,
            labels=labels_of(encoder, vertices), parallel=parallel,
        )  # fmt: skip

    def _engine_at(self, at: datetime | str | float) -> Engine:
        """Return the engine after the records of a time."""
        try:
            time = event_time(datetime.fromisoformat(at) if isinstance(at, str) else at)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"at = {at!r:.60}: {error}") from None
        path = self._read if self._folder is None else self._folder.path
        if path is None:
            raise InputError(f"at = {at}: the live graph keeps no earlier times; give it a folder as state")
        if time > self._engine.now:
            raise InputError(f"at = {at}: records are applied until {_text(self._engine.now)} only")
        end = self._next if self._folder is None else self._folder.end
        found = History(path, self._options, end)(time)
        if found is None:
            raise InputError(f"at = {at}: the log does not go back that far")
        replica, entries = found
        replica.engine.limit = time
        for form, added, held in entries:
            # Late records are applied at the time that was reached.
            if replica.engine.sequencer.watermark >= time + self._options.takes_late:
                break
            if form == INSTANCE and held.now > time:
                break
            replica.follow(form, added, held)
        return replica.engine

    def __repr__(self) -> str:
        until = f", until {self.time.isoformat()}" if self.time is not None else ""
        return f"LiveGraph({self.num_vertices:,} vertices, {self.num_edges:,} edges{until})"


def _ring(found: weakref.ref[LiveGraph]) -> None:
    """End queries of a live graph whose deadline has come."""
    live = found()
    if live is None:
        return
    with live.lock:
        if not live._torn:
            with suppress(JobError):  # the next call raises it
                live._expire()
            live._set_timer()


def _text(time: int) -> str:
    return "the first one" if time == FIRST else moments(np.array([time]))[0].isoformat()
