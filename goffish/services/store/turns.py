"""Whose turn it is: clients with jobs that wait, by a walk over an index that the number of jobs does not slow."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from goffish.services.store.lifecycle import State
from goffish.services.store.tables import JobRow


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
