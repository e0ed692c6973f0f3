"""Results of a run: tables of its intervals, PEs, machines and events, and a summary.

See docs/specs/provisioning.md, sections 2.7 and 3.9; docs/specs/plasticc.md, section 4.6. The tables do not depend on
the clock: the same seed gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.partial import local_path
from goffish.scheduling.control.cluster import SLACK_S, Changes, Cluster
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow

#: Attribute of a `Result` and the name of its file.
TABLES = {"intervals": "intervals", "elements": "processing_elements", "machines": "machines", "events": "events"}


@dataclass(eq=False)
class Measured:
    """Measurements of an interval; one value per PE, rates in messages per second.

    `queue` is the length at the end of the interval, `queue_mean` the mean over the interval, and `lost` the number of
    lost messages. `delays_s` are the mean seconds that a message of each edge spends between machines; `flying` is the
    part of `queue_mean` that is between machines.
    """

    omega: float
    inflow: Floats
    processed: Floats
    out: Floats
    queue: Floats
    queue_mean: Floats
    power: Floats
    lost: Floats
    delays_s: Floats | float = 0.0
    flying: Floats | float = 0.0


@dataclass(frozen=True)
class Summary:
    """Summary of a run.

    Attributes
    ----------
    omega, value : float
        Means of relative throughput and of the dataflow's value over all intervals.
    cost : float
        In the catalogue's currency.
    profit, profit_against_break_even : float
        Forms A and B (§2.6).
    throughput_met : bool
        Whether the mean throughput reaches the goal, minus the tolerance (§2.6).
    backlog_grows : bool
        Whether the queue of a PE still grows at the end (`backlog_grows`); the throughput counts current input only, so
        it can reach a goal below 1 while messages wait longer and longer.
    valid : bool
        Whether the run meets its goal: the throughput is reached, and the backlog does not grow.
    chi : int
        Number of intervals whose throughput is outside the goal's band.
    omega_sd : float
        Standard deviation of the throughput over the intervals.
    adaptations : int
        Number of intervals with a change.
    switches, instance_changes : int
        Switches of alternates, and changes of instances; a moved instance counts once.
    starts, stops, failures : int
        Starts, stops and failures of machines; the first deployment is not counted as a start.
    queue : float
        Messages queued at the end.
    lost : float
        Messages lost with failed machines.
    rate : float
        Mean realized external rate of all streams together (section 4.3).
    compliance : float
        Share of the intervals whose throughput is not below the goal's band.
    latency_s : float
        Mean latency along the slowest path (`latency_s`), including links between sites, weighted by the external rate.
    """

    omega: float
    value: float
    cost: float
    profit: float
    profit_against_break_even: float
    throughput_met: bool
    backlog_grows: bool
    valid: bool
    chi: int
    omega_sd: float
    adaptations: int
    switches: int
    instance_changes: int
    starts: int
    stops: int
    failures: int
    queue: float
    lost: float
    rate: float
    compliance: float
    latency_s: float

    @property
    def reconfigurations(self) -> int:
        """Number of switches of alternates, changes of instances, and starts and stops of machines."""
        return self.switches + self.instance_changes + self.starts + self.stops

    @property
    def compared(self) -> float | None:
        """Profit, or ``None`` for a run that misses its throughput, as its profit is meaningless (section 6.13)."""
        return self.profit if self.throughput_met else None


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run.

    Attributes
    ----------
    summary : Summary
    intervals : pyarrow.Table
        ``step, start_s, omega, value, cost, rate, queue, latency_s, machines, cores, switches, instance_changes,
        starts, stops, failures``; `cost` is the cost up to the end of the interval.
    elements : pyarrow.Table
        ``step, processing_element, alternate, instances, power, inflow, processed, out, queue, queue_mean,
        lost``.
    machines : pyarrow.Table
        ``machine, machine_type, start_s, ready_s, stop_s, failed, taken, rent``; `stop_s` is null for machines that
        still run, and an interrupted spot machine (`taken`) also counts as failed.
    events : pyarrow.Table
        ``time_s, event, machine, processing_element, alternate, messages`` with the events start, ready, fail, take
        (a spot interruption), stop, switch and migrate (messages that leave a released machine).
    planning_s : float64, shape (steps,)
        Planning time of the policy in seconds; the only values that depend on the clock, and not part of any table.
    """

    summary: Summary
    intervals: pa.Table
    elements: pa.Table
    machines: pa.Table
    events: pa.Table
    planning_s: Floats

    def write(self, folder: str | Path) -> None:
        """Write the tables as Parquet files and the summary as JSON; the same run gives the same bytes.

        Raises
        ------
        InputError
            If a file cannot be written.
        """
        folder = local_path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, file in TABLES.items():
                pa.parquet.write_table(getattr(self, name), folder / f"{file}.parquet", compression="zstd")
            (folder / "summary.json").write_text(json.dumps(asdict(self.summary), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror or error})") from error


class Recorder:
    """Collects the columns during a run."""

    def __init__(self, flow: Flow, catalogue: Catalogue, steps: int, interval_s: float) -> None:
        self._flow, self._catalogue, self._steps, self._interval_s = flow, catalogue, steps, interval_s
        self._counts = {
            name: np.zeros(steps, np.int64)
            for name in ("machines", "cores", "switches", "instance_changes", "starts", "stops", "failures")
        }
        self._figures = {name: np.zeros(steps) for name in ("omega", "value", "cost", "rate", "queue", "latency_s")}
        shape = (steps, flow.size)
        self._places = {name: np.zeros(shape, np.int64) for name in ("alternate", "instances")}
        self._flows = {
            name: np.zeros(shape) for name in ("power", "inflow", "processed", "out", "queue", "queue_mean", "lost")
        }
        self._changed = np.zeros(steps, bool)
        self._planning_s = np.zeros(steps)
        self._events: list[dict[str, Any]] = []
        self._end = 0.0

    def enacted(
        self, step: int, now: float, changes: Changes, cluster: Cluster, failed: int, planning_s: float
    ) -> None:
        """Record the changes of an adaptation, and the number of machines that failed before it."""
        counts = self._counts
        counts["machines"][step] = len(cluster.live.machines)
        counts["cores"][step] = sum(machine.used for machine in cluster.live.machines.values())
        counts["switches"][step] = len(changes.switched)
        counts["instance_changes"][step] = changes.moved
        counts["starts"][step] = len(changes.started) if step else 0
        counts["stops"][step] = len(changes.stopped)
        counts["failures"][step] = failed
        self._changed[step] = step > 0 and changes.any
        self._planning_s[step] = planning_s
        self._places["alternate"][step] = cluster.live.active
        self._places["instances"][step] = cluster.live.counts
        for element, alternate in changes.switched:
            self.event(now, "switch", element=element, alternate=alternate)

    def measured(self, step: int, measured: Measured, cluster: Cluster, rates: Floats, until: float) -> None:
        """Record the measurements of an interval."""
        for name, column in self._flows.items():
            column[step] = getattr(measured, name)
        self._end = until
        figures = self._figures
        figures["omega"][step] = measured.omega
        figures["value"][step] = self._flow.value_of(cluster.live.active)
        figures["cost"][step] = cluster.cost(until)
        figures["rate"][step] = rates.sum()
        figures["queue"][step] = measured.queue.sum()
        live = cluster.live
        figures["latency_s"][step] = latency_s(self._flow, live.active, live.counts, measured, self._interval_s)

    def event(self, time_s: float, event: str, **fields: Any) -> None:
        """Record an event."""
        self._events.append({"time_s": time_s, "event": event, **fields})

    def result(self, cluster: Cluster, steps: int) -> Result:
        """Return the tables of the first intervals."""
        self._cut(steps)
        end = self._end
        return Result(
            self._summary(),
            pa.table({
                "step": np.arange(self._steps), "start_s": np.arange(self._steps) * self._interval_s,
                **self._figures, **self._counts,
            }),
            self._element_table(),
            self._machine_table(cluster, end),
            self._event_table(cluster, end),
            self._planning_s,
        )  # fmt: skip

    def _cut(self, steps: int) -> None:
        """Leave out the intervals after the first ones."""
        self._counts = {name: column[:steps] for name, column in self._counts.items()}
        self._figures = {name: column[:steps] for name, column in self._figures.items()}
        self._places = {name: column[:steps] for name, column in self._places.items()}
        self._flows = {name: column[:steps] for name, column in self._flows.items()}
        self._steps, self._changed, self._planning_s = steps, self._changed[:steps], self._planning_s[:steps]

    def _summary(self) -> Summary:
        flow, figures, counts = self._flow, self._figures, self._counts
        omegas, cost = figures["omega"], float(figures["cost"][-1])
        omega, value = float(omegas.mean()), float(figures["value"].mean())
        reached = bool(omega >= flow.goal.throughput - flow.goal.tolerance - SLACK)
        grows = backlog_grows(self._flows["queue"], self._flows["inflow"], self._interval_s)
        return Summary(
            omega=omega,
            value=value,
            cost=cost,
            profit=flow.profit(value, cost),
            profit_against_break_even=flow.profit_against_break_even(value, cost),
            throughput_met=reached,
            backlog_grows=grows,
            valid=reached and not grows,
            chi=int((np.abs(omegas - flow.goal.throughput) > flow.goal.tolerance + SLACK).sum()),
            omega_sd=float(omegas.std()),
            adaptations=int(self._changed.sum()),
            switches=int(counts["switches"].sum()),
            instance_changes=int(counts["instance_changes"].sum()),
            starts=int(counts["starts"].sum()),
            stops=int(counts["stops"].sum()),
            failures=int(counts["failures"].sum()),
            queue=float(figures["queue"][-1]),
            lost=float(self._flows["lost"].sum()),
            rate=float(figures["rate"].mean()),
            compliance=float((omegas >= flow.goal.throughput - flow.goal.tolerance - SLACK).mean()),
            latency_s=_weighted(figures["latency_s"], figures["rate"]),
        )

    def _element_table(self) -> pa.Table:
        steps, flow = self._steps, self._flow
        rows = flow.alternate_offsets[:-1] + self._places["alternate"]
        return pa.table({
            "step": np.repeat(np.arange(steps), flow.size),
            "processing_element": _names(flow.names, np.tile(np.arange(flow.size), steps)),
            "alternate": _names(flow.alternate_names, rows.ravel()),
            "instances": self._places["instances"].ravel(),
            **{name: column.ravel() for name, column in self._flows.items()},
        })  # fmt: skip

    def _machine_table(self, cluster: Cluster, end: float) -> pa.Table:
        lives = list(cluster.log.values())
        kinds = np.array([life.kind for life in lives], np.int64)
        start, ready, stop, fail = (
            np.array([getattr(life, name) for life in lives], np.float64)
            for name in ("start_s", "ready_s", "stop_s", "fail_s")
        )
        names = tuple(c.name for c in self._catalogue.classes)
        return pa.table({
            "machine": np.array(list(cluster.log), np.int64),
            "machine_type": _names(names, kinds),
            "start_s": start,
            "ready_s": ready,
            "stop_s": pa.array(stop, mask=np.isinf(stop)),
            "failed": np.isfinite(fail) & (fail <= stop),
            "taken": np.array([life.taken and life.fail_s <= life.stop_s for life in lives], np.bool_),
            "rent": cluster.rents(end),
        })  # fmt: skip

    def _event_table(self, cluster: Cluster, end: float) -> pa.Table:
        events = list(self._events)
        for number, life in cluster.log.items():
            gone = min(life.stop_s, life.fail_s)
            failed = life.fail_s <= life.stop_s
            end_event = "stop" if not failed else "take" if life.taken else "fail"
            moments = ((life.start_s, "start"), (life.ready_s, "ready"), (gone, end_event))
            for moment, event in moments:
                if moment <= min(gone, end - SLACK_S):
                    events.append({"time_s": moment, "event": event, "machine": number})
        # Events at the same time: those of the run first, then machines by id.
        events.sort(key=lambda event: event["time_s"])
        names = self._flow.names
        rows = self._flow.alternate_offsets
        return pa.table({
            "time_s": pa.array([e["time_s"] for e in events], pa.float64()),
            "event": pa.array([e["event"] for e in events], pa.string()),
            "machine": pa.array([e.get("machine") for e in events], pa.int64()),
            "processing_element": pa.array(
                [names[e["element"]] if "element" in e else None for e in events], pa.string()
            ),
            "alternate": pa.array([self._alternate(e, rows) for e in events], pa.string()),
            "messages": pa.array([e.get("messages") for e in events], pa.float64()),
        })  # fmt: skip

    def _alternate(self, event: Mapping[str, Any], rows: NDArray[np.int64]) -> str | None:
        if "alternate" not in event:
            return None
        name: str = self._flow.alternate_names[int(rows[event["element"]] + event["alternate"])]
        return name


def _weighted(values: Floats, weights: Floats) -> float:
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0 else float(values.mean())


def _names(names: tuple[str, ...], places: Any) -> pa.DictionaryArray:
    # Alternates may share a name, and Parquet's bytes depend on the order of repeated values in a dictionary.
    return pa.array(names, pa.string()).take(pa.array(places)).dictionary_encode()


def latency_s(
    flow: Flow, active: NDArray[np.int64], instances: NDArray[np.int64], measured: Measured, interval_s: float
) -> float:
    """Latency along the slowest path: queueing by Little's law, work on a core of the PE's mean speed, and links.

    Every path from an input counts, with the queues of all its PEs. If messages are queued and none was processed, they
    wait for at least an interval, and for as long as it took to send them.

    Parameters
    ----------
    active : int64, shape (elements,)
    instances : int64, shape (elements,)
    measured : Measured
    interval_s : float
    """
    waiting, done = measured.queue_mean - measured.flying, measured.processed
    sent_s = np.divide(waiting, measured.inflow, out=np.zeros(flow.size), where=measured.inflow > 0)
    wait = np.divide(waiting, done, out=np.where(waiting > 0, np.maximum(sent_s, interval_s), 0.0), where=done > 0)
    speed = np.divide(measured.power, instances, out=np.zeros(flow.size), where=instances > 0)
    work = np.divide(flow.cost[flow.rows(active)], speed, out=np.full(flow.size, interval_s), where=speed > 0)
    return flow.critical_path(wait + work, np.zeros(flow.pred.size) + measured.delays_s)


def backlog_grows(queue: Floats, inflow: Floats, interval_s: float) -> bool:
    """Return whether the backlog of a PE keeps growing until the end of a run.

    Parameters
    ----------
    queue, inflow : float64, shape (steps, elements)
        Messages queued at the end of each interval, and arrivals in messages per second.
    interval_s : float

    Notes
    -----
    A queue is measured in seconds of the PE's mean input. The run, and its second half alone, are divided into thirds;
    the backlog grows if, in either, the lowest queue rises from third to third and up to the end, and so does the
    highest queue, each time by more than a second and 0.1 % of the input. A queue that fills in waves and empties in
    between does not grow, unless the last wave has been rising for more than a third of the run.
    """
    levels = np.vstack((np.zeros(queue.shape[1]), queue))
    return any(_rises(levels[first:], inflow[first:], interval_s) for first in (0, len(queue) // 2))


def _rises(queue: Floats, inflow: Floats, interval_s: float) -> bool:
    if len(inflow) < 3:
        return False
    rate = inflow.mean(axis=0)
    seconds = np.divide(queue, rate, out=np.zeros_like(queue), where=rate > 0)
    ends = np.linspace(0, len(inflow), 4).astype(np.int64).tolist()
    parts = [seconds[first : last + 1] for first, last in pairwise(ends)]
    low = [*(part.min(axis=0) for part in parts), seconds[-1]]
    high = [part.max(axis=0) for part in parts]
    growth = np.concatenate((np.diff(low, axis=0), np.diff(high, axis=0)))
    return bool((growth > max(1.0, 1e-3 * len(inflow) * interval_s / 3)).all(axis=0).any())
