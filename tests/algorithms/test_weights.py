"""Weights at the edge of float64: refused in one line, or answered as weights of an ordinary size are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import goffish as gf
from goffish.errors import InputError

EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]
SRC, DST = np.array(EDGES).T
#: Functions of a graph and what they are called with; all of them calculate with weights.
SUMS: dict[str, dict[str, Any]] = {
    "pagerank": {"weighted": True}, "louvain": {}, "betweenness": {"weighted": True}, "closeness": {"weighted": True},
    "harmonic": {"weighted": True}, "landscape": {"weighted": True}, "sssp": {"source": 0},
}  # fmt: skip


def weighted(factor: float) -> gf.Graph:
    return gf.from_edges(SRC, DST, np.arange(1.0, 8.0) * factor)


@pytest.mark.parametrize("factor", [5e-324, 1e-310, 1e-141, 1e140, 2e307])
@pytest.mark.parametrize("name", SUMS)
def test_weights_out_of_range_are_refused(name: str, factor: float) -> None:
    graph = weighted(factor)
    for given in (graph, gf.partition(graph, 2, "range")):
        with pytest.raises(InputError, match=r"^weight \S+: weights must be 0 or from 1e-140 to 1e\+140"):
            gf.run(name, given, **SUMS[name])


@pytest.mark.parametrize("factor", [2.0**-460, 2.0**460])
@pytest.mark.parametrize("name", [name for name in SUMS if name not in ("closeness", "harmonic", "sssp")])
def test_a_power_of_two_changes_nothing(name: str, factor: float) -> None:
    for cut in (False, True):
        scaled, plain = (
            gf.run(name, gf.partition(g, 2, "range") if cut else g, **SUMS[name]).table
            for g in (weighted(factor), weighted(1.0))
        )
        column = {"landscape": "betweenness", "louvain": "community", "pagerank": "rank"}.get(name, name)
        assert scaled[column].to_pylist() == pytest.approx(plain[column].to_pylist(), rel=1e-12)
