"""Takes jobs from the queue, has runners run them, and brings them to their end; after a crash it begins where it was.

Every step is in the database before anything depends on it. A server that was killed finds with each unfinished job one
of three things: a result, which it records; a worker that still runs, which it watches again; or neither, and the job
goes back to the queue and on from its newest checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tenacity import RetryCallState, retry, retry_if_exception_type, wait_exponential

from goffish.errors import GoffishError
from goffish.services.runners.attempt import Attempt, Ended, Runner
from goffish.services.runners.folder import JobFolder, is_disk_full
from goffish.services.runners.order import as_named
from goffish.services.store.database import AWAY
from goffish.services.store.records import Clock, Job, LostJob, State, without_folders
from goffish.services.store.store import Jobs

_log = logging.getLogger(__name__)
#: Longest time without looking for new jobs, should nobody tell.
_LOOK_S = 1.0
#: A database that does not answer is asked again for so long; then whoever asked gives up.
_PATIENCE_S, _HURRY_S = 600.0, 5.0
_AGAIN_S = 5.0
#: Whatever happens, a job is begun at most so many times as often as its workers may be lost.
_MOST_BEGUN = 10
_LONGEST_PAUSE_S = 10.0
#: Between two looks for jobs that can be forgotten, and how many are at a time.
_TIDY_S, _TIDY_JOBS = 600.0, 1000
#: How an unfinished job gets to its end where each step has to be one of its life.
_ONWARD = {
    State.PLANNED: State.PROVISIONING, State.PROVISIONING: State.RUNNING, State.MIGRATING: State.RUNNING,
    State.CHECKPOINTED: State.RUNNING,
}  # fmt: skip


def _gives_up(state: RetryCallState) -> bool:
    jobs: PatientJobs = state.args[0]
    limit = _HURRY_S if jobs.hurry.is_set() else _PATIENCE_S
    return (state.seconds_since_start or 0.0) >= limit


def public(folder: JobFolder, text: str) -> str:
    """A text of a job without the paths of this server: its files by the names that the client gave."""
    names: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        names = json.loads(folder.order.read_text())["names"]
    return without_folders(as_named(text, names))


patient = retry(
    retry=retry_if_exception_type(AWAY), stop=_gives_up, wait=wait_exponential(0.1, max=_AGAIN_S), reraise=True
)


class PatientJobs(Jobs):
    """Jobs of a database that may be locked or away for a while: who writes waits.

    Attributes
    ----------
    hurry : Event
        Once it is set, nobody waits for long.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.hurry = threading.Event()

    move = patient(Jobs.move)
    note = patient(Jobs.note)


class Supervisor:
    """Runs the jobs of a server.

    Parameters
    ----------
    jobs : PatientJobs
    home : Path
        Where every job has a folder.
    runners : mapping
        By their names in `GraphJob.runner`, and ``dataflow``.
    slots : int
        Jobs at a time.
    keep_s : float, optional
        After so long jobs that are over are forgotten, with their results; default: never.
    tidy : callable, optional
        Called with the time before which things were used for the last time that can be forgotten, too.
    clock : Clock, optional
    max_run_s : float
        A job that is not over so many seconds after it first began fails.
    """

    def __init__(
        self,
        jobs: PatientJobs,
        home: Path,
        runners: Mapping[str, Runner],
        *,
        slots: int = 2,
        keep_s: float | None = None,
        tidy: Callable[[float], None] | None = None,
        clock: Clock | None = None,
        max_run_s: float = float("inf"),
    ) -> None:
        self._most_run_s = max_run_s
        self._jobs, self._home, self._runners, self._slots = jobs, home, runners, slots
        self._clock = clock or Clock()
        self._keep_s, self._next_tidy, self._tidy_more = keep_s, 0.0, tidy
        self._next_look = 0.0
        self._stopping, self._draining, self._news = threading.Event(), threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="job")
        #: Jobs that somebody works at.
        self._at: set[str] = set()
        #: Jobs that are asked to stop.
        self._asked: set[str] = set()
        self._thread = threading.Thread(target=self._serve, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begin with what was left unfinished."""
        self._thread.start()

    def wake(self, job: Job | None = None) -> None:
        """Say that there is a new job, or one that is to be cancelled."""
        if job is not None and job.cancel_requested:
            self._asked.add(job.id)
        self._news.set()

    def stop(self, grace_s: float = 10.0) -> None:
        """Take no more jobs, wait for those that run, and put back what is not done by then."""
        self._stopping.set()
        self._news.set()
        end = time.monotonic() + grace_s
        while self._at and time.monotonic() < end:
            time.sleep(0.05)
        self._draining.set()
        self._jobs.hurry.set()
        self._thread.join()
        self._pool.shutdown(wait=True)

    @property
    def running(self) -> int:
        """Jobs that somebody works at."""
        return len(self._at)

    def folder(self, job: str) -> JobFolder:
        """Of a job by its id."""
        return JobFolder(self._home / job)

    def log(self, job: str, most_bytes: int) -> str:
        """The end of a job's log, as its client may read it."""
        folder = self.folder(job)
        return public(folder, folder.log_end(most_bytes))

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self._look_round()
            except AWAY as error:
                _log.warning("the database does not answer: %s", error)
                self._stopping.wait(_AGAIN_S)
            except Exception:
                _log.exception("jobs could not be looked after")
                self._stopping.wait(_AGAIN_S)
            if not self._stopping.is_set():
                self._news.wait(_LOOK_S)

    def _look_round(self) -> None:
        """Begin what waits; and once a second take up what nobody works at, and hear who is asked to stop."""
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
        # Those that are over need not be remembered; whoever was asked just now is heard of again in a second.
        self._asked.intersection_update({job.id for job in unfinished})
        for job in unfinished:
            if job.id not in at:
                self._submit(self._go_on, job)
        self._jobs.expire()
        self._tidy()

    def _tidy(self) -> None:
        """Forget jobs that have been over for long enough, once in a while."""
        now = self._clock.now()
        if self._keep_s is None or now < self._next_tidy:
            return
        for job in self._jobs.over_since(now - self._keep_s, _TIDY_JOBS):
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
            # It stays unfinished in the database, and is taken up again.
            _log.exception("job %s could not be looked after", job.id)
            self._stopping.wait(_AGAIN_S)
        finally:
            self._at.discard(job.id)
            self._news.set()

    def _go_on(self, job: Job) -> None:
        """With a job that nobody works at: a server left it, or could not go on with it."""
        folder = self.folder(job.id)
        if folder.done is None and not folder.busy:
            self._conclude(job, self._after_loss(job, "the server was killed", lost=False))
            return
        self._begin(job)

    def _begin(self, job: Job) -> None:
        folder = self.folder(job.id)
        attempt = Attempt(self._jobs, job, folder, self._clock, self._draining, self._asked, self._most_run_s)
        name = "dataflow" if job.spec.graph is None else job.spec.graph.runner
        try:
            ended = self._runners[name].run(attempt)
        except (LostJob, *AWAY):
            raise
        except GoffishError as error:
            ended = Ended(State.FAILED, str(error))
        except OSError as error:
            # No room, no processes: nothing that the job is to blame for.
            ended = Ended(State.QUEUED, f"{error.strerror or error}", lost=not is_disk_full(error), pause=True)
        except Exception as error:
            _log.exception("job %s: the server failed", job.id)
            ended = Ended(State.QUEUED, f"the server failed ({type(error).__name__}); its log says why", lost=True)
        if ended.state == State.QUEUED and (ended.lost or ended.pause):
            ended = self._after_loss(attempt.job, ended.text, lost=ended.lost)
            # What loses workers again and again may be over soon.
            pause_s = 0.1 * 2.0**attempt.job.losses if ended.lost else _LONGEST_PAUSE_S
            self._stopping.wait(min(_LONGEST_PAUSE_S, pause_s))
        self._conclude(attempt.job, ended)

    def _after_loss(self, job: Job, text: str, *, lost: bool) -> Ended:
        losses, most = job.losses + lost, job.spec.most_attempts
        if losses >= most:
            return Ended(State.FAILED, f"{text}; given up after {losses} lost workers", lost=lost)
        if job.attempts >= _MOST_BEGUN * most:
            return Ended(State.FAILED, f"{text}; given up after {job.attempts} attempts", lost=lost)
        return Ended(State.QUEUED, text, lost=lost)

    def _conclude(self, job: Job, ended: Ended) -> None:
        columns: dict[str, Any] = {} if ended.summary is None else {"summary": ended.summary}
        if ended.lost:
            columns["losses"] = job.losses + 1
        if ended.state == State.DONE:
            while job.state in _ONWARD:
                job = self._jobs.move(job, _ONWARD[job.state])
        self._jobs.move(job, ended.state, self._public(job, ended.text), ended.summary, **columns)

    def _public(self, job: Job, text: str) -> str:
        return public(self.folder(job.id), text)
