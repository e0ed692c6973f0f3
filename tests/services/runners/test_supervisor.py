"""What becomes of jobs whose workers are lost: tried again, given up, or cancelled as they were asked to be."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from goffish import from_edges, partition
from goffish.errors import JobError
from goffish.services.runners import supervisor as supervisor_module
from goffish.services.runners import worker
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import JobLimits
from goffish.services.runners.order import Files, order_of
from goffish.services.runners.processes import lost
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import Clock, Job, State
from goffish.services.store.spec import GraphJob, JobSpec
from goffish.services.store.store import Jobs, UnknownJob
from goffish.services.store.tables import JobRow

LOST = Ended(State.QUEUED, "worker lost", lost=True)


def spec(**more: Any) -> JobSpec:
    """Of a job that is run as a test says."""
    return JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g"}, **more})


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


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
    assert "aborted after 3 lost workers" in found.error


def test_a_full_disk_is_not_the_jobs_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a worker that found no room fails its job for good, or another error is taken for that."""
    folder = JobFolder(tmp_path / "job")
    turn = folder.prepare({"engine": "local", "limits": {}}, 1)
    for number, code in ((errno.ENOSPC, worker.DISK_FULL), (errno.EPERM, None)):

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
            assert found.state == State.QUEUED and found.pause and not found.lost


def small_order(folder: Path) -> dict[str, Any]:
    """What a worker is told of a small job with checkpoints."""
    graph = from_edges(np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 2]))
    partition(graph, parts=2, method="hash").save(folder / "store")
    options = {"max_iterations": "30", "tolerance": "1e-300"}
    job = GraphJob(algorithm="pagerank", input_uri="store", options=options, checkpoint_every=7)
    return order_of(job, Files.of(job, lambda _: str(folder / "store")), JobLimits())


def test_a_damaged_checkpoint_is_not_the_jobs_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Breaks when a job fails for good because a power cut left a checkpoint that cannot be read."""
    order = small_order(tmp_path)
    folder = JobFolder(tmp_path / "job")
    folder.prepare(order, 1)
    first = worker._run(folder, order).table
    assert "warning" not in capfd.readouterr().err
    for part in folder.checkpoints.glob("step-*/*.npz"):
        part.write_bytes(b"")
    again = worker._run(folder, order).table
    assert again.equals(first) and "damaged checkpoint" in capfd.readouterr().err
    assert worker._run(folder, order).table.equals(first) and "warning" not in capfd.readouterr().err


class Away(PatientJobs):
    """A database that does not answer the first questions of each kind."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in ("unfinished", "claim", "expire", "over_since", "forget"):
            self.asked[name] += 1
            if self.asked[name] <= 2:
                error = [OperationalError("x", {}, Exception("gone")), PoolTimeout("no connection"), RuntimeError("?")]
                raise error[(len(name) + self.asked[name]) % 3]
        return super().__getattribute__(name)


def test_a_database_that_is_away_stops_nobody_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when one answer that nobody expected ends the thread that takes jobs from the queue."""
    for name in ("_AGAIN_S", "_LOOK_S"):
        monkeypatch.setattr(supervisor_module, name, 0.05)
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs = Away(engine, "here")
    forgotten = jobs.submit(spec(), "ann")[0]
    supervisor = Supervisor(jobs, tmp_path, {"local": Given(lambda attempt: Ended(State.DONE, "1 row"))}, keep_s=0.2)
    supervisor.start()
    until(lambda: jobs.asked["forget"] > 2 and not list(jobs.find()), 20)
    later = jobs.submit(spec(), "ann")[0]
    until(lambda: later.id not in {job.id for job in jobs.find(states=[State.QUEUED])}, 20)
    supervisor.stop(1)
    engine.dispose()
    with pytest.raises(UnknownJob):
        jobs.get(forgotten.id)


def test_a_job_that_the_server_cannot_look_after_is_given_up(tmp_path: Path) -> None:
    """Breaks when a mistake of ours runs a job again and again without end."""

    def ends(jobs: PatientJobs, attempt: Attempt) -> Ended:
        raise RuntimeError("oops")

    found = ended(tmp_path, ends, 3)
    assert (found.state, found.losses) == (State.FAILED, 3) and "RuntimeError" in found.error


def test_a_job_that_servers_die_of_is_given_up(tmp_path: Path) -> None:
    """Breaks when a job that takes the server with it every time is taken up without end."""
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs = PatientJobs(engine, "here")
    asked = {"graph": {"algorithm": "bfs", "input_uri": "g"}, "most_attempts": 1}
    job, _ = jobs.submit(JobSpec.model_validate(asked), "ann")
    for _ in range(30):
        if jobs.get(job.id).over:
            break
        for one in jobs.claim():
            assert one.id == job.id
        # The next server finds it where the one before was killed.
        supervisor = Supervisor(jobs, tmp_path / "jobs", {}, slots=1)
        supervisor._go_on(jobs.get(job.id))
    found = jobs.get(job.id)
    assert (found.state, found.attempts) == (State.FAILED, 10) and "aborted after 10 attempts" in found.error
    engine.dispose()


def test_a_job_that_nobody_works_at_is_taken_up(tmp_path: Path) -> None:
    """Breaks when a job whose claim was answered with an error waits for the next start of the server."""
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs = PatientJobs(engine, "here")
    supervisor = Supervisor(jobs, tmp_path / "jobs", {"local": Given(slowly)})
    supervisor.start()
    job = jobs.submit(spec(), "ann")[0]
    Jobs(engine, "here").claim()
    until(lambda: jobs.get(job.id).over, 20)
    assert jobs.get(job.id).attempts <= 2
    supervisor.stop(1)
    engine.dispose()


def slowly(attempt: Attempt) -> Ended:
    """Until it is asked to stop, at most ten seconds."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        why = attempt.stops()
        if why is not None:
            return attempt.ended(why)
        time.sleep(0.02)
    return Ended(State.DONE, "1 row")


def test_deadlines_that_pass_in_the_queue(tmp_path: Path) -> None:
    """Breaks when a job that waits is not over by its deadline, or one that begins too late is begun."""
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    heard: list[str] = []
    jobs = PatientJobs(engine, "here", heard=heard.append)
    supervisor = Supervisor(jobs, tmp_path / "jobs", {"local": Given(slowly)}, slots=1)
    first, late, never = (jobs.submit(spec(deadline_s=limit), "ann")[0] for limit in (None, 0.3, 100))
    heard.clear()
    supervisor.start()
    until(lambda: all(jobs.get(job.id).over for job in (first, late, never)), 20)
    supervisor.stop(1)
    assert [jobs.get(job.id).state for job in (first, late, never)] == [State.DONE, State.FAILED, State.DONE]
    found = jobs.get(late.id)
    assert (
        found.attempts == 0
        and "deadline exceeded: 0.3 s after submission, while queued" in found.error
        and late.id in heard
    )
    engine.dispose()


def test_another_server_of_the_database_asks_a_job_to_stop(tmp_path: Path) -> None:
    """Breaks when a job that is cancelled where it does not run goes on."""
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs = PatientJobs(engine, "here")
    waits = threading.Event()

    def runs(attempt: Attempt) -> Ended:
        while (why := attempt.stops()) is None and not waits.wait(0.02):
            pass
        return attempt.ended(why) if why is not None else Ended(State.DONE, "1 row")

    supervisor = Supervisor(jobs, tmp_path / "jobs", {"local": Given(runs)})
    job = jobs.submit(spec(), "ann")[0]
    supervisor.start()
    until(lambda: jobs.get(job.id).state == State.RUNNING, 10)
    Jobs(engine, "there").cancel(job.id, "ann")
    try:
        until(lambda: jobs.get(job.id).state == State.CANCELLED, 10)
        until(lambda: not supervisor._asked, 10)
        assert jobs.get(job.id).attempts == 1
    finally:
        waits.set()
        supervisor.stop(1)
        engine.dispose()


@pytest.mark.slow
def test_a_full_disk_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """Breaks when a job fails for good because the disk was full for a moment, or that is taken for a lost worker."""
    order = small_order(tmp_path)
    folder = JobFolder(tmp_path / "job")
    turn = folder.prepare(order, 1)

    # Its log is on the same disk.
    script = "import os, errno, sys, numpy as np\n"
    script += "def full(*_, **__): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
    script += "np.savez = full\nfrom goffish.services.runners import worker\nworker.main()"
    with Path("/dev/full").open("w") as nowhere:
        code = subprocess.run([sys.executable, "-c", script, folder.path, turn], stderr=nowhere, check=False).returncode
    found = lost(folder, code)
    assert found.state == State.QUEUED and found.pause and not found.lost


def test_what_a_job_has_elsewhere_is_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Breaks when machines outlive a job that was cancelled, or has failed, after its server was killed."""
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs, forgotten = PatientJobs(engine, "here"), list[str]()

    def fails(job: Job) -> None:
        forgotten.append(job.id)
        raise JobError("its machines could not be released")

    never_begun = jobs.submit(spec(), "ann")[0]
    jobs.cancel(never_begun.id, "ann")
    for _ in range(3):
        jobs.submit(spec(deadline_s=30.0), "ann")
    cancelled, late, done = (jobs.move(one, State.QUEUED, "the server was killed") for one in jobs.claim(3))
    ends = Given(lambda attempt: Ended(State.DONE, "1 row"))
    clock = Clock()
    supervisor = Supervisor(jobs, tmp_path / "jobs", {"local": ends}, forget=(fails, lambda job: None))
    for job in (never_begun, cancelled):
        supervisor.wake(jobs.cancel(job.id, "ann"))
    with engine.begin() as held:
        held.execute(sa.update(JobRow).where(JobRow.id == late.id).values(due=clock.now() - 1.0))
    supervisor.start()
    until(lambda: jobs.get(done.id).over and jobs.get(late.id).over, 20)
    supervisor.stop(1)
    assert jobs.get(done.id).state == State.DONE and jobs.get(late.id).state == State.FAILED
    assert sorted(forgotten) == sorted([cancelled.id, late.id, done.id])
    assert f"job {cancelled.id}: its machines could not be released" in caplog.text
    engine.dispose()
