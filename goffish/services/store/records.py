"""Jobs, their states, events and clock as the rest of the service sees them: values, apart from the database."""

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
    """Where a job stands."""

    QUEUED = "queued"
    PLANNED = "planned"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    MIGRATING = "migrating"
    CHECKPOINTED = "checkpointed"
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
    State.MIGRATING: _ENDS | {State.PROVISIONING, State.RUNNING, State.CHECKPOINTED, State.QUEUED},
    State.CHECKPOINTED: _ENDS | {State.PROVISIONING, State.RUNNING, State.QUEUED},
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}

_MACHINE = "`machine`, `class`, `market`, `price`, `bid`"
_LIFE = f"{_MACHINE}, `cloud_begun_s`, `cloud_ended_s`, `cost`"
#: The kinds of events: what happened, and the keys of the details. docs/guides/service-policies.md has the same table.
EVENT_KINDS: dict[str, tuple[str, str]] = {
    "submitted": ("the job was accepted", ""),
    "state": ("it is in another state", "planned: `attempt`; done: the summary of the result, with `rows`"),
    "plan": (
        "graph job: how it is to be run; dataflow: an interval in which something changed",
        "graph job: `policy`, `expected_cost`, `on_demand_cost`, `promised`, `classes`, `slot_s`, `slots`, `work`, "
        "`core_hours`, `startup_s`, `seconds_here`, `remark`; dataflow: `interval`, `start_s`, `started`, `stopped`, "
        "`lost`, `counts` (of these three), `switched`, `instances_moved`, `machines`, `throughput`, `cost`, in the "
        "first one `expected_cost`",
    ),
    "wait": (
        "no machine is rented for now: the policy waits for a lower price",
        "`price` (the lowest now), `slots_left`",
    ),
    "machine": ("a machine was started, or given back", f"{_LIFE}; started: `slots_left`, `work_left`"),
    "price": ("the price of the machine is another one than in the slot before", _MACHINE),
    "lost": ("a machine was taken away, or has failed", _LIFE),
    "cost": ("more was spent", "`cost`"),
    "progress": (
        "how far it is, at most once a second",
        "graph job: `superstep`, `active`, `messages`, `share`; dataflow: `turn`, `intervals`, `of`, `cost`",
    ),
    "checkpoint": ("a checkpoint was written", ""),
    "cancel": ("somebody asked for its end", ""),
}
#: Kinds that come again and again, of which a picture can do without most.
OFTEN = frozenset({"cost", "progress", "checkpoint"})


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


@dataclass(frozen=True)
class Job:
    """A job as it stands; the columns of `JobRow`.

    Attributes
    ----------
    body : dict
        What was asked for, as `JobSpec.as_json` gives it.
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
    error: str
    summary: dict[str, Any] | None
    progress: int
    cancel_requested: bool
    events: int
    number: int

    @cached_property
    def spec(self) -> JobSpec:
        """What was asked for; read when it is needed first, since lists of jobs do without."""
        return JobSpec.model_validate(self.body)

    @property
    def over(self) -> bool:
        """Whether it will never change again."""
        return self.state in OVER


@dataclass(frozen=True)
class Event:
    """Something that happened to a job."""

    number: int
    time: float
    kind: str
    state: State
    text: str
    details: dict[str, Any] | None


def job_of(row: JobRow | Any) -> Job:
    """The job of a row."""
    return Job(
        id=row.id, server=row.server, client=row.client, client_key=row.client_key,
        body=row.spec, state=State(row.state), submitted=row.submitted, started=row.started, ended=row.ended,
        attempts=row.attempts, losses=row.losses, cost=row.cost, expected_cost=row.expected_cost, currency=row.currency,
        error=row.error, summary=row.summary, progress=row.progress, cancel_requested=row.cancel_requested,
        events=row.events, number=row.number,
    )  # fmt: skip


#: Java leaves one slash of file URIs, and colons separate the folders of a list; after a scheme there is no path.
_FOLDERS = re.compile(
    r"(?:file:(?://)?|(?<![\w/.~-])(?<!\bs3:)(?<!\bs3a:)(?<!\bgs:)(?<!\bhdfs:)(?<!\babfs:))"
    r"(?:/[^\s/:'\"`,;()<>|]+)+/(?=[^\s/])"
)


def without_folders(text: str) -> str:
    """The text with absolute paths cut down to the names of their files: where a server keeps things is its own."""
    return _FOLDERS.sub("", text)


class Clock:
    """Seconds since 1970 that never jump: read from the computer's clock once, counted from there on.

    A deadline is not missed because somebody sets the clock of the computer while the server runs.
    """

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        return self._ahead + time.monotonic()
