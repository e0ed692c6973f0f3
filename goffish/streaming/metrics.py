"""Metrics of a running flow: counters of operators, rates of the last seconds, and latencies."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any, Self

import pyarrow as pa

from goffish.notebook import facts_html, rows_html
from goffish.streaming.topology import Topology

#: Rates are those of the last seconds, between samples of the counters.
_RECENT_S, _SAMPLE_S = 5.0, 1.0
#: Buckets of a histogram: four for each power of two, from 2^-15 s (31 µs) to 2^17 s (36 hours).
_FIRST_POWER, _PARTS, _BUCKETS = -14, 4, 128
_HISTOGRAMS = ("latency", "recent_latency", "recent_age")


@dataclass(slots=True)
class Histogram:
    """Durations in buckets whose bounds grow by at most a quarter.

    Attributes
    ----------
    counts : list of int
        Number of durations in each bucket.
    total : float
        Sum of all durations, in seconds.

    Examples
    --------
    >>> import goffish as gf
    >>> latencies = gf.stream.Histogram()
    >>> latencies.add(0.01, 99)
    >>> latencies.add(2.0)
    >>> latencies.count, round(latencies.quantile(0.5), 3), round(latencies.quantile(1.0), 3)
    (100, 0.012, 2.5)
    """

    counts: list[int] = field(default_factory=lambda: [0] * _BUCKETS)
    total: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration.

        Parameters
        ----------
        seconds : float
        count : int
            How many times.
        """
        mantissa, exponent = math.frexp(seconds)  # the mantissa is at least 1/2
        at = (exponent - _FIRST_POWER) * _PARTS + int(2 * _PARTS * mantissa) - _PARTS if seconds > 0 else 0
        self.counts[min(max(at, 0), _BUCKETS - 1)] += count
        self.total += max(seconds, 0.0) * count

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    @property
    def cells(self) -> list[tuple[float, int]]:
        """Upper bound in seconds and number of durations of each bucket."""
        return [(_bound(at), count) for at, count in enumerate(self.counts)]

    @property
    def buckets(self) -> list[tuple[float, int]]:
        """Those of the buckets that are not empty."""
        return [one for one in self.cells if one[1]]

    def quantile(self, share: float) -> float | None:
        """Return the upper bound of the bucket with a quantile; ``None`` without durations.

        Parameters
        ----------
        share : float
            From 0 to 1.

        Returns
        -------
        float or None
        """
        left = max(1, math.ceil(share * self.count))
        for bound, count in self.buckets:
            left -= count
            if left <= 0:
                return bound
        return None

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram([a + b for a, b in zip(self.counts, other.counts, strict=True)], self.total + other.total)

    def __sub__(self, other: Histogram) -> Histogram:
        counts = [max(0, a - b) for a, b in zip(self.counts, other.counts, strict=True)]
        return Histogram(counts, max(0.0, self.total - other.total))

    def to_dict(self) -> dict[str, Any]:
        """Return count, mean, quantiles and buckets as a mapping for JSON; durations are in seconds.

        Returns
        -------
        dict
        """
        count = self.count
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        quantiles = {name: self.quantile(share) for name, share in shares.items()}
        mean = self.total / count if count else None
        return {"count": count, "mean": mean, **quantiles, "buckets": [list(one) for one in self.buckets]}


def _bound(bucket: int) -> float:
    power, part = divmod(bucket, _PARTS)
    return math.ldexp((_PARTS + part + 1) / (2 * _PARTS), power + _FIRST_POWER)


@dataclass(slots=True)
class Counts:
    """Counters of one operator; all but `queue` only grow.

    Attributes
    ----------
    received, sent, errors, late, queue : int
        As in `OperatorMetrics`.
    before : int
        Records that earlier runs had received.
    busy : float
        Seconds in the operator.
    outputs : dict
        Records sent by each output.
    latency : Histogram or None
        Of a sink.
    batches : int
        Batches that were processed.
    age : Histogram or None
        Time from reading the first record of a batch until it arrives, at sinks and operators with a key.
    """

    received: int = 0
    sent: int = 0
    errors: int = 0
    before: int = 0
    busy: float = 0.0
    late: int = 0
    queue: int = 0
    outputs: dict[str, int] = field(default_factory=dict)
    latency: Histogram | None = None
    batches: int = 0
    age: Histogram | None = None

    def copy(self, **changes: Any) -> Self:
        """Return a copy that later records do not change, with other values of some attributes."""
        latency, age = (
            None if one is None else Histogram([*one.counts], one.total) for one in (self.latency, self.age)
        )
        return replace(self, outputs={**self.outputs}, latency=latency, age=age, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return a mapping for JSON, whose lists are not copied."""
        found = {name: getattr(self, name) for name in self.__slots__}
        times = {"latency": self.latency, "age": self.age}
        return found | {name: one and {"counts": one.counts, "total": one.total} for name, one in times.items()}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return counters from the mapping that `to_dict` returns."""
        known = {name: given[name] for name in ("latency", "age") if given[name] is not None}
        return cls(**{**given, **{name: Histogram(**one) for name, one in known.items()}})

    def __add__(self, other: Counts) -> Counts:
        outputs = {
            name: self.outputs.get(name, 0) + other.outputs.get(name, 0) for name in self.outputs | other.outputs
        }
        latencies, ages = (
            [one for one in pair if one is not None] for pair in ((self.latency, other.latency), (self.age, other.age))
        )
        return Counts(
            self.received + other.received, self.sent + other.sent, self.errors + other.errors,
            self.before + other.before, self.busy + other.busy, self.late + other.late, self.queue + other.queue,
            outputs, reduce(Histogram.__add__, latencies) if latencies else None, self.batches + other.batches,
            reduce(Histogram.__add__, ages) if ages else None,
        )  # fmt: skip


@dataclass(frozen=True)
class OperatorMetrics:
    """Metrics of one operator.

    Attributes
    ----------
    operator, kind : str
    alternate : str or None
        The active implementation.
    received, sent : int
        Records since the first run on the checkpoint folder.
    rate : float
        Records received per second in this run.
    busy : float
        Seconds in the operator in this run.
    queue : int
        Records that wait.
    late : int
        Records behind the watermark of their window.
    errors : int
        Records that could not be processed.
    recent_rate : float
        Records received per second in the last 5 seconds.
    load : float
        Share of the last 5 seconds in the operator, as the mean of all workers.
    latency : Histogram or None
        Of a sink: time from reading a record to writing what follows from it, in this run. Sinks that publish at
        checkpoints count until then. Results of windows and timers count from the last record read before.
    recent_latency : Histogram or None
        The same in the last 5 seconds.
    recent_batches : float
        Batches per second in the last 5 seconds.
    recent_age : Histogram or None
        Of a sink or an operator with a key: time from reading the first record of a batch until it arrived, in the
        last 5 seconds.
    """

    operator: str
    kind: str
    alternate: str | None
    received: int
    sent: int
    rate: float
    busy: float
    queue: int
    late: int
    errors: int
    recent_rate: float = 0.0
    load: float = 0.0
    latency: Histogram | None = None
    recent_latency: Histogram | None = None
    recent_batches: float = 0.0
    recent_age: Histogram | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The metrics with quantiles in place of histograms."""
        hidden = {*_HISTOGRAMS, "recent_batches"}
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in hidden}
        known = self.latency
        return found | {
            f"latency_p{share}": None if known is None else known.quantile(share / 100) for share in (50, 99)
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as a mapping for JSON.

        Returns
        -------
        dict
        """
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return found | {name: None if found[name] is None else found[name].to_dict() for name in _HISTOGRAMS}


@dataclass(frozen=True)
class ChannelMetrics:
    """Metrics of one channel.

    Attributes
    ----------
    source, output, target : str
        The sender and its output, and the receiver.
    sent : int
        Records in this run.
    recent_rate : float
        Records per second in the last 5 seconds.
    """

    source: str
    output: str
    target: str
    sent: int
    recent_rate: float


@dataclass(frozen=True)
class WorkerMetrics:
    """Metrics of one worker.

    Attributes
    ----------
    worker, pid : int
        Number and process id.
    queues : dict
        Number of records that wait, for each operator for which some do.
    unsent_bytes : int
        Bytes that wait to be sent to other workers.
    blocked : bool
        Whether the worker had to stop reading in the last tenth of a second, as too much was waiting.
    checkpoint : int or None
        Number of the last checkpoint.
    checkpoint_age : float or None
        Seconds since that checkpoint.
    joined : bool
        Whether the worker owns a share of the keys; not while it starts.
    stage : str or None
        First operator of those that it works for, where operators have workers of their own; None for the others.
    """

    worker: int
    pid: int
    queues: dict[str, int]
    unsent_bytes: int
    blocked: bool
    checkpoint: int | None
    checkpoint_age: float | None
    joined: bool = True
    stage: str | None = None

    @property
    def queued(self) -> int:
        """Records that wait for an operator."""
        return sum(self.queues.values())


@dataclass(frozen=True)
class Metrics:
    """Metrics of a run.

    Attributes
    ----------
    flow : str
    stopped : {"waiting", "running", "finished", "until", "stopped", "interrupted", "terminated"}
        Why the run ended: its sources did, `until` held, it was stopped by `Run.stop` or ``goffish stream stop``, or
        SIGINT or SIGTERM was received. A flow on several machines waits until its workers have a place.
    seconds : float
        Duration of this run.
    checkpoint : int or None
        Number of the last checkpoint.
    operators : tuple of OperatorMetrics
    channels : tuple of ChannelMetrics
    workers : tuple of WorkerMetrics

    Examples
    --------
    >>> import goffish as gf
    >>> flow = gf.stream.Flow("numbers")
    >>> _ = flow.source(gf.stream.generate(5)).filter(lambda n: n > 2, name="large").sink(gf.stream.collect())
    >>> metrics = flow.run()
    >>> metrics["large"].received, metrics["large"].sent
    (5, 2)
    """

    flow: str
    stopped: str
    seconds: float
    checkpoint: int | None
    operators: tuple[OperatorMetrics, ...]
    channels: tuple[ChannelMetrics, ...] = ()
    workers: tuple[WorkerMetrics, ...] = ()

    def __getitem__(self, operator: str) -> OperatorMetrics:
        return next(one for one in self.operators if one.operator == operator)

    @property
    def records(self) -> int:
        """Records that the sources have sent."""
        return sum(one.sent for one in self.operators if one.kind == "source")

    @property
    def recent_rate(self) -> float:
        """Records that the sources have sent per second in the last 5 seconds."""
        return sum(one.recent_rate for one in self.operators if one.kind == "source")

    @property
    def table(self) -> pa.Table:
        """One row for each operator."""
        return pa.Table.from_pylist([one.row for one in self.operators])

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as a mapping for JSON.

        Returns
        -------
        dict
        """
        return {
            "flow": self.flow, "stopped": self.stopped, "seconds": self.seconds, "checkpoint": self.checkpoint,
            "records": self.records, "recent_rate": self.recent_rate,
            "operators": [one.to_dict() for one in self.operators],
            "channels": [asdict(one) for one in self.channels],
            "workers": [asdict(one) | {"queued": one.queued} for one in self.workers],
        }  # fmt: skip

    def _repr_html_(self) -> str:
        facts = {"stopped": self.stopped, "seconds": self.seconds, "checkpoint": self.checkpoint}
        names = list(self.operators[0].row)
        rows = [list(one.row.values()) for one in self.operators]
        return facts_html(self.flow, facts) + rows_html(names, rows, len(rows))


class Meter:
    """Makes metrics of counters; keeps those of the last seconds for rates.

    Parameters
    ----------
    topology : Topology
    counts : mapping of str to Counts
        Counters at the start of the run.
    """

    def __init__(self, topology: Topology, counts: Mapping[str, Counts] | None = None) -> None:
        self._topology = topology
        self.begun = time.monotonic()
        given = counts or {}
        first = {one.name: given.get(one.name, Counts()).copy() for one in topology.operators}
        self._samples = deque([(self.begun, first)])
        self._lock = threading.Lock()

    def start(self) -> None:
        """Let the run begin now."""
        self.begun = time.monotonic()
        self._samples[0] = self.begun, self._samples[0][1]

    def follow(self, topology: Topology) -> None:
        """Measure another version of the flow from now on."""
        self._topology = topology

    def metrics(
        self, counts: Mapping[str, Counts], active: Mapping[str, str], workers: Iterable[WorkerMetrics], stopped: str,
        checkpoint: int | None, ended: float | None = None,
    ) -> Metrics:  # fmt: skip
        """Return metrics.

        Parameters
        ----------
        counts : mapping of str to Counts
            Counters now, which must not change any more.
        active : mapping of str to str
            Active alternate of each operator that has any.
        workers : iterable of WorkerMetrics
        stopped : str
        checkpoint : int or None
        ended : float, optional
            When the run ended [default: it runs].

        Returns
        -------
        Metrics
        """
        now = time.monotonic() if ended is None else ended
        samples, rows = self._samples, tuple(workers)
        with self._lock:
            if now >= samples[-1][0] + _SAMPLE_S:
                samples.append((now, dict(counts)))
            while len(samples) > 1 and samples[1][0] <= now - _RECENT_S:
                samples.popleft()
            since, earlier = samples[0]
        recent, seconds = max(now - since, 1e-9), max(now - self.begun, 1e-9)
        operators, nothing = [], Counts()
        for one in self._topology.operators:
            # Either may lack it: the flow can be updated meanwhile.
            new, old = counts.get(one.name, nothing), earlier.get(one.name, nothing)
            latency, age = (
                None if this is None else this - (that or Histogram())
                for this, that in ((new.latency, old.latency), (new.age, old.age))
            )
            load = min(1.0, max(0.0, new.busy - old.busy) / recent / max(1, len(rows)))
            operators.append(
                OperatorMetrics(
                    one.name, one.kind, active.get(one.name) if one.alternates else None, new.received, new.sent,
                    (new.received - new.before) / seconds, new.busy, new.queue, new.late, new.errors,
                    max(0, new.received - old.received) / recent, load, new.latency, latency,
                    max(0, new.batches - old.batches) / recent, age,
                )
            )  # fmt: skip
        channels = []
        for channel in self._topology.channels:
            parts = (counts.get(channel.source, nothing), earlier.get(channel.source, nothing))
            sent, before = (part.outputs.get(channel.output, 0) for part in parts)
            rate = max(0, sent - before) / recent
            channels.append(ChannelMetrics(channel.source, channel.output, channel.target, sent, rate))
        name = self._topology.name
        return Metrics(name, stopped, now - self.begun, checkpoint, tuple(operators), tuple(channels), rows)
