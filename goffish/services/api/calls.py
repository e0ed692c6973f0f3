"""Calls that may wait, away from the event loop: clients take turns for the threads."""

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
    """Call in another thread what may wait for a disk or a database; what takes long, in threads of its own."""
    return await asyncio.get_running_loop().run_in_executor(threads, call, *given)


class FairThreads(ThreadPoolExecutor):
    """Threads for which the clients that call take turns, each in the order of its own calls.

    Parameters
    ----------
    count : int
    each : int
        Threads of one client at a time. The others are left for the other clients: threads that compute share one
        processor.
    name : str
        How the names of the threads begin.
    """

    def __init__(self, count: int, each: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._count, self._each = count, each
        self._turns = threading.Lock()
        #: Clients with calls that wait; the one whose last turn is the longest ago comes first.
        self._queues: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._running: Counter[str] = Counter()

    def submit(self, fn: Callable[_Given, Answer], /, *args: _Given.args, **kwargs: _Given.kwargs) -> Future[Answer]:
        """Call when it is the turn of the client of this context."""
        known, future = caller.get(None), Future[Answer]()
        client = "" if known is None else known.name
        with self._turns:
            self._queues.setdefault(client, deque()).append((future, partial(fn, *args, **kwargs)))
            starts = self._running.total() < self._count and self._running[client] < self._each
            if starts:
                # A place is taken now, not when the thread begins; whose turn it is is decided then.
                self._running[client] += 1
        if starts:
            super().submit(self._work, client)
        return future

    def _work(self, client: str) -> None:
        """Carry out calls until no client has one that may run; a thread begins with the place of a client."""
        place: str | None = client
        while place is not None:
            with self._turns:
                found = self._next(place)
                place = None if found is None else found[0]
            if found is not None:
                _carry_out(*found[1])
                del found

    def _next(self, place: str) -> tuple[str, tuple[Future[Any], Callable[[], Any]]] | None:
        """Give a place back, and take that of the client whose turn it is."""
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
    """A call with a thread of its own: who asks while it is under way gets the same answer.

    Parameters
    ----------
    call : callable
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call, self._thread = call, ThreadPoolExecutor(1, thread_name_prefix="shared")
        self._under_way: asyncio.Future[Answer] | None = None

    async def __call__(self) -> Answer:
        """The answer."""
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().run_in_executor(self._thread, self._call)
            self._under_way.add_done_callback(self._ended)
        return await asyncio.shield(self._under_way)

    def _ended(self, ended: asyncio.Future[Answer]) -> None:
        self._under_way = None
        with contextlib.suppress(asyncio.CancelledError):
            ended.exception()  # nobody may have waited for it
