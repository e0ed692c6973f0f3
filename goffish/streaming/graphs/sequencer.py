"""The order in which records are applied: by event time, and independent of the order in which they arrive."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs import kernels
from goffish.streaming.graphs.kernels import DUPLICATE, KEPT, LATE, TARDY
from goffish.streaming.graphs.records import Numbers, Records

_NOTHING = np.zeros(0, np.intp)


class _Seen:
    """Sequence numbers of a stream that have been seen."""

    def __init__(self) -> None:
        self.high = -1
        self.ring: NDArray[np.uint64] | None = None

    def mark(self, seqs: Numbers, window: int) -> NDArray[np.int8]:
        """Return for each number whether it was seen before."""
        states = np.zeros(len(seqs), np.int8)
        if self.ring is None and np.array_equal(seqs, np.arange(self.high + 1, self.high + 1 + len(seqs))):
            self.high += len(seqs)
            return states
        if self.ring is None:
            self.ring = np.zeros(window // 64, np.uint64)
        self.high = kernels.first_seen(seqs, self.ring, self.high, window, states)
        return states


class Ready(NamedTuple):
    """Records in the order in which they are applied.

    Attributes
    ----------
    records : Records
        Those that are late have the time up to which others were applied when they arrived.
    moments : array, optional
        Event times; ``None`` if late records are not applied.
    late : bool array, optional
    """

    records: Records
    moments: Numbers | None = None
    late: NDArray[np.bool_] | None = None

    def take(self, chosen: NDArray[np.intp]) -> Ready:
        """Return some of them."""
        records = self.records.take(chosen)
        if self.moments is None or self.late is None:
            return Ready(records)
        return Ready(records, self.moments[chosen], self.late[chosen])


class Released(NamedTuple):
    """Records that may be applied, in order, and what was new but is not kept."""

    ready: Ready
    duplicates: NDArray[np.intp]
    late: NDArray[np.intp]


class Sequencer:
    """Holds records back until no earlier ones are expected.

    Parameters
    ----------
    lateness : int
        Microseconds by which records may be earlier than others of their stream.
    idle_s : float
        Seconds after which a stream that is silent is not waited for.
    window : int
        How many sequence numbers above those that are complete are remembered, a multiple of 64.
    longest : int
        Microseconds by which late records may be earlier than the watermark to be applied; -1 if none are.

    Attributes
    ----------
    watermark : int
        Time up to which records are released.
    """

    def __init__(self, lateness: int, idle_s: float, window: int, longest: int = -1) -> None:
        self.watermark = FIRST
        self._longest = longest
        self._lateness, self._idle_s, self._window = lateness, idle_s, window
        self._pending: Records | None = None
        self._latest = np.zeros(0, np.int64)
        self._heard = np.zeros(0)
        self._seen: dict[int, _Seen] = {}

    def __len__(self) -> int:
        return 0 if self._pending is None else len(self._pending)

    def push(self, records: Records, streams: list[str], now: float) -> Released:
        """Take records in the order of their arrival.

        Parameters
        ----------
        records : Records
        streams : list of str
            Names of all streams.
        now : float
            Seconds of any clock.
        """
        new = len(streams) - len(self._latest)
        if new:
            self._latest = np.append(self._latest, np.full(new, FIRST))
            self._heard = np.append(self._heard, np.full(new, -np.inf))
        states = self._duplicates(records)
        reached = np.empty(len(records) if self._longest >= 0 else 0, np.int64)
        self.watermark, whole = kernels.watermarks(
            records.times, records.streams, states, self._latest, self._heard, (now, self._idle_s),
            (self._lateness, self._longest), self.watermark, reached,
        )  # fmt: skip
        kept = records if whole else records.take(np.flatnonzero(states == KEPT))
        waiting = kept if self._pending is None else self._pending + kept
        duplicates, late, tardy = (
            _NOTHING if whole else np.flatnonzero(states == state) for state in (DUPLICATE, LATE, TARDY)
        )
        ready = self._release(waiting, streams)
        if self._longest >= 0:
            ready = _with_late(ready, records.take(tardy), reached[tardy])
        return Released(ready, duplicates, late)

    def end(self, streams: list[str]) -> Ready:
        """Return everything that waits."""
        self.watermark = LAST
        ready = self._release(self.pending, streams)
        return ready if self._longest < 0 else _with_late(ready, Records.empty(), np.zeros(0, np.int64))

    def saved(self) -> tuple[Any, ...]:
        """Return the state, for `install`."""
        seen = {stream: (one.high, one.ring) for stream, one in self._seen.items()}
        return self.watermark, self._pending, self._latest, self._heard, seen

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of another sequencer."""
        self.watermark, self._pending, self._latest, self._heard, seen = saved
        for stream, (high, ring) in seen.items():
            self._seen[stream] = _Seen()
            self._seen[stream].high, self._seen[stream].ring = high, ring

    @property
    def pending(self) -> Records:
        """Records that wait."""
        return Records.empty() if self._pending is None else self._pending

    def _duplicates(self, records: Records) -> NDArray[np.int8]:
        states = np.zeros(len(records), np.int8)
        if records.seqs.max(initial=-1) < 0:
            return states
        numbered = records.seqs >= 0
        for stream in np.unique(records.streams[numbered]).tolist():
            mine = numbered & (records.streams == stream)
            states[mine] = self._seen.setdefault(stream, _Seen()).mark(records.seqs[mine], self._window)
        return states

    def _release(self, waiting: Records, streams: list[str]) -> Ready:
        """Keep what must wait, and return the rest in order."""
        self._pending, ready = None, waiting
        if waiting.times.max(initial=FIRST) > self.watermark:
            waits = waiting.times > self.watermark
            self._pending, ready = (waiting.take(np.flatnonzero(chosen)) for chosen in (waits, ~waits))
        times = ready.times
        if len(times) < 2 or (len(streams) == 1 and np.all(times[1:] > times[:-1])):
            return Ready(ready)
        return Ready(ready.take(np.lexsort((ready.seqs, ranks_of(streams)[ready.streams], times))))


def _with_late(ready: Ready, late: Records, reached: Numbers) -> Ready:
    """Insert late records after those that were applied when they arrived."""
    records, is_late = ready.records, np.repeat([False, True], [len(ready.records), len(late)])
    if not len(late):
        return Ready(records, records.times, is_late)
    joined, times = records + late, np.concatenate([records.times, reached])
    order = np.lexsort((is_late, times))  # it is stable
    records = Records(**(joined._asdict() | {"times": times}))  # `_replace` needs the number of fields as length
    return Ready(records, joined.times, is_late).take(order)


def ranks_of(streams: list[str]) -> Numbers:
    """Return numbers that order streams by their names."""
    rank = np.empty(len(streams), np.int64)
    rank[np.array(sorted(range(len(streams)), key=streams.__getitem__), np.intp)] = np.arange(len(streams))
    return rank
