"""Graph jobs as local processes: a worker or MPI ranks.

Workers run in a separate session and survive a server crash; the restarted server finds them by the lock on the job
folder and reattaches.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil

from goffish.environment import child_environment
from goffish.errors import InputError
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.folder import Busy, JobFolder
from goffish.services.runners.limits import UNLIMITED, JobLimits, memory_exceeded
from goffish.services.runners.order import Files, Resolve, order_of
from goffish.services.runners.worker import DISK_FULL, NO_CLUSTER, NO_STORAGE, NOT_NOW
from goffish.services.store.records import State
from goffish.services.store.spec import GraphJob

_LOOK_S = 0.1
#: Program that lets itself be killed when its parent ends (PR_SET_PDEATHSIG), and becomes a command.
_BOUND = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
#: Interval of progress events and of checks of resource usage, in seconds.
_REPORT_S = 1.0
#: Time between SIGTERM and SIGKILL, in seconds.
_GRACE_S = 5.0
_LOG_LINES = 16384
#: Messages of libraries about failed allocations at the end of a log.
_NO_MEMORY = (
    "MemoryError",
    "Cannot allocate memory",
    "std::bad_alloc",
    "LLVM ERROR: out of memory",
    "java.lang.OutOfMemoryError",
)
_LAST_BYTES = 4096
WORKER = "goffish.services.runners.worker"


@dataclass(frozen=True)
class ProcessRunner:
    """Runner of attempts as local processes.

    Attributes
    ----------
    resolve : callable
        Resolves the URI of a file to a path; raises `InputError`.
    command : callable
        Wraps the command of the worker, for example in ``mpirun``.
    limits : JobLimits
    environment : mapping
        Environment variables of the workers.
    """

    resolve: Resolve
    command: Callable[[list[str], GraphJob], list[str]] = field(default=lambda worker, _: worker)
    limits: JobLimits = UNLIMITED
    environment: Mapping[str, str] = field(default_factory=child_environment)

    def run(self, attempt: Attempt) -> Ended:
        """Start a worker, or reattach to the worker of an earlier server, and monitor it."""
        folder, job = attempt.folder, attempt.job
        graph = job.spec.graph
        assert graph is not None
        process: subprocess.Popen[bytes] | None = None
        if folder.done is None and not folder.busy:
            order = self._order(attempt, graph)
            try:
                turn = folder.prepare(order, job.attempts)
            except Busy:
                pass
            else:
                attempt.move(State.PROVISIONING, f"local process, runner {graph.runner}")
                command = self.command(worker_command(folder.path, turn), graph)
                process = start(command, folder, self.environment)
        if process is None and job.state == State.PLANNED:
            attempt.move(State.PROVISIONING, "worker already running")
        if attempt.job.state == State.PROVISIONING:
            text = "reattached to the worker" if process is None else f"process {process.pid}"
            attempt.move(State.RUNNING, text)
        return self._look_after(attempt, graph, process)

    def _order(self, attempt: Attempt, graph: GraphJob) -> dict[str, Any]:
        """Return the order of a worker."""
        return order_of(graph, Files.of(graph, self.resolve), self.limits)

    def _catch_up(self, attempt: Attempt) -> None:
        """Fetch what the worker has not written to the folder of the job; nothing here."""

    def _look_after(self, attempt: Attempt, graph: GraphJob, process: subprocess.Popen[bytes] | None) -> Ended:
        folder = attempt.folder
        events, next_look = EventWriter(attempt), 0.0
        while process.poll() is None if process is not None else folder.busy:
            why = attempt.stops()
            ended = None if why is None else attempt.ended(why)
            if time.monotonic() >= next_look:
                self._catch_up(attempt)
                events.write()
                ended = ended or over_limit(folder, self.limits.memory_of(graph), graph.cpu_seconds)
                next_look = time.monotonic() + _REPORT_S
            if ended is not None:
                end_worker(folder, process)
                return concluded(folder) or ended
            time.sleep(_LOOK_S)
        self._catch_up(attempt)
        events.write()
        return concluded(folder) or lost(folder, None if process is None else process.returncode)


@dataclass(frozen=True)
class WorkerRunner(ABC):
    """Base of runners whose worker is a process with its own module, which survives a server crash.

    Attributes
    ----------
    limits : JobLimits
    environment : mapping
        Environment variables of the workers.
    """

    limits: JobLimits = UNLIMITED
    environment: Mapping[str, str] = field(default_factory=child_environment)
    #: Module of the worker.
    module: ClassVar[str]

    @abstractmethod
    def order(self, attempt: Attempt) -> tuple[dict[str, Any], str]:
        """Return the order of a worker, and the text of the event.

        Parameters
        ----------
        attempt : Attempt

        Raises
        ------
        InputError
            The job cannot run.
        """

    @abstractmethod
    def reporter(self, attempt: Attempt) -> Callable[[], None]:
        """Return a function that writes events for new progress, which is called about once per second.

        Parameters
        ----------
        attempt : Attempt
        """

    def exceeded(self, attempt: Attempt) -> Ended | None:
        """Return the outcome if the job exceeds a limit.

        Parameters
        ----------
        attempt : Attempt
        """
        return over_limit(attempt.folder, self.limits.memory_mb, None)

    def run(self, attempt: Attempt) -> Ended:
        """Start a worker, or reattach to the worker of an earlier server, and monitor it."""
        folder, process = attempt.folder, None
        if folder.done is None and not folder.busy:
            order, text = self.order(attempt)
            try:
                turn = folder.prepare(order, attempt.job.attempts)
            except Busy:
                pass
            else:
                attempt.move(State.PROVISIONING, text)
                process = start(worker_command(folder.path, turn, self.module), folder, self.environment)
        if attempt.job.state == State.PLANNED:
            attempt.move(State.PROVISIONING, "worker already running")
        if attempt.job.state == State.PROVISIONING:
            attempt.move(State.RUNNING, "reattached to the worker" if process is None else f"process {process.pid}")
        write, next_write = self.reporter(attempt), 0.0
        ended: Ended | None = None
        while process.poll() is None if process is not None else folder.busy:
            if time.monotonic() >= next_write:
                write()
                ended = self.exceeded(attempt)
                next_write = time.monotonic() + _REPORT_S
            why = attempt.stops()
            ended = ended if why is None else attempt.ended(why)
            if ended is not None:
                end_worker(folder, process)
                break
            time.sleep(_LOOK_S)
        write()
        if attempt.stops() == "budget":
            return attempt.ended("budget")
        return concluded(folder) or ended or lost(folder, None if process is None else process.returncode)


def worker_command(folder: Path, turn: str, module: str = WORKER) -> list[str]:
    """Return the command of a worker; `turn` is the result of `JobFolder.prepare`."""
    return [sys.executable, "-m", module, str(folder), turn]


def bound(command: list[str]) -> list[str]:
    """Return a command that does the same, and is killed when the process that starts it ends for any reason."""
    return [sys.executable, "-c", _BOUND, *command]


def start(command: list[str], folder: JobFolder, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command in a new session, with its output in the job's log."""
    with folder.log.open("ab") as log:
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )
        except FileNotFoundError:
            raise InputError(f"{command[0]} is not installed on the server") from None


def concluded(folder: JobFolder) -> Ended | None:
    """Return the outcome if the worker has completed the job."""
    done = folder.done
    if done is None:
        return None
    text = done.get("text") or f"{done['rows']:,} rows"
    return Ended(State.DONE, text, done["summary"] | {"rows": done["rows"]})


def lost(folder: JobFolder, code: int | None) -> Ended:
    """Return the outcome of a worker that ended without a result: invalid input, a failure, or a killed worker."""
    if code not in (NOT_NOW, DISK_FULL) and (exceeded := _out_of_memory(folder)):
        return Ended(State.FAILED, exceeded)
    if code in (1, 2):
        return Ended(State.FAILED, _last_error(folder, f"the worker ended with exit code {code} and no message"))
    if code == NO_CLUSTER:
        return Ended(State.QUEUED, _last_error(folder, "the worker lost the Spark cluster"), lost=True)
    if code == NOT_NOW:
        return Ended(State.QUEUED, "another worker was running")
    if code == DISK_FULL:
        return Ended(State.QUEUED, "the disk of the server is full", pause=True)
    if code == NO_STORAGE:
        return Ended(State.QUEUED, "the worker could not use the object storage of the job", lost=True)
    if code is None:
        return Ended(State.QUEUED, "worker lost", lost=True)
    return Ended(State.QUEUED, f"worker lost ({_how(code)})", lost=True)


def _last_error(folder: JobFolder, otherwise: str) -> str:
    """Return the last error in the log of a worker, or its last line."""
    lines = folder.log_end(_LOG_LINES).splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [otherwise])[-1]


def _out_of_memory(folder: JobFolder) -> str:
    """Return the error message if a library ended the worker after a failed allocation, or an empty string."""
    try:
        limits = json.loads(folder.order.read_text())["limits"]
    except (FileNotFoundError, ValueError, KeyError):
        return ""
    end = folder.log_end(_LAST_BYTES)
    failed = limits["memory_mb"] is not None and any(mark in end for mark in _NO_MEMORY)
    return memory_exceeded(limits) if failed else ""


def _how(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def processes_of(session: int) -> Iterator[psutil.Process]:
    """Iterate over the live processes of a session."""
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.Error, PermissionError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def end_worker(folder: JobFolder, process: subprocess.Popen[bytes] | None) -> None:
    """Terminate the processes of a worker, kill the remaining ones, and wait until the folder is free."""
    session = process.pid if process is not None else folder.session
    for kind, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        found = [] if session is None else list(processes_of(session))
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.send_signal(kind)
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            if process is not None:
                process.poll()
            if not folder.busy and (session is None or not any(processes_of(session))):
                return
            time.sleep(_LOOK_S)


def over_limit(folder: JobFolder, most_mb: int | None, cpu_seconds: float | None) -> Ended | None:
    """Return the outcome if the processes of a job exceed a limit."""
    if most_mb is None and cpu_seconds is None:
        return None
    session = folder.session
    memory = cpu = 0.0
    for process in [] if session is None else processes_of(session):
        with contextlib.suppress(psutil.Error):
            memory += process.memory_info().rss / 2**20
            cpu += sum(process.cpu_times()[:2])
    if most_mb is not None and memory > most_mb:
        return Ended(State.FAILED, f"memory limit exceeded: {memory:,.0f} MB used, {most_mb:,} MB allowed")
    if cpu_seconds is not None and cpu > cpu_seconds:
        return Ended(State.FAILED, f"CPU time limit exceeded: {cpu:,.1f} s used, {cpu_seconds:g} s allowed")
    return None


class EventWriter:
    """Writer of events for supersteps and checkpoints of a worker."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._saved = attempt.folder.saved

    def write(self) -> None:
        """Write events for new progress."""
        attempt = self._attempt
        report = attempt.folder.progress
        step = int(report.get("superstep", 0))
        if report and step != attempt.job.progress:
            attempt.note("progress", f"superstep {step}", report, progress=step)
        saved = attempt.folder.saved
        if saved is not None and saved != self._saved:
            attempt.note("checkpoint", f"checkpoint of superstep {saved}")
            self._saved = saved


def mpi_command(worker: list[str], graph: GraphJob) -> list[str]:
    """Wrap the command of a worker in ``mpirun``."""
    return [launcher("mpirun", "pip install 'goffish[mpi]'"), "-n", str(graph.workers), *worker]


def launcher(name: str, advice: str) -> str:
    """Return the path of a program.

    Raises
    ------
    InputError
        The program is not installed.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=places)
    if found is None:
        raise InputError(f"{name} is not installed on the server: {advice}")
    return found
