"""Processes that run jobs get no secrets of the server's environment."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from goffish.environment import child_environment
from tests.services.api.serving import RealServer, serving
from tests.services.runners.rented import write_cloud

SECRETS = (
    "PGPASSWORD", "GOFFISH_TOKEN", "GOFFISH_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DATABASE_URL",
    "SPARK_AUTH_SECRET", "SLURM_JWT", "SPARK_SUBMIT_OPTS", "http_proxy", "OTEL_EXPORTER_OTLP_HEADERS", "ANYTHING",
)  # fmt: skip
#: Words of the command lines by which the processes are told apart.
KINDS = {
    "mpirun": "mpirun", "spark": "org.apache.spark.deploy.SparkSubmit", "worker": "runners.worker",
    "dataflow": "runners.dataflow_worker", "agent": "providers.agent", "planner": "api.planners",
}  # fmt: skip


def look(server: RealServer, found: dict[str, set[bytes]], over: threading.Event) -> None:
    """Note the variables of every process below the server, by its kind, until it is over."""
    assert server.process is not None
    seen: set[int] = set()
    while not over.wait(0.02):
        for process in psutil.Process(server.process.pid).children(recursive=True):
            try:
                line, given = " ".join(process.cmdline()), Path(f"/proc/{process.pid}/environ").read_bytes()
            except (psutil.Error, OSError):
                continue
            kind = next((kind for kind, word in KINDS.items() if word in line), "other")
            # Between fork and exec it still looks like the server. Python's `platform` runs `uname -p` with all it has.
            if process.pid not in seen and "goffish serve" not in line and not line.startswith("uname"):
                found.setdefault(kind, set()).update(given.split(b"\0"))
            seen.update([process.pid] if kind != "other" else [])


@pytest.mark.slow
def test_workers_get_no_secrets(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a process of any runner, or a planner, can read what the operator gave the server only."""
    for name in SECRETS:
        monkeypatch.setenv(name, f"s3cr3t-{name}")
    monkeypatch.setenv("AWS_PROFILE", "for-jobs")
    options = ("--spark-master", "local[1]", "--clouds", str(write_cloud(tmp_path / "clouds")), "--slots", "5")
    found: dict[str, set[bytes]] = {}
    over = threading.Event()
    with serving(tmp_path / "home", data, *options, "--pass-environment", "AWS_PROFILE") as server:
        looking = threading.Thread(target=look, args=(server, found, over))
        looking.start()
        with server.client() as client:
            jobs = [
                client.submit_graph(
                    "components", "store", runner=runner, workers=2, cloud_name="own" if runner == "cloud" else None
                )
                for runner in ("local", "mpi", "spark", "cloud")
            ]
            jobs.append(client.submit_dataflow("sc13-diamond", hours=1, hours_per_second=1))
            client.plan("sc13-diamond", policy="ga")
            ends = [client.wait(job.id) for job in jobs]
        over.set()
        looking.join()
    assert [job.error for job in ends] == [""] * 5
    assert KINDS.keys() <= found.keys()
    for kind, variables in found.items():
        assert not [variable for variable in variables if b"s3cr3t" in variable], kind
        assert kind in ("planner", "other") or b"AWS_PROFILE=for-jobs" in variables, kind


def test_what_a_child_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a secret gets through by its name, or what programs need does not."""
    for name in (*SECRETS, "SPARK_HOME", "OMP_NUM_THREADS", "JAVA_HOME", "LC_ALL", "SLURM_NODELIST", "XPATH"):
        monkeypatch.setenv(name, "set")
    found = child_environment(["AWS_SESSION_TOKEN", "NOT_SET_ANYWHERE"])
    assert found.keys() & {*SECRETS, "XPATH", "NOT_SET_ANYWHERE"} == {"AWS_SESSION_TOKEN"}
    assert found.keys() >= {
        "PATH",
        "PYTHONPATH",
        "SPARK_HOME",
        "OMP_NUM_THREADS",
        "JAVA_HOME",
        "LC_ALL",
        "SLURM_NODELIST",
    }
