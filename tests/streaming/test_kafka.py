"""Kafka without a broker: librdkafka's mock cluster. What it cannot do, test_kafka_broker.py tests with a real one."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import goffish as gf
from goffish.errors import GoffishWarning, InputError, JobError
from goffish.streaming import kafka
from goffish.streaming.batches import Batch
from goffish.streaming.flow_file import load_flow

stream = gf.stream


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    yield ",".join(f"{one.host}:{one.port}" for one in cluster.list_topics(timeout=10).brokers.values())


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W+", "-", request.node.name)[:60]


def produce(servers: str, topic: str, values: list[Any], **more: Any) -> None:
    """Write values to a topic; the mock cluster makes it, with four partitions."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, **more)
    assert producer.flush(10) == 0


def read(servers: str, topic: str, **more: Any) -> tuple[list[Any], list[dict[str, str]]]:
    """Return the records of a topic, and those that could not be read."""
    values, bad = stream.collect(), stream.collect()
    flow = stream.Flow("read", on_error=bad)
    flow.source(stream.read_kafka(topic, servers, follow=False, **more), name="in").sink(values)
    flow.run()
    return values.values, bad.values


def test_records_as_json(servers: str, topic: str) -> None:
    """Breaks when a record is lost, doubled or changed, or one that is no JSON is not reported with its place."""
    records = [{"n": n, "text": "ü" * (n % 5)} for n in range(500)]
    produce(servers, topic, [json.dumps(one).encode() for one in records])
    values, bad = read(servers, topic)
    assert sorted(values, key=lambda one: one["n"]) == records and bad == []
    produce(servers, topic, [b"[1, 2]", b"7", b"null", None, b"{bad", b"", b"[" * 100_000], partition=3)
    values, bad = read(servers, topic)
    assert [one for one in values if not isinstance(one, dict)] == [[1, 2], 7, None, None]
    end = sum(1 for one in read(servers, topic, format="bytes", metadata=True)[0] if one["partition"] == 3)
    wanted = [f"topic {topic} at {servers}, partition 3, offset {end - back}: not a JSON value" for back in (3, 2, 1)]
    assert [one["error"].partition(" (")[0] for one in bad] == wanted
    assert bad[0]["operator"] == "in" and bad[0]["record"] == "'{bad'"


def test_metadata(servers: str, topic: str) -> None:
    produce(servers, topic, [b"a", b"\xff", None], key=b"\xffk", partition=1, timestamp=1735689600123,
            headers=[("h", b"1"), ("none", None)])  # fmt: skip
    found, bad = read(servers, topic, format="text", metadata=True)
    assert [(one["offset"], one["value"]) for one in found] == [(0, "a"), (2, None)]
    assert bad[0]["error"].startswith(f"topic {topic} at {servers}, partition 1, offset 1: not UTF-8 (")
    assert found[0]["timestamp"].isoformat() == "2025-01-01T00:00:00.123000+00:00"
    assert (found[0]["key"], found[0]["headers"]) == ("\ufffdk", {"h": "1", "none": None})
    raw, _ = read(servers, topic, format="bytes", metadata=True)
    assert [(one["key"], one["value"]) for one in raw] == [(b"\xffk", b"a"), (b"\xffk", b"\xff"), (b"\xffk", None)]
    assert raw[0]["headers"] == {"h": b"1", "none": None}


def test_event_time_of_metadata(servers: str, topic: str) -> None:
    for second in (0, 30, 61):
        produce(servers, topic, [b"1"], partition=0, timestamp=1000 * (1735689600 + second))
    flow, counts = stream.Flow("times"), stream.collect()
    records = flow.source(stream.read_kafka(topic, servers, follow=False, metadata=True), time="timestamp")
    records.key_by("partition").window(stream.tumbling("1min")).count().sink(counts)
    flow.run()
    assert [one["count"] for one in counts.values] == [2, 1]


def test_checkpoints_hold_offsets(servers: str, topic: str, tmp_path: Path) -> None:
    """Breaks when a flow that resumes reads a record twice or not at all, or commits offsets to a group."""
    seen = stream.collect()

    def run(count: int, **more: Any) -> None:
        flow = stream.Flow("resumed")
        flow.source(stream.read_kafka(topic, servers, **more), name="in").sink(seen)
        until = None if more.get("follow") is False else lambda metrics: metrics.records >= count
        flow.run(checkpoint=tmp_path / "ck", every=0.01, until=until)

    produce(servers, topic, [b"%d" % n for n in range(100)])
    run(100)
    produce(servers, topic, [b"%d" % n for n in range(100, 200)])
    run(200, start="latest")  # there is a checkpoint
    produce(servers, topic, [b"%d" % n for n in range(200, 300)])
    run(0, follow=False)
    assert sorted(seen.values) == list(range(300))
    group = Consumer({"bootstrap.servers": servers, "group.id": "goffish", "log_level": 0})
    assert {one.offset for one in group.committed([TopicPartition(topic, n) for n in range(4)], 10)} == {-1001}
    group.close()


def test_latest(servers: str, topic: str) -> None:
    produce(servers, topic, [b'"old"'] * 20)
    flow, seen = stream.Flow("latest"), stream.collect()
    flow.source(stream.read_kafka(topic, servers, start="latest")).sink(seen)
    run = flow.start(until=lambda metrics: metrics.records >= 5)
    produce(servers, topic, [b'"new"'] * 5)
    run.wait(20)
    assert seen.values == ["new"] * 5


def test_one_partition_does_not_hold_up_others(servers: str, topic: str) -> None:
    """Breaks when records that were fetched for a partition are lost, or stop others, with small batches."""
    for partition, count in ((0, 700), (1, 3), (3, 40)):
        produce(servers, topic, [b"%d" % n for n in range(count)], partition=partition)
    source = stream.read_kafka(topic, servers, follow=False, metadata=True)
    source.check()
    session = source.begin(resumed=False)
    readers = {name: session.open(name, None) for name in session.partitions()}
    found: list[tuple[int, int, int]] = []
    end = time.monotonic() + 20
    while not all(one.done for one in readers.values()) and time.monotonic() < end:
        for reader in readers.values():
            if not reader.done and (got := reader.read(7)) is not None:
                assert len(got.values) <= 7
                found += [(one["partition"], one["offset"], one["value"]) for one in got.values]
            if reader.done:
                reader.close()
    assert Counter(found) == Counter((p, n, n) for p, count in ((0, 700), (1, 3), (3, 40)) for n in range(count))
    assert {name: one.position for name, one in readers.items()} == {
        f"{topic}-{number}": [count, count] for number, count in enumerate((700, 3, 0, 40))
    }


def test_an_offset_that_does_not_exist(servers: str, topic: str) -> None:
    produce(servers, topic, [b"1"], partition=0)
    for options, wanted in (({}, None), ({"auto.offset.reset": "earliest"}, [1])):
        source = stream.read_kafka(topic, servers, options=options)
        source.check()
        reader = source.open(f"{topic}-0", [1234])

        def values(reader: Any = reader) -> list[Any]:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if (found := reader.read(10)) is not None:
                    return list(found.values)
            raise AssertionError("no answer")

        if wanted is None:
            text = rf"topic {topic} at .*, partition 0: offset 1,234 does not exist any more, or not yet: .* accepted: "
            with pytest.raises(InputError, match=text):
                values()
        else:
            assert values() == wanted
        reader.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topic": "absent"}, r"topic absent at \S+: does not exist; create it, or correct the name"),
        ({"servers": "127.0.0.1:9"}, r"topic \S+ at 127\.0\.0\.1:9: no broker answers within 1 s \(.*refused"),
        ({"options": {"no.such": 1}}, r"topic \S+ at \S+: options: No such configuration property: \"no\.such"),
    ],
)
def test_what_cannot_be_read(
    servers: str, topic: str, arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka.client, "BEGINS_S", 1.0)
    arguments = {"topic": topic, "servers": servers} | arguments
    reads, writes = stream.Flow("reads"), stream.Flow("writes")
    reads.source(stream.read_kafka(**arguments), name="in").sink(stream.collect())
    writes.source(stream.generate(1)).sink(stream.write_kafka(**arguments), name="out")
    for flow, operator in ((reads, "in"), (writes, "out")):
        with pytest.raises(InputError, match=f"operator {operator}: {message}"):
            flow.run()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stream.read_kafka(""), "topic and servers must not be empty"),
        (lambda: stream.read_kafka("t", start="now"), "start = 'now'; accepted are earliest and latest"),
        (lambda: stream.read_kafka("t", format="xml"), "format = 'xml'; accepted are json, text, bytes"),
        (lambda: stream.read_kafka("t", rate=0), "rate = 0: must be a positive number"),
        (lambda: stream.read_kafka("t", options={"enable.auto.commit": True}), "enable.auto.commit is set by the flow"),
        (lambda: stream.write_kafka("t", options={"bootstrap.servers": "x"}), "bootstrap.servers is set by the flow"),
        (lambda: stream.write_kafka("t", key=3), "key: int; give a column or a function"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(stream.read_kafka("t", options={"sasl.password": "secret"}))
    assert "secret" not in repr(stream.write_kafka("t", options={"sasl.password": "secret"}))


def messages(servers: str, topic: str) -> list[tuple[Any, Any]]:
    found, _ = read(servers, topic, format="bytes", metadata=True)
    return [(one["key"], one["value"]) for one in found]


def test_what_is_written(servers: str, topic: str) -> None:
    """Breaks when keys or values are encoded otherwise than documented, or records of a key change their order."""
    produce(servers, topic, [b"first"], partition=0)
    records = [{"k": key, "n": n} for n in range(40) for key in ("a", 7, None, "ü")]
    flow = stream.Flow("write")
    rows = flow.source(stream.from_iterable([*records, None]))
    rows.sink(stream.write_kafka(topic, servers, key=lambda one: one and one["k"]))
    flow.run()
    found = messages(servers, topic)
    for key, encoded in (("a", b"a"), (7, b"7"), ("ü", "ü".encode())):
        assert [json.loads(value) for k, value in found if k == encoded] == [one for one in records if one["k"] == key]
    assert len(found) == 1 + len(records) + 1 and (None, None) in found


@pytest.mark.parametrize(("format", "values"), [("text", ["a", "ü", None]), ("bytes", [b"a", b"\xff", None])])
def test_formats_are_read_as_written(servers: str, topic: str, format: Any, values: list[Any]) -> None:
    produce(servers, topic, [None], partition=0)
    flow = stream.Flow("write")
    flow.source(stream.from_iterable(values)).sink(stream.write_kafka(topic, servers, format=format))
    flow.run()
    assert sorted(map(repr, read(servers, topic, format=format)[0])) == sorted(map(repr, [None, *values]))


@pytest.mark.parametrize(
    ("record", "arguments", "message"),
    [
        (7, {"format": "text"}, "operator out: format text: record of type int (7); accepted are str and None"),
        ("x", {"format": "bytes"}, "operator out: format bytes: record of type str ('x'); accepted are bytes and None"),
        ({"a": 1}, {"key": "b"}, "operator out: key: KeyError: 'b' (record {'a': 1})"),
        ("x" * 2_000_000, {}, "record of 2,000,002 bytes, more than message.max.bytes = 1,000,000; raise that option"),
    ],
)
def test_records_that_cannot_be_written(
    servers: str, topic: str, record: Any, arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Breaks when they become part of a checkpoint, from which no run could get any further."""
    produce(servers, topic, [b""], partition=0)
    flow = stream.Flow("write")
    flow.source(stream.from_iterable([record])).sink(stream.write_kafka(topic, servers, **arguments), name="out")
    with pytest.raises(JobError) as caught:
        flow.run(checkpoint=tmp_path / "ck")
    assert message in str(caught.value)
    assert not (tmp_path / "ck" / "checkpoint.json").exists()


def writer(servers: str, topic: str, spool: Path, part: str = "") -> Any:
    made = stream.write_kafka(topic, servers).writer("out")
    made.part, made.spool = part, spool
    return made


def test_recovery(servers: str, topic: str, tmp_path: Path) -> None:
    """Breaks when what a checkpoint contains is not written, what it does not contain is, or one writer takes files
    of another."""
    produce(servers, topic, [b"0"], partition=0)
    killed, other = writer(servers, topic, tmp_path, "1"), writer(servers, topic, tmp_path, "11")
    killed.recover(None)
    other.recover(None)
    for number in (1, 2, 3):
        killed.write(Batch([number]))
        killed.prepare(number)
    other.write(Batch([100]))
    other.prepare(1)
    killed.commit(1)
    while killed.pending:
        time.sleep(0.01)
    again = writer(servers, topic, tmp_path, "1")
    again.recover(2)
    assert [path.name for path in tmp_path.rglob("*.prepared")] == [".part-11-00000001.arrow.prepared"]
    assert sorted(value for _, value in messages(servers, topic)) == [b"0", b"1", b"2"]
    for one in (killed, other, again):
        one.close()


def test_a_transaction_that_was_committed_is_not_repeated(servers: str, topic: str, tmp_path: Path) -> None:
    """The mock cluster keeps no offsets of transactions: a consumer commits the offset that one would have."""
    produce(servers, topic, [b"0"], partition=0)
    killed = writer(servers, topic, tmp_path)
    killed.recover(None)
    killed.write(Batch([1]))
    killed.prepare(5)
    group = Consumer({"bootstrap.servers": servers, "group.id": f"{killed._identity}-", "log_level": 0})
    group.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    group.close()
    writer(servers, topic, tmp_path).recover(5)
    assert [value for _, value in messages(servers, topic)] == [b"0"]
    assert not list(tmp_path.rglob("*.prepared"))
    killed.close()


def test_an_outage(topic: str) -> None:
    """Breaks when an outage ends a flow, or loses or doubles what it reads."""
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    [broker] = cluster.list_topics(timeout=10).brokers.values()
    servers = f"{broker.host}:{broker.port}"
    produce(servers, topic, [b"%d" % n for n in range(50)], partition=0)
    flow, seen = stream.Flow("outage"), stream.collect()
    flow.source(stream.read_kafka(topic, servers, rate=200)).sink(seen)
    with pytest.warns(GoffishWarning, match=rf"topic {topic} at {servers}: no broker is reachable; waiting"):
        run = flow.start()
        end = time.monotonic() + 20
        while len(seen.values) < 10 and time.monotonic() < end:
            time.sleep(0.01)
        del cluster, broker  # ends the brokers
        time.sleep(1.5)
        assert run.running
        run.stop()
    assert sorted(seen.values) == list(range(len(seen.values)))


def test_flow_files(tmp_path: Path) -> None:
    """A flow can be checked where no broker is."""
    described = {
        "name": "words", "on_error": {"kafka": "bad", "servers": "b:1"},
        "operators": [
            {"name": "in", "kind": "source", "time": "timestamp", "idle": "10s",
             "read": {"kafka": "words", "servers": "a:1,b:1", "start": "latest", "format": "text", "metadata": True,
                      "rate": 5, "options": {"security.protocol": "ssl"}}},
            {"name": "out", "kind": "sink", "input": "in",
             "write": {"kafka": "counts", "servers": "b:1", "key": "word", "format": "json"}},
        ],
    }  # fmt: skip
    topology = stream.read_flow(described).check()
    source = topology.operator("in").options.source
    more = {"start": "latest", "format": "text", "metadata": True, "rate": 5}
    assert source == stream.read_kafka("words", "a:1,b:1", **more, options={"security.protocol": "ssl"})
    assert source.follows and topology.sinks == {
        "out": stream.write_kafka("counts", "b:1", key="word"), "on_error": stream.write_kafka("bad", "b:1")
    }  # fmt: skip
    described["operators"][0]["read"]["follow"] = False
    assert not stream.read_flow(described).check().operator("in").options.source.follows


def test_the_example_can_be_checked_without_a_broker() -> None:
    example = Path(__file__).parents[2] / "examples" / "kafka_words.py"
    topology = load_flow(str(example)).check()
    assert topology.names == ["lines", "words", "counts", "out"]
    assert topology.operator("words").function("A b a") == [{"word": "a"}, {"word": "b"}, {"word": "a"}]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    flow = stream.Flow("none")
    flow.source(stream.read_kafka("t")).sink(stream.collect())
    with pytest.raises(InputError, match=r"confluent-kafka is not installed: pip install 'goffish\[kafka\]'"):
        flow.run()
