"""Which partitions go together where there are fewer workers than partitions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from goffish.gofs import PartitionedGraph


def partitions_of(graph: PartitionedGraph, workers: int) -> list[list[int]]:
    """Partitions of every worker: greedy by arcs, so that each worker has about the same number."""
    info = graph.info
    return place([arcs + vertices for arcs, vertices in zip(info.arcs, info.vertices, strict=True)], workers)


def place(costs: Sequence[int], workers: int) -> list[list[int]]:
    """Which partitions every worker has: the costliest first, each to the worker that has least so far.

    Returns
    -------
    list of lists of int, one per worker
        Ascending partition numbers; empty where there are fewer partitions than workers. A function of its arguments
        alone, so that every worker computes the same.
    """
    heap = [(0, worker) for worker in range(workers)]
    owned: list[list[int]] = [[] for _ in range(workers)]
    for partition in sorted(range(len(costs)), key=lambda p: (-costs[p], p)):
        load, worker = heapq.heappop(heap)
        owned[worker].append(partition)
        heapq.heappush(heap, (load + costs[partition], worker))
    return [sorted(partitions) for partitions in owned]
