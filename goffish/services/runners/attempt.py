"""One attempt at a job, as its runner sees it: what it tells, and when it has to stop."""

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
    """How an attempt ended.

    Attributes
    ----------
    state : State
        Over, or `State.QUEUED` for another attempt.
    text : str
    summary : dict, optional
        Facts of the result.
    lost : bool
        Whether a worker was lost, which may not happen for ever.
    pause : bool
        Whether the next attempt had better wait a little.
    """

    state: State
    text: str
    summary: dict[str, Any] | None = None
    lost: bool = False
    pause: bool = False


class Attempt:
    """An attempt that runs.

    Attributes
    ----------
    job : Job
        As it was when this attempt last wrote of it.
    folder : JobFolder
    """

    def __init__(
        self, jobs: Jobs, job: Job, folder: JobFolder, clock: Clock, draining: threading.Event, asked: set[str],
        most_s: float = float("inf"),
    ) -> None:  # fmt: skip
        self.job, self.folder, self._most_s = job, folder, most_s
        self._jobs, self._clock, self._draining, self._asked = jobs, clock, draining, asked

    def move(self, state: State, text: str = "", details: dict[str, Any] | None = None, **columns: Any) -> None:
        """Bring the job to another state."""
        self.job = self._jobs.move(self.job, state, text, details, **columns)

    def note(self, kind: str, text: str = "", details: dict[str, Any] | None = None, **columns: Any) -> None:
        """Write an event."""
        self.job = self._jobs.note(self.job, kind, text, details, **columns)

    @property
    def time_left_s(self) -> float | None:
        """Until the deadline."""
        limit = self.job.spec.deadline_s
        return None if limit is None else self.job.submitted + limit - self._clock.now()

    def stops(self) -> Why | None:
        """Why the attempt has to stop now, if it has to."""
        left, budget = self.time_left_s, self.job.spec.budget
        # Who asked before this attempt began is only in the database.
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
        """What an attempt that stopped for a reason is."""
        spec = self.job.spec
        if why == "cancelled":
            return Ended(State.CANCELLED, "cancelled while it ran")
        if why == "deadline":
            return Ended(State.FAILED, f"its deadline of {spec.deadline_s:g} s passed")
        if why == "time":
            return Ended(State.FAILED, f"run time limit exceeded: {self._most_s:,g} s allowed (--max-run-time)")
        if why == "budget":
            return Ended(State.FAILED, f"it cost {self.job.cost:.4g}, more than its budget of {spec.budget:g}")
        return Ended(State.QUEUED, "the server stops; the job goes on when it is back")


class Runner(Protocol):
    """Runs attempts, each in a thread of its own."""

    def run(self, attempt: Attempt) -> Ended:
        """Run an attempt to its end; go on with its worker where that is still there."""
        ...
