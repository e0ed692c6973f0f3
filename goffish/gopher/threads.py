"""The threads of an engine: a pool that never holds up an error, and tasks that stop at the first failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from goffish.graph.parallel import wait_for

T = TypeVar("T")
#: Vertices and edges up to which a superstep takes less time than waking the threads for it.
SMALL = 10_000


class _Here(Executor):
    """Whoever hands out work does it at once; what it raises goes straight to them."""

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
