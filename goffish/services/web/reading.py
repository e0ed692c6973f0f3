"""Data of the pages, read from the database outside the event loop."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from cachetools import LRUCache

from goffish.services.store.records import OVER, Clock, Event, Job, State
from goffish.services.store.spec import FlowJob
from goffish.services.store.store import Jobs
from goffish.services.web.charts import (
    MOST_BARS,
    Level,
    Series,
    chart,
    duration,
    gantt,
    lane_name,
    moment,
    money,
    time_axis,
)
from goffish.services.web.timeline import Bar, Timeline, Use, number, timeline_of, use_of

#: Maximum jobs with cached events for charts, cached events per job, and events of the kinds in `OFTEN`.
_MOST_KEPT, _MOST_EVENTS, _MOST_OFTEN, _READ = 8, 20_000, 4000, 1000
_PAGE, _EVENTS_PAGE = 50, 100
_STATES_SHOWN, _MACHINES_SHOWN = 30, 200


@dataclass(frozen=True)
class Asked:
    """Filters of a job list; empty: all."""

    state: str = ""
    algorithm: str = ""
    client: str = ""
    label: str = ""
    before: int | None = None

    @property
    def filters(self) -> dict[str, str]:
        """Active filters, without the page."""
        given = {"state": self.state, "algorithm": self.algorithm, "client": self.client, "label": self.label}
        return {name: value for name, value in given.items() if value}


@dataclass
class _Kept:
    events: list[Event] = field(default_factory=list)
    #: Number of the last processed event, and sampling interval of frequent events.
    last: int = 0
    every: int = 1
    #: Whether older events were dropped.
    cut: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Reading:
    """Thread-safe reader of the data of pages.

    Parameters
    ----------
    jobs : Jobs
    clock : Clock, optional
    """

    def __init__(self, jobs: Jobs, clock: Clock | None = None) -> None:
        self._jobs, self._clock = jobs, clock or Clock()
        self._kept: LRUCache[str, _Kept] = LRUCache(_MOST_KEPT)
        self._lock = threading.Lock()

    def listing(self, asked: Asked) -> dict[str, Any]:
        """Return a page of jobs.

        Raises
        ------
        InputError
        """
        labels = {}
        if asked.label:
            name, _, value = asked.label.partition("=")
            labels = {name.strip(): value.strip()}
        states = [State(asked.state)] if asked.state in set(State) else []
        listed = self._jobs.find(
            states=states, labels=labels, what=asked.algorithm, client=asked.client, before=asked.before,
            limit=_PAGE + 1,
        )  # fmt: skip
        found = [(job.number, _row(job, self._clock.now())) for job in listed]
        counts = self._jobs.counts()
        return {
            "asked": asked, "counts": {str(state): count for state, count in counts.items()},
            "total": sum(counts.values()), "waiting": counts[State.QUEUED],
            "working": sum(n for state, n in counts.items() if state not in OVER and state != State.QUEUED),
            "rows": [row for _, row in found[:_PAGE]],
            "older": found[_PAGE - 1][0] if len(found) > _PAGE else None,
        }  # fmt: skip

    def job(self, name: str, before: int | None) -> dict[str, Any]:
        """Return all data of a job except its log.

        Raises
        ------
        UnknownJob
        """
        job = self._jobs.get(name)
        newest = self._jobs.events(name, max(0, job.events - _EVENTS_PAGE), _EVENTS_PAGE)
        drawn, cut = self._drawn(job)
        # Keep all of the newest events, which hold the progress.
        events = sorted({one.number: one for one in [*drawn, *newest]}.values(), key=lambda one: one.number)
        now, shown = self._clock.now(), newest
        timeline = timeline_of(job, events, now)
        if before is not None:
            last = max(0, min(job.events, before - 1))
            first = max(0, last - _EVENTS_PAGE)
            shown = self._jobs.events(name, first, last - first) if last else []
        shown = shown[::-1]
        return {
            "job": job, "over": job.over, "facts": _facts(job, now), "labels": job.spec.labels,
            "cost": _cost(job), "progress": _progress(job, events), "stops": _states(events, now, job),
            "events": [_event(one) for one in shown], "cut": cut,
            "newer": before is not None, "older": shown[-1].number if shown and shown[-1].number > 1 else None,
            "summary": {} if job.summary is None else {str(k): _shown(v) for k, v in job.summary.items()},
            "spec": json.dumps(job.spec.as_json(), indent=2), "elapsed": _elapsed(job, now),
        } | _pictures(job, timeline)  # fmt: skip

    def _drawn(self, job: Job) -> tuple[list[Event], bool]:
        """Return the events for charts, and whether older events were dropped.

        Events never change and are read once, unless the sampling interval increases.
        """
        with self._lock:
            kept = self._kept.setdefault(job.id, _Kept())
        with kept.lock:
            if job.events > kept.every * _MOST_OFTEN:
                while job.events > kept.every * _MOST_OFTEN:
                    kept.every *= 2
                kept.events, kept.last, kept.cut = [], 0, False
            while kept.last < job.events:
                found = self._jobs.events(job.id, kept.last, _READ, kept.every)
                kept.events.extend(found)
                kept.last = (
                    found[-1].number if len(found) == _READ else max(job.events, found[-1].number if found else 0)
                )
                if len(kept.events) > _MOST_EVENTS:
                    del kept.events[:-_MOST_EVENTS]
                    kept.cut = True
            return list(kept.events), kept.cut


def _row(job: Job, now: float) -> dict[str, Any]:
    graph, dataflow = job.spec.graph, job.spec.dataflow
    where, policy = "cloud", "" if dataflow is None else dataflow.policy
    if graph is not None:
        where, policy = graph.runner, graph.policy or ""
    if job.spec.flow is not None:
        where = f"flow {_flow_name(job.spec.flow)}"
    if where == "cloud" and policy:
        where = f"cloud, {policy}"
    return {
        "id": job.id, "state": str(job.state), "what": job.spec.what, "client": job.client, "where": where,
        "labels": job.spec.labels, "submitted": moment(job.submitted), "elapsed": _elapsed(job, now),
        "progress": f"{job.progress:,}" if job.progress else "", "attempts": job.attempts, "losses": job.losses,
        "cost": money(job.cost, job.currency) if job.cost else "", "error": job.error,
        "over_budget": job.spec.budget is not None and job.cost > job.spec.budget,
        "cancelling": job.cancel_requested and not job.over,
    }  # fmt: skip


def _flow_name(flow: FlowJob) -> str:
    return flow.flow or "inline description"


def flow_facts(report: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the page of a job shows of its flow, from the report of the worker; ``None`` without one."""
    if not report:
        return None
    metrics = report["metrics"]
    operators = [
        {
            "name": one["operator"], "kind": one["kind"], "alternate": one["alternate"] or "",
            **{name: f"{one[name]:,}" for name in ("received", "sent", "queue", "late", "errors")},
            "rate": f"{one['recent_rate']:,.0f}", "load": f"{one['load']:.0%}",
        }
        for one in metrics["operators"]
    ]  # fmt: skip
    workers = [
        {
            "name": one["worker"], "state": "member" if one["joined"] else "joining", "queued": f"{one['queued']:,}",
            "checkpoint": one["checkpoint"] or "",
            "age": "" if one["checkpoint_age"] is None else f"{one['checkpoint_age']:.1f} s",
        }
        for one in metrics["workers"]
    ]  # fmt: skip
    updates = [
        {"changes": one["changes"], "state": one["state"], "strategy": one["strategy"], "reason": one["reason"]}
        for one in report["updates"]
    ]
    return {
        "name": metrics["flow"], "version": report["version"], "updating": report["updating"],
        "operators": operators, "workers": workers, "updates": updates, "rate": f"{metrics['recent_rate']:,.0f}",
        "records": f"{metrics['records']:,}", "checkpoint": metrics["checkpoint"],
    }  # fmt: skip


def _elapsed(job: Job, now: float) -> str:
    """Return the run time or the waiting time."""
    if job.started is None:
        return "" if job.over else f"queued for {duration(now - job.submitted)}"
    return duration((now if job.ended is None else job.ended) - job.started)


def _facts(job: Job, now: float) -> list[tuple[str, str]]:
    spec, facts = job.spec, [("client", job.client)]
    if spec.graph is not None:
        graph = spec.graph
        facts += [("input", graph.input_uri), ("runner", graph.runner), ("workers", f"{graph.workers}")]
        if graph.runner == "cloud":
            facts += [("machines", f"{graph.machines}")] if graph.machines > 1 else []
            facts += [("policy", graph.policy or "that of the server"), ("cloud", graph.cloud_name)]
        facts += [(f"option {name}", value) for name, value in graph.options.items()]
        facts += [("memory limit", f"{graph.memory_mb:,} MB")] if graph.memory_mb is not None else []
        facts += [("CPU time limit", f"{graph.cpu_seconds:g} s")] if graph.cpu_seconds is not None else []
    if spec.dataflow is not None:
        flow = spec.dataflow
        given = flow.dataflow if isinstance(flow.dataflow, str) else "inline definition"
        facts += [("dataflow", given), ("policy", flow.policy), ("cloud", flow.cloud_name), ("rates", flow.rates)]
        facts += [(f"option {name}", value) for name, value in flow.options.items()]
    if spec.flow is not None:
        facts += [("flow", _flow_name(spec.flow)), ("workers at the start", f"{spec.flow.workers}")]
        facts += [("resumed from", spec.flow.resume_from)] if spec.flow.resume_from is not None else []
    facts.append(("submitted", f"{moment(job.submitted)} UTC"))
    if job.started is not None:
        waited = duration(job.started - job.submitted)
        facts.append(("started", f"{moment(job.started)} UTC, queued for {waited}"))
    if job.ended is not None:
        facts.append(("ended", f"{moment(job.ended)} UTC"))
    facts.append(("attempts", f"{job.attempts}" + (f", {job.losses} lost" if job.losses else "")))
    if spec.deadline_s is not None:
        left = job.submitted + spec.deadline_s - (now if job.ended is None else job.ended)
        remark = f"{duration(left)} left" if left >= 0 else f"exceeded by {duration(-left)}"
        facts.append(("deadline", f"{moment(job.submitted + spec.deadline_s)} UTC, {remark}"))
    if job.client_key:
        facts.append(("client key", job.client_key))
    return [(name, value) for name, value in facts if value]


def _cost(job: Job) -> dict[str, Any] | None:
    budget = job.spec.budget
    if not (job.cost or job.expected_cost or budget is not None):
        return None
    limit = budget if budget else max(job.expected_cost, job.cost)
    return {
        "so_far": money(job.cost, job.currency), "expected": money(job.expected_cost, job.currency),
        "has_expected": bool(job.expected_cost), "budget": None if budget is None else money(budget, job.currency),
        "share": min(1.0, job.cost / limit) if limit else 0.0, "of": "budget" if budget else "expected",
        "over": budget is not None and job.cost > budget,
    }  # fmt: skip


def _progress(job: Job, events: list[Event]) -> dict[str, Any] | None:
    """Return the newest reported progress."""
    if not job.progress:
        return None
    if job.spec.flow is not None:
        return {"text": f"{job.progress:,} records", "more": "", "share": None}
    unit = "interval" if job.spec.dataflow is not None else "superstep"
    last = next((one.details for one in reversed(events) if one.kind == "progress"), None)
    share, of = number(last, "share"), number(last, "of")
    if of:
        share = job.progress / of
    if job.state == State.DONE:
        share = 1.0
    facts = [f"{name} {value:,.0f}" for name in ("active", "messages") if (value := number(last, name)) is not None]
    of_text = f" of {of:,.0f}" if of else ""
    return {"text": f"{unit} {job.progress:,}{of_text}", "more": ", ".join(facts), "share": share}


def _states(events: list[Event], now: float, job: Job) -> list[dict[str, str]]:
    """Return the state history, newest first."""
    moves = [one for one in events if one.kind in ("state", "submitted")]
    made = []
    for one, after in zip_longest(moves, moves[1:]):
        end = after.time if after is not None else (one.time if job.over else now)
        made.append({
            "time": moment(one.time), "state": str(one.state), "text": one.text,
            "for": duration(end - one.time) if after is not None or not job.over else "",
        })  # fmt: skip
    return made[::-1][:_STATES_SHOWN]


def _event(event: Event) -> dict[str, Any]:
    details = "" if event.details is None else json.dumps(event.details, indent=1, default=str)
    return {
        "number": event.number, "time": moment(event.time), "kind": event.kind, "state": str(event.state),
        "text": event.text, "details": details,
    }  # fmt: skip


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value, default=str)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _pictures(job: Job, timeline: Timeline | None) -> dict[str, Any]:
    if timeline is None:
        return {
            "charts": [],
            "axis": {"gaps": []},
            "use": [],
            "simulated": False,
            "has_losses": False,
            "markets": set(),
        }
    currency, now = job.currency, timeline.now
    bids = [
        Level(f"bid for {bar.kind}", bar.bid, bar.begin, timeline.end_of(bar))
        for bar in timeline.bars[-MOST_BARS:]
        if bar.bid is not None
    ]
    limits = [Level("budget", job.spec.budget)] if job.spec.budget is not None else []
    limits += [Level("expected", job.expected_cost)] if job.expected_cost else []
    prices = []
    for (kind, market), points in sorted(timeline.prices.items()):
        held = [timeline.end_of(bar) for bar in timeline.bars if (bar.kind, bar.market) == (kind, market)]
        until = max([points[-1][0], *held]) if held else now
        prices.append(Series(lane_name(kind, market) or "price", points, until))
    drawn = [
        gantt(timeline),
        chart("Prices per hour (bids dashed)", timeline, prices, bids, currency),
        chart("Cost", timeline, [Series("cost", timeline.costs)], limits, currency, steps=False),
        chart("Throughput", timeline, [Series("throughput", timeline.throughput, now)]),
        chart("Machines", timeline, [Series("machines", timeline.machines, now)]),
    ]
    return {
        "charts": [one for one in drawn if one is not None], "axis": time_axis(timeline),
        "simulated": timeline.simulated,
        "use": _use(timeline, currency), "has_prices": any(bar.price is not None for bar in timeline.bars),
        "unlisted": max(0, len(timeline.bars) - _MACHINES_SHOWN),
        "has_losses": any(bar.lost for bar in timeline.bars), "markets": {bar.market for bar in timeline.bars},
        "has_checkpoints": bool(timeline.checkpoints), "has_deadline": timeline.deadline is not None,
    }  # fmt: skip


def _use(timeline: Timeline, currency: str) -> list[dict[str, Any]]:
    """Return the use of each machine type, with its newest machines."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    for bar in timeline.bars[-_MACHINES_SHOWN:]:
        end = timeline.end_of(bar)
        price = "" if bar.price is None else money(bar.price, currency)
        if bar.last_price is not None and bar.last_price != bar.price:
            price += f", last {money(bar.last_price)}"
        rows.setdefault((bar.kind, bar.market), []).append({
            "name": bar.name, "begin": duration(bar.begin), "seconds": duration(end - bar.begin),
            "cloud": duration(bar.cloud_s) if bar.cloud_s else "", "price": price.removeprefix(", "),
            "bid": "" if bar.bid is None else money(bar.bid, currency), "cost": _paid(bar, currency),
            "lost": bar.lost, "end": "running" if bar.end is None else "released",
        })  # fmt: skip
    return [
        {
            "kind": lane_name(use.kind, use.market), "machines": use.machines, "lost": use.lost,
            "seconds": duration(use.seconds), "average": f"{use.seconds / timeline.now:.2f}",
            "cloud": duration(use.cloud_s) if use.cloud_s else "", "cost": _paid(use, currency),
            "rows": rows.get((use.kind, use.market), []),
        }
        for use in use_of(timeline)
    ]  # fmt: skip


def _paid(one: Bar | Use, currency: str) -> str:
    return "" if one.cost is None else ("about " if one.about else "") + money(one.cost, currency)
