"""What one partition holds for Louvain: its rows with ghosts behind the local vertices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.louvain.partitioned import _piece_kernels as kernels
from goffish.algorithms.louvain.sequential import UNIT, HalfEdges
from goffish.gopher import SubgraphBatch

_UNIT = np.empty(0, np.float64)
_UNIT.setflags(write=False)  # as the weights of a slice are: one type for the kernels


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of one partition, in the half-edge convention.

    Vertices are positions 0 … n-1: the partition's vertices by their number in the graph as read, so that nothing
    depends on how the partition is cut into sub-graphs. Ghosts are vertices of other partitions with an arc here.

    Attributes
    ----------
    vertex : int64, shape (n,)
        Index in the partition of each position.
    position : int64, shape (n,)
        Its inverse.
    starts, middle, ends : int64, shape (n,)
        Arcs to positions lie in ``starts … middle``, arcs to ghosts (counted from n) in ``middle … ends``.
    targets, weights, loops
        As in `HalfEdges`.
    degree : float64, shape (n,)
        k_i with cut edges.
    ghosts : int64, shape (g,)
        Partitioned number of each ghost, ascending.
    pair_position, pair_partition : int64 arrays
        Every boundary vertex with each of its neighbouring partitions.
    source : array
        The slice's targets, by which a piece is known to belong to it.
    """

    vertex: NDArray[np.int64]
    position: NDArray[np.int64]
    starts: NDArray[np.int64]
    middle: NDArray[np.int64]
    ends: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float64]
    loops: NDArray[np.float64]
    degree: NDArray[np.float64]
    ghosts: NDArray[np.int64]
    pair_position: NDArray[np.int64]
    pair_partition: NDArray[np.int64]
    source: NDArray[Any]

    @property
    def size(self) -> int:
        return self.starts.size

    @property
    def local(self) -> HalfEdges:
        """The rows without their cut edges."""
        return HalfEdges(self.starts, self.middle, self.targets, self.weights, self.loops)

    @property
    def cut_weight(self) -> float:
        """Weight of the arcs that leave the partition."""
        return float(self.degree.sum() - self.local.degrees().sum())


def cut_piece(batch: SubgraphBatch, partition_of: NDArray[np.int64], partitions: int) -> Piece:
    """The piece of a partition.

    Parameters
    ----------
    batch : SubgraphBatch
    partition_of : int64, shape (partitions + 1,)
        First sub-graph of every partition.
    partitions : int
    """
    n, first = batch.num_vertices, batch.start
    vertex = np.argsort(batch.vertex_ids, kind="stable").astype(np.int64)
    position = np.empty(n, np.int64)
    position[vertex] = np.arange(n)
    bounds = batch.subgraph_offsets
    sides = [(batch.offsets, batch.targets, batch.weights, batch.out_remotes())]
    if batch.directed:
        sides.append((batch.in_offsets, batch.in_targets, batch.in_weights, batch.in_remotes()))
    weighted = batch.weights is not None

    far, near = [], []  # (row, far end, weight) of the arcs to other partitions, and to other units of this one
    inner = np.zeros(n + 1, np.int64)
    for offsets, targets, weights, remotes in sides:
        kernels.count_local(bounds, offsets, targets, position, inner)
        weight = UNIT if weights is None else weights[np.flatnonzero(targets < 0)]
        own = (remotes.vertex >= first) & (remotes.vertex < first + n)
        row, other = position[remotes.source], remotes.vertex
        near.append((row[own], position[other[own] - first], weight[own] if weighted else UNIT))
        far.append((row[~own], other[~own], remotes.subgraph[~own], weight[~own] if weighted else UNIT))
        inner[1:] += np.bincount(near[-1][0], minlength=n)
    cut_row, cut_far, cut_subgraph, cut_weight = (
        np.concatenate([side[i] for side in far]) for i in range(4)
    )  # fmt: skip
    ghosts, where, ghost = np.unique(cut_far, return_index=True, return_inverse=True)
    inner_count = inner[1:]
    counts = inner_count + np.bincount(cut_row, minlength=n)
    ends = np.cumsum(counts)
    starts = ends - counts
    middle = starts + inner_count

    targets_out = np.empty(int(counts.sum()), np.int32)
    weights_out = np.empty(targets_out.size) if weighted else UNIT
    loops = np.zeros(n)
    cursor = starts.copy()
    for factor, (offsets, targets, weights, _), inside in zip((2.0, 0.0), sides, near, strict=False):
        kernels.fill_local(
            bounds, offsets, targets, _UNIT if weights is None else weights, factor, position, cursor,
            targets_out, weights_out, loops,
        )  # fmt: skip
        kernels.fill_far(*inside, cursor, targets_out, weights_out)
    kernels.fill_far(cut_row, n + ghost, cut_weight, cursor, targets_out, weights_out)
    ghost_partition = np.searchsorted(partition_of, cut_subgraph[where], side="right") - 1
    pair_position, pair_partition = kernels.boundary_pairs(middle, ends, targets_out, ghost_partition, partitions)
    whole = HalfEdges(starts, ends, targets_out, weights_out, loops)
    return Piece(
        vertex, position, starts, middle, ends, targets_out, weights_out, loops, whole.degrees(),
        ghosts.astype(np.int64), pair_position, pair_partition, batch.targets,
    )  # fmt: skip
