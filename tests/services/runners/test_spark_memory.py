"""The memory of a Spark job is that of its Java processes and Python workers together."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Any

import pytest

from goffish.environment import child_environment
from goffish.errors import InputError
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import JobLimits, is_no_memory
from goffish.services.runners.processes import launcher, lost
from goffish.services.runners.spark import SparkCluster
from goffish.services.store.records import State
from goffish.services.store.spec import GraphJob

JOB = GraphJob(algorithm="components", input_uri="store", runner="spark")
SCRIPT = """
import sys
from pyspark.sql import SparkSession

def take(batches):
    held = bytearray({taken} << 20)
    for batch in batches:
        yield batch

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    print(spark.range(10).mapInPandas(take, "id long").count())
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def on(master: str) -> SparkCluster:
    found = SparkCluster.of(master, None, None if master.startswith("local") else "memory://jobs")
    assert found is not None
    return found


def settings(master: str, memory_mb: int | None) -> dict[str, Any]:
    command = on(master).command(JobLimits(memory_mb=memory_mb))(["python", "folder", "1"], JOB)
    return dict(one.split("=", 1) for one in command if one.startswith("spark."))


def megabytes(found: dict[str, Any], name: str) -> int:
    return int(found[name].removesuffix("m"))


@pytest.fixture(autouse=True)
def _spark() -> None:
    try:
        launcher("spark-submit", "")
    except InputError:
        pytest.skip("spark-submit is not installed here")


@pytest.mark.parametrize(
    ("master", "workers"), [("local[4]", 4), ("local", 1), ("local[2,3]", 2), ("spark://x:7077", 1)]
)
def test_heap_and_python_workers_share_the_limit(master: str, workers: int) -> None:
    """Breaks when Java may take all of a job's memory, and its Python workers the same again."""
    found = settings(master, 16_000)
    heap, python = megabytes(found, "spark.executor.memory"), megabytes(found, "spark.executor.pyspark.memory")
    assert heap + workers * python == 16_000
    assert found["spark.driver.memory"] == found["spark.executor.memory"]
    assert megabytes(settings(master, 100), "spark.executor.memory") == 512
    assert not any(name.endswith("memory") for name in settings(master, None))


@pytest.mark.slow
@pytest.mark.parametrize(("taken", "code"), [(300, 0), (3000, 1)])
def test_a_python_worker_is_limited(tmp_path: Path, taken: int, code: int) -> None:
    """Breaks when Python workers take what they like, or the limit leaves them no room for their libraries."""
    folder, limits = JobFolder(tmp_path), JobLimits(memory_mb=4000)
    folder.prepare({"limits": limits.order(JOB)}, 1)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(taken=taken))
    command = on("local[2]").command(limits)(["python", str(tmp_path), "1"], JOB)[:-3]
    with folder.log.open("wb") as log:
        ended = subprocess.run([*command, str(script)], stdout=log, stderr=log, env=child_environment(), check=False)
    assert ended.returncode == code, folder.log.read_text()
    if code:
        ended_as = lost(folder, code)
        assert (ended_as.state, ended_as.text) == (State.FAILED, "memory limit exceeded: 4,000 MB allowed")


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_a_failed_allocation_by_any_name(error: Exception) -> None:
    """Breaks when a mapping that fails for want of memory is reported as another error of the job."""
    wrapped = ValueError("a library's own")
    wrapped.__cause__ = error
    assert is_no_memory(error) and is_no_memory(wrapped)
    assert not is_no_memory(OSError(errno.ENOSPC, "No space left on device"))
