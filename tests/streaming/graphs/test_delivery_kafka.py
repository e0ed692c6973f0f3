"""Events that are delivered to a Kafka topic by processes that are killed; see test_kafka_broker.py for the broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ENVIRONMENT
from tests.streaming.graphs.test_delivery import records
from tests.streaming.kafka_broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RUN = """
import os, sys, time
import goffish as gf
from goffish.streaming.kafka import sink
from tests.streaming.graphs.test_delivery import QUERIES, records

state, servers, topic, name, call, after = sys.argv[1:7]
method, calls = getattr(sink._KafkaWriter, name, None), [0]

def instead(*args):
    calls[0] += 1
    if calls[0] == int(call) and after == "False":
        os.kill(os.getpid(), 9)
    result = method(*args)
    if calls[0] == int(call):
        os.kill(os.getpid(), 9)
    return result

if method is not None:
    setattr(sink._KafkaWriter, name, instead)
with gf.stream.LiveGraph(lateness=0, state=state) as live:
    if not live.topics:
        live.submit(QUERIES)
    live.deliver("hosts", gf.stream.write_kafka(topic, servers, key="topic"), every=0.02)
    for first in range(0, 200, 20):
        live.feed(records(first, 20))
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("name", "call", "after"),
    [
        ("prepare", 2, False), ("prepare", 2, True), ("commit", 2, False), ("_produce", 30, False),
        ("_attempt", 2, True), ("commit", 2, True),
    ],
)  # fmt: skip
def test_runs_that_are_killed(broker: Broker, tmp_path: Path, name: str, call: int, after: bool) -> None:
    """Breaks when an event is in the topic twice, or not at all."""
    topic = f"{name}-{call}-{after}".strip("_")
    broker.create(topic)
    codes = []
    for given in (name, name, "-"):
        words = [str(tmp_path / "state"), broker.servers, topic, given, str(call), str(after)]
        ended = subprocess.run([sys.executable, "-c", RUN, *words], env=ENVIRONMENT, timeout=120, check=False)
        codes.append(ended.returncode)
    assert codes[0] == -9 and codes[1] in (-9, 0) and codes[2] == 0  # the second run may have less to do
    found = [json.loads(one.value()) for one in broker.committed(topic)]
    assert [one["offset"] for one in found] == list(range(200))
    assert [one["id"] for one in found] == [one["id"] for one in records(0, 200) if "id" in one]


def test_a_start_while_no_broker_answers(tmp_path: Path) -> None:
    """Breaks when a start that is refused, after a run that was killed, loses events or delivers some twice."""
    broker = Broker(tmp_path / "broker")
    broker.create("late")

    def run(name: str, after: str = "False") -> subprocess.CompletedProcess[str]:
        words = [str(tmp_path / "state"), broker.servers, "late", name, "2", after]
        command = [sys.executable, "-c", RUN, *words]
        return subprocess.run(command, env=ENVIRONMENT, timeout=120, check=False, capture_output=True, text=True)

    assert run("commit").returncode == -9
    broker.kill()
    refused = run("-")
    assert refused.returncode == 1
    assert f"topic late at {broker.servers}: no broker answers within" in refused.stderr.splitlines()[-1]
    broker.start()
    assert run("-").returncode == 0
    assert [json.loads(one.value())["offset"] for one in broker.committed("late")] == list(range(200))
    broker.kill()
