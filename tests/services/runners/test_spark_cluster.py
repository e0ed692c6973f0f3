"""Graph jobs on a standalone Spark cluster, whose drivers and executors are killed, and whose server is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest

import goffish as gf
from goffish.client import Client
from tests.services.api.serving import RealServer, settle
from tests.services.spark_cluster import Standalone, environment, line_of, standalone, wait_until

pytest.importorskip("pyspark")

#: Of a job that runs until it is cancelled, and of one that takes some seconds.
ENDLESS, SECONDS = {"supersteps": "1000000"}, {"supersteps": "3000"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph as a store and as a file."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(5)
    gf.partition(gf.from_edges(*rng.integers(0, 500, (2, 3000))), parts=2, method="hash").save(folder / "store")
    (folder / "edges.txt").write_text("".join(f"{u} {v}\n" for u, v in rng.integers(0, 300, (900, 2))))
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, data: Path, cluster: Standalone, storage: Path
) -> Iterator[RealServer]:
    home = tmp_path_factory.mktemp("server") / "home"
    options = ("--spark-master", cluster.url, "--spark-storage", str(storage), "--max-memory", "3000", "--grace", "1")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_LOCAL_IP", "JDK_JAVA_OPTIONS"):
            patch.setenv(name, environment()[name])
        found = RealServer(home, data, *options, "--max-cores", "2", "--pass-environment", "JDK_JAVA_OPTIONS").start()
        try:
            yield found
        finally:
            found.stop()
            for process in found.workers():
                process.kill()


def when_saved(client: Client, job: str, attempts: int = 1, times: int = 1) -> None:
    """Wait until an attempt of a job has written checkpoints, as its events say."""
    attempt = saved = 0
    for event in client.watch(job):
        attempt += event.kind == "state" and event.text.startswith("attempt ")
        saved += event.kind == "checkpoint" and attempt == attempts
        if saved == times:
            return
    raise AssertionError(client.job(job).error)


def drivers(server: RealServer, words: str) -> list[psutil.Process]:
    """The Java or the Python process of the driver."""
    return [one for one in server.workers() if words in line_of(one)]


def check(client: Client, job: str, attempts: int, kind: str = "pagerank") -> None:
    """A job has the result of the local runner on a store, after a number of attempts."""
    same = client.submit_graph(kind, "store", SECONDS, runner="local", checkpoint_every=1000).id
    settle(client, [job, same], 200)
    assert (client.job(job).error, client.job(job).attempts) == ("", attempts)
    assert client.result(job).equals(client.result(same))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stores_and_files(server: RealServer, cluster: Standalone, storage: Path) -> None:
    """The results of the local runner, also of a file that only the server reads; nothing stays behind."""
    with server.client() as client:
        for name, algorithm in (("store", "pagerank"), ("edges.txt", "components")):
            jobs = [client.submit_graph(algorithm, name, {}, runner=runner).id for runner in ("spark", "local")]
            settle(client, jobs, 200)
            assert [client.job(job).error for job in jobs] == ["", ""]
            assert client.result(jobs[0]).equals(client.result(jobs[1]))
            assert {"progress", "checkpoint"} <= {event.kind for event in client.watch(jobs[0])}
    wait_until(lambda: not cluster.applications() and not any(storage.iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bounds_and_cancellation(server: RealServer, cluster: Standalone, storage: Path) -> None:
    """Breaks when an application uses more than is allowed, or runs on after its job was cancelled."""
    with server.client() as client:
        job = client.submit_graph("pagerank", "store", ENDLESS, runner="spark", checkpoint_every=50, memory_mb=2000).id
        when_saved(client, job)
        (running,) = cluster.applications()
        assert (running["cores"], running["memoryperexecutor"], running["name"]) == (2, 1000, f"goffish-{job}")
        client.cancel(job)
        settle(client, [job], 60)
        assert "cancelled" in list(client.watch(job))[-1].text
    wait_until(lambda: not cluster.applications() and not cluster.executors(), 15)
    assert not any(storage.iterdir()) and not server.workers()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_executors_and_drivers(server: RealServer, cluster: Standalone) -> None:
    """The job resumes from its checkpoints, whichever process of it is killed, and no application stays behind."""
    with server.client() as client:
        job = client.submit_graph("pagerank", "store", SECONDS, runner="spark", checkpoint_every=25).id
        when_saved(client, job)
        cluster.executors()[0].kill()
        when_saved(client, job, 1, 5)  # the engine has begun the stage again
        assert client.job(job).attempts == 1
        drivers(server, "org.apache.spark.deploy.SparkSubmit")[0].kill()
        when_saved(client, job, 2)
        for process in server.workers():
            process.kill()
        when_saved(client, job, 3)
        check(client, job, 3)
        steps = [json.loads(event.details)["superstep"] for event in client.watch(job) if event.kind == "progress"]
        # What is done again is no more than two intervals, of which one checkpoint was not complete.
        assert all(after > before - 50 for before, after in pairwise(steps))
    wait_until(lambda: not cluster.applications() and not cluster.executors(), 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("worker", [False, True])
def test_a_killed_server(server: RealServer, cluster: Standalone, worker: bool) -> None:
    """The next server goes on with the driver, or resumes the job if the driver was killed, too."""
    with server.client() as client:
        job = client.submit_graph("pagerank", "store", SECONDS, runner="spark", checkpoint_every=25).id
        when_saved(client, job)
        server.kill()
    for process in server.workers() if worker else ():
        process.kill()
    if worker:  # no application runs on without a driver
        wait_until(lambda: not cluster.applications(), 30)
    server.start()
    with server.client() as client:
        check(client, job, 1 + worker)
