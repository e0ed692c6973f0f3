"""Jobs, states, events and the clock as values, independent of the database."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from goffish.errors import JobError
from goffish.services.store.spec import JobSpec
from goffish.services.store.tables import JobRow


class State(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    PLANNED = "planned"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    MIGRATING = "migrating"
    CHECKPOINTED = "checkpointed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: Final states.
OVER = frozenset({State.DONE, State.FAILED, State.CANCELLED})
_ENDS = frozenset({State.FAILED, State.CANCELLED})
#: Permitted transitions; back to the queue after the loss of the worker or the server.
NEXT: dict[State, frozenset[State]] = {
    State.QUEUED: _ENDS | {State.PLANNED},
    State.PLANNED: _ENDS | {State.PROVISIONING, State.QUEUED},
    State.PROVISIONING: _ENDS | {State.RUNNING, State.MIGRATING, State.QUEUED},
    State.RUNNING: _ENDS | {State.MIGRATING, State.DONE, State.QUEUED},
    State.MIGRATING: _ENDS | {State.PROVISIONING, State.RUNNING, State.CHECKPOINTED, State.QUEUED},
    State.CHECKPOINTED: _ENDS | {State.PROVISIONING, State.RUNNING, State.QUEUED},
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}

_MACHINE = "`machine`, `class`, `market`, `price`, `bid`"
_LIFE = f"{_MACHINE}, `cloud_begun_s`, `cloud_ended_s`, `cost`"
#: Kinds of events: meaning, and keys of the details. docs/guides/service-policies.md has the same table.
EVENT_KINDS: dict[str, tuple[str, str]] = {
    "submitted": ("the job was accepted", ""),
    "state": ("the state changed", "planned: `attempt`; done: the summary of the result, with `rows`"),
    "plan": (
        "graph job: the plan; dataflow: an interval with changes",
        "graph job: `policy`, `expected_cost`, `on_demand_cost`, `promised`, `classes`, `slot_s`, `slots`, `work`, "
        "`core_hours`, `startup_s`, `seconds_here`, `remark`; dataflow: `interval`, `start_s`, `started`, `stopped`, "
        "`lost`, `counts` (of these three), `switched`, `instances_moved`, `machines`, `throughput`, `cost`, in the "
        "first event `expected_cost`",
    ),
    "wait": (
        "no machine is rented: the policy is waiting for a lower price",
        "`price` (the current minimum), `slots_left`",
    ),
    "machine": ("a machine was started or released", f"{_LIFE}; started: `slots_left`, `work_left`"),
    "price": ("the price of the machine changed", _MACHINE),
    "lost": ("a machine was interrupted or failed", _LIFE),
    "cost": ("the cost increased", "`cost`"),
    "progress": (
        "progress, at most once per second",
        "graph job: `superstep`, `active`, `messages`, `share`; dataflow: `turn`, `intervals`, `of`, `cost`; flow: "
        "`records`, `rate`, `errors`, `queued`, `workers`, `checkpoint`",
    ),
    "checkpoint": ("a checkpoint was written", ""),
    "cancel": ("cancellation was requested", ""),
    "stop": ("flow: a stop with a savepoint was requested", ""),
    "update": (
        "flow: an update to a new version was requested, or has ended",
        "requested: `version`, `strategy`, `partial_windows`; ended: the report of `goffish stream update --json`",
    ),
    "scale": ("flow: another number of workers was requested, or is reached", "`workers`"),
    "switch": ("flow: an alternate was requested", "`operator`, `alternate`"),
}
#: Frequent kinds, which charts may sample.
OFTEN = frozenset({"cost", "progress", "checkpoint"})


class LostJob(JobError):
    """The job has ended or belongs to another attempt; the caller must stop."""


def check_move(job: str, before: State, after: State) -> None:
    """Reject a forbidden transition.

    Raises
    ------
    LostJob
        The job has ended, or the transition is not permitted.
    """
    if after not in NEXT[before]:
        raise LostJob(f"job {job} is {before} and cannot become {after}")


@dataclass(frozen=True)
class Job:
    """Snapshot of a job; the columns of `JobRow`.

    Attributes
    ----------
    body : dict
        Specification in the form of `JobSpec.as_json`.
    """

    id: str
    server: str
    client: str
    client_key: str | None
    body: dict[str, Any]
    state: State
    submitted: float
    started: float | None
    ended: float | None
    attempts: int
    losses: int
    cost: float
    expected_cost: float
    currency: str
    provider: str
    error: str
    summary: dict[str, Any] | None
    progress: int
    cancel_requested: bool
    events: int
    number: int

    @cached_property
    def spec(self) -> JobSpec:
        """Specification, parsed on first access."""
        return JobSpec.model_validate(self.body)

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state in OVER


@dataclass(frozen=True)
class Event:
    """Event of a job."""

    number: int
    time: float
    kind: str
    state: State
    text: str
    details: dict[str, Any] | None


def job_of(row: JobRow | Any) -> Job:
    """Convert a row to a job."""
    return Job(
        id=row.id, server=row.server, client=row.client, client_key=row.client_key,
        body=row.spec, state=State(row.state), submitted=row.submitted, started=row.started, ended=row.ended,
        attempts=row.attempts, losses=row.losses, cost=row.cost, expected_cost=row.expected_cost, currency=row.currency,
        provider=row.provider, error=row.error, summary=row.summary, progress=row.progress,
        cancel_requested=row.cancel_requested, events=row.events, number=row.number,
    )  # fmt: skip


#: Java writes file URIs with one slash, and colons separate folders in lists; other URIs are not paths.
_FOLDERS = re.compile(
    r"(?:file:(?://)?|(?<![\w/.~-])(?<!\bs3:)(?<!\bs3a:)(?<!\bgs:)(?<!\bhdfs:)(?<!\babfs:))"
    r"(?:/[^\s/:'\"`,;()<>|]+)+/(?=[^\s/])"
)


def without_folders(text: str) -> str:
    """Reduce absolute paths in a text to file names, to hide the folders of the server."""
    return _FOLDERS.sub("", text)


class Clock:
    """Monotonic clock in seconds since 1970, so that changes of the system clock do not affect deadlines."""

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        return self._ahead + time.monotonic()
