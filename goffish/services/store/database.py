"""Database of the service: SQLite by default, or PostgreSQL; migrated to the current schema when opened."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import time
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, DBAPIError

from goffish.errors import InputError, JobError
from goffish.extras import needed_for

#: Lock timeout of SQLite transactions, in seconds.
_WAITS_S = 30.0


class ReplacedDatabase(Exception):
    """The database file or its ID differs from the opened one."""


#: Errors of a database that is locked, unavailable, replaced, or out of connections.
AWAY = (DBAPIError, sa.exc.TimeoutError, ReplacedDatabase)
#: Messages of drivers about removed databases or tables.
_GONE = re.compile("no such table|does not exist|is not a database|malformed|file has been moved|readonly database")
#: Pooled connections, and maximum additional ones.
_POOL = {"pool_size": 8, "max_overflow": 40}
#: Header fields that identify a SQLite file.
_HEADER = ("application_id", "user_version")
#: Maximum granularity of file times, in seconds.
_CLOCK_STEP_S = 1.0
_MIGRATIONS = "goffish.services.store.migrations"


def open_database(url: str, *, waits_s: float = _WAITS_S) -> Engine:
    """Connect to a database and migrate its tables.

    Parameters
    ----------
    url : str
        SQLAlchemy URL: ``sqlite:///FILE`` or ``postgresql+psycopg://…``.
    waits_s : float
        Lock timeout of SQLite transactions, in seconds.

    Raises
    ------
    InputError
        The URL is invalid, the driver is not installed, or the schema is newer than this program.
    JobError
        The database does not exist or is unavailable.
    """
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise InputError("--database: give a URL such as sqlite:///FILE or postgresql+psycopg://…") from None
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise InputError(f"--database: {kind} is not supported; use sqlite or postgresql")
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
        reasons = str(error.orig).strip().splitlines()
        raise JobError(f"--database {parsed.render_as_string()}: {reasons[0] if reasons else error}") from None
    return engine


def is_replaced(error: BaseException) -> bool:
    """Return whether a database was removed or replaced, rather than temporarily unavailable."""
    return isinstance(error, ReplacedDatabase) or _GONE.search(str(getattr(error, "orig", error))) is not None


class _Identity:
    """Check before every transaction that the database has not been replaced.

    A removed file stays writable through open connections, while new connections create an empty file: without this
    check, accepted jobs would be lost. A file that is moved back is accepted; a copy is not, because it may lack jobs.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        named = file not in (None, "", ":memory:") and not str(file).startswith("file:")
        self._file = _File(engine, str(file)) if named else None
        with engine.connect() as connection:
            self._id = self._read(connection)

    def watch(self) -> None:
        """Install the checks."""
        sa.event.listen(self._engine, "do_connect", lambda *_: self._check_file())
        sa.event.listen(self._engine, "begin", self._check)

    def _check(self, connection: sa.Connection) -> None:
        self._check_file()
        found = self._read(connection)
        if found != self._id:
            raise ReplacedDatabase(f"the database has the ID {found}; expected {self._id}")
        if self._file is not None and connection.get_execution_options().get("goffish_writes", False):
            _count_write(connection)

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()

    @staticmethod
    def _read(connection: sa.Connection) -> str | None:
        row = connection.exec_driver_sql("SELECT id FROM instance").fetchone()
        return None if row is None else str(row[0])


class _Header(NamedTuple):
    """Application fields in the header of a SQLite file, without the write-ahead log."""

    id: int
    writes: int


class _File:
    """SQLite file and its write-ahead log, identified by their inodes and the file header.

    The header has a random ID (``PRAGMA application_id``) and counts write transactions (``PRAGMA user_version``):
    content copied over the file has another ID or a lower count.
    """

    def __init__(self, engine: Engine, path: str) -> None:
        self._path = path
        with writing(engine).connect() as connection:
            if connection.exec_driver_sql("PRAGMA application_id").scalar_one() == 0:
                connection.exec_driver_sql(f"PRAGMA application_id = {secrets.randbelow(2**31 - 1) + 1}")
                _count_write(connection)
            self._id = int(connection.exec_driver_sql("PRAGMA application_id").scalar_one())
            connection.commit()
        # An open connection prevents SQLite from removing the write-ahead log.
        self._keeper = engine.raw_connection()
        self._keeper.detach()
        cursor = self._keeper.cursor()
        cursor.execute("SELECT id FROM instance").fetchall()
        self._header = self._read()
        if self._header is None or self._header.id != self._id:
            # The ID is in the write-ahead log only.
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._header = self._read()
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
        names = [path, *([f"{path}-wal", f"{path}-shm"] if mode == "wal" else [])]
        self._inodes = {name: _inode(name) for name in names}
        sa.event.listen(engine, "engine_disposed", self._let_go)
        self._known: tuple[int, ...] | None = None

    def check(self) -> None:
        """Check the inodes, and the header if the file was written.

        Raises
        ------
        ReplacedDatabase
        """
        for name, inode in self._inodes.items():
            if _inode(name) != inode:
                raise ReplacedDatabase(f"{name} was removed or replaced")
        try:
            found = os.stat(self._path)  # noqa: PTH116 (on every transaction)
        except OSError:
            found = None
        state = None if found is None else (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if found is None or not found.st_size:
            raise ReplacedDatabase(f"{self._path} was removed or replaced")
        if state == self._known:
            return
        header = self._read()
        # A checkpoint advances the count, which wraps around at 2^32.
        if header is None or self._header is None or header.id not in (self._id, self._header.id):
            raise ReplacedDatabase(f"{self._path} was overwritten by another file")
        if (header.writes - self._header.writes) % 2**32 >= 2**31:
            raise ReplacedDatabase(f"{self._path} was overwritten by an older copy")
        self._header = header
        # A recently written file may change again without a new time stamp.
        self._known = state if time.time() - max(found.st_mtime, found.st_ctime) > _CLOCK_STEP_S else None

    def _let_go(self, _: Engine) -> None:
        """Close the connection that retains the write-ahead log."""
        self._inodes = {self._path: self._inodes[self._path]}
        self._keeper.close()

    def _read(self) -> _Header | None:
        address = f"file:{quote(str(Path(self._path).absolute()))}?immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                # Otherwise, SQLite rejects a file that a checkpoint is extending.
                connection.execute("PRAGMA writable_schema=ON")
                return _Header(*(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _HEADER))
        except sqlite3.Error:
            return None


def _inode(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 (on every transaction)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _count_write(connection: sa.Connection) -> None:
    writes = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    connection.exec_driver_sql(f"PRAGMA user_version = {writes + 1 if writes + 1 < 2**31 else -(2**31)}")


def writing(engine: Engine) -> Engine:
    """Return the engine for write transactions, which acquire the write lock at their beginning."""
    return engine.execution_options(goffish_writes=True)


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # This module, not the driver, begins transactions.
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
            raise InputError(f"--database: created by a newer version of goffish ({error})") from None
        connection.commit()
