"""Streams of Spark that read a Kafka topic, and their results in a Delta table, with the packages of both."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

from tests.commands import ENVIRONMENT
from tests.streaming.graphs.test_durable import QUERIES
from tests.streaming.graphs.test_spark import LOCAL, embedded, expected, local_records, published
from tests.streaming.kafka_broker import Broker

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Reads what a topic has in batches, and is killed at that call that changes a file.
DRIVER = """
import os, signal, sys
from pathlib import Path
import goffish as gf
from goffish.spark import session
kind, folder, servers, text, moment = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
calls = 0
def counted(function):
    def call(*arguments, **more):
        global calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return call
import pyspark
minor = ".".join(pyspark.__version__.split(".")[:2])
packages = [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{minor}.1"]
if kind == "edges":
    packages.append("io.delta:delta-spark_" + minor + "_2.13:4.4.0")
spark = session(master="local[2]", memory="1g", packages=packages, config={
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={folder}/derby",
    "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.sql.shuffle.partitions": 2,
})
kafka = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", kind)
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
)
if kind == "edges":
    # The catalog of the session is in memory: a table at a fixed place is there in the next run.
    place = f"{folder}/components"
    if not Path(place).exists():
        spark.createDataFrame([], "id BIGINT, component BIGINT").write.format("delta").save(place)
    spark.sql(f"CREATE TABLE components USING delta LOCATION '{place}'")
for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "mkdir")):
    setattr(owner, name, counted(getattr(owner, name)))
place = {"checkpoint": folder / "checkpoint", "lateness": 3, "trigger": {"availableNow": True}}
if kind == "records":
    run = gf.stream.spark_queries(kafka, text, output=folder / "events", **place)
else:
    updates = kafka.selectExpr(
        "from_json(cast(value AS string), 't bigint, op string, id bigint, src bigint, dst bigint') AS record"
    ).select("record.*")
    def merge(rows, batch):
        rows.createOrReplaceTempView("rows")
        rows.sparkSession.sql(text)
    run = gf.stream.spark_algorithm(updates, "components", output=merge, **place)
with run:
    run.await_termination()
if kind == "edges":
    print(sorted(map(tuple, spark.table("components").collect())))
"""
#: As in docs/guides/live-graphs.md.
MERGE = """
    MERGE INTO components USING rows ON components.id = rows.id
    WHEN MATCHED AND rows.component IS NULL THEN DELETE
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED AND rows.component IS NOT NULL THEN INSERT *
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    yield made
    made.kill()


def _until_done(broker: Broker, kind: str, folder: Path, text: str, kills: int) -> str:
    """Run a driver that is killed at random, and again until it ends; the broker is killed in between as well."""
    rng, done = random.Random(kind), 0
    while True:
        moment = rng.randrange(1, 60) if done < kills else 0
        command = [sys.executable, "-c", DRIVER, kind, str(folder), broker.servers, text, str(moment)]
        ended = subprocess.run(
            command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False, cwd=folder
        )
        if ended.returncode == 0:
            assert done == kills
            return ended.stdout
        if 'return value of "scala.Option.get()" is null' in ended.stderr:
            continue  # SPARK-57438: the Kafka packages of Spark 4.1.0 to 4.1.2 end a stream once after a restart
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
        done += 1
        broker.kill()
        broker.start()


def test_events_of_the_embedded_engine(broker: Broker, tmp_path: Path) -> None:
    """Breaks when a driver or a broker that was killed changes an event, loses one or gives one twice."""
    text, records = f"{QUERIES.strip()}; {LOCAL.strip()}", local_records(7, 150)
    broker.create("records", partitions=1)
    broker.produce("records", [(None, json.dumps(one).encode()) for one in records])
    _until_done(broker, "records", tmp_path, text, kills=3)
    live = embedded(text, records)
    assert sum(len(live.events(topic)) > 0 for topic in live.topics) >= 10
    for topic in live.topics:
        assert published(tmp_path / "events", topic) == expected(live, topic), topic


def test_components_in_a_delta_table(broker: Broker, tmp_path: Path) -> None:
    """Breaks when the table of the guide is not that of NetworkX after drivers that were killed."""
    rng, graph, records = random.Random(3), nx.MultiGraph(), []
    for t in range(200):
        if t % 5 == 4:
            vertex = rng.choice(sorted(graph))
            graph.remove_node(vertex)
            records.append({"t": t, "op": "-v", "id": vertex})
        else:
            ends = rng.randrange(60), rng.randrange(60)
            graph.add_edge(*ends)
            records.append({"t": t, "op": "+e", "src": ends[0], "dst": ends[1]})
    records.append({"t": 300, "op": "heartbeat"})
    broker.create("edges", partitions=1)
    broker.produce("edges", [(None, json.dumps(one).encode()) for one in records])
    found = _until_done(broker, "edges", tmp_path, MERGE, kills=2)
    assert found.splitlines()[-1] == str(
        sorted((one, min(part)) for part in nx.connected_components(graph) for one in part)
    )
