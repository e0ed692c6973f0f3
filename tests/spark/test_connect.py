"""Ingest, frames, results and series on a session of Spark Connect, whose server runs in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.gopher.test_spark_failures import environment

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status")

#: Prints what was seen; each value is compared with what one machine makes of the same rows.
JOB = """
    import json, os, sys
    import pandas as pd
    import goffish as gf
    from goffish.gofs.series import open_series
    from goffish.spark import map_instances, series_frames, to_dataframe, vertices_and_edges
    from goffish.spark.ingest import ingest
    from pyspark.sql import SparkSession

    folder, told = sys.argv[1], {}
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    zone = spark.conf.get("spark.sql.session.timeZone")
    rows = [(at * 7 % 23, at * 5 % 19, float(at % 4 + 1), 86400 * (at % 3)) for at in range(120)]
    with open(folder + "/rows.csv", "w") as file:
        file.write("u,v,w,t\\n" + "".join(",".join(map(str, row)) + "\\n" for row in rows) + "x,1,2,3\\n")
    kept = pd.DataFrame([row[:3] for row in rows if row[0] != row[1]], columns=["source", "target", "weight"])
    graph = gf.from_pandas(kept)
    spec = {
        "inputs": [{"path": folder + "/rows.csv", "options": {"header": True}}],
        "source": "u", "target": "v", "weight": "w", "partition": {"parts": 2},
    }
    report = ingest(spec, folder + "/store", spark)
    told["ingest"] = report.fingerprint == gf.partition(graph, parts=2).fingerprint()
    told["rules"] = report.rules
    told["clean"] = not os.path.exists(folder + "/store.work")
    told["zone"] = spark.conf.get("spark.sql.session.timeZone") == zone
    far = {**spec, "partition": {"parts": 2, "method": "fennel", "metis_limit": 0}}
    told["fennel"] = ingest(far, folder + "/far", spark).edges == report.edges

    frame = spark.createDataFrame(rows, "u long, v long, w double, t long")
    made = gf.from_dataframe(frame, folder + "/frame", source="u", target="v", weight="w", partition={"parts": 2})
    told["frame"] = made.fingerprint() == report.fingerprint
    vertices, edges = vertices_and_edges(gf.open(folder + "/store"), spark=spark)
    told["edges"] = edges.count() == 2 * graph.num_edges and vertices.count() == graph.num_vertices
    gf.run("components", made, engine="spark", spark=spark, output=folder + "/components")
    told["result"] = to_dataframe(folder + "/components", spark=spark).count() == graph.num_vertices

    timed = {**spec, "timestamp": {"column": "t", "format": "epoch_s"}, "instances": {"period": "1d"}}
    ingest(timed, folder + "/series", spark)
    days = open_series(folder + "/series")
    exists = [sum(day.edge("exists").to_pylist()) for day in gf.open(folder + "/series").instances()]
    found = map_instances(
        days, lambda day: {"edges": [sum(day.edge("exists").to_pylist())]}, "edges bigint", spark=spark
    )
    told["map"] = [row[1] for row in sorted(map(tuple, found.collect()))] == exists
    told["series"] = series_frames(days, spark=spark).edges.count() == 2 * sum(exists)
    try:
        ingest({**spec, "source": "from"}, folder + "/bad", spark)
    except gf.InputError as error:
        told["error"] = str(error)
    print(json.dumps(told))
    spark.stop()
"""


@pytest.mark.slow
def test_tables_on_spark_connect(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        check=False, timeout=560,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("rules")["source_unreadable"] == 1
    assert told.pop("error") == "source = 'from': no such column; available: u, v, w, t"
    assert told == dict.fromkeys(told, True) and len(told) == 9
