"""A graph that follows a stream of changes."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goffish.errors import InputError, JobError
from goffish.graph.graph import Graph, from_edges
from goffish.streaming.batches import FIRST, LAST, moments
from goffish.streaming.graphs.catalogue import make_followed
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.predicates import Flips
from goffish.streaming.graphs.queries import Queries, Query
from goffish.streaming.graphs.records import Encoder, Records
from goffish.streaming.graphs.rows import labels_of
from goffish.streaming.graphs.sequencer import Sequencer
from goffish.streaming.graphs.state import Changes, State
from goffish.streaming.windows import Duration, microseconds

#: Records of iterables that are encoded at a time.
_CHUNK = 1 << 14
_ERRORS = 1000


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
    window : int
        How many sequence numbers, above those that are complete, are remembered for each stream, to find records that
        arrive twice.
    streams, attributes : int
        Largest numbers of streams, and of names of attributes: each name takes 9 bytes for each vertex and edge.
    events : int
        How many events of each query are kept.
    on_error : callable, optional
        Takes each record that is not applied because it is late or not accepted, and the reason. Otherwise, the last
        1,000 are kept in `errors`.

    Attributes
    ----------
    errors : deque of (record, str)
        Records that were not applied, with the reason.

    Raises
    ------
    InputError
        An argument is not accepted.

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
        self, *, lateness: Duration = 5.0, idle: Duration = 60.0, window: int = 1_000_000, streams: int = 1024,
        attributes: int = 256, events: int = 100_000, on_error: Callable[[Any, str], None] | None = None,
    ) -> None:  # fmt: skip
        for name, value in (("window", window), ("streams", streams), ("attributes", attributes), ("events", events)):
            if value < 1:
                raise InputError(f"{name} = {value}: must be at least 1")
        idle_s = microseconds(idle, "idle") / 1e6
        self._sequencer = Sequencer(microseconds(lateness, "lateness", zero=True), idle_s, -(-window // 64) * 64)
        self._encoder = Encoder(streams, attributes)
        self._state = State(self._encoder)
        self._last = FIRST
        self._torn = False  # whether records are being applied
        self._queries = Queries(self._state, self._encoder, events)
        self._followed: WeakSet[Followed] = WeakSet()
        self._counts = dict.fromkeys(("accepted", "applied", "duplicate", "late", "rejected"), 0)
        self.errors: deque[tuple[Any, str]] = deque(maxlen=_ERRORS)
        self._on_error = on_error or (lambda record, error: self.errors.append((record, error)))

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
            A table lacks a column, or the file cannot be read.
        JobError
            An earlier call was interrupted while records were applied.

        Notes
        -----
        ``+e`` adds missing ends; for an edge that exists, it renews the attributes that are given and the time when it
        was last seen. Edges without ``id`` are named by their ends and the attribute ``type``, ``src>dst:type``. ``-v``
        also removes the edges of the vertex. Updates of what does not exist have no effect, and are counted.
        """
        for part in parts_of(records):
            is_table = isinstance(part, pa.Table)
            found = self._encoder.table(part) if is_table else self._encoder.rows(part)
            released = self._sequencer.push(found.records, list(self._encoder.streams), time.monotonic())
            sizes = len(found.records) + len(found.rejected), len(released.duplicates), len(released.late)
            for name, size in zip(("accepted", "duplicate", "late"), sizes, strict=True):
                self._counts[name] += size
            self._counts["rejected"] += len(found.rejected)
            self._apply(released.records)
            late = [(place, "late: records of this time have been applied") for place in found.places[released.late]]
            for place, error in found.rejected + late:
                self._on_error(part.slice(place, 1).to_pylist()[0] if is_table else part[place], error)
            self._queries.deliver()
        return len(self._sequencer)

    def end(self) -> None:
        """Apply all records that wait, as no more will come. Later records are late."""
        self._apply(self._sequencer.end(list(self._encoder.streams)))
        self._queries.deliver()

    def _check(self) -> None:
        if self._torn:
            raise JobError("the live graph was interrupted while it applied records; make a new one")

    def _apply(self, records: Records) -> None:
        self._check()
        self._torn = True
        changes, flips = Changes.empty(0), Flips.empty(0)
        if len(records):
            changes, flips = self._state.apply(records)
            self._last = int(records.times[-1])
        for one in self._followed:
            one.take(changes)
        first = self._counts["applied"]
        self._counts["applied"] += len(records)
        self._queries.step(changes, flips, records.times, first + 1, self._sequencer.watermark)
        self._torn = False

    def submit(
        self, text: str, parameters: Mapping[str, Any] | None = None, *,
        on_events: Callable[[str, pa.Table], None] | None = None,
    ) -> list[str]:  # fmt: skip
        """Register continuous queries.

        Parameters
        ----------
        text : str
            In CGQL: statements ``DETECT`` and ``CANCEL``, separated by semicolons. All are registered, or none.
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
        topics = self._queries.submit(text, parameters or {}, on_events, self._now)
        self._queries.deliver()
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
        found = make_followed(self._state, self._encoder, algorithm, weight, directed, options)
        found.attach(self._check, self._followed.discard)
        self._followed.add(found)
        return found

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
        self._queries.cancel(topic, self._now)
        self._queries.deliver()

    def events(self, topic: str, after: int = 0) -> pa.Table:
        """Return the events of a query.

        Parameters
        ----------
        topic : str
        after : int
            Number of the first event to be returned.

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
        return self._query(topic).topic.events(after)

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

    def _query(self, topic: str) -> Query:
        if topic not in self._queries.all:
            raise InputError(f"topic {topic}: unknown; choose from {', '.join(self._queries.all) or 'none'}")
        return self._queries.all[topic]

    @property
    def _now(self) -> int:
        """Time up to which all records are applied; that of the last one after `end`.

        Before the first one, it would depend on how many wait.
        """
        reached = self._sequencer.watermark
        return self._last if reached == LAST or self._last == FIRST else reached

    @property
    def time(self) -> datetime | None:
        """Time up to which all records are applied; ``None`` before the first one and after `end`."""
        reached = self._sequencer.watermark
        return None if reached in (FIRST, LAST) else moments(np.array([reached]))[0]

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return int(np.count_nonzero(self._state.graph.vertices))

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(np.count_nonzero(self._state.graph.edges.alive))

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of records, and of updates without effect.

        ``accepted = applied + duplicate + late + rejected + waiting``. Updates without effect are of elements that do
        not exist (``unknown_element``), or add an edge under the id of one with other ends (``edge_id_conflict``).
        """
        return self._counts | {
            "waiting": len(self._sequencer), "unknown_element": self._state.unknown,
            "edge_id_conflict": self._state.conflicts,
        }  # fmt: skip

    @property
    def vertices(self) -> pa.Table:
        """Vertices and their attributes: ``id``, and a column for each attribute."""
        return self._state.table(edges=False)

    @property
    def edges(self) -> pa.Table:
        """Edges: ``id``, ``source``, ``target``, ``last_seen``, and a column for each attribute."""
        return self._state.table(edges=True)

    def graph(
        self, *, weight: str | None = None, directed: bool = True,
        parallel: Literal["min", "sum", "first", "keep"] = "min",
    ) -> Graph:  # fmt: skip
        """Return the current graph, for the algorithms of the library.

        Parameters
        ----------
        weight : str, optional
            Numeric attribute of the edges; 1 where it is missing.
        directed : bool
        parallel : {"min", "sum", "first", "keep"}
            What becomes of several edges between two vertices, as in `from_edges`.

        Returns
        -------
        Graph
            Vertices are in the order of their first appearance.

        Raises
        ------
        InputError
            No edge has the attribute, or a weight is negative.
        """
        graph, encoder = self._state.graph, self._encoder
        vertices, edges = np.flatnonzero(graph.vertices), np.flatnonzero(graph.edges.alive)
        numbers = np.cumsum(graph.vertices) - 1
        weights = None
        if weight is not None:
            weights = self._state.numbers_of(weight)
            if weights is None:
                raise InputError(f"weight = {weight!r}: no edge has such an attribute")
            weights = np.nan_to_num(weights[edges], nan=1.0)
        return from_edges(
            numbers[graph.edges.sources[edges]], numbers[graph.edges.targets[edges]], weights, directed=directed,
            labels=labels_of(encoder, vertices), parallel=parallel,
        )  # fmt: skip

    def __repr__(self) -> str:
        until = f", until {self.time.isoformat()}" if self.time is not None else ""
        return f"LiveGraph({self.num_vertices:,} vertices, {self.num_edges:,} edges{until})"


def parts_of(records: Any) -> Iterator[Any]:
    """Return records in parts, as tables or lists: what `LiveGraph.feed` takes at a time."""
    if isinstance(records, pa.RecordBatch):
        yield pa.Table.from_batches([records])
    elif hasattr(records, "__arrow_c_stream__"):
        yield pa.table(records)
    elif isinstance(records, str | Path) and Path(records).suffix == ".parquet":
        yield from _read_parquet(Path(records))
    else:
        if isinstance(records, str | Path):
            records = _read_lines(Path(records))
        if isinstance(records, Mapping) or not isinstance(records, Iterable):
            raise InputError(f"records: {type(records).__name__}; accepted are tables, paths and iterables of mappings")
        rest = iter(records)
        while part := list(islice(rest, _CHUNK)):
            yield part


def _read_parquet(path: Path) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield pa.Table.from_batches([batch])
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from None


def _read_lines(path: Path) -> Iterator[Any]:
    if path.suffix != ".jsonl":
        raise InputError(f"{path}: accepted are files that end in .jsonl or .parquet")
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise InputError(f"{path}, line {number}: not a JSON value ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
