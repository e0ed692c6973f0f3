"""Lost executors, lost Python workers, stopped processes: Spark on several JVMs, and spark-submit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goffish.gofs import build_layout, write_store
from goffish.gopher.engine import ENGINES
from goffish.spark import entry
from tests.cases import grid, grid_blocks
from tests.conftest import JAVA_OPTIONS

pytest.importorskip("pyspark")

#: Kills what the second argument names in the middle of the job, and tells whether the answer is the local engine's.
KILLED = """
    import json, os, signal, subprocess, sys, time
    from pathlib import Path
    import numpy as np
    import goffish as gf
    from goffish.algorithms.catalogue import make
    from goffish.gopher.checkpoint import CheckpointFolder
    from goffish.gopher.local import run_local
    from goffish.gopher.spark import run_spark, session

    def processes(words):
        # Only descendants of this process: the machine may run another cluster.
        parents, lines = {}, {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text()
                    parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
                    lines[int(entry.name)] = (entry / "cmdline").read_text().replace("\\0", " ")
                except (OSError, ValueError):
                    continue
        mine, new = {os.getpid()}, {os.getpid()}
        while new:
            new = {p for p, parent in parents.items() if parent in new} - mine
            mine |= new
        return [p for p in sorted(mine) if words in lines.get(p, "")]

    def daemons_children():
        daemons = set(processes("pyspark.daemon"))
        return [p for p in daemons if int(Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[1]) in daemons]

    def kill(number, active, messages, share):
        if killed or number < 100:
            return
        victims = processes("CoarseGrainedExecutorBackend")[-1:] if sys.argv[2] == "executor" else daemons_children()
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        killed.extend(victims)

    killed = []
    spark = session(master="local-cluster[2,1,1024]", memory="1g", config={"spark.executor.memory": "1g"})
    graph = gf.open(sys.argv[1])
    program = make("pagerank", {"supersteps": 4000}).program(graph)
    expected, stats = run_local(program, graph, threads=1)
    identity = {"program": "x"}
    checkpoints = CheckpointFolder(os.path.abspath(sys.argv[3]), 50, identity) if len(sys.argv) > 3 else None
    found, counted = run_spark(program, graph, spark=spark, checkpoints=checkpoints, progress=kill)
    same = all(a[n].tobytes() == b[n].tobytes() for a, b in zip(expected, found, strict=True) for n in a)
    print(json.dumps({"same": same, "killed": len(killed), "supersteps": [stats.supersteps, counted.supersteps]}))
    spark.stop()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("spark") / "store"
    write_store(build_layout(grid(24, 20), grid_blocks(24, 20, 1, 4), 4), path)
    return str(path)


def environment() -> dict[str, str]:
    import pyspark

    root = str(Path(__file__).parents[2])
    return os.environ | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root,
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "more"), [("executor", []), ("worker", []), ("worker", ["checkpoints"])])
def test_killed_in_mid_job_gives_the_same_result(store: str, tmp_path: Path, victim: str, more: list[str]) -> None:
    """Spark runs the stage again, from the newest checkpoint where there are some."""
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(KILLED))
    done = subprocess.run(
        [sys.executable, str(script), store, victim, *more],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["same"]
    assert told["killed"] >= 1
    assert told["supersteps"] == [4000, 4000]


GROWING = """
    import sys
    import goffish as gf
    from goffish.spark import session

    config = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true"}
    spark = session(master="local-cluster[1,1,1024]", memory="1g", config=config)
    try:
        gf.run("components", gf.open(sys.argv[1]), engine="spark", spark=spark)
    except gf.InputError as error:
        print(error)
    spark.stop()
"""


@pytest.mark.slow
def test_a_cluster_that_grows_is_refused(store: str, tmp_path: Path) -> None:
    """Spark runs no barrier stages there."""
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(GROWING))
    done = subprocess.run(
        [sys.executable, str(script), store], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert "requires a fixed number of executors; start Spark with --conf spark.dynamicAllocation" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif("spark" not in ENGINES, reason="the command line does not know the engine yet")
def test_spark_submit_through_the_entry(store: str, tmp_path: Path) -> None:
    """The command line on Spark's own launcher: the local engine's table, and one line where a job fails."""
    submit = [str(Path(environment()["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[2]"]
    submit += ["--driver-memory", "1g", "--conf", "spark.ui.enabled=false", str(entry())]
    for start, engine in ((submit, "spark"), ([sys.executable, "-m", "goffish"], "local")):
        command = [*start, "run", "components", store, "-o", f"{engine}.parquet", "--engine", engine]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    tables = [pq.read_table(tmp_path / f"{engine}.parquet") for engine in ("spark", "local")]
    assert tables[0].equals(tables[1])


@pytest.mark.slow
@pytest.mark.skipif("spark" not in ENGINES, reason="the command line does not know the engine yet")
def test_ctrl_c_leaves_no_process_behind(store: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "goffish", "run", "pagerank", store, "--engine", "spark", "--supersteps", "500000"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while not (workers := _in_session(process.pid, "pyspark.daemon")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert workers
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in told
    deadline = time.monotonic() + 30
    while _in_session(process.pid, "java") + _in_session(process.pid, "pyspark") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _in_session(process.pid, "java") + _in_session(process.pid, "pyspark")


def _in_session(session: int, words: str) -> list[int]:
    """Processes of a terminal session whose command line has the words."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                status = (place / "stat").read_text().rpartition(")")[2].split()
                if int(status[3]) == session and words in (place / "cmdline").read_text():
                    found.append(int(place.name))
            except OSError:
                continue
    return found
