"""Incremental loads of Delta and Iceberg tables and Kafka topics, and series of the versions of a table.

The broker of the test with Kafka is that of tests/streaming/kafka_broker.py, with its environment variable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.streaming.kafka_broker import Broker, jars

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_BEGIN = """
import sys, json
import goffish as gf
from goffish.errors import InputError
from goffish.gofs.series import open_series
from goffish.spark import session
from goffish.spark.ingest import ingest
from goffish.spark.ingest.sources import _PACKAGES
import pyspark

folder, kind, *more = sys.argv[1:]
package = _PACKAGES[kind].format(minor=".".join(pyspark.__version__.split(".")[:2]), spark=pyspark.__version__)
config = {"spark.sql.shuffle.partitions": 2, "spark.sql.warehouse.dir": folder + "/warehouse"}
if kind == "iceberg":
    config |= {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": folder + "/lake",
    }
try:
    spark = session(master="local[2]", memory="1g", packages=[package], config=config)
except Exception as error:
    print("SKIP", str(error)[:200])
    raise SystemExit(0)
rows = json.load(open(folder + "/rows.json"))
spec = {"source": "u", "target": "v", "weight": "w", "partition": {"parts": 2}}

def refused(spec, store):
    try:
        ingest(spec, store, spark, incremental=True)
    except InputError as error:
        return str(error)
"""

_LAKE = """
frame = lambda some: spark.createDataFrame([tuple(row) for row in some], "u long, v long, w double")
place = folder + "/table" if kind == "delta" else "lake.db.calls"

def append(some, first=False):
    if kind == "delta":
        frame(some).write.format("delta").mode("append").save(place)
    elif first:
        frame(some).writeTo(place).create()
    else:
        frame(some).writeTo(place).append()

spec["inputs"] = [{"path": place, "format": kind}]
versions = {**spec, "instances": {"by": "version"}}
append(rows[:100], first=True)
append(rows[100:120])
first = ingest(spec, folder + "/s", spark, incremental=True)
ingest(versions, folder + "/v", spark, incremental=True)
none = ingest(spec, folder + "/s", spark, incremental=True)
append(rows[120:])
second = ingest(spec, folder + "/s", spark, incremental=True)
whole = ingest(spec, folder + "/t", spark)
third = ingest(versions, folder + "/v", spark, incremental=True)
every = ingest(versions, folder + "/w", spark)
series = open_series(folder + "/v")
ends = [{frozenset(row[:2]) for row in rows[:count] if row[0] != row[1]} for count in (100, 120, 300)]
found = [sum(instance.edge("exists").to_pylist()) for instance in gf.open(folder + "/v").instances()]
table = "delta.`" + place + "`" if kind == "delta" else place
spark.sql(f"DELETE FROM {table} WHERE u < 3")
told = refused(spec, folder + "/s")
print(json.dumps({
    "rows": [first.rows, none.rows, second.rows, whole.rows, third.rows],
    "same": [second.fingerprint == whole.fingerprint, third.fingerprint == every.fingerprint],
    "instances": found == [len(some) for some in ends] and len(series) == 3,
    "refused": told,
}))
"""

_KAFKA = """
topic = {"path": "calls", "format": "kafka", "options": {"kafka.bootstrap.servers": more[0]}}
spec["inputs"] = [topic]
if more[1] == "first":
    report = ingest(spec, folder + "/s", spark, incremental=True)
else:
    report = ingest(spec, folder + "/s", spark, incremental=True)
    again = ingest(spec, folder + "/s", spark, incremental=True)
    whole = ingest(spec, folder + "/t", spark)
    assert (again.rows, report.fingerprint) == (0, whole.fingerprint), (again.rows, whole.edges, report.edges)
print(json.dumps({"rows": report.rows, "rules": report.rules}))
"""


def rows_of(seed: int) -> list[tuple[int, int, float]]:
    import numpy as np

    rng = np.random.default_rng(seed)
    ends, weights = rng.integers(0, 30, (300, 2)).tolist(), rng.integers(1, 9, 300).tolist()
    return [(u, v, float(w)) for (u, v), w in zip(ends, weights, strict=True)]


def messages(rows: list[tuple[int, int, float]]) -> list[tuple[str | None, bytes | None]]:
    return [(str(u), json.dumps({"u": u, "v": v, "w": w}).encode()) for u, v, w in rows]


def ran(code: str, *given: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", _BEGIN + code, *given], capture_output=True, text=True, timeout=850, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    if run.stdout.startswith("SKIP"):
        pytest.skip(f"the package cannot be fetched: {run.stdout}")
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout.splitlines()[-1]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_versions_of_a_table(tmp_path: Path, kind: str) -> None:
    """Breaks when rows of a version are lost or read again, or an instance is not the table at its version."""
    (tmp_path / "rows.json").write_text(json.dumps(rows_of(2)))
    told = json.loads(ran(_LAKE, str(tmp_path), kind))
    assert told["rows"] == [120, 0, 180, 300, 300]
    assert told["same"] == [True, True] and told["instances"]
    changed = {
        "delta": "rows were changed, removed or moved to other files since version 2",
        "iceberg": "did not only append rows (",
    }
    assert changed[kind] in told["refused"]


def test_offsets_of_a_topic(tmp_path: Path) -> None:
    """Breaks when a message is lost or read twice, or one that is no object is not in the quarantine."""
    jars()
    rows = rows_of(5)
    (tmp_path / "rows.json").write_text("[]")
    broker = Broker(tmp_path / "broker")
    try:
        broker.create("calls", 3)
        broker.produce("calls", [*messages(rows[:200]), ("x", b"not JSON")])
        first = json.loads(ran(_KAFKA, str(tmp_path), "kafka", broker.servers, "first"))
        broker.produce("calls", messages(rows[200:]))
        second = json.loads(ran(_KAFKA, str(tmp_path), "kafka", broker.servers, "second"))
    finally:
        broker.kill()
    assert (first["rows"], second["rows"]) == (201, 100) and first["rules"]["malformed"] == 1
