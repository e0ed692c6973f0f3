"""Orbits of graphlets at each vertex against a walk over all sets of two, three and four vertices."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.clustering import graphlets
from goffish.graph import Graph
from tests.algorithms.test_whole_components import EDGES, build

#: By the degrees in a connected graph of up to four vertices, ascending, the orbit of a vertex of each degree.
ORBITS: dict[tuple[int, ...], dict[int, int]] = {
    (1, 1): {1: 0}, (1, 1, 2): {1: 1, 2: 2}, (2, 2, 2): {2: 3}, (1, 1, 2, 2): {1: 4, 2: 5}, (1, 1, 1, 3): {1: 6, 3: 7},
    (2, 2, 2, 2): {2: 8}, (1, 2, 2, 3): {1: 9, 2: 10, 3: 11}, (2, 2, 3, 3): {2: 12, 3: 13}, (3, 3, 3, 3): {3: 14},
}  # fmt: skip
#: An orbit of each motif, and how many vertices of the motif are in it.
MOTIFS = {
    "wedge": (2, 1), "triangle": (3, 3), "claw": (7, 1), "path": (4, 2), "paw": (9, 1), "cycle": (8, 4),
    "diamond": (12, 2), "clique": (14, 4),
}  # fmt: skip


def counted(graph: nx.Graph) -> np.ndarray:
    n, matrix = len(graph), nx.to_numpy_array(graph, dtype=np.int64)
    found = np.zeros((15, n), np.int64)
    for size in (2, 3, 4):
        sets = np.array(list(combinations(range(n), size)), np.int64).reshape(-1, size)
        degrees = matrix[sets[:, :, None], sets[:, None, :]].sum(axis=2)
        orbit = np.full((4**size, 4), -1)
        for key, orbits in ORBITS.items():
            if len(key) == size:
                orbit[number(np.array(key)), list(orbits)] = list(orbits.values())
        at = orbit[number(np.sort(degrees, axis=1))[:, None], degrees]
        np.add.at(found, (at[at >= 0], sets[at >= 0]), 1)
    return found


def number(degrees: np.ndarray) -> np.ndarray:
    """A number for each row of up to four degrees, which are below 4."""
    return degrees @ 4 ** np.arange(degrees.shape[-1])


def columns(result: gf.Result) -> np.ndarray:
    return np.array([result.table[f"orbit_{orbit}"].to_numpy() for orbit in range(15)])


@settings(max_examples=200)
@given(EDGES, st.booleans())
def test_orbits_equal_those_of_all_sets(case: tuple[int, list[tuple[int, int]]], directed: bool) -> None:
    """Breaks when an equation takes a position for another one, or loops, parallel edges or directions count."""
    n, edges = case
    simple = nx.Graph()
    simple.add_nodes_from(range(n))
    simple.add_edges_from((u, v) for u, v in edges if u != v)
    found = gf.graphlet_degrees(build(n, edges, directed), threads=2)
    assert found.table["vertex"].to_pylist() == list(range(n))
    assert columns(found).tolist() == counted(simple).tolist()


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_dense_graphs(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """All orbits at once, in many short tasks; the same with any number of threads, and the sums are the motifs."""
    monkeypatch.setattr(graphlets, "STEPS", 64)
    for seed, density in enumerate((0.15, 0.4, 0.8)):
        graph = nx.gnp_random_graph(32, density, seed=seed)
        made = gf.from_networkx(graph)
        made = Graph(made.offsets, made.targets.astype(kind), False, made.num_edges)
        expected = counted(graph)
        assert expected.sum(axis=1).min() > 0 or density == 0.15
        for threads in (1, 2, 3):
            assert (columns(gf.graphlet_degrees(made, threads=threads)) == expected).all()
        motifs = gf.motif_counts(made).summary
        assert {name: expected[orbit].sum() // each for name, (orbit, each) in MOTIFS.items()} == motifs


def test_sums_of_a_larger_graph() -> None:
    graph = gf.generators.rmat(10, 8, seed=3)
    orbits, motifs = columns(gf.graphlet_degrees(graph)).sum(axis=1), gf.motif_counts(graph).summary
    assert {name: orbits[orbit] // each for name, (orbit, each) in MOTIFS.items()} == motifs
    assert min(motifs.values()) > 0
    assert (orbits[5], orbits[6], orbits[13]) == (orbits[4], 3 * orbits[7], orbits[12])
    assert (orbits[1], orbits[10], orbits[11]) == (2 * orbits[2], 2 * orbits[9], orbits[9])


@pytest.mark.slow
def test_claws_of_more_than_64_bits() -> None:
    n = 4_000_001
    star = gf.graphlet_degrees(gf.from_edges(np.zeros(n - 1, np.int64), np.arange(1, n))).table
    leaves = n - 1
    assert (star["orbit_7"][0].as_py(), star["orbit_7"][1].as_py(), star["orbit_7"].null_count) == (None, 0, 1)
    assert star["orbit_2"][0].as_py() == leaves * (leaves - 1) // 2
    assert star["orbit_6"][1].as_py() == (leaves - 1) * (leaves - 2) // 2
    fewer = gf.graphlet_degrees(gf.from_edges(np.zeros(3_000_000, np.int64), np.arange(1, 3_000_001))).table
    assert fewer["orbit_7"][0].as_py() == 3_000_000 * 2_999_999 * 2_999_998 // 6


def test_labels_empty_graphs_and_errors() -> None:
    parted = gf.partition(gf.from_edges(["a", "b", "c", "d"], ["b", "c", "d", "a"]), parts=2)
    assert gf.run("graphlet-degrees", parted).to_dict("orbit_8") == dict.fromkeys("abcd", 1)
    empty = gf.graphlet_degrees(gf.from_edges([], []))
    assert (len(empty), empty.summary) == (0, {"orbits": 15})
    n = 50_000
    path = gf.graphlet_degrees(gf.from_edges(np.arange(n - 1), np.arange(1, n)))
    assert columns(path).sum(axis=1).tolist()[:8] == [2 * n - 2, 2 * n - 4, n - 2, 0, 2 * n - 6, 2 * n - 6, 0, 0]
    with pytest.raises(gf.InputError, match="threads=0"):
        gf.graphlet_degrees(gf.from_edges([1], [2]), threads=0)
    with pytest.raises(gf.InputError, match="graph is of type int"):
        gf.graphlet_degrees(7)  # type: ignore[arg-type]
