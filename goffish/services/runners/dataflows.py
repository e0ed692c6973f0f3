"""Dataflow jobs: a worker runs the dataflow on the simulated cloud and reports intervals as events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TextIO

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.model import Goal, known_dataflows, read_dataflow
from goffish.services.runners.attempt import Attempt
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import JobLimits
from goffish.services.runners.processes import WorkerRunner
from goffish.services.store.spec import DataflowJob

#: Maximum intervals of a job; each may be an event.
MOST_INTERVALS = 20_000


@dataclass(frozen=True)
class DataflowRunner(WorkerRunner):
    """Runner of dataflow jobs in worker processes that survive a server crash.

    Attributes
    ----------
    cloud : callable
        Returns a catalogue by name; raises `InputError`.
    """

    cloud: Callable[[str], Catalogue] = read_catalogue
    module: ClassVar = "goffish.services.runners.dataflow_worker"

    def order(self, attempt: Attempt) -> tuple[dict[str, Any], str]:
        """Return the order of a worker, and the text of the event."""
        dataflow = attempt.job.spec.dataflow
        assert dataflow is not None
        order = dataflow_order(dataflow, self.cloud(dataflow.cloud_name), attempt.job.progress, self.limits)
        return order, f"machines of {dataflow.cloud_name}, policy {dataflow.policy}"

    def reporter(self, attempt: Attempt) -> Callable[[], None]:
        """Return the writer of events."""
        dataflow = attempt.job.spec.dataflow
        assert dataflow is not None
        return EventWriter(attempt, self.cloud(dataflow.cloud_name).currency).write


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
