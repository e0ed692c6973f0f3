"""Events of jobs for the streams that watch them: each is read from the database once, however many streams wait."""

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
#: Seconds between two polls for events of other servers of the database; one query for all jobs that are watched.
_POLL_S = 5.0
#: Events of a job that are held for streams that are not far behind.
_HELD = 1000
#: Threads that read what all streams share.
_THREADS = 2


class Feed:
    """The newest events of a job, shared by all streams that watch it; older ones each stream reads for itself."""

    def __init__(self, jobs: Jobs, job: str, threads: Executor) -> None:
        self._jobs, self._job, self._threads = jobs, job, threads
        self._events: list[Event] = []
        #: Events with greater numbers than the first are held, up to the last; negative: nothing is known yet.
        self._first = self.last = -1
        self._over, self._stale = False, True
        self._reading = asyncio.Lock()
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Note that there may be new events."""
        self._stale = True
        for one in self._waiting:
            one.set()

    async def after(self, number: int) -> tuple[list[Event], bool]:
        """Events with greater numbers in their order, some at least if there are any; and whether the job is over."""
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
                    # There may be more of them; and a job that is over may have ended after they were read.
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
        """For all streams: not in the turn of the client whose stream happened to ask."""
        return await elsewhere(call, self._job, *given, threads=self._threads)

    async def news(self, number: int) -> None:
        """Wait until there may be events with greater numbers."""
        if self._stale or self.last > number:
            return
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await event.wait()
        finally:
            self._waiting.discard(event)


class Feeds:
    """Feeds of the jobs that are watched. Everything but `heard` is called in the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="feed")
        self._feeds: dict[str, tuple[Feed, list[None]]] = {}
        self._polling: asyncio.Task[None] | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop in which the streams wait."""
        self._loop = loop

    def heard(self, job: str) -> None:
        """Note that something happened to a job; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, job)

    def _wake(self, job: str) -> None:
        if job in self._feeds:
            self._feeds[job][0].wake()

    @contextmanager
    def watching(self, jobs: Jobs, job: str) -> Iterator[Feed]:
        """The feed of a job."""
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
                _log.warning("the database does not answer: %s", error)
                continue
            for job, (feed, _) in self._feeds.items():
                if numbers.get(job) != feed.last:
                    feed.wake()
