"""Results as containers: values by key, slices, rows, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish as gf

EDGES = [1, 2, 3, 7], [2, 3, 1, 8]


def test_values_by_key() -> None:
    """Breaks when a value is that of another row or column."""
    graph = gf.from_edges(*EDGES)
    found = gf.bfs(graph, 1)
    assert {v: found[v] for v in graph} == found.to_dict() and found[np.int64(3)] == 1
    texts = gf.triangles(gf.from_edges(["ann", "bob", "eve"], ["bob", "eve", "ann"]))
    assert texts["eve"] == 1
    pairs = gf.edge_betweenness(graph)
    assert pairs[7, 8] == 1 and pairs[7, 8] == pairs.to_dict()[7, 8]


def test_slices_rows_and_arrays() -> None:
    found = gf.connected_components(gf.from_edges(*EDGES))
    assert len(found) == 5 and bool(found[:0]) and len(found[:0]) == 0
    assert found[1:3].table.equals(found.table.slice(1, 2)) and found[1:3].summary == found.summary
    assert found[::-2].table["vertex"].to_pylist() == [8, 3, 1]
    assert list(found) == [(1, 3), (2, 3), (3, 3), (7, 8), (8, 8)]
    assert np.asarray(found).tolist() == [3, 3, 3, 8, 8] and np.array(found, dtype=float).dtype == float
    assert pa.table(found).equals(found.table)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (9, "9: 0 rows have this vertex"),
        ("x", "'x': is not a vertex of this result"),
        (2**70, "is not a vertex of this result"),
        (True, "True: is not a vertex"),
        (None, "None: is not a vertex"),
        ([1], r"\[1\]: is not a vertex"),
        ((1, 2), r"\(1, 2\): rows are named by vertex"),
    ],
)
def test_other_keys(key: Any, message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        _ = gf.connected_components(gf.from_edges(*EDGES))[key]
