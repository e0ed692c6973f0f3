"""Kafka topics as sinks of flows.

What a sink has prepared for a checkpoint is a local file until the checkpoint is saved; then one transaction writes its
records together with the number of the checkpoint, as an offset that is committed for a group of this purpose. After a
crash, the committed offset decides whether the transaction took place.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import InputError, JobError
from goffish.streaming.batches import Batch
from goffish.streaming.kafka import client
from goffish.streaming.kafka.client import FINAL, SERVERS, Format, Options, Topic, Troubles, checked_topic
from goffish.streaming.sinks import FolderWriter, Sink, Writer, plain
from goffish.streaming.topology import Key

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

#: Time that brokers have for the records of a transaction and for each other step, time after which a flow fails as
#: they do not answer, and time between two attempts.
_FLUSH_S, _STEP_S, _PATIENCE_S, _RETRY_S = 35.0, 10.0, 300.0, 0.5
_MESSAGE_BYTES = 1_000_000
_SPOOL = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])


class _Link(NamedTuple):
    """Clients for the transactions of one id: the one that writes, and the one for its committed offset."""

    identity: str
    producer: Producer
    group: Consumer


class _KafkaWriter(FolderWriter):
    """Collects records in a file, which is written to the topic in one transaction when it is committed."""

    suffix = ".arrow"

    def __init__(self, sink: KafkaSink, name: str) -> None:
        super().__init__(Path(), name)
        self._sink = sink
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._temporary: str | None = None
        self._identity = f"{sink.topic.options.get('transactional.id', 'goffish')}-{uuid.uuid4().hex}"
        self._troubles = Troubles(sink.topic)
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
                if problem.name() in FINAL:
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
        if error is not None and (self._refused is None or error.name() in FINAL):
            self._refused = error

    def _unlink(self) -> None:
        if self._link is not None:
            self._link.producer.purge()
            self._link.group.close()
            self._link = None

    def close(self) -> None:
        """Discard what was not prepared."""
        with suppress(OSError, pa.ArrowException):  # as on a full disk
            self.finish()
        if self._thread is None or not self._thread.is_alive():  # which uses the clients
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

    topic: Topic
    key: Key | None = None
    format: Format = "json"
    spools: ClassVar[bool] = True

    def check(self) -> None:
        """Raise an error if the topic cannot be written."""
        self.topic.producer(Troubles(self.topic, quiet=True), "goffish-check")
        self.topic.ask(lambda consumer: self.topic.partitions(consumer, client.BEGINS_S))

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _KafkaWriter(self, name)


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
    at = checked_topic(topic, servers, options, format)
    if key is not None and not isinstance(key, str) and not callable(key):
        raise InputError(f"{at}: key: {type(key).__name__}; give a column or a function of one record")
    return KafkaSink(at, key, format)
