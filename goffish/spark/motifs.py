"""Motif queries: small patterns of vertices and edges, found by joins of DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lark import Lark, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.graph import Graph
from goffish.spark.frames import frames_of, vertices_and_edges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GRAMMAR = r"""
start: term? (";" term?)*
term: vertex | [NOT] vertex edge vertex
vertex: "(" [NAME] ")"
edge: [BACK] "-" "[" [NAME] ["*" LENGTH] "]" "-" [AHEAD]
NOT: "!"
BACK: "<"
AHEAD: ">"
NAME: /[A-Za-z0-9_]+/
LENGTH: /[0-9]+/
%ignore /\s+/
"""
#: Edges of a path: Spark plans a join for each.
_LONGEST = 100
_ACCEPTED = (
    'expected terms such as "(a)-[e]->(b)", "(a)<-[]-()", "(a)<-[e]->(b)", "(a)-[e*2]->(b)", "!(b)-[]->(a)" or "(a)", '
    'separated by ";"'
)


@dataclass(frozen=True)
class _Term:
    """One edge of a pattern, or a vertex if `dst` is ``None``; ends without a name have one that no user can give."""

    src: str
    dst: str | None = None
    edge: str = ""
    negated: bool = False


def motifs(graph: PartitionedGraph | Graph | Any, pattern: str, *, spark: SparkSession | None = None) -> DataFrame:
    """Find all occurrences of a pattern of vertices and edges in a graph.

    Parameters
    ----------
    graph : PartitionedGraph, Graph or GraphFrame
        Graph to search, or any object with the DataFrames ``vertices`` (``id``) and ``edges`` (``src``, ``dst``). An
        undirected graph has its edges in both directions.
    pattern : str
        Terms separated by semicolons, all of which must match. ``(a)-[e]->(b)`` and ``(b)<-[e]-(a)`` are an edge named
        `e` from `a` to `b`; names may be omitted, and then the vertex or edge is not in the result. ``(a)<-[e]->(b)``
        are edges in both directions, `e1` and `e2`. ``(a)-[e*2]->(b)`` is a path of two edges, `_e1` and `_e2`, over a
        vertex `_ab1`. ``!(a)-[]->(b)`` excludes such an edge; at least one end must be named. ``(a)`` is any vertex, as
        are vertices that only terms with ``!`` name. Equal names match the same vertex; different names may match the
        same vertex.
    spark : SparkSession, optional
        Session for graphs that are not DataFrames yet [default: the running session, or `goffish.spark.session`].

    Returns
    -------
    DataFrame
        One row per occurrence, one column per name in order of appearance: structs of all columns of the vertex or
        edge. Conditions are filters, such as ``motifs(g, "(a)-[e]->(b); (b)-[f]->(c)").filter("e.time < f.time")``.
        Unnamed parallel edges produce equal rows.

    Raises
    ------
    InputError
        If the pattern is invalid, uses a name for both a vertex and an edge, names two edges alike, or names nothing;
        the message has the column.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import motifs, session
    >>> graph = gf.from_edges([1, 2, 3], [2, 3, 1], directed=True)
    >>> motifs(graph, "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)", spark=session()).count()
    3
    """
    terms, names = _parse(pattern)
    owned = isinstance(graph, Graph | PartitionedGraph)
    vertices, edges = vertices_and_edges(graph, spark=spark) if owned else frames_of(graph)
    found: DataFrame | None = None
    bound: set[str] = set()
    waiting = [term for term in terms if not term.negated]
    while waiting:
        # A term that shares a vertex with what is found saves a product of everything with everything.
        term = next((t for t in waiting if bound & {t.src, t.dst}), waiting[0])
        waiting.remove(term)
        piece = _piece(term, vertices, edges)
        shared = sorted(bound & {term.src, term.dst or term.src})
        found = piece if found is None else found.join(piece, shared) if shared else found.crossJoin(piece)
        bound |= {term.src, term.dst or term.src}
    assert found is not None
    for term in terms:
        if term.negated:
            shared = sorted(bound & {term.src, term.dst})
            found = found.join(_piece(term, vertices, edges).select(*shared), shared, "left_anti")
    return _with_columns(found, names, vertices)


def _piece(term: _Term, vertices: DataFrame, edges: DataFrame) -> DataFrame:
    """The edges or vertices that a term is about, ends in columns with the names of the term."""
    from pyspark.sql import functions as F

    if term.dst is None:
        return vertices.select(F.col("id").alias(term.src))
    columns = [F.col("src").alias(term.src)]
    if term.dst == term.src:
        edges = edges.filter("src = dst")
    else:
        columns.append(F.col("dst").alias(term.dst))
    if term.edge:
        columns.append(F.struct(*_quoted(edges)).alias(term.edge))
    return edges.select(*columns)


def _with_columns(found: DataFrame, names: dict[str, str], vertices: DataFrame) -> DataFrame:
    """Only what has a name, vertices with all their columns."""
    from pyspark.sql import functions as F

    for inner in names.values():
        if inner.startswith("vertex "):
            full = vertices.select(F.col("id").alias(inner), F.struct(*_quoted(vertices)).alias(f"{inner} struct"))
            found = found.join(full, inner)
    return found.select(
        *(F.col(f"`{inner} struct`" if inner.startswith("vertex ") else f"`{inner}`").alias(name)
          for name, inner in names.items())
    )  # fmt: skip


def _quoted(frame: DataFrame) -> list[str]:
    return ["`" + name.replace("`", "``") + "`" for name in frame.columns]


def _parse(pattern: str) -> tuple[list[_Term], dict[str, str]]:
    """The terms, and for every name in the order of occurrence the column that stands for it in them."""
    names: dict[str, str] = {}
    terms: list[_Term] = []
    for place, read in enumerate(_read(pattern)):
        for term in _terms_of(read, place, pattern):
            for inner in (term.src, term.edge, term.dst or ""):
                kind, _, name = inner.partition(" ")
                if kind not in ("vertex", "edge"):
                    continue
                if name not in names and name.lower() in map(str.lower, names):
                    raise _refused(
                        pattern, read.meta.start_pos, f"the name {name!r} differs from another only in case; rename one"
                    )
                if kind == "edge" and names.get(name) == inner:
                    raise _refused(pattern, read.meta.start_pos, f"two edges are named {name!r}")
                if names.setdefault(name, inner) != inner:
                    raise _refused(pattern, read.meta.start_pos, f"{name!r} is the name of a vertex and of an edge")
            terms.append(term)
    if not names:
        raise InputError(f"pattern: nothing in {pattern!r} has a name; {_ACCEPTED}")
    bound = {end for term in terms if not term.negated for end in (term.src, term.dst)}
    free = [inner for inner in names.values() if inner.startswith("vertex ") and inner not in bound]
    return terms + [_Term(inner) for inner in free], names


def _read(pattern: str) -> list[Tree[Any]]:
    try:
        return [term for term in _parser().parse(pattern).children if isinstance(term, Tree)]
    except UnexpectedInput as error:
        ends = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        at = len(pattern.rstrip()) if ends else error.pos_in_stream or 0
        what = "end" if ends else repr(pattern[at])
        raise _refused(pattern, at, f"unexpected {what}; {_ACCEPTED}") from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=True, propagate_positions=True)


def _refused(pattern: str, at: int, why: str) -> InputError:
    before = pattern[:at].split("\n")
    line = f"line {len(before)}, " if "\n" in pattern else ""
    return InputError(f"pattern, {line}column {len(before[-1]) + 1}: {why}")


def _terms_of(read: Any, place: int, pattern: str) -> Iterator[_Term]:
    """The terms of single edges that a term stands for, with the names that GraphFrames gives to what is between."""
    if len(read.children) == 1:
        [name] = read.children[0].children
        yield _Term(f"vertex {name}" if name else f"alone {place}")
        return
    no, source, edge, target = read.children
    [src], [dst] = source.children, target.children
    back, name, length, ahead = edge.children
    if not (back or ahead):
        raise _refused(pattern, edge.meta.start_pos, "an edge needs a direction: -[]->, <-[]- or <-[]->")
    if length and not 1 <= int(length) <= _LONGEST:
        raise _refused(pattern, length.start_pos, f"{length} is not a length from 1 to {_LONGEST}")
    if no and (name or length or (back and ahead)):
        why = "a term with ! must be a single edge in one direction, without a name"
        raise _refused(pattern, edge.meta.start_pos, why)
    if no and not (src or dst):
        raise _refused(pattern, no.start_pos, "a term with ! must name an end")
    ways = [(src, dst)] * bool(ahead) + [(dst, src)] * bool(back)
    for way, (first, last) in enumerate(ways, 1):
        ends = [f"vertex {end}" if end else f"{side} {place} {way}" for side, end in (("from", first), ("to", last))]
        edges = [f"{name}{way}" if len(ways) == 2 else name]
        if length:
            edges = [f"_{name}{step}" for step in range(1, int(length) + 1)]
            both = (first or "") + (last or "")
            ends[1:1] = [f"vertex _{both}{k}" if both else f"between {place} {way} {k}" for k in range(1, int(length))]
        for (one, other), inner in zip(pairwise(ends), edges, strict=True):
            yield _Term(one, other, f"edge {inner}" if name else "", bool(no))
