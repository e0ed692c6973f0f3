"""Attempt at a job: interface between a runner and the job records."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from goffish.services.runners.folder import JobFolder
from goffish.services.store.records import Clock, Job, State
from goffish.services.store.store import Jobs

Why = Literal["cancelled", "drained", "deadline", "budget", "time"]


@dataclass(frozen=True)
class Ended:
    """Outcome of an attempt.

    Attributes
    ----------
    state : State
        Final state, or `State.QUEUED` for another attempt.
    text : str
        Text of the event.
    summary : dict, optional
        Summary of the result.
    lost : bool
        Whether a worker was lost; the number of losses is limited.
    pause : bool
        Whether to delay the next attempt.
    """

    state: State
    text: str
    summary: dict[str, Any] | None = None
    lost: bool = False
    pause: bool = False


class Attempt:
    """Running attempt.

    Attributes
    ----------
    job : Job
        Job as last written by this attempt.
    folder : JobFolder
    """

    def __init__(
        self, jobs: Jobs, job: Job, folder: JobFolder, clock: Clock, draining: threading.Event, asked: set[str],
        most_s: float = float("inf"),
    ) -> None:  # fmt: skip
        self.job, self.folder, self._most_s = job, folder, most_s
        self._jobs, self._clock, self._draining, self._asked = jobs, clock, draining, asked

    def move(self, state: State, text: str = "", details: dict[str, Any] | None = None, **columns: Any) -> None:
        """Change the state of the job."""
        self.job = self._jobs.move(self.job, state, text, details, **columns)

    def note(self, kind: str, text: str = "", details: dict[str, Any] | None = None, **columns: Any) -> None:
        """Write an event."""
        self.job = self._jobs.note(self.job, kind, text, details, **columns)

    @property
    def time_left_s(self) -> float | None:
        """Seconds until the deadline; ``None`` without one."""
        limit = self.job.spec.deadline_s
        return None if limit is None else self.job.submitted + limit - self._clock.now()

    def stops(self) -> Why | None:
        """Return the reason to stop the attempt now, or ``None``."""
        left, budget = self.time_left_s, self.job.spec.budget
        # Requests before this attempt are in the database only.
        if self.job.cancel_requested or self.job.id in self._asked:
            return "cancelled"
        if left is not None and left <= 0:
            return "deadline"
        if budget is not None and self.job.cost > budget:
            return "budget"
        if self.job.started is not None and self._clock.now() - self.job.started > self._most_s:
            return "time"
        return "drained" if self._draining.is_set() else None

    def ended(self, why: Why) -> Ended:
        """Return the outcome of an attempt stopped for a reason."""
        spec = self.job.spec
        if why == "cancelled":
            return Ended(State.CANCELLED, "cancelled while running")
        if why == "deadline":
            return Ended(State.FAILED, f"deadline exceeded: {spec.deadline_s:g} s after submission")
        if why == "time":
            return Ended(State.FAILED, f"run time limit exceeded: {self._most_s:,g} s allowed (--max-run-time)")
        if why == "budget":
            return Ended(State.FAILED, f"budget exceeded: {self.job.cost:.4g} spent, {spec.budget:g} allowed")
        return Ended(State.QUEUED, "server shutting down; the job resumes after the restart")


class Runner(Protocol):
    """Runner of attempts, each in a separate thread."""

    def run(self, attempt: Attempt) -> Ended:
        """Run an attempt to its end; reattach to its worker if that is still running."""
        ...
