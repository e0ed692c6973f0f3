"""Cache of decoded slices: evicts the least recently used, and counts what is read.

Own code rather than `cachetools`: an entry is a read under way that others wait for, and the group in use is
exempt from eviction.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import NamedTuple

from goffish.errors import GoffishError
from goffish.gofs.series.slices import Block


class SliceKey(NamedTuple):
    """A slice: partition, ``vertex.NAME`` or ``edge.NAME``, group of instances, bin of subgraphs."""

    partition: int
    name: str
    group: int
    bin: int


@dataclass(frozen=True)
class SeriesCounters:
    """What a reader did.

    Attributes
    ----------
    slices_read, bytes_read : int
        Slices that were asked for and were not in the cache, and their size in the store. One that a prefetch has
        brought counts when it is first asked for, so that the figures are those of a reader without prefetch.
    queries, hits : int
        How often a slice was asked for, and how often it had been asked for before and was still there.
    stall_seconds : float
        How long callers waited for slices.
    prefetched_slices, prefetched_bytes : int
        What the background thread read.
    """

    slices_read: int = 0
    bytes_read: int = 0
    queries: int = 0
    hits: int = 0
    stall_seconds: float = 0.0
    prefetched_slices: int = 0
    prefetched_bytes: int = 0

    def __sub__(self, before: SeriesCounters) -> SeriesCounters:
        return SeriesCounters(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})


class _Entry:
    """A slice that is loaded or being loaded."""

    __slots__ = ("asked", "block", "nbytes", "task")

    def __init__(self) -> None:
        self.block: Future[Block] = Future()
        self.task: Future[None] | None = None
        self.asked = False
        self.nbytes = 0


class SliceCache:
    """Thread-safe cache of decoded slices; every slice is read by one thread only.

    Parameters
    ----------
    load : callable
        Reads a slice.
    size : callable
        Bytes of a slice in the store.
    most_bytes : int
        Bound on the decoded slices. Those of the group that was last asked for in their partition stay in any case, so
        that a scan in the order of time reads every slice once (docs/specs/time-series.md, section 5.3), and so do
        those beside it that a prefetch has loaded and that were not requested.
    slots : int, optional
        Instead of bytes: how many slices are kept for each partition.
    """

    def __init__(
        self, load: Callable[[SliceKey], Block], size: Callable[[SliceKey], int], most_bytes: int, slots: int | None
    ) -> None:
        self._load, self._size, self._most_bytes, self._slots = load, size, most_bytes, slots
        self._shelves: dict[int, OrderedDict[SliceKey, _Entry]] = {}
        self._group: dict[int, int] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._counts: dict[str, float] = {f.name: f.default for f in fields(SeriesCounters)}  # type: ignore[misc]
        self._held = 0

    def counters(self) -> SeriesCounters:
        """The figures so far."""
        with self._lock:
            return SeriesCounters(**self._counts)  # type: ignore[arg-type]

    def get(self, key: SliceKey) -> Block:
        """A slice; damage raises `StoreError`."""
        with self._lock:
            shelf = self._shelf(key)
            entry = shelf.get(key)
            mine = entry is None
            if entry is None:
                entry = shelf[key] = _Entry()
            elif entry.task is not None and entry.task.cancel():
                entry.task, mine = None, True
            self._group[key.partition] = key.group
            self._counts["queries"] += 1
            if entry.asked:
                self._counts["hits"] += 1
            else:
                entry.asked = True
                self._counts["slices_read"] += 1
                self._counts["bytes_read"] += self._size(key)
            shelf.move_to_end(key)
            if not mine and entry.block.done() and entry.block.exception() is None:
                return entry.block.result()
        begin = time.perf_counter()
        if mine:
            self._fill(key, entry)
        try:
            return entry.block.result()
        finally:
            with self._lock:
                self._counts["stall_seconds"] += time.perf_counter() - begin

    def prefetch(self, keys: Iterable[SliceKey]) -> None:
        """Read slices in the background unless they are there."""
        for key in keys:
            with self._lock:
                shelf = self._shelf(key)
                if key in shelf:
                    continue
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(1, thread_name_prefix="goffish-prefetch")
                entry = shelf[key] = _Entry()
                entry.task = self._pool.submit(self._bring, key, entry)

    def close(self) -> None:
        """End the background thread and forget all slices."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        with self._lock:
            self._shelves.clear()
            self._held = 0

    def _shelf(self, key: SliceKey) -> OrderedDict[SliceKey, _Entry]:
        return self._shelves.setdefault(-1 if self._slots is None else key.partition, OrderedDict())

    def _bring(self, key: SliceKey, entry: _Entry) -> None:
        with self._lock:
            self._counts["prefetched_slices"] += 1
            self._counts["prefetched_bytes"] += self._size(key)
        # A reader of the slice receives the error.
        with suppress(GoffishError):
            self._fill(key, entry)

    def _fill(self, key: SliceKey, entry: _Entry) -> None:
        try:
            block = self._load(key)
        except BaseException as error:
            with self._lock:
                shelf = self._shelf(key)
                if shelf.get(key) is entry:
                    del shelf[key]
            entry.block.set_exception(error)
            raise
        with self._lock:
            shelf = self._shelf(key)
            if shelf.get(key) is entry:
                entry.nbytes = block.nbytes
                self._held += block.nbytes
            entry.block.set_result(block)
            self._make_room(shelf)

    def _make_room(self, shelf: OrderedDict[SliceKey, _Entry]) -> None:
        if self._slots is not None:
            while len(shelf) > self._slots:
                self._held -= shelf.popitem(last=False)[1].nbytes
            return
        if self._held <= self._most_bytes:
            return
        for key, entry in list(shelf.items()):
            ahead = key.group - self._group.get(key.partition, -2)
            needed = ahead == 0 or (not entry.asked and abs(ahead) == 1)
            if not needed and entry.block.done():
                self._held -= shelf.pop(key).nbytes
                if self._held <= self._most_bytes:
                    return
