"""Predicates of queries as instructions, and the elements for which they hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.times import event_time
from goffish.streaming.batches import FIRST
from goffish.streaming.graphs.attributes import Bits, Kinds, Lists
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.predicate_kernels import (
    ALL,
    ANY,
    COMPARE,
    HAS,
    ID,
    NOT,
    SEEN,
    TRUE,
)
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.updates import FLOAT, INTEGER, NONE, TEXT

_OPERATORS = {"=": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
_PREFIXES = ("node", "vertex", "edge")


class Programs(NamedTuple):
    """Predicates as instructions in postfix order.

    Attributes
    ----------
    firsts : array, shape (programs + 1,)
        First instruction of each.
    codes : int8 array, shape (instructions,)
    names : array
        Numbers of attributes, or `ID` or `SEEN`.
    operators : int8 array
        Comparisons.
    kinds, bits, floats, moments : arrays
        What is compared with: its kind, bits, the number, and the time that a text stands for. The bits of ``ALL`` and
        ``ANY`` are the number of their parts.
    """

    firsts: NDArray[np.int64]
    codes: NDArray[np.int8]
    names: NDArray[np.int64]
    operators: NDArray[np.int8]
    kinds: Kinds
    bits: Bits
    floats: NDArray[np.float64]
    moments: NDArray[np.int64]


class Watch(NamedTuple):
    """Predicates of all queries on vertices, or on edges.

    Attributes
    ----------
    programs : Programs
    ends : array, shape (programs,)
        For edges: the predicate that both ends must satisfy, or -1.
    renewed : bool array, shape (programs,)
        For edges: whether it is reported when an edge is seen again.
    firsts, mentions : arrays
        Programs by the attribute that they mention; `SEEN` and `ID` come first.
    births : array
        Programs to be evaluated for elements that are new: the others hold for none without attributes.
    depending : int
        Programs of edges whose ends must satisfy one.
    truth : bool array, shape (programs, elements)
    counts : int32 array, shape (elements,)
        How many programs hold for an element.
    """

    programs: Programs
    ends: NDArray[np.int64]
    renewed: NDArray[np.bool_]
    firsts: NDArray[np.int64]
    mentions: NDArray[np.int64]
    births: NDArray[np.int64]
    depending: int
    truth: NDArray[np.bool_]
    counts: NDArray[np.int32]


class Tables(NamedTuple):
    """What predicates need beside attributes: keys of texts and ids, and elements of lists."""

    texts: tuple[NDArray[Any], ...]
    vertices: tuple[NDArray[Any], ...]
    edges: tuple[NDArray[Any], ...]
    lists: Lists


class Watches(NamedTuple):
    """All predicates; `stack` has space for the parts of one of them."""

    vertices: Watch
    edges: Watch
    tables: Tables
    stack: NDArray[np.bool_]


class Flips(NamedTuple):
    """Elements for which a predicate began or ceased to hold, in order.

    Attributes
    ----------
    records, programs, elements : arrays
        Programs of edges are counted after those of vertices.
    states : int8 array
        ``OFF``, ``ON``, or ``RENEWED`` for an edge that was seen again.
    sources, targets, seen : arrays
        Of edges.
    """

    records: NDArray[np.int64]
    programs: NDArray[np.int64]
    elements: NDArray[np.int64]
    states: NDArray[np.int8]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    seen: NDArray[np.int64]

    @classmethod
    def empty(cls, size: int) -> Flips:
        """Return space for flips."""
        columns: list[Any] = [np.empty(size, np.int8 if name == "states" else np.int64) for name in cls._fields]
        return cls(*columns)

    def take(self, chosen: Any) -> Flips:
        """Return some of them."""
        return Flips._make(column[chosen] for column in self)


NO_FLIPS = Flips.empty(0)


class Predicates:
    """Predicates on vertices or edges, each of them once.

    Parameters
    ----------
    encoder : Encoder
    edges : bool
        Whether they are on edges.

    Attributes
    ----------
    longest : int
        Instructions of the longest predicate.
    """

    def __init__(self, encoder: Encoder, *, edges: bool) -> None:
        self._encoder, self._edges = encoder, edges
        self._numbers: dict[Any, int] = {}
        self._codes: list[list[tuple[Any, ...]]] = []
        self._ends: list[int] = []
        self._renewed: list[bool] = []
        self.longest = 0

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, parts: Sequence[syntax.Predicates], ends: int = -1, *, renewed: bool = False) -> int:
        """Return the number of the conjunction of some predicates.

        Parameters
        ----------
        parts : sequence of Predicates
        ends : int
            Number of the predicate on both ends of edges, or -1.
        renewed : bool
            Whether edges that are seen again are reported.

        Raises
        ------
        CgqlError
            A comparison is not accepted.
        """
        predicates = sorted({str(one): one for part in parts for one in part.parts}.items())
        key = tuple(text for text, _ in predicates), ends
        if key not in self._numbers:
            codes: list[tuple[Any, ...]] = []
            for _, one in predicates:
                self._compile(one, codes)
            codes.append(_instruction(ALL, bits=len(predicates)) if predicates else _instruction(TRUE))
            self._numbers[key] = len(self._codes)
            self._codes.append(codes)
            self.longest = max(self.longest, len(codes))
            self._ends.append(ends)
            self._renewed.append(False)
        self._renewed[self._numbers[key]] |= renewed
        return self._numbers[key]

    def watch(self, elements: int) -> Watch:
        """Return the predicates for compiled code, with none of which an element complies yet."""
        columns = [np.array(column) for column in zip(*(one for codes in self._codes for one in codes), strict=True)]
        types = (np.int8, np.int64, np.int8, np.int8, np.int64, np.float64, np.int64)
        columns = columns or [np.zeros(0)] * len(types)
        firsts = np.cumsum([0, *map(len, self._codes)])
        mentioned: list[set[int]] = [set() for _ in range(len(self._encoder.names) - ID)]
        for number, codes in enumerate(self._codes):
            for one in codes:
                if one[0] in (COMPARE, HAS):
                    mentioned[one[1] - ID].add(number)
        return Watch(
            Programs(firsts, *(c.astype(t) for c, t in zip(columns, types, strict=True))),
            np.array(self._ends, np.int64), np.array(self._renewed, np.bool_),
            np.cumsum([0, *map(len, mentioned)]), np.array([n for one in mentioned for n in sorted(one)], np.int64),
            np.array([number for number, codes in enumerate(self._codes) if _holds_at_once(codes)], np.int64),
            sum(one >= 0 for one in self._ends), np.zeros((len(self), elements), np.bool_),
            np.zeros(elements, np.int32),
        )  # fmt: skip

    def _compile(self, part: syntax.Predicate, codes: list[tuple[Any, ...]]) -> None:
        match part:
            case syntax.Comparison():
                try:
                    codes.append(self._comparison(self._name(part.left), part.operator, part.right, part.at))
                except InputError as error:
                    raise error if isinstance(error, CgqlError) else CgqlError(str(error), part.at) from None
            case syntax.OneOf():
                name = self._name(part.left)
                codes += [self._comparison(name, "=", value, syntax.NOWHERE) for value in part.values]
                codes.append(_instruction(ANY, bits=len(part.values)))
            case syntax.Has():
                codes.append(_instruction(HAS, self._name(part.of)))
            case syntax.Bare():
                word = syntax.Literal(str(part.operand))
                codes.append(self._comparison(self._encoder.name("type"), "=", word, syntax.NOWHERE))
            case syntax.Not():
                self._compile(part.part, codes)
                codes.append(_instruction(NOT))
            case syntax.All() | syntax.Any():
                for one in part.parts:
                    self._compile(one, codes)
                codes.append(_instruction(ALL if isinstance(part, syntax.All) else ANY, bits=len(part.parts)))
            case _:
                at = part.at
                raise CgqlError(f"{part}: edges are no members of clusters; accepted are predicates of vertices", at)

    def _name(self, operand: syntax.Operand) -> int:
        assert isinstance(operand, syntax.Reference)
        names = operand.names[1:] if operand.names[0] in _PREFIXES and len(operand.names) > 1 else operand.names
        name = ".".join(names)
        if name == "id":
            return ID
        if name == "time" and self._edges:
            return SEEN
        try:
            return self._encoder.name(name)
        except InputError as error:
            raise CgqlError(str(error), operand.at) from None

    def _comparison(self, name: int, operator: str, value: syntax.Value, at: syntax.Position) -> tuple[Any, ...]:
        if isinstance(value, syntax.Reference | syntax.Parameter | syntax.Span):
            raise CgqlError(f"{value}: accepted are numbers, texts, true and false", at)
        given, moment = value.value, FIRST
        if name == ID:
            table = self._encoder.edges if self._edges else self._encoder.vertices
            if isinstance(given, float):
                operator, given = _of_integers(operator, given)
            kind = {int: INTEGER, str: TEXT}.get(type(given), NONE)
            bits = int(table.slots([given])[0]) if kind != NONE else 0
            return _instruction(COMPARE, ID, _OPERATORS[operator], kind, bits)
        if isinstance(given, str):
            with suppress(ValueError, InputError):
                moment = event_time(datetime.fromisoformat(given))
        if name == SEEN:
            if type(given) in (int, float):
                moment = event_time(given)
            if moment == FIRST:
                raise CgqlError(
                    f'time {operator} {value}: accepted are seconds and texts such as "2026-01-31T12:00Z"', at
                )
        kind, bits = self._encoder.values.encode_one(given)
        number = float(given) if kind in (INTEGER, FLOAT) else 0.0
        return _instruction(COMPARE, name, _OPERATORS[operator], kind, bits, number, moment)


def _of_integers(operator: str, number: float) -> tuple[str, int]:
    """Return the comparison with an integer that holds for the same integers of 64 bits."""
    least, most = -(1 << 63), (1 << 63) - 1
    whole = math.floor(number)
    if whole == number and least <= whole <= most:
        return operator, whole
    if operator in ("=", "!="):
        return ("<", least) if operator == "=" else (">=", least)
    if operator in ("<", "<="):
        return ("<=", min(whole, most)) if whole >= least else ("<", least)
    if whole > most:
        return "<", least
    return (">", whole) if whole >= least else (">=", least)


def _instruction(
    code: int, name: int = 0, operator: int = 0, kind: int = NONE, bits: int = 0, number: float = 0.0,
    moment: int = FIRST,
) -> tuple[Any, ...]:  # fmt: skip
    return code, name, operator, kind, bits, number, moment


def _holds_at_once(codes: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a predicate can hold for an element that is new, and has no attributes."""
    stack: list[bool] = []
    for code, name, _, _, count, *_ in codes:
        if code in (COMPARE, HAS) and name < 0:
            return True  # it depends on the id or the time
        if code == NOT:
            stack.append(not stack.pop())
        elif code in (ALL, ANY):
            parts = [stack.pop() for _ in range(count)]
            stack.append(all(parts) if code == ALL else any(parts))
        else:
            stack.append(code == TRUE)
    return stack[0]
