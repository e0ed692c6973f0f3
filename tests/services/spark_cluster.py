"""A standalone Spark cluster and a server of Spark Connect on this machine, for tests."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import JAVA_OPTIONS

TOKEN = "s3cr3t-0f-sp4rk"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def environment() -> dict[str, str]:
    import pyspark

    found = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return found | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]), "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
    }  # fmt: skip


@dataclass
class Standalone:
    """A master and a worker, each a Java process; `stop` and `start` of the master keep its port."""

    folder: Path
    cores: int = 2
    port: int = field(default_factory=free_port)
    web: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def launch(self, name: str, *arguments: str) -> None:
        command = [f"{environment()['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        with (self.folder / "cluster.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), cwd=self.folder
            )

    def start(self) -> None:
        """Start both, and wait until the worker has registered."""
        self.launch("master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.web))
        self.start_worker()

    def start_worker(self) -> None:
        self.launch(
            "worker.Worker", "--host", "127.0.0.1", "--cores", str(self.cores), "--memory", "4g", "--webui-port", "0",
            "--work-dir", str(self.folder / "work"), self.url,
        )  # fmt: skip
        wait_until(lambda: any(one["state"] == "ALIVE" for one in self.state()["workers"]), 60)

    def state(self) -> dict[str, Any]:
        """What the master says about its workers and applications."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError:
            return {"workers": [], "activeapps": []}
        return found

    def applications(self) -> list[dict[str, Any]]:
        """The applications that run or wait."""
        return list(self.state()["activeapps"])

    def executors(self) -> list[psutil.Process]:
        """Java processes of the executors."""
        worker = psutil.Process(self.processes["worker.Worker"].pid)
        return [one for one in worker.children(recursive=True) if "CoarseGrainedExecutorBackend" in line_of(one)]

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def line_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_until(done: Any, limit_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@contextmanager
def standalone(folder: Path, cores: int = 2) -> Iterator[Standalone]:
    """A cluster that ends with this."""
    cluster = Standalone(folder, cores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@dataclass
class Connect:
    """A server of Spark Connect that requires `TOKEN`."""

    process: subprocess.Popen[bytes]
    port: int
    web: int

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}"

    def running(self) -> int:
        """Number of Spark jobs that run."""
        address = f"http://127.0.0.1:{self.web}/api/v1/applications"
        with urllib.request.urlopen(address, timeout=60) as answer:
            name = json.load(answer)[0]["id"]
        with urllib.request.urlopen(f"{address}/{name}/jobs?status=running", timeout=60) as answer:
            return len(json.load(answer))


@contextmanager
def connect_server(folder: Path) -> Iterator[Connect]:
    """A server of Spark Connect that ends with this."""
    port, web = free_port(), free_port()
    properties = folder / "server.conf"
    properties.write_text(f"spark.connect.authenticate.token {TOKEN}\n")
    command = [
        f"{environment()['SPARK_HOME']}/bin/spark-submit", "--master", "local[2]", "--driver-memory", "1g",
        "--properties-file", str(properties), "--conf", f"spark.ui.port={web}",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    log = folder / "connect.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(), cwd=folder
        )
    try:
        wait_until(lambda: re.search("Spark Connect server started", log.read_text(errors="replace")), 120)
        yield Connect(process, port, web)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
