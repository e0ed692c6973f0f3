"""What must hold for queries before they are registered, and the values of their words and parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

from goffish.streaming.graphs.cgql import extensions, syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError, Position

_DIRECTIONS = ("out", "in", "both")
_CLUSTERS = ("Cluster", "Component")
#: Values that a query of a pattern names or has conditions on.
MEASURES = ("size", "edges", "density", "diameter")
AGGREGATES = ("sum", "avg", "min", "max", "count")
_MOST_VERTICES, _MOST_EDGES = 5, 6
#: A hundred years, in microseconds.
_LONGEST = 36_525 * 86_400_000_000
#: Statuses of events, by pattern; the first ones open an answer.
STATUSES = {
    "Reach": ("REACHABLE", "UNREACHABLE"),
    "Cluster": ("CREATED", "SPLIT", "DISAPPEARED", "MERGED", "GROWN", "JOINED", "PARTED"),
    "Component": ("CREATED", "SPLIT", "DISAPPEARED", "MERGED", "GROWN", "JOINED", "PARTED"),
    "Evolved": ("EVOLVED",), "Neighbourhood": ("ENTERED", "LEFT"), "Motif": ("MATCHED", "UNMATCHED"),
    "Degree": ("RAISED", "CLEARED"), "Centrality": ("ENTERED", "LEFT"), "Match": ("MATCHED", "UNMATCHED"),
}  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """Arguments of a pattern.

    Attributes
    ----------
    sets : tuple of str
        Arguments ``name:{…}``.
    numbers, flags, words : tuple of str
        Arguments ``name: value``: integers of at least 1, true or false, texts.
    choices : mapping
        Arguments with one of several words.
    required : tuple of str
    takes : str
        Other arguments: ``"measures"``, ``"degree"``, ``"paths"``, ``"topic"``, or none.
    """

    sets: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    takes: str = ""
    words: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """Names of all arguments that have one."""
        return (*self.sets, *self.numbers, *self.flags, *self.choices, *self.words)


PATTERNS = {
    "Reach": Arguments(("source", "sink"), ("hops",), choices={"direction": _DIRECTIONS}),
    "Cluster": Arguments(("contains",), ("min_size", "grow"), ("members",), takes="measures"),
    "Component": Arguments(("contains",), ("min_size", "grow"), ("members",)),
    "Evolved": Arguments(takes="topic"),
    "Neighbourhood": Arguments(("center",), ("hops",), choices={"direction": _DIRECTIONS}, required=("hops",)),
    "Motif": Arguments(takes="paths"),
    "Degree": Arguments(("vertex",), ("clear",), ("distinct",), {"direction": _DIRECTIONS}, takes="degree"),
    "Centrality": Arguments((), ("top",), choices={"measure": ("degree", "pagerank")}, required=("measure", "top")),
    "Match": Arguments(("vertex", "edge")),
}
#: Columns of all events, and of those of motifs.
COLUMNS = ("offset", "time", "status", "released", "initial", "late", "resolution", "reason", "event_id", "edges")
#: Options, and what they are.
_OPTIONS = {
    "initial": "true or false", "clock": "event or wall", "tz": "a text", "track": "a span such as 24h",
    "max_members": "an integer of at least 1", "limit": "an integer of at least 1",
}  # fmt: skip
#: Patterns of options that are not for all.
_PATTERNS_OF = {"max_members": (*_CLUSTERS, "Evolved"), "track": ("Evolved",)}


@dataclass(frozen=True)
class Checked:
    """A query with values for all words, and the topics that it names.

    Attributes
    ----------
    query : Query
    topic : str
    after : tuple of str
        Topics that it names, whose events come first.
    """

    query: syntax.Query
    topic: str
    after: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.query)


def check(
    script: syntax.Script, parameters: Mapping[str, Any] | None = None, known: Mapping[str, syntax.Query] | None = None
) -> list[Checked]:
    """Check queries, and order them so that those that are named come first.

    Parameters
    ----------
    script : Script
    parameters : mapping, optional
        Values of words and of ``$name``.
    known : mapping, optional
        Queries that are registered already, by topic.

    Returns
    -------
    list of Checked

    Raises
    ------
    CgqlError
        A query is not accepted; none is then to be registered.

    Examples
    --------
    >>> from goffish.streaming.graphs.cgql.parser import parse
    >>> print(*check(parse("DETECT Degree(degree >= most) AS busy"), {"most": 3}))
    DETECT Degree(degree >= 3) AS busy
    """
    parameters, known = parameters or {}, known or {}
    queries: dict[str, syntax.Query] = {}
    for one in _named(script, len(known)):
        assert one.topic is not None
        if not one.topic.isidentifier() or not one.topic.isascii():
            raise CgqlError(
                f"topic {one.topic}: accepted are letters, digits and _, which do not begin with a digit", one.at
            )
        if one.topic in queries or one.topic in known:
            raise CgqlError(f"topic {one.topic}: the name is taken", one.at)
        queries[one.topic] = _Query(one, parameters).bound
    everything = {**known, **queries}
    for one in queries.values():
        _check_topics(one, everything)
    ordered = _ordered(queries)
    _check_epochs(ordered, everything)
    return [Checked(one, topic, _topics(one)) for topic, one in ordered.items()]


def _named(script: syntax.Script, count: int) -> Iterator[syntax.Query]:
    """Return all queries, those in others first, with names for those that have none."""
    for one in script.queries:
        where = []
        for part in one.where:
            if isinstance(part, syntax.Temporal) and isinstance(part.of, syntax.Query):
                inner = part.of
                if inner.topic is None:
                    count += 1
                    inner = replace(inner, topic=f"q{count}")
                yield inner
                assert inner.topic is not None
                part = replace(part, of=syntax.Topic(inner.topic, at=inner.at))  # noqa: PLW2901
            where.append(part)
        count += 1
        yield replace(one, where=tuple(where), topic=one.topic or f"q{count}")


class _Query:
    """Checks one query, and replaces its words and parameters."""

    def __init__(self, query: syntax.Query, parameters: Mapping[str, Any]) -> None:
        self._query, self._parameters = query, parameters
        self._pattern = _arguments(query)
        self._variables = self._check_motif()
        arguments = tuple(map(self._argument, query.arguments))
        self._check_arguments(arguments)
        where = tuple(map(self._constraint, query.where))
        options = tuple(map(self._option, query.options))
        self.bound = replace(query, arguments=arguments, where=where, options=options)
        self._check_clauses()

    def _check_arguments(self, arguments: tuple[Any, ...]) -> None:
        query, pattern = self._query, self._pattern
        given: set[str] = set()
        for one in arguments:
            name = getattr(one, "name", None) if isinstance(one, syntax.NamedPredicates | syntax.NamedValue) else None
            if name is not None:
                if name in given:
                    raise CgqlError(f"argument {name}: given twice", one.at)
                given.add(name)
        for name in pattern.required:
            if name not in given:
                raise CgqlError(f"{query.pattern}: argument {name} is missing", query.at)
        others = [one for one in arguments if not isinstance(one, syntax.NamedPredicates | syntax.NamedValue)]
        if pattern.takes == "topic" and len(others) != 1:
            raise CgqlError(f"{query.pattern}: needs one topic of a Cluster or Component", query.at)
        if pattern.takes == "degree" and len(others) != 1:
            raise CgqlError(f"{query.pattern}: needs one comparison of degree", query.at)
        if query.pattern == "Match" and len(given) != 1:
            raise CgqlError("Match: needs either vertex:{} or edge:{}", query.at)
        top = any(one.name == "measure" and str(one.value) == '"pagerank"' for one in arguments if _is_value(one))
        if top and query.every is None:
            raise CgqlError("Centrality: pagerank needs EMIT EVERY", query.at)

    def _argument(self, one: syntax.Argument) -> Any:
        pattern, name = self._pattern, self._query.pattern
        accepted = ", ".join(pattern.named) or "none"
        if isinstance(one, syntax.NamedPredicates):
            if one.name not in pattern.sets:
                raise CgqlError(f"{name}: argument {one.name}:{{}}: unknown; choose from {accepted}", one.at)
            return replace(one, predicates=self._predicates(one.predicates))
        if isinstance(one, syntax.NamedValue):
            return self._named_value(one, accepted)
        if pattern.takes == "paths":
            return self._compared(one) if isinstance(one, syntax.Comparison) else self._path(one)
        if pattern.takes == "topic" and isinstance(one, syntax.Name) and isinstance(one.operand, syntax.Reference):
            return one
        if pattern.takes == "measures" and not isinstance(one, syntax.Name | syntax.Path):
            return self._measure(one, vertices=True)
        if pattern.takes == "degree" and isinstance(one, syntax.Comparison) and str(one.left) == "degree":
            return self._numeric(one)
        at = getattr(one, "at", self._query.at)
        raise CgqlError(f"{name}: argument {one}: not accepted; arguments are {accepted}", at)

    def _named_value(self, one: syntax.NamedValue, accepted: str) -> syntax.NamedValue:
        pattern = self._pattern
        if one.name in pattern.numbers:
            number = self._number(one.value, one.name, one.at)
            if not isinstance(number.value, int) or isinstance(number.value, bool) or number.value < 1:
                raise CgqlError(f"argument {one.name} = {number}: must be an integer of at least 1", one.at)
            return replace(one, value=number)
        value = self._value(one.value)
        if one.name in pattern.flags:
            if not isinstance(getattr(value, "value", None), bool):
                raise CgqlError(f"argument {one.name} = {value}: must be true or false", one.at)
            return replace(one, value=value)
        if one.name in pattern.words:
            if not isinstance(getattr(value, "value", None), str):
                raise CgqlError(f"argument {one.name} = {value}: must be a text", one.at)
            return replace(one, value=value)
        choices = pattern.choices.get(one.name)
        if choices is None:
            raise CgqlError(f"{self._query.pattern}: argument {one.name}: unknown; choose from {accepted}", one.at)
        if getattr(value, "value", None) not in choices:
            raise CgqlError(f"argument {one.name} = {one.value}: choose from {', '.join(choices)}", one.at)
        return replace(one, value=value)

    # Predicates and values.

    def _predicates(self, given: syntax.Predicates) -> syntax.Predicates:
        for one in _walk(given):
            if isinstance(one, syntax.Aggregate):
                raise CgqlError(f"{one}: aggregates are of Cluster, Component and Evolved", one.at)
        return syntax.Predicates(tuple(map(self._bind, given.parts)))

    def _bind(self, part: Any) -> Any:
        """Replace the values of a predicate."""
        if isinstance(part, syntax.Comparison):
            return replace(part, right=self._value(part.right))
        if isinstance(part, syntax.OneOf):
            return replace(part, values=tuple(map(self._value, part.values)))
        if isinstance(part, syntax.Not):
            return syntax.Not(self._bind(part.part))
        if isinstance(part, syntax.All | syntax.Any):
            return type(part)(tuple(map(self._bind, part.parts)))
        return part

    def _value(self, value: syntax.Value) -> syntax.Value:
        if isinstance(value, syntax.Parameter):
            if value.name not in self._parameters:
                raise CgqlError(f"parameter ${value.name}: has no value", value.at)
            return self._given(value.name, value.at)
        if isinstance(value, syntax.Reference):
            if len(value.names) == 1:
                name = value.names[0]
                return self._given(name, value.at) if name in self._parameters else syntax.Literal(name)
            if value.names[0] not in self._variables:
                raise CgqlError(f"{value}: no such variable", value.at)
        return value

    def _given(self, name: str, at: Position) -> syntax.Literal:
        value = self._parameters[name]
        finite = type(value) in (str, bool) or (type(value) is float and math.isfinite(value))
        if not finite and not (type(value) is int and -(1 << 63) <= value < 1 << 63):
            raise CgqlError(
                f"parameter {name} = {value!r:.40}: accepted are integers up to 64 bits, finite numbers, texts, "
                "true and false", at,
            )  # fmt: skip
        return syntax.Literal(value)

    def _number(self, value: syntax.Value, what: str, at: Position) -> syntax.Literal:
        if isinstance(value, syntax.Reference) and len(value.names) == 1 and value.names[0] not in self._parameters:
            raise CgqlError(f"unbound parameter {value}: {what} needs a number", value.at)
        found = self._value(value)
        if not isinstance(found, syntax.Literal) or isinstance(found.value, bool | str):
            raise CgqlError(f"{what} = {found}: must be a number", at)
        return found

    def _numeric(self, one: syntax.Comparison) -> syntax.Comparison:
        return replace(one, right=self._number(one.right, str(one.left), one.at))

    def _measure(self, one: Any, *, vertices: bool) -> Any:
        """Check a predicate of clusters: of a measure or, if accepted, of all vertices."""
        left = one.left
        if isinstance(left, syntax.Aggregate):
            if left.function not in AGGREGATES:
                raise CgqlError(f"{left.function}: unknown aggregate; choose from {', '.join(AGGREGATES)}", left.at)
            counts = left.function == "count" and len(left.of.names) == 1
            if left.of.names[0] not in ("node", "vertex") or not (counts or len(left.of.names) == 2):
                raise CgqlError(f"{left}: accepted are attributes such as node.usage", left.at)
            return self._numeric_only(one)
        if left.names[0] in ("node", "vertex") and len(left.names) == 2:
            if not vertices:
                raise CgqlError(f"{left}: accepted are measures here: {', '.join(MEASURES)} and aggregates", left.at)
            return self._bind(one)
        if left.names[0] not in MEASURES or len(left.names) > 1:
            raise CgqlError(
                f"{left}: unknown measure; choose from {', '.join(MEASURES)}, aggregates such as sum(node.usage)"
                + (", or attributes such as node.usage" if vertices else ""), left.at,
            )  # fmt: skip
        return self._numeric_only(one)

    def _numeric_only(self, one: Any) -> syntax.Comparison:
        if not isinstance(one, syntax.Comparison):
            raise CgqlError(f"{one}: measures are compared with a number", self._query.at)
        return self._numeric(one)

    # Motifs.

    def _check_motif(self) -> set[str]:
        """Check the shape of a motif, and return its variables."""
        paths = [one for one in self._query.arguments if isinstance(one, syntax.Path)]
        if self._pattern.takes != "paths":
            return set()
        if not paths:
            raise CgqlError("Motif: needs a path such as (a)-->(b)", self._query.at)
        vertices: dict[str, set[str]] = {}
        edges, anonymous = set[str](), 0
        links = []
        for path in paths:
            ends = []
            for node in path.nodes:
                anonymous += node.variable is None
                ends.append(node.variable or f" {anonymous}")
                vertices.setdefault(ends[-1], set())
            links += list(pairwise(ends))
            for (a, b), edge in zip(pairwise(ends), path.edges, strict=True):
                if a == b:
                    raise CgqlError(f"variable {a}: an edge to itself; loops match no edge", edge.at)
            for edge in path.edges:
                if edge.variable is not None:
                    if edge.variable in edges:
                        raise CgqlError(f"variable {edge.variable}: names two edges", edge.at)
                    edges.add(edge.variable)
        for path in paths:
            for node in path.nodes:
                if node.variable in COLUMNS:
                    raise CgqlError(f"variable {node.variable}: the name of a column of events; rename it", node.at)
        for name in edges & vertices.keys():
            raise CgqlError(f"variable {name}: names a vertex and an edge", paths[0].at)
        if len(vertices) > _MOST_VERTICES or len(links) > _MOST_EDGES:
            raise CgqlError(
                f"Motif: {len(vertices)} vertices, {len(links)} edges; accepted are at most {_MOST_VERTICES} and "
                f"{_MOST_EDGES}", paths[0].at,
            )  # fmt: skip
        for a, b in links:
            vertices[a].add(b)
            vertices[b].add(a)
        reached, rest = set[str](), [next(iter(vertices))]
        while rest:
            one = rest.pop()
            if one not in reached:
                reached.add(one)
                rest += vertices[one]
        if reached != vertices.keys():
            raise CgqlError("Motif: the paths are not connected", paths[-1].at)
        return edges | {name for name in vertices if not name.startswith(" ")}

    def _compared(self, one: syntax.Comparison) -> syntax.Comparison:
        left = one.left
        if isinstance(left, syntax.Aggregate) or len(left.names) < 2:
            raise CgqlError(f"{left}: accepted are attributes of variables such as a.age", left.at)
        if left.names[0] not in self._variables:
            raise CgqlError(f"{left}: no such variable", left.at)
        if isinstance(one.right, syntax.Span):
            raise CgqlError(f"{one.right}: accepted are numbers, texts, true, false and attributes", one.at)
        return replace(one, right=self._value(one.right))

    def _path(self, one: Any) -> syntax.Path:
        if not isinstance(one, syntax.Path):
            raise CgqlError(f"Motif: {one}: accepted are paths and comparisons", getattr(one, "at", self._query.at))

        def bound(part: Any) -> Any:
            return part if part.predicates is None else replace(part, predicates=self._predicates(part.predicates))

        return replace(one, nodes=tuple(map(bound, one.nodes)), edges=tuple(map(bound, one.edges)))

    # Clauses.

    def _constraint(self, one: syntax.Constraint) -> Any:
        if isinstance(one, syntax.NamedPredicates):
            if one.name not in ("edge", "node", "vertex"):
                raise CgqlError(f"WHERE {one.name}:{{}}: accepted are edge and node", one.at)
            return replace(one, predicates=self._predicates(one.predicates))
        if isinstance(one, syntax.Ordered | syntax.Temporal):
            return one
        if str(one.left) == "status" and isinstance(one, syntax.Comparison):
            value, known = self._value(one.right), _statuses(self._query)
            if one.operator not in ("=", "!=") or getattr(value, "value", None) not in known:
                raise CgqlError(f"status {one.operator} {value}: choose = or != and {', '.join(known)}", one.at)
            return replace(one, right=value)
        if self._query.pattern not in (*_CLUSTERS, "Evolved"):
            raise CgqlError(f"WHERE {one}: measures are of Cluster, Component and Evolved", self._query.at)
        return self._measure(one, vertices=False)

    def _option(self, one: syntax.Option) -> syntax.Option:
        if one.name not in _OPTIONS:
            raise CgqlError(f"WITH {one.name}: unknown; choose from {', '.join(_OPTIONS)}, vocabulary", one.at)
        if self._query.pattern not in (accepting := _PATTERNS_OF.get(one.name, (self._query.pattern,))):
            raise CgqlError(f"WITH {one.name}: only of {', '.join(accepting)}", one.at)
        value = self._value(one.value)
        given, accepted = getattr(value, "value", value), _OPTIONS[one.name]
        good = {
            "true or false": isinstance(given, bool), "event or wall": given in ("event", "wall"),
            "a text": isinstance(given, str), "a span such as 24h": isinstance(given, syntax.Span) and given.micros > 0,
        }.get(accepted, type(given) is int and given >= 1)  # fmt: skip
        if not good:
            raise CgqlError(f"WITH {one.name} = {value}: must be {accepted}", one.at)
        if given == "wall" and one.name == "clock" and not isinstance(self._query.duration, syntax.For):
            raise CgqlError("WITH clock = wall: needs FOR, whose time it measures", one.at)
        return replace(one, value=value)

    def _check_clauses(self) -> None:
        query = self._query
        spans = {"WINDOW": query.window, "EMIT EVERY": query.every}
        if isinstance(query.duration, syntax.For | syntax.Since):
            spans["FOR" if isinstance(query.duration, syntax.For) else "SINCE"] = query.duration.span
        for one in query.where:
            if isinstance(one, syntax.Temporal):
                spans["WITHIN"] = one.within
                if one.count < 1:
                    raise CgqlError(f"{one.relation} {one.count} OF: must be at least 1", one.at)
                if one.within is not None and not one.within.micros:
                    raise CgqlError("WITHIN 0s: must be more than 0", one.at)
        for name, span in spans.items():
            if span is not None and not span.micros:
                raise CgqlError(f"{name} 0s: must be more than 0", query.at)
            if span is not None and span.micros > _LONGEST:
                raise CgqlError(f"{name} {span}: must be at most {syntax.span_text(_LONGEST)}", query.at)


def _arguments(query: syntax.Query) -> Arguments:
    """Return the arguments of the pattern of a query."""
    if query.pattern in PATTERNS:
        return PATTERNS[query.pattern]
    found = extensions.pattern_class(query.pattern, query.at)
    if found is None:
        names = ", ".join([*PATTERNS, *extensions.names()])
        raise CgqlError(f"pattern {query.pattern}: unknown; choose from {names}", query.at)
    arguments: Arguments = found.arguments
    return arguments


def _statuses(query: syntax.Query) -> tuple[str, ...]:
    """Return the statuses of the pattern of a query."""
    if query.pattern in STATUSES:
        return STATUSES[query.pattern]
    statuses: tuple[str, ...] = extensions.pattern_class(query.pattern, query.at).statuses
    return statuses


def _is_value(one: Any) -> bool:
    return isinstance(one, syntax.NamedValue)


def _walk(part: Any) -> Iterator[Any]:
    """Return a part and all parts of it."""
    yield part
    if isinstance(part, tuple):
        for one in part:
            yield from _walk(one)
    elif is_dataclass(part):
        for one in fields(part):
            yield from _walk(getattr(part, one.name))


def _topics(query: syntax.Query) -> tuple[str, ...]:
    """Return the topics that a query names."""
    found = [part.topic for part in _walk(query.arguments) if isinstance(part, syntax.Member)]
    found += [part.topic for part in _walk(query.where) if isinstance(part, syntax.Member)]
    found += [
        one.of.name for one in query.where if isinstance(one, syntax.Temporal) and isinstance(one.of, syntax.Topic)
    ]
    if query.pattern == "Evolved":
        found += [str(one.operand) for one in query.arguments if isinstance(one, syntax.Name)]
    return tuple(dict.fromkeys(found))


def _check_topics(query: syntax.Query, known: Mapping[str, syntax.Query]) -> None:
    clusters = {part.topic: part.at for part in _walk(query) if isinstance(part, syntax.Member)}
    if query.pattern == "Evolved":
        clusters |= {str(one.operand): one.at for one in query.arguments if isinstance(one, syntax.Name)}
    for name in _topics(query):
        if name not in known:
            raise CgqlError(f"topic {name}: unknown", clusters.get(name, query.at))
    for name, at in clusters.items():
        if known[name].pattern not in _CLUSTERS:
            raise CgqlError(f"topic {name}: is of {known[name].pattern}; accepted are Cluster and Component", at)
    for one in query.where:
        if isinstance(one, syntax.Temporal) and isinstance(one.of, syntax.Topic):
            statuses = _statuses(known[one.of.name])
            for status in one.of.statuses:
                if status not in statuses:
                    raise CgqlError(f"{one.of.name}[{status}]: choose from {', '.join(statuses)}", one.of.at)


def _ordered(queries: Mapping[str, syntax.Query]) -> dict[str, syntax.Query]:
    """Return queries so that those that are named come first."""
    found: dict[str, syntax.Query] = {}

    def place(topic: str, within: Collection[str]) -> None:
        if topic in within:
            raise CgqlError(f"topic {topic}: names itself through {', '.join(within)}", queries[topic].at)
        if topic in queries and topic not in found:
            for one in _topics(queries[topic]):
                place(one, [*within, topic])
            found[topic] = queries[topic]

    for topic in queries:
        place(topic, [])
    return found


def _check_epochs(queries: Mapping[str, syntax.Query], known: Mapping[str, syntax.Query]) -> None:
    """Queries that name a topic with epochs have the same."""
    every = {topic: one.every for topic, one in known.items()}
    for topic, one in queries.items():
        for other in _topics(one):
            theirs = every[other]
            if theirs is not None and every[topic] not in (None, theirs):
                raise CgqlError(f"EMIT EVERY {every[topic]}: topic {other} has {theirs}", one.at)
            every[topic] = every[topic] or theirs
