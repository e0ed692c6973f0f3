"""What the operator lets jobs take: refused at once where a client asks for more, enforced where a job takes more."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import goffish as gf
from goffish.client import Client
from goffish.cloud.catalogue import read_catalogue
from goffish.errors import GoffishError, InputError
from goffish.services.api.admission import check_spec
from goffish.services.api.inputs import Inputs
from goffish.services.api.settings import Settings
from goffish.services.runners import cloud_needs
from goffish.services.runners.limits import JobLimits
from goffish.services.store.spec import GraphJob, JobSpec
from tests.services.api.serving import RealServer, serving, settle

MOST = ("--max-workers", "2", "--max-memory", "600", "--spark-master", "local[1]")
ENDLESS = {"tolerance": "1e-300", "max_iterations": "10000000"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and files that unpack to more than a job may take."""
    made = tmp_path_factory.mktemp("large")
    gf.partition(gf.from_edges(np.arange(9), np.arange(1, 10)), parts=2, method="hash").save(made / "store")
    for name, text in (("bomb.txt.gz", b"1 2\n" * 1_000_000), ("bomb.graphml.gz", b" " * 4_000_000)):
        (made / name).write_bytes(gzip.compress(text, 6, mtime=0) * 200)
    return made


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("most") / "home", folder, *MOST, "--grace", "1") as server:
        yield server


@pytest.fixture
def client(limited: RealServer) -> Iterator[Client]:
    with limited.client() as found:
        yield found


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"workers": 1024}, r"workers: 1,024 exceeds the server's limit of 8 \(--max-workers\)"),
        ({"workers": 64, "runner": "mpi"}, r"workers: 64 exceeds the server's limit of 8 \(--max-workers\)"),
        ({"memory_mb": 4000}, r"memory_mb: 4,000 MB exceed the server's limit of 3,000 MB \(--max-memory\)"),
        (
            {"options": {"max_iterations": "100000000"}},
            r"max_iterations=100000000 exceeds the server's limit of 1,000 .*--max-option",
        ),
        (
            {"options": {"max_iterations": "1e9"}},
            r"max_iterations=1e9 exceeds the server's limit of 1,000 .*--max-option",
        ),
        ({"options": {"max_iterations": "1_000_000_000"}}, "exceeds the server's limit of 1,000 .*--max-option"),
        ({"options": {"max_iterations": "-99999999"}}, "exceeds the server's limit of 1,000 .*--max-option"),
        ({"options": {"damping": "nan"}}, "damping"),
        ({"options": {"tolerance": "-inf"}}, "tolerance"),
        ({"options": {"max_iterations": "9" * 3999}}, "exceeds the server's limit of 1,000 .*--max-option"),
    ],
)
def test_graph_jobs_that_ask_for_too_much(asked: dict[str, object], told: str, folder: Path, tmp_path: Path) -> None:
    """Breaks when a job that asks for more than the operator allows is accepted, or the refusal names no limit."""
    graph = {"algorithm": "pagerank", "input_uri": "store"} | asked
    inputs, limits = Inputs([folder], tmp_path, 100, 100), JobLimits(8, None, 3000, 60.0, 1000)
    with pytest.raises(GoffishError, match=told):
        check_spec(JobSpec.model_validate({"graph": graph}), inputs, ("local", "mpi"), limits)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("ga", {"generations": "100000000"}), ("hybrid", {"population": "100000000"}),
        ("static-ga", {"generations": "inf"}), ("static-ga", {"generations": "1e8"}),
        ("latency-aware", {"ants": "100000000"}),
    ],
)  # fmt: skip
def test_policies_that_ask_for_too_much(policy: str, options: dict[str, str], tmp_path: Path) -> None:
    """Breaks when options of a policy make a dataflow job plan for any time."""
    job = {"dataflow": {"dataflow": "sc13-diamond", "policy": policy, "options": options}}
    with pytest.raises(GoffishError, match=r"exceeds the server's limit of 10,000,000 \(--max-option\)"):
        check_spec(JobSpec.model_validate(job), Inputs([], tmp_path, 1, 1), (), Settings(tmp_path).job_limits)


@pytest.mark.parametrize("value", ["_", "+_", "1__0", "nan", ""])
def test_policies_with_what_is_no_number(value: str, tmp_path: Path) -> None:
    """Breaks when what looks like a number and is none is a fault of the server."""
    job = {"dataflow": {"dataflow": "sc13-diamond", "policy": "ga", "options": {"generations": value}}}
    with pytest.raises(InputError, match="generations"):
        check_spec(JobSpec.model_validate(job), Inputs([], tmp_path, 1, 1), (), Settings(tmp_path).job_limits)


def test_labels_and_seeds_have_any_size(folder: Path, tmp_path: Path) -> None:
    """Breaks when the label of a vertex, or a seed, is taken for a size."""
    inputs, limits = Inputs([folder], tmp_path, 100, 100), JobLimits(option=10)
    for algorithm, options in (("bfs", {"source": "17812345678"}), ("betweenness", {"seed": "17812345678"})):
        graph = {"algorithm": algorithm, "input_uri": "store", "options": options}
        check_spec(JobSpec.model_validate({"graph": graph}), inputs, ("local",), limits)


def test_safe_defaults(tmp_path: Path) -> None:
    """Breaks when a server without any options lets jobs take everything."""
    most = Settings(tmp_path, slots=4).job_limits
    assert most.memory_mb is not None and most.memory_mb * 4 <= psutil.virtual_memory().total * 0.81 / 2**20
    assert 8 <= most.workers < 1024 and most.run_s <= 86_400 and most.option < 10**8


@pytest.mark.parametrize(
    ("name", "runner"),
    [
        ("bomb.txt.gz", "local"),
        *(
            pytest.param(name, runner, marks=pytest.mark.slow)
            for name, runner in (("bomb.graphml.gz", "local"), ("bomb.txt.gz", "mpi"), ("bomb.graphml.gz", "spark"))
        ),
    ],
)
@pytest.mark.slow
def test_memory_is_limited_by_the_operating_system(name: str, runner: str, client: Client) -> None:
    """Breaks when a small file makes a worker take more than the operator allows, or that is not the error."""
    job = client.submit_graph("components", name, runner=runner, workers=2 if runner == "mpi" else 1)
    settle(client, [job.id])
    found = client.job(job.id)
    assert found.attempts == 1
    assert found.error.startswith("memory limit exceeded: ") and "600 MB allowed" in found.error


@pytest.mark.slow
def test_a_job_has_its_own_lower_limit(client: Client) -> None:
    """Breaks when the memory that a client asks for is not what its job may take."""
    job = client.submit_graph("components", "bomb.txt.gz", memory_mb=400)
    settle(client, [job.id])
    assert client.job(job.id).error.startswith("memory limit exceeded: 400 MB allowed")


@pytest.mark.slow
def test_run_time_and_cores(tmp_path: Path, folder: Path) -> None:
    """Breaks when a job runs for longer than the operator allows, or on more cores."""
    with serving(tmp_path / "home", folder, "--max-run-time", "6", "--max-cores", "1", "--grace", "1") as limited:
        _check_run_time_and_cores(limited)


def _check_run_time_and_cores(limited: RealServer) -> None:
    client = limited.client()
    graph = client.submit_graph("pagerank", "store", ENDLESS, workers=2)
    slow = client.submit_dataflow("sc13-diamond", {}, hours=4, hours_per_second=0.001)
    cores = set()
    while client.job(graph.id).state < 6:
        for worker in limited.workers():
            try:
                if worker.num_threads() > 1:
                    cores.add(len(worker.cpu_affinity()))
            except psutil.Error:
                continue
        time.sleep(0.05)
    settle(client, [graph.id, slow.id])
    for job in (graph, slow):
        assert client.job(job.id).error == "run time limit exceeded: 6 s allowed (--max-run-time)"
    assert 1 in cores


@pytest.mark.slow
def test_the_size_of_a_graph_is_found_outside_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the server itself unpacks a file to estimate a job, or an estimate fails that could be guessed."""
    monkeypatch.setattr(cloud_needs, "_MOST_READ_S", 120.0)
    small = folder / "small.txt"
    small.write_text("1 2\n2 3\n")
    catalogue = read_catalogue("ec2-2015-spot")
    for path, remark in ((small, ""), (folder / "bomb.txt.gz", "number of edges estimated from the file size")):
        graph = GraphJob(algorithm="components", input_uri=path.name, runner="cloud")
        before = psutil.Process().memory_info().vms
        assert remark in cloud_needs.size_of(graph, str(path), catalogue).remark
        assert psutil.Process().memory_info().vms - before < 300 << 20
    small.write_text("1 2\n2 x y z\n")
    with pytest.raises(InputError, match=r"small\.txt:2"):
        cloud_needs.size_of(graph, str(small), catalogue)
