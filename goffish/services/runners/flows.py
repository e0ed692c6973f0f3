"""Flow jobs: a worker runs a flow on processes of the server, with checkpoints in the folder of the job."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil

from goffish.errors import InputError
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.flow_folder import FlowFolder, Resolve, Versions, check_description
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.processes import WorkerRunner, over_limit, processes_of
from goffish.services.store.records import State
from goffish.services.store.spec import FlowJob

#: Seconds between two measurements of the size of a folder.
_MEASURES_S = 5.0
#: Progress events are at least so many seconds apart, and at least this share of the running time.
_REPORT_S, _REPORT_SHARE = 1.0, 0.01
_ENDS_S = 10.0
#: Folder of the locks of what only one job at a time may use, beside the folders of jobs.
LOCKS = ".flow-locks"
NO_FLOWS = "this server offers no flows; its operator must set --flows"
#: Modules of the processes that a worker starts.
_PROCESSES = {"goffish.streaming.runtime.process", "goffish.streaming.runtime.template"}


@dataclass(frozen=True)
class FlowRunner(WorkerRunner):
    """Runner of flow jobs.

    Attributes
    ----------
    flows : FlowFolder, optional
        Flows that clients may run; without it, flows that run already are monitored only.
    resolve : callable
        Resolves the name of an input to a path; raises `InputError`.
    """

    flows: FlowFolder | None = None
    resolve: Resolve = str
    module: ClassVar = "goffish.services.runners.flow_worker"

    def order(self, attempt: Attempt) -> tuple[dict[str, Any], str]:
        """Return the order of a worker, after processes of the last one have ended."""
        folder, flow = attempt.folder, attempt.job.spec.flow
        assert flow is not None
        if self.flows is None:
            raise InputError(NO_FLOWS)
        _end_orphans(folder)
        folder.path.mkdir(parents=True, exist_ok=True)
        if 0 not in Versions(folder.path):  # last, as it marks the folder as complete
            if flow.resume_from is not None:
                _copy_savepoint(JobFolder(folder.path.parent / flow.resume_from), folder)
            add_version(folder, 0, self.flows, flow, self.resolve)
        order = {
            "flows": str(self.flows.path), "workers": flow.operator_workers or flow.workers,
            "replication": flow.replication, "delivery": flow.delivery, "checkpoint_s": flow.checkpoint_s,
            "limits": self.limits.order(flow),
            "names": {str(folder.path): f"job {attempt.job.id}"},
        }  # fmt: skip
        return order, f"{flow.processes} worker{'s' * (flow.processes != 1)}"

    def reporter(self, attempt: Attempt) -> Callable[[], None]:
        """Return the writer of events."""
        return EventWriter(attempt).write

    def exceeded(self, attempt: Attempt) -> Ended | None:
        """Return the outcome if the job exceeds its limit of memory or storage."""
        flow, folder = attempt.job.spec.flow, attempt.folder
        most_mb = self.limits.storage_mb
        # Progress is reported more often than a folder with many files should be measured.
        if most_mb is not None and time.monotonic() % _MEASURES_S < _REPORT_S:
            used = _size(folder.path) >> 20
            if used > most_mb:
                return Ended(
                    State.FAILED, f"storage limit exceeded: {used:,} MB used, {most_mb:,} MB allowed (--max-storage)"
                )
        return over_limit(folder, self.limits.memory_of(flow), None)


def add_version(folder: JobFolder, number: int, flows: FlowFolder, flow: FlowJob, resolve: Resolve) -> None:
    """Write a version of the flow of a job.

    Parameters
    ----------
    folder : JobFolder
    number : int
    flows : FlowFolder
    flow : FlowJob
        With the name or the description.
    resolve : callable
        Resolves the name of an input to a path.

    Raises
    ------
    InputError
        The name or the description is not accepted.
    """
    versions = Versions(folder.path)
    if flow.flow is not None:
        file = flows.file(flow.flow)
        versions.add(number, file.read_bytes(), file.suffix)
    else:
        assert flow.definition is not None
        paths = check_description(flows, flow.definition, resolve, flow.processes)
        body = {"definition": flow.definition, "paths": paths}
        versions.add(number, json.dumps(body).encode(), ".json")


def _copy_savepoint(earlier: JobFolder, folder: JobFolder) -> None:
    """Copy the checkpoint and the published records of an ended job."""
    if not earlier.checkpoints.is_dir():
        raise InputError(f"resume_from: job {earlier.path.name} has no checkpoint")
    Versions(folder.path).copy(earlier.path)
    partial = folder.path / "copied"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(earlier.checkpoints, partial)
    records = earlier.path / "records"
    if records.is_dir():
        shutil.rmtree(folder.path / "records", ignore_errors=True)
        shutil.copytree(records, folder.path / "records")
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    partial.rename(folder.checkpoints)


def _end_orphans(folder: JobFolder) -> None:
    """Kill processes of a worker that was killed: they must not publish anything after the next one has started."""
    session = folder.session
    found = [] if session is None else list(processes_of(session))
    orphans = []
    for one in found:
        try:
            # The number of a session can belong to others once all its processes have ended.
            if not _PROCESSES.isdisjoint(one.cmdline()):
                one.kill()
                orphans.append(one)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(orphans, _ENDS_S)


def _size(folder: Path) -> int:
    """Return the size of all files in a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_blocks * 512
            except FileNotFoundError:  # removed meanwhile
                continue
    return total


class EventWriter:
    """Writer of events from the reports of a worker.

    Parameters
    ----------
    attempt : Attempt
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._turn = attempt.folder.turn
        self._last = 0.0
        report = attempt.folder.progress
        # An earlier server has written events of these.
        self._updates = len(report["updates"]) if report.get("turn") == self._turn else 0
        self._workers: int | None = None

    def write(self) -> None:
        """Write events for what is new."""
        attempt = self._attempt
        report = attempt.folder.progress
        if report.get("turn") != self._turn:
            return
        metrics = report["metrics"]
        for update in report["updates"][self._updates :]:
            text = f"{update['state']}: {update['changes']}"
            if update["state"] == "aborted":
                text += f"; the flow continues without the update: {update['reason']}"
            attempt.note("update", text, update)
        self._updates = len(report["updates"])
        joined = sum(one["joined"] for one in metrics["workers"])
        if joined and joined == len(metrics["workers"]) != self._workers:
            if self._workers is not None:
                attempt.note("scale", f"{joined} workers", {"workers": joined})
            self._workers = joined
        due = self._last + max(_REPORT_S, _REPORT_SHARE * metrics["seconds"])
        if time.monotonic() >= due and metrics["records"] != attempt.job.progress:
            self._last = time.monotonic()
            facts = facts_of(metrics)
            text = f"{facts['records']:,} records, {facts['rate']:,.0f}/s"
            attempt.note("progress", text, facts, progress=facts["records"])


def facts_of(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return totals of the metrics of a flow.

    Parameters
    ----------
    metrics : dict
        As `Metrics.to_dict` returns them.

    Returns
    -------
    dict
    """
    return {
        "records": metrics["records"], "rate": metrics["recent_rate"],
        "errors": sum(one["errors"] for one in metrics["operators"]),
        "queued": sum(one["queue"] for one in metrics["operators"]),
        "workers": len(metrics["workers"]), "checkpoint": metrics["checkpoint"],
    }  # fmt: skip
