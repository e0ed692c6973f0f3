"""Kafka topics as sources and sinks of flows.

Offsets are positions in the checkpoints of the flow; no consumer group commits any. What a sink has prepared for a
checkpoint is a local file until the checkpoint is saved; then one transaction writes its records together with the
number of the checkpoint, as an offset that is committed for a group of this purpose. After a crash, the committed
offset decides whether the transaction took place.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import GoffishWarning, InputError, JobError
from goffish.extras import needed_for
from goffish.streaming.batches import Batch
from goffish.streaming.sinks import Sink, Writer, _FolderWriter, plain
from goffish.streaming.sources import BadLine, Position, Read, Reader, Source, checked_rate, parse_json
from goffish.streaming.topology import Key

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

Start = Literal["earliest", "latest"]
Format = Literal["json", "text", "bytes"]
Options = Mapping[str, Any]
#: Address of brokers by default.
SERVERS = "localhost:9092"
_STARTS, _FORMATS = ("earliest", "latest"), ("json", "text", "bytes")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Time that brokers have to answer when a flow begins, and while it runs, where it stops everything else.
_BEGINS_S, _LISTS_S = 8.0, 0.3
#: Time that brokers have for the records of a transaction and for each other step, time after which a flow fails as
#: they do not answer, and time between two attempts.
_FLUSH_S, _STEP_S, _PATIENCE_S, _RETRY_S = 35.0, 10.0, 300.0, 0.5
_MESSAGE_BYTES = 1_000_000
_SPOOL = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
#: Errors that no second attempt can change.
_FINAL = {
    "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION", "POLICY_VIOLATION",
    "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "INVALID_TRANSACTION_TIMEOUT", "INVALID_REQUIRED_ACKS",
}  # fmt: skip


@dataclass(frozen=True)
class _Topic:
    """A topic and its brokers.

    Attributes
    ----------
    name, servers : str
    options : mapping
        Properties of librdkafka; not shown, as they can hold a password.
    """

    name: str
    servers: str
    options: Options = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"topic {self.name} at {self.servers}"

    def consumer(self, troubles: _Troubles, **more: Any) -> Consumer:
        """Return a client that reads.

        Raises
        ------
        InputError
            The package is missing, or an option is not known.
        """
        with needed_for("Kafka"):
            from confluent_kafka import Consumer
        settings = {"group.id": "goffish", "auto.offset.reset": "error", **self.options, **more}
        own = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True}
        return self._made(Consumer, settings | own, troubles)

    def producer(self, troubles: _Troubles, identity: str) -> Producer:
        """Return a client that writes in transactions.

        Raises
        ------
        InputError
            The package is missing, or an option is not known.
        """
        with needed_for("Kafka"):
            from confluent_kafka import Producer
        # The partitioner of Java's producers, so that equal keys of all programs meet in one partition.
        settings = {"partitioner": "murmur2_random", "linger.ms": 5, **self.options, "transactional.id": identity}
        return self._made(Producer, settings, troubles)

    def _made(self, client: Any, settings: dict[str, Any], troubles: _Troubles) -> Any:
        from confluent_kafka import KafkaException

        # What the library prints is returned or passed to the callback as well. By default it can wait for 10 s
        # before it connects again to a broker that is back.
        base = {"log_level": 0, "reconnect.backoff.max.ms": 1000}
        try:
            return client(base | settings | {"bootstrap.servers": self.servers, "error_cb": troubles.note})
        except (KafkaException, TypeError, ValueError) as error:
            raise InputError(f"{self}: options: {_reason(error)}") from None

    def partitions(self, consumer: Consumer, seconds: float) -> list[int]:
        """Return the numbers of the partitions.

        Raises
        ------
        InputError
            The topic does not exist, or cannot be read.
        TimeoutError
            No broker answers.
        """
        from confluent_kafka import KafkaException

        end, problem = time.monotonic() + seconds, ""
        while (left := end - time.monotonic()) > 0:
            try:
                found = consumer.list_topics(self.name, left).topics[self.name]
            except KafkaException as error:
                problem = _reason(error)
                continue
            if found.error is None and found.partitions:
                return sorted(found.partitions)
            problem = "has no partitions yet" if found.error is None else found.error.str().removeprefix("Broker: ")
            if found.error is not None and found.error.name() == "UNKNOWN_TOPIC_OR_PART":
                raise InputError(f"{self}: does not exist; create it, or correct the name")
            if found.error is not None and found.error.name() in _FINAL:
                raise InputError(f"{self}: {problem}")
            time.sleep(min(0.1, left))  # a topic that was just created has no leaders yet
        raise TimeoutError(problem)

    def ask(self, question: Callable[[Consumer], Any]) -> Any:
        """Return what a function returns for a client.

        Raises
        ------
        InputError
            The topic does not exist or cannot be read, or no broker answers.
        """
        troubles = _Troubles(self, quiet=True)
        with closing(self.consumer(troubles)) as consumer:
            try:
                return question(consumer)
            except TimeoutError as error:
                consumer.poll(0)  # for the callbacks
                reason = troubles.last or error
                raise InputError(f"{self}: no broker answers within {_BEGINS_S:g} s ({reason})") from None


class _Troubles:
    """What a client reports beside its answers.

    Parameters
    ----------
    topic : _Topic
    quiet : bool
        Whether not to warn.
    """

    def __init__(self, topic: _Topic, *, quiet: bool = False) -> None:
        self._topic = topic
        self._warned = quiet
        self.last = ""

    def note(self, error: KafkaError) -> None:
        """Take an error, and warn once while no broker is reachable."""
        if error.name() != "_ALL_BROKERS_DOWN":
            self.last = error.str()
        else:
            self.warn("no broker is reachable; waiting")

    def warn(self, text: str) -> None:
        """Warn once until `over` is called."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"{self._topic}: {text}", GoffishWarning, stacklevel=3)

    def over(self) -> None:
        """Note that a broker has answered."""
        self._warned = False


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return " ".join(str(getattr(first, "str", lambda: first)()).split())


@dataclass(frozen=True)
class KafkaSource(Source):
    """Records of a topic: a partition of the source for each partition of the topic."""

    topic: _Topic
    start: Start = "earliest"
    format: Format = "json"
    metadata: bool = False
    follow: bool = True
    rate: float | None = None
    #: Of each partition, the first offset and the one after the last when the flow began.
    begun: dict[int, tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def follows(self) -> bool:
        """Whether partitions can be added while the flow runs."""
        return self.follow

    def check(self) -> None:
        """Raise an error if the source cannot be read; note the offsets, which all workers begin and end with."""
        self.begun.clear()
        self.partitions()

    def partitions(self) -> list[str]:
        """Return the names of the partitions that existed when the flow began."""
        if not self.begun:
            self.begun.update(self.topic.ask(self._all_offsets))
        return [self.named(number) for number in self.begun]

    def _all_offsets(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        return {number: self.offsets(consumer, number) for number in self.topic.partitions(consumer, _BEGINS_S)}

    def named(self, number: int) -> str:
        """Return the name of a partition."""
        return f"{self.topic.name}-{number}"

    def offsets(self, consumer: Consumer, number: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after the last.

        Raises
        ------
        InputError
            The partition cannot be read.
        TimeoutError
            No broker answers.
        """
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = consumer.get_watermark_offsets(TopicPartition(self.topic.name, number), _BEGINS_S, cached=False)
        except KafkaException as error:
            if error.args[0].name() in _FINAL:
                raise InputError(f"{self.topic}, partition {number}: {_reason(error)}") from None
            raise TimeoutError(_reason(error)) from None
        if found is None:
            raise TimeoutError(f"no answer for partition {number}")
        return found[0], found[1]

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position, over a separate connection."""
        return self.begin(resumed=False).open(partition, position)

    def begin(self, *, resumed: bool) -> Source:
        """Return the source with one client for all partitions."""
        return _Session(self, resumed)


class _Session(Source):
    """Reads the partitions of a source that one run reads in one process, with one client for all."""

    def __init__(self, source: KafkaSource, resumed: bool) -> None:
        self.source, self._resumed = source, resumed
        self._troubles = _Troubles(source.topic)
        self._client: Consumer | None = None
        self._waiting: dict[int, deque[Message]] = {}
        self._known = dict.fromkeys(source.begun)

    @property
    def follows(self) -> bool:
        """Whether partitions can be added while the flow runs."""
        return self.source.follow

    @property
    def _consumer(self) -> Consumer:
        if self._client is None:
            self._client = self.source.topic.consumer(self._troubles)
        return self._client

    def partitions(self) -> list[str]:
        """Return the names of the partitions that exist now, as far as a broker answers."""
        if self.follows or not self._known:
            with suppress(TimeoutError, InputError):  # reading will fail if it lasts
                self._known |= dict.fromkeys(self.source.topic.partitions(self._consumer, _LISTS_S))
        return [self.source.named(number) for number in self._known]

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader of a partition from a position."""
        from confluent_kafka import TopicPartition

        source, number = self.source, int(partition.rpartition("-")[2])
        known = source.begun.get(number)
        if position is None or len(position) == 1:
            try:
                first, end = known or source.offsets(self._consumer, number)
            except TimeoutError as error:
                raise InputError(f"{source.topic}, partition {number}: no broker answers ({error})") from None
            # A partition that is new has no records from before the start.
            latest = source.start == "latest" and known is not None and not self._resumed
            position = [*(position or [end if latest else first]), end]
        position = position[:1] if source.follow else position
        self._waiting[number] = deque()
        self._consumer.incremental_assign([TopicPartition(source.topic.name, number, position[0])])
        return _KafkaReader(self, number, position)

    def take(self, number: int, limit: int) -> list[Message]:
        """Return the next messages of a partition; at its end, one that has the offset and no value."""
        waiting = self._waiting[number]
        if not waiting and not any(self._waiting.values()):
            for message in self._consumer.consume(min(limit, 1_000_000), 0):
                self._accept(message)
        return [waiting.popleft() for _ in range(min(limit, len(waiting)))]

    def _accept(self, message: Message) -> None:
        problem, number = message.error(), message.partition()
        if problem is None or problem.name() == "_PARTITION_EOF":
            self._troubles.over()
            if number in self._waiting:  # otherwise it has ended
                self._waiting[number].append(message)
        elif problem.name() == "_AUTO_OFFSET_RESET":
            raise InputError(
                f"{self.source.topic}, partition {number}: offset {message.offset():,} does not exist any more, or not "
                "yet: records were deleted, or the topic was made again; accepted: another checkpoint folder to begin "
                "again, or the option auto.offset.reset = earliest or latest to continue there"
            )
        elif message.topic() is not None:
            raise InputError(f"{self.source.topic}, partition {number}: {problem.str()}")

    def release(self, number: int) -> None:
        """Stop reading a partition."""
        from confluent_kafka import TopicPartition

        if self._waiting.pop(number, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(self.source.topic.name, number)])
            if not self._waiting:  # this worker may take over others, with a new client
                self._consumer.close()
                self._client = None


class _KafkaReader(Reader):
    """Reads a partition; the position is the next offset and, if the source does not follow, the one to stop at."""

    def __init__(self, session: _Session, number: int, position: Position) -> None:
        self._session, self._number = session, number
        self.position = list(position)

    @property
    def _ended(self) -> bool:
        return not self._session.follows and self.position[0] >= self.position[1]

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        found = [] if self._ended else self._session.take(self._number, limit)
        if found:
            last = found[-1]
            messages = [one for one in found if one.error() is None]
            if not self._session.follows:
                messages = [one for one in messages if one.offset() < self.position[1]]
            # Markers of transactions and records that were compacted leave gaps.
            self.position = [last.offset() + (last.error() is None), *self.position[1:]]
        self.done = self._ended
        return self._decoded(messages) if found and messages else None

    def _decoded(self, messages: list[Message]) -> Read:
        source = self._session.source
        texts = [one.value() for one in messages]
        place = lambda at: f"{source.topic}, partition {self._number}, offset {messages[at].offset()}"  # noqa: E731
        if source.format == "json":
            read = parse_json([b"null" if text is None else text for text in texts], place)
        elif source.format == "text":
            read = _as_text(texts, place)
        else:
            read = Read(texts)
        if not source.metadata:
            return read
        if not read.bad:
            return Read([self._described(one, value) for one, value in zip(messages, read.values, strict=True)])
        if len(messages) == 1:
            return read
        parts = [self._decoded([one]) for one in messages]
        return Read([v for part in parts for v in part.values], [b for part in parts for b in part.bad])

    def _described(self, message: Message, value: Any) -> dict[str, Any]:
        text: Callable[[bytes], Any] = bytes if self._session.source.format == "bytes" else _lenient
        kind, milliseconds = message.timestamp()
        key, headers = message.key(), message.headers() or []
        return {
            "key": None if key is None else text(key),
            "value": value,
            "timestamp": _EPOCH + timedelta(milliseconds=milliseconds) if kind else None,
            "partition": self._number,
            "offset": message.offset(),
            "headers": {name: None if one is None else text(one) for name, one in headers},
        }

    def close(self) -> None:
        """Stop reading the partition."""
        self._session.release(self._number)


def _lenient(data: bytes) -> str:
    return data.decode(errors="replace")


def _as_text(texts: list[bytes | None], place: Callable[[int], str]) -> Read:
    values: list[str | None] = []
    bad = []
    for at, text in enumerate(texts):
        try:
            values.append(None if text is None else text.decode())
        except UnicodeDecodeError as error:
            bad.append(BadLine(repr(text), f"{place(at)}: not UTF-8 ({error.reason})"))
    return Read(values, bad)


class _Link(NamedTuple):
    """Clients for the transactions of one id: the one that writes, and the one for its committed offset."""

    identity: str
    producer: Producer
    group: Consumer


class _KafkaWriter(_FolderWriter):
    """Collects records in a file, which is written to the topic in one transaction when it is committed."""

    suffix = ".arrow"

    def __init__(self, sink: KafkaSink, name: str) -> None:
        super().__init__(Path(), name)
        self._sink = sink
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._temporary: str | None = None
        self._identity = f"{sink.topic.options.get('transactional.id', 'goffish')}-{uuid.uuid4().hex}"
        self._troubles = _Troubles(sink.topic)
        self._link: _Link | None = None
        self._refused: KafkaError | None = None
        self._waits = True
        self._due: deque[int] = deque()
        self._thread: threading.Thread | None = None
        self._failed: JobError | None = None

    def recover(self, number: int | None) -> None:
        """Write what was prepared for the last checkpoint, unless that was done, and discard what came after it."""
        if self.spool is None and self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="goffish-")
        self.folder = Path(self._temporary or self.spool or "") / quote(self.name, safe="")
        super().recover(number)
        # One of several workers must answer the others while no broker answers.
        self._waits = not self.part

    def add(self, batch: Batch) -> None:
        """Write records to the hidden file."""
        rows = batch.rows()
        keys, values = self._keys(rows), [self._encoded(value) for value in rows]
        encoded = pa.record_batch([pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())], _SPOOL)
        self._check_sizes(encoded)
        if self._stream is None:
            schema = _SPOOL.with_metadata({"transactional.id": f"{self._identity}-{self.part}"})
            self._stream = pa.ipc.new_stream(self._partial, schema)
        self._stream.write_batch(encoded)

    def _keys(self, rows: list[Any]) -> list[bytes | None]:
        key = self._sink.key
        if key is None:
            return [None] * len(rows)
        found = []
        for row in rows:
            try:
                value = row[key] if isinstance(key, str) else key(row)
            except Exception as error:
                shown = f"{type(error).__name__}: {error} (record {repr(row)[:200]})"
                raise JobError(f"operator {self.name}: key: {shown}") from error
            if isinstance(value, bytes) or value is None:
                found.append(value)
            else:
                found.append((value if isinstance(value, str) else json.dumps(value, default=plain)).encode())
        return found

    def _encoded(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self._sink.format == "json":
            return json.dumps(value, default=plain).encode()
        wanted: type[str | bytes] = str if self._sink.format == "text" else bytes
        if not isinstance(value, wanted):
            raise JobError(
                f"operator {self.name}: format {self._sink.format}: record of type {type(value).__name__} "
                f"({value!r:.100}); accepted are {wanted.__name__} and None"
            )
        return value.encode() if isinstance(value, str) else bytes(value)

    def _check_sizes(self, encoded: pa.RecordBatch) -> None:
        """Refuse a record that no broker would take, before a checkpoint contains it."""
        limit = int(self._sink.topic.options.get("message.max.bytes", _MESSAGE_BYTES))
        sizes = [pc.fill_null(pc.binary_length(column), 0).to_numpy() for column in encoded.columns]
        largest = int(np.max(sizes[0] + sizes[1], initial=0))
        if largest > limit:
            raise JobError(
                f"operator {self.name}: {self._sink.topic}: record of {largest:,} bytes, more than message.max.bytes = "
                f"{limit:,}; raise that option and max.message.bytes of the topic, or write smaller records"
            )

    def finish(self) -> None:
        """Complete the hidden file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def commit(self, number: int) -> None:
        """Write what was prepared to the topic, or begin to."""
        if self._waits:
            self._finish(number)
        elif self._prepared(number).exists():
            self._due.append(number)

    @property
    def pending(self) -> bool:
        """Whether something is still to be written; raises an error if it cannot be."""
        if self._failed is not None:
            raise self._failed
        if self._due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._finish_due, name="goffish kafka", daemon=True)
            self._thread.start()
        return bool(self._due)

    def _finish_due(self) -> None:
        try:
            while self._due:
                self._finish(self._due[0])
                self._due.popleft()
        except Exception as error:
            shown = f"operator {self.name}: {type(error).__name__}: {error}"
            self._failed = error if isinstance(error, JobError) else JobError(shown)

    def _finish(self, number: int) -> None:
        file = self._prepared(number)
        if file.exists():
            self._publish(file, number)
            try:
                file.unlink()
            except OSError as error:
                raise self._error(error) from None

    def _publish(self, file: Path, number: int) -> None:
        """Try until a transaction has written the records, in this attempt or an earlier one."""
        from confluent_kafka import KafkaException

        end, topic = time.monotonic() + _PATIENCE_S, self._sink.topic
        while True:
            self._refused = None
            try:
                self._attempt(file, number)
            except KafkaException as error:
                self._unlink()
                problem = self._refused or error.args[0]
                if problem.name() in _FINAL:
                    raise JobError(f"operator {self.name}: {topic}: {problem.str()}") from None
                if time.monotonic() > end:
                    reason = f"no transaction within {_PATIENCE_S:g} s ({problem.str()})"
                    raise JobError(f"operator {self.name}: {topic}: {reason}; run the flow again to resume") from None
                self._troubles.warn(f"{problem.str()}; trying again")
                time.sleep(_RETRY_S)
            else:
                self._troubles.over()
                return

    def _attempt(self, file: Path, number: int) -> None:
        """Write the records of a file and the number of its checkpoint in one transaction, unless that was done."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        marker = TopicPartition(self._sink.topic.name, 0, number)
        with pa.memory_map(str(file)) as data, pa.ipc.open_stream(data) as stream:
            identity = stream.schema.metadata[b"transactional.id"].decode()
            if self._link is None or self._link.identity != identity:
                self._unlink()
                self._link = self._connected(identity)
                [done] = self._link.group.committed([TopicPartition(marker.topic, 0)], _STEP_S)
                if done.offset >= number:
                    return
            producer = self._link.producer
            _bounded(producer.begin_transaction)
            group = self._link.group.consumer_group_metadata()
            _bounded(producer.send_offsets_to_transaction, [marker], group, _STEP_S)
            for batch in stream:
                for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    self._produce(producer, key, value)
            if producer.flush(_FLUSH_S):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {_FLUSH_S:g} s"))
            _bounded(producer.commit_transaction, _STEP_S)

    def _connected(self, identity: str) -> _Link:
        """Return clients for an id: from now on, no earlier one with the same id can write, or has a transaction."""
        producer = self._sink.topic.producer(self._troubles, identity)
        producer.init_transactions(_STEP_S)
        group = self._sink.topic.consumer(self._troubles, **{"group.id": identity, "isolation.level": "read_committed"})
        return _Link(identity, producer, group)

    def _produce(self, producer: Producer, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._sink.topic.name, value, key, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and (self._refused is None or error.name() in _FINAL):
            self._refused = error

    def _unlink(self) -> None:
        if self._link is not None:
            self._link.producer.purge()
            self._link.group.close()
            self._link = None

    def close(self) -> None:
        """Discard what was not prepared."""
        self.finish()
        self._unlink()
        super().close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _bounded(call: Callable[..., Any], *arguments: Any) -> None:
    """Call a function of the client in a thread: after a fatal error, some never return, whatever their time limit.

    Raises
    ------
    KafkaException
        It failed, or did not return.
    """
    from confluent_kafka import KafkaError, KafkaException

    answers: list[KafkaException | None] = []

    def work() -> None:
        try:
            call(*arguments)
            answers.append(None)
        except KafkaException as error:
            answers.append(error)

    thread = threading.Thread(target=work, name="goffish transaction", daemon=True)
    thread.start()
    thread.join(_STEP_S + 1)
    answer = answers[0] if answers else KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    if answer is not None:
        raise answer


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A topic, written in one transaction for each checkpoint."""

    topic: _Topic
    key: Key | None = None
    format: Format = "json"

    def check(self) -> None:
        """Raise an error if the topic cannot be written."""
        self.topic.producer(_Troubles(self.topic, quiet=True), "goffish-check")
        self.topic.ask(lambda consumer: self.topic.partitions(consumer, _BEGINS_S))

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _KafkaWriter(self, name)


def _topic(name: str, servers: str, options: Options | None, format: str) -> _Topic:
    if not name or not servers:
        raise InputError("Kafka: topic and servers must not be empty; servers are host:port, separated by commas")
    topic = _Topic(name, servers, dict(options or {}))
    if format not in _FORMATS:
        raise InputError(f"{topic}: format = {format!r}; accepted are {', '.join(_FORMATS)}")
    for reserved in ("bootstrap.servers", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"):
        if reserved in topic.options:
            raise InputError(f"{topic}: options: {reserved} is set by the flow; leave it out")
    return topic


def read_kafka(
    topic: str, servers: str = SERVERS, *, start: Start = "earliest", format: Format = "json",
    metadata: bool = False, follow: bool = True, rate: float | None = None, options: Options | None = None,
) -> Source:  # fmt: skip
    """Read a Kafka topic; requires the extra ``kafka``.

    Parameters
    ----------
    topic : str
    servers : str
        Addresses of brokers, separated by commas.
    start : {"earliest", "latest"}
        Where to begin without a checkpoint: at the first record, or behind the last. Partitions that are added later
        are read from their beginning.
    format : {"json", "text", "bytes"}
        What the records are made of. A record without a value is None.
    metadata : bool
        Whether records are mappings with ``key``, ``value``, ``timestamp``, ``partition``, ``offset`` and ``headers``.
        Keys and headers are text, or bytes if the format is ``"bytes"``.
    follow : bool
        Wait for new records; otherwise end where the topic ended when the flow began.
    rate : float, optional
        Records per second [default: as fast as possible].
    options : mapping, optional
        Properties of librdkafka, as for encryption and authentication.

    Returns
    -------
    Source

    Raises
    ------
    InputError
        An argument is invalid.

    Notes
    -----
    Positions are offsets in the checkpoints of the flow: no offsets are committed to a consumer group. Records of
    transactions that were aborted are not read. If offsets to resume from do not exist any more, the flow fails and
    names them; the option ``auto.offset.reset`` continues elsewhere.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.read_kafka("orders", "localhost:9092", start="latest").follows
    True
    """
    at = _topic(topic, servers, options, format)
    if start not in _STARTS:
        raise InputError(f"{at}: start = {start!r}; accepted are {' and '.join(_STARTS)}")
    return KafkaSource(at, start, format, metadata, follow, checked_rate(rate, str(at)))


def write_kafka(
    topic: str, servers: str = SERVERS, *, key: Key | None = None, format: Format = "json",
    options: Options | None = None,
) -> Sink:  # fmt: skip
    """Write records to a Kafka topic, in a transaction for each checkpoint; requires the extra ``kafka``.

    Parameters
    ----------
    topic : str
        Must exist.
    servers : str
        Addresses of brokers, separated by commas.
    key : str or callable, optional
        Column, or function of the record, that gives the key of the message: text and bytes as they are, other values
        as JSON. Records of a key keep their order [default: no keys].
    format : {"json", "text", "bytes"}
        How values are encoded. None is written as a message without a value, which deletes a key of a compacted topic.
    options : mapping, optional
        Properties of librdkafka, as for encryption and authentication. ``transactional.id`` is the beginning of all
        transactional ids [default: ``goffish``].

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        An argument is invalid.

    Notes
    -----
    Delivery is exactly-once, for consumers with ``isolation.level=read_committed``, when the flow has a checkpoint
    folder: records are kept in the folder until their checkpoint was saved; then a transaction writes them together
    with its number, as the offset of a consumer group with the name of the transactional id. A restart reads that
    offset to find out whether the transaction took place.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.write_kafka("totals", "localhost:9092", key="customer").format
    'json'
    """
    at = _topic(topic, servers, options, format)
    if key is not None and not isinstance(key, str) and not callable(key):
        raise InputError(f"{at}: key: {type(key).__name__}; give a column or a function of one record")
    return KafkaSink(at, key, format)
