"""Due times of jobs, to find expired queued jobs by index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("jobs", sa.Column("due", sa.Double()))
    jobs = sa.table("jobs", *(sa.column(name) for name in ("number", "submitted", "due")), sa.column("spec", sa.JSON()))
    database = op.get_bind()
    limits = [
        {"at": number, "due_at": submitted + spec["deadline_s"]}
        for number, submitted, spec in database.execute(sa.select(jobs.c.number, jobs.c.submitted, jobs.c.spec))
        if spec.get("deadline_s") is not None
    ]
    if limits:
        change = sa.update(jobs).where(jobs.c.number == sa.bindparam("at")).values(due=sa.bindparam("due_at"))
        database.execute(change, limits)
    op.create_index("ix_jobs_due", "jobs", ["server", "state", "due"])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_jobs_due", "jobs")
    op.drop_column("jobs", "due")
