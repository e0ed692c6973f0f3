"""Describe flows: sources, operators and sinks, joined by streams."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.gofs.times import Duration, microseconds
from goffish.streaming.aggregates import FUNCTIONS, Aggregate
from goffish.streaming.operators import LATE
from goffish.streaming.replay import Replay
from goffish.streaming.sinks import FolderSink, Sink
from goffish.streaming.sources import Files, Source
from goffish.streaming.topology import (
    DEFAULT_COST,
    MAIN,
    AggregateOptions,
    Alternate,
    BranchOptions,
    Channel,
    JoinOptions,
    Key,
    Operator,
    Options,
    ReduceOptions,
    SinkOptions,
    SourceOptions,
    TimeOptions,
    Topology,
)
from goffish.streaming.windows import Window

if TYPE_CHECKING:
    from goffish.scheduling.dataflow.model import Dataflow, Goal
    from goffish.streaming.embedded import Run, Until
    from goffish.streaming.metrics import Metrics
    from goffish.streaming.scaling import Scaling


class Work(NamedTuple):
    """Cost and value of an operator for scheduling, and other implementations.

    Attributes
    ----------
    cost : float, optional
    value : float
    selectivity : float
    alternates : mapping
    """

    cost: float | None = None
    value: float = 1.0
    selectivity: float = 1.0
    alternates: Mapping[str, Alternate] | None = None


_NO_WORK = Work()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,79}")
_MOST = sys.float_info.max
#: Arguments of the functions of each kind.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "map": ("record",), "filter": ("record",), "flat_map": ("record",), "map_batches": ("batch",),
    "filter_batches": ("batch",),
    "reduce": ("total", "record"), "join": ("left", "right"), "process": (),
}  # fmt: skip


class Flow:
    """A continuous dataflow: sources, operators and sinks.

    Parameters
    ----------
    name : str
    on_error : {"fail"} or Sink
        What happens to records that cannot be processed: the flow fails at the first one, or a sink receives the
        record, the operator and the error.
    max_errors : int, optional
        Number of such records after which the flow fails [default: unlimited].

    Raises
    ------
    InputError
        An argument is not accepted.

    Examples
    --------
    >>> import goffish as gf
    >>> flow, totals = gf.stream.Flow("orders"), gf.stream.collect()
    >>> orders = flow.source(gf.stream.from_iterable([{"customer": "a", "total": 5}, {"customer": "a", "total": 2}]))
    >>> _ = orders.key_by("customer").sum("total").sink(totals)
    >>> _ = flow.run()
    >>> totals.values
    [{'customer': 'a', 'total': 7}]
    """

    def __init__(self, name: str, *, on_error: str | Sink = "fail", max_errors: int | None = None) -> None:
        _check_name(name, "flow")
        if on_error != "fail" and not isinstance(on_error, Sink):
            raise InputError(f"flow {name}: on_error = {on_error!r}: accepted are 'fail' and a sink")
        if max_errors is not None and max_errors < 0:
            raise InputError(f"flow {name}: max_errors = {max_errors}: must be 0 or more")
        self.name = name
        self._on_error = on_error if isinstance(on_error, Sink) else None
        self._max_errors = max_errors
        self._operators: dict[str, Operator] = {}
        self._loops: dict[str, Channel | None] = {}

    def __repr__(self) -> str:
        return f"Flow({self.name!r}: {' '.join(self._operators) or 'no operators'})"

    def source(
        self, source: Source, *, time: Key | None = None, lateness: Duration = 0, idle: Duration | None = None,
        name: str | None = None,
    ) -> Stream:  # fmt: skip
        """Add a source.

        Parameters
        ----------
        source : Source
            Such as ``read_json_lines("orders.jsonl")``.
        time : str or callable, optional
            Column with the event time of a record, or a function that returns it: a timestamp, an ISO 8601 text, or
            seconds since 1970.
        lateness : str, float or timedelta
            How much earlier than the latest record of its partition a record may be.
        idle : str, float or timedelta, optional
            Time without records after which windows no longer wait for a partition [default: unlimited].
        name : str, optional

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        if not isinstance(source, Source):
            raise InputError(
                f"flow {self.name}: {type(source).__name__} is not a source; use one of gf.stream.read_..."
            )
        what = f"operator {name or 'source'}"
        if time is None and (lateness or idle is not None):
            raise InputError(f"{what}: lateness and idle require time, the column or function of the event time")
        speed = source.speed if isinstance(source, Files) else None
        if speed is not None:
            if time is None:
                raise InputError(f"{what}: speed requires time, the column or function of the event time")
            source = Replay(source, time, speed)
        wait = None if idle is None else microseconds(idle, f"{what}: idle")
        options = SourceOptions(source, time, microseconds(lateness, f"{what}: lateness", zero=True), wait)
        return self._add("source", name, (), None, options)

    def loop(self, name: str) -> Loop:
        """Begin a cycle: a stream of the records that are sent to `Loop.close`.

        Parameters
        ----------
        name : str

        Returns
        -------
        Loop

        Raises
        ------
        InputError
            The name is in use.
        """
        made = self._add("loop", name, (), None, None)
        self._loops[made.operator] = None
        return Loop(self, made.operator)

    def _add(
        self, kind: str, name: str | None, inputs: tuple[Channel, ...], function: Callable[..., Any] | None,
        options: Options, work: Work = _NO_WORK, migrate: Callable[[Any], Any] | None = None,
    ) -> Stream:  # fmt: skip
        if name is None:
            base = getattr(function, "__name__", kind)
            name = self._free(base if base.isidentifier() else kind)
        elif name in self._operators:
            raise InputError(f"flow {self.name}: two operators are named {name!r}; names must be unique")
        _check_name(name, "operator")
        inputs = tuple(replace(channel, target=name) for channel in inputs)
        alternates = _alternates(name, function, work)
        self._operators[name] = Operator(name, kind, function, inputs, options, alternates, migrate)
        return Stream(self, name)

    def _free(self, base: str) -> str:
        return next(one for one in _numbered(base) if one not in self._operators)

    def check(self) -> Topology:
        """Check the flow, and return its operators and channels.

        Returns
        -------
        Topology

        Raises
        ------
        InputError
            The flow cannot run; names the operator.
        """
        operators = dict(self._operators)
        for name, channel in self._loops.items():
            if channel is None:
                raise InputError(f"operator {name}: the loop is not closed; call close() with the stream that returns")
            operators[name] = replace(operators[name], inputs=(channel,))
        if not any(one.kind == "source" for one in operators.values()):
            raise InputError(f"flow {self.name}: no source; add one with flow.source()")
        sinks = [one for one in operators.values() if one.kind == "sink"]
        if not sinks:
            raise InputError(f"flow {self.name}: no sink; add one with .sink()")
        used = {channel.source for one in operators.values() for channel in one.inputs}
        for name, one in operators.items():
            if name not in used and one.kind != "sink":
                raise InputError(f"operator {name}: nothing receives its records; add a sink or another operator")
        folders: dict[str, str] = {}
        written = [(one.name, one.options.sink) for one in sinks if isinstance(one.options, SinkOptions)]
        for name, sink in [*written, *([("on_error", self._on_error)] if self._on_error else [])]:
            if isinstance(sink, FolderSink):
                path = str(Path(sink.path).absolute())
                if path in folders:
                    raise InputError(
                        f"operator {name}: {sink.path} is also written by {folders[path]}; name another folder"
                    )
                folders[path] = name
        topology = Topology(self.name, _ordered(self.name, operators), self._on_error, self._max_errors)
        timed: dict[str, bool | None] = {}
        for one in topology.operators:
            _check_arity(one)
            timed[one.name] = _has_time(one, timed)
        return topology

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators of the checked flow."""
        return self.check().operators

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of the checked flow."""
        return self.check().channels

    def to_dataflow(self, rates: Mapping[str, float] | None = None, goal: Goal | None = None) -> Dataflow:
        """Return the flow as scheduling policies need it; the beginnings of loops are left out.

        Parameters
        ----------
        rates : mapping, optional
            Records per second of every source; by default the rate of the source, or 1.
        goal : Goal, optional

        Returns
        -------
        Dataflow

        Raises
        ------
        InputError
            The flow cannot run, a rate is given for an operator that is no source, or an extra is missing.
        """
        from goffish.streaming.modeled import dataflow_of

        return dataflow_of(self.check(), rates, goal)

    def run(
        self, *, checkpoint: str | Path | None = None, every: Duration = 2.0, until: Until | None = None,
        workers: int | Mapping[str, int] = 1, replication: int = 1, progress: bool = True, http: str | None = None,
        delivery: str = "exactly-once", scaling: Scaling | None = None,
    ) -> Metrics:  # fmt: skip
        """Run the flow until its sources end, or until it is stopped.

        With one worker, the flow runs in this process, and Ctrl-C stops it after the current batch and saves a
        checkpoint. With more, each is a process that owns a share of the keys and of the partitions of the sources.
        When a worker fails, another one continues with a copy of its state, and a new worker replaces it.

        Parameters
        ----------
        checkpoint : str or Path, optional
            Folder for checkpoints, which must be trusted. A flow resumes from the newest one.
        every : str, float or timedelta
            Time between checkpoints. Without a folder, between publications of files.
        until : str, float, timedelta or callable, optional
            Duration of the run, or a function of `Metrics` that returns whether to stop.
        workers : int or mapping of str to int
            Number of worker processes; or, for operators by name, of those that run it and the operators after it.
        replication : int
            Number of workers that may fail at once without loss; more copies of the keyed state take more memory and
            time.
        progress : bool
            Show progress in notebooks and terminals.
        http : str, optional
            Loopback ``HOST:PORT`` of a live page, with metrics for Prometheus at ``/metrics`` and as JSON at
            ``/status`` [default: none].
        delivery : {"exactly-once", "at-least-once"}
            With several workers: whether operators with a key, and those with workers of their own, send their results
            to other workers when a checkpoint contains them, or at once. In that case, results of records that were
            in flight when a worker failed can count again in operators after it.
        scaling : Scaling, optional
            Policy that chooses workers and alternates while the flow runs, in place of `workers`.

        Returns
        -------
        Metrics

        Raises
        ------
        InputError
            The flow or an argument is not accepted, or the checkpoint is of another flow.
        JobError
            A record cannot be processed, or a file cannot be written.
        """
        from goffish.streaming.live.watch import Watch

        topology, watch = self.check(), Watch(http)
        if scaling is not None:
            with needed_for("scaling", "simulate"):
                from goffish.streaming.scaled_run import run_scaled

            if workers != 1:
                raise InputError(f"workers = {workers}: scaling chooses the workers; leave them out")
            return run_scaled(topology, scaling, replication, checkpoint, every, until, None, watch, delivery)[0]
        if workers != 1:
            from goffish.streaming.runtime.cluster import run_workers

            return run_workers(topology, workers, replication, checkpoint, every, until, None, watch, delivery)
        from goffish.streaming.embedded import run

        return run(topology, checkpoint, every, until, progress=progress, watch=watch)

    def start(
        self, *, checkpoint: str | Path | None = None, every: Duration = 2.0, until: Until | None = None,
        http: str | None = None,
    ) -> Run:  # fmt: skip
        """Run the flow on a thread of this process.

        Parameters
        ----------
        checkpoint, every, until, http
            As in `run`.

        Returns
        -------
        Run

        Raises
        ------
        InputError
            The flow or an argument is not accepted, or the checkpoint is of another flow.
        """
        from goffish.streaming.embedded import start
        from goffish.streaming.live.watch import Watch

        return start(self.check(), checkpoint, every, until, Watch(http))


@dataclass(frozen=True, repr=False)
class Stream:
    """Records that an operator sends.

    Attributes
    ----------
    flow : Flow
    operator : str
        Name of the operator.
    output : str
        Output of the operator; the main output has no name.
    """

    flow: Flow
    operator: str
    output: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.operator}{'.' * bool(self.output)}{self.output})"

    def _channel(self, port: int = 0, key: Key | None = None) -> Channel:
        return Channel(self.operator, "", self.output, port, key)

    def _then(
        self, kind: str, function: Callable[..., Any] | None, name: str | None, options: Options = None,
        work: Work = _NO_WORK,
    ) -> Stream:  # fmt: skip
        return self.flow._add(kind, name, (self._channel(),), function, options, work)

    def map(
        self, function: Callable[[Any], Any], *, name: str | None = None,
        alternates: Mapping[str, Alternate] | None = None, cost: float | None = None, value: float = 1.0,
    ) -> Stream:  # fmt: skip
        """Send the result of a function for each record.

        Parameters
        ----------
        function : callable
            Takes a record; rows of Arrow batches are mappings.
        name : str, optional
        alternates : mapping, optional
            Other implementations by name, to which a running flow can switch.
        cost : float, optional
            Core-seconds for a record, for scheduling.
        value : float
            Quality relative to the best alternate, more than 0 and at most 1.

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        return self._then("map", function, name, None, Work(cost, value, 1.0, alternates))

    def filter(
        self, function: Callable[[Any], Any], *, name: str | None = None,
        alternates: Mapping[str, Alternate] | None = None, cost: float | None = None, value: float = 1.0,
        selectivity: float = 1.0,
    ) -> Stream:  # fmt: skip
        """Send the records for which a predicate holds.

        Parameters
        ----------
        function : callable
            Takes a record, returns True or False.
        name : str, optional
        alternates : mapping, optional
            Other implementations by name, to which a running flow can switch.
        cost : float, optional
            Core-seconds for a record, for scheduling.
        value : float
            Quality relative to the best alternate, more than 0 and at most 1.
        selectivity : float
            Share of the records that are sent, for scheduling.

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        return self._then("filter", function, name, None, Work(cost, value, selectivity, alternates))

    def flat_map(
        self, function: Callable[[Any], Iterable[Any]], *, name: str | None = None,
        alternates: Mapping[str, Alternate] | None = None, cost: float | None = None, value: float = 1.0,
        selectivity: float = 1.0,
    ) -> Stream:  # fmt: skip
        """Send all results that a function returns for each record.

        Parameters
        ----------
        function : callable
            Takes a record, returns an iterable.
        name : str, optional
        alternates : mapping, optional
            Other implementations by name, to which a running flow can switch.
        cost : float, optional
            Core-seconds for a record, for scheduling.
        value : float
            Quality relative to the best alternate, more than 0 and at most 1.
        selectivity : float
            Records sent for each record, for scheduling.

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        return self._then("flat_map", function, name, None, Work(cost, value, selectivity, alternates))

    def map_batches(
        self, function: Callable[[Any], Any], *, name: str | None = None,
        alternates: Mapping[str, Alternate] | None = None, cost: float | None = None, value: float = 1.0,
    ) -> Stream:  # fmt: skip
        """Send the result of a function for each Arrow batch; no Python object is made for a record.

        Parameters
        ----------
        function : callable
            Takes a `pyarrow.RecordBatch`, returns a RecordBatch, Table or Array. Where records have event times, the
            number of records must stay the same; see `filter_batches`.
        name : str, optional
        alternates : mapping, optional
            Other implementations by name, to which a running flow can switch.
        cost : float, optional
            Core-seconds for a record, for scheduling.
        value : float
            Quality relative to the best alternate, more than 0 and at most 1.

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        return self._then("map_batches", function, name, None, Work(cost, value, 1.0, alternates))

    def filter_batches(
        self, function: Callable[[Any], Any], *, name: str | None = None,
        alternates: Mapping[str, Alternate] | None = None, cost: float | None = None, value: float = 1.0,
        selectivity: float = 1.0,
    ) -> Stream:  # fmt: skip
        """Send the records of each Arrow batch that a mask selects; no Python object is made for a record.

        Parameters
        ----------
        function : callable
            Takes a `pyarrow.RecordBatch`, returns a boolean array of pyarrow or NumPy with a value for each record.
        name : str, optional
        alternates : mapping, optional
            Other implementations by name, to which a running flow can switch.
        cost : float, optional
            Core-seconds for a record, for scheduling.
        value : float
            Quality relative to the best alternate, more than 0 and at most 1.
        selectivity : float
            Share of the records that are sent, for scheduling.

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        return self._then("filter_batches", function, name, None, Work(cost, value, selectivity, alternates))

    def event_time(self, time: Key, *, lateness: Duration = 0, name: str | None = None) -> Stream:
        """Set the event time of records.

        Parameters
        ----------
        time : str or callable
            Column or function of the record: a timestamp, an ISO 8601 text, or seconds since 1970.
        lateness : str, float or timedelta
            How much earlier than the latest record a record may be.
        name : str, optional

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        limit = microseconds(lateness, f"operator {name or 'event_time'}: lateness", zero=True)
        return self._then("event_time", None, name, TimeOptions(time, limit))

    def branch(self, predicates: Mapping[str, Callable[[Any], Any]], *, name: str | None = None) -> dict[str, Stream]:
        """Split the stream: each record leaves by the first output whose predicate holds.

        Parameters
        ----------
        predicates : mapping
            Predicate of every output by name. Records for which none holds are dropped.
        name : str, optional

        Returns
        -------
        dict of str to Stream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        if not predicates:
            raise InputError(f"operator {name or 'branch'}: no outputs; give a mapping of names to predicates")
        for output in predicates:
            _check_name(output, "output")
        made = self._then("branch", None, name, BranchOptions(dict(predicates)))
        return {output: Stream(self.flow, made.operator, output) for output in predicates}

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Send the records of this stream and of others.

        Parameters
        ----------
        *others : Stream
        name : str, optional

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            A stream is of another flow.
        """
        for other in others:
            self._check_flow(other, "union")
        channels = tuple(one._channel(port) for port, one in enumerate((self, *others)))
        return self.flow._add("union", name, channels, None, None)

    def _check_flow(self, other: Stream, what: str) -> None:
        if other.flow is not self.flow:
            raise InputError(
                f"operator {other.operator}: belongs to flow {other.flow.name}, not {self.flow.name}; "
                f"{what} requires streams of one flow"
            )

    def key_by(self, key: Key) -> KeyedStream:
        """Group the records for an operator with state.

        Parameters
        ----------
        key : str or callable
            Column, or a function of the record. Keys are text, numbers, bytes, None and tuples of those.

        Returns
        -------
        KeyedStream

        Raises
        ------
        InputError
            The key is neither.
        """
        if not isinstance(key, str) and not callable(key):
            raise InputError(f"operator {self.operator}: key_by({key!r}): give a column or a function of the record")
        return KeyedStream(self, key)

    def sink(self, sink: Sink, *, name: str | None = None) -> Stream:
        """Add a sink.

        Parameters
        ----------
        sink : Sink
            Such as ``write_parquet("out")``.
        name : str, optional

        Returns
        -------
        Stream
            This stream.

        Raises
        ------
        InputError
            The argument is not a sink.
        """
        if not isinstance(sink, Sink):
            raise InputError(
                f"operator {name or 'sink'}: {type(sink).__name__} is not a sink; use gf.stream.write_parquet or "
                "another function that makes one"
            )
        self._then("sink", None, name, SinkOptions(sink))
        return self

    def _no_key(self, kind: str) -> InputError:
        return InputError(f"operator {kind} after {self.operator}: requires a key; call key_by() before {kind}()")

    def __getattr__(self, name: str) -> Any:
        if name in {*FUNCTIONS, "reduce", "aggregate", "window", "join", "process"}:
            raise self._no_key(name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class Loop(Stream):
    """Records that return to an earlier operator."""

    def close(self, stream: Stream) -> None:
        """Send the records of a stream to the beginning of the loop.

        Parameters
        ----------
        stream : Stream

        Raises
        ------
        InputError
            The loop is closed already, or the stream is of another flow.
        """
        self._check_flow(stream, "loop")
        if self.flow._loops[self.operator] is not None:
            raise InputError(f"operator {self.operator}: the loop is closed already; use union() to return two streams")
        self.flow._loops[self.operator] = Channel(stream.operator, self.operator, stream.output, feedback=True)


class Grouped:
    """A stream with a key, with or without windows."""

    _stream: Stream
    _key: Key
    _window: Window | None = None

    def _then(
        self, kind: str, function: Callable[..., Any] | None, name: str | None, options: Options,
        migrate: Callable[[Any], Any] | None,
    ) -> Combined:  # fmt: skip
        if migrate is not None and self._window is not None and self._window.gap:
            raise InputError(f"operator {name or kind}: migrate: sessions keep their records; leave it out")
        channels = (self._stream._channel(0, self._key),)
        made = self._stream.flow._add(kind, name, channels, function, options, migrate=migrate)
        return Combined(made.flow, made.operator)

    def aggregate(
        self, *, name: str | None = None, migrate: Callable[[Any], Any] | None = None,
        **results: str | tuple[str, str],
    ) -> Combined:  # fmt: skip
        """Compute aggregates of each key: a record with the key and the results.

        Without windows, each batch sends the aggregates of all keys in it; in windows, the end of the window does.

        Parameters
        ----------
        name : str, optional
        migrate : callable, optional
            When a running flow is updated to this version: takes a mapping with the numbers that the version before
            has for a key, returns one with those of this version. A mean is a pair of sum and count.
        **results : str or tuple
            Name of a result, and its function with a column, such as ``revenue=("sum", "total")`` or
            ``orders="count"``. Without a column, the records are numbers.

        Returns
        -------
        Combined

        Raises
        ------
        InputError
            A function is unknown.
        """
        return self._aggregated(results, name, migrate)

    def _aggregated(
        self, results: Mapping[str, str | tuple[str, str]], name: str | None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> Combined:  # fmt: skip
        if not results:
            raise InputError(f"operator {name or 'aggregate'}: no results; give such as revenue=('sum', 'total')")
        found = []
        for result, given in results.items():
            function, column = (given, None) if isinstance(given, str) else given
            if function not in FUNCTIONS:
                raise InputError(
                    f"operator {name or 'aggregate'}: {result} = {function!r}: choose one of {', '.join(FUNCTIONS)}"
                )
            if result in (self._key if isinstance(self._key, str) else "key", "window_start", "window_end"):
                raise InputError(
                    f"operator {name or 'aggregate'}: result {result!r} has the name of the key or of a "
                    f"bound of windows; choose another, as in aggregate(other=({function!r}, ...))"
                )
            found.append(Aggregate(result, function, column))
        return self._then("aggregate", None, name, AggregateOptions(tuple(found), self._window), migrate)

    def _one(self, function: str, column: str | None, name: str | None) -> Combined:
        result = function if column is None else column
        given = function if column is None else (function, column)
        return self._aggregated({result: given}, name or self._stream.flow._free(function))

    def sum(self, column: str | None = None, *, name: str | None = None) -> Combined:
        """Compute the sum of a column for each key.

        Parameters
        ----------
        column : str, optional
            By default, the records are numbers.
        name : str, optional

        Returns
        -------
        Combined
        """
        return self._one("sum", column, name)

    def count(self, column: str | None = None, *, name: str | None = None) -> Combined:
        """Count the records of each key, or the values of a column.

        Parameters
        ----------
        column : str, optional
        name : str, optional

        Returns
        -------
        Combined
        """
        return self._one("count", column, name)

    def min(self, column: str | None = None, *, name: str | None = None) -> Combined:
        """Compute the minimum of a column for each key.

        Parameters
        ----------
        column : str, optional
            By default, the records are numbers.
        name : str, optional

        Returns
        -------
        Combined
        """
        return self._one("min", column, name)

    def max(self, column: str | None = None, *, name: str | None = None) -> Combined:
        """Compute the maximum of a column for each key.

        Parameters
        ----------
        column : str, optional
            By default, the records are numbers.
        name : str, optional

        Returns
        -------
        Combined
        """
        return self._one("max", column, name)

    def mean(self, column: str | None = None, *, name: str | None = None) -> Combined:
        """Compute the mean of a column for each key.

        Parameters
        ----------
        column : str, optional
            By default, the records are numbers.
        name : str, optional

        Returns
        -------
        Combined
        """
        return self._one("mean", column, name)

    def reduce(
        self, function: Callable[[Any, Any], Any], *, initial: Any, name: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> Combined:  # fmt: skip
        """Combine the records of each key with a function: a record with the key and the total as ``value``.

        Without windows, each batch sends the totals of all keys in it; in windows, the end of the window does.

        Parameters
        ----------
        function : callable
            Takes the total and a record, returns the new total.
        initial : object
            First total of each key.
        name : str, optional
        migrate : callable, optional
            When a running flow is updated to this version: takes the total that the version before has for a key,
            returns a total of this version.

        Returns
        -------
        Combined

        Raises
        ------
        InputError
            `migrate` is given for sessions, which keep records and no totals.
        """
        return self._then("reduce", function, name, ReduceOptions(initial, self._window), migrate)


class KeyedStream(Grouped):
    """A stream with a key."""

    def __init__(self, stream: Stream, key: Key) -> None:
        self._stream, self._key = stream, key

    def __getattr__(self, name: str) -> Any:
        if name in {
            "map", "filter", "flat_map", "map_batches", "filter_batches", "sink", "union", "branch", "key_by",
            "event_time",
        }:  # fmt: skip
            raise InputError(
                f"operator {name} after {self._stream.operator}: key_by() requires an operator with state, such as "
                "reduce or sum; call it on the stream before key_by()"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def window(self, window: Window, *, time: Key | None = None, lateness: Duration = 0) -> WindowedStream:
        """Group the records by windows of event time, too.

        Parameters
        ----------
        window : Window
            ``tumbling``, ``sliding`` or ``session``.
        time : str or callable, optional
            Column or function of the event time [default: that of the source].
        lateness : str, float or timedelta
            How much earlier than the latest record a record may be.

        Returns
        -------
        WindowedStream

        Raises
        ------
        InputError
            An argument is not accepted.
        """
        if not isinstance(window, Window):
            raise InputError(
                f"operator window after {self._stream.operator}: {window!r} is not a window; "
                "use tumbling, sliding or session"
            )
        stream = self._stream
        if time is not None:
            stream = stream.event_time(time, lateness=lateness)
        elif lateness:
            raise InputError(f"operator window after {stream.operator}: lateness requires time, a column or a function")
        return WindowedStream(stream, self._key, window)

    def join(
        self, other: KeyedStream, *, within: Duration, function: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> Combined:  # fmt: skip
        """Join records of two streams with equal keys whose event times are close.

        Parameters
        ----------
        other : KeyedStream
        within : str, float or timedelta
            Longest distance in event time.
        function : callable, optional
            Takes a record of each stream, returns the result [default: a tuple of both].
        name : str, optional

        Returns
        -------
        Combined

        Raises
        ------
        InputError
            The other stream has no key or is of another flow, or the distance is not accepted.
        """
        limit = microseconds(within, f"operator {name or 'join'}: within", zero=True)
        return _joined(self, other, JoinOptions(within=limit), function, name)

    def process(
        self, logic: Callable[[], Any], *, name: str | None = None, migrate: Callable[[Any], Any] | None = None
    ) -> Combined:
        """Process records with an object that has state for each key, and timers.

        Parameters
        ----------
        logic : class
            With a method ``on_value(key, value, state, timers, emit)`` and, for timers,
            ``on_timer(key, time, state, timers, emit)``. Everything that must survive a failure belongs to `state`.
        name : str, optional
        migrate : callable, optional
            When a running flow is updated to this version: takes a dictionary of what `state` has for a key in the
            version before, returns that of this version. Timers stay.

        Returns
        -------
        Combined
        """
        return self._then("process", logic, name, None, migrate)


class WindowedStream(Grouped):
    """A stream with a key and windows."""

    def __init__(self, stream: Stream, key: Key, window: Window) -> None:
        self._stream, self._key, self._window = stream, key, window

    def join(
        self, other: KeyedStream | WindowedStream, *, function: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> Combined:  # fmt: skip
        """Join records of two streams with equal keys in the same tumbling window.

        Parameters
        ----------
        other : KeyedStream or WindowedStream
        function : callable, optional
            Takes a record of each stream, returns the result [default: a tuple of both].
        name : str, optional

        Returns
        -------
        Combined

        Raises
        ------
        InputError
            The other stream has no key, other windows, or is of another flow; or the windows are not tumbling.
        """
        assert self._window is not None
        what = f"operator {name or 'join'}"
        if self._window.gap or self._window.slide != self._window.size:
            raise InputError(f"{what}: joins accept tumbling windows only; use within= for other intervals")
        if isinstance(other, WindowedStream) and other._window != self._window:
            raise InputError(f"{what}: the streams have different windows")
        return _joined(self, other, JoinOptions(window=self._window), function, name)


def _joined(
    left: Grouped, right: Grouped, options: JoinOptions, function: Callable[[Any, Any], Any] | None, name: str | None
) -> Combined:
    if not isinstance(right, Grouped):
        raise InputError(f"operator {name or 'join'}: the other stream requires a key; call key_by() on it")
    left._stream._check_flow(right._stream, "join")
    channels = (left._stream._channel(0, left._key), right._stream._channel(1, right._key))
    flow = left._stream.flow
    made = flow._add("join", name or flow._free("join"), channels, function, options)
    return Combined(made.flow, made.operator)


class Combined(Stream):
    """Results of an operator with state."""

    def late(self) -> Stream:
        """Return the records that arrived after the end of their window; without a receiver they are only counted.

        Returns
        -------
        Stream

        Raises
        ------
        InputError
            The operator has neither windows nor a limit in event time.
        """
        operator = self.flow._operators[self.operator]
        if getattr(operator.options, "window", None) is None and operator.kind != "join":
            raise InputError(f"operator {self.operator}: has no late records; only windows and joins do")
        return Stream(self.flow, self.operator, LATE)


def _check_name(name: str, what: str) -> None:
    """Names are also those of processing elements in scheduling, and parts of messages and files."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        accepted = "letters, digits, _ . : / and -, at most 80, beginning with a letter or digit"
        raise InputError(f"{what} {name!r}: accepted are {accepted}")


def _alternates(name: str, function: Callable[..., Any] | None, work: Work) -> dict[str, Alternate]:
    """Return all implementations of an operator by name; the first is the function itself.

    Raises
    ------
    InputError
        A cost, value, selectivity or name is not accepted.
    """
    if function is None:
        return {}
    if work.alternates and work.cost is None:
        raise InputError(f"operator {name}: alternates require a cost; give cost= of the function itself, too")
    cost = DEFAULT_COST if work.cost is None else work.cost
    found = {MAIN: Alternate(function, cost, work.value, work.selectivity)}
    for key, one in (work.alternates or {}).items():
        if not isinstance(one, Alternate):
            raise InputError(f"operator {name}: alternate {key}: {type(one).__name__} is not an Alternate")
        _check_name(key, f"operator {name}: alternate")
        if key == MAIN:
            raise InputError(f"operator {name}: alternate {MAIN!r} is the function itself; choose another name")
        found[key] = one
    for key, one in found.items():
        for what, number, most in (
            ("cost", one.cost, _MOST),
            ("value", one.value, 1.0),
            ("selectivity", one.selectivity, _MOST),
        ):
            if not isinstance(number, int | float) or not 0 < number <= most:
                limit = "more than 0 and at most 1" if most == 1.0 else "a positive number"
                raise InputError(f"operator {name}: alternate {key}: {what} = {number!r}: must be {limit}")
    return found


def _ordered(flow: str, operators: dict[str, Operator]) -> tuple[Operator, ...]:
    """Return the operators so that each comes after those that send to it, but for feedback.

    Raises
    ------
    InputError
        A channel comes from an operator of another flow, or there is a cycle without a loop.
    """
    order: list[Operator] = []
    placed: set[str] = set()
    for one in operators.values():
        for channel in one.inputs:
            if channel.source not in operators:
                raise InputError(f"operator {one.name}: its input {channel.source} is not in flow {flow}")
    while len(order) < len(operators):
        ready = [
            one for name, one in operators.items()
            if name not in placed and all(c.feedback or c.source in placed for c in one.inputs)
        ]  # fmt: skip
        if not ready:
            left = ", ".join(name for name in operators if name not in placed)
            raise InputError(f"flow {flow}: cycle between {left}; declare it with flow.loop()")
        order += ready
        placed |= {one.name for one in ready}
    return tuple(order)


def _has_time(operator: Operator, timed: Mapping[str, bool | None]) -> bool | None:
    """Whether the records that an operator sends have event times; ``None`` for what returns in a loop.

    Raises
    ------
    InputError
        The operator needs them, but its input has none.
    """
    options = operator.options
    if isinstance(options, SourceOptions):
        return options.time is not None
    if isinstance(options, TimeOptions):
        return True
    given = [timed[c.source] for c in operator.inputs if not c.feedback and timed[c.source] is not None]
    needs = isinstance(options, JoinOptions) or getattr(options, "window", None) is not None
    if needs and not all(given):
        raise InputError(
            f"operator {operator.name}: requires an event time; give time= to window() or to the source, or call "
            "event_time() before"
        )
    if operator.kind == "union" and any(given) and not all(given):
        raise InputError(
            f"operator {operator.name}: some streams have event times and some have none; use event_time()"
        )
    return all(given) if given else None


def _check_arity(operator: Operator) -> None:
    """Check the functions of an operator.

    Raises
    ------
    InputError
        A function cannot be called with the arguments that it will be given.
    """
    wanted = _ARGUMENTS.get(operator.kind)
    functions: list[tuple[str, Any, tuple[str, ...]]] = []
    if wanted is not None and operator.function is not None:
        choices = operator.alternates or {MAIN: Alternate(operator.function)}
        functions += [
            ("" if key == MAIN else f"alternate {key}: ", one.function, wanted) for key, one in choices.items()
        ]
    if isinstance(operator.options, BranchOptions):
        functions += [(f"output {key}: ", one, ("record",)) for key, one in operator.options.predicates.items()]
    keys = [c.key for c in operator.inputs] + [getattr(operator.options, "time", None)]
    functions += [("key or time: ", key, ("record",)) for key in keys if key is not None and not isinstance(key, str)]
    if operator.migrate is not None:
        functions.append(("migrate: ", operator.migrate, ("value",)))
    if operator.kind == "process":
        for method in ("on_value", "on_timer"):
            found = getattr(operator.function, method, None)
            if found is None and method == "on_value" and isinstance(operator.function, type):
                raise InputError(f"operator {operator.name}: the class has no method on_value")
            if found is not None and isinstance(operator.function, type):
                functions.append((f"{method}: ", found, ("self", "key", "value", "state", "timers", "emit")))
    for where, function, arguments in functions:
        if not callable(function):
            raise InputError(f"operator {operator.name}: {where}{type(function).__name__} is not callable")
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            continue  # some functions in C have none
        try:
            signature.bind(*arguments)
        except TypeError:
            needs = f"{len(arguments)} argument{'s' * (len(arguments) > 1)} ({', '.join(arguments)})"
            name = getattr(function, "__name__", "function")
            raise InputError(f"operator {operator.name}: {where}{name}{signature}: must accept {needs}") from None


def _numbered(base: str) -> Iterator[str]:
    yield base
    yield from (f"{base}-{number}" for number in itertools.count(2))
