"""Wakes those who watch a job when something happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Hub:
    """Listeners by job. Everything but `heard` is called in the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Event]] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say in which loop the listeners wait."""
        self._loop = loop

    def heard(self, job: str) -> None:
        """Something happened to a job; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, job)

    def _wake(self, job: str) -> None:
        for event in self._listeners.get(job, ()):
            event.set()

    @contextmanager
    def listening(self, job: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something happens to a job."""
        event = asyncio.Event()
        self._listeners.setdefault(job, set()).add(event)
        try:
            yield event
        finally:
            held = self._listeners[job]
            held.discard(event)
            if not held:
                del self._listeners[job]
