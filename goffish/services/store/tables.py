"""Tables of the database; a test compares them with the migrations."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, Integer, MetaData, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

#: SQLite generates row numbers for columns of this type only.
_Number = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """Base of the tables; names all constraints, as required by migrations."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {float: Double()}
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class JobRow(Base):
    """Job. Times are seconds since 1970 (UTC)."""

    __tablename__ = "jobs"

    number: Mapped[int] = mapped_column(_Number, primary_key=True)
    id: Mapped[str] = mapped_column(String(40), unique=True)
    #: The server that accepted the job and runs it.
    server: Mapped[str] = mapped_column(String(40))
    client: Mapped[str] = mapped_column(String(120))
    client_key: Mapped[str | None] = mapped_column(String(200))
    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    what: Mapped[str] = mapped_column(String(120), index=True)
    state: Mapped[str] = mapped_column(String(20))
    submitted: Mapped[float]
    #: Time of the deadline.
    due: Mapped[float | None]
    started: Mapped[float | None]
    ended: Mapped[float | None]
    #: Start of the last attempt, for fair scheduling across clients.
    claimed: Mapped[float | None]
    attempts: Mapped[int] = mapped_column(default=0)
    #: Number of lost workers.
    losses: Mapped[int] = mapped_column(default=0)
    cost: Mapped[float] = mapped_column(default=0.0)
    expected_cost: Mapped[float] = mapped_column(default=0.0)
    currency: Mapped[str] = mapped_column(String(10), default="")
    #: Provider of its machines; empty without rented machines.
    provider: Mapped[str] = mapped_column(String(40), default="")
    error: Mapped[str] = mapped_column(Text, default="")
    summary: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    progress: Mapped[int] = mapped_column(BigInteger, default=0)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    #: Number of the last event.
    events: Mapped[int] = mapped_column(default=0)

    __table_args__ = (
        UniqueConstraint("client", "client_key"),
        Index("ix_jobs_server_state", "server", "state", "number"),
        Index("ix_jobs_state", "state", "number"),
        Index("ix_jobs_due", "server", "state", "due"),
        Index("ix_jobs_waiting", "server", "state", "client", "number"),
        Index("ix_jobs_turns", "server", "client", "claimed"),
    )


class LabelRow(Base):
    """Label of a job."""

    __tablename__ = "labels"

    job: Mapped[int] = mapped_column(ForeignKey("jobs.number"), primary_key=True)
    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    value: Mapped[str] = mapped_column(String(240))

    __table_args__ = (Index("ix_labels_value", "name", "value"),)


class InstanceRow(Base):
    """ID of the database: a single row."""

    __tablename__ = "instance"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)


class EventRow(Base):
    """Event of a job, numbered from 1."""

    __tablename__ = "events"

    job: Mapped[int] = mapped_column(ForeignKey("jobs.number"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[float]
    kind: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20))
    text: Mapped[str] = mapped_column(Text)
    details: Mapped[dict[str, Any] | None] = mapped_column(JSON)
