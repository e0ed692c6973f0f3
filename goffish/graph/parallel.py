"""Threads for nogil kernels: how many, over which rows, and one small dispatcher."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError


def thread_count(threads: int | None = None) -> int:
    """The number of threads to use: `threads`, by default the processors this process may run on."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise InputError(f"threads={threads!r}: must be a positive integer, or None for all processors")
    return threads


def balanced_rows(offsets: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """Cut the rows of a CSR structure into `parts` ranges of about equal work (arcs plus rows).

    Returns
    -------
    int64, shape (parts + 1,)
        Ascending bounds from 0 to n; ranges may be empty. They depend on the graph and on `parts` only.
    """
    n = offsets.size - 1
    # Work before row v is offsets[v] + v, which ascends strictly: the bounds are one binary search each.
    total = int(offsets[-1]) + n
    bounds = np.empty(parts + 1, np.int64)
    for i in range(parts + 1):
        wanted = total * i // parts
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            if int(offsets[middle]) + middle < wanted:
                low = middle + 1
            else:
                high = middle
        bounds[i] = low
    return bounds


def run_tasks(call: Callable[..., Any], tasks: Iterable[Sequence[Any]], threads: int) -> list[Any]:
    """Call ``call(*task)`` for every task on up to `threads` threads; answers in the order of the tasks.

    The calling thread works too. Which thread runs which task is left open, so tasks must write to separate places.
    """
    todo = list(tasks)
    helpers = min(threads, len(todo)) - 1
    if helpers < 1:
        return [call(*task) for task in todo]
    answers: list[Any] = [None] * len(todo)
    ticket = iter(range(len(todo)))  # next() on a range iterator is atomic under the GIL

    def work() -> None:
        try:
            for i in ticket:
                answers[i] = call(*todo[i])
        except BaseException:
            for _ in ticket:  # nobody begins another task
                pass
            raise

    futures: list[Future[None]] = [_pool(helpers).submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error
    return answers


def wait_for(
    futures: Sequence[Future[None]], beat: Callable[[], None] | None = None
) -> tuple[set[Future[None]], set[Future[None]]]:
    """Wait for all futures or the first that fails; calls `beat` ten times a second, gives those done and the others.

    In short steps because Ctrl-C would not wake a waiting thread where a library (polars) has put a signal handler of
    its own in between.
    """
    while True:
        done, waiting = wait(futures, timeout=0.1, return_when=FIRST_EXCEPTION)
        if not waiting or any(future.exception() is not None for future in done):
            return done, waiting
        if beat is not None:
            beat()


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="goffish")
