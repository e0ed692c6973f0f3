"""Temporal triangles against all triples of edges."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.temporal.motifs import KINDS, temporal_triangles


def all_triples(edges: Any, within: int) -> dict[str, int]:
    found = dict.fromkeys(KINDS, 0)
    rows = sorted(range(len(edges)), key=lambda i: (edges[i][2], i))
    for triple in combinations(rows, 3):
        ends = [edges[i][:2] for i in triple]
        if edges[triple[2]][2] - edges[triple[0]][2] > within or len({frozenset(e) for e in ends}) < 3:
            continue
        names: dict[int, str] = {}
        for v in (v for e in ends for v in e):
            names.setdefault(v, "abcdef"[len(names)])
        if len(names) == 3 and all(u != v for u, v in ends):
            found[" ".join(names[u] + names[v] for u, v in ends)] += 1
    return found


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(-4, 9)), min_size=1, max_size=30),
    st.integers(0, 8),
)
def test_random_events(edges: Any, within: int) -> None:
    u, v, t = (np.array(column) for column in zip(*edges, strict=True))
    found = temporal_triangles(u, v, t, within)
    assert dict(zip(found["motif"].to_pylist(), found["count"].to_pylist(), strict=True)) == all_triples(edges, within)


@pytest.mark.slow
@pytest.mark.parametrize("within", [1_500, pytest.param(12_000, marks=pytest.mark.slow)])
def test_many_events_in_any_order(within: int) -> None:
    """One event for each pair, so triples in the window are the triangles of networkx whose times lie close enough."""
    graph = nx.gnm_random_graph(400, 12_000, seed=3)
    rng = np.random.default_rng(5)
    ends = np.array(
        [edge[::-1] if turned else edge for edge, turned in zip(graph.edges, rng.random(12_000) < 0.5, strict=True)]
    )
    when = rng.permutation(12_000)
    at = {frozenset(edge): time for edge, time in zip(ends.tolist(), when.tolist(), strict=True)}
    wanted = 0
    for clique in nx.enumerate_all_cliques(graph):
        if len(clique) > 3:
            break
        if len(clique) == 3:
            times = [at[frozenset(pair)] for pair in combinations(clique, 2)]
            wanted += max(times) - min(times) <= within
    found = temporal_triangles(ends[:, 0], ends[:, 1], when, within)
    assert sum(found["count"].to_pylist()) == wanted > 1000
    order = np.argsort(when)
    assert temporal_triangles(ends[order, 0], ends[order, 1], when[order], within).equals(found)


def test_a_cycle_with_names() -> None:
    found = temporal_triangles(["x", "y", "z"], ["y", "z", "x"], [1, 5, 9], within=8)
    assert {row["motif"]: row["count"] for row in found.to_pylist() if row["count"]} == {"ab bc ca": 1}
    assert not np.any(temporal_triangles(["x", "y", "z"], ["y", "z", "x"], [1, 5, 9], within=7)["count"])


def test_bad_input() -> None:
    with pytest.raises(InputError, match="within=-1: must be at least 0"):
        temporal_triangles([1], [2], [3], -1)
    with pytest.raises(InputError, match="expected one row per edge in each"):
        temporal_triangles([1], [2], [3, 4], 1)
