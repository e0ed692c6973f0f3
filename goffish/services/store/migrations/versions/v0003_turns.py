"""Start time of the last attempt, for fair scheduling across clients."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("jobs", sa.Column("claimed", sa.Double()))
    op.create_index("ix_jobs_waiting", "jobs", ["server", "state", "client", "number"])
    op.create_index("ix_jobs_turns", "jobs", ["server", "client", "claimed"])


def downgrade() -> None:
    """Downgrade the schema."""
    for name in ("ix_jobs_turns", "ix_jobs_waiting"):
        op.drop_index(name, "jobs")
    op.drop_column("jobs", "claimed")
