"""Calls that may wait, away from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


async def elsewhere(call: Callable[..., Answer], *given: Any, threads: Executor | None = None) -> Answer:
    """Call in another thread what may wait for a disk or a database; what takes long, in threads of its own."""
    return await asyncio.get_running_loop().run_in_executor(threads, call, *given)


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
