"""How engines share out work: partitions among workers, and tasks among the threads of a process."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from goffish.gofs import PartitionedGraph
from goffish.graph.parallel import wait_for

T = TypeVar("T")
#: Vertices and edges up to which a superstep takes less time than waking the threads for it.
SMALL = 10_000


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


class _Here(Executor):
    """Run work in the caller at once; its exceptions propagate directly."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def open_pool(threads: int, size: int | None = None) -> Iterator[Executor]:
    """A pool of `threads` threads for the length of a run; none for a graph of a `size` that is known to be `SMALL`."""
    if size is not None and size <= SMALL:
        yield _Here()
        return
    pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="gopher")
    try:
        yield pool
    finally:
        # After an error or Ctrl-C the user goes on at once: a kernel that still runs ends by itself, unheard.
        pool.shutdown(wait=False, cancel_futures=True)


def run_all(pool: Executor, work: Sequence[Callable[[], T]], beat: Callable[[], None] | None = None) -> list[T]:
    """Run every task and give their answers; the first that fails ends the wait.

    So does an exception of `beat`, which is called ten times a second.
    """
    futures: list[Future[Any]] = [pool.submit(task) for task in work]
    try:
        done, _ = wait_for(futures, beat)
    finally:
        for future in futures:
            future.cancel()
    for future in done:
        future.result()
    return [future.result() for future in futures]
