"""One Spark session for all tests: starting the Java machine takes longer than most tests of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

#: Half of a test's time goes into compiling Java code that never runs often enough to earn it back.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class OneSparkWorker(LoadFileScheduling):
    """Tests of a file are for one worker, and so are all files that are named after Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "spark" if "spark" in file else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSparkWorker:
    return OneSparkWorker(config, log)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from goffish.gopher.spark import session
    from goffish.gopher.spark.session import GRAPHFRAMES_JARS

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.stream.error.file={folder}/derby.log",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a test run in the background of a shell
    jars = bool(os.environ.get(GRAPHFRAMES_JARS))
    made = session(master="local[2]", memory="1g", graphframes=jars, config=settings)
    # Tests of other parts of the package interrupt themselves while the session waits for its next test.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield made
    signal.signal(signal.SIGINT, handler)
    made.stop()
    # Ctrl-C is that again, and not an error of the handler that PySpark leaves behind.
    with nullcontext() if ignored else pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server on this machine, for this process."""
    from tests.s3 import started

    server = started(monkeypatch)
    yield server
    server.close()


@pytest.fixture(scope="session")
def kube_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster with the API server of Kubernetes."""
    from tests.cloud.kubernetes_cluster import ASSETS, Kubernetes

    if not os.environ.get(ASSETS):
        pytest.skip(f"{ASSETS} does not name a folder with etcd, kube-apiserver and kubectl")
    made = Kubernetes(Path(os.environ[ASSETS]), tmp_path_factory.mktemp("kubernetes"))
    yield made
    made.close()


@pytest.fixture(params=["stand-in", "kube-apiserver"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The API of a cluster, with the rights that the server has in it."""
    pytest.importorskip("kubernetes")
    from tests.cloud.kubernetes_cluster import StandIn

    made: Any = StandIn() if request.param == "stand-in" else request.getfixturevalue("kube_apiserver")
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path / "kubeconfig")))
    yield made
    made.close() if request.param == "stand-in" else made.clear()


@pytest.fixture
def pods(cluster: Any) -> Iterator[Any]:
    """A cluster whose pods run as processes of this machine."""
    from tests.cloud.kubernetes_cluster import Node

    with Node(cluster):
        yield cluster
