"""Dataflow jobs: a worker carries the plans of a policy out on the simulated cloud, and its steps become events."""

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
#: How often it is told how far a job is.
_TELL_S = 1.0
#: Of one job: each may be an event.
MOST_INTERVALS = 20_000
_WORKER = "goffish.services.runners.dataflow_worker"


@dataclass(frozen=True)
class DataflowRunner:
    """Runs attempts at dataflow jobs, each as a process that outlives a server that is killed.

    Attributes
    ----------
    cloud : callable
        A catalogue by its name; raises `InputError`.
    limits : JobLimits
    environment : mapping
        Of the workers.
    """

    cloud: Callable[[str], Catalogue]
    limits: JobLimits = UNLIMITED
    environment: Mapping[str, str] = field(default_factory=child_environment)

    def run(self, attempt: Attempt) -> Ended:
        """Start a worker, or find the one that an earlier server started, and look after it."""
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
                attempt.move(State.PROVISIONING, f"machines of {dataflow.cloud_name}, by {dataflow.policy}")
                process = start(worker_command(folder.path, turn, _WORKER), folder, self.environment)
        if attempt.job.state == State.PLANNED:
            attempt.move(State.PROVISIONING, "its worker is there already")
        if attempt.job.state == State.PROVISIONING:
            told = "found again" if process is None else f"process {process.pid}"
            attempt.move(State.RUNNING, told)
        teller, next_tell = Teller(attempt, catalogue.currency), 0.0
        ended: Ended | None = None
        while process.poll() is None if process is not None else folder.busy:
            if time.monotonic() >= next_tell:
                teller.tell()
                ended = over_limit(folder, self.limits.memory_mb, None)
                next_tell = time.monotonic() + _TELL_S
            why = attempt.stops()
            ended = ended if why is None else attempt.ended(why)
            if ended is not None:
                end_worker(folder, process)
                break
            time.sleep(_LOOK_S)
        teller.tell()
        if attempt.stops() == "budget":
            return attempt.ended("budget")
        return concluded(folder) or ended or lost(folder, None if process is None else process.returncode)


def dataflow_order(job: DataflowJob, catalogue: Catalogue, known: int, limits: JobLimits) -> dict[str, Any]:
    """What a worker is given; `known` intervals were told of before."""
    return {
        "job": _defined(job).model_dump(mode="json"), "cloud": catalogue.model_dump(mode="json"), "known": known,
        "limits": limits.order(None),
    }  # fmt: skip


def _defined(job: DataflowJob) -> DataflowJob:
    """The job with the definition of its dataflow, so that its worker opens nothing by a name that a client gave."""
    name = job.dataflow
    if isinstance(name, str) and name not in known_dataflows():
        raise InputError(f"dataflow_name: nothing called {name!r}; there are: {', '.join(known_dataflows())}")
    return job.model_copy(update={"dataflow": read_dataflow(name)})


def intervals_of(job: DataflowJob, goal: Goal) -> int:
    """Intervals of a job's run.

    Raises
    ------
    InputError
        None, or more than `MOST_INTERVALS`.
    """
    hours = goal.period_h if job.hours is None else job.hours
    found = round(min(hours * 3600.0 / goal.interval_s, 1e12))
    if not 1 <= found <= MOST_INTERVALS:
        told = f"hours: {hours:g} are {found:,} intervals of {goal.interval_s:g} s"
        raise InputError(f"{told}; 1 to {MOST_INTERVALS:,} are accepted")
    return found


class Journal:
    """The intervals of a worker in which something changed, a line of JSON each.

    Parameters
    ----------
    folder : JobFolder
    turn : str
        Of the worker: each writes a journal of its own.
    """

    def __init__(self, folder: JobFolder, turn: str) -> None:
        self._path = folder.path / f"plans-{turn}.jsonl"
        self._read = 0

    def open(self) -> TextIO:
        """Begin it."""
        return self._path.open("w")

    def news(self) -> Iterator[dict[str, Any]]:
        """What was written since the last call, as far as the lines are whole."""
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


class Teller:
    """Writes down what a worker says, beyond what was written down before.

    Parameters
    ----------
    attempt : Attempt
    currency : str
        Of its cloud.
    """

    def __init__(self, attempt: Attempt, currency: str) -> None:
        self._attempt, self._currency = attempt, currency
        self._turn = attempt.folder.turn
        self._journal = Journal(attempt.folder, self._turn)

    def tell(self) -> None:
        """Events of what is new."""
        attempt = self._attempt
        # Read before the journal: what happened in the intervals that it counts is in there then.
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
    """What changed in an interval, in words."""
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
    changed = ", ".join(parts) or "nothing to change"
    return (
        f"interval {one['interval']:,}: {changed}; throughput {one['throughput']:.3f}, {one['machines']} machines, "
        f"{one['cost']:.4g} {currency} so far"
    )
