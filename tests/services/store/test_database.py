"""The tables of a database, and what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from goffish.errors import InputError, JobError
from goffish.services.store.database import open_database
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
from goffish.services.store.tables import Base


def test_the_steps_lead_to_the_tables(url: str) -> None:
    """Breaks when somebody changes a table and forgets the step that changes a database."""
    engine = open_database(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_a_database_of_an_older_program_is_brought_forward(url: str) -> None:
    """Breaks when an upgrade forgets a job, or the deadline of one."""
    engine = open_database(url)
    jobs = Jobs(engine, "here")
    bodies = [{"graph": {"algorithm": "bfs", "input_uri": "g"}, "deadline_s": limit} for limit in (7.5, None)]
    made = [jobs.submit(JobSpec.model_validate(body), "ann")[0] for body in bodies]
    with engine.begin() as connection:
        for index in ("due", "turns", "waiting"):
            connection.execute(sa.text(f"DROP INDEX ix_jobs_{index}"))
        for column in ("due", "claimed", "provider"):
            connection.execute(sa.text(f"ALTER TABLE jobs DROP COLUMN {column}"))
        connection.execute(sa.text("DROP TABLE instance"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    engine.dispose()
    engine = open_database(url)
    with engine.connect() as connection:
        due = dict(connection.execute(sa.text("SELECT id, due FROM jobs")).all())
    assert due == {made[0].id: pytest.approx(made[0].submitted + 7.5), made[1].id: None}
    assert Jobs(engine, "here").get(made[0].id).spec == made[0].spec
    engine.dispose()


def test_opening_twice_changes_nothing(url: str) -> None:
    """Breaks when a second start of the server fails, or forgets what was there."""
    first = open_database(url)
    with first.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = version_num"))
        before = sa.inspect(connection).get_table_names()
    first.dispose()
    second = open_database(url)
    with second.connect() as connection:
        assert sa.inspect(connection).get_table_names() == before
    second.dispose()


def test_a_database_of_a_newer_program_is_refused(url: str) -> None:
    """Breaks when an old server works on tables that it does not know."""
    engine = open_database(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(InputError, match="newer version of goffish"):
        open_database(url)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("jobs.db", "give a URL such as sqlite:///FILE"),
        ("mysql://root@localhost/jobs", "use sqlite or postgresql"),
    ],
)
def test_urls_that_cannot_be_used(url: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        open_database(url)


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    """Breaks when the message shows a password, or takes more than a line."""
    with pytest.raises(JobError, match="unable to open") as caught:
        open_database(f"sqlite:///{tmp_path}/no/such/folder/jobs.sqlite")
    assert "\n" not in str(caught.value)
    with pytest.raises(JobError) as caught:
        open_database("postgresql://ann:secret@127.0.0.1:1/jobs?connect_timeout=2")
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "one of graph, dataflow and flow"),
        ({"graph": {"algorithm": "bfs", "input_uri": "g"}, "dataflow": {"dataflow": "linear-road"}}, "one of graph"),
        ({"graph": {"algorithm": "bfs"}}, "input_uri"),
        ({"graph": {"algorithm": "bfs", "input_uri": "g", "workers": 0}}, "workers"),
        ({"graph": {"algorithm": "bfs", "input_uri": "g", "policy": "file.py:Mine"}}, "policy"),
        ({"graph": {"algorithm": "bfs", "input_uri": "g"}, "deadline_s": float("nan")}, "deadline_s"),
        ({"dataflow": {"dataflow": "linear-road", "hours": -1}}, "hours"),
    ],
)
def test_jobs_that_cannot_be_asked_for(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        JobSpec.model_validate(given)


def test_a_job_reads_back_as_it_was_written() -> None:
    """Breaks when what is kept in the database is another job than what was accepted."""
    spec = JobSpec.model_validate(
        {
            "graph": {"algorithm": "bfs", "input_uri": "g", "options": {"source": "3"}, "runner": "mpi", "workers": 2},
            "deadline_s": 30.5,
            "labels": {"a": "b"},
        }
    )
    assert JobSpec.model_validate(spec.as_json()) == spec
