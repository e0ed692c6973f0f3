"""Calls that may wait, away from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")
#: Large messages are read side by side with short calls, not in front of them.
_readers = ThreadPoolExecutor(2, thread_name_prefix="read")


async def elsewhere(call: Callable[..., Answer], *given: Any) -> Answer:
    """Call in another thread what may wait for a disk or a database."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *given)


async def parsed(call: Callable[..., Answer], *given: Any) -> Answer:
    """Call in another thread what reads and checks a message, which takes long for a large one."""
    return await asyncio.get_running_loop().run_in_executor(_readers, call, *given)


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
