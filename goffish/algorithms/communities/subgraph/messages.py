"""The messages of the partitioned Louvain: one payload, several kinds."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

MESSAGE = {"kind": np.int8, "a": np.int64, "b": np.int64, "weight": np.float64}


class Kind(IntEnum):
    """What a message says (columns a, b, weight)."""

    COUNT = 0  # partition, its number of labels, its total degree
    START = 1  # partition, its first label
    GHOST = 2  # vertex, its new label
    DELTA = 3  # label, -, change of its total degree
    ASK = 4  # label, sub-graph that asks for its total degree
    TOLD = 5  # label, -, its total degree
    HEAD = 6  # partition, its vertices, gain of its first level
    ROW = 7  # label, label, weight between them
    OUTER = 8  # label, the community that it lies in
    KNOWN = 9  # ghost, label: what a partition tells itself
    ARCS = 10  # partition, most rows that it would send to the master now
    PLACE = 16  # PLACE + l: communities on level l, see `pack_places`


def of_kind(messages: np.ndarray[Any, Any], kind: int) -> np.ndarray[Any, Any]:
    """The rows of one kind, in their order."""
    rows = np.flatnonzero(messages["kind"] == kind)
    # A mask would copy structured rows field by field.
    return messages if rows.size == messages.size else messages.take(rows)


def ranges(messages: np.ndarray[Any, Any], partitions: int) -> NDArray[np.int64]:
    """First label of every partition from the `COUNT` of each one that has vertices, shape (partitions + 1,)."""
    counts = of_kind(messages, Kind.COUNT)
    starts = np.zeros(partitions + 1, np.int64)
    starts[counts["a"] + 1] = counts["b"]
    return np.cumsum(starts)


def pack_places(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers below 2^31 in the columns a and b, four to a message."""
    room = np.full((-(-places.size // 4), 4), -1, np.int32)
    room.ravel()[: places.size] = places
    numbers = room.view(np.int64)
    return numbers[:, 0], numbers[:, 1]


def unpack_places(messages: np.ndarray[Any, Any], count: int) -> NDArray[np.int32]:
    """The inverse of `pack_places`, of so many numbers."""
    numbers = np.empty((messages.size, 2), np.int64)
    numbers[:, 0], numbers[:, 1] = messages["a"], messages["b"]
    return numbers.view(np.int32).ravel()[:count]
