"""Jobs and their events as the rest of the service sees them: values, apart from the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goffish.services.store.lifecycle import OVER, State
from goffish.services.store.spec import JobSpec
from goffish.services.store.tables import JobRow


@dataclass(frozen=True)
class Job:
    """A job as it stands; the columns of `JobRow`."""

    id: str
    server: str
    client: str
    client_key: str | None
    spec: JobSpec
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


def job_of(row: JobRow) -> Job:
    """The job of a row."""
    return Job(
        id=row.id, server=row.server, client=row.client, client_key=row.client_key,
        spec=JobSpec.model_validate(row.spec), state=State(row.state), submitted=row.submitted, started=row.started,
        ended=row.ended, attempts=row.attempts,
        losses=row.losses, cost=row.cost, expected_cost=row.expected_cost, currency=row.currency,
        error=row.error, summary=row.summary, progress=row.progress, cancel_requested=row.cancel_requested,
        events=row.events, number=row.number,
    )  # fmt: skip
