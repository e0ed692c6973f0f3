"""The Spark engine on a session of Spark Connect, whose server runs in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from goffish.gofs import build_layout, write_store
from tests.cases import grid, grid_blocks
from tests.gopher.test_spark_failures import environment

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status")

#: Prints what is the same as on the local engine, and what else was seen.
JOB = """
    import json, sys
    import goffish as gf
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    graph = gf.open(sys.argv[1])
    seen, told = [], {}
    note = lambda number, *counts: seen.append(number)
    found = gf.run("sssp", graph, engine="spark", spark=spark, source=3, progress=note)
    local = gf.run("sssp", graph, engine="local", source=3)
    told["same"] = found.table.equals(local.table)
    told["ranks"] = found.stats.ranks
    told["progress"] = seen == list(range(1, found.stats.supersteps + 1))
    told["written"] = gf.run("components", graph, engine="spark", output=sys.argv[2]).summary["rows"]
    try:
        gf.run("sssp", graph, engine="spark", source=3333)
    except gf.InputError as error:
        told["error"] = str(error)

    def stop(number, *counts):
        raise KeyboardInterrupt

    try:
        gf.run("pagerank", graph, engine="spark", supersteps=10**6, progress=stop)
    except KeyboardInterrupt:
        told["interrupted"] = True
    told["after"] = gf.run("components", graph, engine="spark").summary["components"]
    print(json.dumps(told))
    spark.stop()
"""


@pytest.mark.slow
def test_programs_run_on_spark_connect(tmp_path: Path) -> None:
    """Same table, progress, results in parts, bad input in one line, and Ctrl-C that frees the slots."""
    write_store(build_layout(grid(24, 20), grid_blocks(24, 20, 1, 4), 4), tmp_path / "store")
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store"), str(tmp_path / "out")], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "same": True, "ranks": 2, "progress": True, "written": 480,
        "error": "unknown vertex 3333: not among the 480 vertices of this graph", "interrupted": True, "after": 1,
    }  # fmt: skip
