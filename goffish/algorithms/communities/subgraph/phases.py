"""Where a run of the partitioned Louvain stands, the same in all partitions, and its options."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from goffish.algorithms.communities.settings import Search


class Phase(IntEnum):
    """What the next superstep does."""

    LEVEL = 0
    NUMBER = 1
    GATHER = 2
    ANSWER = 3
    MOVE = 4
    SETTLE = 5
    SPLIT = 6
    NUMBER_PIECES = 7
    MERGE = 8
    WAIT = 9
    COMPOSE = 10


class Options(Protocol):
    """What the rounds and the master read of the program's options."""

    seed: int
    eps: float
    resolution: float
    max_levels: int | None
    repair_rounds: int
    connected: bool

    @property
    def refined(self) -> bool: ...

    def published(self) -> Search: ...

    def search(self, *key: int) -> Search: ...
