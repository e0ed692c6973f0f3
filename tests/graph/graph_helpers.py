"""Oracles for the graph tests: a dictionary-based builder and a line-by-line parser, both plain Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from goffish.graph import Graph

#: The published graphs that come with the repository.
DATA = Path(__file__).parents[2] / "data"


def assert_same(a: Graph, b: Graph, *, labels: bool = True) -> None:
    """Equal structure, labels, weights and attributes."""
    assert a.directed == b.directed
    if labels:
        assert a.label_column().to_pylist() == b.label_column().to_pylist()
    assert a.offsets.tolist() == b.offsets.tolist()
    assert a.targets.tolist() == b.targets.tolist()
    assert a.num_edges == b.num_edges
    assert (a.weights is None) == (b.weights is None)
    if a.weights is not None:
        assert a.weights.tolist() == b.weights.tolist()
    for mine, other in ((a.vertex_attributes, b.vertex_attributes), _edge_attributes(a, b)):
        assert (mine is None) == (other is None)
        assert mine is None or mine.to_pydict() == other.to_pydict()


def _edge_attributes(a: Graph, b: Graph):
    return a.edge_columns()[3], b.edge_columns()[3]


def edge_set(graph: Graph) -> list[tuple]:
    """Every edge once, by labels, with its weight, sorted."""
    src, dst, weight, _ = graph.edge_columns()
    labels = graph.label_column().to_pylist()
    weights = np.ones(src.size) if weight is None else weight
    return sorted((labels[u], labels[v], w) for u, v, w in zip(src, dst, weights.tolist(), strict=True))


def build_by_hand(rows, *, directed, self_loops="drop", parallel="min"):
    """Rows (u, v, w) to the sorted edge list that `from_edges` must give; ends of undirected edges ascend."""
    groups: dict[tuple, list[float]] = {}
    for u, v, w in rows:
        if u == v and self_loops == "drop":
            continue
        key = (u, v) if directed else (min(u, v), max(u, v))
        groups.setdefault(key, []).append(w)
    merge = {"min": lambda w: [min(w)], "sum": lambda w: [sum(w)], "first": lambda w: w[:1], "keep": list}
    return sorted((u, v, w) for (u, v), ws in groups.items() for w in merge[parallel](ws))


def parse_by_hand(text: str, separator=None):
    """A reference parser of numeric edge lists: [(u, v, weight or 1.0)]."""
    rows = []
    for line in text.split("\n"):
        fields = line.strip().split(separator)
        if not line.strip() or fields[0][:1] in "#%":
            continue
        rows.append((int(fields[0]), int(fields[1]), float(fields[2]) if len(fields) > 2 else 1.0))
    return rows
