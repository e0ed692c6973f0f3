"""Kafka topics as sources of flows: offsets are positions in the checkpoints of the flow.

No consumer group commits any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from goffish.errors import InputError
from goffish.streaming.kafka import client
from goffish.streaming.kafka.client import FINAL, SERVERS, Format, Options, Topic, Troubles, checked_topic, reason_of
from goffish.streaming.sources import BadLine, Position, Read, Reader, Source, checked_rate, parse_json

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

Start = Literal["earliest", "latest"]
_STARTS = ("earliest", "latest")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Time that brokers have to answer while a flow runs, where it stops everything else.
_LISTS_S = 0.3


@dataclass(frozen=True)
class KafkaSource(Source):
    """Records of a topic: a partition of the source for each partition of the topic."""

    topic: Topic
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
        return {number: self.offsets(consumer, number) for number in self.topic.partitions(consumer, client.BEGINS_S)}

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
            found = consumer.get_watermark_offsets(
                TopicPartition(self.topic.name, number), client.BEGINS_S, cached=False
            )
        except KafkaException as error:
            if error.args[0].name() in FINAL:
                raise InputError(f"{self.topic}, partition {number}: {reason_of(error)}") from None
            raise TimeoutError(reason_of(error)) from None
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
        self._troubles = Troubles(source.topic)
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
    at = checked_topic(topic, servers, options, format)
    if start not in _STARTS:
        raise InputError(f"{at}: start = {start!r}; accepted are {' and '.join(_STARTS)}")
    return KafkaSource(at, start, format, metadata, follow, checked_rate(rate, str(at)))
