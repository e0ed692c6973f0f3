"""What queries publish."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.times import moments
from goffish.streaming.graphs.patterns import Found, Numbers, Pattern
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.views import BEGINNING, INSTANCE, LATE


class Stamps(NamedTuple):
    """Ticks: times in microseconds, phases, and numbers of the records that were applied."""

    times: Numbers
    phases: Numbers
    asns: Numbers


class Events(NamedTuple):
    """Events of a topic, in order.

    Attributes
    ----------
    stamps, released : Stamps
        When they happened, and the ticks at which they are published.
    codes : int8 array
        Of statuses.
    keys, values : arrays
    initial : bool array
        Whether it was there when the query began.
    """

    stamps: Stamps
    released: Stamps
    codes: NDArray[np.int8]
    keys: Numbers
    values: NDArray[Any]
    initial: NDArray[np.bool_]

    def take(self, chosen: Any) -> Events:
        """Return some of them."""
        stamps, released = (Stamps._make(column[chosen] for column in part) for part in self[:2])
        return Events(stamps, released, *(column[chosen] for column in self[2:]))

    @classmethod
    def joined(cls, parts: list[Events]) -> Events:
        """Return events one after the other."""
        columns: list[Any] = [
            Stamps._make(map(np.concatenate, zip(*(part[at] for part in parts), strict=True))) for at in (0, 1)
        ]
        columns += [np.concatenate([part[at] for part in parts]) for at in range(2, len(cls._fields))]
        return cls(*columns)


class Notice(NamedTuple):
    """An event about the query: it, or one of its spans, has ended, or events were left out."""

    status: str
    reason: str
    stamps: Stamps

    @property
    def keys(self) -> Numbers:
        """Its only key, which has no meaning."""
        return np.zeros(1, np.int64)


class Topic:
    """Events of a query.

    Parameters
    ----------
    name : str
    pattern : Pattern
    encoder : Encoder
    most : int
        Events that are kept.
    limit : int, optional
        Events that are published of one tick.
    """

    def __init__(self, name: str, pattern: Pattern, encoder: Encoder, most: int, limit: int | None = None) -> None:
        self.name, self._pattern, self._encoder, self._most = name, pattern, encoder, most
        self._limit = limit
        #: Events, the last ones of all.
        self.kept: deque[Events | Notice] = deque()
        self.first = self.count = 0
        #: First event that a delivery has not confirmed; it and later ones are kept, however many there are.
        self.needed: int | None = None
        #: Whether events say if they follow from a late record.
        self.flags_late = False
        #: Whether events say if they follow from the difference of two instances.
        self.shows_resolution = False
        #: Whether events are passed on as tables when they are published.
        self.is_heard = False
        #: Why and when the query ended.
        self.closed: Notice | None = None

    def events_of(self, found: Found, stamps: Stamps, released: Stamps, *, initial: bool) -> Events:
        """Return events in order: by observation, first what is none any more, then by key.

        Parameters
        ----------
        found : Found
        stamps, released : Stamps
            By observation.
        initial : bool
            Whether these are the first answers.
        """
        keys: Any = *self._pattern.ranks(self._encoder, found.keys)[::-1], found.codes, found.observations
        order = np.lexsort(keys)
        found = Found._make(column[order] for column in found)
        happened, seen = (Stamps._make(column[found.observations] for column in one) for one in (stamps, released))
        first = np.full(len(found.keys), initial)
        return Events(happened, seen, found.codes, found.keys, found.values, first)

    def publish(self, events: Events) -> pa.Table | None:
        """Publish events; return them as a table if there is a function that takes it."""
        if not len(events.keys):
            return None
        first, parts = self.count, self._limited(events)
        for part in parts:
            self._keep(part)
        return self._table(parts, first) if self.is_heard else None

    def _limited(self, events: Events) -> list[Events | Notice]:
        """Return the first events of each tick, and notices of how many others there were."""
        if self._limit is None or len(events.keys) <= self._limit:
            return [events]
        others = np.any([np.diff(column) != 0 for column in events.released], axis=0)
        ends = [*(np.flatnonzero(others) + 1).tolist(), len(events.keys)]
        parts, begin, first = list[Events | Notice](), 0, 0  # of what is not among the parts, and of the tick
        for end in ends:
            if end - first > self._limit:
                parts.append(events.take(np.s_[begin : first + self._limit]))
                last = Stamps._make(column[end - 1 : end] for column in events.released)
                parts.append(Notice("TRUNCATED", f"{end - first - self._limit} events left out", last))
                begin = end
            first = end
        return [*parts, events.take(np.s_[begin:])] if begin < len(events.keys) else parts

    def _table(self, parts: list[Events | Notice], first: int) -> pa.Table:
        """Return events by number as a table."""
        tables = []
        for part in parts:
            tables.append(self._rows(part, first) if isinstance(part, Events) else self._notice(part, first))
            first += len(part.keys)
        return pa.concat_tables(_alike(tables), promote_options="default")

    @property
    def events_kept(self) -> list[Events]:
        """Those that are no notices."""
        return [one for one in self.kept if isinstance(one, Events)]

    def _keep(self, events: Events | Notice) -> None:
        size = len(events.keys)
        self.count += size
        most = self._most if self.needed is None else max(self._most, self.count - self.needed)
        if isinstance(events, Events) and size > most:
            events = events.take(np.s_[-most:])
            self.first += size - most
        self.kept.append(events)
        while self.count - self.first - len(self.kept[0].keys) >= most:
            self.first += len(self.kept.popleft().keys)

    def close(self, reason: str, stamps: Stamps) -> pa.Table:
        """Publish that the query has ended."""
        self.closed = Notice("CLOSED", reason, stamps)
        self._keep(self.closed)
        return self._notice(self.closed, self.count - 1)

    def reopen(self, pattern: Pattern) -> None:
        """Let the query go on after it has ended."""
        self.closed, self._pattern = None, pattern

    def events(self, after: int, most: int | None = None) -> pa.Table:
        """Return the events from a number on, `most` of them if it is given.

        Raises
        ------
        InputError
            They are not kept any more.
        """
        if after < self.first:
            raise InputError(f"after = {after:,}: events of {self.name} are kept from {self.first:,} on")
        end = self.count if most is None else min(self.count, after + most)
        parts, at = deque[Events | Notice](), self.count
        for events in reversed(self.kept):  # as mostly the last ones are asked for
            at -= len(events.keys)
            first, last = max(0, after - at), min(len(events.keys), end - at)
            if first < last:
                parts.appendleft(events.take(np.s_[first:last]) if isinstance(events, Events) else events)
            if at <= after:
                break
        if not parts:
            nothing = np.zeros(0, np.int64)
            never = Stamps(nothing, nothing, nothing)
            return self._rows(Events(never, never, nothing.astype(np.int8), nothing, nothing, nothing == 1), 0)
        return self._table(list(parts), max(at, after))

    def saved(self) -> tuple[Any, ...]:
        """Return the state, for `install`."""
        sizes = np.array([len(one.keys) if isinstance(one, Events) else 0 for one in self.kept], np.int64)
        events = Events.joined(self.events_kept) if sizes.any() else None
        notices = [one for one in self.kept if isinstance(one, Notice)]
        return events, sizes, notices, self.first, self.count, self.closed, self.shows_resolution

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of another topic of the same query."""
        events, sizes, notices, self.first, self.count, self.closed, *shown = saved
        self.shows_resolution = any(shown)
        ends = np.cumsum(sizes).tolist()
        for end, size in zip(ends, sizes.tolist(), strict=True):
            self.kept.append(events.take(slice(end - size, end)) if size else notices.pop(0))

    def answers(self, keys: Numbers, values: Numbers) -> pa.Table:
        """Return answers as a table, ordered by their keys."""
        order = np.lexsort(self._pattern.ranks(self._encoder, keys)[::-1]) if len(keys) else np.zeros(0, np.intp)
        return pa.table(self._pattern.shown(self._encoder, keys[order], values[order]))

    def _rows(self, events: Events, offset: int) -> pa.Table:
        statuses = self._pattern.statuses
        size = len(events.keys)
        columns = {
            "offset": pa.array(np.arange(offset, offset + size)),
            "time": pa.array(moments(events.stamps.times), pa.timestamp("us", "UTC")),
            "status": pa.array([statuses[code] for code in events.codes.tolist()], pa.string()),
        } | self._pattern.shown(self._encoder, events.keys, events.values)
        columns |= {
            "released": pa.array(moments(events.released.times), pa.timestamp("us", "UTC")),
            "initial": pa.array(events.initial), **self._flags(events.stamps.phases),
            "reason": pa.nulls(size, pa.string()),
            "event_id": pa.array(self._ids(events, columns["status"].to_pylist()), pa.string()),
        }  # fmt: skip
        return pa.table(columns)

    def _flags(self, phases: Numbers) -> dict[str, pa.Array]:
        found = {"late": pa.array(phases == LATE)} if self.flags_late else {}
        if self.shows_resolution:
            texts = np.where((phases == INSTANCE) | (phases == BEGINNING), "instance", "record")
            found["resolution"] = pa.array(texts.tolist(), pa.string())
        return found

    def _ids(self, events: Events, statuses: list[str]) -> list[str]:
        """Return an id for each event, which is the same after a replay."""
        keys = self._pattern.labels(self._encoder, events.keys)
        rows = zip(*(column.tolist() for column in events.stamps), statuses, *keys, strict=True)
        return [_id(self.name, *row) for row in rows]

    def _notice(self, notice: Notice, offset: int) -> pa.Table:
        status, reason, stamps = notice
        time, phase, asn = (int(column[0]) for column in stamps)
        return pa.table({
            "offset": pa.array([offset]), "time": pa.array(moments(stamps.times), pa.timestamp("us", "UTC")),
            "status": [status], "released": pa.array(moments(stamps.times), pa.timestamp("us", "UTC")),
            "initial": [False], **self._flags(stamps.phases),
            "reason": [reason], "event_id": [_id(self.name, time, phase, asn, status, reason)],
        })  # fmt: skip


def _alike(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Return tables whose columns have the same types: labels are texts if some of them are."""
    types: dict[str, set[pa.DataType]] = {}
    for field in (field for table in tables for field in table.schema):
        types.setdefault(field.name, set()).add(field.type)
    for table in tables:
        schema = [
            field if len(types[field.name]) == 1 else field.with_type(_as_texts(field.type)) for field in table.schema
        ]
        yield table.cast(pa.schema(schema))


def _as_texts(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.string()) if pa.types.is_list(kind) else pa.string()


_as_json = json.JSONEncoder(separators=(",", ":")).encode


def _id(*parts: Any) -> str:
    return blake2b(_as_json(parts).encode(), digest_size=16).hexdigest()
