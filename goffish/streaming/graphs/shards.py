"""Continuous queries whose state is divided among the executors of Spark.

Each shard follows the log of the live graph on the driver: all records and all vertices, but only edges with an end
that it owns. Records of other edges only let time pass, so that all shards see the same ticks. A shard reports events
about vertices that it owns, and of edges whose source it owns, and the driver puts them in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import CheckpointError, GoffishError, JobError
from goffish.gopher.spark.session import named
from goffish.gopher.spark.tasks import forget_archives
from goffish.streaming.checkpoints import written
from goffish.streaming.graphs import trees
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.engine import FEED, Arrival, Engine, Options, Replica
from goffish.streaming.graphs.patterns import Numbers
from goffish.streaming.graphs.queries import Query
from goffish.streaming.graphs.records import Encoder, Records
from goffish.streaming.graphs.topics import Events, Stamps
from goffish.streaming.graphs.updates import ADD_EDGE, HEARTBEAT
from goffish.streaming.hashing import positions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Batches between two times when the state of all shards is saved.
PERIOD = 32
_SCHEMA = pa.schema([("payload", pa.large_binary()), ("error", pa.string())])
#: More events than a batch can have: shards keep all of them until they are reported.
_ALL = 1 << 40


@dataclass(frozen=True)
class Shards:
    """Shards of a stream.

    Attributes
    ----------
    path : str
        Folder that the driver and all executors mount alike.
    id : str
        Different for each stream.
    options : Options
        Of the live graph.
    queries : tuple of str
    count : int
    period : int
        Batches between two times when the state of all shards is saved.
    """

    path: str
    id: str
    options: Options
    queries: tuple[str, ...]
    count: int
    period: int

    def log(self, batch: int) -> Path:
        """Return the file with the records of a batch."""
        return Path(self.path) / f"log-{batch}.arrow"

    def state(self, shard: int, batch: int) -> Path:
        """Return the file with the state of a shard after a batch."""
        return Path(self.path) / f"shard-{shard}-{batch}.arrow"

    def is_saved(self, batch: int) -> bool:
        """Whether states are saved after a batch."""
        return batch % self.period == self.period - 1

    def saved_before(self, batch: int) -> int:
        """Return the last batch before one after which states were saved, or -1."""
        return batch // self.period * self.period - 1


@dataclass(frozen=True)
class _Step:
    """Follows a batch on an executor: rows of shard numbers to what the shards report."""

    shards: Shards
    batch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                payload, failure = None, None
                try:
                    payload = _followed(self.shards, number, self.batch)
                except (GoffishError, OSError) as error:
                    failure = f"shard {number}: {error}"
                yield pa.record_batch([[payload], [failure]], schema=_SCHEMA)
        forget_archives()


class _Shard:
    """The state of one shard after a batch."""

    def __init__(self, shards: Shards, number: int) -> None:
        self._shards, self._number = shards, number
        options = shards.options._replace(events=_ALL)
        self.batch, self.reported = -1, b""
        #: By the number of a vertex in the log, the shard that owns it.
        self._owners = np.zeros(0, np.uint16)
        self._replica = Replica(Engine(options))
        for text in shards.queries:
            self._replica.engine.submit(parse(text), {}, None, None)

    @classmethod
    def loaded(cls, shards: Shards, number: int, before: int) -> _Shard:
        """Return the shard as it was last saved before a batch."""
        made = cls(shards, number)
        last = shards.saved_before(before)
        if last < 0:
            return made
        file = shards.state(number, last)
        made._owners, numbers, engine = _read(file)
        made._replica = Replica(Engine(made._replica.engine.options), list(numbers))
        made._replica.engine.install(engine, str(file))
        made.batch = last
        return made

    def save(self) -> None:
        """Write the state to its file."""
        state = self._owners, tuple(self._replica.numbers), self._replica.engine.saved()
        with written(self._shards.state(self._number, self.batch)) as file:
            trees.write(state, file)

    def follow(self, batch: int) -> None:
        """Follow a batch, and report what has happened."""
        engine = self._replica.engine
        for form, added, held in _read(self._shards.log(batch)):
            self._own(added.vertices.slots, added.vertices.labels())
            arrival = held
            if form == FEED:
                arrival = Arrival.unpacked(held, None)
                arrival = arrival._replace(records=self._mine(arrival.records))
            self._replica.follow(form, added, arrival)
        self.batch = batch
        sink = pa.BufferOutputStream()
        trees.write({name: self._report(query) for name, query in engine.topics.items()}, sink)
        self.reported = sink.getvalue().to_pybytes()

    def _own(self, slots: Numbers, labels: Any) -> None:
        if not len(slots):
            return
        size = int(slots.max()) + 1
        if size > len(self._owners):
            self._owners = np.concatenate([self._owners, np.zeros(max(size, 2 * len(self._owners)), np.uint16)])
        self._owners[slots] = _owners(labels, self._shards.count)

    def _mine(self, records: Records) -> Records:
        """Let other edges only pass the time."""
        others = np.flatnonzero(records.ops == ADD_EDGE)
        ends = records.sources[others], records.targets[others]
        others = others[np.all([self._owners[end] != self._number for end in ends], axis=0)]
        ops, elements = records.ops.copy(), records.elements.copy()
        ops[others], elements[others] = HEARTBEAT, -1
        return Records(**(records._asdict() | {"ops": ops, "elements": elements}))

    def _report(self, query: Query) -> tuple[Any, ...] | None:
        """Return the events of a query since the last report."""
        topic, encoder = query.topic, self._replica.engine.encoder
        kept, topic.first = topic.events_kept, topic.count
        topic.kept.clear()
        if not kept:
            return None
        events = Events.joined(kept)
        of_edges, shows = query.shape
        vertices = events.values >> 32 if of_edges else events.keys
        mine = _owners(encoder.vertices.keys(vertices), self._shards.count) == self._number
        events = events.take(np.flatnonzero(mine))
        values = events.values if shows else np.zeros_like(events.keys)
        table = encoder.edges if of_edges else encoder.vertices
        return table.taken(events.keys), events._replace(values=values)


def _owners(labels: Any, count: int) -> NDArray[np.uint16]:
    return (positions_of(labels) % np.uint64(count)).astype(np.uint16)


def _read(file: Path) -> Any:
    try:
        with pa.memory_map(str(file)) as opened:
            data = opened.read_buffer()
    except OSError as error:
        raise CheckpointError(
            f"{file}: cannot be read ({error.strerror or error}); driver and executors must mount the checkpoint alike"
        ) from None
    return trees.read(data, str(file))


#: Shards of the current stream in this Python worker.
_held: dict[tuple[str, int], _Shard] = {}


def _followed(shards: Shards, number: int, batch: int) -> bytes:
    """Return what a shard reports of a batch, from the state in this process or in files."""
    key = shards.id, number
    for other in [one for one in _held if one[0] != shards.id]:
        del _held[other]
    shard = _held.pop(key, None)  # one that fails is loaded again
    if shard is None or not shards.saved_before(batch) <= shard.batch <= batch:
        shard = _Shard.loaded(shards, number, batch)
    while shard.batch < batch:
        shard.follow(shard.batch + 1)
    if shards.is_saved(batch):
        shard.save()
    _held[key] = shard
    return shard.reported


class ShardedQueries:
    """Queries that shards evaluate, on the driver.

    Parameters
    ----------
    shards : Shards
    queries : list of Query
        They show the events.
    encoder : Encoder
        Of the live graph.
    """

    def __init__(self, shards: Shards, queries: Sequence[Query], encoder: Encoder) -> None:
        self._shards, self._encoder = shards, encoder
        self._queries = {one.topic.name: one for one in queries}
        for one in queries:
            one.topic.is_heard = True
        Path(shards.path).mkdir(parents=True, exist_ok=True)

    def step(self, spark: SparkSession, batch: int, entries: list[tuple[int, Any, Any]]) -> dict[str, pa.Table]:
        """Let all shards follow a batch; return the events of each topic that has some.

        Parameters
        ----------
        spark : SparkSession
        batch : int
        entries : list of tuple
            Of the log: forms, what was added, and the rest.

        Raises
        ------
        JobError
            A shard has failed.
        """
        shards = self._shards
        with written(shards.log(batch)) as file:
            trees.write(tuple(entries), file)
        rows = spark.range(0, shards.count, 1, shards.count)
        with named([f"batch {batch}"]):
            found = rows.mapInArrow(_Step(shards, batch), "payload binary, error string").toArrow()
        failures = found["error"].drop_null().to_pylist()
        if failures:
            raise JobError(f"batch {batch}: {failures[0]}")
        reports = [trees.read(one.as_buffer(), "the report of a shard") for one in found["payload"].combine_chunks()]
        tables = {}
        for topic, query in self._queries.items():
            table = self._merged(query, [one[topic] for one in reports if one[topic] is not None])
            if table is not None:
                tables[topic] = table
        return tables

    def _merged(self, query: Query, parts: list[tuple[Any, Events]]) -> pa.Table | None:
        """Publish what shards have reported, in order."""
        if not parts:
            return None
        of_edges, _ = query.shape
        table = self._encoder.edges if of_edges else self._encoder.vertices
        events = Events.joined([events._replace(keys=table.slots(keys.labels())) for keys, events in parts])
        stamps = Stamps._make(events.stamps)
        ranks = query.ranks(events.keys)
        keys: Any = *ranks[::-1], events.codes, stamps.asns, stamps.phases, stamps.times
        order = np.lexsort(keys)
        return query.topic.publish(events.take(order))

    def clean(self, batch: int) -> None:
        """Remove files that are not needed any more after a batch: two states of each shard are kept."""
        if not self._shards.is_saved(batch):
            return
        kept = self._shards.saved_before(batch)
        for file in Path(self._shards.path).glob("*-*.arrow"):
            number = int(file.stem.rsplit("-", 1)[1])
            if number < kept or (number == kept and file.stem.startswith("log")):
                file.unlink(missing_ok=True)
