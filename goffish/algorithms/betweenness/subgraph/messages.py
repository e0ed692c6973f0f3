"""The protocol of the partitioned betweenness: phases, and one message payload of several kinds."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

MESSAGE = {"kind": np.int8, "slot": np.int32, "sender": np.int64, "value": np.float64, "other": np.float64}


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


class Kind(IntEnum):
    """What a message says (columns slot, sender, value, other; the addressed vertex is the target).

    The first seven are those of the specification (section 3.3). Of the first four, one message goes to a subgraph
    for all arcs between the sender and its vertices, whose rows show which of these lie on shortest paths.
    The result counts the arcs.
    """

    DIST = 0  # slot, a predecessor of vertices of the addressed subgraph, its distance, -
    SUCC = 1  # slot, a successor of vertices of the addressed subgraph, its distance, -
    PATHS = 2  # slot, a predecessor of such vertices, its number of shortest paths, its power (see `sweep_kernels`)
    DEP = 3  # slot, a successor, (its tree + its dependency) / its number of shortest paths, the power of that number
    LEAF = 4  # -, a removed leaf whose parent is the target, vertices in its tree, sources among them
    SIZE = 5  # sources in the component, core vertex that the target's tree hangs at (or -1), vertices in it, its unit
    TOPK = 6  # partition, vertex as read, its value, whether it was in the set before
    NAME = 7  # -, a vertex beyond a cut arc, its number as read, -
    LABEL = 8  # -, a smaller label for the target's component, -, -
    TOTAL = 9  # partition, label of a component, original vertices in it, sources among them
    DRAW = 10  # how often a source was drawn, the source, the least rank among them, its unit
    GIVE = 11  # how often, -, turn of the target in this batch, -
    TIMES = 12  # slot, -, how often its source was drawn, -
    HOPS = 13  # slot, cut arcs of its shortest-path graph, most of them on one path, -
    TOP = 14  # -, vertex as read that is in the set now, -, -
    KEPT = 15  # slot, predecessor beyond a cut arc (row of the table), its distance, its number of paths
    POWER = 16  # slot, such a predecessor, the power of its number of paths, -


#: Kinds that the result counts.
COUNTED = (Kind.DIST, Kind.SUCC, Kind.PATHS, Kind.DEP, Kind.LEAF, Kind.SIZE, Kind.TOPK)


def of_kind(messages: np.ndarray[Any, Any], kind: Kind) -> np.ndarray[Any, Any]:
    """The rows of one kind, in their order."""
    rows = np.flatnonzero(messages["kind"] == kind)
    # A mask would copy structured rows field by field.
    return messages if rows.size == messages.size else messages.take(rows)


def column(messages: np.ndarray[Any, Any], name: str) -> NDArray[Any]:
    """One column of structured rows, contiguous."""
    return np.ascontiguousarray(messages[name])
