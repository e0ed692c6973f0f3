"""The threads of an engine: a pool that never holds up an error, and tasks that stop at the first failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from goffish.graph.parallel import wait_for

T = TypeVar("T")


@contextmanager
def open_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of `threads` threads for the length of a run."""
    pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="gopher")
    try:
        yield pool
    finally:
        # After an error or Ctrl-C the user goes on at once: a kernel that still runs ends by itself, unheard.
        pool.shutdown(wait=False, cancel_futures=True)


def run_all(
    pool: ThreadPoolExecutor, work: Sequence[Callable[[], T]], beat: Callable[[], None] | None = None
) -> list[T]:
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
