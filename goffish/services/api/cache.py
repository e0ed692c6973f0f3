"""Least-recently-used cache with byte limits per client and in total.

The caches of `cachetools` have a single limit.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")
#: Overhead of an entry, in bytes.
_ENTRY = 512


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    size: int
    used: float


class OwnerCache(Generic[Value]):
    """Cache of values by owner and key, with least-recently-used eviction.

    Parameters
    ----------
    most_each, most : int
        Maximum bytes per owner, and in total.
    keep_s : float
        Entries unused for longer are evicted.
    now : callable
        Monotonic clock, in seconds.
    """

    def __init__(
        self, most_each: int, most: int, keep_s: float = float("inf"), now: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_each, self._most, self._keep_s, self._now = most_each, most, keep_s, now
        self._owners: OrderedDict[str, OrderedDict[Hashable, _Entry[Value]]] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._all = 0

    def get(self, owner: str, key: Hashable) -> Value | None:
        """Return a cached value, or ``None``."""
        held = self._owners.get(owner)
        found = None if held is None else held.get(key)
        if found is None or self._now() - found.used > self._keep_s:
            return None
        self.put(owner, key, found.value, found.size)
        return found.value

    def put(self, owner: str, key: Hashable, value: Value, size: int) -> None:
        """Cache a value of `size` bytes."""
        self._drop(owner, key)
        held = self._owners.setdefault(owner, OrderedDict())
        held[key] = _Entry(value, size, self._now())
        self._owners.move_to_end(owner)
        self._add(owner, size + _ENTRY)
        while self._bytes.get(owner, 0) > self._most_each or self._old(owner):
            self._drop(owner, next(iter(held)))
        while self._all > self._most:
            idle = next(iter(self._owners))
            self._drop(idle, next(iter(self._owners[idle])))

    def _old(self, owner: str) -> bool:
        held = self._owners.get(owner)
        return held is not None and self._now() - next(iter(held.values())).used > self._keep_s

    def _drop(self, owner: str, key: Hashable) -> None:
        held = self._owners.get(owner, OrderedDict())
        if key in held:
            self._add(owner, -(held.pop(key).size + _ENTRY))
            if not held:
                del self._owners[owner], self._bytes[owner]

    def _add(self, owner: str, size: int) -> None:
        self._bytes[owner] = self._bytes.get(owner, 0) + size
        self._all += size
