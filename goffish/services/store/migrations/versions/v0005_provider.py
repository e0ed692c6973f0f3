"""Provider of the machines of a job, for reports of costs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("jobs", sa.Column("provider", sa.String(40), nullable=False, server_default=""))


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_column("jobs", "provider")
