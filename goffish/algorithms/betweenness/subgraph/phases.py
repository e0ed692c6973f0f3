"""Where a run of the partitioned betweenness stands: the same in all partitions."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What the next superstep does."""

    NAME = 0
    PREPARE = 1
    LEAVES = 2
    LABELS = 3
    TOTALS = 4
    COMPONENTS = 5
    SIZES = 6
    DRAW = 7
    GIVE = 8
    SEARCH = 9
    SUCCESSORS = 10
    PATHS = 11
    DEPENDENCIES = 12
    MERGE = 13
    DECIDE = 14


#: Phases that go on until no message is sent, and the counter of their supersteps.
STAGES = {
    Phase.LEAVES: "compression_supersteps",
    Phase.SEARCH: "search_supersteps",
    Phase.SUCCESSORS: "successor_supersteps",
    Phase.PATHS: "path_supersteps",
    Phase.DEPENDENCIES: "dependency_supersteps",
}
