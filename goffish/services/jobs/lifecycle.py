"""What may become of a job."""

from __future__ import annotations

from enum import StrEnum

from goffish.errors import JobError


class State(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    PLANNED = "planned"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    MIGRATING = "migrating"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: States that a job never leaves.
OVER = frozenset({State.DONE, State.FAILED, State.CANCELLED})
_ENDS = frozenset({State.FAILED, State.CANCELLED})
#: Where a job may go from each state; back to the queue when its worker or the server was lost.
NEXT: dict[State, frozenset[State]] = {
    State.QUEUED: _ENDS | {State.PLANNED},
    State.PLANNED: _ENDS | {State.PROVISIONING, State.QUEUED},
    State.PROVISIONING: _ENDS | {State.RUNNING, State.MIGRATING, State.QUEUED},
    State.RUNNING: _ENDS | {State.MIGRATING, State.DONE, State.QUEUED},
    State.MIGRATING: _ENDS | {State.PROVISIONING, State.RUNNING, State.QUEUED},
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


class LostJob(JobError):
    """Somebody else has taken the job over, or it is over: whoever worked at it stops."""


def check_move(job: str, before: State, after: State) -> None:
    """Refuse a step that a job cannot take.

    Raises
    ------
    LostJob
        The job is over, or cannot go there.
    """
    if after not in NEXT[before]:
        raise LostJob(f"job {job} is {before}: it cannot become {after}")
