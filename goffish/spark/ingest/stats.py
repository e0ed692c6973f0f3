"""Degrees and components of the graph, from what the partitions report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.graph import from_edges
from goffish.kernels.subgraphs import local_components

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


def degree_figures(reports: Iterable[Counts]) -> dict[str, Any]:
    """Smallest, mean, median and largest degree, and how many vertices have 0, 1, 2–3, 4–7 … arcs.

    Each report holds distinct degrees and how many vertices have them; a self-loop counts once.
    """
    parts = list(reports)
    degrees = np.concatenate([degree for degree, _ in parts]) if parts else np.empty(0, np.int64)
    counts = np.concatenate([count for _, count in parts]) if parts else np.empty(0, np.int64)
    total = int(counts.sum())
    if not total:
        return {"smallest": 0, "mean": 0.0, "median": 0, "largest": 0, "histogram": {}}
    order = np.argsort(degrees, kind="stable")
    degrees, counts = degrees[order], counts[order]
    middle = int(degrees[np.searchsorted(np.cumsum(counts), (total + 1) // 2)])
    bins = np.frexp(degrees.astype(np.float64))[1]  # 0: degree 0, k: 2^(k-1) … 2^k - 1
    histogram = {}
    for power in np.unique(bins).tolist():
        low, high = (0, 0) if power == 0 else (2 ** (power - 1), 2**power - 1)
        histogram[str(low) if low == high else f"{low}-{high}"] = int(counts[bins == power].sum())
    return {
        "smallest": int(degrees[0]),
        "mean": float((degrees * counts).sum() / total),
        "median": middle,
        "largest": int(degrees[-1]),
        "histogram": histogram,
    }


def component_figures(sizes: Sequence[NDArray[np.int64]], links: Iterable[Counts]) -> dict[str, Any]:
    """Number of weakly connected components and the vertices of the largest.

    The components of the graph are those of its quotient: `sizes` are the vertices of the subgraphs, in their order,
    and `links` the pairs of neighboring ones.
    """
    vertices = np.concatenate(sizes) if sizes else np.empty(0, np.int64)
    if not vertices.size:
        return {"components": 0, "largest": 0, "largest_share": 0.0}
    pairs = list(links)
    here, there = (np.concatenate([pair[at] for pair in pairs]) for at in (0, 1))
    quotient = from_edges(here, there, labels=np.arange(vertices.size))
    cells = np.zeros(vertices.size, np.int32)
    component, count = local_components(quotient.offsets, quotient.targets, cells, symmetric=True)
    largest = int(np.bincount(component, vertices, count).max())
    return {"components": count, "largest": largest, "largest_share": largest / int(vertices.sum())}
