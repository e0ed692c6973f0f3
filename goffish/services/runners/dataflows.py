"""Dataflow jobs: a worker runs the dataflow on the simulated cloud and reports intervals as events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from goffish.cloud.catalogue import Catalogue
from goffish.environment import child_environment
from goffish.errors import InputError
from goffish.scheduling.dataflow.model import Goal, known_dataflows, read_dataflow
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.folder import Busy, JobFolder
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.processes import (
    concluded,
    end_worker,
    lost,
    over_limit,
    start,
    worker_command,
)
from goffish.services.store.records import State
from goffish.services.store.spec import DataflowJob

_LOOK_S = 0.1
#: Interval of progress events, in seconds.
_REPORT_S = 1.0
#: Maximum intervals of a job; each may be an event.
MOST_INTERVALS = 20_000
_WORKER = "goffish.services.runners.dataflow_worker"


@dataclass(frozen=True)
class DataflowRunner:
    """Runner of dataflow jobs in worker processes that survive a server crash.

    Attributes
    ----------
    cloud : callable
        Returns a catalogue by name; raises `InputError`.
    limits : JobLimits
    environment : mapping
        Environment variables of the workers.
    """

    cloud: Callable[[str], Catalogue]
    limits: JobLimits = UNLIMITED
    environment: Mapping[str, str] = field(default_factory=child_environment)

    def run(self, attempt: Attempt) -> Ended:
        """Start a worker, or reattach to the worker of an earlier server, and monitor it."""
        folder, job = attempt.folder, attempt.job
        dataflow = job.spec.dataflow
        assert dataflow is not None
        catalogue, process = self.cloud(dataflow.cloud_name), None
        if folder.done is None and not folder.busy:
            order = dataflow_order(dataflow, catalogue, job.progress, self.limits)
            try:
                turn = folder.prepare(order, job.attempts)
            except Busy:
                pass
            else:
                attempt.move(State.PROVISIONING, f"machines of {dataflow.cloud_name}, policy {dataflow.policy}")
                process = start(worker_command(folder.path, turn, _WORKER), folder, self.environment)
        if attempt.job.state == State.PLANNED:
            attempt.move(State.PROVISIONING, "worker already running")
        if attempt.job.state == State.PROVISIONING:
            text = "reattached to the worker" if process is None else f"process {process.pid}"
            attempt.move(State.RUNNING, text)
        events, next_write = EventWriter(attempt, catalogue.currency), 0.0
        ended: Ended | None = None
        while process.poll() is None if process is not None else folder.busy:
            if time.monotonic() >= next_write:
                events.write()
                ended = over_limit(folder, self.limits.memory_mb, None)
                next_write = time.monotonic() + _REPORT_S
            why = attempt.stops()
            ended = ended if why is None else attempt.ended(why)
            if ended is not None:
                end_worker(folder, process)
                break
            time.sleep(_LOOK_S)
        events.write()
        if attempt.stops() == "budget":
            return attempt.ended("budget")
        return concluded(folder) or ended or lost(folder, None if process is None else process.returncode)


def dataflow_order(job: DataflowJob, catalogue: Catalogue, known: int, limits: JobLimits) -> dict[str, Any]:
    """Return the order of a worker; `known` intervals were reported before."""
    return {
        "job": _defined(job).model_dump(mode="json"), "cloud": catalogue.model_dump(mode="json"), "known": known,
        "limits": limits.order(None),
    }  # fmt: skip


def _defined(job: DataflowJob) -> DataflowJob:
    """Inline the definition of a named dataflow, so that workers open no files by client-given names."""
    name = job.dataflow
    if isinstance(name, str) and name not in known_dataflows():
        raise InputError(f"dataflow_name: unknown {name!r}; choose one of {', '.join(known_dataflows())}")
    return job.model_copy(update={"dataflow": read_dataflow(name)})


def intervals_of(job: DataflowJob, goal: Goal) -> int:
    """Return the number of intervals of a job.

    Raises
    ------
    InputError
        Less than 1, or more than `MOST_INTERVALS`.
    """
    hours = goal.period_h if job.hours is None else job.hours
    found = round(min(hours * 3600.0 / goal.interval_s, 1e12))
    if not 1 <= found <= MOST_INTERVALS:
        text = f"hours: {hours:g} are {found:,} intervals of {goal.interval_s:g} s"
        raise InputError(f"{text}; 1 to {MOST_INTERVALS:,} are accepted")
    return found


class Journal:
    """Journal of the intervals with changes, one line of JSON each.

    Parameters
    ----------
    folder : JobFolder
    turn : str
        Turn of the worker; each worker writes a separate journal.
    """

    def __init__(self, folder: JobFolder, turn: str) -> None:
        self._path = folder.path / f"plans-{turn}.jsonl"
        self._read = 0

    def open(self) -> TextIO:
        """Create the journal."""
        return self._path.open("w")

    def news(self) -> Iterator[dict[str, Any]]:
        """Iterate over complete entries written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._read += len(line)
                    yield json.loads(line)
        except FileNotFoundError:
            return


class EventWriter:
    """Writer of events from the journal and progress of a worker.

    Parameters
    ----------
    attempt : Attempt
    currency : str
        Currency of the cloud.
    """

    def __init__(self, attempt: Attempt, currency: str) -> None:
        self._attempt, self._currency = attempt, currency
        self._turn = attempt.folder.turn
        self._journal = Journal(attempt.folder, self._turn)

    def write(self) -> None:
        """Write events for new entries."""
        attempt = self._attempt
        # Read the progress first: the journal then covers all its intervals.
        report = attempt.folder.progress
        for one in self._journal.news():
            if one["interval"] >= attempt.job.progress:
                columns = {"progress": one["interval"] + 1, "cost": one["cost"], "currency": self._currency}
                if "expected_cost" in one:
                    columns["expected_cost"] = one["expected_cost"]
                attempt.note("plan", _text(one, self._currency), one, **columns)
        done = report.get("intervals", 0) if report.get("turn") == self._turn else 0
        if done > attempt.job.progress:
            text = f"interval {done:,} of {report['of']:,}"
            attempt.note("progress", text, report, progress=done, cost=report["cost"])


def _text(one: dict[str, Any], currency: str) -> str:
    """Return the text of the event of an interval."""
    counts = {**one["counts"], "switched": len(one["switched"])}
    parts = [
        f"{counts[name]} {what}"
        for name, what in (
            ("started", "machines started"),
            ("stopped", "stopped"),
            ("lost", "lost"),
            ("switched", "alternates switched"),
        )
        if counts[name]
    ]
    if one["instances_moved"]:
        parts.append(f"{one['instances_moved']} instances moved")
    changed = ", ".join(parts) or "no changes"
    return (
        f"interval {one['interval']:,}: {changed}; throughput {one['throughput']:.3f}, {one['machines']} machines, "
        f"{one['cost']:.4g} {currency} so far"
    )
