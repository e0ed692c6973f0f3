"""Jobs, their labels and their events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "jobs",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("server", sa.String(40), nullable=False),
        sa.Column("client", sa.String(120), nullable=False),
        sa.Column("client_key", sa.String(200)),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("what", sa.String(120), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("submitted", sa.Double(), nullable=False),
        sa.Column("started", sa.Double()),
        sa.Column("ended", sa.Double()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.Column("expected_cost", sa.Double(), nullable=False),
        sa.Column("currency", sa.String(10), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("summary", sa.JSON()),
        sa.Column("progress", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
        sa.UniqueConstraint("client", "client_key", name="uq_jobs_client_client_key"),
    )
    op.create_index("ix_jobs_what", "jobs", ["what"])
    op.create_index("ix_jobs_server_state", "jobs", ["server", "state", "number"])
    op.create_index("ix_jobs_state", "jobs", ["state", "number"])
    op.create_table(
        "labels",
        sa.Column("job", _NUMBER, sa.ForeignKey("jobs.number", name="fk_labels_job"), primary_key=True),
        sa.Column("name", sa.String(120), primary_key=True),
        sa.Column("value", sa.String(240), nullable=False),
    )
    op.create_index("ix_labels_value", "labels", ["name", "value"])
    op.create_table(
        "events",
        sa.Column("job", _NUMBER, sa.ForeignKey("jobs.number", name="fk_events_job"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON()),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    for name in ("events", "labels", "jobs"):
        op.drop_table(name)
