"""Timeline of a job: machines, prices and costs over time, derived from its events.

Graph jobs use real time, dataflows use simulated time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from goffish.errors import InputError
from goffish.scheduling.dataflow.model import Dataflow
from goffish.services.api.wire import known_dataflow
from goffish.services.store.records import OVER, Event, Job, State

#: Deadlines beyond this multiple of the elapsed time are not drawn.
_FAR = 1.6
_STEP_S, _HOUR_S = 60.0, 3600.0
#: Larger numbers are ignored.
_LARGEST = 1e15
_WORKING = frozenset({State.PROVISIONING, State.RUNNING, State.MIGRATING})
Points = list[tuple[float, float]]


@dataclass
class Bar:
    """Lifetime of a machine or a local process.

    Attributes
    ----------
    name, kind, market : str
        The market is ``spot``, ``on-demand``, ``process``, or empty if unknown.
    begin, end : float
        Times on the axis of the timeline; no end: running.
    price, bid : float, optional
        Price and bid per hour at the start.
    last_price : float, optional
        Last known price per hour.
    cost : float, optional
    about : bool
        Whether the cost is estimated from price and time.
    cloud_s : float, optional
        Duration, in simulated seconds.
    lost : str
        Reason of the loss; empty if the machine was released.
    """

    name: str
    kind: str
    market: str
    begin: float
    end: float | None = None
    price: float | None = None
    bid: float | None = None
    last_price: float | None = None
    cost: float | None = None
    about: bool = False
    cloud_begun_s: float | None = None
    cloud_s: float | None = None
    lost: str = ""


@dataclass(frozen=True)
class Stay:
    """Period in a state."""

    state: State
    begin: float
    end: float
    text: str


@dataclass
class Timeline:
    """Data of all charts; times are seconds after the start of the job.

    Attributes
    ----------
    end : float
        End of the axis.
    now : float
        End of the known data.
    simulated : bool
        Whether times are simulated seconds.
    stays, bars
    checkpoints : list of float
    deadline : float, optional
    prices : dict
        Prices per hour by machine type and market.
    costs, throughput, machines : list of (float, float)
    """

    end: float
    now: float
    simulated: bool = False
    stays: list[Stay] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    checkpoints: list[float] = field(default_factory=list)
    deadline: float | None = None
    prices: dict[tuple[str, str], Points] = field(default_factory=dict)
    costs: Points = field(default_factory=list)
    throughput: Points = field(default_factory=list)
    machines: Points = field(default_factory=list)

    def end_of(self, bar: Bar) -> float:
        """Return the end of a machine, or the end of the data for a running one."""
        return self.now if bar.end is None else bar.end


@dataclass
class Use:
    """Total use of a machine type."""

    kind: str
    market: str
    machines: int = 0
    lost: int = 0
    seconds: float = 0.0
    cloud_s: float = 0.0
    cost: float | None = None
    about: bool = False


def timeline_of(job: Job, events: Sequence[Event], now: float) -> Timeline | None:
    """Return the timeline of a job, or ``None`` before its start.

    Parameters
    ----------
    job : Job
    events : sequence of Event
        Events in order.
    now : float
        Seconds since 1970.

    Notes
    -----
    Events of the kinds in `OFTEN` may be sampled.
    """
    if job.started is None:
        return None
    return _by_clock(job, events, now) if job.spec.dataflow is None else _by_cloud(job, events)


def use_of(timeline: Timeline) -> list[Use]:
    """Return the total use of each machine type."""
    found: dict[tuple[str, str], Use] = {}
    for bar in timeline.bars:
        use = found.setdefault((bar.kind, bar.market), Use(bar.kind, bar.market))
        use.machines += 1
        use.lost += bool(bar.lost)
        use.seconds += timeline.end_of(bar) - bar.begin
        use.cloud_s += bar.cloud_s or 0.0
        if bar.cost is not None:
            use.cost, use.about = (use.cost or 0.0) + bar.cost, use.about or bar.about
    return list(found.values())


def lanes(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Arrange bars in rows; machines of one type share a row if they do not overlap."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda one: one.begin):
        for row in rows:
            last = row[-1]
            if (last.kind, last.market) == (bar.kind, bar.market) and last.end is not None and last.end <= bar.begin:
                row.append(bar)
                break
        else:
            rows.append([bar])
    return sorted(rows, key=lambda row: (row[0].kind, row[0].market))


def _by_clock(job: Job, events: Sequence[Event], now: float) -> Timeline:
    assert job.started is not None
    begin = job.started
    until = max(1e-3, (now if job.ended is None else job.ended) - begin)
    made = Timeline(end=until, now=until)
    if job.spec.deadline_s is not None:
        deadline = job.submitted + job.spec.deadline_s - begin
        if 0 <= deadline <= made.end * _FAR:
            made.deadline, made.end = deadline, max(made.end, deadline if job.ended is None else 0.0)
    walk = _Walk(made, on_machines=job.spec.graph is not None and job.spec.graph.runner == "cloud")
    last: Event | None = None
    for event in events:
        at = max(0.0, event.time - begin)
        if event.kind == "state":
            if last is not None:
                made.stays.append(Stay(last.state, max(0.0, last.time - begin), at, last.text))
            last = event
            walk.state(event, at)
        elif event.kind == "checkpoint":
            made.checkpoints.append(at)
        if event.kind in ("machine", "lost", "cost") and (cost := number(event.details, "cost")) is not None:
            made.costs.append((at, cost))
            walk.cost(cost)
        if event.kind in ("machine", "price", "lost"):
            walk.machine(event, at)
            if (price := number(event.details, "price")) is not None:
                traded = text(event.details, "class"), text(event.details, "market")
                made.prices.setdefault(traded, []).append((at, price))
    if last is not None and last.state not in OVER:
        made.stays.append(Stay(last.state, max(0.0, last.time - begin), until, last.text))
    walk.cost(max(job.cost, made.costs[-1][1] if made.costs else 0.0))
    if made.costs:
        made.costs = [(min((bar.begin for bar in made.bars), default=0.0), 0.0), *made.costs]
        if job.cost >= made.costs[-1][1]:
            made.costs.append((until, job.cost))
    return made


class _Walk:
    """State machine that derives bars from the events of a graph job."""

    def __init__(self, made: Timeline, *, on_machines: bool) -> None:
        self._made, self._on_machines = made, on_machines
        self._attempt = 0
        self._open: dict[Any, Bar] = {}
        #: Cost of the job, in total and before the newest machine.
        self._cost = self._before = 0.0

    def cost(self, cost: float) -> None:
        """Update the cost of the job; the increase since its start is the cost of the current machine."""
        self._cost = cost
        for bar in self._open.values() if self._on_machines else ():
            bar.cost = max(0.0, cost - self._before)

    def state(self, event: Event, at: float) -> None:
        """Handle a state change; requeuing and migration end all machines."""
        state = event.state
        if state == State.PLANNED:
            attempt = number(event.details, "attempt")
            self._attempt = self._attempt + 1 if attempt is None else int(attempt)
        if state in OVER or state in (State.QUEUED, State.PLANNED, State.MIGRATING):
            lost = "" if state in OVER else event.text or "lost"
            for bar in self._open.values():
                bar.end, bar.lost = at, lost
            self._open.clear()
        elif state in _WORKING and not self._on_machines and not self._open:
            self._open["process"] = bar = Bar(f"attempt {self._attempt}", "local process", "process", at)
            self._made.bars.append(bar)

    def machine(self, event: Event, at: float) -> None:
        """Handle the start, release, loss or price change of a machine."""
        details = event.details if isinstance(event.details, dict) else {}
        key, lost = details.get("machine"), event.kind == "lost"
        begun, ended = number(details, "cloud_begun_s"), number(details, "cloud_ended_s")
        bar = self._open.get(str(key))
        if bar is not None:
            price = number(details, "price")
            bar.last_price = bar.last_price if price is None else price
        if event.kind == "price":
            return
        if bar is None:
            kind = text(details, "class") or "machine"
            named = f"attempt {self._attempt}, machine {key}" if key is not None else event.text
            bar = Bar(
                named, kind, text(details, "market"), at, price=number(details, "price"), bid=number(details, "bid"),
                last_price=number(details, "price"), cloud_begun_s=begun,
            )  # fmt: skip
            self._before = self._cost
            self._made.bars.append(bar)
            if ended is None and not lost:
                self._open[str(key)] = bar
                return
        else:
            del self._open[str(key)]
        bar.end, bar.lost = at, event.text if lost else ""
        first = bar.cloud_begun_s if bar.cloud_begun_s is not None else begun
        if first is not None and ended is not None:
            bar.cloud_s = max(0.0, ended - first)


def _by_cloud(job: Job, events: Sequence[Event]) -> Timeline:
    """Return the timeline of a dataflow from the intervals with changes."""
    plans = [(event, event.details) for event in events if event.kind == "plan" and isinstance(event.details, dict)]
    step = _step_of(job, plans)
    until = max(step, job.progress * step)
    made = Timeline(end=until, now=until, simulated=True)
    open_bars: dict[str, Bar] = {}
    for _, details in plans:
        interval = number(details, "interval")
        at = number(details, "start_s")
        if at is None:
            at = (interval or 0.0) * step
        for each in _machines(details, "started"):
            kind, market, price = text(each, "class") or "machine", text(each, "market"), number(each, "price")
            name = str(each.get("machine"))
            open_bars[name] = bar = Bar(
                f"machine {name}", kind, market, at, price=price, bid=number(each, "bid"), last_price=price
            )
            made.bars.append(bar)
            if price is not None:
                made.prices.setdefault((kind, market), []).append((at, price))
        for what in ("stopped", "lost"):
            for each in _machines(details, what):
                old = open_bars.pop(str(each.get("machine")), None)
                if old is None:
                    continue
                end = number(each, "end_s")
                old.end, old.cost = max(old.begin, at if end is None else end), number(each, "cost")
                old.lost = "interrupted or failed" if what == "lost" else ""
                if (price := number(each, "price")) is not None:
                    old.last_price = price
                    made.prices.setdefault((old.kind, old.market), []).append((old.end, price))
        if (throughput := number(details, "throughput")) is not None:
            made.throughput.append((at, throughput))
        if (machines := number(details, "machines")) is not None:
            made.machines.append((at, machines))
    for bar in made.bars:
        if bar.cost is None and bar.price is not None:
            bar.cost, bar.about = bar.price * (made.end_of(bar) - bar.begin) / _HOUR_S, True
    for event in events:
        done = number(event.details, "intervals")
        if done is None:
            interval = number(event.details, "interval")
            done = None if interval is None else interval + 1
        if done is not None and (cost := number(event.details, "cost")) is not None:
            made.costs.append((done * step, cost))
    made.costs = [(0.0, 0.0), *sorted(made.costs)] if made.costs else []
    return made


def _step_of(job: Job, plans: Sequence[tuple[Event, dict[str, Any]]]) -> float:
    """Return the length of an interval, in seconds."""
    for _, details in plans:
        interval, start = number(details, "interval"), number(details, "start_s")
        if interval and start:
            return start / interval
    given = None if job.spec.dataflow is None else job.spec.dataflow.dataflow
    if isinstance(given, str):
        with suppress(InputError):
            given = known_dataflow(given, "dataflow")
    return given.goal.interval_s if isinstance(given, Dataflow) else _STEP_S


def _machines(details: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = details.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def number(details: Any, name: str) -> float | None:
    """Return a number in the details of an event, or ``None`` if it is missing or invalid."""
    found = details.get(name) if isinstance(details, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= _LARGEST:
        return None
    return float(found)


def text(details: Any, name: str) -> str:
    """Return a text in the details of an event, or an empty string."""
    found = details.get(name) if isinstance(details, dict) else None
    return found if isinstance(found, str) else ""
