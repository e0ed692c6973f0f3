"""Spanning forests as networkx asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from goffish.networkx_backend.graph import EXACT, BackendGraph

Verdict = bool | str


def minimum_spanning_edges(
    G: BackendGraph,
    algorithm: str = "kruskal",
    weight: Any = "weight",
    keys: bool = True,
    data: bool = True,
    ignore_nan: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """As `networkx.minimum_spanning_edges` with Kruskal's algorithm: of equal weights the first edges are taken."""
    from goffish.algorithms.structure.in_memory import forest_of_edges

    values = np.ones(G.src.size) if weight is None else G.weights(weight).values
    if (np.abs(values) > EXACT).any():
        raise NotImplementedError(f"the edge attribute {weight!r} holds numbers that may have been rounded")
    edges = forest_of_edges(G.src, G.dst, values, len(G))
    edges = edges[np.argsort(values[edges], kind="stable")]
    columns: list[Any] = [[G.nodes[v] for v in ends[edges].tolist()] for ends in (G.src, G.dst)]
    if G.edge_keys is not None and keys:
        columns.append([G.edge_keys[i] for i in edges.tolist()])
    if data:
        assert G.edge_dicts is not None, "networkx has all attributes converted if it asks for them"
        columns.append([G.edge_dicts[i] for i in edges.tolist()])
    return zip(*columns, strict=True)


def can_span(
    G: Any,
    algorithm: Any = "kruskal",
    weight: Any = "weight",
    keys: Any = True,
    data: Any = True,
    ignore_nan: Any = False,
) -> Verdict:
    """Whether a spanning forest is answered."""
    return True if algorithm == "kruskal" else "algorithms other than kruskal"
