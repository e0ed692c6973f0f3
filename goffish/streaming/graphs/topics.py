"""What queries publish."""

from __future__ import annotations

import json
from collections import deque
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.streaming.batches import moments
from goffish.streaming.graphs.kernels import sort_by_key
from goffish.streaming.graphs.patterns import Found, Numbers, Pattern
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import arrow_column
from goffish.streaming.key_table import KeyTable


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
    opens : bool array
        Whether an answer is new, or none any more.
    keys, values : arrays
    initial : bool array
        Whether it was there when the query began.
    """

    stamps: Stamps
    released: Stamps
    opens: NDArray[np.bool_]
    keys: Numbers
    values: Numbers
    initial: NDArray[np.bool_]

    def take(self, chosen: Any) -> Events:
        """Return some of them."""
        stamps, released = (Stamps._make(column[chosen] for column in part) for part in self[:2])
        return Events(stamps, released, *(column[chosen] for column in self[2:]))


class Topic:
    """Events of a query.

    Parameters
    ----------
    name : str
    pattern : Pattern
    encoder : Encoder
    most : int
        Events that are kept.
    """

    def __init__(self, name: str, pattern: Pattern, encoder: Encoder, most: int) -> None:
        self.name, self._pattern, self._encoder, self._most = name, pattern, encoder, most
        #: Events, the last ones of all.
        self.kept: deque[Events] = deque()
        self.first = self.count = 0
        #: Why and when the query ended.
        self.closed: tuple[str, Stamps] | None = None

    @property
    def _table(self) -> KeyTable:
        return self._encoder.edges if self._pattern.of_edges else self._encoder.vertices

    def events_of(self, found: Found, stamps: Stamps, *, initial: bool) -> Events:
        """Return events in order: by observation, first what is none any more, then by key.

        Parameters
        ----------
        found : Found
        stamps : Stamps
            By observation.
        initial : bool
            Whether these are the first answers.
        """
        order = np.lexsort((*self._ranks(found.keys)[::-1], found.opening, found.observations))
        found = Found._make(column[order] for column in found)
        happened = Stamps._make(column[found.observations] for column in stamps)
        first = np.full(len(found.keys), initial)
        return Events(happened, happened, found.opening, found.keys, found.values, first)

    def publish(self, events: Events) -> pa.Table | None:
        """Publish events; return them as a table."""
        if not len(events.keys):
            return None
        self.kept.append(events)
        self.count += len(events.keys)
        while self.count - self.first - len(self.kept[0].keys) >= self._most:
            self.first += len(self.kept.popleft().keys)
        return self._rows(events, self.count - len(events.keys))

    def close(self, reason: str, stamps: Stamps) -> pa.Table:
        """Publish that the query has ended."""
        self.closed = reason, stamps
        self.count += 1
        return self._closing(reason, stamps)

    def events(self, after: int) -> pa.Table:
        """Return the events from a number on.

        Raises
        ------
        InputError
            They are not kept any more.
        """
        if after < self.first:
            raise InputError(f"after = {after:,}: events of {self.name} are kept from {self.first:,} on")
        tables, at = [], self.first
        for events in self.kept:
            if at + len(events.keys) > after:
                tables.append(self._rows(events, at).slice(max(0, after - at)))
            at += len(events.keys)
        if self.closed is not None:
            tables.append(self._closing(*self.closed))
        nothing = np.zeros(0, np.int64)
        never = Stamps(nothing, nothing, nothing)
        empty = Events(never, never, nothing.astype(np.bool_), nothing, nothing, nothing.astype(np.bool_))
        tables = tables or [self._rows(empty, 0)]
        for name in self._pattern.columns:  # integers and texts
            types = {table.schema.field(name).type for table in tables if name in table.column_names}
            if len(types) > 1:
                tables = [_with_texts(table, name) for table in tables]
        return pa.concat_tables(tables, promote_options="default")

    def answers(self, keys: Numbers, values: Numbers) -> pa.Table:
        """Return answers as a table, ordered by their keys."""
        order = np.lexsort(self._ranks(keys)[::-1]) if len(keys) else np.zeros(0, np.intp)
        return pa.table(self._columns(keys[order], values[order]))

    def _columns(self, keys: Numbers, values: Numbers) -> dict[str, Any]:
        pattern = self._pattern
        parts = pattern.parts(keys)
        columns: dict[str, Any] = {
            name: arrow_column(self._table.keys(part)) for name, part in zip(pattern.columns, parts, strict=True)
        }
        if pattern.value is not None:
            columns[pattern.value] = pa.array(values)
        return columns

    def _rows(self, events: Events, offset: int) -> pa.Table:
        closing, opening = self._pattern.statuses[::-1]
        size = len(events.keys)
        columns = {
            "offset": pa.array(np.arange(offset, offset + size)),
            "time": pa.array(moments(events.stamps.times), pa.timestamp("us", "UTC")),
            "status": pa.array(np.where(events.opens, opening, closing).tolist(), pa.string()),
        } | self._columns(events.keys, events.values)
        columns |= {
            "released": pa.array(moments(events.released.times), pa.timestamp("us", "UTC")),
            "initial": pa.array(events.initial), "reason": pa.nulls(size, pa.string()),
            "event_id": pa.array(self._ids(events, columns["status"].to_pylist()), pa.string()),
        }  # fmt: skip
        return pa.table(columns)

    def _ids(self, events: Events, statuses: list[str]) -> list[str]:
        """Return an id for each event, which is the same after a replay."""
        keys = [self._table.keys(part) for part in self._pattern.parts(events.keys)]
        rows = zip(*(column.tolist() for column in events.stamps), statuses, *map(_plain, keys), strict=True)
        return [_id(self.name, *row) for row in rows]

    def _closing(self, reason: str, stamps: Stamps) -> pa.Table:
        time, phase, asn = (int(column[0]) for column in stamps)
        return pa.table({
            "offset": pa.array([self.count - 1]), "time": pa.array(moments(stamps.times), pa.timestamp("us", "UTC")),
            "status": ["CLOSED"], "released": pa.array(moments(stamps.times), pa.timestamp("us", "UTC")),
            "initial": [False], "reason": [reason],
            "event_id": [_id(self.name, time, phase, asn, "CLOSED", reason)],
        })  # fmt: skip

    def _ranks(self, keys: Numbers) -> list[Numbers]:
        """Return numbers that order keys as their labels do."""
        found = []
        for part in self._pattern.parts(keys):
            slots, places = np.unique(part, return_inverse=True)
            ordered = slots.copy()
            sort_by_key(self._table.columns, ordered)
            ranks = np.empty(len(slots), np.int64)
            ranks[np.searchsorted(slots, ordered)] = np.arange(len(slots))
            found.append(ranks[places])
        return found


def _with_texts(table: pa.Table, name: str) -> pa.Table:
    at = table.column_names.index(name) if name in table.column_names else -1
    return table if at < 0 else table.set_column(at, name, table[name].cast(pa.string()))


def _plain(labels: pa.Array | list[Any]) -> list[Any]:
    return labels if isinstance(labels, list) else labels.to_pylist()


def _id(*parts: Any) -> str:
    return blake2b(json.dumps(parts, separators=(",", ":")).encode(), digest_size=16).hexdigest()
