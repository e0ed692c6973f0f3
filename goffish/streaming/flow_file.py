"""Flows in files: Python, or YAML with functions named as ``module:function``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from goffish.definitions import Definition, read_definition
from goffish.errors import InputError
from goffish.modules import load_module
from goffish.partial import local_path
from goffish.streaming.delta import read_delta, write_delta
from goffish.streaming.flow import Flow, KeyedStream, Loop, Stream, WindowedStream
from goffish.streaming.gofs_source import read_gofs
from goffish.streaming.grpc_source import receive_grpc
from goffish.streaming.http_source import receive_http
from goffish.streaming.kafka import SERVERS, Format, Start, read_kafka, write_kafka
from goffish.streaming.reservoir import write_reservoir
from goffish.streaming.sinks import Sink, print_values, write_csv, write_json_lines, write_parquet
from goffish.streaming.sources import Source, generate, read_csv, read_json_lines, read_parquet
from goffish.streaming.topology import Alternate, Key
from goffish.streaming.webhook import post_json_lines
from goffish.streaming.windows import Window, session, sliding, tumbling

Function = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]


def _time(given: Any) -> Any:
    """Reject what is no duration before its types are tried one after the other."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError("must be a duration, such as 1min or a number of seconds")
    return given


Time = Annotated[str | float, BeforeValidator(_time)]
_Given = TypeVar("_Given")


class Receive(Definition):
    """Arguments of `receive_http` and `receive_grpc`."""

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


class PostTarget(Definition):
    """Arguments of `post_json_lines`."""

    url: str
    secret: str | None = None
    timeout: Time | None = None
    patience: Time | None = None


class ReservoirTarget(Definition):
    """Arguments of `write_reservoir`."""

    path: str
    pool: str
    time: str | None = None
    id: str | None = None


class Read(Definition):
    """What a source reads: `source` is a source in a module; the others are the functions that read it."""

    kinds: ClassVar = ("json_lines", "csv", "parquet", "kafka", "delta", "gofs", "grpc", "http", "generate", "source")

    json_lines: str | None = None
    csv: str | None = None
    parquet: str | None = None
    kafka: str | None = None
    grpc: Receive | None = None
    http: Receive | None = None
    delta: Delta | None = None
    gofs: Store | None = None
    generate: int | Function | None = None
    source: Function | None = None
    count: int | None = None
    follow: bool | None = None
    rate: float | None = None
    speed: float | None = None
    separator: str = ","
    types: dict[str, str] = {}
    columns: list[str] | None = None
    servers: str = SERVERS
    start: Start = "earliest"
    format: Format = "json"
    metadata: bool = False
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one(self) -> Read:
        _only_one(self, self.kinds)
        if self.speed is not None and not (self.json_lines or self.csv or self.parquet):
            raise ValueError("speed: accepted with json_lines, csv and parquet")
        return self


class Write(Definition):
    """What a sink writes: `sink` is a sink in a module, and `result` is the result of a job of the service."""

    kinds: ClassVar = ("parquet", "json_lines", "csv", "delta", "kafka", "post", "reservoir", "print", "sink", "result")

    parquet: str | None = None
    json_lines: str | None = None
    csv: str | None = None
    kafka: str | None = None
    delta: DeltaTarget | None = None
    post: PostTarget | None = None
    reservoir: ReservoirTarget | None = None
    print: Literal[True] | None = None
    sink: Function | None = None
    result: Literal[True] | None = None
    servers: str = SERVERS
    key: str | None = None
    format: Format = "json"
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one(self) -> Write:
        _only_one(self, self.kinds)
        return self


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


def kind_of(given: Read | Write) -> str:
    """Return which of its kinds a definition is.

    Parameters
    ----------
    given : Read or Write

    Returns
    -------
    str
    """
    return next(name for name in given.kinds if getattr(given, name) is not None)


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

    kind: Literal["map", "filter", "flat_map", "map_batches", "filter_batches"]
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
    migrate: Function | None = None


class ReduceEntry(_Keyed):
    """Totals of every key."""

    kind: Literal["reduce"]
    function: Function
    initial: Any = None
    migrate: Function | None = None


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
    migrate: Function | None = None


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


class Names:
    """What the names in a flow are: here, importable functions, and paths. Services accept fewer of them."""

    def find(self, text: str) -> Any:
        """Return what ``module:name`` names.

        Parameters
        ----------
        text : str

        Returns
        -------
        object

        Raises
        ------
        InputError
            It does not exist.
        """
        module, _, name = text.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"cannot be imported ({error})") from None
        return found

    def read(self, given: Read) -> Read:
        """Return what a source reads.

        Parameters
        ----------
        given : Read

        Returns
        -------
        Read

        Raises
        ------
        InputError
            It is not accepted.
        """
        return given

    def write(self, given: Write) -> Write:
        """Return what a sink writes.

        Parameters
        ----------
        given : Write

        Returns
        -------
        Write

        Raises
        ------
        InputError
            It is not accepted.
        """
        if given.result is not None:
            raise InputError("result: only jobs of the service have one; write to another target")
        return given


def read_flow(path: str | Path | Mapping[str, Any] | FlowFile, names: Names | None = None) -> Flow:
    """Read a flow from a YAML file.

    Parameters
    ----------
    path : str, Path, mapping or FlowFile
        The file, or its content. Functions are named as ``module:function``; modules beside the file are found.
    names : Names, optional
        What names are, for services that accept fewer of them.

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
    of_file = isinstance(path, str | Path)
    where = str(path) if of_file else "flow"
    folder = str(Path(path).absolute().parent) if of_file else None  # type: ignore[arg-type]
    if folder is not None:
        sys.path.insert(0, folder)
    try:
        return _Builder(given, where, names or Names()).build()
    finally:
        if folder is not None:
            sys.path.remove(folder)


class _Builder:
    """Makes the flow of a file."""

    def __init__(self, given: FlowFile, where: str, names: Names) -> None:
        self._given, self._where, self._names = given, where, names
        self._streams: dict[str, Stream] = {}

    def build(self) -> Flow:
        """Return the flow."""
        given = self._given
        error = given.on_error if isinstance(given.on_error, str) else self._sink(given.on_error, "on_error")
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
            stream.sink(self._sink(entry.write, f"{field}.write"), name=name)
            return {}
        key = self._key(entry.key, f"{field}.key")
        assert key is not None
        migrate = None if entry.migrate is None else self._function(entry.migrate, f"{field}.migrate")
        if isinstance(entry, ProcessEntry):
            logic = self._function(entry.function, f"{field}.function")
            return {name: stream.key_by(key).process(logic, name=name, migrate=migrate)}
        keyed = stream.key_by(key)
        grouped: KeyedStream | WindowedStream = keyed
        if entry.window is not None:
            time = self._key(entry.time, f"{field}.time")
            grouped = keyed.window(entry.window.window(), time=time, lateness=entry.lateness)
        elif entry.time is not None or entry.lateness:
            raise InputError("time and lateness require a window")
        if isinstance(entry, ReduceEntry):
            function = self._function(entry.function, f"{field}.function")
            made = grouped.reduce(function, initial=entry.initial, name=name, migrate=migrate)
        else:
            made = grouped.aggregate(name=name, migrate=migrate, **entry.results)
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
        read = self._accepted(self._names.read, read, field)
        if read.source is not None:
            return self._found(read.source, f"{field}.source", Source)  # type: ignore[no-any-return]
        if read.generate is not None:
            if isinstance(read.generate, int):
                return generate(count=read.generate, rate=read.rate)
            return generate(self._function(read.generate, f"{field}.generate"), count=read.count, rate=read.rate)
        if read.csv is not None:
            return read_csv(
                read.csv, follow=bool(read.follow), rate=read.rate, speed=read.speed, separator=read.separator,
                types=read.types, columns=read.columns,
            )  # fmt: skip
        if read.json_lines is not None:
            return read_json_lines(read.json_lines, follow=bool(read.follow), rate=read.rate, speed=read.speed)
        if read.kafka is not None:
            return read_kafka(
                read.kafka, read.servers, start=read.start, format=read.format, metadata=read.metadata,
                follow=read.follow is not False, rate=read.rate, options=read.options,
            )  # fmt: skip
        if read.http is not None:
            return receive_http(**read.http.model_dump(exclude_none=True))
        if read.grpc is not None:
            return receive_grpc(**read.grpc.model_dump(exclude_none=True))
        if read.delta is not None:
            return read_delta(**read.delta.model_dump(exclude_none=True))
        if read.gofs is not None:
            return read_gofs(**read.gofs.model_dump(exclude_none=True))
        assert read.parquet is not None
        return read_parquet(
            read.parquet, follow=bool(read.follow), rate=read.rate, speed=read.speed, columns=read.columns
        )

    def _sink(self, write: Write, field: str) -> Sink:
        write = self._accepted(self._names.write, write, field)
        if write.sink is not None:
            return self._found(write.sink, f"{field}.sink", Sink)  # type: ignore[no-any-return]
        if write.parquet is not None:
            return write_parquet(write.parquet)
        if write.json_lines is not None:
            return write_json_lines(write.json_lines)
        if write.kafka is not None:
            return write_kafka(write.kafka, write.servers, key=write.key, format=write.format, options=write.options)
        if write.delta is not None:
            return write_delta(**write.delta.model_dump(exclude_none=True))
        if write.post is not None:
            return post_json_lines(**write.post.model_dump(exclude_none=True))
        if write.reservoir is not None:
            return write_reservoir(**write.reservoir.model_dump(exclude_none=True))
        return print_values() if write.csv is None else write_csv(write.csv)

    def _accepted(self, check: Callable[[_Given], _Given], given: _Given, field: str) -> _Given:
        try:
            return check(given)
        except InputError as error:
            raise InputError(f"{self._where}: {field}: {error}") from None

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
        found = self._found(text, field, object)
        if not callable(found):
            raise InputError(f"{self._where}: {field} = {text!r}: {type(found).__name__} is not callable")
        return found  # type: ignore[no-any-return]

    def _found(self, text: str, field: str, kind: type[Any]) -> Any:
        try:
            found = self._names.find(text)
        except InputError as error:
            raise InputError(f"{self._where}: {field} = {text!r}: {error}") from None
        if not isinstance(found, kind):
            expected = kind.__name__.lower()
            raise InputError(f"{self._where}: {field} = {text!r}: {type(found).__name__} is not a {expected}")
        return found


def load_flow(given: str) -> Flow:
    """Return the flow of a Python or YAML file.

    Parameters
    ----------
    given : str
        Path of the file; for Python, with ``:name`` if it has several flows.

    Raises
    ------
    InputError
        The file cannot be read or run, or has no such flow.
    """
    path, _, name = given.rpartition(":") if ".py:" in given else (given, "", "")
    if local_path(path).suffix in (".yaml", ".yml", ".json"):
        return read_flow(path)
    file = local_path(path)
    if file.suffix != ".py":
        raise InputError(f"{path}: the suffix must be one of .py, .yaml, .yml, .json")
    if not file.is_file():
        raise InputError(f"{path}: no such file")
    flows = {key: value for key, value in vars(load_module(file)).items() if isinstance(value, Flow)}
    if name:
        if name not in flows:
            raise InputError(f"{path}: no flow {name!r}; it has {', '.join(flows) or 'none'}")
        return flows[name]
    if len(flows) != 1:
        found = f"it has {', '.join(flows)}; name one, as in {path}:{next(iter(flows))}" if flows else "it has none"
        raise InputError(f"{path}: must have one flow at the top level; {found}")
    return next(iter(flows.values()))
