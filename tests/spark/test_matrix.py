"""Every engine and kind of session, with every kind of input, and stores, work folders and results in files and on S3.

A cell ingests the same rows and runs a program on the store; both are compared with one machine. The local engine and
MPI take no tables: they run on the stores that Spark has made of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOB = """
    import json, os, sys
    import pyspark
    from goffish.spark.ingest.sources import _PACKAGES

    folder, place, kind, source = sys.argv[1:]
    options = ["--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false"]
    options += ["--conf", f"spark.sql.warehouse.dir={folder}/warehouse", "--conf", "spark.sql.shuffle.partitions=2"]
    if source in ("delta", "iceberg"):
        minor = ".".join(pyspark.__version__.split(".")[:2])
        options += ["--packages", _PACKAGES[source].format(minor=minor)]
    settings = {
        "delta": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        "iceberg": {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"{folder}/lake",
        },
    }.get(source, {})
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*options, "pyspark-shell"])
    from pyspark.sql import SparkSession
    import goffish as gf
    from goffish.spark import to_dataframe
    from goffish.spark.ingest import ingest

    try:
        builder = SparkSession.builder
        spark = (builder.remote("local[2]") if kind == "connect" else builder).getOrCreate()
    except Exception as error:
        print("SKIP", str(error)[:200])
        raise SystemExit(0)
    rows = [(at * 7 % 23, 100 + at * 5 % 19, float(at % 4 + 1)) for at in range(60)]
    frame = spark.createDataFrame(rows, "u long, v long, w double")
    if source == "parquet":
        frame.write.parquet(f"file://{folder}/rows")
        given = {"path": f"{folder}/rows", "format": "parquet"}
    elif source == "delta":
        frame.write.format("delta").save(f"{folder}/rows")
        given = {"path": f"{folder}/rows", "format": "delta"}
    elif source == "iceberg":
        frame.writeTo("lake.db.calls").create()
        given = {"path": "lake.db.calls", "format": "iceberg"}
    elif source == "jdbc":
        url = f"jdbc:derby:{folder}/base;create=true"
        frame.write.format("jdbc").options(url=url, dbtable="calls").save()
        given = {"format": "jdbc", "options": {"url": url, "dbtable": "calls"}}
    else:
        frame.write.saveAsTable("calls")
        given = {"table": "calls"}
    graph = gf.from_edges(*zip(*[row[:2] for row in rows]), [row[2] for row in rows])
    columns = {"source": "u", "target": "v", "weight": "w"}
    report = ingest({**columns, "inputs": [given], "partition": {"parts": 3}}, f"{place}/store", spark)
    told = {"ingest": report.fingerprint == gf.partition(graph, parts=3).fingerprint()}
    expected = gf.run("sssp", graph, source=0, engine="local").table
    for engine in ("spark",) if kind == "connect" else ("local", "mpi", "spark"):
        own = {"spark": spark} if engine == "spark" else {}
        found = gf.run("sssp", gf.open(f"{place}/store"), source=0, engine=engine, checkpoint_dir=f"{place}/ck", **own)
        told[engine] = found.table.equals(expected)
        found.write(f"{place}/{engine}.csv")
        if engine != "local":
            gf.run("sssp", gf.open(f"{place}/store"), source=0, engine=engine, output=f"{place}/{engine}", **own)
            found = sorted(map(tuple, to_dataframe(f"{place}/{engine}", spark=spark).collect()), key=lambda row: row[0])
            told[f"{engine} folder"] = found == [tuple(row.values()) for row in expected.to_pylist()]
    print(json.dumps(told))
    spark.stop()
"""


@pytest.mark.parametrize("source", ["parquet", "delta", "iceberg", "jdbc", "catalog"])
@pytest.mark.parametrize("place", ["file", "s3"])
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_a_cell(s3: Any, tmp_path: Path, kind: str, place: str, source: str) -> None:
    if kind == "connect":
        pytest.importorskip("grpc_status")
    else:
        pytest.importorskip("mpi4py")
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB))
    where = s3.bucket() if place == "s3" else str(tmp_path)
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path), where, kind, source], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=850, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    if run.stdout.startswith("SKIP"):
        pytest.skip(f"the package of {source} cannot be fetched: {run.stdout}")
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told == dict.fromkeys(told, True) and len(told) == (3 if kind == "connect" else 6)
