"""Steps that bring a database from any earlier version to this one's tables (Alembic)."""
