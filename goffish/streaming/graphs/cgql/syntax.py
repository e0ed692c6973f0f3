"""The parts of CGQL queries; their text is that of the query again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from goffish.errors import InputError

Position = tuple[int, int]
#: Of what was not read from a text.
NOWHERE: Position = (0, 0)

_UNITS = (
    ("w", 604_800_000_000), ("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000),
    ("ms", 1000),
)  # fmt: skip
_KEYWORDS = frozenset({
    "and", "as", "cancel", "detect", "emit", "every", "false", "for", "from", "has", "in", "not", "of", "or",
    "ordered", "predates", "repeat", "sharing", "since", "succeeds", "to", "true", "update", "vertices", "where",
    "window", "with", "within",
})  # fmt: skip


class CgqlError(InputError):
    """A query is not accepted.

    Attributes
    ----------
    line, column : int
        Where, counted from 1.
    """

    def __init__(self, message: str, at: Position) -> None:
        self.line, self.column = at
        super().__init__(f"line {at[0]}, column {at[1]}: {message}")


def quoted(name: str) -> str:
    """Return a name as it is written: in back quotes if it is a keyword, or has other characters."""
    plain = name.isidentifier() and name.isascii() and name.lower() not in _KEYWORDS
    return name if plain else f"`{name}`"


def span_text(micros: int) -> str:
    """Return a duration as it is written.

    Examples
    --------
    >>> span_text(5_400_000_000)
    '1h30m'
    """
    parts = []
    for unit, size in _UNITS:
        if micros >= size:
            parts.append(f"{micros // size}{unit}")
            micros %= size
    return "".join(parts) or "0s"


@dataclass(frozen=True)
class Literal:
    """A number, text or truth value."""

    value: int | float | str | bool

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        return json.dumps(self.value, ensure_ascii=False) if isinstance(self.value, str) else repr(self.value)


@dataclass(frozen=True)
class Span:
    """A duration, in microseconds."""

    micros: int

    def __str__(self) -> str:
        return span_text(self.micros)


@dataclass(frozen=True)
class Parameter:
    """A value that comes with the query."""

    name: str
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True)
class Reference:
    """A name with dots: an attribute, a word, or the attribute of a variable."""

    names: tuple[str, ...]
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return ".".join(map(quoted, self.names))


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of an attribute of all vertices, such as ``sum(node.usage)``."""

    function: str
    of: Reference
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{quoted(self.function)}({self.of})"


Operand: TypeAlias = Reference | Aggregate
Value: TypeAlias = Literal | Span | Parameter | Reference


@dataclass(frozen=True)
class Comparison:
    """An operand compared with a value; ``==`` and ``<>`` are read as ``=`` and ``!=``."""

    left: Operand
    operator: str
    right: Value
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class Member:
    """Membership of a live cluster of a topic: ``name = T.*``."""

    left: Operand
    topic: str
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{self.left} = {self.topic}.*"


@dataclass(frozen=True)
class OneOf:
    """``left IN (values)``."""

    left: Operand
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.left} IN ({', '.join(map(str, self.values))})"


@dataclass(frozen=True)
class Has:
    """Whether an attribute exists."""

    of: Reference

    def __str__(self) -> str:
        return f"has({self.of})"


@dataclass(frozen=True)
class Bare:
    """A word as a predicate: an entry of the vocabulary, or the type."""

    operand: Operand

    def __str__(self) -> str:
        return str(self.operand)


@dataclass(frozen=True)
class Not:
    """Negation."""

    part: Predicate

    def __str__(self) -> str:
        return f"NOT {_inner(self.part)}"


@dataclass(frozen=True)
class All:
    """Conjunction."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(map(_inner, self.parts))


@dataclass(frozen=True)
class Any:
    """Disjunction."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({part})" if isinstance(part, Any) else str(part) for part in self.parts)


Predicate: TypeAlias = Comparison | Member | OneOf | Has | Bare | Not | All | Any


def _inner(part: Predicate) -> str:
    return f"({part})" if isinstance(part, All | Any) else str(part)


@dataclass(frozen=True)
class Predicates:
    """Predicates in braces, all of which must hold."""

    parts: tuple[Predicate, ...] = ()

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.parts)) + "}"


@dataclass(frozen=True)
class NamedPredicates:
    """An argument or constraint ``name:{…}``."""

    name: str
    predicates: Predicates
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{quoted(self.name)}:{self.predicates}"


@dataclass(frozen=True)
class NamedValue:
    """An argument ``name: value``."""

    name: str
    value: Value
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{quoted(self.name)}: {self.value}"


@dataclass(frozen=True)
class Name:
    """An argument that is a topic or a measure."""

    operand: Operand
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return str(self.operand)


@dataclass(frozen=True)
class Node:
    """A vertex of a path."""

    variable: str | None = None
    predicates: Predicates | None = None
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"({_element(self.variable, self.predicates)})"


@dataclass(frozen=True)
class Edge:
    """An edge of a path; the direction is ``">"``, ``"<"`` or ``"-"``."""

    direction: str
    variable: str | None = None
    predicates: Predicates | None = None
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        inner = _element(self.variable, self.predicates)
        start, end = "<-" if self.direction == "<" else "-", "->" if self.direction == ">" else "-"
        return f"{start}[{inner}]{end}" if inner else start + end


def _element(variable: str | None, predicates: Predicates | None) -> str:
    named = "" if variable is None else quoted(variable)
    return named if predicates is None else f"{named}:{predicates}"


@dataclass(frozen=True)
class Path:
    """Vertices and the edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        parts = [str(self.nodes[0])]
        for edge, node in zip(self.edges, self.nodes[1:], strict=True):
            parts += [str(edge), str(node)]
        return "".join(parts)


Argument: TypeAlias = NamedPredicates | NamedValue | Comparison | Member | OneOf | Name | Path


@dataclass(frozen=True)
class Between:
    """``FROM a TO b``: ISO 8601 or cron texts."""

    start: str
    end: str | None = None
    repeats: bool = False
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        end = "" if self.end is None else f" {json.dumps(self.end, ensure_ascii=False)}"
        return f"FROM {json.dumps(self.start, ensure_ascii=False)} TO{end}" + " REPEAT" * self.repeats


@dataclass(frozen=True)
class For:
    """``FOR d``: from now on."""

    span: Span
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"FOR {self.span}"


@dataclass(frozen=True)
class Since:
    """``SINCE d``: until now."""

    span: Span
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"SINCE {self.span}"


@dataclass(frozen=True)
class Ordered:
    """Delivery strictly in order."""

    def __str__(self) -> str:
        return "ORDERED"


@dataclass(frozen=True)
class Topic:
    """Another query by its topic, with the statuses that count."""

    name: str
    statuses: tuple[str, ...] = ()
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return quoted(self.name) + (f"[{', '.join(map(quoted, self.statuses))}]" if self.statuses else "")


@dataclass(frozen=True)
class Temporal:
    """``SUCCEEDS`` or ``PREDATES`` events of another query."""

    relation: str
    of: Topic | Query
    count: int = 1
    within: Span | None = None
    shares: bool = False
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        count = f" {self.count} OF" if self.count != 1 else ""
        of = f" ({self.of})" if isinstance(self.of, Query) else f" {self.of}"
        within = "" if self.within is None else f" WITHIN {self.within}"
        return f"{self.relation}{count}{of}{within}" + " SHARING VERTICES" * self.shares


Constraint: TypeAlias = NamedPredicates | Comparison | Member | OneOf | Ordered | Temporal


@dataclass(frozen=True)
class Option:
    """``name = value`` of ``WITH``."""

    name: str
    value: Literal | Span | Parameter | Reference
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{quoted(self.name)} = {self.value}"


@dataclass(frozen=True)
class Query:
    """``DETECT`` with all its clauses."""

    pattern: str
    arguments: tuple[Argument, ...] = ()
    duration: Between | For | Since | None = None
    window: Span | None = None
    where: tuple[Constraint, ...] = ()
    every: Span | None = None
    options: tuple[Option, ...] = ()
    topic: str | None = None
    at: Position = field(default=NOWHERE, compare=False)

    @property
    def wall_span(self) -> int | None:
        """Microseconds after which it ends by the clock of the machine; ``None`` if event time counts."""
        is_wall = any(one.name == "clock" and getattr(one.value, "value", None) == "wall" for one in self.options)
        return self.duration.span.micros if is_wall and isinstance(self.duration, For) else None

    def __str__(self) -> str:
        parts = [f"DETECT {quoted(self.pattern)}({', '.join(map(str, self.arguments))})"]
        if self.duration is not None:
            parts.append(str(self.duration))
        if self.window is not None:
            parts.append(f"WINDOW {self.window}")
        if self.where:
            parts.append("WHERE " + " AND ".join(map(str, self.where)))
        if self.every is not None:
            parts.append(f"EMIT EVERY {self.every}")
        if self.options:
            parts.append(f"WITH ({', '.join(map(str, self.options))})")
        if self.topic is not None:
            parts.append(f"AS {quoted(self.topic)}")
        return " ".join(parts)


@dataclass(frozen=True)
class Detects:
    """Queries that are registered together."""

    queries: tuple[Query, ...]

    def __str__(self) -> str:
        return "\nAND ".join(map(str, self.queries))


@dataclass(frozen=True)
class Cancel:
    """Ends a query."""

    topic: str
    at: Position = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"CANCEL {quoted(self.topic)}"


Statement: TypeAlias = Detects | Cancel


@dataclass(frozen=True)
class Script:
    """A text of statements."""

    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        return ";\n".join(map(str, self.statements))

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries, in their order."""
        return tuple(one for part in self.statements if isinstance(part, Detects) for one in part.queries)
