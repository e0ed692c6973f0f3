"""Numbers of small subgraphs against a walk over all sets of three and four vertices."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.clustering import motifs
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build

#: By the degrees of its vertices, ascending, each connected graph of three or four vertices.
NAMES = {
    (1, 1, 2): "wedge", (2, 2, 2): "triangle", (1, 1, 1, 3): "claw", (1, 1, 2, 2): "path", (1, 2, 2, 3): "paw",
    (2, 2, 2, 2): "cycle", (2, 2, 3, 3): "diamond", (3, 3, 3, 3): "clique",
}  # fmt: skip


def counted(graph: nx.Graph) -> dict[str, int]:
    matrix = nx.to_numpy_array(graph, dtype=np.int64)
    found = dict.fromkeys(NAMES.values(), 0)
    for size in (3, 4):
        sets = np.array(list(combinations(range(len(graph)), size)), np.int64).reshape(-1, size)
        degrees = np.sort(matrix[sets[:, :, None], sets[:, None, :]].sum(axis=2), axis=1)
        for row, count in zip(*np.unique(degrees, axis=0, return_counts=True), strict=True):
            if tuple(row.tolist()) in NAMES:
                found[NAMES[tuple(row.tolist())]] += int(count)
    return found


@settings(max_examples=200)
@given(EDGES, st.booleans())
def test_motifs_equal_those_of_all_sets(case: tuple[int, list[tuple[int, int]]], directed: bool) -> None:
    """Breaks when a formula takes a subgraph with more edges for another one, or counts it too often."""
    n, edges = case
    simple = nx.Graph([(u, v) for u, v in edges if u != v])
    simple.add_nodes_from(range(n))
    expected = counted(simple)
    found = gf.motif_counts(build(n, edges, directed), threads=2)
    assert found.to_dict() == found.summary == expected


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_dense_graphs(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """All motifs at once, in many short tasks; the same numbers with any number of threads."""
    monkeypatch.setattr(motifs, "STEPS", 64)
    for seed, density in enumerate((0.1, 0.4, 0.8)):
        graph = nx.gnp_random_graph(35, density, seed=seed)
        made = gf.from_networkx(graph)
        made = Graph(made.offsets, made.targets.astype(kind), False, made.num_edges)
        expected = counted(graph)
        assert min(expected.values()) > 0 or density == 0.1
        for threads in (1, 2, 3):
            assert gf.motif_counts(made, threads=threads).summary == expected


@pytest.mark.slow
def test_counts_of_more_than_64_bits() -> None:
    n = 4_000_001
    star = gf.motif_counts(gf.from_edges(np.zeros(n - 1, np.int64), np.arange(1, n)))
    leaves = n - 1
    claws = leaves * (leaves - 1) * (leaves - 2) // 6
    assert claws > 1 << 63 and star.summary["claw"] == claws and star["claw"] is None
    assert star.summary["wedge"] == star["wedge"] == leaves * (leaves - 1) // 2
    assert sum(star.summary.values()) == claws + star.summary["wedge"]


def test_cliques_empty_graphs_and_errors() -> None:
    whole = gf.motif_counts(gf.from_networkx(nx.complete_graph(40)))
    assert {name for name, count in whole.summary.items() if count} == {"triangle", "clique"}
    assert (whole["triangle"], whole["clique"]) == (9880, 91390)
    assert set(gf.motif_counts(gf.from_edges([], [])).summary.values()) == {0}
    parted = gf.partition(gf.from_edges(["a", "b", "c", "d"], ["b", "c", "d", "a"]), parts=2)
    assert [name for name, count in gf.run("motifs", parted).summary.items() if count] == ["wedge", "cycle"]
    with pytest.raises(gf.InputError, match="threads=0"):
        gf.motif_counts(gf.from_edges([1], [2]), threads=0)
