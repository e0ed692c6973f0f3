"""Removal of edges that are not renewed, before records reach a live graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.streaming.batches import FIRST, event_time, moments
from goffish.streaming.windows import Duration, microseconds


class LinkExpiry:
    """Add the removal of edges that were not added again for some time to a stream of records.

    Parameters
    ----------
    after : str, float or timedelta
        Event time after the last ``+e`` of an edge at which it is removed.

    Raises
    ------
    InputError
        The duration is not positive, or a record is earlier than the one before.

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

    def __init__(self, after: Duration) -> None:
        self._after = microseconds(after, "after")
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
            yield from self._expired()
            for update in record.get("updates", ()) if record.get("op") == "txn" else (record,):
                self._note(update, record.get("stream"))
            yield record

    def _note(self, update: Any, stream: Any) -> None:
        if not isinstance(update, Mapping) or update.get("op") not in ("+e", "-e"):
            return
        id = update.get("id")
        if id is None:
            kind = (update.get("attrs") or {}).get("type", "")
            id = f"{update.get('src')}>{update.get('dst')}:{kind}"
        if isinstance(id, str | int):
            self._added.pop(id, None)
            if update["op"] == "+e":
                self._added[id] = self._now, stream

    def _expired(self) -> Iterator[dict[str, Any]]:
        while self._added:
            id, (added, stream) = next(iter(self._added.items()))
            if added + self._after > self._now:
                return
            del self._added[id]
            removal = {"t": moments(np.array([added + self._after]))[0], "op": "-e", "id": id}
            yield removal if stream is None else removal | {"stream": stream}
