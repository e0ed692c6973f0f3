"""Where jobs are kept: every change of a job is one transaction that also writes its event.

Only the server that accepted a job works at it, and only in the attempt that it began last: whoever speaks of an older
attempt is refused (`LostJob`), so nothing is done twice by two workers.
"""

from __future__ import annotations

import json
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

#: Jobs that one query names.
_AT_ONCE = 500
#: Jobs of a list that are held at a time.
_AT_A_TIME = 20


class UnknownJob(InputError):
    """There is no such job."""


class Jobs:
    """The jobs of a database.

    Parameters
    ----------
    engine : Engine
        Of `open_database`.
    server : str
        Who accepts jobs here.
    clock : Clock, optional
    heard : callable, optional
        Called with a job's id after each of its events.
    """

    def __init__(
        self, engine: Engine, server: str, clock: Clock | None = None, heard: Callable[[str], None] | None = None
    ) -> None:
        self._reads, self._writes = engine, writing(engine)
        self.server, self._clock = server, clock or Clock()
        self.heard = heard

    def submit(self, spec: JobSpec, client: str, client_key: str | None = None) -> tuple[Job, bool]:
        """Accept a job; the same client and key give the same job again.

        Returns
        -------
        job : Job
        known : bool
            Whether it was there already.

        Raises
        ------
        InputError
            The key was used for another job.
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
        self._tell(made.id)
        return made, False

    def known(self, spec: JobSpec, client: str, client_key: str) -> Job | None:
        """The job that a client was given for a key before.

        Raises
        ------
        InputError
            It was another job.
        """
        with Session(self._reads) as session:
            where = (JobRow.client == client, JobRow.client_key == client_key)
            found = session.scalars(sa.select(JobRow).where(*where)).one_or_none()
            # As read today: what it was written by may have been another version.
            if found is not None and JobSpec.model_validate(found.spec) != spec:
                raise InputError(f"client_key: {client_key!r} was used for another job, {found.id}; take a new one")
            return None if found is None else job_of(found)

    def get(self, job: str) -> Job:
        """A job by its id.

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
        """Jobs, the newest first, read a few at a time.

        Parameters
        ----------
        states, labels, what, client
            Any of these states, all of these labels, this algorithm, this client; empty: all.
        before : int, optional
            Only jobs that were accepted before the one of this number.
        limit : int
        """
        # Columns take a third of the time of objects that the session keeps track of.
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
        """Jobs in each state, of everybody or one client."""
        asked = sa.select(JobRow.state, sa.func.count()).group_by(JobRow.state)
        if client:
            asked = asked.where(JobRow.client == client)
        with Session(self._reads) as session:
            found = {State(state): int(count) for state, count in session.execute(asked)}
        return {state: found.get(state, 0) for state in State}

    def waiting(self) -> dict[str, int]:
        """Jobs that wait here, by their clients."""
        asked = (
            sa.select(JobRow.client, sa.func.count())
            .where(JobRow.server == self.server, JobRow.state == State.QUEUED)
            .group_by(JobRow.client)
        )
        with Session(self._reads) as session:
            return {client: int(count) for client, count in session.execute(asked)}

    def events(self, job: str, after: int = 0, limit: int = 1000, every: int = 1) -> list[Event]:
        """Events of a job with greater numbers, in their order; of the kinds that come `OFTEN` about one of so many."""
        # Multiplied by an odd number near the golden section, so that kinds that take turns are left out alike.
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
        """Events of a job with greater numbers, and whether it was over before they were read."""
        over = self.get(job).over
        return self.events(job, after), over

    def last_events(self, jobs: Sequence[str]) -> dict[str, int]:
        """The number of the last event of each of these jobs."""
        found: dict[str, int] = {}
        with Session(self._reads) as session:
            for first in range(0, len(jobs), _AT_ONCE):
                some = jobs[first : first + _AT_ONCE]
                rows = session.execute(sa.select(JobRow.id, JobRow.events).where(JobRow.id.in_(some)))
                found.update((job, number) for job, number in rows)
        return found

    def cancel(self, job: str, by: str) -> Job:
        """Ask a job to stop: one that waits is over at once, one that is worked at as soon as its worker is gone."""
        with self._change() as session:
            row = _locked(session, job)
            if State(row.state) in OVER or row.cancel_requested:
                return job_of(row)
            row.cancel_requested = True
            if row.state == State.QUEUED:
                self._end(session, row, State.CANCELLED, f"cancelled by {by} before it began")
            else:
                self._note(session, row, "cancel", f"asked for by {by}")
            found = job_of(row)
        self._tell(job)
        return found

    def claim(self, limit: int = 1) -> list[Job]:
        """Begin an attempt of jobs that wait here: clients take turns, each with its oldest job."""
        found: list[Job] = []
        with self._change() as session:
            while len(found) < limit and (row := self._next(session)) is not None:
                row.attempts += 1
                row.claimed = self._clock.now()
                row.started = row.started or row.claimed
                self._move(session, row, State.PLANNED, f"attempt {row.attempts}", {"attempt": row.attempts})
                found.append(job_of(row))
        for job in found:
            self._tell(job.id)
        return found

    def _next(self, session: Session) -> JobRow | None:
        """The oldest job that waits of the client whose last turn is the longest ago."""
        waits = (JobRow.server == self.server, JobRow.state == State.QUEUED)
        for client in session.scalars(clients_in_turn(self.server)).all():
            asked = sa.select(JobRow).where(*waits, JobRow.client == client).order_by(JobRow.number).limit(1)
            # A row that another transaction holds is left out, and found again the next time.
            row = session.scalars(asked.with_for_update(skip_locked=True)).one_or_none()
            if row is not None:
                return row
        return None

    def expire(self, limit: int = 1000) -> int:
        """End jobs that waited here until their deadline; gives how many."""
        late = (JobRow.server == self.server, JobRow.state == State.QUEUED, JobRow.due < self._clock.now())
        with Session(self._reads) as session:
            if session.scalar(sa.select(JobRow.number).where(*late).limit(1)) is None:
                return 0
        with self._change() as session:
            asked = sa.select(JobRow).where(*late).order_by(JobRow.number).limit(limit)
            rows = session.scalars(asked.with_for_update(skip_locked=True)).all()
            for row in rows:
                limit_s = JobSpec.model_validate(row.spec).deadline_s
                self._end(session, row, State.FAILED, f"its deadline of {limit_s:g} s passed while it waited")
            ended = [row.id for row in rows]
        for job in ended:
            self._tell(job)
        return len(ended)

    def inputs_in_use(self) -> set[str]:
        """URIs of the uploads that jobs of every server name as input or option, as long as they are not over."""
        graph = JobRow.spec["graph"]
        uri, options = graph["input_uri"].as_string(), graph["options"].as_string()
        ahead = JobRow.state.not_in([str(state) for state in OVER])
        inputs = sa.select(uri).where(ahead, uri.startswith(UPLOAD)).distinct()
        naming = sa.select(options).where(ahead, options.contains(f'"{UPLOAD}')).distinct()
        with Session(self._reads) as session:
            found = set(session.scalars(inputs))
            for text in session.scalars(naming):
                found.update(value for value in json.loads(text).values() if value.startswith(UPLOAD))
            return found

    def unfinished(self) -> list[Job]:
        """Jobs of this server that somebody began and nobody ended."""
        away = [str(state) for state in State if state not in OVER and state != State.QUEUED]
        asked = sa.select(JobRow).where(JobRow.server == self.server, JobRow.state.in_(away)).order_by(JobRow.number)
        with Session(self._reads) as session:
            return [job_of(row) for row in session.scalars(asked)]

    def over_since(self, moment: float, limit: int) -> list[Job]:
        """Jobs of this server that were over before a moment, the oldest first."""
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
        """Delete a job that is over, with its events; its key can be used again."""
        with self._change() as session:
            if State(_locked(session, job.id).state) in OVER:
                for table in (EventRow, LabelRow):
                    session.execute(sa.delete(table).where(table.job == job.number))
                session.execute(sa.delete(JobRow).where(JobRow.number == job.number))

    def move(
        self, job: Job, state: State, text: str = "", details: dict[str, Any] | None = None, **columns: Any
    ) -> Job:
        """Bring a job to another state, in the attempt that the caller knows.

        Parameters
        ----------
        job : Job
        state : State
        text, details
            Of the event.
        **columns
            Others that change: ``cost``, ``progress``, ``summary``, …

        Raises
        ------
        LostJob
            Its attempt is not the last one any more, or the job cannot go there.
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
        self._tell(job.id)
        return found

    def note(self, job: Job, kind: str, text: str = "", details: dict[str, Any] | None = None, **columns: Any) -> Job:
        """Write an event of a job that stays in its state.

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
        self._tell(job.id)
        return found

    def check(self) -> None:
        """Read from the database; raises one of `AWAY` if it does not answer, or is not the one that was opened."""
        with Session(self._reads) as session:
            session.execute(sa.select(JobRow.number).limit(1))

    @contextmanager
    def _change(self) -> Iterator[Session]:
        with Session(self._writes, expire_on_commit=False) as session, session.begin():
            yield session

    def _own(self, session: Session, job: Job) -> JobRow:
        row = _locked(session, job.id)
        if row.attempts != job.attempts or State(row.state) in OVER:
            raise LostJob(f"job {job.id}: attempt {job.attempts} is over, it is {row.state} in attempt {row.attempts}")
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

    def _tell(self, job: str) -> None:
        if self.heard is not None:
            self.heard(job)


def _row(session: Session, job: str) -> JobRow:
    row = session.scalars(sa.select(JobRow).where(JobRow.id == job)).one_or_none()
    if row is None:
        raise UnknownJob(f"no job {job[:80]!r}")
    return row


def _locked(session: Session, job: str) -> JobRow:
    """The row of a job that nobody else changes until the transaction ends."""
    row = session.scalars(sa.select(JobRow).where(JobRow.id == job).with_for_update()).one_or_none()
    if row is None:
        raise UnknownJob(f"no job {job[:80]!r}")
    return row


def clients_in_turn(server: str) -> sa.Select[Any]:
    """Clients with jobs that wait at a server: first those whose last turn is the longest ago."""
    waits = (JobRow.server == server, JobRow.state == State.QUEUED)
    first = sa.select(sa.func.min(JobRow.client).label("client")).where(*waits).cte("clients", recursive=True)
    after = sa.select(sa.func.min(JobRow.client)).where(*waits, JobRow.client > first.c.client)
    clients = first.union_all(sa.select(after.scalar_subquery()).where(first.c.client.is_not(None)))
    own = JobRow.client == clients.c.client
    turn = sa.select(sa.func.max(JobRow.claimed)).where(JobRow.server == server, own).scalar_subquery()
    oldest = sa.select(sa.func.min(JobRow.number)).where(*waits, own).scalar_subquery()
    known = clients.c.client.is_not(None)
    return sa.select(clients.c.client).where(known).order_by(sa.func.coalesce(turn, 0.0), oldest)
