"""Supervisor: run queued jobs to completion, and recover after a crash.

Every state change is committed before it takes effect. After a crash, the server handles each unfinished job in one of
three ways: it records an existing result, reattaches to a running worker, or requeues the job, which resumes from its
newest checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tenacity import RetryCallState, retry, retry_if_exception_type, wait_exponential

from goffish.errors import GoffishError
from goffish.services.runners.attempt import Attempt, Ended, Runner
from goffish.services.runners.folder import JobFolder, is_disk_full
from goffish.services.runners.order import as_named
from goffish.services.store.database import AWAY
from goffish.services.store.records import OVER, Clock, Job, LostJob, State, without_folders
from goffish.services.store.store import Jobs

_log = logging.getLogger(__name__)
#: Maximum interval between checks for new jobs, in seconds.
_LOOK_S = 1.0
#: Maximum time of retries while the database is unavailable, normally and during shutdown, in seconds.
_PATIENCE_S, _HURRY_S = 600.0, 5.0
_AGAIN_S = 5.0
#: Maximum number of attempts, as a multiple of `JobSpec.most_attempts`.
_MOST_BEGUN = 10
_LONGEST_PAUSE_S = 10.0
#: Interval of the deletion of expired jobs, in seconds, and maximum jobs per run.
_TIDY_S, _TIDY_JOBS = 600.0, 1000
#: Transitions of an unfinished job towards completion.
_ONWARD = {
    State.PLANNED: State.PROVISIONING, State.PROVISIONING: State.RUNNING, State.MIGRATING: State.RUNNING,
    State.CHECKPOINTED: State.RUNNING,
}  # fmt: skip


def _gives_up(state: RetryCallState) -> bool:
    jobs: PatientJobs = state.args[0]
    limit = _HURRY_S if jobs.hurry.is_set() else _PATIENCE_S
    return (state.seconds_since_start or 0.0) >= limit


def public(folder: JobFolder, text: str) -> str:
    """Replace server paths in a text of a job by the client-given names."""
    names: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        names = json.loads(folder.order.read_text())["names"]
    return without_folders(as_named(text, names))


patient = retry(
    retry=retry_if_exception_type(AWAY), stop=_gives_up, wait=wait_exponential(0.1, max=_AGAIN_S), reraise=True
)


class PatientJobs(Jobs):
    """Job store whose writes wait while the database is locked or unavailable.

    Attributes
    ----------
    hurry : Event
        Set to shorten the waits during shutdown.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.hurry = threading.Event()

    move = patient(Jobs.move)
    note = patient(Jobs.note)


class Supervisor:
    """Supervisor of the jobs of a server.

    Parameters
    ----------
    jobs : PatientJobs
    home : Path
        Parent of the job folders.
    runners : mapping
        Runners by name, as in `JobSpec.runner`.
    slots : int
        Maximum number of concurrent jobs.
    keep_s : float, optional
        Retention of ended jobs and their results; default: unlimited.
    forget : sequence of callables
        Called with each job that was begun and has ended, to end what it still has elsewhere; again when it is deleted.
    tidy : callable, optional
        Called with the time before which unused uploads may be deleted.
    clock : Clock, optional
    max_run_s : float
        Maximum duration of a job from its first start.
    """

    def __init__(
        self,
        jobs: PatientJobs,
        home: Path,
        runners: Mapping[str, Runner],
        *,
        slots: int = 2,
        keep_s: float | None = None,
        forget: Sequence[Callable[[Job], None]] = (),
        tidy: Callable[[float], None] | None = None,
        clock: Clock | None = None,
        max_run_s: float = float("inf"),
    ) -> None:
        self._most_run_s = max_run_s
        self._jobs, self._home, self._runners, self._slots = jobs, home, runners, slots
        self._clock = clock or Clock()
        self._keep_s, self._next_tidy, self._tidy_more = keep_s, 0.0, tidy
        self._next_look, self._forget_with = 0.0, forget
        self._stopping, self._draining, self._news = threading.Event(), threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="job")
        #: Forgets jobs that have ended while queued, as all slots may be taken.
        self._rest = ThreadPoolExecutor(1, thread_name_prefix="forget")
        #: Jobs being run.
        self._at: set[str] = set()
        #: Jobs with a cancellation request.
        self._asked: set[str] = set()
        self._thread = threading.Thread(target=self._serve, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the supervisor; it first recovers unfinished jobs."""
        self._thread.start()

    def wake(self, job: Job | None = None) -> None:
        """Signal a new job or a cancellation request."""
        if job is not None and job.over:
            self._rest.submit(self._forget, job)
        elif job is not None and job.cancel_requested:
            self._asked.add(job.id)
        self._news.set()

    def stop(self, grace_s: float = 10.0) -> None:
        """Stop taking jobs, wait for running jobs, and requeue those not completed in time."""
        self._stopping.set()
        self._news.set()
        end = time.monotonic() + grace_s
        while self._at and time.monotonic() < end:
            time.sleep(0.05)
        self._draining.set()
        self._jobs.hurry.set()
        self._thread.join()
        self._pool.shutdown(wait=True)
        self._rest.shutdown(wait=True)

    @property
    def running(self) -> int:
        """Number of jobs being run."""
        return len(self._at)

    def folder(self, job: str) -> JobFolder:
        """Return the folder of a job."""
        return JobFolder(self._home / job)

    def log(self, job: str, most_bytes: int) -> str:
        """Return the end of a job's log without server paths."""
        folder = self.folder(job)
        return public(folder, folder.log_end(most_bytes))

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self._look_round()
            except AWAY as error:
                _log.warning("database unavailable: %s", error)
                self._stopping.wait(_AGAIN_S)
            except Exception:
                _log.exception("supervision of jobs failed; retrying")
                self._stopping.wait(_AGAIN_S)
            if not self._stopping.is_set():
                self._news.wait(_LOOK_S)

    def _look_round(self) -> None:
        """Start queued jobs; once per second, recover abandoned jobs and read cancellation requests."""
        if time.monotonic() >= self._next_look:
            self._look_after_all()
            self._next_look = time.monotonic() + _LOOK_S
        free = self._slots - len(self._at)
        for job in self._jobs.claim(free) if free > 0 else ():
            self._submit(self._begin, job)

    def _look_after_all(self) -> None:
        at = set(self._at)
        unfinished = self._jobs.unfinished()
        self._asked.update(job.id for job in unfinished if job.cancel_requested)
        # Forget ended jobs; recent requests are read again within a second.
        self._asked.intersection_update({job.id for job in unfinished})
        for job in unfinished:
            if job.id not in at:
                self._submit(self._go_on, job)
        for job in self._jobs.expire():
            self._rest.submit(self._forget, job)
        self._tidy()

    def _tidy(self) -> None:
        """Delete expired jobs periodically."""
        now = self._clock.now()
        if self._keep_s is None or now < self._next_tidy:
            return
        for job in self._jobs.over_since(now - self._keep_s, _TIDY_JOBS):
            self._forget(job)
            shutil.rmtree(self.folder(job.id).path, ignore_errors=True)
            self._jobs.forget(job)
        if self._tidy_more is not None:
            self._tidy_more(now - self._keep_s)
        self._next_tidy = now + min(_TIDY_S, self._keep_s)

    def _submit(self, work: Callable[[Job], None], job: Job) -> None:
        self._at.add(job.id)
        self._pool.submit(self._work, work, job)

    def _work(self, work: Callable[[Job], None], job: Job) -> None:
        try:
            work(job)
        except LostJob as error:
            _log.warning("%s", error)
        except Exception:
            # The job stays unfinished in the database and is recovered later.
            _log.exception("supervision of job %s failed; retrying", job.id)
            self._stopping.wait(_AGAIN_S)
        finally:
            self._at.discard(job.id)
            self._news.set()

    def _go_on(self, job: Job) -> None:
        """Recover a job that was abandoned by a killed server or after an error."""
        folder = self.folder(job.id)
        if folder.done is None and not folder.busy:
            self._conclude(job, self._after_loss(job, "the server was killed", lost=False))
            return
        self._begin(job)

    def _begin(self, job: Job) -> None:
        folder = self.folder(job.id)
        attempt = Attempt(self._jobs, job, folder, self._clock, self._draining, self._asked, self._most_run_s)
        try:
            ended = self._runners[job.spec.runner].run(attempt)
        except (LostJob, *AWAY):
            raise
        except GoffishError as error:
            ended = Ended(State.FAILED, str(error))
        except OSError as error:
            # No disk space or no processes: not caused by the job.
            ended = Ended(State.QUEUED, f"{error.strerror or error}", lost=not is_disk_full(error), pause=True)
        except Exception as error:
            _log.exception("job %s: internal error", job.id)
            text = f"internal server error ({type(error).__name__}); see the server log"
            ended = Ended(State.QUEUED, text, lost=True)
        if ended.state == State.QUEUED and (ended.lost or ended.pause):
            ended = self._after_loss(attempt.job, ended.text, lost=ended.lost)
            # Back off: the cause of lost workers may be temporary.
            pause_s = 0.1 * 2.0**attempt.job.losses if ended.lost else _LONGEST_PAUSE_S
            self._stopping.wait(min(_LONGEST_PAUSE_S, pause_s))
        self._conclude(attempt.job, ended)

    def _after_loss(self, job: Job, text: str, *, lost: bool) -> Ended:
        losses, most = job.losses + lost, job.spec.most_attempts
        if losses >= most:
            return Ended(State.FAILED, f"{text}; aborted after {losses} lost workers", lost=lost)
        if job.attempts >= _MOST_BEGUN * most:
            return Ended(State.FAILED, f"{text}; aborted after {job.attempts} attempts", lost=lost)
        return Ended(State.QUEUED, text, lost=lost)

    def _conclude(self, job: Job, ended: Ended) -> None:
        if ended.state in OVER:
            self._forget(job)
        columns: dict[str, Any] = {} if ended.summary is None else {"summary": ended.summary}
        if ended.lost:
            columns["losses"] = job.losses + 1
        if ended.state == State.DONE:
            while job.state in _ONWARD:
                job = self._jobs.move(job, _ONWARD[job.state])
        self._jobs.move(job, ended.state, self._public(job, ended.text), ended.summary, **columns)

    def _forget(self, job: Job) -> None:
        for forget in self._forget_with if job.attempts else ():
            try:
                forget(job)
            except GoffishError as error:
                _log.error("job %s: %s", job.id, error)
            except Exception:
                _log.exception("job %s: what it has elsewhere was not ended", job.id)

    def _public(self, job: Job, text: str) -> str:
        return public(self.folder(job.id), text)
