"""Where a run of the partitioned Louvain stands: the same in all partitions."""

from __future__ import annotations

from enum import IntEnum


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
