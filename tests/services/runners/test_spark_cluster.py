"""Graph jobs on a standalone Spark cluster, whose driver, executors, master and server are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import goffish as gf
from goffish.client import Client
from tests.services.api.serving import RealServer, serving, settle
from tests.services.spark_cluster import Standalone, environment, standalone, wait_until

pytest.importorskip("pyspark")

STEPS = {"supersteps": "2000"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph as a store and as a file."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(5)
    graph = gf.from_edges(*rng.integers(0, 500, (2, 3000)))
    gf.partition(graph, parts=2, method="hash").save(folder / "store")
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
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("JDK_JAVA_OPTIONS", environment()["JDK_JAVA_OPTIONS"])
        with serving(home, data, *options, "--max-cores", "2") as found:
            yield found


def ranks(client: Client, job: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in client.result(job).to_pylist()]


def when_saved(client: Client, job: str) -> None:
    """Wait until a job has a checkpoint, which its events say."""
    for event in client.watch(job):
        if event.kind == "checkpoint":
            return
    raise AssertionError(client.job(job).error)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_jobs_on_a_cluster(server: RealServer, data: Path, cluster: Standalone, storage: Path) -> None:
    """The results of the local runner, of a store and of a file that only the server reads; nothing stays behind."""
    with server.client() as client:
        for name, algorithm in (("store", "pagerank"), ("edges.txt", "components")):
            jobs = [client.submit_graph(algorithm, name, {}, runner=runner).id for runner in ("spark", "local")]
            settle(client, jobs, 200)
            assert [client.job(job).error for job in jobs] == ["", ""]
            assert ranks(client, jobs[0]) == ranks(client, jobs[1])
            kinds = {event.kind for event in client.watch(jobs[0])}
            assert {"progress", "checkpoint"} <= kinds
    wait_until(lambda: not cluster.applications() and not any(storage.iterdir()))
