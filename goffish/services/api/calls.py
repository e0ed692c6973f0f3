"""Execution of blocking calls in threads, with fair scheduling across clients."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from goffish.services.api.guard import caller

Answer = TypeVar("Answer")
_Given = ParamSpec("_Given")


async def elsewhere(call: Callable[..., Answer], *given: Any, threads: Executor | None = None) -> Answer:
    """Run a blocking call in a thread; pass `threads` for long calls."""
    return await asyncio.get_running_loop().run_in_executor(threads, call, *given)


class FairThreads(ThreadPoolExecutor):
    """Thread pool with round-robin scheduling across clients; calls of one client run in order.

    Parameters
    ----------
    count : int
        Number of threads.
    each : int
        Maximum number of threads per client.
    name : str
        Prefix of the thread names.
    """

    def __init__(self, count: int, each: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._count, self._each = count, each
        self._turns = threading.Lock()
        #: Queued calls by client, least recently served client first.
        self._queues: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._running: Counter[str] = Counter()

    def submit(self, fn: Callable[_Given, Answer], /, *args: _Given.args, **kwargs: _Given.kwargs) -> Future[Answer]:
        """Queue a call for the client of this context."""
        known, future = caller.get(None), Future[Answer]()
        client = "" if known is None else known.name
        with self._turns:
            self._queues.setdefault(client, deque()).append((future, partial(fn, *args, **kwargs)))
            starts = self._running.total() < self._count and self._running[client] < self._each
            if starts:
                # Reserve the slot now; the thread chooses the client when it starts.
                self._running[client] += 1
        if starts:
            super().submit(self._work, client)
        return future

    def _work(self, client: str) -> None:
        """Run queued calls until none may run; `client` is the owner of the reserved slot."""
        place: str | None = client
        while place is not None:
            with self._turns:
                found = self._next(place)
                place = None if found is None else found[0]
            if found is not None:
                _carry_out(*found[1])
                del found

    def _next(self, place: str) -> tuple[str, tuple[Future[Any], Callable[[], Any]]] | None:
        """Release a slot and take the next call in turn."""
        self._running[place] -= 1
        if not self._running[place]:
            del self._running[place]
        for client, queue in self._queues.items():
            if self._running[client] < self._each:
                self._running[client] += 1
                call = queue.popleft()
                if queue:
                    self._queues.move_to_end(client)
                else:
                    del self._queues[client]
                return client, call
        return None


def _carry_out(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        answer = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(answer)


class Shared(Generic[Answer]):
    """Call that runs in a dedicated thread; concurrent callers share its result.

    Parameters
    ----------
    call : callable
        Function without arguments.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call, self._thread = call, ThreadPoolExecutor(1, thread_name_prefix="shared")
        self._under_way: asyncio.Future[Answer] | None = None

    async def __call__(self) -> Answer:
        """Return the result of the current call, or start one."""
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().run_in_executor(self._thread, self._call)
            self._under_way.add_done_callback(self._ended)
        return await asyncio.shield(self._under_way)

    def _ended(self, ended: asyncio.Future[Answer]) -> None:
        self._under_way = None
        with contextlib.suppress(asyncio.CancelledError):
            ended.exception()  # mark as retrieved
