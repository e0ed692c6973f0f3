"""The Spark cluster of a server: options that are refused, bounds that clients cannot exceed, properties, secrets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from goffish.environment import child_environment
from goffish.errors import InputError
from goffish.services.runners import supervisor
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.processes import launcher
from goffish.services.runners.spark import SparkCluster, SparkRunner, read_properties
from goffish.services.store.spec import GraphJob, JobSpec
from tests.services.runners.rented import serving
from tests.services.spark_cluster import TOKEN, environment, free_port

JOB = GraphJob(algorithm="components", input_uri="store", runner="spark")
MASTERS = {"standalone": "spark://head:7077", "yarn": "yarn", "kubernetes": "k8s://https://kube:6443"}


@pytest.fixture(autouse=True)
def _spark() -> None:
    pytest.importorskip("pyspark")


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "spark.conf"
    path.write_text(text)
    path.chmod(mode)
    return path


def settings(cluster: SparkCluster | None, limits: JobLimits, job: GraphJob = JOB) -> dict[str, str]:
    assert cluster is not None
    command = cluster.command(limits)(["python", "folder", "1"], job)
    return dict(one.split("=", 1) for one in command if one.startswith("spark."))


def test_a_properties_file(tmp_path: Path) -> None:
    """The separators, comments and continued lines of files that Spark reads."""
    text = "# bounds\n\nspark.a   1 2\nspark.b=x=y\n! no\n spark.c : \\\n   z\nspark.empty\nspark.d\\\n .e f\\:g\n"
    found = read_properties(write(tmp_path, text, 0o644))
    assert found == {"spark.a": "1 2", "spark.b": "x=y", "spark.c": "z", "spark.empty": "", "spark.d.e": "f:g"}


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("spark.a 1\nhadoop.b 2\n", 0o600, r"spark.conf, line 2: accepted are names that begin with spark\."),
        ("spark.authenticate.secret x\n", 0o644, "readable by other users; run chmod 600"),
        (f"spark.remote sc://a/;token={TOKEN}\n", 0o640, "readable by other users; run chmod 600"),
        ("spark.master yarn\nspark.remote sc://a\n", 0o600, "has both spark.master and spark.remote"),
        ("spark.executor.memory 4g\n", 0o600, "^--spark-properties: requires --spark-master"),
        ("spark.master mesos://a\n", 0o600, "spark.master mesos://a: not a Spark master; accepted are"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        SparkCluster.of(None, write(tmp_path, text, mode), "memory://jobs")
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("master", "storage", "said"),
    [
        ("spark://head:7077", None, "requires --spark-storage, a folder or URI that the server and all executors can"),
        ("sc://head", None, "requires --spark-storage"),
        ("yarn", "nowhere/jobs", "^--spark-storage nowhere/jobs: not a folder that the server can write"),
        ("yarn", "nothing://jobs", "^--spark-storage nothing://jobs: "),
        (f"sc://head/;token={TOKEN}", "memory://jobs", "^--spark-master sc://head: other users can read secrets"),
        (None, "memory://jobs", "^--spark-storage: requires --spark-master"),
        ("head:7077", "memory://jobs", "^--spark-master head:7077: not a Spark master"),
    ],
)
def test_options_that_are_refused(master: str | None, storage: str | None, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        SparkCluster.of(master, None, storage)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "limits", "cores"),
    [
        ("standalone", "", JobLimits(cores=3), {"spark.cores.max": "3", "spark.executor.cores": "1"}),
        ("standalone", "spark.cores.max 2", JobLimits(cores=3), {"spark.cores.max": "2"}),
        ("standalone", "spark.cores.max 8\nspark.executor.cores 2", JobLimits(cores=4), {"spark.cores.max": "4"}),
        ("yarn", "spark.executor.cores 2", JobLimits(cores=7), {"spark.executor.instances": "3"}),
        ("kubernetes", "spark.executor.instances 2", JobLimits(cores=7), {"spark.executor.instances": "2"}),
        ("yarn", "spark.executor.instances 20", JobLimits(cores=7), {"spark.executor.instances": "7"}),
    ],
)
def test_cores_of_a_job(tmp_path: Path, kind: str, text: str, limits: JobLimits, cores: dict[str, str]) -> None:
    """Breaks when a job uses more cores than the operator allows, by either option."""
    found = settings(SparkCluster.of(MASTERS[kind], write(tmp_path, text), "memory://jobs"), limits)
    assert cores.items() <= found.items()
    assert found["spark.dynamicAllocation.enabled"] == "false"


@pytest.mark.parametrize(
    ("text", "asked", "heap", "python"),
    [
        ("", None, 5000, 5000),
        ("", 4000, 2000, 2000),
        ("spark.executor.memory 4g", None, 4096, 4096),
        ("spark.executor.memory 4g\nspark.executor.pyspark.memory 1500m", None, 4096, 1500),
        ("spark.executor.memory 4g\nspark.executor.pyspark.memory 1g", 10_000, 4096, 1024),
        ("spark.executor.memory 4096", 2000, 1000, 1000),
        ("spark.executor.cores 2", 2000, 1000, 1536),
    ],
)
def test_memory_of_an_executor(tmp_path: Path, text: str, asked: int | None, heap: int, python: int) -> None:
    """Breaks when a client gets more memory than the operator's file or --max-memory allows."""
    job = JOB.model_copy(update={"memory_mb": asked})
    cluster = SparkCluster.of(MASTERS["yarn"], write(tmp_path, text), "memory://jobs")
    found = settings(cluster, JobLimits(memory_mb=10_000), job)
    assert found["spark.executor.memory"] == f"{heap}m"
    assert found["spark.executor.pyspark.memory"] == f"{python}m"
    assert int(found["spark.driver.memory"].removesuffix("m")) <= 5000


@pytest.mark.parametrize(
    ("text", "limits", "said"),
    [
        ("spark.executor.cores 4", JobLimits(cores=2), "spark.executor.cores=4: a job may use 2 cores only"),
        ("spark.executor.cores two", JobLimits(), "spark.executor.cores: 'two' is not a whole number"),
        ("spark.dynamicAllocation.enabled true", JobLimits(), "requires a fixed number of executors"),
        ("spark.executor.memory much", JobLimits(memory_mb=1000), "spark.executor.memory: 'much' is not a size"),
    ],
)
def test_bounds_that_do_not_fit(tmp_path: Path, text: str, limits: JobLimits, said: str) -> None:
    cluster = SparkCluster.of(MASTERS["standalone"], write(tmp_path, text), "memory://jobs")
    assert cluster is not None
    with pytest.raises(InputError, match=said):
        cluster.check(limits, {})


def test_yarn_needs_the_files_of_its_cluster(tmp_path: Path) -> None:
    cluster = SparkCluster.of("yarn", None, "memory://jobs")
    assert cluster is not None
    with pytest.raises(InputError, match=r"^--spark-master yarn: set HADOOP_CONF_DIR or YARN_CONF_DIR"):
        cluster.check(JobLimits(), {"HADOOP_CONF_DIR": str(tmp_path / "none")})
    cluster.check(JobLimits(), {"HADOOP_CONF_DIR": str(tmp_path)})


def test_partitions_stay_those_of_the_checkpoints(tmp_path: Path) -> None:
    """Breaks when a job on a file cannot resume after the operator has changed the number of cores."""
    cluster = SparkCluster.of(MASTERS["standalone"], None, str(tmp_path))
    assert cluster is not None
    assert cluster.order("j1", {}, JobLimits(cores=3)) == {
        "checkpoints": f"{tmp_path}/j1/checkpoints", "shared": f"{tmp_path}/j1/shared", "parts": 3,
    }  # fmt: skip
    assert cluster.order("j1", {"parts": 3}, JobLimits(cores=5))["parts"] == 3


def test_a_token_is_in_the_environment_of_workers_only(tmp_path: Path) -> None:
    """Breaks when a token is on the command line, in the order, in a text of the cluster, or passed on by name."""
    file = write(tmp_path, f"spark.remote sc://head/;token={TOKEN}\n")
    cluster = SparkCluster.of(None, file, str(tmp_path))
    assert cluster is not None
    shown = [str(cluster), str(cluster.order("j1", {}, JobLimits())), cluster.master.shown]
    shown += cluster.command(JobLimits())(["python", "-m", "worker", "folder", "1"], JOB)
    assert not any(TOKEN in one for one in shown)
    assert TOKEN in cluster.environment({})["SPARK_REMOTE"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_REMOTE", f"sc://head/;token={TOKEN}")
        assert "SPARK_REMOTE" not in child_environment()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["spark://127.0.0.1:{port}", "sc://127.0.0.1:{port}", "k8s://127.0.0.1:{port}"])
def test_a_master_that_does_not_answer(tmp_path: Path, option: str) -> None:
    """Breaks when a server starts although no job of the runner spark could run, or says so in a traceback."""
    url = option.format(port=free_port())
    command = [sys.executable, "-m", "goffish", "serve", "--home", str(tmp_path / "home")]
    command += ["--listen", f"unix:{tmp_path}/socket", "--spark-master", url, "--spark-storage", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 2
    assert f"error: Spark master {url}: cannot connect to 127.0.0.1:" in done.stderr and "Traceback" not in done.stderr


SCRIPT = """
import json
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(json.dumps(dict(spark.sparkContext.getConf().getAll())))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["yarn", "kubernetes"])
def test_properties_reach_the_session(tmp_path: Path, kind: str) -> None:
    """The real SparkConf of a driver, on a local master in place of a cluster that cannot run here."""
    text = (
        "spark.yarn.queue graphs\nspark.kubernetes.container.image goffish:1\nspark.kubernetes.namespace jobs\n"
        "spark.pyspark.python ./environment/bin/python\nspark.executor.cores 2\nspark.hadoop.fs.s3a.secret.key s3cr3t\n"
    )
    cluster = SparkCluster.of(MASTERS[kind], write(tmp_path, text), "memory://jobs")
    assert cluster is not None
    command = cluster.command(JobLimits(cores=6, memory_mb=3000))(["python", str(tmp_path), "1"], JOB)[:-3]
    assert command[0] == launcher("spark-submit", "") and not any("s3cr3t" in one for one in command)
    command[command.index(MASTERS[kind])] = "local[1]"
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [*command, str(tmp_path / "script.py")], capture_output=True, text=True, check=False, env=environment(),
        timeout=200,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    wanted = dict(line.split() for line in text.splitlines()) | settings(cluster, JobLimits(cores=6, memory_mb=3000))
    assert wanted.items() <= found.items()
    assert found["spark.executor.instances"] == "3" and found["spark.submit.deployMode"] == "client"


def test_a_master_that_is_away_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a short outage of the cluster uses up the attempts of a job."""
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.01)
    master = f"spark://127.0.0.1:{free_port()}"
    cluster = SparkCluster.of(master, None, str(tmp_path))
    assert cluster is not None
    runner = SparkRunner(str, cluster.command(UNLIMITED), cluster=cluster)
    graph = {"algorithm": "components", "input_uri": "g", "runner": "spark"}
    with serving(tmp_path / "home", {"spark": runner}) as service:
        job = service.submit(JobSpec.model_validate({"graph": graph, "most_attempts": 1}))
        found = service.settle(job)
        texts = [event.text for event in service.events(job)]
    assert (found.attempts, found.losses) == (10, 0) and "aborted after 10 attempts" in found.error
    assert f"Spark master {master}: cannot connect to" in " ".join(texts)
