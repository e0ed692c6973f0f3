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
]


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
            if name and name not in columns and not t[1]:
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
@pytest.mark.parametrize("pattern", PATTERNS)
def test_motifs_as_brute_force_finds_them(spark: Any, tmp_path: Path, pattern: str) -> None:
    G = multigraph()
    graph: Any = from_networkx(G, self_loops="keep", parallel="keep")
    if pattern == PATTERNS[2]:
        build_layout(graph, (np.arange(8) % 2).astype(np.int32), 2).save(tmp_path / "store")
        graph = open_store(tmp_path / "store")
    found = motifs(graph, pattern, spark=spark)
    columns, wanted = brute_force(G, pattern)
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


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("", "nothing in '' has a name"),
        ("()-[]->()", "has a name"),
        ("(a)-[e]-(b)", r"'\(a\)-\[e\]-\(b\)' cannot be read; expected terms such as"),
        ("(a)-[e*2]->(b)", "cannot be read"),
        ("!(a)", "cannot be read"),
        ("(a)-[a]->(b)", "'a' is the name of a vertex and of an edge"),
        ("(a)-[e]->(b); (b)-[e]->(c)", "two edges are named 'e'"),
        ("(a)-[]->(b); !(b)-[]->(c)", "'c' occurs only in terms with !"),
        ("(a)-[]->(b); !(b)-[e]->(a)", "must not name its edge"),
        ("(a)-[]->(b); !()-[]->()", "must not name its edge and must name an end"),
        ("(a)-[]->(A)", "differ only in case"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(spark: Any, pattern: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        motifs(from_networkx(nx.path_graph(3)), pattern, spark=spark)
