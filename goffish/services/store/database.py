"""The database of the service: SQLite by default, PostgreSQL by URL; brought to the newest tables when it is opened."""

from __future__ import annotations

import os
import re
from importlib import resources
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, DBAPIError

from goffish.errors import InputError, JobError
from goffish.extras import needed_for

#: Seconds that a transaction of SQLite waits for another one to end.
_WAITS_S = 30.0


class ReplacedDatabase(Exception):
    """The database is not the one that was opened: its file or its id is another one."""


#: What is raised while a database is locked, away, replaced, or has no connection left.
AWAY = (DBAPIError, sa.exc.TimeoutError, ReplacedDatabase)
#: How drivers say that a database or its tables are gone.
_GONE = re.compile("no such table|does not exist|is not a database|malformed|file has been moved|readonly database")
#: Connections that are kept, and more that there may be at a time.
_POOL = {"pool_size": 8, "max_overflow": 40}
_MIGRATIONS = "goffish.services.store.migrations"


def open_database(url: str, *, waits_s: float = _WAITS_S) -> Engine:
    """Connect, and bring the tables up to date.

    Parameters
    ----------
    url : str
        Of SQLAlchemy: ``sqlite:///FILE`` or ``postgresql+psycopg://…``.
    waits_s : float
        For a transaction of SQLite to end.

    Raises
    ------
    InputError
        A URL that cannot be used, a driver that is not installed, a database that is newer than this program.
    JobError
        No such database, or it does not answer.
    """
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise InputError("the database: give a URL such as sqlite:///FILE or postgresql+psycopg://…") from None
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise InputError(f"the database is of kind {kind}: SQLite and PostgreSQL are possible")
    if kind == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    options: dict[str, Any] = {"connect_args": {"timeout": waits_s}} if kind == "sqlite" else {}
    with needed_for("--database"):
        engine = sa.create_engine(parsed, pool_pre_ping=kind == "postgresql", **_POOL, **options)
    if kind == "sqlite":
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    try:
        _migrate(engine)
        _Identity(engine).watch()
    except DBAPIError as error:
        engine.dispose()
        told = str(error.orig).strip().splitlines()
        raise JobError(f"the database {parsed.render_as_string()}: {told[0] if told else error}") from None
    return engine


def is_replaced(error: BaseException) -> bool:
    """Whether a database was removed or replaced, and not only away for a time."""
    return isinstance(error, ReplacedDatabase) or _GONE.search(str(getattr(error, "orig", error))) is not None


class _Identity:
    """Checks before every transaction that the database is still the one that was opened.

    A removed file stays writable for those who have it open, and new connections make an empty one: without this,
    accepted jobs would be lost. A file that is moved back is recognised. A copy is not, since it lacks the jobs that
    were accepted later.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._file = engine.url.database if engine.dialect.name == "sqlite" else None
        if self._file in (None, "", ":memory:") or str(self._file).startswith("file:"):
            self._file = None
        self._inode = self._stat()
        with engine.connect() as connection:
            self._id = self._read(connection)

    def watch(self) -> None:
        """Check from now on."""
        sa.event.listen(self._engine, "do_connect", lambda *_: self._check_file())
        sa.event.listen(self._engine, "begin", self._check)

    def _check(self, connection: sa.Connection) -> None:
        self._check_file()
        found = self._read(connection)
        if found != self._id:
            raise ReplacedDatabase(f"the id of the database is {found} instead of {self._id}")

    def _check_file(self) -> None:
        if self._file is not None and self._stat() != self._inode:
            raise ReplacedDatabase(f"{self._file} was removed or replaced")

    def _stat(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)  # noqa: PTH116 (on every transaction)
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found.st_size else None

    @staticmethod
    def _read(connection: sa.Connection) -> str | None:
        row = connection.exec_driver_sql("SELECT id FROM instance").fetchone()
        return None if row is None else str(row[0])


def writing(engine: Engine) -> Engine:
    """The same database for transactions that write: they wait for each other at their beginning, not in the middle."""
    return engine.execution_options(goffish_writes=True)


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # Transactions begin where this module says so, not where the driver thinks.
    connection.isolation_level = None
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("goffish_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _migrate(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    with resources.as_file(resources.files(_MIGRATIONS)) as folder, writing(engine).connect() as connection:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise InputError(f"the database is of a newer goffish: {error}") from None
        connection.commit()
