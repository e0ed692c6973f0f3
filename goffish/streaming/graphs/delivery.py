"""Delivery of events to sinks: each delivery reads its topic from the first event that it has not confirmed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from goffish.errors import CheckpointError, InputError, JobError
from goffish.streaming.batches import Batch
from goffish.streaming.checkpoints import write_file
from goffish.streaming.graphs.topics import Topic
from goffish.streaming.sinks import Sink, Writer, plain

#: Folder of deliveries within that of a live graph, and file with what a delivery has confirmed.
_FOLDER, _CONFIRMED = "deliveries", "confirmed.json"
#: Events that are written at a time.
_MOST = 10_000
#: Seconds between two looks at a writer that publishes on a thread, and for a writer to give up.
_LOOK_S, _ENDS_S = 0.02, 5.0


class Confirmed(NamedTuple):
    """What a delivery has confirmed.

    Attributes
    ----------
    topic : str
    number : int
        Of the last batch; the writer was given it as the number of a checkpoint.
    next : int
        Number of the first event that is not confirmed.
    """

    topic: str
    number: int
    next: int


def event_rows(topic: str, table: pa.Table) -> list[dict[str, Any]]:
    """Return events as mappings for JSON, with the topic, and without what they lack."""
    return [
        {"topic": topic} | {name: value for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]


def event_lines(topic: str, table: pa.Table) -> str:
    """Return events as lines of JSON."""
    return "".join(f"{json.dumps(row, default=plain)}\n" for row in event_rows(topic, table))


def folder_of(state: Path, name: str) -> Path:
    """Return the folder of a delivery within that of a live graph."""
    return state / _FOLDER / quote(name, safe="")


class Delivery:
    """Delivers the events of a topic to a sink, on a thread.

    Parameters
    ----------
    name : str
    topic : Topic
    writer : Writer
    changed : Condition
        Held while events are published or read, and notified afterwards.
    folder : Path, optional
        Where the confirmed events are noted.
    every : float
        Seconds for which events are collected.
    """

    def __init__(
        self, name: str, topic: Topic, writer: Writer, changed: threading.Condition, folder: Path | None, every: float
    ) -> None:  # fmt: skip
        self.name, self.topic, self.error = name, topic, ""
        self._writer, self._changed, self._folder, self._every = writer, changed, folder, every
        self._flushing = self._stopped = False
        found = None if folder is None else read_confirmed(folder)
        if found is not None and found.topic != topic.name:
            raise InputError(f"delivery {name}: is of the topic {found.topic}; give another name")
        self._number, self.next = (0, topic.first) if found is None else (found.number, found.next)
        if self.next < topic.first:
            raise InputError(
                f"delivery {name}: events {self.next:,} to {topic.first - 1:,} of {topic.name} are not kept any more; "
                "give another name to begin with those that are"
            )
        if self.next > topic.count:
            raise InputError(
                f"delivery {name}: has confirmed {self.next:,} events, but {topic.name} has {topic.count:,}; restore "
                "the folder of the live graph, or give another name"
            )
        if folder is not None:
            writer.spool = folder / "spool"
        writer.recover(None if found is None else self._number)
        self._confirm(self._number, self.next)
        self._thread = threading.Thread(target=self._run, name=f"goffish delivery {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of events that are not confirmed."""
        return self.topic.count - self.next

    def flush(self, *, on: bool) -> None:
        """Deliver events at once, or collect them again."""
        self._flushing = on

    def stop(self) -> None:
        """End without what was not delivered, which the next delivery of this name begins with."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._writer.interrupt()
        self._thread.join(_ENDS_S)
        if not self._thread.is_alive():
            self._writer.close()

    def _run(self) -> None:
        try:
            while (events := self._take()) is not None:
                self._send(events)
        except Exception as error:
            with self._changed:
                if not self._stopped:  # then it was interrupted, and the events are delivered by the next run
                    reason = " ".join(str(error).split()) or type(error).__name__
                    reason = reason.removeprefix(f"operator {self.name}: ")
                    self.error = f"delivery {self.name}: {reason}"
                self._changed.notify_all()

    def _take(self) -> pa.Table | None:
        """Wait for events; return the next ones, or ``None`` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self.waiting)
            self._changed.wait_for(lambda: self._stopped or self._flushing or self.waiting >= _MOST, self._every)
            if self._stopped:
                return None
            return self.topic.events(self.next, _MOST)

    def _confirm(self, number: int, following: int) -> None:
        if self._folder is None:
            return
        try:
            found = Confirmed(self.topic.name, number, following)
            write_file(self._folder / _CONFIRMED, json.dumps(found._asdict()).encode())
        except OSError as error:
            raise JobError(f"{self._folder}: cannot be written ({error.strerror or error})") from None

    def _send(self, events: pa.Table) -> None:
        writer, topic = self._writer, self.topic.name
        if writer.columns:
            batches = [Batch(one) for one in events.combine_chunks().to_batches()]
        else:
            batches = [Batch(event_rows(topic, events))]
        for batch in batches:
            writer.write(batch)
        number, following = self._number + 1, self.next + len(events)
        writer.prepare(number)
        self._confirm(number, following)
        writer.commit(number)
        while writer.pending:
            time.sleep(_LOOK_S)
        with self._changed:
            self._number, self.next = number, following
            self._changed.notify_all()


def read_confirmed(folder: Path) -> Confirmed | None:
    """Return what the delivery of a folder has confirmed; ``None`` if there was none.

    Raises
    ------
    CheckpointError
        It cannot be read.
    """
    path = folder / _CONFIRMED
    try:
        found = Confirmed(**json.loads(path.read_text(encoding="utf-8")))
        if [type(one) for one in found] != [str, int, int] or min(found[1:]) < 0:
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError):
        raise CheckpointError(f"{path}: is damaged; restore it from a copy, or remove the folder") from None
    return found


class Deliveries:
    """The deliveries of a live graph.

    Parameters
    ----------
    most : int
        Events of a topic that may wait for a delivery; then, records wait as well.
    state : Path, optional
        Folder of the live graph.
    """

    def __init__(self, most: int, state: Path | None) -> None:
        #: Held while events are published or read.
        self.changed = threading.Condition()
        self._most = most
        self._state = state
        self._all: dict[str, Delivery] = {}
        self._begun = False

    def needed(self) -> dict[str, int]:
        """Return the first event of each topic that an earlier delivery has not confirmed.

        Raises
        ------
        CheckpointError
            What a delivery has confirmed cannot be read.
        """
        found: dict[str, int] = {}
        for folder in () if self._state is None else sorted((self._state / _FOLDER).glob("*")):
            one = read_confirmed(folder)
            if one is not None:
                found[one.topic] = min(one.next, found.get(one.topic, one.next))
        return found

    def add(self, name: str, topic: Topic, sink: Sink, every: float) -> None:
        """Begin a delivery, or go on with the one that had its name.

        Raises
        ------
        InputError
            The name is in use, the target is not accepted, or events are not kept any more.
        """
        if name in self._all:
            raise InputError(f"delivery {name}: is already in use; give another name")
        folder = None if self._state is None else folder_of(self._state, name)
        sink.check()
        if folder is None or read_confirmed(folder) is None:
            sink.check_unused()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        writer = sink.writer(name)
        found = self._all[name] = Delivery(name, topic, writer, self.changed, folder, every * writer.publishes)
        with self.changed:
            topic.needed = found.next if topic.needed is None else min(found.next, topic.needed)
        found.start()

    def begin(self, topics: Callable[[], Iterable[Topic]]) -> None:
        """Keep events no longer for deliveries of earlier runs that were not begun again before the first records."""
        if self._begun:
            return
        self._begun = True
        delivered = {one.topic.name for one in self._all.values()}
        for topic in topics():
            if topic.name not in delivered:
                topic.needed = None

    @property
    def failure(self) -> str:
        """Error of a delivery that has failed; empty if there is none."""
        return next((one.error for one in self._all.values() if one.error), "")

    def follow(self) -> None:
        """Pass on what was published, and wait for deliveries that are behind.

        Raises
        ------
        JobError
            A delivery has failed.
        """
        if self._all:
            self._until(lambda one: one.waiting <= self._most)

    def flush(self) -> None:
        """Wait until all events are delivered.

        Raises
        ------
        JobError
            A delivery has failed.
        """
        with self.changed:
            for one in self._all.values():
                one.flush(on=True)
        try:
            self._until(lambda one: not one.waiting)
        finally:
            for one in self._all.values():
                one.flush(on=False)

    def _until(self, holds: Callable[[Delivery], bool]) -> None:
        with self.changed:
            self.changed.notify_all()
            found = list(self._all.values())
            self.changed.wait_for(lambda: any(one.error for one in found) or all(map(holds, found)))
            for one in found:
                if one.error:
                    raise JobError(one.error)
                others = (other.next for other in found if other.topic is one.topic)
                one.topic.needed = min(others)

    def stop(self) -> None:
        """End all deliveries."""
        for one in self._all.values():
            one.stop()
        self._all = {}
