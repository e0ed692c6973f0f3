"""What one partition holds for Louvain: its rows with ghosts behind the local vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.level_kernels import count_rows, fill_rows
from goffish.algorithms.communities.levels import Level, undirected_level
from goffish.algorithms.communities.merge_kernels import row_sums
from goffish.algorithms.communities.subgraph import piece_kernels as kernels
from goffish.gopher import SubgraphBatch
from goffish.kernels.csr import NO_WEIGHTS

_UNIT = np.empty(0, np.float64)
_Arcs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]  # rows, targets, weights
_UNIT.setflags(write=False)  # as the weights of a slice are: one type for the kernels


class Ways(NamedTuple):
    """Weighted degrees of the positions by direction, with and without cut arcs; empty for an undirected graph."""

    out: NDArray[np.float64]
    into: NDArray[np.float64]
    near_out: NDArray[np.float64]
    near_into: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of one partition, in the half-edge convention.

    Vertices are positions 0 … n-1: the partition's vertices by their number in the graph as read, so that nothing
    depends on how the partition is cut into subgraphs. Ghosts are vertices of other partitions with an arc here.

    Attributes
    ----------
    vertex : int64, shape (n,)
        Index in the partition of each position.
    position : int64, shape (n,)
        Its inverse.
    starts, middle, ends : int64, shape (n,)
        Arcs to positions lie in ``starts … middle``, arcs to ghosts (counted from n) in ``middle … ends``.
    targets, weights, loops
        As in `goffish.algorithms.communities.levels.Level`.
    degree : float64, shape (n,)
        k_i with cut edges.
    ways : Ways
        Of a directed graph, the degrees by direction.
    ghosts : int64, shape (g,)
        Partitioned number of each ghost, ascending.
    pair_position, pair_partition : int64 arrays
        Every boundary vertex with each of its neighboring partitions.
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
    ways: Ways
    ghosts: NDArray[np.int64]
    pair_position: NDArray[np.int64]
    pair_partition: NDArray[np.int64]
    source: NDArray[Any]

    @property
    def rows(self) -> kernels.PieceRows:
        return kernels.PieceRows(self.starts, self.middle, self.ends, self.targets, self.weights)

    @property
    def size(self) -> int:
        return self.starts.size

    def degrees(self, *, directed: bool) -> kernels.Degrees:
        """The degrees of the null model: of out- and of incoming arcs, or of both together."""
        return kernels.Degrees(self.ways.out, self.ways.into) if directed else kernels.Degrees(self.degree, NO_WEIGHTS)

    def local(self, *, zeros: bool, directed: bool = False) -> Level:
        """The rows without their cut edges.

        Parameters
        ----------
        zeros : bool
            With the arcs of weight 0.
        directed : bool
            For directed modularity.
        """
        weighted = self.weights.size > 0
        offsets = np.zeros(self.size + 1, np.int64)
        arcs = int((self.middle - self.starts).sum())
        targets, weights = np.empty(arcs, np.uint32), np.empty(arcs if weighted else 0)
        kept = kernels.local_rows(
            self.starts, self.middle, self.targets, self.weights, zeros, offsets, targets, weights
        )  # fmt: skip
        loops = self.loops if self.loops.any() else NO_WEIGHTS
        level = undirected_level(offsets, targets[:kept], weights[:kept], loops)
        return replace(level, degree=self.ways.near_out, in_degree=self.ways.near_into) if directed else level

    def contested(self, label: NDArray[np.int64], ghost: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Vertices with less than half their weight (loops apart) in their label, shape (n,)."""
        found: NDArray[np.bool_] = kernels.contested(
            self.starts, self.ends, self.targets, self.weights, np.concatenate((label, ghost))
        )
        return found


def cut_piece(batch: SubgraphBatch, partition_of: NDArray[np.int64], partitions: int) -> Piece:
    """The piece of a partition.

    Parameters
    ----------
    batch : SubgraphBatch
    partition_of : int64, shape (partitions + 1,)
        First subgraph of every partition.
    partitions : int
    """
    n, first = batch.num_vertices, batch.start
    vertex = np.argsort(batch.vertex_ids, kind="stable").astype(np.int64)
    position = np.empty(n, np.int64)
    position[vertex] = np.arange(n)
    bounds = batch.subgraph_offsets
    sides = [(batch.offsets, batch.targets, batch.weights)]
    # Far ends, and for every arc that leaves its subgraph: its vertex, which far end it has, its number.
    far = [batch.remote_vertex.astype(np.int64)]
    owner = [batch.remote_subgraph]
    leaving = [kernels.far_arcs(bounds, batch.offsets, batch.targets, batch.remote_offsets)]
    if batch.directed:
        sides.append((batch.in_offsets, batch.in_targets, batch.in_weights))
        remotes = batch.in_remotes()
        far.append(remotes.vertex)
        owner.append(remotes.subgraph)
        leaving.append((remotes.source, np.arange(remotes.vertex.size), np.flatnonzero(batch.in_targets < 0)))
    ghost_of, ghosts, ghost_partition = _number_ghosts(far, owner, first, n, partition_of)

    near: list[_Arcs] = []  # to other units of this partition
    cut: list[_Arcs] = []  # to ghosts
    degrees: list[NDArray[np.float64]] = []
    inner = np.zeros(n + 1, np.int64)
    for (offsets, targets, weights), ends, numbers, (source, item, arc) in zip(
        sides, far, ghost_of, leaving, strict=True
    ):
        count_rows(bounds, offsets, targets, position, inner)
        inside, outside = (np.flatnonzero(rows) for rows in (numbers[item] < 0, numbers[item] >= 0))
        for found, chosen, to in (
            (near, inside, position[ends[item[inside]] - first]),
            (cut, outside, n + numbers[item[outside]]),
        ):
            found.append((position[source[chosen]], to, NO_WEIGHTS if weights is None else weights[arc[chosen]]))
        inner[1:] += np.bincount(near[-1][0], minlength=n)
        if batch.directed:
            degrees.extend(_degrees(offsets, weights, source[outside], arc[outside]))
    weighted = batch.weights is not None
    inner_count = inner[1:]
    counts = inner_count + np.bincount(np.concatenate([row for row, _, _ in cut]), minlength=n)
    row_ends = np.cumsum(counts)
    starts = row_ends - counts
    middle = starts + inner_count

    targets_out = np.empty(int(counts.sum()), np.int32)
    weights_out = np.empty(targets_out.size) if weighted else NO_WEIGHTS
    loops = np.zeros(n)
    cursor = starts.copy()
    for factor, (offsets, targets, weights), own in zip((2.0, 0.0), sides, near, strict=False):
        fill_rows(
            bounds, offsets, targets, _UNIT if weights is None else weights, factor, position, cursor,
            targets_out, weights_out, loops,
        )  # fmt: skip
        kernels.fill_far(*own, cursor, targets_out, weights_out)
    for arcs in cut:
        kernels.fill_far(*arcs, cursor, targets_out, weights_out)
    pair_position, pair_partition = kernels.boundary_pairs(middle, row_ends, targets_out, ghost_partition, partitions)
    whole = undirected_level(np.concatenate(([0], row_ends)), targets_out, weights_out, loops)
    by_way = [degrees[i][vertex] for i in (0, 2, 1, 3)] if degrees else [NO_WEIGHTS] * 4
    return Piece(
        vertex, position, starts, middle, row_ends, targets_out, weights_out, loops, whole.degree, Ways(*by_way),
        ghosts, pair_position, pair_partition, batch.targets,
    )  # fmt: skip


def _degrees(
    offsets: NDArray[Any], weights: NDArray[np.float64] | None, cut_rows: NDArray[np.int64], cut: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weight of every row, and without the arcs `cut` of `cut_rows`."""
    n = offsets.size - 1
    if weights is None:
        count = np.diff(offsets)
        return count.astype(np.float64), (count - np.bincount(cut_rows, minlength=n)).astype(np.float64)
    whole, near, kept = np.zeros(n), np.zeros(n), np.array(weights)
    row_sums(offsets, weights, whole)
    kept[cut] = 0.0
    kept.setflags(write=False)
    row_sums(offsets, kept, near)
    return whole, near


def _number_ghosts(
    far: list[NDArray[np.int64]],
    owner: list[NDArray[np.int64]],
    first: int,
    n: int,
    partition_of: NDArray[np.int64],
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64], NDArray[np.int64]]:
    """Ghost number of every far end (-1: in this partition), and vertex and partition of every ghost."""
    vertex = np.concatenate(far)
    outside = np.flatnonzero((vertex < first) | (vertex >= first + n))
    ghosts, where, number = np.unique(vertex[outside], return_index=True, return_inverse=True)
    ghost_of = np.full(vertex.size, -1, np.int64)
    ghost_of[outside] = number
    partition = np.searchsorted(partition_of, np.concatenate(owner)[outside[where]], side="right") - 1
    return np.split(ghost_of, [far[0].size]) if len(far) > 1 else [ghost_of], ghosts, partition
