"""Count the words of a Kafka topic, and write the counts to another: ``goffish stream run examples/kafka_words.py``.

Requires ``pip install 'goffish[kafka]'`` and a broker, by default at ``localhost:9092`` (set ``KAFKA_SERVERS``), with
two topics, which the programs of Kafka make, fill and read::

    kafka-topics.sh --bootstrap-server localhost:9092 --create --topic lines --partitions 3
    kafka-topics.sh --bootstrap-server localhost:9092 --create --topic words --partitions 3
    goffish stream run examples/kafka_words.py --checkpoint saved --workers 2
    kafka-console-producer.sh --bootstrap-server localhost:9092 --topic lines
    kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic words --from-beginning \
        --consumer-property isolation.level=read_committed

Stop the flow in any way, also with ``kill -9``, and run it again with the same folder: no line is lost, and none is
counted twice.
"""

from __future__ import annotations

import os

import goffish as gf

SERVERS = os.environ.get("KAFKA_SERVERS", "localhost:9092")


def words(line: str | None) -> list[dict[str, str]]:
    """Return a record for each word."""
    return [{"word": word} for word in (line or "").lower().split()]


flow = gf.stream.Flow("words")
lines = flow.source(gf.stream.read_kafka("lines", SERVERS, format="text"), name="lines")
counts = lines.flat_map(words).key_by("word").count(name="counts")
counts.sink(gf.stream.write_kafka("words", SERVERS, key="word"), name="out")
