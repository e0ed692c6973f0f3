"""The last event of a job that ends just when somebody looks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goffish.services.api import feeds as feeds_module
from goffish.services.api.feeds import Feeds
from goffish.services.api.job_service import JobService
from goffish.services.store.database import open_database
from goffish.services.store.records import Event, State
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
from goffish.v1 import jobs_pb2


class Ending:
    """A job that ends between the moment when its events were read and whatever is asked next."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds, self._over = feeds, False

    def get(self, job: str) -> Any:
        return SimpleNamespace(over=self._over, events=int(self._over))

    news = Jobs.news

    def events(self, job: str, after: int) -> list[Event]:
        if self._over:
            return [Event(1, 0.0, "state", State.FAILED, "it failed", None)] if after < 1 else []
        self._over = True
        self._feeds.heard(job)
        return []


def test_the_last_event_is_told() -> None:
    """Breaks when a watcher is told that all is over without the event that says how it ended."""

    async def watch() -> list[str]:
        feeds = Feeds()
        feeds.attach(asyncio.get_running_loop())
        service = JobService(Ending(feeds), None, None, feeds, (), 1)  # type: ignore[arg-type]
        return [answer.event.text async for answer in service.Watch(jobs_pb2.WatchRequest(id="x"), None)]

    assert asyncio.run(asyncio.wait_for(watch(), 20)) == ["it failed"]


class Counted(Jobs):
    """Jobs that count how often events are read."""

    reads = 0

    def events(self, job: str, after: int = 0, limit: int = 1000, every: int = 1) -> list[Event]:
        self.reads += 1
        return super().events(job, after, limit, every)


def test_many_streams_read_events_once(tmp_path: Path) -> None:
    """Breaks when every stream reads the database for itself, or one of many misses an event or gets one twice."""
    streams, notes = 300, 40
    feeds = Feeds()
    jobs = Counted(open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), "here", heard=feeds.heard)
    made, _ = jobs.submit(JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g"}}), "ann")
    service = JobService(jobs, None, None, feeds, (), 1)  # type: ignore[arg-type]

    async def watch(after: int) -> list[int]:
        asked = jobs_pb2.WatchRequest(id=made.id, after=after)
        return [answer.event.number async for answer in service.Watch(asked, None)]

    async def ask() -> None:
        feeds.attach(asyncio.get_running_loop())
        watching = [asyncio.create_task(watch(at % 3)) for at in range(streams)]
        late = asyncio.create_task(watch(10**9))
        await asyncio.sleep(0.5)
        [job] = jobs.claim()
        for state in (State.PROVISIONING, State.RUNNING):
            job = jobs.move(job, state)
        for at in range(notes):
            job = await asyncio.to_thread(jobs.note, job, "progress", str(at))
        job = jobs.move(job, State.DONE)
        found = await asyncio.gather(*watching)
        for at, numbers in enumerate(found):
            assert numbers == list(range(at % 3 + 1, job.events + 1))
        assert await late == []
        # Each stream reads when it begins, all of them together when something happens.
        assert jobs.reads <= 2 * (streams + notes + 5) < streams * notes / 10

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_events_of_other_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when events that another server writes are not noticed."""
    monkeypatch.setattr(feeds_module, "_POLL_S", 0.05)
    engine, feeds = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), Feeds()
    other, here = Jobs(engine, "other"), Jobs(engine, "here", heard=feeds.heard)
    made, _ = other.submit(JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g"}}), "ann")
    service = JobService(here, None, None, feeds, (), 1)  # type: ignore[arg-type]

    async def ask() -> list[str]:
        feeds.attach(asyncio.get_running_loop())

        async def watch() -> list[str]:
            return [one.event.kind async for one in service.Watch(jobs_pb2.WatchRequest(id=made.id), None)]

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.3)
        other.cancel(made.id, "ann")
        return await watching

    assert asyncio.run(asyncio.wait_for(ask(), 20)) == ["submitted", "state"]
