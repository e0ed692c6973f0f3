"""The description of a checked flow: operators and the channels between them, as immutable records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.streaming.aggregates import Aggregate
from goffish.streaming.windows import Window

if TYPE_CHECKING:
    from goffish.streaming.sinks import Sink
    from goffish.streaming.sources import Source

#: A column, or a function of the record.
Key = str | Callable[[Any], Any]
#: Core-seconds of a message where no cost is given: the order of a Python function call.
DEFAULT_COST = 1e-6
MAIN = "main"


@dataclass(frozen=True)
class Alternate:
    """One implementation of an operator.

    Parameters
    ----------
    function : callable
        Has the same kind of argument and result as that of the operator.
    cost : float
        Core-seconds for one message.
    value : float
        Quality of the results relative to the best alternate, more than 0 and at most 1.
    selectivity : float
        Messages sent for each received message.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.Alternate(str.upper, cost=0.002, value=0.8).value
    0.8
    """

    function: Callable[..., Any]
    cost: float = DEFAULT_COST
    value: float = 1.0
    selectivity: float = 1.0


@dataclass(frozen=True)
class SourceOptions:
    """Where records come from, and their event time."""

    source: Source
    time: Key | None = None
    lateness: int = 0
    idle: int | None = None


@dataclass(frozen=True)
class SinkOptions:
    """Where records leave the flow."""

    sink: Sink


@dataclass(frozen=True)
class TimeOptions:
    """Event time of records, and how much earlier than the latest one a record may be."""

    time: Key
    lateness: int = 0


@dataclass(frozen=True)
class BranchOptions:
    """Outputs by name, each with a predicate; a record leaves by the first whose predicate holds."""

    predicates: Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True)
class AggregateOptions:
    """Aggregates of every key, in windows or without."""

    aggregates: tuple[Aggregate, ...]
    window: Window | None = None


@dataclass(frozen=True)
class ReduceOptions:
    """First total of every key, in windows or without."""

    initial: Any
    window: Window | None = None


@dataclass(frozen=True)
class JoinOptions:
    """Which records of two inputs with one key are joined: at most `within` microseconds apart, or in one window."""

    within: int | None = None
    window: Window | None = None


Options = (
    SourceOptions | SinkOptions | TimeOptions | BranchOptions | AggregateOptions | ReduceOptions | JoinOptions | None
)


@dataclass(frozen=True)
class Channel:
    """Connection from an output of an operator to a port of another one.

    Attributes
    ----------
    source, target : str
        Names of operators.
    output : str
        Output of the source; the main output has no name.
    port : int
        Input of the target.
    key : str or callable, optional
        Records with one key go to the same instance.
    feedback : bool
        Whether the channel closes a cycle.
    """

    source: str
    target: str
    output: str = ""
    port: int = 0
    key: Key | None = None
    feedback: bool = False


@dataclass(frozen=True)
class Operator:
    """One operator of a flow.

    Attributes
    ----------
    name : str
    kind : str
        Such as ``"map"``.
    function : callable, optional
        Function or class of the user.
    inputs : tuple of Channel
    options : dataclass, optional
        Of the kind, such as `WindowOptions`.
    alternates : mapping
        All implementations by name; the first is active at the start.
    migrate : callable, optional
        Takes what the state of the version before has for a key, returns it in the form of this one.
    """

    name: str
    kind: str
    function: Callable[..., Any] | None = None
    inputs: tuple[Channel, ...] = ()
    options: Options = None
    alternates: Mapping[str, Alternate] = field(default_factory=dict)
    migrate: Callable[[Any], Any] | None = None

    @property
    def key(self) -> Key | None:
        """Key of the first input."""
        return self.inputs[0].key if self.inputs else None

    @property
    def keys(self) -> str | None:
        """Columns and functions of the keys of all inputs, for reading."""
        keys = [channel.key for channel in self.inputs if channel.key is not None]
        return ", ".join(one if isinstance(one, str) else getattr(one, "__name__", "function") for one in keys) or None


@dataclass(frozen=True)
class Topology:
    """A checked flow.

    Attributes
    ----------
    name : str
    operators : tuple of Operator
        Every operator comes after those that send to it, but for feedback.
    on_error : Sink, optional
        Receives records that cannot be processed; ``None`` if the flow fails at the first one.
    max_errors : int, optional
    stages : mapping
        Number of every operator's stage, where some have workers of their own.
    file : str, optional
        File that it is from, with ``:name`` if that has several flows.
    """

    name: str
    operators: tuple[Operator, ...]
    on_error: Sink | None = None
    max_errors: int | None = None
    stages: Mapping[str, int] = field(default_factory=dict)
    file: str | None = field(default=None, compare=False)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of all operators."""
        return tuple(channel for one in self.operators for channel in one.inputs)

    def operator(self, name: str) -> Operator:
        """Return an operator by name.

        Parameters
        ----------
        name : str

        Returns
        -------
        Operator

        Raises
        ------
        InputError
            The flow has no such operator.
        """
        for one in self.operators:
            if one.name == name:
                return one
        raise InputError(f"flow {self.name}: no operator {name!r}; choose one of {', '.join(self.names)}")

    def check_access(self) -> None:
        """Raise an error if a source cannot be read, or a sink cannot be written."""
        sources = {one.name: one.options.source for one in self.operators if isinstance(one.options, SourceOptions)}
        checks = [(name, one.check) for name, one in sources.items()]
        for name, check in [*checks, *((name, one.check) for name, one in self.sinks.items())]:
            try:
                check()
            except InputError as error:
                raise InputError(f"operator {name}: {error}") from None

    def check_alternate(self, operator: str, alternate: str) -> None:
        """Check that an operator has an alternate.

        Parameters
        ----------
        operator, alternate : str

        Raises
        ------
        InputError
            The operator or the alternate does not exist.
        """
        known = self.operator(operator).alternates
        if alternate not in known:
            accepted = f"choose one of {', '.join(known)}" if known else "it has none"
            raise InputError(f"operator {operator}: no alternate {alternate!r}; {accepted}")

    @property
    def sinks(self) -> dict[str, Sink]:
        """All sinks by name, with the one for errors."""
        found = {one.name: one.options.sink for one in self.operators if isinstance(one.options, SinkOptions)}
        return found | ({} if self.on_error is None else {"on_error": self.on_error})

    @property
    def names(self) -> list[str]:
        """Names of the operators."""
        return [one.name for one in self.operators]

    def to_dict(self) -> dict[str, Any]:
        """Return names, kinds, alternates, keys and channels as a mapping for JSON.

        Returns
        -------
        dict
        """
        return {
            "flow": self.name, "fingerprint": self.fingerprint,
            "operators": [
                {"name": one.name, "kind": one.kind, "alternates": list(one.alternates), "key": one.keys}
                for one in self.operators
            ],
            "channels": [
                {"source": c.source, "output": c.output, "target": c.target, "port": c.port, "feedback": c.feedback}
                for c in self.channels
            ],
        }  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """Digest of what a checkpoint depends on: names, kinds, keys, windows, aggregates and channels."""
        parts = []
        for one in self.operators:
            channels = [
                (c.source, c.output, c.port, c.key if isinstance(c.key, str) else c.key is not None) for c in one.inputs
            ]
            window = getattr(one.options, "window", None)
            kept = (getattr(one.options, "aggregates", None), getattr(one.options, "within", None))
            parts.append((one.name, one.kind, channels, window, kept))
        return hashlib.sha256(repr(parts).encode()).hexdigest()
