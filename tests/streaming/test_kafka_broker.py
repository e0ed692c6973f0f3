"""Kafka with a real broker: every record arrives exactly once, whatever is killed.

Set GOFFISH_KAFKA_JARS to a folder with the JAR files of ``org.apache.kafka:kafka_2.13`` and
``org.apache.kafka:kafka-tools`` (4.x) and what they depend on; ``mvn dependency:copy-dependencies`` fills it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.streaming.runtime.cluster import Cluster
from tests.streaming.kafka_broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COUNT, KEYS = 12_000, 7
#: Both kinds of result: the records themselves, and running counts, which show what keyed state contains.
FLOW = """
import os, sys
import goffish as gf
from goffish.streaming.kafka import sink

servers, source, target, counts, rate, kill = sys.argv[1:7]

def kill_at(name, call, after=False):
    method, calls = getattr(sink._KafkaWriter, name), [0]

    def instead(*args):
        calls[0] += 1
        if calls[0] == call and not after:
            os.kill(os.getpid(), 9)
        result = method(*args)
        if calls[0] == call and after:
            os.kill(os.getpid(), 9)
        return result

    setattr(sink._KafkaWriter, name, instead)

flow = gf.stream.Flow("copy")
records = flow.source(gf.stream.read_kafka(source, servers, follow=False, rate=float(rate) or None), name="in")
records.sink(gf.stream.write_kafka(target, servers, key="k"), name="out")
records.key_by("k").count(name="count").sink(gf.stream.write_kafka(counts, servers, key="k"), name="counts")
if __name__ == "__main__":
    if kill != "-":
        kill_at(*eval(kill))
    flow.run(checkpoint=sys.argv[7], every=0.1, workers=int(sys.argv[8]))
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    made.create("in")
    made.produce("in", [(None, json.dumps({"n": n, "k": f"k{n % KEYS}"}).encode()) for n in range(COUNT)])
    yield made
    made.kill()


class Copy:
    """The flow in a process of its own, on topics of its own."""

    def __init__(self, broker: Broker, folder: Path, workers: int = 1, rate: float = 2500) -> None:
        self.broker, self.folder, self.workers, self.rate = broker, folder, workers, rate / workers
        self.out, self.counts = f"out-{folder.name}", f"counts-{folder.name}"
        broker.create(self.out)
        broker.create(self.counts)
        (folder / "flow.py").write_text(FLOW)

    def start(self, kill: str = "-") -> subprocess.Popen[bytes]:
        words = [self.broker.servers, "in", self.out, self.counts, str(self.rate), kill, str(self.folder / "ck")]
        command = [sys.executable, str(self.folder / "flow.py"), *words, str(self.workers)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)

    def saved(self, since: float) -> bool:
        """Whether there are newer checkpoints."""
        return any(changed(one) > since for one in (self.folder / "ck").rglob("checkpoint.json"))

    def finish(self) -> None:
        process = self.start()
        assert process.wait(200) == 0, (self.folder / "log").read_text()[-3000:]

    def check(self) -> None:
        """Consumers of committed records see each once; and counts have counted each once."""
        found = Counter(json.loads(one.value())["n"] for one in self.broker.committed(self.out))
        assert found == Counter(range(COUNT))
        reached = Counter(
            {row["k"]: row["count"] for row in (json.loads(m.value()) for m in self.broker.committed(self.counts))}
        )
        assert reached == Counter(f"k{n % KEYS}" for n in range(COUNT))
        assert not list((self.folder / "ck").rglob("*.prepared"))


def changed(path: Path) -> float:
    """Return when a file was changed; 0 if it has been removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def kill_all(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_flow_is_killed(broker: Broker, tmp_path: Path, seed: int, workers: int) -> None:
    copy, rng = Copy(broker, tmp_path, workers), random.Random(seed)
    for _ in range(4):
        process, begun, end = copy.start(), time.time(), time.monotonic() + 60
        while not copy.saved(begun) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.8))
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        kill_all(process)
    copy.finish()
    copy.check()


@pytest.mark.parametrize(
    "kill",
    [
        '("prepare", 5)',  # nothing of the checkpoint is durable
        '("prepare", 5, True)',  # one sink has prepared, the checkpoint is not saved
        '("commit", 5)',  # the checkpoint is saved, no transaction has begun
        '("_produce", 900)',  # a transaction is open
        '("_attempt", 4, True)',  # the transaction is committed, and its records are still prepared
    ],
)
def test_the_flow_is_killed_during_a_checkpoint(broker: Broker, tmp_path: Path, kill: str) -> None:
    copy = Copy(broker, tmp_path)
    for _ in range(2):
        process = copy.start(kill)
        assert process.wait(100) == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
    copy.finish()
    copy.check()


def test_a_worker_is_killed(broker: Broker, tmp_path: Path) -> None:
    """Breaks when the worker that takes over loses or repeats what the other one has prepared."""
    broker.create("one-out")
    flow = gf.stream.Flow("copy")
    records = flow.source(gf.stream.read_kafka("in", broker.servers, follow=False, rate=1500), name="in")
    records.sink(gf.stream.write_kafka("one-out", broker.servers, key="k"), name="out")
    rng = random.Random(1)
    cluster = Cluster(flow.check(), 3, checkpoint_s=0.1)
    try:
        kills, due = 0, time.monotonic() + 1.5
        while not cluster.finished:
            cluster.poll()
            if time.monotonic() > due and kills < 3 and cluster.metrics().records < COUNT * 0.8:
                members = set(cluster._registry.read().nodes.tolist())  # a worker that starts must not be killed
                os.kill(rng.choice([pid for node, pid in cluster.pids.items() if node in members]), signal.SIGKILL)
                kills, due = kills + 1, time.monotonic() + 4
        assert kills
    finally:
        cluster.close()
    found = Counter(json.loads(one.value())["n"] for one in broker.committed("one-out"))
    assert found == Counter(range(COUNT))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_broker_is_away_for_half_a_minute(broker: Broker, tmp_path: Path, workers: int) -> None:
    copy = Copy(broker, tmp_path, workers, rate=1500)
    process = copy.start()
    time.sleep(4)
    broker.kill()
    time.sleep(30)
    assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
    broker.start()
    assert process.wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
    copy.check()
    warnings = [line for line in (tmp_path / "log").read_text().splitlines() if "GoffishWarning" in line]
    assert 1 <= len(warnings) <= 6 * workers, warnings


@pytest.mark.parametrize("workers", [1, 3])
def test_a_replay_has_the_same_results(broker: Broker, tmp_path: Path, workers: int) -> None:
    copy = Copy(broker, tmp_path, workers, rate=0)
    copy.finish()
    copy.check()


def test_deleted_records_are_an_error(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    broker.create("short", 1)
    broker.produce("short", [(None, b"%d" % n) for n in range(100)])

    def run(until: float | None, **options: str) -> list[int]:
        flow, seen = gf.stream.Flow("short"), gf.stream.collect()
        flow.source(gf.stream.read_kafka("short", broker.servers, options=options), name="in").sink(seen)
        flow.run(checkpoint=tmp_path / "ck", every=0.1, until=until)
        return seen.values

    assert run(3) == list(range(100))
    broker.produce("short", [(None, b"%d" % n) for n in range(100, 300)])
    for one in broker.admin.delete_records([TopicPartition("short", 0, 250)]).values():
        one.result(30)
    with pytest.raises(InputError, match=r"operator in: topic short at .*, partition 0: offset 100 .*auto\.offset"):
        run(30)
    assert run(3, **{"auto.offset.reset": "earliest"}) == list(range(250, 300))


def test_new_partitions_and_the_latest_offset(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka.admin import NewPartitions

    broker.create("grows", 1)
    broker.produce("grows", [(None, b'"old"')])
    flow, seen = gf.stream.Flow("grows"), gf.stream.collect()
    flow.source(gf.stream.read_kafka("grows", broker.servers, start="latest")).sink(seen)
    run = flow.start(checkpoint=tmp_path / "ck", every=0.1)
    broker.produce("grows", [(None, b'"new"')])
    broker.admin.create_partitions([NewPartitions("grows", 2)])["grows"].result(30)
    end = time.monotonic() + 30
    while len(seen.values) < 21 and time.monotonic() < end:
        time.sleep(0.5)
        if len(seen.values) == 1:
            broker.produce("grows", [(f"{n}", b'"more"') for n in range(20)])
            time.sleep(3)
    run.stop()
    assert Counter(seen.values) == {"new": 1, "more": 20}


def test_a_record_that_the_topic_does_not_accept(broker: Broker) -> None:
    broker.create("small", 1, **{"max.message.bytes": "1000"})
    flow = gf.stream.Flow("large")
    source = flow.source(gf.stream.from_iterable(["x" * 5000]))
    source.sink(gf.stream.write_kafka("small", broker.servers), name="out")
    with pytest.raises(JobError, match=r"operator out: topic small at .*: Broker: Message size too large"):
        flow.run()


def test_the_example(broker: Broker, tmp_path: Path) -> None:
    broker.create("lines")
    broker.create("words")
    broker.produce("lines", [(None, b"The cat and the dog"), (None, b"and the Cat"), (None, None)])
    example = Path(__file__).parents[2] / "examples" / "kafka_words.py"
    command = [sys.executable, "-m", "goffish", "stream", "run", str(example), "--checkpoint", "ck", "--until", "6s"]
    environment = os.environ | {"KAFKA_SERVERS": broker.servers}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=100, stdout=subprocess.DEVNULL)
    rows = [json.loads(one.value()) for one in broker.committed("words")]
    assert {row["word"]: row["count"] for row in rows} == {"the": 3, "cat": 2, "and": 2, "dog": 1}
