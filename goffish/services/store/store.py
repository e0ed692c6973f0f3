"""Job store: every change of a job is one transaction that also writes an event.

Only the server that accepted a job runs it, and only in the latest attempt: changes by older attempts are rejected
(`LostJob`), so two workers never do the same work.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from goffish.errors import InputError
from goffish.services.store.database import writing
from goffish.services.store.records import (
    EVENT_KINDS,
    OFTEN,
    OVER,
    Clock,
    Event,
    Job,
    LostJob,
    State,
    check_move,
    job_of,
)
from goffish.services.store.spec import UPLOAD, JobSpec
from goffish.services.store.tables import EventRow, JobRow, LabelRow

#: Maximum jobs named by one query.
_AT_ONCE = 500
#: Rows fetched at a time.
_AT_A_TIME = 20


class UnknownJob(InputError):
    """The job does not exist."""


class Jobs:
    """Job store in a database.

    Parameters
    ----------
    engine : Engine
        Result of `open_database`.
    server : str
        ID of this server.
    clock : Clock, optional
    heard : callable, optional
        Called with the ID of a job after each of its events.
    """

    def __init__(
        self, engine: Engine, server: str, clock: Clock | None = None, heard: Callable[[str], None] | None = None
    ) -> None:
        self._reads, self._writes = engine, writing(engine)
        self.server, self._clock = server, clock or Clock()
        self.heard = heard

    def submit(self, spec: JobSpec, client: str, client_key: str | None = None) -> tuple[Job, bool]:
        """Store a job; the same client and key return the same job.

        Returns
        -------
        job : Job
        known : bool
            Whether the job existed before.

        Raises
        ------
        InputError
            The key was used for a different job.
        """
        body = spec.as_json()
        try:
            with self._change() as session:
                now = self._clock.now()
                row = JobRow(
                    id=secrets.token_hex(10), server=self.server, client=client, client_key=client_key, spec=body,
                    what=spec.what, state=State.QUEUED, submitted=now,
                    due=None if spec.deadline_s is None else now + spec.deadline_s,
                )  # fmt: skip
                session.add(row)
                session.flush()
                session.add_all(LabelRow(job=row.number, name=n, value=v) for n, v in spec.labels.items())
                self._note(session, row, "submitted", f"{spec.what} accepted")
                made = job_of(row)
        except IntegrityError:
            found = None if client_key is None else self.known(spec, client, client_key)
            if found is None:
                raise
            return found, True
        self._notify(made.id)
        return made, False

    def known(self, spec: JobSpec, client: str, client_key: str) -> Job | None:
        """Return the job submitted before with the same key.

        Raises
        ------
        InputError
            The specification differs.
        """
        with Session(self._reads) as session:
            where = (JobRow.client == client, JobRow.client_key == client_key)
            found = session.scalars(sa.select(JobRow).where(*where)).one_or_none()
            # Parse it again: it may have been stored by another version.
            if found is not None and JobSpec.model_validate(found.spec) != spec:
                raise InputError(f"client_key: {client_key!r} was used for a different job, {found.id}; use a new key")
            return None if found is None else job_of(found)

    def get(self, job: str) -> Job:
        """Return a job by ID.

        Raises
        ------
        UnknownJob
        """
        with Session(self._reads) as session:
            return job_of(_row(session, job))

    def find(
        self, *, states: Sequence[State] = (), labels: Mapping[str, str] | None = None, what: str = "",
        client: str = "", before: int | None = None, limit: int = 100,
    ) -> Generator[Job]:  # fmt: skip
        """Iterate over jobs, newest first.

        Parameters
        ----------
        states, labels, what, client
            Filters: any of the states, all labels, the algorithm, the client; empty: no filter.
        before : int, optional
            Only jobs with lower numbers.
        limit : int
        """
        # Plain columns take a third of the time of ORM objects.
        asked = sa.select(*JobRow.__table__.columns).order_by(JobRow.number.desc()).limit(limit)
        if states:
            asked = asked.where(JobRow.state.in_([str(state) for state in states]))
        if what:
            asked = asked.where(JobRow.what == what)
        if client:
            asked = asked.where(JobRow.client == client)
        if before is not None:
            asked = asked.where(JobRow.number < before)
        for name, value in (labels or {}).items():
            held = sa.select(LabelRow.job).where(LabelRow.name == name, LabelRow.value == value)
            asked = asked.where(JobRow.number.in_(held))
        with Session(self._reads) as session:
            for row in session.execute(asked.execution_options(yield_per=_AT_A_TIME)):
                yield job_of(row)

    def counts(self, client: str = "") -> dict[State, int]:
        """Count jobs by state, of all clients or one client."""
        asked = sa.select(JobRow.state, sa.func.count()).group_by(JobRow.state)
        if client:
            asked = asked.where(JobRow.client == client)
        with Session(self._reads) as session:
            found = {State(state): int(count) for state, count in session.execute(asked)}
        return {state: found.get(state, 0) for state in State}

    def waiting(self) -> dict[str, int]:
        """Count the queued jobs of this server by client."""
        asked = (
            sa.select(JobRow.client, sa.func.count())
            .where(JobRow.server == self.server, JobRow.state == State.QUEUED)
            .group_by(JobRow.client)
        )
        with Session(self._reads) as session:
            return {client: int(count) for client, count in session.execute(asked)}

    def events(self, job: str, after: int = 0, limit: int = 1000, every: int = 1) -> list[Event]:
        """Return events after a number, in order; of the kinds in `OFTEN`, about one of `every`."""
        # Golden-ratio hashing samples alternating kinds evenly.
        chosen = (EventRow.number % 16384) * 10125 % 16384 < 16384 // every
        with Session(self._reads) as session:
            row = _row(session, job)
            asked = (
                sa.select(EventRow)
                .where(EventRow.job == row.number, EventRow.number > after)
                .where(sa.or_(chosen, EventRow.kind.not_in(OFTEN)))
                .order_by(EventRow.number)
                .limit(limit)
            )
            return [
                Event(one.number, one.time, one.kind, State(one.state), one.text, one.details)
                for one in session.scalars(asked)
            ]

    def news(self, job: str, after: int = 0) -> tuple[list[Event], bool]:
        """Return events after a number, and whether the job had ended before they were read."""
        over = self.get(job).over
        return self.events(job, after), over

    def last_events(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return the number of the last event of each job."""
        found: dict[str, int] = {}
        with Session(self._reads) as session:
            for first in range(0, len(jobs), _AT_ONCE):
                some = jobs[first : first + _AT_ONCE]
                rows = session.execute(sa.select(JobRow.id, JobRow.events).where(JobRow.id.in_(some)))
                found.update((job, number) for job, number in rows)
        return found

    def cancel(self, job: str, by: str) -> Job:
        """Cancel a job: at once if it is queued, otherwise as soon as its worker has ended."""
        with self._change() as session:
            row = _locked(session, job)
            if State(row.state) in OVER or row.cancel_requested:
                return job_of(row)
            row.cancel_requested = True
            if row.state == State.QUEUED:
                self._end(session, row, State.CANCELLED, f"cancelled by {by} while queued")
            else:
                self._note(session, row, "cancel", f"requested by {by}")
            found = job_of(row)
        self._notify(job)
        return found

    def claim(self, limit: int = 1) -> list[Job]:
        """Start attempts of queued jobs, round-robin across clients, oldest jobs first."""
        found: list[Job] = []
        with self._change() as session:
            while len(found) < limit and (row := self._next(session)) is not None:
                row.attempts += 1
                row.claimed = self._clock.now()
                row.started = row.started or row.claimed
                self._move(session, row, State.PLANNED, f"attempt {row.attempts}", {"attempt": row.attempts})
                found.append(job_of(row))
        for job in found:
            self._notify(job.id)
        return found

    def _next(self, session: Session) -> JobRow | None:
        """Return the oldest queued job of the least recently served client."""
        waits = (JobRow.server == self.server, JobRow.state == State.QUEUED)
        for client in session.scalars(clients_in_turn(self.server)).all():
            asked = sa.select(JobRow).where(*waits, JobRow.client == client).order_by(JobRow.number).limit(1)
            # Skip rows locked by other transactions until the next call.
            row = session.scalars(asked.with_for_update(skip_locked=True)).one_or_none()
            if row is not None:
                return row
        return None

    def expire(self, limit: int = 1000) -> list[Job]:
        """Fail queued jobs whose deadline has passed, and return them."""
        late = (JobRow.server == self.server, JobRow.state == State.QUEUED, JobRow.due < self._clock.now())
        with Session(self._reads) as session:
            if session.scalar(sa.select(JobRow.number).where(*late).limit(1)) is None:
                return []
        with self._change() as session:
            asked = sa.select(JobRow).where(*late).order_by(JobRow.number).limit(limit)
            rows = session.scalars(asked.with_for_update(skip_locked=True)).all()
            for row in rows:
                limit_s = JobSpec.model_validate(row.spec).deadline_s
                text = f"deadline exceeded: {limit_s:g} s after submission, while queued"
                self._end(session, row, State.FAILED, text)
            ended = [job_of(row) for row in rows]
        for job in ended:
            self._notify(job.id)
        return ended

    def inputs_in_use(self) -> set[str]:
        """Return the URIs of uploads used by unfinished jobs of all servers."""
        graph = JobRow.spec["graph"]
        uri, options = graph["input_uri"].as_string(), graph["options"].as_string()
        ahead = JobRow.state.not_in([str(state) for state in OVER])
        inputs = sa.select(uri).where(ahead, uri.startswith(UPLOAD)).distinct()
        naming = sa.select(options).where(ahead, options.contains(f'"{UPLOAD}')).distinct()
        definition = JobRow.spec["flow"]["definition"].as_string()
        describing = sa.select(definition).where(ahead, definition.contains(UPLOAD)).distinct()
        with Session(self._reads) as session:
            found = set(session.scalars(inputs))
            for text in session.scalars(describing):
                found.update(json.loads(f'"{one}"') for one in re.findall(rf'"({UPLOAD}[^"]*)"', text))
            for text in session.scalars(naming):
                found.update(value for value in json.loads(text).values() if value.startswith(UPLOAD))
            return found

    def unfinished(self) -> list[Job]:
        """Return the started but unfinished jobs of this server."""
        away = [str(state) for state in State if state not in OVER and state != State.QUEUED]
        asked = sa.select(JobRow).where(JobRow.server == self.server, JobRow.state.in_(away)).order_by(JobRow.number)
        with Session(self._reads) as session:
            return [job_of(row) for row in session.scalars(asked)]

    def over_since(self, moment: float, limit: int) -> list[Job]:
        """Return jobs of this server that ended before a time, oldest first."""
        asked = (
            sa.select(JobRow)
            .where(
                JobRow.server == self.server, JobRow.state.in_([str(state) for state in OVER]), JobRow.ended < moment
            )
            .order_by(JobRow.number)
            .limit(limit)
        )
        with Session(self._reads) as session:
            return [job_of(row) for row in session.scalars(asked)]

    def forget(self, job: Job) -> None:
        """Delete an ended job and its events; its key can be reused."""
        with self._change() as session:
            if State(_locked(session, job.id).state) in OVER:
                for table in (EventRow, LabelRow):
                    session.execute(sa.delete(table).where(table.job == job.number))
                session.execute(sa.delete(JobRow).where(JobRow.number == job.number))

    def move(
        self, job: Job, state: State, text: str = "", details: dict[str, Any] | None = None, **columns: Any
    ) -> Job:
        """Change the state of a job, in the attempt of the caller.

        Parameters
        ----------
        job : Job
        state : State
        text, details
            Text and details of the event.
        **columns
            Other columns to set: ``cost``, ``progress``, ``summary``, …

        Raises
        ------
        LostJob
            The attempt is outdated, or the transition is not permitted.
        """
        with self._change() as session:
            row = self._own(session, job)
            for name, value in columns.items():
                setattr(row, name, value)
            if state in OVER:
                self._end(session, row, state, text, details)
            else:
                self._move(session, row, state, text, details)
            found = job_of(row)
        self._notify(job.id)
        return found

    def note(self, job: Job, kind: str, text: str = "", details: dict[str, Any] | None = None, **columns: Any) -> Job:
        """Write an event without a change of state.

        Raises
        ------
        LostJob
        """
        with self._change() as session:
            row = self._own(session, job)
            for name, value in columns.items():
                setattr(row, name, value)
            self._note(session, row, kind, text, details)
            found = job_of(row)
        self._notify(job.id)
        return found

    def check(self) -> None:
        """Check the database; raise one of `AWAY` if it is unavailable or was replaced."""
        with Session(self._reads) as session:
            session.execute(sa.select(JobRow.number).limit(1))

    @contextmanager
    def _change(self) -> Iterator[Session]:
        with Session(self._writes, expire_on_commit=False) as session, session.begin():
            yield session

    def _own(self, session: Session, job: Job) -> JobRow:
        row = _locked(session, job.id)
        if row.attempts != job.attempts or State(row.state) in OVER:
            raise LostJob(f"job {job.id}: attempt {job.attempts} is outdated; {row.state} in attempt {row.attempts}")
        return row

    def _move(
        self, session: Session, row: JobRow, state: State, text: str, details: dict[str, Any] | None = None
    ) -> None:
        check_move(row.id, State(row.state), state)
        row.state = state
        self._note(session, row, "state", text, details)

    def _end(
        self, session: Session, row: JobRow, state: State, text: str, details: dict[str, Any] | None = None
    ) -> None:
        row.ended = self._clock.now()
        if state == State.FAILED:
            row.error = text
        self._move(session, row, state, text, details)

    def _note(self, session: Session, row: JobRow, kind: str, text: str, details: dict[str, Any] | None = None) -> None:
        assert kind in EVENT_KINDS, f"no kind of event {kind!r}"
        row.events = (row.events or 0) + 1
        session.add(
            EventRow(
                job=row.number, number=row.events, time=self._clock.now(), kind=kind, state=row.state, text=text,
                details=details,
            )
        )  # fmt: skip

    def _notify(self, job: str) -> None:
        if self.heard is not None:
            self.heard(job)


def _row(session: Session, job: str) -> JobRow:
    row = session.scalars(sa.select(JobRow).where(JobRow.id == job)).one_or_none()
    if row is None:
        raise UnknownJob(f"job {job[:80]!r} does not exist")
    return row


def _locked(session: Session, job: str) -> JobRow:
    """Return the row of a job, locked until the transaction ends."""
    row = session.scalars(sa.select(JobRow).where(JobRow.id == job).with_for_update()).one_or_none()
    if row is None:
        raise UnknownJob(f"job {job[:80]!r} does not exist")
    return row


def clients_in_turn(server: str) -> sa.Select[Any]:
    """Select the clients with queued jobs of a server, least recently served first."""
    waits = (JobRow.server == server, JobRow.state == State.QUEUED)
    first = sa.select(sa.func.min(JobRow.client).label("client")).where(*waits).cte("clients", recursive=True)
    after = sa.select(sa.func.min(JobRow.client)).where(*waits, JobRow.client > first.c.client)
    clients = first.union_all(sa.select(after.scalar_subquery()).where(first.c.client.is_not(None)))
    own = JobRow.client == clients.c.client
    turn = sa.select(sa.func.max(JobRow.claimed)).where(JobRow.server == server, own).scalar_subquery()
    oldest = sa.select(sa.func.min(JobRow.number)).where(*waits, own).scalar_subquery()
    known = clients.c.client.is_not(None)
    return sa.select(clients.c.client).where(known).order_by(sa.func.coalesce(turn, 0.0), oldest)
