"""Kafka topics as sources and sinks of flows."""

from goffish.streaming.kafka.client import SERVERS, Format
from goffish.streaming.kafka.sink import write_kafka
from goffish.streaming.kafka.source import Start, read_kafka

__all__ = ["SERVERS", "Format", "Start", "read_kafka", "write_kafka"]
