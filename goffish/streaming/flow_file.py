"""Flows in YAML files, with functions named as ``module:function``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from goffish.definitions import Definition, read_definition
from goffish.errors import InputError
from goffish.streaming.delta import read_delta, write_delta
from goffish.streaming.flow import Flow, KeyedStream, Loop, Stream, WindowedStream
from goffish.streaming.gofs_source import read_gofs
from goffish.streaming.http_source import receive_http
from goffish.streaming.kafka import SERVERS, Format, Start, read_kafka, write_kafka
from goffish.streaming.sinks import Sink, print_values, write_csv, write_json_lines, write_parquet
from goffish.streaming.sources import Source, generate, read_csv, read_json_lines, read_parquet
from goffish.streaming.topology import Alternate, Key
from goffish.streaming.windows import Window, session, sliding, tumbling

Function = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
Time = str | float


class Receive(Definition):
    """Arguments of `receive_http`."""

    bind: str
    journal: str | None = None
    token: str | None = None
    tls: tuple[str, str] | None = None
    max_body: int | None = None
    max_waiting: int | None = None
    max_journal: int | None = None
    timeout: Time | None = None


class Store(Definition):
    """Arguments of `read_gofs`."""

    store: str
    what: Literal["edges", "vertices"] = "edges"
    attributes: list[str] | None = None
    start: int | str | None = None
    end: int | str | None = None
    follow: bool = False
    rate: float | None = None


class Delta(Definition):
    """Arguments of `read_delta`."""

    path: str
    version: int | None = None
    changes: bool = False
    follow: bool = False
    rate: float | None = None
    storage_options: dict[str, str] | None = None


class DeltaTarget(Definition):
    """Arguments of `write_delta`."""

    path: str
    staging: str | None = None
    partition_by: list[str] = []
    storage_options: dict[str, str] | None = None


class Read(Definition):
    """What a source reads: one of `json_lines`, `csv`, `parquet`, `kafka`, `delta`, `gofs`, `http`, or `generate`."""

    json_lines: str | None = None
    csv: str | None = None
    parquet: str | None = None
    kafka: str | None = None
    http: Receive | None = None
    delta: Delta | None = None
    gofs: Store | None = None
    generate: int | Function | None = None
    count: int | None = None
    follow: bool | None = None
    rate: float | None = None
    separator: str = ","
    types: dict[str, str] = {}
    servers: str = SERVERS
    start: Start = "earliest"
    format: Format = "json"
    metadata: bool = False
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one(self) -> Read:
        _only_one(self, ("json_lines", "csv", "parquet", "kafka", "delta", "gofs", "http", "generate"))
        return self


class Write(Definition):
    """What a sink writes: one of `parquet`, `json_lines`, `csv`, `delta`, `kafka`, or `print`."""

    parquet: str | None = None
    json_lines: str | None = None
    csv: str | None = None
    kafka: str | None = None
    delta: DeltaTarget | None = None
    print: Literal[True] | None = None
    servers: str = SERVERS
    key: str | None = None
    format: Format = "json"
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one(self) -> Write:
        _only_one(self, ("parquet", "json_lines", "csv", "delta", "kafka", "print"))
        return self

    def sink(self) -> Sink:
        """Return the sink."""
        if self.parquet is not None:
            return write_parquet(self.parquet)
        if self.json_lines is not None:
            return write_json_lines(self.json_lines)
        if self.kafka is not None:
            return write_kafka(self.kafka, self.servers, key=self.key, format=self.format, options=self.options)
        if self.delta is not None:
            return write_delta(**self.delta.model_dump(exclude_none=True))
        return print_values() if self.csv is None else write_csv(self.csv)


class Windows(Definition):
    """One of `tumbling`, `sliding` with `slide`, or `session`: durations such as ``1min``."""

    tumbling: Time | None = None
    sliding: Time | None = None
    slide: Time | None = None
    session: Time | None = None

    @model_validator(mode="after")
    def _one(self) -> Windows:
        _only_one(self, ("tumbling", "sliding", "session"))
        if (self.sliding is None) != (self.slide is None):
            raise ValueError("give sliding and slide together")
        return self

    def window(self) -> Window:
        """Return the window."""
        if self.tumbling is not None:
            return tumbling(self.tumbling)
        if self.session is not None:
            return session(self.session)
        assert self.sliding is not None and self.slide is not None
        return sliding(self.sliding, self.slide)


def _only_one(given: Definition, names: tuple[str, ...]) -> None:
    if sum(getattr(given, name) is not None for name in names) != 1:
        raise ValueError(f"give exactly one of {', '.join(names)}")


class Choice(Definition):
    """An alternate of an operator."""

    function: Function
    cost: float
    value: float = 1.0
    selectivity: float = 1.0


class _Named(Definition):
    name: str


class SourceEntry(_Named):
    """A source."""

    kind: Literal["source"]
    read: Read
    time: str | None = None
    lateness: Time = 0
    idle: Time | None = None


class FunctionEntry(_Named):
    """An operator with a function of a record, or of an Arrow batch."""

    kind: Literal["map", "filter", "flat_map", "map_batches"]
    input: str
    function: Function
    alternates: dict[str, Choice] = {}
    cost: float | None = None
    value: float = 1.0


class TimeEntry(_Named):
    """An operator that sets the event time."""

    kind: Literal["event_time"]
    input: str
    time: str
    lateness: Time = 0


class BranchEntry(_Named):
    """An operator with several outputs, which are inputs of others as ``name.output``."""

    kind: Literal["branch"]
    input: str
    outputs: dict[str, Function]


class UnionEntry(_Named):
    """An operator that sends the records of several streams."""

    kind: Literal["union"]
    inputs: Annotated[list[str], Field(min_length=2)]


class LoopEntry(_Named):
    """The beginning of a cycle, which `returns` the records of a later operator."""

    kind: Literal["loop"]
    returns: str


class _Keyed(_Named):
    input: str
    key: str
    window: Windows | None = None
    time: str | None = None
    lateness: Time = 0


class AggregateEntry(_Keyed):
    """Aggregates of every key: the function of every result, or function and column."""

    kind: Literal["aggregate"]
    results: Annotated[dict[str, str | tuple[str, str]], Field(min_length=1)]


class ReduceEntry(_Keyed):
    """Totals of every key."""

    kind: Literal["reduce"]
    function: Function
    initial: Any = None


class JoinEntry(_Named):
    """Pairs of records of two streams."""

    kind: Literal["join"]
    left: str
    right: str
    left_key: str
    right_key: str
    within: Time | None = None
    window: Windows | None = None
    function: Function | None = None

    @model_validator(mode="after")
    def _one(self) -> JoinEntry:
        _only_one(self, ("within", "window"))
        return self


class ProcessEntry(_Named):
    """An operator with a class of the user."""

    kind: Literal["process"]
    input: str
    key: str
    function: Function


class SinkEntry(_Named):
    """A sink."""

    kind: Literal["sink"]
    input: str
    write: Write


Entry = Annotated[
    SourceEntry | FunctionEntry | TimeEntry | BranchEntry | UnionEntry | LoopEntry | AggregateEntry | ReduceEntry
    | JoinEntry | ProcessEntry | SinkEntry,
    Field(discriminator="kind"),
]  # fmt: skip


class FlowFile(Definition):
    """A flow, with its operators after those that they receive records from."""

    name: str
    on_error: Literal["fail"] | Write = "fail"
    max_errors: int | None = None
    operators: Annotated[list[Entry], Field(min_length=1)]


def read_flow(path: str | Path | Mapping[str, Any]) -> Flow:
    """Read a flow from a YAML file.

    Parameters
    ----------
    path : str, Path or mapping
        The file, or its content. Functions are named as ``module:function``; modules beside the file are found.

    Returns
    -------
    Flow

    Raises
    ------
    InputError
        The file is invalid, a function cannot be imported, or PyYAML is missing; names the file and the field.

    Examples
    --------
    >>> import goffish as gf
    >>> flow = gf.stream.read_flow({
    ...     "name": "numbers",
    ...     "operators": [
    ...         {"name": "numbers", "kind": "source", "read": {"generate": 3}},
    ...         {"name": "texts", "kind": "map", "input": "numbers", "function": "builtins:str"},
    ...         {"name": "out", "kind": "sink", "input": "texts", "write": {"print": True}},
    ...     ],
    ... })
    >>> _ = flow.run()
    0
    1
    2
    """
    given = read_definition(FlowFile, path, "flow", "name and operators")
    where = "flow" if isinstance(path, Mapping) else str(path)
    folder = None if isinstance(path, Mapping) else str(Path(path).absolute().parent)
    if folder is not None:
        sys.path.insert(0, folder)
    try:
        return _Builder(given, where).build()
    finally:
        if folder is not None:
            sys.path.remove(folder)


class _Builder:
    """Makes the flow of a file."""

    def __init__(self, given: FlowFile, where: str) -> None:
        self._given, self._where = given, where
        self._streams: dict[str, Stream] = {}

    def build(self) -> Flow:
        """Return the flow."""
        given = self._given
        error = given.on_error if isinstance(given.on_error, str) else given.on_error.sink()
        try:
            self._flow = Flow(given.name, on_error=error, max_errors=given.max_errors)
        except InputError as problem:
            raise InputError(f"{self._where}: {problem}") from None
        loops: list[tuple[str, Loop, str]] = []
        for at, entry in enumerate(given.operators):
            field = f"operators[{at}]"
            try:
                if isinstance(entry, LoopEntry):
                    made = self._flow.loop(entry.name)
                    self._streams[entry.name] = made
                    loops.append((f"{field}.returns", made, entry.returns))
                else:
                    self._streams |= self._add(entry, field)
            except InputError as problem:
                text = str(problem)
                raise InputError(text if text.startswith(self._where) else f"{self._where}: {field}: {text}") from None
        for field, loop, returned in loops:
            loop.close(self._stream(returned, field))
        return self._flow

    def _add(self, entry: Any, field: str) -> dict[str, Stream]:
        name = entry.name
        if isinstance(entry, SourceEntry):
            source = self._source(entry.read, f"{field}.read")
            time = self._key(entry.time, f"{field}.time")
            return {name: self._flow.source(source, time=time, lateness=entry.lateness, idle=entry.idle, name=name)}
        if isinstance(entry, UnionEntry):
            first, *others = [self._stream(one, f"{field}.inputs[{at}]") for at, one in enumerate(entry.inputs)]
            return {name: first.union(*others, name=name)}
        if isinstance(entry, JoinEntry):
            return {name: self._join(entry, field)}
        stream = self._stream(entry.input, f"{field}.input")
        if isinstance(entry, FunctionEntry):
            alternates = {
                key: Alternate(
                    self._function(one.function, f"{field}.alternates.{key}"), one.cost, one.value, one.selectivity
                )
                for key, one in entry.alternates.items()
            }
            function = self._function(entry.function, f"{field}.function")
            method = getattr(stream, entry.kind)
            made = method(function, name=name, alternates=alternates or None, cost=entry.cost, value=entry.value)
            return {name: made}
        if isinstance(entry, TimeEntry):
            time = self._key(entry.time, f"{field}.time")
            assert time is not None
            return {name: stream.event_time(time, lateness=entry.lateness, name=name)}
        if isinstance(entry, BranchEntry):
            chosen = {key: self._function(one, f"{field}.outputs.{key}") for key, one in entry.outputs.items()}
            return {f"{name}.{key}": one for key, one in stream.branch(chosen, name=name).items()}
        if isinstance(entry, SinkEntry):
            stream.sink(entry.write.sink(), name=name)
            return {}
        key = self._key(entry.key, f"{field}.key")
        assert key is not None
        if isinstance(entry, ProcessEntry):
            return {name: stream.key_by(key).process(self._function(entry.function, f"{field}.function"), name=name)}
        keyed = stream.key_by(key)
        grouped: KeyedStream | WindowedStream = keyed
        if entry.window is not None:
            time = self._key(entry.time, f"{field}.time")
            grouped = keyed.window(entry.window.window(), time=time, lateness=entry.lateness)
        elif entry.time is not None or entry.lateness:
            raise InputError("time and lateness require a window")
        if isinstance(entry, ReduceEntry):
            function = self._function(entry.function, f"{field}.function")
            made = grouped.reduce(function, initial=entry.initial, name=name)
        else:
            made = grouped.aggregate(name=name, **entry.results)
        return {name: made} if entry.window is None else {name: made, f"{name}.late": made.late()}

    def _join(self, entry: JoinEntry, field: str) -> Stream:
        keys = [
            self._key(one, f"{field}.{side}_key")
            for side, one in (("left", entry.left_key), ("right", entry.right_key))
        ]
        left, right = (
            self._stream(one, f"{field}.{side}").key_by(key)  # type: ignore[arg-type]
            for one, side, key in zip((entry.left, entry.right), ("left", "right"), keys, strict=True)
        )
        function = None if entry.function is None else self._function(entry.function, f"{field}.function")
        if entry.window is not None:
            made = left.window(entry.window.window()).join(right, function=function, name=entry.name)
        else:
            assert entry.within is not None
            made = left.join(right, within=entry.within, function=function, name=entry.name)
        self._streams[f"{entry.name}.late"] = made.late()
        return made

    def _source(self, read: Read, field: str) -> Source:
        if read.generate is not None:
            if isinstance(read.generate, int):
                return generate(count=read.generate, rate=read.rate)
            return generate(self._function(read.generate, f"{field}.generate"), count=read.count, rate=read.rate)
        if read.csv is not None:
            separator, types = read.separator, read.types
            return read_csv(read.csv, follow=bool(read.follow), rate=read.rate, separator=separator, types=types)
        if read.json_lines is not None:
            return read_json_lines(read.json_lines, follow=bool(read.follow), rate=read.rate)
        if read.kafka is not None:
            return read_kafka(
                read.kafka, read.servers, start=read.start, format=read.format, metadata=read.metadata,
                follow=read.follow is not False, rate=read.rate, options=read.options,
            )  # fmt: skip
        if read.http is not None:
            return receive_http(**read.http.model_dump(exclude_none=True))
        if read.delta is not None:
            return read_delta(**read.delta.model_dump(exclude_none=True))
        if read.gofs is not None:
            return read_gofs(**read.gofs.model_dump(exclude_none=True))
        assert read.parquet is not None
        return read_parquet(read.parquet, follow=bool(read.follow), rate=read.rate)

    def _stream(self, name: str, field: str) -> Stream:
        found = self._streams.get(name)
        if found is None:
            accepted = ", ".join(self._streams) or "none yet; begin with a source"
            raise InputError(
                f"{self._where}: {field} = {name!r}: no such stream before this operator; known: {accepted}"
            )
        return found

    def _key(self, text: str | None, field: str) -> Key | None:
        """Return a column, or the function of ``module:function``."""
        return self._function(text, field) if text is not None and ":" in text else text

    def _function(self, text: str, field: str) -> Callable[..., Any]:
        module, _, name = text.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"{self._where}: {field} = {text!r}: cannot be imported ({error})") from None
        if not callable(found):
            raise InputError(f"{self._where}: {field} = {text!r}: {type(found).__name__} is not callable")
        return found  # type: ignore[no-any-return]
