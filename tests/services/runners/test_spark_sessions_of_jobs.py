"""Graph jobs in sessions of a server of Spark Connect that requires a token: results, ends of sessions, secrets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import goffish as gf
from tests.services.api.serving import RealServer, settle
from tests.services.runners.test_spark_cluster import ENDLESS, SECONDS, when_saved
from tests.services.spark_cluster import TOKEN, Connect, connect_server, environment, line_of, wait_until

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, storage and properties of Spark."""
    made = tmp_path_factory.mktemp("connect")
    rng = np.random.default_rng(5)
    gf.partition(gf.from_edges(*rng.integers(0, 500, (2, 3000))), parts=2, method="hash").save(made / "data" / "store")
    (made / "storage").mkdir()
    return made


@pytest.fixture(scope="module")
def connect(folder: Path) -> Iterator[Connect]:
    with connect_server(folder) as found:
        yield found


def options(folder: Path, connect: Connect, token: str = TOKEN) -> list[str]:
    properties = folder / "spark.conf"
    properties.touch(0o600)
    properties.write_text(f"spark.remote {connect.url}/;token={token}\n")
    return ["--spark-properties", str(properties), "--spark-storage", str(folder / "storage"), "--max-memory", "3000"]


@pytest.fixture
def server(folder: Path, connect: Connect) -> Iterator[RealServer]:
    web = ("--web", "127.0.0.1:0", "--grace", "1")
    found = RealServer(folder / "home", folder / "data", *options(folder, connect), *web).start()
    try:
        yield found
    finally:
        found.stop()
        for process in found.workers():
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sessions_of_jobs(server: RealServer, folder: Path, connect: Connect) -> None:
    """A job resumes after its worker was killed; what a worker ran ends with it; the token is shown nowhere."""
    with server.client() as client:
        jobs = [client.submit_graph("pagerank", "store", SECONDS, runner="spark", checkpoint_every=25).id]
        when_saved(client, jobs[0])
        assert server.workers() and not any(TOKEN in line_of(process) for process in server.workers())
        for process in server.workers():
            process.kill()
        same = client.submit_graph("pagerank", "store", SECONDS, runner="local", checkpoint_every=1000).id
        settle(client, [*jobs, same], 200)
        assert [client.job(job).error for job in (*jobs, same)] == ["", ""]
        assert client.job(jobs[0]).attempts == 2
        assert client.result(jobs[0]).equals(client.result(same))
        jobs.append(client.submit_graph("pagerank", "store", ENDLESS, runner="spark", checkpoint_every=25).id)
        when_saved(client, jobs[1])
        client.cancel(jobs[1])
        settle(client, jobs, 60)
        texts = [f"{event.text} {event.details}" for job in jobs for event in client.watch(job)]
        texts += [client.log(job) for job in jobs]
        assert not any(TOKEN in text for text in texts)
    wait_until(lambda: not connect.running(), 15)
    files = [path for path in [*server.home.rglob("*"), server.log] if path.is_file()]
    assert len(files) > 5 and not any(TOKEN.encode() in path.read_bytes() for path in files)
    assert not any((folder / "storage").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_server_and_worker(server: RealServer, connect: Connect) -> None:
    """The next server ends the session that both have left, and resumes the job."""
    with server.client() as client:
        job = client.submit_graph("pagerank", "store", ENDLESS, runner="spark", checkpoint_every=25).id
        when_saved(client, job)
        server.kill()
    for process in server.workers():
        process.kill()
    assert connect.running() == 1
    server.start()
    with server.client() as client:
        when_saved(client, job, 2)
        assert connect.running() == 1  # that of the second attempt
        client.cancel(job)
        settle(client, [job], 60)
    wait_until(lambda: not connect.running(), 15)


@pytest.mark.slow
def test_a_wrong_token(folder: Path, connect: Connect) -> None:
    command = [sys.executable, "-m", "goffish", "serve", "--home", str(folder / "other")]
    command += ["--listen", f"unix:{folder}/other.socket", *options(folder, connect, "wr0ng")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment())
    assert done.returncode == 2
    assert done.stderr == f"error: Spark Connect {connect.url}: Invalid authentication token\n"
