"""`from_edges` against a dictionary-based builder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.graph import from_edges
from tests.graph.graph_helpers import build_by_hand, edge_set

IDS = st.one_of(st.integers(0, 9), st.sampled_from([-(2**63), -7, 2**40, 2**63 - 1]))
ROWS = st.lists(st.tuples(IDS, IDS, st.integers(0, 5).map(float)), max_size=40)


@given(
    rows=ROWS,
    directed=st.booleans(),
    self_loops=st.sampled_from(["drop", "keep"]),
    parallel=st.sampled_from(["min", "sum", "first", "keep"]),
)
def test_policies_agree_with_a_dictionary(rows, directed, self_loops, parallel):
    src, dst, weight = ([row[i] for row in rows] for i in range(3))
    graph = from_edges(src, dst, weight, directed=directed, self_loops=self_loops, parallel=parallel)
    wanted = build_by_hand(rows, directed=directed, self_loops=self_loops, parallel=parallel)
    assert edge_set(graph) == wanted
    assert graph.num_edges == len(wanted)
    assert graph.label_column().to_pylist() == sorted({*src, *dst})
    for v in range(graph.num_vertices):
        assert np.all(np.diff(graph.neighbors(v).astype(np.int64)) >= (0 if parallel == "keep" else 1))


@given(rows=ROWS, directed=st.booleans(), parallel=st.sampled_from(["min", "first", "keep"]))
def test_attributes_come_from_the_row_that_was_kept(rows, directed, parallel):
    src, dst, weight = ([row[i] for row in rows] for i in range(3))
    graph = from_edges(
        src, dst, weight, directed=directed, parallel=parallel, self_loops="keep",
        edge_attributes={"row": np.arange(len(rows))},
    )  # fmt: skip
    u, v, w, attributes = graph.edge_columns()
    labels = graph.label_column().to_pylist()
    if attributes is None:
        assert graph.num_edges == 0
        return
    for a, b, value, row in zip(u, v, w, attributes["row"].to_pylist(), strict=True):
        ends = (src[row], dst[row]) if directed else tuple(sorted((src[row], dst[row])))
        assert (labels[a], labels[b]) == ends
        assert value == weight[row]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint32, np.uint64, np.int64])
def test_integers_of_any_width(kind):
    graph = from_edges(np.array([3, 1], kind), np.array([1, 7], kind))
    assert edge_set(graph) == [(1, 3, 1.0), (1, 7, 1.0)]


def test_unsigned_beyond_int64_names_the_row():
    with pytest.raises(InputError, match="row 1"):
        from_edges(np.array([1, 2**63], np.uint64), np.array([1, 2], np.uint64))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_weights_name_the_row(bad):
    with pytest.raises(InputError, match="row 1"):
        from_edges([1, 2], [2, 3], [1.0, bad])


def test_an_unweighted_undirected_graph_takes_at_most_nine_bytes_per_arc():
    """Four bytes per arc and eight per vertex: with as many arcs as 1.6 n or more that is below nine."""
    generator = np.random.default_rng(3)
    n = 20_000
    graph = from_edges(generator.integers(0, n, n), generator.integers(0, n, n))
    assert graph.num_vertices <= n
    assert graph.nbytes / graph.num_arcs <= 9


def test_isolated_vertices_stay():
    graph = from_edges(["b"], ["c"], isolated=["a", "d"])
    assert graph.label_column().to_pylist() == ["a", "b", "c", "d"]
    assert graph.out_degrees.tolist() == [0, 1, 1, 0]


def test_empty():
    graph = from_edges([], [])
    assert (graph.num_vertices, graph.num_edges) == (0, 0)
