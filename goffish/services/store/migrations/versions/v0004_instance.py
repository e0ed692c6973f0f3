"""ID of the database, to detect a replaced database."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Upgrade the schema."""
    made = op.create_table("instance", sa.Column("id", sa.String(40), primary_key=True))
    op.bulk_insert(made, [{"id": secrets.token_hex(10)}])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("instance")
