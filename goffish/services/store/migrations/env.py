"""Alembic environment: run migrations on a given connection in one transaction."""

from __future__ import annotations

from alembic import context

from goffish.services.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
