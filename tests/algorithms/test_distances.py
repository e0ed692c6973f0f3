"""Distances between several vertices, against networkx."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.paths import tables
from tests.algorithms.test_whole_paths import EDGES, build, reference

ENDS = st.one_of(st.none(), st.lists(st.integers(0, 12), max_size=6))


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.tuples(ENDS, ENDS), st.sampled_from([None, 0.0, 1.0, 2.5, 4.0, 1e10]))
def test_rows_equal_those_of_networkx(case, directed, weighted, ends, cutoff):
    """Fails when a search stops too early or too late, or leaves something behind for the next one."""
    n, edges = case
    graph = build(n, edges, directed, weighted)
    sources, targets = ([v % n for v in some] if some is not None else None for some in ends)
    found = gf.distances(graph, sources, targets, cutoff=cutoff)
    lengths = nx.all_pairs_dijkstra_path_length(reference(n, edges, directed), cutoff, "weight" if weighted else None)
    expected = {
        (u, v): row[v] for u, row in lengths for v in sorted(row)
        if (sources is None or u in sources) and (targets is None or v in targets)
    }  # fmt: skip
    assert list(found.to_dict().items()) == list(expected.items())
    assert found.summary == {"pairs": len(expected), "farthest": max(expected.values(), default=0.0)}


@pytest.mark.parametrize("weighted", [False, True])
def test_large_graph(weighted: bool) -> None:
    """Blocks of many sources, more rows than fit at once, and any number of threads."""
    rng = np.random.default_rng(2)
    n, m = 3000, 9000
    graph = gf.from_edges(
        rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(1, 9, m) if weighted else None,
        labels=[f"v{v}" for v in range(n)],
    )  # fmt: skip
    some, others = [f"v{v}" for v in range(0, n, 11)], [f"v{v}" for v in range(3, n, 500)]
    oracle = gf.to_networkx(graph)
    for options in ({"targets": others}, {"cutoff": 3}, {"cutoff": 9, "targets": others}, {}):
        given_sources: Any = some[:9] if not options else some
        found = gf.distances(graph, given_sources, threads=1, **options)
        assert found.table == gf.distances(graph, given_sources, threads=3, **options).table
        rows = found.to_dict()
        for source in given_sources[::40]:
            lengths = nx.single_source_dijkstra_path_length(
                oracle, source, options.get("cutoff"), weight="weight" if weighted else None
            )
            expected = {v: d for v, d in lengths.items() if v in options.get("targets", lengths)}
            assert {v: d for (u, v), d in rows.items() if u == source} == expected


def test_a_long_path_and_empty_graphs() -> None:
    n = 100_000
    line = gf.from_edges(np.arange(n - 1), np.arange(1, n))
    assert gf.distances(line, [0], [n - 1]).to_dict() == {(0, n - 1): n - 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_SOURCES", 7)
        assert gf.distances(line, cutoff=1).summary == {"pairs": 3 * n - 2, "farthest": 1.0}
    assert gf.distances(gf.from_edges([], [])).summary == {"pairs": 0, "farthest": 0.0}
    assert len(gf.distances(line, [], [])) == len(gf.distances(line, [5], [])) == 0


def test_errors() -> None:
    graph = gf.from_edges([1, 2], [2, 3])
    for options, reason in (
        ({"sources": [9]}, "unknown vertex 9"),
        ({"sources": [1], "targets": [9]}, "unknown vertex 9"),
        ({"sources": 1}, "should be a valid tuple"),
        ({"sources": "ab"}, "should be a valid tuple"),
        ({"cutoff": -1}, "greater than or equal to 0"),
        ({"cutoff": math.nan}, "greater than or equal to 0"),
        ({"threads": 0}, "threads=0"),
    ):
        with pytest.raises(gf.InputError, match=reason):
            gf.distances(graph, **options)
