"""A Kafka broker on this machine, started from a folder of JAR files."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

#: Names the folder.
VARIABLE = "GOFFISH_KAFKA_JARS"
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.check.interval.ms=1000
"""


def jars() -> Path:
    """The folder of JAR files; skips the test if there is none."""
    folder = os.environ.get(VARIABLE)
    if not folder or not list(Path(folder).glob("kafka_2.13-*.jar")):
        pytest.skip(f"needs a Kafka broker: set {VARIABLE} to a folder with kafka_2.13 and kafka-tools from Maven")
    return Path(folder)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Broker:
    """One broker, which keeps its port and its data when it is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._jars = folder, jars()
        self.port = _free_port()
        self.servers = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True)
        text = _SETTINGS.format(port=self.port, controller=_free_port(), folder=folder)
        (folder / "server.properties").write_text(text)
        (folder / "log4j2.properties").write_text("rootLogger.level=error\n")
        command = [*self._java("128m"), "kafka.tools.StorageTool", "format", "--standalone", "-t", self._id(), "-c"]
        formatted = subprocess.run(
            [*command, str(folder / "server.properties")], capture_output=True, text=True, check=False, timeout=120
        )
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr
        self.start()

    @staticmethod
    def _id() -> str:
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def _java(self, memory: str) -> list[str]:
        options = [f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logs = f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties"
        return ["java", *options, logs, "-cp", f"{self._jars}/*"]

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        from confluent_kafka.admin import AdminClient

        with (self._folder / "log").open("ab") as log:
            settings = str(self._folder / "server.properties")
            self._process = subprocess.Popen([*self._java("384m"), "kafka.Kafka", settings], stdout=log, stderr=log)
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for _ in range(600):
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0 and self._answers():
                    return
            time.sleep(0.1)
        raise AssertionError("the broker does not start")

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        """End the broker at once, as a power failure would."""
        self._process.kill()
        self._process.wait()

    def create(self, topic: str, partitions: int = 3, **settings: str) -> None:
        """Create a topic."""
        from confluent_kafka.admin import NewTopic

        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(30)

    def produce(self, topic: str, records: list[tuple[str | None, bytes | None]]) -> None:
        """Write records, given as key and value."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0

    def committed(self, topic: str) -> list[Any]:
        """Return all messages that a consumer of committed records reads."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": "test", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0,
        })  # fmt: skip
        left = set(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        found = []
        while left:
            for message in consumer.consume(10000, 1):
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    left.discard(message.partition())
        consumer.close()
        return found
