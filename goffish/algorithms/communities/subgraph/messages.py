"""The protocol of the partitioned Louvain: phases, one message payload of several kinds, and the exchange of labels."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.settings import Search
from goffish.algorithms.communities.subgraph.pieces import Piece
from goffish.gopher import BatchStep, SubgraphBatch

MESSAGE = {"kind": np.int8, "a": np.int64, "b": np.int64, "weight": np.float64}


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
    refine: bool
    start: NDArray[np.int64] | None

    def published(self) -> Search: ...

    def search(self, *key: int) -> Search: ...

    def by_direction(self, batch: SubgraphBatch) -> bool: ...


class Kind(IntEnum):
    """What a message says (columns a, b, weight)."""

    COUNT = 0  # partition, its number of labels, its total degree
    START = 1  # partition, its first label
    GHOST = 2  # vertex, its new label
    DELTA = 3  # label, change of its total in-degree (bits, see `bits_of`), change of its total degree
    ASK = 4  # label, subgraph that asks for its total degree
    ANSWERED = 5  # label, its total in-degree (bits), its total degree
    HEAD = 6  # partition, its vertices, gain of its first level
    ROW = 7  # label, label, weight between them
    OUTER = 8  # label, the community that it lies in
    KNOWN = 9  # ghost, label: kept by a partition for itself
    ARCS = 10  # partition, most rows that it would send to the master now
    DEGREE = 11  # label, its total in-degree (bits), its total out-degree
    BEGIN = 12  # label, community that it starts in, 1 if it has to stay there
    PLACE = 16  # PLACE + l: communities on level l, see `pack_places`


def of_kind(messages: np.ndarray[Any, Any], kind: int) -> np.ndarray[Any, Any]:
    """The rows of one kind, in their order."""
    rows = np.flatnonzero(messages["kind"] == kind)
    # A mask would copy structured rows field by field.
    return messages if rows.size == messages.size else messages.take(rows)


def bits_of(values: NDArray[Any]) -> NDArray[np.int64]:
    """Floating point numbers as the column b of messages carries them; `floats_of` is the inverse."""
    return np.ascontiguousarray(values, np.float64).view(np.int64)


def floats_of(bits: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(bits).view(np.float64)


def ranges(messages: np.ndarray[Any, Any], partitions: int) -> NDArray[np.int64]:
    """First label of every partition from the `COUNT` of each one that has vertices, shape (partitions + 1,)."""
    counts = of_kind(messages, Kind.COUNT)
    starts = np.zeros(partitions + 1, np.int64)
    starts[counts["a"] + 1] = counts["b"]
    return np.cumsum(starts)


def pack_places(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers below 2^31 in the columns a and b, four to a message."""
    space = np.full((-(-places.size // 4), 4), -1, np.int32)
    space.ravel()[: places.size] = places
    numbers = space.view(np.int64)
    return numbers[:, 0], numbers[:, 1]


def unpack_places(messages: np.ndarray[Any, Any], count: int) -> NDArray[np.int32]:
    """The inverse of `pack_places`, of so many numbers."""
    numbers = np.empty((messages.size, 2), np.int64)
    numbers[:, 0], numbers[:, 1] = messages["a"], messages["b"]
    return numbers.view(np.int32).ravel()[:count]


def first_subgraphs(batch: SubgraphBatch) -> NDArray[np.int64]:
    """First subgraph of every partition, shape (partitions + 1,): where messages to a partition go."""
    return batch.subgraph_starts


def announce(batch: SubgraphBatch, step: BatchStep, count: int, weight: float, kind: Kind = Kind.COUNT) -> None:
    """Send every partition with vertices the number of labels (or rows) of this one: the all-gather of the counts."""
    starts = first_subgraphs(batch)
    step.send_to_subgraph(
        starts[:-1][np.diff(starts) > 0], kind=kind, a=batch.partition, b=count, weight=weight
    )  # fmt: skip


def keep_ranges(batch: SubgraphBatch, step: BatchStep, starts: NDArray[np.int64]) -> None:
    """Keep the label ranges in messages to this partition, which may have fewer vertices than there are ranges."""
    step.send_to_subgraph(batch.first_id, kind=Kind.START, a=np.arange(starts.size), b=starts, weight=0.0)


def kept_ranges(step: BatchStep) -> NDArray[np.int64]:
    """First label of every partition, as kept."""
    return np.ascontiguousarray(of_kind(step.messages, Kind.START)["b"])


def owners(batch: SubgraphBatch, starts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Subgraph that answers for each label: the first one of the partition in whose range it lies."""
    return first_subgraphs(batch)[np.searchsorted(starts, labels, side="right") - 1]


def send_to_ghosts(
    batch: SubgraphBatch, step: BatchStep, piece: Piece, changed: NDArray[np.bool_] | None = None
) -> None:
    """Send the labels of boundary vertices (those that `changed`), once to each neighboring partition."""
    position, partition = piece.pair_position, piece.pair_partition
    if changed is not None:
        rows = np.flatnonzero(changed[position])
        position, partition = position[rows], partition[rows]
    step.send_to_subgraph(
        first_subgraphs(batch)[partition], kind=Kind.GHOST, a=batch.start + piece.vertex[position],
        b=batch["label"][position], weight=0.0,
    )  # fmt: skip


def ghost_labels(batch: SubgraphBatch, step: BatchStep, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels of the ghosts with the changes from the inbox, and which of them changed."""
    ghost = _known(batch, step, piece)
    old = ghost.copy()
    news = of_kind(step.messages, Kind.GHOST)
    ghost[np.searchsorted(piece.ghosts, news["a"])] = news["b"]
    return ghost, ghost != old


def keep_ghosts(batch: SubgraphBatch, step: BatchStep, piece: Piece, ghost: NDArray[np.int64]) -> None:
    """Keep the labels of the ghosts until the next superstep.

    They fit into a column of the remote table, which lists every far end of an arc. Only in a directed graph can
    there be more ghosts than that, where arcs come in from outside; those are kept in messages to this partition.
    """
    if batch["ghost"].size >= ghost.size:
        batch["ghost"][: ghost.size] = ghost
    else:
        step.send_to_subgraph(batch.first_id, kind=Kind.KNOWN, a=piece.ghosts, b=ghost, weight=0.0)


def _known(batch: SubgraphBatch, step: BatchStep, piece: Piece) -> NDArray[np.int64]:
    size = piece.ghosts.size
    if batch["ghost"].size >= size:
        return batch["ghost"][:size].copy()
    received = of_kind(step.messages, Kind.KNOWN)
    return np.ascontiguousarray(received["b"]) if received.size else np.full(size, -1, np.int64)
