"""Results of closeness and harmonic centrality as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from goffish.algorithms.closeness.in_memory import Centrality, closeness, harmonic
from goffish.algorithms.timing import told_to
from goffish.gopher.result import Result
from goffish.graph import Graph

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.algorithms.closeness.options import ClosenessOptions, HarmonicOptions


def closeness_table(graph: Graph, options: ClosenessOptions, threads: int | None, note: Note | None = None) -> Result:
    """Columns ``vertex`` and ``closeness``; the summary holds the mean distance into the vertices."""
    found = closeness(
        graph, weighted=options.weighted, wf_improved=options.wf_improved, vertices=options.vertices, threads=threads,
        progress=told_to(note),
    )  # fmt: skip
    pairs = int(found.reached.sum())
    summary = {"mean_distance": float(found.total.sum()) / pairs} if pairs else {}
    return _table("closeness", graph, found, options.top, summary)


def harmonic_table(graph: Graph, options: HarmonicOptions, threads: int | None, note: Note | None = None) -> Result:
    """Columns ``vertex`` and ``harmonic``."""
    found = harmonic(
        graph, weighted=options.weighted, normalized=options.normalized, vertices=options.vertices,
        sources=options.sources, threads=threads, progress=told_to(note),
    )  # fmt: skip
    return _table("harmonic", graph, found, options.top, {})


def _table(name: str, graph: Graph, found: Centrality, top: int | None, summary: dict[str, Any]) -> Result:
    rows = np.arange(found.scores.size)
    if top is not None:
        rows = np.argsort(-found.scores, kind="stable")[:top]  # ties in the order of the vertices
    labels = graph.label_column().take(pa.array(found.vertices[rows]))
    return Result(name, pa.table({"vertex": labels, name: pa.array(found.scores[rows])}), summary)
