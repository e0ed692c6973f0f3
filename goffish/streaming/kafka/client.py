"""Topics of Kafka, and the clients that sources and sinks share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from goffish.errors import GoffishWarning, InputError
from goffish.extras import needed_for

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

Format = Literal["json", "text", "bytes"]
Options = Mapping[str, Any]
#: Address of brokers by default.
SERVERS = "localhost:9092"
_FORMATS = ("json", "text", "bytes")
#: Time that brokers have to answer when a flow begins.
BEGINS_S = 8.0
#: Errors that no second attempt can change.
FINAL = {
    "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION", "POLICY_VIOLATION",
    "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "INVALID_TRANSACTION_TIMEOUT", "INVALID_REQUIRED_ACKS",
}  # fmt: skip


@dataclass(frozen=True)
class Topic:
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

    def consumer(self, troubles: Troubles, **more: Any) -> Consumer:
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

    def producer(self, troubles: Troubles, identity: str) -> Producer:
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

    def _made(self, client: Any, settings: dict[str, Any], troubles: Troubles) -> Any:
        from confluent_kafka import KafkaException

        # What the library prints is returned or passed to the callback as well. By default it can wait for 10 s
        # before it connects again to a broker that is back.
        base = {"log_level": 0, "reconnect.backoff.max.ms": 1000}
        try:
            return client(base | settings | {"bootstrap.servers": self.servers, "error_cb": troubles.note})
        except (KafkaException, TypeError, ValueError) as error:
            raise InputError(f"{self}: options: {reason_of(error)}") from None

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
                problem = reason_of(error)
                continue
            if found.error is None and found.partitions:
                return sorted(found.partitions)
            problem = "has no partitions yet" if found.error is None else found.error.str().removeprefix("Broker: ")
            if found.error is not None and found.error.name() == "UNKNOWN_TOPIC_OR_PART":
                raise InputError(f"{self}: does not exist; create it, or correct the name")
            if found.error is not None and found.error.name() in FINAL:
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
        troubles = Troubles(self, quiet=True)
        with closing(self.consumer(troubles)) as consumer:
            try:
                return question(consumer)
            except TimeoutError as error:
                consumer.poll(0)  # for the callbacks
                reason = troubles.last or error
                raise InputError(f"{self}: no broker answers within {BEGINS_S:g} s ({reason})") from None


class Troubles:
    """What a client reports beside its answers.

    Parameters
    ----------
    topic : Topic
    quiet : bool
        Whether not to warn.
    """

    def __init__(self, topic: Topic, *, quiet: bool = False) -> None:
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


def reason_of(error: Exception) -> str:
    """Return the reason of an error of the client, in one line."""
    first = error.args[0] if error.args else error
    return " ".join(str(getattr(first, "str", lambda: first)()).split())


def checked_topic(name: str, servers: str, options: Options | None, format: str) -> Topic:
    """Return a topic.

    Raises
    ------
    InputError
        An argument is invalid.
    """
    if not name or not servers:
        raise InputError("Kafka: topic and servers must not be empty; servers are host:port, separated by commas")
    topic = Topic(name, servers, dict(options or {}))
    if format not in _FORMATS:
        raise InputError(f"{topic}: format = {format!r}; accepted are {', '.join(_FORMATS)}")
    for reserved in ("bootstrap.servers", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"):
        if reserved in topic.options:
            raise InputError(f"{topic}: options: {reserved} is set by the flow; leave it out")
    return topic
