"""Timelines of jobs: what is drawn is what happened, whatever the events tell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.services.jobs.lifecycle import State
from goffish.services.jobs.spec import JobSpec
from goffish.services.jobs.store import Event, Job
from goffish.services.server.clients import Clients
from goffish.services.server.web.drawing import gantt
from goffish.services.server.web.reading import Reading
from goffish.services.server.web.timeline import timeline_of, use_of
from tests.services.server.web_site import HOSTILE, Parsed, Site, cloud_job, make_site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """That everybody may see."""
    return make_site(tmp_path, Clients())


def test_a_job_is_drawn_as_it_was(site: Site) -> None:
    job = cloud_job(site)
    page = Parsed(site.browser().get(f"/jobs/{job.id}").text)
    across = [(float(one["x"]), float(one["x"]) + float(one["width"])) for one in page.having("rect", "stay")]
    begin, width = min(a for a, _ in across), max(b for _, b in across) - min(a for a, _ in across)
    bars = {
        kind: [(float(b["x"]) - begin, float(b["x"]) - begin + float(b["width"])) for b in page.having("rect", kind)]
        for kind in ("spot", "on-demand")
    }
    drawn = {kind: [(100 * a / width, 100 * b / width) for a, b in found] for kind, found in bars.items()}
    assert drawn["spot"] == [pytest.approx((10, 40), abs=0.1), pytest.approx((80, 100), abs=0.1)]
    assert drawn["on-demand"] == [pytest.approx((50, 70), abs=0.1)]
    assert len(page.having("g", "loss")) == 1 and len(page.having("line", "checkpoint")) == 1
    assert float(page.having("line", "checkpoint")[0]["x1"]) - begin == pytest.approx(0.2 * width, abs=1)
    told = " ".join(page.text.split())
    for part in ("m1.large · spot price 0.25 per hour, bid 0.375 from 10 s for 30 s 30 min of the cloud lost: taken",
                 "0.75 USD of a budget of 2 USD 0.8 USD expected", "superstep 9", "after 5 s in the queue",
                 "15 s left", "budget: 2 USD", "bid for m1.large: 0.375 USD"):  # fmt: skip
        assert part in told, part
    timeline = timeline_of(job, site.jobs.events(job.id), site.watch.now())
    assert timeline is not None and timeline.end == pytest.approx(100)
    used = {use.market: (use.machines, use.lost, round(use.seconds), use.cloud_s) for use in use_of(timeline)}
    assert used == {"spot": (2, 1, 50, 2400.0), "on-demand": (1, 0, 20, 900.0)}
    assert timeline.prices["m1.large", "spot"] == [pytest.approx((10, 0.25)), pytest.approx((80, 0.3))]


def test_a_lost_process_and_a_dataflow_are_drawn(site: Site) -> None:
    job = site.run(site.job(), State.PROVISIONING, State.RUNNING)
    site.watch.time += 30
    site.jobs.move(job, State.QUEUED, "its worker was lost (SIGKILL)")
    job = site.run(job, State.PROVISIONING, State.RUNNING)
    site.watch.time += 10
    timeline = timeline_of(job, site.jobs.events(job.id), site.watch.now())
    assert timeline is not None
    bars = [(bar.name, bar.begin, bar.end, bar.lost) for bar in timeline.bars]
    assert bars == [("attempt 1", 0.0, pytest.approx(30), "its worker was lost (SIGKILL)"),
                    ("attempt 2", pytest.approx(30), None, "")]  # fmt: skip
    flow, _ = site.jobs.submit(JobSpec.model_validate({"dataflow": {"dataflow": "paper"}}), "ada")
    flow = site.run(flow, State.PROVISIONING, State.RUNNING)
    for interval, started, stopped, cost in ((0, [[0, "small"], [1, "large"]], [], 1.0), (6, [[2, "small"]], [0], 4.0)):
        details = {"interval": interval, "start_s": interval * 300.0, "started": started, "stopped": stopped,
                   "throughput": 0.5, "machines": 2, "cost": cost}  # fmt: skip
        flow = site.jobs.note(flow, "plan", "", details, progress=interval + 1, cost=cost)
    flow = site.jobs.note(flow, "progress", "", {"intervals": 12, "of": 24, "cost": 6.0}, progress=12)
    timeline = timeline_of(flow, site.jobs.events(flow.id), site.watch.now())
    assert timeline is not None and timeline.simulated and timeline.end == 3600.0
    assert [(bar.kind, bar.begin, bar.end) for bar in timeline.bars] == [
        ("small", 0.0, 1800.0), ("large", 0.0, None), ("small", 1800.0, None)]  # fmt: skip
    assert timeline.costs == [(0.0, 0.0), (300.0, 1.0), (2100.0, 4.0), (3600.0, 6.0)]
    assert gantt(timeline).count("<rect") == 3
    assert "interval 12 of 24" in Parsed(site.browser().get(f"/jobs/{flow.id}").text).text


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip
# fmt: off
NAMES_OF_DETAILS = ["machine", "class", "market", "price", "bid", "cloud_begun_s", "cloud_ended_s", "cost", "interval",
                    "start_s", "started", "stopped", "lost", "machines", "throughput", "intervals", "of", "share"]
# fmt: on
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["state", "machine", "lost machine", "checkpoint", "cost", "plan", "progress", "other"]),
        st.sampled_from(list(State)),
        st.none() | st.dictionaries(st.sampled_from(NAMES_OF_DETAILS), JUNK, max_size=6),
        st.floats(-5, 500),
    ),
    max_size=12,
)  # fmt: skip


@given(events=EVENTS, dataflow=st.booleans(), cloud=st.booleans(), progress=st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_events_may_tell_anything(events: list[Any], dataflow: bool, cloud: bool, progress: int) -> None:
    """Breaks when a picture needs a detail that a runner left out, or shows one as markup."""
    graph = {"algorithm": "bfs", "input_uri": "g", "runner": "cloud" if cloud else "local"}
    spec = JobSpec.model_validate({"dataflow": {"dataflow": "paper"}} if dataflow else {"graph": graph})
    job = Job(
        "a", "s", "c", None, spec, State.RUNNING, 0.0, 1.0, None, 1, 0, 1.0, 1.0, "", "", None, progress, False, 9, 1
    )
    told = [Event(n, at, kind, state, "t", more) for n, (kind, state, more, at) in enumerate(events, 1)]

    class Given:
        def get(self, name: str) -> Job:
            return job

        def events(self, name: str, after: int, limit: int) -> list[Event]:
            return told[after:]

    found = Reading(Given()).job("a", None)  # type: ignore[arg-type]
    pictures = str(found["gantt"]) + "".join(str(picture) for _, picture, _ in found["charts"])
    assert "<script" not in pictures and "nan" not in re.sub(r"<title>.*?</title>|>[^<]*<", "", pictures, flags=re.S)
