"""Events of watched jobs, read from the database once for all streams."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from goffish.services.api.calls import Answer, elsewhere
from goffish.services.store.database import AWAY
from goffish.services.store.records import Event
from goffish.services.store.store import Jobs

_log = logging.getLogger(__name__)
#: Polling interval for events of other servers, in seconds; one query covers all watched jobs.
_POLL_S = 5.0
#: Number of recent events kept in memory per job.
_HELD = 1000
#: Threads that read shared events.
_THREADS = 2


class Feed:
    """Recent events of a job, shared by all its streams; each stream reads older events itself."""

    def __init__(self, jobs: Jobs, job: str, threads: Executor) -> None:
        self._jobs, self._job, self._threads = jobs, job, threads
        self._events: list[Event] = []
        #: Events in (first, last] are in memory; negative: not loaded.
        self._first = self.last = -1
        self._over, self._stale = False, True
        self._reading = asyncio.Lock()
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Signal that new events may exist."""
        self._stale = True
        for one in self._waiting:
            one.set()

    async def after(self, number: int) -> tuple[list[Event], bool]:
        """Return events after `number`, at least one if any exist, and whether the job has ended."""
        async with self._reading:
            if self._stale:
                self._stale = False
                try:
                    if self.last < 0:
                        self._first = self.last = (await self._read(self._jobs.get)).events
                    found, self._over = await self._read(self._jobs.news, self.last)
                except BaseException:
                    self._stale = True
                    raise
                if found:
                    # More events may exist, and the job may have ended after they were read.
                    self._stale = True
                    self.last = found[-1].number
                    self._events += found
                    if len(self._events) > _HELD:
                        self._first = self._events[-_HELD - 1].number
                        self._events = self._events[-_HELD:]
        if number < self._first:
            return await elsewhere(self._jobs.news, self._job, number)
        return self._events[bisect_right(self._events, number, key=attrgetter("number")) :], self._over

    async def _read(self, call: Callable[..., Answer], *given: Any) -> Answer:
        """Read for all streams, outside the fair scheduling of clients."""
        return await elsewhere(call, self._job, *given, threads=self._threads)

    async def news(self, number: int) -> None:
        """Wait until events after `number` may exist."""
        if self._stale or self.last > number:
            return
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await event.wait()
        finally:
            self._waiting.discard(event)


class Feeds:
    """Feeds of all watched jobs. Call everything except `heard` from the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="feed")
        self._feeds: dict[str, tuple[Feed, list[None]]] = {}
        self._polling: asyncio.Task[None] | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop of the streams."""
        self._loop = loop

    def heard(self, job: str) -> None:
        """Signal a new event of a job, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, job)

    def _wake(self, job: str) -> None:
        if job in self._feeds:
            self._feeds[job][0].wake()

    @contextmanager
    def watching(self, jobs: Jobs, job: str) -> Iterator[Feed]:
        """Provide the feed of a job for one stream."""
        feed, streams = self._feeds.setdefault(job, (Feed(jobs, job, self._threads), []))
        streams.append(None)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(jobs))
        try:
            yield feed
        finally:
            streams.pop()
            if not streams:
                del self._feeds[job]
            if not self._feeds and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def _poll(self, jobs: Jobs) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                numbers = await elsewhere(jobs.last_events, list(self._feeds), threads=self._threads)
            except AWAY as error:
                _log.warning("database unavailable: %s", error)
                continue
            for job, (feed, _) in self._feeds.items():
                if numbers.get(job) != feed.last:
                    feed.wake()
