"""Rows of a graph as kernels gather along them, cut into ranges for threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows, run_tasks
from goffish.kernels.csr import NO_WEIGHTS

#: Arcs plus rows of one task: some 0.3 ms, well above the cost of handing it over. Fixed, so that sums do not depend on
#: the threads.
CHUNK = 3 << 16
_MOST_TASKS = 64


class Rows:
    """Rows of a graph, without signs: signed subscripts are tested for being negative.

    Attributes
    ----------
    matrix : tuple
        Row pointers, targets, weights, and whether these are used; the first arguments of `pagerank.kernels.apply`.
    threads : int
    """

    def __init__(self, graph: Graph, weighted: bool, threads: int) -> None:
        unsigned = np.uint32 if graph.targets.dtype == np.int32 else np.uint64
        self.offsets = graph.offsets
        weights = graph.weights if weighted and graph.weights is not None else NO_WEIGHTS
        self.matrix = (graph.offsets.view(np.uint64), graph.targets.view(unsigned), weights, weighted)
        self.threads = threads

    def ranges(self, work: int | None = None) -> list[tuple[np.uint64, np.uint64]]:
        """Ranges of rows of about `work` arcs and rows each, by default `CHUNK`."""
        parts = min(max((int(self.offsets[-1]) + self.offsets.size) // (work or CHUNK), 1), _MOST_TASKS)
        bounds = balanced_rows(self.offsets, parts).astype(np.uint64)
        return [(a, b) for a, b in pairwise(bounds) if a < b]

    def total(self, kernel: Callable[..., Any], *arguments: Any, ranges: list[tuple[np.uint64, np.uint64]]) -> Any:
        """Run a kernel on all ranges and add up its sums in the order of the ranges."""
        parts = run_tasks(lambda a, b: kernel(*arguments, a, b), ranges, self.threads)
        return np.array(parts).cumsum(axis=0)[-1]
