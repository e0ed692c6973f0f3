"""Motif queries against brute force over all assignments of vertices and edges."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from goffish.errors import InputError
from goffish.gofs import build_layout, open_store
from goffish.graph.libraries import from_networkx
from goffish.spark import motifs

pytest.importorskip("pyspark")

PATTERNS = [
    "(a)-[e]->(b)",
    "(a)-[e]->(b); (b)-[f]->(c)",
    "(a)-[]->(b); (b)-[]->(c); !(c)-[]->(a)",
    "(a)-[e]->(b);(b)-[]->(a)",
    "(a)-[e]->(a)",
    "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
    "(a)-[]->(); !()-[]->(a)",
    "()-[e]->(); (b)-[]->(b)",
    "(v); !(v)-[]->()",
    "(c)-[]->(d); (a)-[e]->(b); (b)-[]->(c); !(a)-[]->(a)",
    "!(a)-[]->(b); (b)-[e]->(a)",
    "!(a)-[]->(b)",
    "(a)-[e]->(b); !(c)-[]->(a); !(b)-[]->(c)",
]
#: What a pattern stands for.
WRITTEN_OUT = {
    "(a)<-[e]-(b)": "(b)-[e]->(a)",
    "(a)-[e]->(b); !(a) <-[]- (b)": "(a)-[e]->(b); !(b)-[]->(a)",
    "(a)<-[e]->(b)": "(a)-[e1]->(b); (b)-[e2]->(a)",
    "(a)<-[]->(); (a)-[e]->()": "(a)-[]->(); ()-[]->(a); (a)-[e]->()",
    "(a)-[e*2]->(b)": "(a)-[_e1]->(_ab1); (_ab1)-[_e2]->(b)",
    "(a)<-[*3]-(a);": "(a)-[]->(_aa1); (_aa1)-[]->(_aa2); (_aa2)-[]->(a)",
    "()-[e*2]->(b); ()-[f*1]->(b)": "()-[_e1]->(_b1); (_b1)-[_e2]->(b); ()-[_f1]->(b)",
    "(a)<-[*2]->(b)": "(a)-[]->(_ab1); (_ab1)-[]->(b); (b)-[]->(_ba1); (_ba1)-[]->(a)",
}


def multigraph() -> nx.MultiDiGraph:
    """Eight vertices, one alone and one that no edge reaches, with loops and parallel edges that bear times."""
    G = nx.MultiDiGraph(nx.gnm_random_graph(6, 11, seed=3, directed=True))
    G.add_edges_from([(0, 0), (2, 2), *list(G.edges(keys=False))[:3]])
    G.add_edge(6, 1)
    G.add_node(7)
    for time, (_, _, data) in enumerate(G.edges(data=True)):
        data["time"] = time * 7 % 16
    for vertex in G:
        G.nodes[vertex]["size"] = vertex * 10
    return G


def brute_force(G: nx.MultiDiGraph, pattern: str) -> tuple[list[str], Counter[Any]]:
    """Every choice of a vertex for each name and an edge for each term, with the terms checked one by one."""
    edges = [(u, v, data["time"]) for u, v, data in G.edges(data=True)]
    terms = [re.fullmatch(r"(!?)\((\w*)\)(-\[(\w*)\]->\((\w*)\))?", t.strip()) for t in pattern.split(";")]
    columns: list[str] = []
    vertices: list[str] = []
    for t in terms:
        assert t is not None
        for name in (t[2], t[4], t[5]):
            if name and name not in columns:
                columns.append(name)
        vertices += [name for name in (t[2], t[5]) if name and name not in vertices]
    wanted = [t for t in terms if t is not None and t[3] and not t[1]]
    unwanted = [t for t in terms if t is not None and t[1]]
    found: Counter[Any] = Counter()
    for chosen in itertools.product(edges, repeat=len(wanted)):
        fixed: dict[str, Any] = {}
        fits = True
        for t, (u, v, _) in zip(wanted, chosen, strict=True):
            for name, vertex in ((t[2], u), (t[5], v)):
                fits &= not name or fixed.setdefault(name, vertex) == vertex
        if not fits:
            continue
        free = [name for name in vertices if name not in fixed]
        for values in itertools.product(G, repeat=len(free)):
            place = {**fixed, **dict(zip(free, values, strict=True))}
            if any(place.get(t[2], u) == u and place.get(t[5], v) == v for t in unwanted for u, v, _ in edges):
                continue
            named = {t[4]: edge for t, edge in zip(wanted, chosen, strict=True) if t[4]}
            told = {**{name: (v, G.nodes[v]["size"]) for name, v in place.items()}, **named}
            found[tuple(told[name] for name in columns)] += 1
    return columns, found


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [*PATTERNS, *WRITTEN_OUT])
def test_motifs_as_brute_force_finds_them(spark: Any, tmp_path: Path, pattern: str) -> None:
    G = multigraph()
    graph: Any = from_networkx(G, self_loops="keep", parallel="keep")
    if pattern == PATTERNS[2]:
        build_layout(graph, (np.arange(8) % 2).astype(np.int32), 2).save(tmp_path / "store")
        graph = open_store(tmp_path / "store")
    found = motifs(graph, pattern, spark=spark)
    columns, wanted = brute_force(G, WRITTEN_OUT.get(pattern, pattern))
    assert found.columns == columns
    assert Counter(tuple(tuple(value) for value in row) for row in found.collect()) == wanted
    assert wanted


def test_motifs_in_time(spark: Any) -> None:
    """Walks of two edges that go forward in time, from any object with vertices and edges."""
    G = multigraph()
    ends = [(u, v, data["time"]) for u, v, data in G.edges(data=True)]
    frame = SimpleNamespace(
        vertices=spark.createDataFrame(pa.table({"id": list(G)})),
        edges=spark.createDataFrame(
            pa.table(dict(zip(("src", "dst", "time"), map(list, zip(*ends, strict=True)), strict=True)))
        ),
    )
    found = motifs(frame, "(a)-[e]->(b); (b)-[f]->(c)").filter("e.time < f.time").select("e.time", "f.time")
    wanted = sorted((s, t) for _, v, s in ends for u, _, t in ends if u == v and s < t)
    assert sorted(map(tuple, found.collect())) == wanted


@pytest.mark.slow
def test_paths_without_named_ends(spark: Any) -> None:
    """What is between has no name either, and is another vertex in each term."""
    G = multigraph()
    found = motifs(from_networkx(G, self_loops="keep", parallel="keep"), "()-[e*2]->(); ()-[f*2]->()", spark=spark)
    two = sum(G.in_degree(v) * G.out_degree(v) for v in G)
    assert found.columns == ["_e1", "_e2", "_f1", "_f2"]
    assert found.count() == two**2


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("", "pattern: nothing in '' has a name"),
        ("()-[]->()", "has a name"),
        ("(a)-[e]-(b)", r"pattern, column 4: an edge needs a direction: -\[\]->, <-\[\]- or <-\[\]->"),
        ("(a)-[e*1..3]->(b)", r"pattern, column 9: unexpected '\.'; expected terms such as"),
        ("(a)-[]->(b);\n (b)-(c)", r"pattern, line 2, column 6: unexpected '\('; expected"),
        ("(a)-[e]-> ", "pattern, column 10: unexpected end; expected"),
        ("(a b)", "pattern, column 4: unexpected 'b'; expected"),
        ("!(a)", "pattern, column 5: unexpected end; expected"),
        ("(ü)", "pattern, column 2: unexpected 'ü'; expected"),
        ("(a)-[e*0]->(b)", "pattern, column 8: 0 is not a length from 1 to 100"),
        ("(a)-[*1000]->(b)", "pattern, column 7: 1000 is not a length from 1 to 100"),
        ("(a)-[a]->(b)", "pattern, column 1: 'a' is the name of a vertex and of an edge"),
        ("(a)-[e]->(b); (b)-[e]->(c)", "pattern, column 15: two edges are named 'e'"),
        ("(a)<-[e*2]->(b)", "two edges are named '_e1'"),
        ("(a)-[]->(b); !(b)-[e]->(a)", "pattern, column 18: a term with ! must be a single edge in one direction"),
        ("(a)-[]->(b); !(b)-[*2]->(a)", "a single edge"),
        ("!(a)<-[]->(b)", "a single edge"),
        ("(a)-[]->(b); !()-[]->()", "pattern, column 14: a term with ! must name an end"),
        ("(a)-[]->(A)", "pattern, column 1: the name 'A' differs from another only in case"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(pattern: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        motifs(from_networkx(nx.path_graph(3)), pattern)
