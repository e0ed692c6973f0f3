"""Calls that may wait, away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def elsewhere(call: Callable[..., Answer], *given: Any, threads: Executor | None = None) -> Answer:
    """Call in another thread what may wait for a disk or a database; what takes long, in threads of its own."""
    return await asyncio.get_running_loop().run_in_executor(threads, call, *given)
