"""Motif queries: small patterns of vertices and edges, found by joins of DataFrames."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.graph import Graph
from goffish.spark.frames import frames_of, vertices_and_edges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TERM = re.compile(r"(?P<no>!)?\((?P<src>\w*)\)(?:(?P<arrow>-\[(?P<edge>\w*)\]->)\((?P<dst>\w*)\))?", re.ASCII)
_ACCEPTED = 'expected terms such as "(a)-[e]->(b)", "(a)-[]->()", "!(b)-[]->(a)" or "(a)", separated by ";"'


@dataclass(frozen=True)
class _Term:
    """One term of a pattern; ends without a name have one that no user can give; `dst` is ``None`` for a vertex."""

    src: str
    dst: str | None
    edge: str
    negated: bool


def motifs(graph: PartitionedGraph | Graph | Any, pattern: str, *, spark: SparkSession | None = None) -> DataFrame:
    """Find all occurrences of a pattern of vertices and edges in a graph.

    Parameters
    ----------
    graph : PartitionedGraph, Graph or GraphFrame
        Graph to search, or any object with the DataFrames ``vertices`` (``id``) and ``edges`` (``src``, ``dst``). An
        undirected graph has its edges in both directions.
    pattern : str
        Terms separated by semicolons, all of which must match. ``(a)-[e]->(b)`` is an edge named `e` from `a` to `b`;
        names may be omitted, and then the vertex or edge is not in the result. ``!(a)-[]->(b)`` excludes such an edge;
        at least one end must be named, and every name must occur in a term without ``!``. ``(a)`` is any vertex. Equal
        names match the same vertex; different names may match the same vertex.
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
        If the pattern is invalid, uses a name for both a vertex and an edge, names two edges alike, or names nothing.

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
    for place, text in enumerate(pattern.split(";")):
        told = "".join(text.split())
        if not told:
            continue
        match = _TERM.fullmatch(told)
        if match is None or (match["no"] and not match["arrow"]):
            raise InputError(f"pattern: {text.strip()!r} cannot be read; {_ACCEPTED}")
        negated, edge = match["no"] is not None, match["edge"] or ""
        src, dst = match["src"], match["dst"]
        if negated and (edge or not (src or dst)):
            raise InputError(f"pattern: {text.strip()!r}: a term with ! must not name its edge and must name an end")
        if not negated:
            for name, kind in ((src, "vertex"), (edge, "edge"), (dst or "", "vertex")):
                if name and names.setdefault(name, f"{kind} {name}") != f"{kind} {name}":
                    raise InputError(f"pattern: {name!r} is the name of a vertex and of an edge")
            if edge and any(term.edge == f"edge {edge}" for term in terms):
                raise InputError(f"pattern: two edges are named {edge!r}")
        ends = [f"vertex {end}" if end else f"{side} {place}" for side, end in (("from", src), ("to", dst))]
        terms.append(_Term(ends[0], ends[1] if match["arrow"] else None, f"edge {edge}" if edge else "", negated))
    unbound = {end for t in terms if t.negated for end in (t.src, t.dst or "") if end.startswith("vertex ")}
    unbound -= {end for t in terms if not t.negated for end in (t.src, t.dst)}
    if unbound:
        raise InputError(f"pattern: {min(unbound)[7:]!r} occurs only in terms with !")
    if len({name.lower() for name in names}) < len(names):
        raise InputError("pattern: two names differ only in case, which Spark ignores; rename one")
    if not names:
        raise InputError(f"pattern: nothing in {pattern!r} has a name; {_ACCEPTED}")
    return terms, names
