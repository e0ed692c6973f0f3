"""Removal of edges that are not renewed, before records reach a live graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.gofs.times import Duration, event_time, microseconds, moments
from goffish.streaming.batches import FIRST


class LinkExpiry:
    """Add the removal of edges that were not added again for some time to a stream of records.

    Parameters
    ----------
    after : str, float or timedelta
        Event time after the last ``+e`` of an edge at which it is removed.
    types : iterable of str, optional
        Only edges with one of these values of the attribute ``type``. Default: all edges.

    Raises
    ------
    InputError
        `types` is a text, the duration is not positive, or a record is earlier than the one before.

    Notes
    -----
    Calls continue each other: an edge of one call can expire in a later one. Records must be in the order of their
    times; the removals (``-e``) have the ``stream`` of the record that added the edge last, and no ``seq``. Records
    that a live graph does not accept pass unchanged. A ``WINDOW`` hides old edges from one query, and also takes
    records out of order; here they leave the graph, its memory and all queries. Each edge that is kept takes some 300
    bytes, and each record constant time.

    Examples
    --------
    >>> import goffish as gf
    >>> expiry = gf.stream.LinkExpiry("60s")
    >>> calls = [
    ...     {"t": 0, "op": "+e", "src": "ann", "dst": "bob"}, {"t": 40, "op": "+e", "src": "ann", "dst": "bob"},
    ...     {"t": 70, "op": "heartbeat"}, {"t": 120, "op": "heartbeat"},
    ... ]
    >>> [(record["op"], record["t"]) for record in expiry(calls[:3])]
    [('+e', 0), ('+e', 40), ('heartbeat', 70)]
    >>> [(record["op"], f"{record['t']:%M:%S}") for record in expiry(calls[3:]) if record["op"] == "-e"]
    [('-e', '01:40')]
    """

    def __init__(self, after: Duration, *, types: Iterable[str] | None = None) -> None:
        self._after = microseconds(after, "after")
        if isinstance(types, str):
            raise InputError(f"types = {types!r:.60}: accepted are lists of texts")
        self._types = None if types is None else frozenset(types)
        #: Time of the last addition and stream of each edge, in the order of the times.
        self._added: dict[Any, tuple[int, Any]] = {}
        self._now = FIRST

    def __len__(self) -> int:
        """Return how many edges may expire."""
        return len(self._added)

    def __call__(self, records: Iterable[Any]) -> Iterator[Any]:
        """Return the records with the removals between them.

        Parameters
        ----------
        records : iterable of mappings
            As `LiveGraph.feed` takes them.

        Yields
        ------
        mapping
        """
        if isinstance(records, str | Mapping) or hasattr(records, "__arrow_c_stream__"):
            raise InputError(f"records: {type(records).__name__}; accepted are iterables of mappings")
        for number, record in enumerate(records):
            if not isinstance(record, Mapping) or "t" not in record:
                yield record
                continue
            try:
                time = event_time(record["t"])
            except (InputError, ValueError, OverflowError):
                yield record  # a live graph reports the reason
                continue
            if time < self._now:
                raise InputError(
                    f"record {number}: t = {record['t']!s:.60} is earlier than the record before; "
                    "sort records by time, or use WINDOW"
                )
            self._now = time
            yield from self._expired(record)

    def _expired(self, record: Mapping[str, Any]) -> Iterator[Any]:
        """Return removals until the time of a record, and the record: one for each time, as equal ones may be late."""
        updates = record.get("updates", ()) if record.get("op") == "txn" else (record,)
        added = {_edge(one): self._expires(one) for one in updates if isinstance(one, Mapping)}
        added.pop(None, None)
        groups: dict[tuple[int, Any], list[Any]] = {}
        while self._added:
            id, (last, stream) = next(iter(self._added.items()))
            if (due := last + self._after) > self._now:
                break
            del self._added[id]
            if due < self._now or id not in added:
                groups.setdefault((due, stream), []).append({"op": "-e", "id": id})
        stream = record.get("stream") or None
        together = groups.pop((self._now, stream), [])
        for id, is_added in added.items():
            self._added.pop(id, None)
            if is_added:
                self._added[id] = self._now, stream
        for (due, other), removals in groups.items():
            yield _group({"t": moments(np.array([due]))[0]} | ({} if other is None else {"stream": other}), removals)
        if together:
            head = {name: record[name] for name in ("t", "stream", "seq") if name in record}
            if record.get("op") != "txn":  # updates of a transaction do not have the fields of the head
                one = {name: value for name, value in record.items() if name not in head}
                updates = () if record.get("op") == "heartbeat" else (one,)
            record = _group(head, [*together, *updates])
        yield record

    def _expires(self, update: Mapping[str, Any]) -> bool:
        return update.get("op") == "+e" and (self._types is None or _type(update) in self._types)


def _group(head: dict[str, Any], updates: list[Any]) -> dict[str, Any]:
    return head | (updates[0] if len(updates) == 1 else {"op": "txn", "updates": updates})


def _edge(update: Mapping[str, Any]) -> str | int | None:
    """Return the id of an edge that is added or removed."""
    if update.get("op") not in ("+e", "-e"):
        return None
    id = update.get("id")
    if id is None:
        id = f"{update.get('src')}>{update.get('dst')}:{_type(update)}"
    return id if isinstance(id, str | int) else None


def _type(update: Mapping[str, Any]) -> Any:
    return (update.get("attrs") or {}).get("type", "")
