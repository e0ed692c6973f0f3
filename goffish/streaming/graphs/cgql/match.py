"""Patterns of openCypher, ``MATCH (a)-[r:FOLLOWS]->(b) WHERE …``, as queries of CGQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from lark import v_args

from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.reading import Builder, name_of, position_of, read
from goffish.streaming.graphs.cgql.syntax import CgqlError, Position, Predicate

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FUNCTIONS = {"id": "id", "elementid": "id", "type": "type"}
#: What a text may have that is not available here, by how it begins.
_MISSING = {
    r"\*|\.\.": "paths of variable length are not available",
    r"OPTIONAL\b": "optional patterns are not available",
    r"(WITH|UNWIND|CALL|UNION|ORDER|SKIP|LIMIT)\b": "only MATCH, WHERE and RETURN are available",
    r"(CREATE|MERGE|SET|DELETE|DETACH|REMOVE)\b": "a continuous query does not change the graph",
    r"[A-Za-z_]\w*\s*=": "paths have no names here",
    r"(STARTS|ENDS|CONTAINS|XOR)\b|=~": "accepted are =, <>, <, <=, >, >=, IN, IS NULL, AND, OR and NOT",
    r"[-+*/%^](?!\[)": "arithmetic is not available",
}


def read_match(text: str) -> syntax.Script:
    """Read a pattern of openCypher.

    Parameters
    ----------
    text : str

    Returns
    -------
    Script
        With a query of `Motif`, or of `Match` for one vertex.

    Raises
    ------
    CgqlError
        The text is not accepted; names line, column and what is.

    Examples
    --------
    >>> print(read_match("match (a:Person)-[:FOLLOWS]->(b) where a.age < b.age return a, b as older"))
    DETECT Motif((a:{label = "Person" OR type = "Person"})-[:{type = "FOLLOWS"}]->(b), a.age < b.age) AS older
    """
    found: syntax.Script = read(text, "match.lark", _Builder(), _MISSING)
    return found


def _variables(part: Any) -> Iterator[tuple[str, Position]]:
    """Return the variables of a predicate, with their positions."""
    match part:
        case syntax.Reference():
            yield part.names[0], part.at
        case syntax.Comparison():
            yield from _variables(part.left)
            yield from _variables(part.right)
        case syntax.OneOf():
            yield from _variables(part.left)
        case syntax.Has():
            yield from _variables(part.of)
        case syntax.Not():
            yield from _variables(part.part)
        case syntax.All() | syntax.Any():
            for one in part.parts:
                yield from _variables(one)


def _compares_attributes(part: Any) -> bool:
    """Whether a comparison of two attributes is among the parts of a predicate."""
    match part:
        case syntax.Comparison():
            return isinstance(part.right, syntax.Reference)
        case syntax.Not():
            return _compares_attributes(part.part)
        case syntax.All() | syntax.Any():
            return any(map(_compares_attributes, part.parts))
    return False


def _of_one(part: Any) -> Any:
    """Return a predicate of one variable without the name of the variable."""
    match part:
        case syntax.Reference():
            return syntax.Reference(part.names[1:], part.at)
        case syntax.Comparison():
            return syntax.Comparison(_of_one(part.left), part.operator, part.right, part.at)
        case syntax.OneOf():
            return syntax.OneOf(_of_one(part.left), part.values)
        case syntax.Has():
            return syntax.Has(_of_one(part.of))
        case syntax.Not():
            return syntax.Not(_of_one(part.part))
    return type(part)(tuple(map(_of_one, part.parts)))


def _one_of(attributes: Iterable[str], names: list[str], at: Position) -> Predicate:
    """Return that one of some attributes is one of some names."""
    found: list[Predicate] = []
    for attribute in attributes:
        reference, values = syntax.Reference((attribute,), at), [syntax.Literal(name) for name in names]
        same = syntax.Comparison(reference, "=", values[0], at)
        found.append(same if len(values) == 1 else syntax.OneOf(reference, tuple(values)))
    return found[0] if len(found) == 1 else syntax.Any(tuple(found))


def _element(variable: Any, *parts: list[Predicate] | None) -> tuple[str | None, syntax.Predicates | None]:
    found = tuple(one for part in parts for one in part or ())
    return None if variable is None else name_of(variable), syntax.Predicates(found) if found else None


@v_args(meta=True)
class _Builder(Builder):
    """Makes a query from the tree of the grammar."""

    def start(self, meta: Any, parts: list[Any]) -> syntax.Script:
        paths = [one for one in parts if isinstance(one, syntax.Path)]
        clauses = {name: value for one in parts if isinstance(one, dict) for name, value in one.items()}
        where, returned = clauses.pop("where", ()), clauses.pop("returned", ())
        known = {one.variable for path in paths for one in path.nodes}
        known |= {one.variable for path in paths for one in path.edges}
        more: dict[str, list[Predicate]] = {}
        comparisons = []
        for name, at in (*returned, *(pair for part in where for pair in _variables(part))):
            if name not in known:
                raise CgqlError(f"variable {name}: not in the pattern", at)
        for part in where:
            (first, at), *others = _variables(part)
            if isinstance(part, syntax.Comparison) and isinstance(part.right, syntax.Reference):
                comparisons.append(part)
            elif all(name == first for name, _ in others) and not _compares_attributes(part):
                more.setdefault(first, []).append(_of_one(part))
            else:
                raise CgqlError("conditions on several variables are joined by AND, and not negated", at)

        def complete(one: Any) -> Any:
            """Add the predicates of a variable where it appears first."""
            given = (*(one.predicates.parts if one.predicates else ()), *more.pop(one.variable, ()))
            return replace(one, predicates=syntax.Predicates(given) if given else None)

        paths = [
            replace(path, nodes=tuple(map(complete, path.nodes)), edges=tuple(map(complete, path.edges)))
            for path in paths
        ]
        query = self._query(paths, comparisons, clauses, position_of(meta))
        return syntax.Script((syntax.Detects((query,)),))

    @staticmethod
    def _query(paths: list[syntax.Path], comparisons: list[Any], clauses: dict[str, Any], at: Position) -> syntax.Query:
        alone = [one for one in paths if not one.edges]
        if len(paths) == 1 and alone:
            if comparisons:
                raise CgqlError("attributes of one vertex are compared with values only", comparisons[0].at)
            predicates = paths[0].nodes[0].predicates or syntax.Predicates()
            arguments: tuple[Any, ...] = (syntax.NamedPredicates("vertex", predicates, paths[0].at),)
            return syntax.Query("Match", arguments, at=at, **clauses)
        for one in alone:
            if all(one.nodes[0].variable not in {node.variable for node in path.nodes} for path in paths if path.edges):
                raise CgqlError("the vertex is not connected with the others", one.at)
        if alone:
            raise CgqlError("give the labels of a vertex where it has edges", alone[0].at)
        return syntax.Query("Motif", (*paths, *comparisons), at=at, **clauses)

    # Patterns.

    def pattern(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Path(tuple(parts[::2]), tuple(parts[1::2]), position_of(meta))

    def node(self, meta: Any, parts: list[Any]) -> syntax.Node:
        variable, labels, properties = parts
        return syntax.Node(*_element(variable, labels, properties), position_of(meta))

    def labels(self, meta: Any, parts: list[Any]) -> list[Predicate]:
        return [_one_of(("label", "type"), names, position_of(meta)) for names in parts]

    def choice(self, meta: Any, parts: list[Any]) -> list[str]:
        return list(map(name_of, parts))

    def types(self, meta: Any, parts: list[Any]) -> list[Predicate]:
        return [_one_of(("type",), list(map(name_of, parts)), position_of(meta))]

    def map(self, meta: Any, parts: list[Any]) -> list[Predicate]:
        return [one for one in parts if one is not None]

    def entry(self, meta: Any, parts: list[Any]) -> Predicate:
        at = position_of(meta)
        return syntax.Comparison(syntax.Reference((name_of(parts[0]),), at), "=", parts[1], at)

    @staticmethod
    def _edge(direction: str, meta: Any, parts: list[Any]) -> syntax.Edge:
        variable, types, properties = parts if parts else (None, None, None)
        return syntax.Edge(direction, *_element(variable, types, properties), position_of(meta))

    # Conditions.

    def where(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        found = parts[1]
        return {"where": found.parts if isinstance(found, syntax.All) else (found,)}

    def negated(self, meta: Any, parts: list[Any]) -> Predicate:
        return syntax.Not(parts[1])

    def inner(self, meta: Any, parts: list[Any]) -> Any:
        return parts[0]

    def compare(self, meta: Any, parts: list[Any]) -> syntax.Comparison:
        left, operator, right = parts
        operator = {"<>": "!="}.get(operator, str(operator))
        if not isinstance(left, syntax.Reference):
            left, operator, right = right, _MIRRORED[operator], left
        if not isinstance(left, syntax.Reference):
            raise CgqlError("one side of a comparison must be an attribute such as a.age", position_of(meta))
        return syntax.Comparison(left, operator, right, position_of(meta))

    def within_list(self, meta: Any, parts: list[Any]) -> syntax.OneOf:
        if not isinstance(parts[0], syntax.Reference):
            raise CgqlError("accepted before IN are attributes such as a.age", position_of(meta))
        return syntax.OneOf(parts[0], tuple(parts[2:]))

    def is_null(self, meta: Any, parts: list[Any]) -> Predicate:
        return syntax.Not(syntax.Has(parts[0]))

    def is_not_null(self, meta: Any, parts: list[Any]) -> Predicate:
        return syntax.Has(parts[0])

    def exists(self, meta: Any, parts: list[Any]) -> Predicate:
        return syntax.Has(parts[1])

    def labelled(self, meta: Any, parts: list[Any]) -> Predicate:
        variable = name_of(parts[0])

        def of(part: Any) -> Any:
            if isinstance(part, syntax.Any):
                return syntax.Any(tuple(map(of, part.parts)))
            reference = syntax.Reference((variable, *part.left.names), position_of(meta))
            if isinstance(part, syntax.OneOf):
                return syntax.OneOf(reference, part.values)
            return syntax.Comparison(reference, "=", part.right, position_of(meta))

        found = tuple(map(of, parts[1]))
        return found[0] if len(found) == 1 else syntax.All(found)

    def property(self, meta: Any, parts: list[Any]) -> syntax.Reference:
        return syntax.Reference(tuple(map(name_of, parts)), position_of(meta))

    def function(self, meta: Any, parts: list[Any]) -> syntax.Reference:
        name = str(parts[0]).lower()
        if name not in _FUNCTIONS:
            raise CgqlError(f"function {parts[0]}: unknown; choose from id, elementId and type", position_of(meta))
        return syntax.Reference((name_of(parts[1]), _FUNCTIONS[name]), position_of(meta))

    # Clauses.

    def returns(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"returned": tuple(one for one in parts if isinstance(one, tuple))}

    def item(self, meta: Any, parts: list[Any]) -> tuple[str, Position]:
        if parts[1] is not None:
            raise CgqlError(
                f"{parts[0]}.{parts[1]}: accepted after RETURN are variables; events have their ids", position_of(meta)
            )
        return name_of(parts[0]), position_of(meta)

    def aggregate(self, meta: Any, parts: list[Any]) -> Any:
        raise CgqlError(
            f"{parts[0]}(…): accepted after RETURN are variables; aggregates are not available", position_of(meta)
        )
