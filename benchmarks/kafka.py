"""Reading a Kafka topic into keyed counts, beside the client alone and JSON alone: python benchmarks/kafka.py SERVERS.

Fills a topic of three partitions with JSON records of two sizes, and removes it. Needs the extra ``kafka``.
"""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Callable

from _harness import machine_line, print_table  # first: it sets the environment
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import goffish as gf

PARTITIONS = 3


def fill(servers: str, topic: str, size: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for number in range(records):
        record = {"k": f"k{number % 1000}", "n": number, "pad": ""}
        record["pad"] = "x" * (size - len(json.dumps(record)))
        while True:
            try:
                producer.produce(topic, json.dumps(record))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def client(servers: str, topic: str, records: int, *, parse: bool) -> None:
    """Read all records with the client, and parse each."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    while records:
        found = [message.value() for message in consumer.consume(10_000, 1)]
        if parse:
            found = [json.loads(value) for value in found]
        records -= len(found)
    consumer.close()


def flow(servers: str, topic: str) -> None:
    made = gf.stream.Flow("bench")
    records = made.source(gf.stream.read_kafka(topic, servers, follow=False))
    records.key_by("k").count().sink(gf.stream.collect())
    made.run()


def per_second(call: Callable[[], None], records: int) -> float:
    """Return records per second of the best of three."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return records / min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers")
    parser.add_argument("--records", type=int, default=400_000)
    given = parser.parse_args()
    admin, rows = AdminClient({"bootstrap.servers": given.servers}), []
    print("Machine:", machine_line(("confluent-kafka",)))
    for size in (100, 1000):
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        fill(given.servers, topic, size, given.records)
        calls = {
            "client": lambda topic=topic: client(given.servers, topic, given.records, parse=False),
            "client and json.loads": lambda topic=topic: client(given.servers, topic, given.records, parse=True),
            "flow with keyed count": lambda topic=topic: flow(given.servers, topic),
        }
        rates = {name: per_second(call, given.records) for name, call in calls.items()}
        rows.append([f"{size} bytes", *(f"{rate:,.0f}" for rate in rates.values())])
        admin.delete_topics([topic])[topic].result(30)
    print(f"Records per second of {given.records:,} records, best of three:\n")
    print_table(["record", *calls], rows)


if __name__ == "__main__":
    main()
