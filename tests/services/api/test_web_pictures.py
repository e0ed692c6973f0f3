"""Timelines of jobs: what is drawn is what happened, whatever the events tell."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from goffish.services.api.clients import Clients
from goffish.services.store.records import EVENT_KINDS, Event, Job, State
from goffish.services.store.spec import JobSpec
from goffish.services.store.tables import EventRow, JobRow
from goffish.services.web.charts import gantt, time_axis
from goffish.services.web.reading import Reading
from goffish.services.web.timeline import Bar, Timeline, timeline_of, use_of
from tests.services.api.web_site import HOSTILE, Parsed, Site, cloud_job, make_site, words


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """That everybody may see."""
    return make_site(tmp_path, Clients())


def test_a_job_is_drawn_as_it_was(site: Site) -> None:
    job = cloud_job(site)
    page = Parsed(site.browser().get(f"/jobs/{job.id}").text)
    machines, prices, cost = page.charts["charts"]
    assert page.charts["axis"]["domain"] == [0.0, pytest.approx(100)] and page.charts["axis"]["gaps"] == []
    drawn = {kind: [(b["begin"], b["end"]) for b in machines["bars"] if b["colour"] == kind]
             for kind in ("spot", "on-demand")}  # fmt: skip
    assert drawn["spot"] == [pytest.approx((10, 40)), pytest.approx((80, 100))]
    assert drawn["on-demand"] == [pytest.approx((50, 70))]
    assert [(bar["end"], bar["row"]) for bar in machines["bars"] if bar["lost"]] == [(pytest.approx(40), 2)]
    assert [(one["at"], one["row"]) for one in machines["checkpoints"]] == [(pytest.approx(20), 2)]
    assert machines["lanes"] == ["state", "m1.large · on demand", "m1.large · spot"]
    assert [stay["colour"] for stay in machines["stays"]] == [
        "planned", "provisioning", "running", "migrating", "provisioning", "migrating", "checkpointed", "running"
    ]  # fmt: skip
    assert [prices["title"], cost["title"]] == ["Prices per hour (bids dashed)", "Cost"]
    assert [level["text"] for level in prices["levels"]] == ["bid for m1.large: 0.375 USD"] * 2
    told = " ".join([*page.text.split(), *" ".join(bar["text"] for bar in machines["bars"]).split()])
    for part in ("m1.large · spot price 0.25 per hour, bid 0.375 from 10 s for 30 s 30 min simulated lost: interrupted",
                 "0.75 USD of a budget of 2 USD 0.8 USD expected", "superstep 9", "queued for 5 s",
                 "15 s left", "budget: 2 USD"):  # fmt: skip
        assert part in told, part
    timeline = timeline_of(job, site.jobs.events(job.id), site.watch.now())
    assert timeline is not None and timeline.end == pytest.approx(100)
    used = {use.market: (use.machines, use.lost, round(use.seconds), use.cloud_s) for use in use_of(timeline)}
    assert used == {"spot": (2, 1, 50, 2400.0), "on-demand": (1, 0, 20, 900.0)}
    # The price rose above the bid before the machine was lost.
    spot = [(10, 0.25), (30, 0.3), (40, 0.4), (80, 0.3), (100, 0.3)]
    assert timeline.prices["m1.large", "spot"] == [pytest.approx(point) for point in spot]
    assert [bar.cost for bar in timeline.bars] == [0.125, 0.5, 0.125]
    for row in ("m1.large · spot: 2 50 s 40 min 0.25 USD 1 lost , 0.50 on average",
                "attempt 1, machine 0 10 s 30 s 30 min 0.25 USD, last 0.4 0.375 USD 0.125 USD lost: interrupted",
                "attempt 1, machine 1 50 s 20 s 15 min 0.5 USD 0.5 USD released"):  # fmt: skip
        assert row in words(page.page), row
    # The tables have the same figures as the charts.
    assert "m1.large · spot 40 s 0.4 USD" in words(page.page) and "cost 1 min 0.5 USD" in words(page.page)
    assert [one for tag, one in page.tags if one.get("id") == "use-remark"]


def test_long_times_without_machines_are_shortened() -> None:
    bars = [Bar("a", "k", "spot", begin, begin + 60.0) for begin in (36_000.0, 54_000.0)]
    axis = time_axis(Timeline(end=54_060.0, now=54_060.0, bars=bars))
    assert axis["domain"] == [0.0, 36_000.0, 36_060.0, 54_000.0, 54_060.0]
    # 60 s of work, twice; each time without any takes as much as a tenth of both.
    assert axis["range"] == pytest.approx([0.0, 12 / 144, 72 / 144, 84 / 144, 1.0])
    assert [(one["begin"], one["end"]) for one in axis["gaps"]] == [(0.0, 36_000.0), (36_060.0, 54_000.0)]
    assert next(one["text"] for one in axis["ticks"]) == "10 h"
    busy = time_axis(Timeline(end=100.0, now=100.0, bars=[Bar("a", "k", "spot", 0.0, 60.0)]))
    assert busy["domain"] == [0.0, 100.0] and busy["gaps"] == []


def test_a_lost_process_and_a_dataflow_are_drawn(site: Site) -> None:
    job = site.run(site.job(), State.PROVISIONING, State.RUNNING)
    site.watch.time += 30
    site.jobs.move(job, State.QUEUED, "worker lost (SIGKILL)")
    job = site.run(job, State.PROVISIONING, State.RUNNING)
    site.watch.time += 10
    timeline = timeline_of(job, site.jobs.events(job.id), site.watch.now())
    assert timeline is not None
    bars = [(bar.name, bar.begin, bar.end, bar.lost) for bar in timeline.bars]
    assert bars == [("attempt 1", 0.0, pytest.approx(30), "worker lost (SIGKILL)"),
                    ("attempt 2", pytest.approx(30), None, "")]  # fmt: skip
    flow, _ = site.jobs.submit(JobSpec.model_validate({"dataflow": {"dataflow": "paper"}}), "ada")
    flow = site.run(flow, State.PROVISIONING, State.RUNNING)
    small = {"class": "small", "market": "spot", "price": 0.25, "bid": 0.5}
    large = {"machine": 1, "class": "large", "market": "on-demand", "price": 1.5, "bid": None}
    for interval, started, stopped, lost, cost in (
        (0, [small | {"machine": 0}, large], [], [], 1.0),
        (6, [small | {"machine": 2}], [{"machine": 0, "cost": 0.125}], [], 4.0),
        (8, [], [], [{"machine": 2, "end_s": 2500.0, "price": 0.75, "cost": 0.0625}], 5.0),
    ):
        details = {"interval": interval, "start_s": interval * 300.0, "started": started, "stopped": stopped,
                   "lost": lost, "throughput": 0.5, "machines": 2, "cost": cost}  # fmt: skip
        flow = site.jobs.note(flow, "plan", "", details, progress=interval + 1, cost=cost)
    flow = site.jobs.note(flow, "progress", "", {"intervals": 12, "of": 24, "cost": 6.0}, progress=12)
    timeline = timeline_of(flow, site.jobs.events(flow.id), site.watch.now())
    assert timeline is not None and timeline.simulated and timeline.end == 3600.0
    assert [(bar.kind, bar.begin, bar.end) for bar in timeline.bars] == [
        ("small", 0.0, 1800.0), ("large", 0.0, None), ("small", 1800.0, 2500.0)]  # fmt: skip
    assert timeline.costs == [(0.0, 0.0), (300.0, 1.0), (2100.0, 4.0), (2700.0, 5.0), (3600.0, 6.0)]
    assert timeline.prices == {("small", "spot"): [(0.0, 0.25), (1800.0, 0.25), (2500.0, 0.75)],
                               ("large", "on-demand"): [(0.0, 1.5)]}  # fmt: skip
    # Nobody told what the large one costs, which is there for an hour.
    assert [(bar.cost, bar.about) for bar in timeline.bars] == [(0.125, False), (1.5, True), (0.0625, False)]
    assert len(gantt(timeline)["bars"]) == 3
    told = words(site.browser().get(f"/jobs/{flow.id}").text)
    for part in (
        "interval 12 of 24",
        "large · on demand: 1 1 h about 1.5 1.00 on average",
        "machine 2 30 min 11 min 40 s 0.25, last 0.75 0.5 0.0625 lost: interrupted or failed",
    ):
        assert part in told, part


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip
# fmt: off
NAMES_OF_DETAILS = ["machine", "class", "market", "price", "bid", "cloud_begun_s", "cloud_ended_s", "cost", "interval",
                    "start_s", "end_s", "started", "stopped", "lost", "machines", "throughput", "intervals", "of",
                    "share"]
# fmt: on
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(EVENT_KINDS)),
        st.sampled_from(list(State)),
        st.none() | st.dictionaries(st.sampled_from(NAMES_OF_DETAILS), JUNK, max_size=6),
        st.floats(-5, 500),
    ),
    max_size=12,
)  # fmt: skip


@given(events=EVENTS, dataflow=st.booleans(), cloud=st.booleans(), progress=st.integers(0, 9))
def test_events_may_tell_anything(events: list[Any], dataflow: bool, cloud: bool, progress: int) -> None:
    """Breaks when a picture needs a detail that a runner left out, or shows one as markup."""
    graph = {"algorithm": "bfs", "input_uri": "g", "runner": "cloud" if cloud else "local"}
    spec = JobSpec.model_validate({"dataflow": {"dataflow": "paper"}} if dataflow else {"graph": graph})
    job = Job(
        "a", "s", "c", None, spec.as_json(), State.RUNNING, 0.0, 1.0, None, 1, 0, 1.0, 1.0, "", "", "", None, progress,
        False, len(events), 1,
    )  # fmt: skip
    told = [Event(n, at, kind, state, "t", more) for n, (kind, state, more, at) in enumerate(events, 1)]

    class Given:
        def get(self, name: str) -> Job:
            return job

        def events(self, name: str, after: int, limit: int, every: int = 1) -> list[Event]:
            return told[after:][:limit]

    found = Reading(Given()).job("a", None)  # type: ignore[arg-type]
    json.dumps([found["axis"], found["charts"]], allow_nan=False)
    if found["charts"]:
        domain = found["axis"]["domain"]
        assert domain == sorted(set(domain)) and len(found["axis"]["range"]) == len(domain)
        known = {"spot", "on-demand", "process", "machine"}
        assert {bar["colour"] for bar in found["charts"][0]["bars"]} <= known


@pytest.mark.slow
def test_a_job_with_fifty_thousand_events(site: Site) -> None:
    """Breaks when the page of a long job stops at its oldest events, or reads and holds all of them."""
    job = site.run(site.job(graph={"runner": "cloud"}), State.PROVISIONING, State.RUNNING)
    began, last = site.watch.time, 50_000
    facts = {"machine": 0, "class": "tiny", "market": "spot", "price": 0.1}
    made = [{"job": job.number, "number": n, "time": began + n, "kind": ("progress", "cost", "checkpoint")[n % 3],
             "state": "running", "text": f"number {n}",
             "details": ({"share": n / 1e5}, {"cost": n / 1e4}, None)[n % 3]} for n in range(6, last)]  # fmt: skip
    for n, kind, more in ((5, "machine", {"cost": 0.0}), (30_000, "price", {"price": 0.7}), (49_001, "lost", {})):
        one = {"job": job.number, "number": n, "time": began + n, "kind": kind, "state": "running", "text": "it"}
        made = [*(other for other in made if other["number"] != n), one | {"details": facts | more}]
    site.watch.time = began + last
    engine = sa.create_engine(f"sqlite:///{site.home / 'jobs.sqlite'}")
    with engine.begin() as connection:
        connection.execute(sa.insert(EventRow), made)
        connection.execute(sa.update(JobRow).values(events=last - 1, progress=77))
    read: list[int] = []
    given = site.jobs.events

    def counted(*args: Any) -> list[Event]:
        found = given(*args)
        read.append(len(found))
        return found

    site.jobs.events = counted  # type: ignore[method-assign]
    web, address = site.browser(), f"/jobs/{job.id}"
    web.get(address)
    assert sum(read) < 5000
    took = []
    for _ in range(3):  # processor time, the least of three: other processes of a busy machine are not measured
        read.clear()
        begun = time.process_time()
        page = web.get(address).text
        took.append(time.process_time() - begun)
        assert len(page) < 400_000 and sum(read) == 100
    assert min(took) < 0.5
    seen = [int(found) for found in re.findall(r'<td class="n">(\d+)</td><td class="time">', page)]
    assert seen == list(range(last - 1, last - 101, -1))
    machines, prices, cost = Parsed(page).charts["charts"]
    assert [(bar["lost"], bar["colour"]) for bar in machines["bars"]] == [(True, "spot")]
    assert 500 < len(cost["points"]) <= 1001
    assert "0.7" in [one["shown"].split()[0] for one in prices["points"]], "the one higher price"
    assert re.search(r'<progress max="1" value="0\.4999\d*" aria-label="Progress">', page)
    job = site.jobs.move(site.jobs.get(job.id), State.DONE, "the end of it", cost=5.0)
    read.clear()
    page = web.get(address).text
    over = Parsed(page)
    assert sum(read) <= 101 and over.having("span", "state")[0]["class"] == "state done"
    assert f"{last} {_at(began + last)} state done the end of it" in words(page)
    before = web.get(f"{address}?before=151").text
    assert re.findall(r'<td class="n">(\d+)</td><td class="time">', before)[::99] == ["150", "51"]
    assert f"{address}?before=51#" in before
    assert "?before=1#" not in web.get(f"{address}?before=51").text


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def test_a_dataflow_with_thousands_of_machines(site: Site) -> None:
    """Breaks when a page lists or draws machines without end, or forgets what all of them cost."""
    flow, _ = site.jobs.submit(JobSpec.model_validate({"dataflow": {"dataflow": "paper"}}), "ada")
    flow = site.run(flow, State.PROVISIONING, State.RUNNING)
    of_all = {"job": flow.number, "time": site.watch.time, "kind": "plan", "state": "running", "text": ""}
    made = [of_all | {"number": n + 5, "details": {"interval": n, "start_s": n * 60.0, "cost": float(n),
                         "started": [{"machine": n, "class": "small", "market": "spot", "price": 0.25, "bid": 0.5}],
                         "stopped": [{"machine": n - 1, "cost": 0.5}]}} for n in range(5000)]  # fmt: skip
    with sa.create_engine(f"sqlite:///{site.home / 'jobs.sqlite'}").begin() as connection:
        connection.execute(sa.insert(EventRow), made)
        connection.execute(sa.update(JobRow).values(events=5004, progress=5000))
    page = site.browser().get(f"/jobs/{flow.id}").text
    told = words(page)
    assert len(Parsed(page).charts["charts"][0]["bars"]) == 1000 and len(page) < 1_500_000
    assert "4,800 earlier machines are included in the totals only." in told and "small · spot: 5,000" in told
    assert page.count('scope="row"') == 200 and "machine 4999" in told
    assert "about 2,499.50" in told
