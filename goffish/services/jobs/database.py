"""The database of the service: SQLite by default, PostgreSQL by URL; brought to the newest tables when it is opened."""

from __future__ import annotations

from importlib import resources
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from goffish.errors import InputError, JobError

#: Seconds that a transaction of SQLite waits for another one to end.
_WAITS_S = 30.0
#: What is raised while a database is locked, away, or has no connection left.
AWAY = (DBAPIError, sa.exc.TimeoutError)
#: Connections that are kept, and more that there may be at a time.
_POOL = {"pool_size": 8, "max_overflow": 40}
_MIGRATIONS = "goffish.services.jobs.migrations"


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
    try:
        engine = sa.create_engine(parsed, pool_pre_ping=kind == "postgresql", **_POOL, **options)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise InputError("the database: its driver is missing, pip install 'psycopg[binary]'") from None
    if kind == "sqlite":
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    try:
        _migrate(engine)
    except DBAPIError as error:
        engine.dispose()
        told = str(error.orig).strip().splitlines()
        raise JobError(f"the database {parsed.render_as_string()}: {told[0] if told else error}") from None
    return engine


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
