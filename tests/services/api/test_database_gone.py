"""A database that is removed, moved or replaced under a running server: nothing is accepted that would be lost."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from goffish.client import Client, ServiceError, requests
from goffish.services.store.database import AWAY, open_database
from goffish.services.store.records import State
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
from goffish.v1 import jobs_pb2
from tests.services.api.serving import serving
from tests.services.store.databases import new_database, new_file, postgres

SPEC = JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g"}})


def removed(path: Path) -> None:
    path.unlink()


def all_removed(path: Path) -> None:
    for file in path.parent.glob("jobs.sqlite*"):
        file.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def replaced_by_nothing(path: Path) -> None:
    path.unlink()
    path.touch()


def replaced_by_a_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def replaced_by_another(path: Path) -> None:
    other = path.with_name("other")
    other.mkdir()
    open_database(new_file(other)).dispose()
    (other / "jobs.sqlite").replace(path)


def overwritten_by_another(path: Path) -> None:
    other = path.with_name("other")
    other.mkdir()
    open_database(new_file(other)).dispose()
    path.write_bytes((other / "jobs.sqlite").read_bytes())


def overwritten_by_text(path: Path) -> None:
    path.write_bytes(b"no database" * 4096)


def without_log(path: Path) -> None:
    for end in ("wal", "shm"):
        path.with_name(f"jobs.sqlite-{end}").unlink()


def with_another_log(path: Path) -> None:
    shutil.copy(path.with_name("jobs.sqlite-wal"), path.with_name("copy"))
    path.with_name("copy").replace(path.with_name("jobs.sqlite-wal"))


def without_index_of_log(path: Path) -> None:
    path.with_name("jobs.sqlite-shm").unlink()


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        for table in ("events", "labels", "jobs", "instance"):
            connection.execute(f"DROP TABLE {table}")
    connection.close()


CHANGES = [removed, all_removed, renamed, emptied, replaced_by_nothing, replaced_by_a_copy, replaced_by_another,
           overwritten_by_another, overwritten_by_text, without_log, with_another_log, without_index_of_log,
           without_tables]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_accepted(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Breaks when a job goes into a file that nobody finds again, or a job of before seems never to have been."""
    engine, path = open_database(new_file(tmp_path)), tmp_path / "jobs.sqlite"
    jobs = Jobs(engine, "here")
    first, _ = jobs.submit(SPEC, "ann", "first")
    change(path)
    before = {file.name: file.stat().st_size for file in tmp_path.glob("jobs.sqlite")}
    for call in (
        lambda: jobs.submit(SPEC, "ann"), lambda: jobs.get(first.id), jobs.check, lambda: list(jobs.find()), jobs.claim,
        lambda: jobs.known(SPEC, "ann", "first"), lambda: jobs.cancel(first.id, "ann"),
    ):  # fmt: skip
        with pytest.raises(AWAY):
            call()
    assert before == {file.name: file.stat().st_size for file in tmp_path.glob("jobs.sqlite")}
    if change is renamed:
        path.with_name("elsewhere").rename(path)
        assert jobs.get(first.id).id == first.id
        assert jobs.submit(SPEC, "ann", "first") == (jobs.get(first.id), True)
    engine.dispose()


def checkpoint(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0] == 0
    connection.close()


def test_an_older_copy_is_written_over_the_file(tmp_path: Path) -> None:
    """Breaks when a backup that is copied over the file takes jobs, or ordinary work is mistaken for that."""
    engine, path = open_database(new_file(tmp_path)), tmp_path / "jobs.sqlite"
    jobs = Jobs(engine, "here")
    checkpoint(path)
    older = path.read_bytes()
    for number in range(300):
        jobs.submit(SPEC, "ann", str(number))
        if number % 50 == 0:
            checkpoint(path)
    checkpoint(path)
    jobs.check()
    newest = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(AWAY, match="overwritten by an older copy"):
        jobs.submit(SPEC, "ann")
    path.write_bytes(newest)
    assert jobs.counts()[State.QUEUED] == 300
    engine.dispose()


def test_the_count_of_transactions_goes_round(tmp_path: Path) -> None:
    """Breaks when a server stops after 2,147,483,647 transactions."""
    url, path = new_file(tmp_path), tmp_path / "jobs.sqlite"
    open_database(url).dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2147483646")
    connection.close()
    engine = open_database(url)
    jobs = Jobs(engine, "here")
    for _ in range(4):
        jobs.submit(SPEC, "ann")
        checkpoint(path)
    jobs.check()
    engine.dispose()


def test_the_same_on_postgresql() -> None:
    """Breaks when a dropped, emptied or replaced database of PostgreSQL takes jobs."""
    with postgres() as address:
        for change in (
            "DROP TABLE events, labels, jobs", "DROP TABLE instance", "UPDATE instance SET id = 'another'",
            "DELETE FROM instance", "DROP SCHEMA public CASCADE; CREATE SCHEMA public",
        ):  # fmt: skip
            url = new_database(address)
            engine = open_database(url)
            jobs = Jobs(engine, "here")
            jobs.submit(SPEC, "ann")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(change)
            for call in (lambda jobs=jobs: jobs.submit(SPEC, "ann"), jobs.check):
                with pytest.raises(AWAY):
                    call()
            engine.dispose()


def health_of(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        asked = health_pb2.HealthCheckRequest(service="goffish.v1.JobService")
        return int(health_pb2_grpc.HealthStub(channel).Check(asked, timeout=10).status)


def becomes(address: str, status: int) -> bool:
    end = time.monotonic() + 20
    while (found := health_of(address)) != status and time.monotonic() < end:
        time.sleep(0.1)
    return found == status


@pytest.mark.slow
def test_a_server_whose_database_is_moved_away(tmp_path: Path, data: Path) -> None:
    """Breaks when the server goes on accepting, stays healthy, says nothing, or does not recover."""
    states = health_pb2.HealthCheckResponse
    with serving(tmp_path / "home", data, "--grace", "1") as server, Client(server.address) as client:
        job = client.wait(client.submit_graph("components", "store", key="a").id)
        path, away = server.home / "jobs.sqlite", server.home / "away"
        path.rename(away)
        for call in (lambda: client._submit(request()), lambda: client.job(job.id)):
            with pytest.raises(ServiceError, match="database was removed or replaced; its operator") as caught:
                call()
            assert caught.value.code == grpc.StatusCode.UNAVAILABLE and "\n" not in str(caught.value)
            assert str(server.home) not in str(caught.value)
        assert becomes(server.address, states.NOT_SERVING) and not path.exists()
        assert f"database unavailable, no jobs are accepted: {path} was removed" in server.log.read_text()
        away.rename(path)
        assert becomes(server.address, states.SERVING)
        assert client.submit_graph("components", "store", key="a").id == job.id
        assert client.wait(client.submit_graph("components", "store").id).state == job.state
        assert "database available again" in server.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_log, "jobs.sqlite-wal was removed or replaced"),
        (overwritten_by_another, "jobs.sqlite was overwritten by another file"),
    ],
)
def test_a_server_whose_database_is_overwritten(
    tmp_path: Path, data: Path, change: Callable[[Path], None], why: str
) -> None:
    """Breaks when the server accepts jobs into a file, or a write-ahead log, that the next start does not find."""
    states = health_pb2.HealthCheckResponse
    with serving(tmp_path / "home", data, "--grace", "1") as server, Client(server.address) as client:
        client.wait(client.submit_graph("components", "store").id)
        change(server.home / "jobs.sqlite")
        with pytest.raises(ServiceError, match="database was removed or replaced; its operator") as caught:
            client._submit(request())
        assert caught.value.code == grpc.StatusCode.UNAVAILABLE and "\n" not in str(caught.value)
        assert becomes(server.address, states.NOT_SERVING)
        assert why in server.log.read_text()


def request() -> jobs_pb2.SubmitRequest:
    """A job that is sent once: `Client.submit` tries again."""
    spec = requests.graph_spec("components", "store", {}, "local", {})
    return requests.filled(jobs_pb2.SubmitRequest(), spec=spec)
