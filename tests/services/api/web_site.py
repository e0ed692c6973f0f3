"""The dashboard's pages over a database, and a browser without a screen to look at them."""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx

from goffish.services.api.calls import Shared
from goffish.services.api.clients import Clients
from goffish.services.api.feeds import Feeds
from goffish.services.api.flow_service import FlowService
from goffish.services.api.inputs import Inputs
from goffish.services.api.job_service import JobService
from goffish.services.api.limits import Limits
from goffish.services.api.telemetry import Metrics
from goffish.services.runners.limits import UNLIMITED
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import Job, State
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
from goffish.services.web.pages import Pages

BASE = "http://127.0.0.1:7078"
HOSTILE = "<script>alert('x')</script>\"'&"


class Watch:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.time = time.time() - 10_000.0

    def now(self) -> float:
        return self.time


class Web:
    """A browser without a screen: keeps cookies, follows redirects."""

    def __init__(self, app: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE)
        self.cookies = self._client.cookies

    def get(self, address: str, *, follow_redirects: bool = True, **given: Any) -> httpx.Response:
        asked = self._client.get(address, follow_redirects=follow_redirects, **given)
        return self._loop.run_until_complete(asked)

    def post(self, address: str, *, follow_redirects: bool = True, **given: Any) -> httpx.Response:
        asked = self._client.post(address, follow_redirects=follow_redirects, **given)
        return self._loop.run_until_complete(asked)


@dataclass
class Site:
    """The pages over a database, without a server around them."""

    jobs: Jobs
    home: Path
    watch: Watch
    pages: Pages

    def browser(self, name: str | None = None) -> Web:
        """Somebody's, logged in."""
        made = Web(self.pages.app())
        if name is not None:
            assert made.post("/login", data={"token": f"t-{name}", "proof": proof(made.get("/login").text)}).is_success
        return made

    def job(self, client: str = "ada", key: str | None = None, **given: Any) -> Job:
        graph = {"algorithm": "pagerank", "input_uri": "g.txt"} | given.pop("graph", {})
        return self.jobs.submit(JobSpec.model_validate({"graph": graph} | given), client, key)[0]

    def run(self, job: Job, *states: State) -> Job:
        [job] = self.jobs.claim()
        for state in states:
            job = self.jobs.move(job, state)
        return job


def make_site(home: Path, clients: Clients) -> Site:
    watch = Watch()
    engine = open_database(f"sqlite:///{home / 'jobs.sqlite'}")
    jobs = PatientJobs(engine, "here", watch)  # type: ignore[arg-type]
    supervisor, metrics = Supervisor(jobs, home / "jobs", {}), Metrics()
    inputs = Inputs((), home / "up", 1 << 20, 1 << 20)
    metrics.watch(lambda: {str(state): count for state, count in jobs.counts().items()})
    service = JobService(jobs, supervisor, inputs, Feeds(), ("local",), 1000)
    flows = FlowService(jobs, supervisor, inputs, None, UNLIMITED)
    pages = Pages(jobs, supervisor, service, flows, clients, Limits(1e6, 1e6, 100), metrics, Shared(jobs.check))
    return Site(jobs, home, watch, pages)


def proof(page: str) -> str:
    return re.findall(r'name="proof" value="([0-9a-f]{64})"', page)[0]


@dataclass
class Parsed(HTMLParser):
    """A page as a browser would read it: tags with their attributes, and the text between them."""

    page: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def charts(self) -> dict[str, Any]:
        """The rows that charts are drawn from; a browser ends a script at the first ``</``."""
        given: dict[str, Any] = json.loads(self.page.split('id="charts" data-live>')[1].split("</")[0])
        return given

    def having(self, tag: str, kind: str) -> list[dict[str, str]]:
        return [given for name, given in self.tags if name == tag and kind in given.get("class", "").split()]


def words(page: str) -> str:
    """The text of a page, with a space wherever something begins or ends."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def ids(page: str) -> list[str]:
    return re.findall(r'href="/jobs/([0-9a-f]{20})"', page)


def cloud_job(site: Site, name: str = "m1.large") -> Job:
    """Started queued for 5 s; its machines: 10-40 s lost, 50-70 s released, 80 s until its end at 105 s."""
    graph = {"runner": "cloud", "algorithm": "louvain"}
    job = site.job(graph=graph, budget=2.0, deadline_s=120.0, labels={"team": "x"})
    site.watch.time += 5
    job = site.run(job, State.PROVISIONING)
    site.jobs.note(job, "plan", "rtba", {"expected_cost": 0.8}, expected_cost=0.8, currency="USD")

    def machine(after: float, number: int, kind: str = "machine", **more: Any) -> None:
        nonlocal job
        site.watch.time = job.started + after if job.started else 0.0
        details = {"machine": number, "class": name, "market": "spot", "cloud_begun_s": 0.0} | more
        job = site.jobs.note(job, kind, "interrupted" if kind != "machine" else "", details)

    def move(state: State, text: str = "", **columns: Any) -> None:
        nonlocal job
        job = site.jobs.move(job, state, text, **columns)

    machine(10, 0, cloud_ended_s=None, price=0.25, bid=0.375, cost=0.0)
    move(State.RUNNING)
    machine(20, 0, "checkpoint")
    machine(30, 0, "price", price=0.3, bid=0.375)
    machine(40, 0, "lost", cloud_ended_s=1800.0, price=0.4, bid=0.375, cost=0.125)
    move(State.MIGRATING)
    move(State.PROVISIONING)
    machine(50, 1, market="on-demand", cloud_ended_s=None, price=0.5, cost=0.125)
    site.watch.time += 10
    job = site.jobs.note(job, "cost", "", {"cost": 0.5}, cost=0.5)
    machine(70, 1, market="on-demand", cloud_ended_s=900.0, price=0.5, cost=0.625)
    move(State.MIGRATING)
    move(State.CHECKPOINTED)
    machine(80, 2, cloud_ended_s=None, price=0.3, bid=0.375, cost=0.625)
    move(State.RUNNING)
    site.watch.time += 20
    machine(100, 2, cloud_ended_s=600.0, price=0.3, bid=0.375, cost=0.75)
    move(State.DONE, cost=0.75, progress=9)
    return job
