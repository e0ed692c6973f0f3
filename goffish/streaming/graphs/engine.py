"""What a live graph does with records and commands, as a function of these only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import CheckpointError, InputError
from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.predicates import Flips
from goffish.streaming.graphs.queries import Queries, Take
from goffish.streaming.graphs.records import Encoder, Records
from goffish.streaming.graphs.sequencer import Released, Sequencer
from goffish.streaming.graphs.state import Changes, State
from goffish.streaming.graphs.updates import ADD_VERTEX, OPS, REMOVE_VERTEX, SET_VERTEX, TEXT, UNSET_VERTEX
from goffish.streaming.key_table import Keys, KeyTable

#: Labels that have been in use at least, before those that are not in use any more are given up.
_LEAST = 1 << 16
_OF_VERTICES = (ADD_VERTEX, REMOVE_VERTEX, SET_VERTEX, UNSET_VERTEX)
Numbers = NDArray[np.int64]


class Options(NamedTuple):
    """Options of a live graph; times are in microseconds."""

    lateness: int = 5_000_000
    idle: int = 60_000_000
    window: int = 1_000_000
    streams: int = 1024
    attributes: int = 256
    events: int = 100_000


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
    def unpacked(cls, packed: tuple[Any, ...], encoder: Encoder) -> Arrival:
        """Return what was packed, after a look at it.

        Raises
        ------
        ValueError
            The columns do not fit together, or with the encoder.
        """
        columns, rejected, now = packed
        kinds = [np.int8 if name in ("ops", "kinds") else np.int64 for name in Records._fields]
        records = Records(*(_widened(column, kind) for column, kind in zip(columns, kinds, strict=True)))
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
    of_vertices = np.isin(records.ops, _OF_VERTICES)
    most = np.where(of_vertices, encoder.vertices.count, encoder.edges.count)
    heartbeat = records.ops == len(OPS) - 1
    require((records.elements < most) & ((records.elements >= 0) | heartbeat))
    for ends in (records.sources, records.targets):
        require((ends < encoder.vertices.count) & ((ends >= 0) | (records.ops != OPS.index("+e"))))
    texts = records.bits[records.kinds == TEXT]
    require((texts >= 0) & (texts < encoder.values.texts.count))
    require((records.kinds >= 0) & (records.kinds <= TEXT + 2))


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
    """

    def __init__(self, options: Options) -> None:
        self.encoder = Encoder(options.streams, options.attributes)
        self.sequencer = Sequencer(options.lateness, options.idle / 1e6, -(-options.window // 64) * 64)
        self.state = State(self.encoder)
        self.queries = Queries(self.state, self.encoder, options.events)
        self.counts = dict.fromkeys(("accepted", "applied", "duplicate", "late", "rejected"), 0)
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
        self._apply(released.records)
        return released

    def end(self) -> None:
        """Apply all records that wait."""
        self._apply(self.sequencer.end(list(self.encoder.streams)))

    def submit(self, text: str, parameters: Mapping[str, Any], take: Take | None) -> list[str]:
        """Register queries; return their topics."""
        return self.queries.submit(text, parameters, take, self.now)

    def cancel(self, topic: str) -> None:
        """End a query."""
        self.queries.cancel(topic, self.now)

    def _apply(self, records: Records) -> None:
        changes, flips = Changes.empty(0), Flips.empty(0)
        if len(records):
            changes, flips = self.state.apply(records)
            self._last = int(records.times[-1])
        first = self.counts["applied"]
        self.counts["applied"] += len(records)
        self.queries.step(changes, flips, records.times, first + 1, self.sequencer.watermark)
        if any(map(self._is_due, self._tables, self._in_use)):
            self._give_up()

    @property
    def _tables(self) -> tuple[KeyTable, ...]:
        return self.encoder.vertices, self.encoder.edges, self.encoder.values.texts

    @staticmethod
    def _is_due(table: KeyTable, in_use: int) -> bool:
        return table.used >= max(_LEAST, 2 * in_use)

    def _give_up(self) -> None:
        """Let new labels and texts have the numbers of those that nothing refers to any more."""
        vertices, edges, texts = used = self.state.used()
        waiting = self.sequencer.pending
        of_vertices = np.isin(waiting.ops, _OF_VERTICES)
        vertices[waiting.elements[of_vertices]] = True
        of_edges = ~of_vertices & (waiting.elements >= 0)
        edges[waiting.elements[of_edges]] = True
        for ends in (waiting.sources, waiting.targets):
            vertices[ends[ends >= 0]] = True
        texts[waiting.bits[waiting.kinds == TEXT]] = True
        for query in self.queries.all.values():
            for mask, slots in zip(used, query.slots, strict=False):
                mask[slots] = True
        for at, (table, mask) in enumerate(zip(self._tables, used, strict=True)):
            table.free(np.setdiff1d(table.slots_in_use, np.flatnonzero(mask), assume_unique=True))
            self._in_use[at] = table.used

    def saved(self) -> dict[str, Any]:
        """Return all of it, for `install`."""
        encoder = self.encoder
        return {
            "tables": tuple(table.saved() for table in self._tables), "lists": encoder.values.lists_from(0),
            "names": list(encoder.names), "streams": list(encoder.streams), "sequencer": self.sequencer.saved(),
            "graph": self.state.saved(), "counts": self.counts, "last": self._last, "clock": self.clock,
            "in_use": list(self._in_use), "queries": self.queries.saved(),
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
            for table, one in zip(self._tables, saved["tables"], strict=True):
                table.install(one)
            encoder.values.add_lists(*saved["lists"])
            for one in saved["names"]:
                encoder.name(one)
            for one in saved["streams"]:
                encoder.stream(one)
            self.sequencer.install(saved["sequencer"])
            self.state.install(saved["graph"])
            self.counts, self._last, self._in_use = saved["counts"], saved["last"], saved["in_use"]
            self.clock = saved["clock"]
            self.queries.install(saved["queries"])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, InputError) as error:
            raise CheckpointError(f"{name}: is damaged ({error})") from None
