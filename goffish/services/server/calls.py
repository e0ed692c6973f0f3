"""Calls that may wait or take long, away from the event loop."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from goffish.errors import JobError

Answer = TypeVar("Answer")
#: PR_SET_PDEATHSIG of Linux.
_DIES_WITH_PARENT = 1


async def elsewhere(call: Callable[..., Answer], *given: Any) -> Answer:
    """Call in another thread what may wait for a disk or a database."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *given)


class Once(Generic[Answer]):
    """An answer that is made by whoever asks first, while the others wait for it.

    Parameters
    ----------
    make : callable
    """

    def __init__(self, make: Callable[[], Answer]) -> None:
        self._make: Callable[[], Answer] | None = make
        self._lock = threading.Lock()

    def __call__(self) -> Answer:
        """The answer."""
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
        return self._made


def _follow() -> None:
    """End with the server, also when it is killed, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


class Processes:
    """Other processes for what takes long: a plan of minutes must not hold up everybody else.

    Parameters
    ----------
    count : int
        Calls at a time; the others wait.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    async def call(self, call: Callable[..., Answer], *given: Any) -> Answer:
        """Call in a process; both ways only our own objects are sent.

        Raises
        ------
        JobError
            The process was lost, as it happens when memory runs out.
        """
        if self._pool is None:
            # Not a fork: this process has threads, and gRPC does not survive one.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, mp_context=context, initializer=_follow)
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, call, *given)
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            raise JobError("the process that planned was lost; ask for something smaller") from None

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            for process in list((getattr(self._pool, "_processes", None) or {}).values()):
                process.terminate()
            self._pool.shutdown(cancel_futures=True)
