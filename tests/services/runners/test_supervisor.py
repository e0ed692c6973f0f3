"""What becomes of jobs whose workers are lost: tried again, given up, or cancelled as they were asked to be."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from goffish import from_edges, partition
from goffish.services.jobs.database import open_database
from goffish.services.jobs.lifecycle import State
from goffish.services.jobs.spec import GraphJob, JobSpec
from goffish.services.jobs.store import Job
from goffish.services.runners import worker
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.processes import lost, order_of
from goffish.services.runners.supervisor import PatientJobs, Supervisor

LOST = Ended(State.QUEUED, "its worker was lost", lost=True)


class Given:
    """A runner whose attempts end as a test says."""

    def __init__(self, ends: Callable[[Attempt], Ended]) -> None:
        self._ends = ends

    def run(self, attempt: Attempt) -> Ended:
        attempt.move(State.PROVISIONING)
        attempt.move(State.RUNNING)
        why = attempt.stops()
        return self._ends(attempt) if why is None else attempt.ended(why)


def ended(folder: Path, ends: Callable[[PatientJobs, Attempt], Ended], attempts: int) -> Job:
    """The job when it is over."""
    engine = open_database(f"sqlite:///{folder / 'jobs.sqlite'}")
    jobs = PatientJobs(engine, "here")
    asked = {"graph": {"algorithm": "bfs", "input_uri": "g"}, "most_attempts": attempts}
    job, _ = jobs.submit(JobSpec.model_validate(asked), "ann")
    supervisor = Supervisor(jobs, folder / "jobs", {"local": Given(lambda attempt: ends(jobs, attempt))})
    supervisor.start()
    end = time.monotonic() + 20
    while not (found := jobs.get(job.id)).over and time.monotonic() < end:
        time.sleep(0.05)
    supervisor.stop(1)
    engine.dispose()
    return found


def test_a_lost_job_that_was_cancelled_is_not_tried_again(tmp_path: Path) -> None:
    """Breaks when a request to stop is forgotten because the worker was lost before it was heard of."""

    def ends(jobs: PatientJobs, attempt: Attempt) -> Ended:
        jobs.cancel(attempt.job.id, "ann")
        return LOST

    found = ended(tmp_path, ends, 5)
    assert found.state == State.CANCELLED and found.losses == 1 and found.attempts == 2


def test_workers_are_not_lost_for_ever(tmp_path: Path) -> None:
    """Breaks when a job whose worker dies every time is tried without end, or fewer times than it may be."""
    found = ended(tmp_path, lambda jobs, attempt: LOST, 3)
    assert (found.state, found.losses, found.attempts) == (State.FAILED, 3, 3)
    assert "given up after 3 lost workers" in found.error


def test_a_full_disk_is_not_the_jobs_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a worker that found no room fails its job for good, or another error is taken for that."""
    folder = JobFolder(tmp_path / "job")
    turn = folder.prepare({"engine": "local"}, 1)
    for number, code in ((errno.ENOSPC, worker.NO_ROOM), (errno.EPERM, None)):

        def full(*_: object, number: int = number) -> None:
            raise OSError(number, "no room")

        monkeypatch.setattr(worker, "_run", full)
        monkeypatch.setattr(sys, "argv", ["worker", str(folder.path), turn])
        monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
        with pytest.raises(OSError if code is None else SystemExit) as caught:
            worker.main()
        if code is not None:
            assert caught.value.code == code
            found = lost(folder, code)
            assert found.state == State.QUEUED and found.lost


def test_a_damaged_checkpoint_is_not_the_jobs_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Breaks when a job fails for good because a power cut left a checkpoint that cannot be read."""
    graph = from_edges(np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 2]))
    partition(graph, parts=2, method="hash").save(tmp_path / "store")
    options = {"max_iterations": "30", "tolerance": "1e-300"}
    job = GraphJob(algorithm="pagerank", input_uri="store", options=options, checkpoint_every=7)
    order = order_of(job, str(tmp_path / "store"))
    folder = JobFolder(tmp_path / "job")
    folder.prepare(order, 1)
    first = worker._run(folder, order).table
    assert "warning" not in capfd.readouterr().err
    for part in folder.checkpoints.glob("step-*/*.npz"):
        part.write_bytes(b"")
    again = worker._run(folder, order).table
    assert again.equals(first) and "damaged checkpoint" in capfd.readouterr().err
    assert worker._run(folder, order).table.equals(first) and "warning" not in capfd.readouterr().err
