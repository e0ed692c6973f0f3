"""Tables, queries, DataFrames and databases as inputs: the same store as from a file with the same rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.errors import GoffishWarning, InputError
from goffish.spark.ingest import ingest
from tests.spark.ingest.rows import files_of, quarantined

pytest.importorskip("pyspark")

RNG = np.random.default_rng(4)
ROWS = [
    (int(u), int(v), float(w)) for u, v, w in zip(*RNG.integers(0, 40, (2, 300)), RNG.integers(1, 9, 300), strict=True)
]
SPEC: dict[str, Any] = {"source": "u", "target": "v", "weight": "w", "partition": {"parts": 2}}
TABLE: dict[str, Any] = {**SPEC, "inputs": [{"table": "rows"}]}


@pytest.fixture(scope="module")
def expected(spark: Any, tmp_path_factory: Any) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("expected")
    (folder / "rows.csv").write_text("u,v,w\n" + "".join(f"{u},{v},{w}\n" for u, v, w in ROWS))
    ingest({**SPEC, "inputs": [{"path": str(folder / "rows.csv"), "options": {"header": True}}]}, folder / "s", spark)
    return files_of(folder / "s")


def frame(spark: Any, rows: Any = ROWS, tasks: int = 3) -> Any:
    return spark.createDataFrame(rows, "u long, v long, w double").repartition(tasks)


def test_views_queries_and_frames(spark: Any, tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Breaks when views of the session of the user are not found, or a row is lost on the way."""
    frame(spark).createOrReplaceTempView("rows_of_a_view")
    try:
        ingest({**SPEC, "inputs": [{"table": "rows_of_a_view"}]}, tmp_path / "view", spark)
        halves = [{"query": f"SELECT *, 'x' AS more FROM rows_of_a_view WHERE u {sign} 20"} for sign in ("<", ">=")]
        report = ingest({**SPEC, "inputs": halves}, tmp_path / "queries", spark)
    finally:
        spark.catalog.dropTempView("rows_of_a_view")
    assert report.rows == len(ROWS) and report.rules == {"self_loop": sum(u == v for u, v, _ in ROWS)}
    made = gf.from_dataframe(
        frame(spark), tmp_path / "frame", source="u", target="v", weight="w", partition={"parts": 2}
    )
    assert made.num_partitions == 2
    for name in ("view", "queries", "frame"):
        assert files_of(tmp_path / name) == expected
    assert set(quarantined(tmp_path / "view.quarantine")["file"]) == {"rows_of_a_view"}
    assert not [one.name for one in spark.catalog.listTables("global_temp") if one.name.startswith("goffish_")]


@pytest.mark.parametrize("rule", ["first", *(pytest.param(one, marks=pytest.mark.slow) for one in ("drop", "sum"))])
def test_rows_of_tables_have_no_order(spark: Any, tmp_path: Path, rule: str) -> None:
    """Breaks when the division of a table into tasks changes which of several rows of an edge counts."""
    rng, rows = random.Random(1), [(u % 5, v % 5, w / 7 + at) for at, (u, v, w) in enumerate(ROWS)]
    stores = []
    for tasks in (1, 4):
        rng.shuffle(rows)
        spec = {**TABLE, "clean": {"duplicates": rule}}
        ingest(spec, tmp_path / f"{tasks}", spark, tables={"rows": frame(spark, rows, tasks)})
        stores.append((files_of(tmp_path / f"{tasks}"), quarantined(tmp_path / f"{tasks}.quarantine").to_dict()))
    assert stores[0] == stores[1]


def test_a_database(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]) -> None:
    """Rows of Derby by JDBC; the password is in the environment only."""
    url = f"jdbc:derby:{tmp_path / 'base'};create=true"
    frame(spark).write.jdbc(url, "calls", properties={"user": "ann"})
    monkeypatch.setenv("PASSWORD_OF_CALLS", "secret")
    options = {"url": url, "dbtable": "calls", "user": "ann", "password": "env:PASSWORD_OF_CALLS"}
    report = ingest({**SPEC, "inputs": [{"format": "jdbc", "options": options}]}, tmp_path / "s", spark)
    assert files_of(tmp_path / "s") == expected and "secret" not in json.dumps(report.to_dict())
    monkeypatch.delenv("PASSWORD_OF_CALLS")
    with pytest.raises(InputError, match=r"inputs\[0\]: options: env:PASSWORD_OF_CALLS: no such environment variable"):
        ingest({**SPEC, "inputs": [{"format": "jdbc", "options": options}]}, tmp_path / "s", spark)


def test_columns_of_each_input(spark: Any, tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Other names, nested columns, and files that have more columns than others."""
    parts = [ROWS[at::3] for at in range(3)]
    objects = [{"from": {"id": u}, "to.id": v, "note": {"w": str(w)}} for u, v, w in parts[0]]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in objects))
    nested = pa.table({"edge": [{"u": u, "ends": {"v": v}} for u, v, _ in parts[1]], "w": [w for *_, w in parts[1]]})
    pq.write_table(nested, tmp_path / "b.parquet")
    u, v, w = zip(*parts[2], strict=True)
    half = len(u) // 2
    (tmp_path / "grown").mkdir()
    pq.write_table(pa.table({"u": u[:half], "v": v[:half], "w": w[:half]}), tmp_path / "grown" / "1.parquet")
    grown = pa.table({"x": ["new"] * (len(u) - half), "v": v[half:], "w": w[half:], "u": u[half:]})
    pq.write_table(grown, tmp_path / "grown" / "2.parquet")
    spec = {
        **SPEC,
        "inputs": [
            {
                "path": str(tmp_path / "a.jsonl"),
                "format": "json",
                "columns": {"u": "from.id", "v": "to.id", "w": "note.w"},
            },
            {"path": str(tmp_path / "b.parquet"), "format": "parquet", "columns": {"u": "edge.u", "v": "edge.ends.v"}},
            {"path": str(tmp_path / "grown"), "format": "parquet"},
        ],
    }
    assert ingest(spec, tmp_path / "s", spark).rows == len(ROWS)
    assert files_of(tmp_path / "s") == expected
    spec["inputs"] = [{"path": str(tmp_path / "b.parquet"), "format": "parquet", "columns": {"u": "edge.x"}}]
    with pytest.raises(InputError, match=r"source = 'edge.x': no such column; available: edge, w"):
        ingest(spec, tmp_path / "s", spark)


@pytest.mark.slow
def test_folders_with_columns_in_their_names(spark: Any, tmp_path: Path) -> None:
    """Breaks when a label in the name of a folder loses its zeros."""
    for zone in ("007", "7"):
        (tmp_path / "rows" / f"zone={zone}").mkdir(parents=True)
        pq.write_table(pa.table({"v": ["a"]}), tmp_path / "rows" / f"zone={zone}" / "0.parquet")
    files = {"path": str(tmp_path / "rows"), "format": "parquet"}
    ingest({"inputs": [files], "source": "zone", "target": "v", "labels": "text"}, tmp_path / "s", spark)
    made = gf.open(tmp_path / "s")
    labels = [label for part in range(made.num_partitions) for label in made.slice(part).labels().to_pylist()]
    assert sorted(labels) == ["007", "7", "a"]


def test_mistakes(spark: Any, tmp_path: Path) -> None:
    frames = {"rows": frame(spark)}
    for change, tables, message in (
        ({"inputs": [{"table": "no_such_table"}]}, {}, r"inputs\[0\]: .*no_such_table"),
        ({"inputs": [{"query": "SELEC 1"}]}, {}, r"inputs\[0\]: .*SELEC"),
        (
            {"inputs": [{"format": "jdbc", "options": {"url": "jdbc:none:x", "dbtable": "t"}}]},
            {},
            r"inputs\[0\]: .*driver",
        ),
        ({"inputs": [{"path": "x", "format": "delta"}]}, {}, r"inputs\[0\]: x: not a Delta table"),
        (
            {"inputs": [{"path": "x/y", "format": "iceberg"}]},
            {},
            r"add --packages org.apache.iceberg:iceberg-spark-runtime-4",
        ),
        ({}, {"rows": frames["rows"], "row": frames["rows"]}, "tables: 'row' is not the table of an input"),
        ({"source": "from"}, frames, "source = 'from': no such column; available: u, v, w"),
        ({"source": 3}, frames, "source = 3: the input has 3 columns, numbered from 0"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            ingest({**TABLE, **change}, tmp_path / "s", spark, tables=tables)
        assert "\n" not in str(caught.value) and not (tmp_path / "s").exists()


def test_one_instance_is_suspicious(spark: Any, tmp_path: Path) -> None:
    """Seconds that are taken for milliseconds are all on one day in 1970."""
    rows = spark.createDataFrame([(1, 2, 1.7e9), (2, 3, 1.71e9)], "u long, v long, at double")
    spec = {
        "inputs": [{"table": "rows"}], "source": "u", "target": "v",
        "timestamp": {"column": "at", "format": "epoch_ms"}, "instances": {"period": "1d"},
    }  # fmt: skip
    with pytest.warns(GoffishWarning, match="all rows are in one instance; check instances.period and the unit"):
        ingest(spec, tmp_path / "s", spark, tables={"rows": rows})


_LAKE = """
import sys, json
import goffish as gf
from goffish.spark import save_as_table, session
from goffish.spark.ingest import ingest
from goffish.spark.ingest.sources import _PACKAGES
import pyspark
folder, kind = sys.argv[1:]
minor = ".".join(pyspark.__version__.split(".")[:2])
config = {"spark.sql.shuffle.partitions": 2, "spark.sql.warehouse.dir": folder + "/warehouse"}
if kind == "iceberg":
    config |= {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": folder + "/lake",
    }
try:
    spark = session(master="local[2]", memory="1g", packages=[_PACKAGES[kind].format(minor=minor)], config=config)
except Exception as error:
    print("SKIP", str(error)[:200])
    raise SystemExit(0)
rows = json.load(open(folder + "/rows.json"))
frame = lambda some: spark.createDataFrame([tuple(row) for row in some], "u long, v long, w double")
spec = {"source": "u", "target": "v", "weight": "w", "partition": {"parts": 2}}
if kind == "delta":
    place = folder + "/table"
    frame(rows[:200]).write.format("delta").save(place)
    frame(rows[200:]).write.format("delta").mode("append").save(place)
    new = {"path": place, "format": "delta"}
    old = {**new, "options": {"versionAsOf": 0}}
else:
    frame(rows[:200]).writeTo("lake.db.calls").create()
    first = spark.sql("SELECT snapshot_id FROM lake.db.calls.snapshots").collect()[0][0]
    frame(rows[200:]).writeTo("lake.db.calls").append()
    new = {"table": "lake.db.calls"}
    old = {"path": "lake.db.calls", "format": "iceberg", "options": {"versionAsOf": str(first)}}
print(ingest({**spec, "inputs": [new]}, folder + "/new", spark).rows)
print(ingest({**spec, "inputs": [old]}, folder + "/old", spark).rows)
graph, table = gf.open(folder + "/new"), "lake.db.hops" if kind == "iceberg" else "hops"
for begin, mode in ((rows[0][0], "merge"), (rows[9][0], "merge")):
    result = gf.run("bfs", graph, source=begin)
    saved = save_as_table(result, table, mode=mode, format=kind, graph=graph, spark=spark)
told = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
assert told["goffish.fingerprint"] == graph.fingerprint()
reached = sorted(tuple(row) for row in saved.collect() if row["distance"] is not None)
print(reached == sorted(row for row in result if row[1] is not None), len(saved.collect()) == graph.num_vertices)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lakes(tmp_path: Path, expected: dict[str, bytes], kind: str) -> None:
    """The newest version and an older one of a Delta and an Iceberg table, with the packages that errors name."""
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    run = subprocess.run(
        [sys.executable, "-c", _LAKE, str(tmp_path), kind], capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    if run.stdout.startswith("SKIP"):
        pytest.skip(f"the package of {kind} cannot be fetched: {run.stdout}")
    assert run.stdout.split() == ["300", "200", "True", "True"], run.stderr[-3000:]
    assert files_of(tmp_path / "new") == expected
