"""Replays of files: records are read when their event time passes, at a multiple of real time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.gofs.times import Times, event_time, event_times
from goffish.streaming.batches import FIRST, Batch, column_of
from goffish.streaming.sources import BadLine, Position, Read, Reader, Source
from goffish.streaming.topology import Key

#: What positions have after those of the file.
_MORE = 2


@dataclass(frozen=True)
class Replay(Source):
    """Files whose records are read at the times at which they happened, faster or slower by a factor.

    Attributes
    ----------
    source : Source
    time : str or callable
        Column or function of the event time.
    speed : float
        Seconds of event time per second.
    """

    source: Source
    time: Key
    speed: float

    @property
    def rate(self) -> float | None:  # type: ignore[override]
        """Records per second, at most."""
        return self.source.rate

    @property
    def follows(self) -> bool:
        """Whether partitions can be added while the flow runs."""
        return self.source.follows

    def partitions(self) -> list[str]:
        """Return the names of the partitions that exist now."""
        return self.source.partitions()

    def check(self) -> None:
        """Raise an error if the source cannot be read."""
        self.source.check()

    def begin(self, *, resumed: bool) -> Source:
        """Return the source with a clock that all its partitions share."""
        return _Begun(self, self.source.begin(resumed=resumed))

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, by default from its beginning."""
        return self.begin(resumed=False).open(partition, position)


class _Begun(Source):
    """A replay of one run.

    Its clock starts at the earliest first record of all partitions, or where one that is continued was.
    """

    def __init__(self, replay: Replay, source: Source) -> None:
        self._source, self._speed, self._time = source, replay.speed, replay.time
        self._start: tuple[float, int] | None = None  # a real time and the event time then

    @property
    def follows(self) -> bool:
        return self._source.follows

    def partitions(self) -> list[str]:
        return self._source.partitions()

    def open(self, partition: str, position: Position | None) -> Reader:
        of_file, skipped, last = position, 0, FIRST
        if position is not None and len(position) > _MORE:  # and not of a run without speed
            *of_file, skipped, last = position
        reader = self._source.open(partition, of_file)
        if last > FIRST and (self._start is None or last > self._now):
            self._start = time.monotonic(), last
        return _ReplayReader(self, reader, skipped, last)

    @property
    def _now(self) -> int:
        """Event time now."""
        assert self._start is not None
        begun, moment = self._start
        return moment + round((time.monotonic() - begun) * self._speed * 1e6)

    def passed(self, waiting: int) -> int:
        """Return the event time that has passed, for a record that waits; the clock starts with the first one."""
        if self._start is None and waiting > FIRST:
            firsts = [first for one in self.partitions() if (first := self._first(one)) > FIRST]
            self._start = time.monotonic(), min([*firsts, waiting])
        return FIRST if self._start is None else self._now

    def _first(self, partition: str) -> int:
        """Return the event time of the first record of a partition."""
        with closing(self._source.open(partition, None)) as reader:
            found = reader.read(1)
            times = self.times([] if found is None else found.values)
            return int(times[0]) if len(times) else FIRST

    def times(self, values: pa.RecordBatch | list[Any]) -> Times:
        """Return event times; records without one, which the operator reports, do not wait."""
        if isinstance(self._time, str) and isinstance(values, pa.RecordBatch):
            with suppress(Exception):  # of one of the records, which are looked at one by one then
                return event_times(column_of(values, self._time))
        return np.fromiter(map(self._time_of, Batch(values).rows()), np.int64, len(values))

    def _time_of(self, value: Any) -> int:
        try:
            return event_time(value[self._time] if isinstance(self._time, str) else self._time(value))
        except Exception:
            return FIRST


class _ReplayReader(Reader):
    """Reads ahead, and returns records whose time has passed.

    The position is that of the file where the batch begins that was read ahead, the number of its records that were
    returned, and the latest event time until then. The next batch from there may have another size.
    """

    def __init__(self, replay: _Begun, reader: Reader, skipped: int, last: int) -> None:
        self._replay, self._reader = replay, reader
        self._begin, self._skipped, self._last = list(reader.position), skipped, last
        self._values: pa.RecordBatch | list[Any] = []
        self._times: Times = np.empty(0, np.int64)  # of the values, never decreasing
        self._at = 0  # first value that was not returned
        self._bad: Sequence[BadLine] = ()  # returned with the last value, after which no position is before them

    @property
    def position(self) -> Position:  # type: ignore[override]
        """Where the next record begins."""
        return [*self._begin, self._skipped, self._last]

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records whose time has passed, or ``None`` if there are none now."""
        if self._at == len(self._values) and not self._bad and not self._ahead(limit):
            return None
        waiting = int(self._times[self._at]) if self._at < len(self._times) else FIRST
        passed = int(np.searchsorted(self._times, self._replay.passed(waiting), side="right"))
        first, end = self._at, min(passed, self._at + limit)
        if end == first < len(self._values):
            return None
        self._at = end
        self._skipped += end - first
        if end:
            self._last = int(self._times[end - 1])
        bad: Sequence[BadLine] = ()
        if end == len(self._values):
            bad, self._bad = self._bad, ()
            self._begin, self._skipped = list(self._reader.position), max(0, self._skipped - end)
            self.done = self._reader.done
        return Read(self._values[first:end], bad) if end > first or bad else None

    def _ahead(self, limit: int) -> bool:
        """Read the next batch, and return whether there is one."""
        found = self._reader.read(limit)
        if found is None:
            self._begin, self.done = list(self._reader.position), self._reader.done
            return False
        self._values, self._bad = found
        self._times = np.maximum.accumulate(np.maximum(self._replay.times(self._values), self._last))
        self._at = min(self._skipped, len(self._values))
        return True

    def saved(self, position: Position) -> None:
        """Drop what is only kept to read it again."""
        self._reader.saved(position[:-_MORE] if len(position) > _MORE else position)

    def close(self) -> None:
        """Close files."""
        self._reader.close()
