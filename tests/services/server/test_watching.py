"""The last event of a job that ends just when somebody looks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from goffish.services.jobs.lifecycle import State
from goffish.services.jobs.records import Event
from goffish.services.server.hub import Hub
from goffish.services.server.job_service import JobService
from goffish.v1 import jobs_pb2


class Ending:
    """A job that ends between the moment when its events were read and whatever is asked next."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._over = hub, False

    def get(self, job: str) -> Any:
        return SimpleNamespace(over=self._over)

    def events(self, job: str, after: int) -> list[Event]:
        if self._over:
            return [Event(1, 0.0, "state", State.FAILED, "it failed", None)] if after < 1 else []
        self._over = True
        self._hub.heard(job)
        return []


def test_the_last_event_is_told() -> None:
    """Breaks when a watcher is told that all is over without the event that says how it ended."""

    async def watch() -> list[str]:
        hub = Hub()
        hub.attach(asyncio.get_running_loop())
        service = JobService(Ending(hub), None, None, hub, (), 1)  # type: ignore[arg-type]
        return [answer.event.text async for answer in service.Watch(jobs_pb2.WatchRequest(id="x"), None)]

    assert asyncio.run(asyncio.wait_for(watch(), 20)) == ["it failed"]
