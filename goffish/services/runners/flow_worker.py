"""Worker process of flow jobs: ``python -m goffish.services.runners.flow_worker FOLDER TURN``.

It runs the flow with processes of its session, resumes from the newest checkpoint, and does again what clients have
asked of an earlier worker. The server changes the flow by its socket (`goffish.streaming.control`).
"""

from __future__ import annotations

import fcntl
import hashlib
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from goffish.errors import InputError, JobError
from goffish.services.runners.flow_folder import FlowFolder, Versions
from goffish.services.runners.flows import LOCKS, facts_of
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import limit_process
from goffish.services.runners.worker import as_worker, check_turn, finish
from goffish.services.store.records import without_folders
from goffish.streaming.embedded import Executor
from goffish.streaming.live.watch import Watch
from goffish.streaming.metrics import Metrics
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.plan import Delivery, Plan
from goffish.streaming.topology import Topology

_REPORT_S = 0.5


class _Job:
    """The flow of a job.

    Parameters
    ----------
    folder : JobFolder
    turn : str
    order : dict
    held : ExitStack
        Releases what only one job at a time may use.
    """

    def __init__(self, folder: JobFolder, turn: str, order: dict[str, Any], held: ExitStack) -> None:
        self._folder, self._turn, self._order, self._held = folder, turn, order, held
        self._flows, self._versions = FlowFolder(Path(order["flows"])), Versions(folder.path)
        sys.path.insert(0, order["flows"])
        self._loaded: dict[int, Topology] = {}
        self._locked: set[str] = set()
        self.version = int(folder.progress.get("version", 0))
        self._flow: Cluster | Executor
        self._reported, self._updates = 0.0, 0

    def load(self, text: str) -> Topology:
        """Return a version of the flow."""
        number = int(text)
        if number not in self._loaded:
            flow, locks = self._versions.load(number, self._flows)
            topology = flow.check()
            for name in locks:
                if name not in self._locked:
                    self._held.enter_context(_lock(self._folder.path.parent / LOCKS, name))
                    self._locked.add(name)
            self._loaded = {known: one for known, one in self._loaded.items() if known == self.version}
            self._loaded[number] = topology
        return self._loaded[number]

    def run(self) -> Metrics:
        """Run the flow until its sources end or it is stopped."""
        with Watch(None, self.load) as watch:
            self._flow = self._begin(watch)
            wishes = self._folder.wishes
            for operator, alternate in wishes.get("alternates", {}).items():
                if alternate in getattr(self._operators.get(operator), "alternates", ()):
                    self._flow.switch(operator, alternate)
            if wishes.get("stop"):
                self._flow.stop()
            try:
                if isinstance(self._flow, Cluster):
                    return self._flow.run(report=self._report)
                return self._flow.run(self._report)
            finally:
                self._write(self._flow.metrics())

    @property
    def _operators(self) -> dict[str, Any]:
        return {one.name: one for one in self._flow.topology.operators}

    def _begin(self, watch: Watch) -> Cluster | Executor:
        """Start the version that ran last, or the one that it was updated to when the last worker was killed."""
        asked = self._folder.wishes.get("version", self.version)
        try:
            return self._started(self.version, watch)
        except InputError:
            if asked == self.version:
                raise
        flow = self._started(asked, watch)
        self.version = asked
        return flow

    def _started(self, number: int, watch: Watch) -> Cluster | Executor:
        topology, order, checkpoints = self.load(str(number)), self._order, self._folder.checkpoints
        workers = self._folder.wishes.get("workers", order["workers"])
        begun = (checkpoints / "checkpoint.json").exists()  # by a version that ran flows with loops in one process
        if workers == 1 and (begun or _needs_one_process(topology)):
            flow = Executor(topology, checkpoints, order["checkpoint_s"], None)
            watch.attach(flow)
            return flow
        # Also of one worker, as others can join.
        return Cluster(
            topology, workers, replication=order["replication"], checkpoint_s=order["checkpoint_s"],
            checkpoint=checkpoints, watch=watch, delivery=Delivery(order["delivery"]),
        )  # fmt: skip

    def _report(self, _: str) -> None:
        if time.monotonic() >= self._reported + _REPORT_S:
            self._reported = time.monotonic()
            self._write(self._flow.metrics())

    def _write(self, metrics: Metrics) -> None:
        """Write the report that the server reads."""
        flow = self._flow
        for report in flow.updates[self._updates :]:
            if report.state == "complete":
                self.version = self._folder.wishes.get("version", self.version)
        self._updates = len(flow.updates)
        self._folder.report({
            "turn": self._turn, "time": time.time(), "version": self.version, "updating": flow.updating,
            "updates": [
                report.to_dict() | {"reason": without_folders(report.reason)} for report in flow.updates
            ],
            "metrics": metrics.to_dict(),
        })  # fmt: skip


def _needs_one_process(topology: Topology) -> bool:
    """Return whether a flow cannot run on workers, as one whose event times are set after `key_by`."""
    try:
        Plan(topology)
    except InputError:
        return True
    return False


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    """Lock what only one job at a time may use, as sinks of two would write to one place."""
    folder.mkdir(exist_ok=True)
    with (folder / hashlib.sha256(name.encode()).hexdigest()).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{name}: another job uses it; stop that job first") from None
        yield


def _attempt(folder: JobFolder, turn: str, order: dict[str, Any]) -> None:
    with folder.taken(), ExitStack() as held:
        check_turn(folder, turn)
        limit_process(order["limits"])
        if folder.done is not None:
            return
        # Without a handler, nothing would remove the sockets and temporary files of the run.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        job = _Job(folder, turn, order, held)
        metrics = job.run()
        facts = facts_of(metrics.to_dict())
        checkpoint = facts.pop("checkpoint")
        summary = {
            "flow": metrics.flow, "stopped": metrics.stopped, "savepoint": checkpoint, "version": job.version,
            "seconds": metrics.seconds, "records": facts["records"], "errors": facts["errors"],
        }  # fmt: skip
        text = f"{facts['records']:,} records"
        if metrics.stopped == "stopped":
            text = f"stopped with savepoint {checkpoint}; {text}"
        finish(folder, _result(folder.path / "records", metrics), summary, text)


def _result(records: Path, metrics: Metrics) -> pa.Table | pa.RecordBatchReader:
    """Return the records of the sink of the result, or else the metrics of the operators."""
    if not records.is_dir():
        return metrics.table
    import pyarrow.dataset as ds

    files = sorted(str(one) for one in records.glob("part-*.parquet"))
    if not files:
        return pa.table({})
    try:
        fragments = ds.dataset(files).get_fragments()
        schema = pa.unify_schemas([one.physical_schema for one in fragments], promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise JobError(f"result: its records cannot be read ({error})") from None
    return ds.dataset(files, schema=schema).scanner().to_reader()


if __name__ == "__main__":
    as_worker(_attempt)
