"""From a text to its parts by a grammar, and those of CGQL."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError

from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError, Position, Predicate

#: Characters of a text, and parts of it in each other.
_LONGEST, _DEEPEST = 1 << 20, 100
_WORDS = {
    "LPAR": "(", "RPAR": ")", "LBRACE": "{", "RBRACE": "}", "LSQB": "[", "RSQB": "]", "COMMA": ",", "SEMICOLON": ";",
    "COLON": ":", "DOT": ".", "EQUAL": "=", "NAME": "a name", "NUMBER": "a number", "INT": "a number",
    "STRING": "a text in quotes", "DURATION": "a duration such as 20h", "PARAM": "a parameter such as $lo",
    "OP": "a comparison", "TOPIC_STAR": "a topic with .*", "STAR": "*", "AND_DETECT": "AND DETECT", "$END": "the end",
}  # fmt: skip
_MICROS = {"ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6, "w": 604800 * 10**6}


def read(text: str, grammar: str, builder: Builder, missing: Mapping[str, str]) -> Any:
    """Read a text by a grammar; texts that begin in certain ways where they are not accepted have messages."""
    if len(text) > _LONGEST:
        raise CgqlError(f"{len(text):,} characters; accepted are {_LONGEST:,} at most", (1, 1))
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth > _DEEPEST:
            raise CgqlError(f"brackets are nested more than {_DEEPEST} deep", _position(text, at))
    try:
        return builder.transform(_grammar(grammar).parse(text))
    except UnexpectedInput as error:
        line, column = error.line, error.column
        rest = "".join(text.splitlines(keepends=True)[line - 1 :])[column - 1 :] if line > 0 else ""
        ends = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        for beginning, message in () if ends else missing.items():
            if re.match(beginning, rest, re.IGNORECASE):
                raise CgqlError(message, (line, column)) from None
        if isinstance(error, UnexpectedToken):
            what = "end of the text" if ends else repr(str(error.token))
            expected = _expected(error.accepts or error.expected)
            raise CgqlError(f"{what}; expected {expected}", (line, column)) from None
        allowed = _expected(getattr(error, "allowed", None) or ())
        raise CgqlError(f"unexpected character; expected {allowed}", (line, column)) from None
    except VisitError as error:
        if isinstance(error.orig_exc, CgqlError):
            raise error.orig_exc from None
        raise


@cache
def _grammar(name: str) -> Lark:
    text = (files(__package__) / name).read_text()
    return Lark(text, parser="lalr", lexer="contextual", maybe_placeholders=True, propagate_positions=True)


def _position(text: str, offset: int) -> Position:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def _expected(terminals: Any) -> str:
    known = {_WORDS.get(name, name) for name in terminals}
    words = sorted("an edge" if word.startswith("__ANON") else word for word in known)
    return ", ".join(words[:-1]) + (" or " if len(words) > 1 else "") + words[-1] if words else "other text"


def name_of(token: Token | str) -> str:
    return str(token)[1:-1] if str(token).startswith("`") else str(token)


def position_of(meta: Any) -> Position:
    return (meta.line, meta.column) if not meta.empty else syntax.NOWHERE


def _token_at(token: Token) -> Position:
    return (token.line or 0, token.column or 0)


def _span(token: Token) -> syntax.Span:
    micros = sum(int(count) * _MICROS[unit] for count, unit in re.findall(r"(\d+)(ms|[smhdw])", token))
    if micros > 1 << 61:
        raise CgqlError(f"duration {token}: too long", _token_at(token))
    return syntax.Span(micros)


def _text(token: Token) -> str:
    try:
        return str(ast.literal_eval(token.replace("\n", "\\n")))
    except (SyntaxError, ValueError) as error:
        raise CgqlError(f"text {str(token)!r:.40}: {error.args[0]}", _token_at(token)) from None


@v_args(meta=True)
class Builder(Transformer[Token, Any]):
    """Makes the parts of queries from the tree of the grammar."""

    def start(self, meta: Any, parts: list[Any]) -> syntax.Script:
        return syntax.Script(tuple(parts))

    def detects(self, meta: Any, parts: list[Any]) -> syntax.Detects:
        return syntax.Detects(tuple(one for one in parts if isinstance(one, syntax.Query)))

    def cancel(self, meta: Any, parts: list[Any]) -> syntax.Cancel:
        return syntax.Cancel(name_of(parts[1]), position_of(meta))

    def body(self, meta: Any, parts: list[Any]) -> syntax.Query:
        (name, arguments), *clauses = parts
        given = {key: value for one in clauses if one is not None for key, value in one.items()}
        return syntax.Query(name, arguments, at=position_of(meta), **given)

    def pattern(self, meta: Any, parts: list[Any]) -> tuple[str, tuple[Any, ...]]:
        return name_of(parts[0]), tuple(one for one in parts[1:] if one is not None)

    # Arguments.

    def arg_set(self, meta: Any, parts: list[Any]) -> syntax.NamedPredicates:
        return syntax.NamedPredicates(name_of(parts[0]), parts[1], position_of(meta))

    view = arg_set

    def arg_value(self, meta: Any, parts: list[Any]) -> syntax.NamedValue:
        return syntax.NamedValue(name_of(parts[0]), parts[1], position_of(meta))

    def arg_name(self, meta: Any, parts: list[Any]) -> syntax.Name:
        return syntax.Name(parts[0], position_of(meta))

    def arg_pred(self, meta: Any, parts: list[Any]) -> Any:
        return parts[0]

    arg_path = condition = arg_pred

    # Predicates.

    def predset(self, meta: Any, parts: list[Any]) -> syntax.Predicates:
        return syntax.Predicates(tuple(one for one in parts if one is not None))

    def disjunction(self, meta: Any, parts: list[Any]) -> Predicate:
        parts = [one for one in parts if not isinstance(one, Token)]
        return syntax.Any(tuple(parts)) if len(parts) > 1 else parts[0]

    def conjunction(self, meta: Any, parts: list[Any]) -> Predicate:
        parts = [one for one in parts if not isinstance(one, Token)]
        return syntax.All(tuple(parts)) if len(parts) > 1 else parts[0]

    def negation(self, meta: Any, parts: list[Any]) -> syntax.Not:
        return syntax.Not(parts[1])

    def compare(self, meta: Any, parts: list[Any]) -> syntax.Comparison:
        operator = {"==": "=", "<>": "!="}.get(parts[1], str(parts[1]))
        return syntax.Comparison(parts[0], operator, parts[2], position_of(meta))

    def member(self, meta: Any, parts: list[Any]) -> syntax.Member:
        if parts[1] not in ("=", "=="):
            raise CgqlError(f"{parts[2]}: accepted after = only", _token_at(parts[1]))
        return syntax.Member(parts[0], str(parts[2])[:-2], position_of(meta))

    def within_list(self, meta: Any, parts: list[Any]) -> syntax.OneOf:
        return syntax.OneOf(parts[0], tuple(parts[2:]))

    def bare(self, meta: Any, parts: list[Any]) -> syntax.Bare:
        return syntax.Bare(parts[0])

    def has(self, meta: Any, parts: list[Any]) -> syntax.Has:
        return syntax.Has(parts[1])

    def field(self, meta: Any, parts: list[Any]) -> syntax.Reference:
        found: syntax.Reference = parts[0]
        return found

    word = field

    def aggregate(self, meta: Any, parts: list[Any]) -> syntax.Aggregate:
        return syntax.Aggregate(name_of(parts[0]), parts[1], position_of(meta))

    def ref(self, meta: Any, parts: list[Any]) -> syntax.Reference:
        return syntax.Reference(tuple(map(name_of, parts)), position_of(meta))

    # Values.

    def number(self, meta: Any, parts: list[Any]) -> syntax.Literal:
        number = int(parts[0]) if re.fullmatch(r"[+-]?\d+", parts[0]) else float(parts[0])
        if abs(number) >= (1 << 63 if isinstance(number, int) else math.inf):
            raise CgqlError(f"number {parts[0]!s:.40}: too large", position_of(meta))
        return syntax.Literal(number)

    def string(self, meta: Any, parts: list[Any]) -> syntax.Literal:
        return syntax.Literal(_text(parts[0]))

    def true(self, meta: Any, parts: list[Any]) -> syntax.Literal:
        return syntax.Literal(True)

    def false(self, meta: Any, parts: list[Any]) -> syntax.Literal:
        return syntax.Literal(False)

    def param(self, meta: Any, parts: list[Any]) -> syntax.Parameter:
        return syntax.Parameter(str(parts[0])[1:], position_of(meta))

    def span_value(self, meta: Any, parts: list[Any]) -> syntax.Span:
        return _span(parts[0])

    span = span_value

    # Paths.

    def path(self, meta: Any, parts: list[Any]) -> syntax.Path:
        return syntax.Path(tuple(parts[::2]), tuple(parts[1::2]), position_of(meta))

    def node(self, meta: Any, parts: list[Any]) -> syntax.Node:
        return syntax.Node(None if parts[0] is None else name_of(parts[0]), parts[1], position_of(meta))

    @staticmethod
    def _edge(direction: str, meta: Any, parts: list[Any]) -> syntax.Edge:
        variable, predicates = parts if parts else (None, None)
        return syntax.Edge(direction, None if variable is None else name_of(variable), predicates, position_of(meta))

    def edge_out(self, meta: Any, parts: list[Any]) -> syntax.Edge:
        return self._edge(">", meta, parts)

    def edge_in(self, meta: Any, parts: list[Any]) -> syntax.Edge:
        return self._edge("<", meta, parts)

    def edge_any(self, meta: Any, parts: list[Any]) -> syntax.Edge:
        return self._edge("-", meta, parts)

    # Clauses.

    def from_to(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        _, start, _, end, repeats = parts
        return {"duration": syntax.Between(start, end, repeats is not None, position_of(meta))}

    def for_span(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"duration": syntax.For(parts[1], position_of(meta))}

    def since_span(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"duration": syntax.Since(parts[1], position_of(meta))}

    def time(self, meta: Any, parts: list[Any]) -> str:
        return _text(parts[0])

    def window(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"window": parts[1]}

    def where(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"where": tuple(one for one in parts if not isinstance(one, Token))}

    def ordered(self, meta: Any, parts: list[Any]) -> syntax.Ordered:
        return syntax.Ordered()

    def temporal(self, meta: Any, parts: list[Any]) -> syntax.Temporal:
        relation, count, _, topic, _, within, shares, _ = parts
        number = 1 if count is None else int(count)
        return syntax.Temporal(str(relation).upper(), topic, number, within, shares is not None, position_of(meta))

    def topic_name(self, meta: Any, parts: list[Any]) -> syntax.Topic:
        statuses = tuple(name_of(one) for one in parts[1:] if one is not None)
        return syntax.Topic(name_of(parts[0]), statuses, position_of(meta))

    def topic_query(self, meta: Any, parts: list[Any]) -> syntax.Query:
        found: syntax.Query = parts[1]
        return found

    def emit_update(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"every": None}

    def emit_every(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"every": parts[2]}

    def with_(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"options": tuple(one for one in parts if isinstance(one, syntax.Option))}

    def option(self, meta: Any, parts: list[Any]) -> syntax.Option:
        value = syntax.Reference((name_of(parts[1]),), position_of(meta)) if isinstance(parts[1], Token) else parts[1]
        return syntax.Option(name_of(parts[0]), value, position_of(meta))

    def as_(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        return {"topic": name_of(parts[1])}


setattr(Builder, "with", Builder.with_)  # rules that are named like keywords of Python
setattr(Builder, "as", Builder.as_)
