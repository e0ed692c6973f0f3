"""How partitions tell each other, and themselves, about labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.subgraph.messages import Kind, of_kind
from goffish.algorithms.communities.subgraph.pieces import Piece
from goffish.gopher import BatchStep, SubgraphBatch


def first_subgraphs(batch: SubgraphBatch) -> NDArray[np.int64]:
    """First sub-graph of every partition, shape (partitions + 1,): where messages to a partition go."""
    return batch.subgraph_starts


def announce(batch: SubgraphBatch, step: BatchStep, count: int, weight: float, kind: Kind = Kind.COUNT) -> None:
    """Tell every partition with vertices how many labels (or rows) this one has: the all-gather of the counts."""
    starts = first_subgraphs(batch)
    step.send_to_subgraph(
        starts[:-1][np.diff(starts) > 0], kind=kind, a=batch.partition, b=count, weight=weight
    )  # fmt: skip


def keep_ranges(batch: SubgraphBatch, step: BatchStep, starts: NDArray[np.int64]) -> None:
    """Remember the label ranges in messages to oneself: a partition may have fewer vertices than there are ranges."""
    step.send_to_subgraph(batch.first_id, kind=Kind.START, a=np.arange(starts.size), b=starts, weight=0.0)


def kept_ranges(step: BatchStep) -> NDArray[np.int64]:
    """First label of every partition, as remembered."""
    return np.ascontiguousarray(of_kind(step.messages, Kind.START)["b"])


def owners(batch: SubgraphBatch, starts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sub-graph that answers for each label: the first one of the partition in whose range it lies."""
    return first_subgraphs(batch)[np.searchsorted(starts, labels, side="right") - 1]


def tell_ghosts(batch: SubgraphBatch, step: BatchStep, piece: Piece, changed: NDArray[np.bool_] | None = None) -> None:
    """Send the labels of boundary vertices (those that `changed`), once to each neighbouring partition."""
    position, partition = piece.pair_position, piece.pair_partition
    if changed is not None:
        rows = np.flatnonzero(changed[position])
        position, partition = position[rows], partition[rows]
    step.send_to_subgraph(
        first_subgraphs(batch)[partition], kind=Kind.GHOST, a=batch.start + piece.vertex[position],
        b=batch["label"][position], weight=0.0,
    )  # fmt: skip


def ghost_labels(batch: SubgraphBatch, step: BatchStep, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels of the ghosts after the news of the inbox, and which of them are new."""
    ghost = _known(batch, step, piece)
    old = ghost.copy()
    news = of_kind(step.messages, Kind.GHOST)
    ghost[np.searchsorted(piece.ghosts, news["a"])] = news["b"]
    return ghost, ghost != old


def keep_ghosts(batch: SubgraphBatch, step: BatchStep, piece: Piece, ghost: NDArray[np.int64]) -> None:
    """Remember the labels of the ghosts until the next superstep.

    They fit into a column of the remote table, which lists every far end of an arc. Only in a directed graph can
    there be more ghosts than that, where arcs come in from outside; those are remembered in messages to oneself.
    """
    if batch["ghost"].size >= ghost.size:
        batch["ghost"][: ghost.size] = ghost
    else:
        step.send_to_subgraph(batch.first_id, kind=Kind.KNOWN, a=piece.ghosts, b=ghost, weight=0.0)


def _known(batch: SubgraphBatch, step: BatchStep, piece: Piece) -> NDArray[np.int64]:
    size = piece.ghosts.size
    if batch["ghost"].size >= size:
        return batch["ghost"][:size].copy()
    told = of_kind(step.messages, Kind.KNOWN)
    return np.ascontiguousarray(told["b"]) if told.size else np.full(size, -1, np.int64)
