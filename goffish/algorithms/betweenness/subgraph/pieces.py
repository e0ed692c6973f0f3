"""What one partition holds for betweenness: the rows of its core vertices, with ghosts behind the local ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.subgraph import ghost_kernels as kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher import SubgraphBatch
from goffish.kernels.csr import NO_WEIGHTS, Csr

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Side:
    """Arcs of one direction, without loops and parallels.

    Attributes
    ----------
    arcs : Csr
        Targets are int32 positions of vertices, from n on ghosts; rows ascend by the target's number as read (arcs that
        come in in a directed graph: by its partitioned number).
    ghost_vertex, ghost_unit : int64, shape (g,)
        Partitioned number of each ghost and the subgraph that owns it. A vertex that several subgraphs of the
        partition have arcs with is a ghost of each.
    ghost_row : int64, shape (g,)
        Its row in the remote table.
    ghost_starts : int64, shape (subgraphs + 1,)
        Ghosts of each subgraph, ascending.
    outer : bool, shape (n,)
        Vertices with a cut arc.
    units : int64, shape (u,)
        Subgraphs that own ghosts, ascending.
    door : int32, shape (g,)
        Which of these owns each ghost.
    far : Csr
        The cut arcs of each ghost, to their ends in the partition.
    table : int64, shape (places, 2)
        The ghosts by subgraph and vertex, see `_ghost_kernels.index_ghosts`.
    """

    arcs: Csr
    ghost_vertex: Integers
    ghost_unit: Integers
    ghost_row: Integers
    ghost_starts: Integers
    outer: Mask
    units: Integers
    door: NDArray[np.int32]
    far: Csr
    table: Integers

    @property
    def cut(self) -> int:
        """Cut arcs."""
        return self.far.targets.size

    def rows(self, unit: NDArray[Any], vertex: NDArray[Any]) -> Integers:
        """Ghost of each `vertex` (partitioned number) in the table of each `unit` (index in the partition)."""
        found = np.empty(vertex.size, np.int64)
        kernels.find_rows(unit, vertex, self.ghost_starts, self.table, found)
        return found


@dataclass(frozen=True, eq=False)
class Piece:
    """The core vertices of one partition and their arcs.

    Attributes
    ----------
    vertex : int64, shape (n,)
        Index in the partition of each position.
    position : int64, shape (local vertices,)
        Its inverse; -1 for vertices outside the core.
    out, into : Side
        One object where the graph is undirected.
    omega : float64, shape (n,)
        Vertices in the tree that hangs at each position, itself included.
    source : array
        The slice's targets, by which a piece is known to belong to it.
    """

    vertex: Integers
    position: Integers
    out: Side
    into: Side
    omega: NDArray[np.float64]
    source: NDArray[Any]

    @property
    def size(self) -> int:
        return self.vertex.size


def check_weights(batch: SubgraphBatch) -> None:
    """Refuse weights with which shortest paths cannot be counted."""
    weights = batch.weights
    if weights is None or not weights.size:
        return
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        value = float(weights[np.flatnonzero(wrong)[0]])
        raise InputError(f"weight {value}: betweenness requires positive, finite weights (or weighted=False)")
    check_range(weights)


def cut_piece(
    batch: SubgraphBatch, ghost_ids: Integers, alive: Mask, ghost_alive: Mask, omega: Integers | None, *, weighted: bool
) -> Piece:
    """The piece of a partition.

    Parameters
    ----------
    batch : SubgraphBatch
    ghost_ids : int64, shape (remote vertices,)
        Number as read of each row of the remote table.
    alive, ghost_alive : bool, shapes (local vertices,) and (remote vertices,)
        What is in the core.
    omega : int64, shape (local vertices,), optional
        Default: 1.
    weighted : bool
    """
    n = batch.num_vertices
    vertex = np.flatnonzero(alive)
    position = np.full(n, -1, np.int64)
    position[vertex] = np.arange(vertex.size)
    weights = batch.weights if weighted else None
    units = batch.num_subgraphs
    unit_of_row = np.repeat(np.arange(units), np.diff(batch.remote_offsets))
    source, local, remote = _ends(batch, batch.offsets, batch.targets, batch.remote_offsets)
    out = _side(
        source, local, remote, weights, position, np.where(ghost_alive, 0, -1),
        np.concatenate((batch.vertex_ids, ghost_ids)), batch.remote_vertex.astype(np.int64), batch.remote_subgraph,
        unit_of_row, units,
    )  # fmt: skip
    into = out
    if batch.directed:
        source, local, remote = _ends(batch, batch.in_offsets, batch.in_targets, None)
        arcs = batch.in_remotes()
        # The table of vertices with arcs into each subgraph, and for every such arc its row.
        unit = batch.subgraph_of_vertex()[arcs.source]
        by_unit = np.lexsort((arcs.vertex, unit))
        new = np.ones(by_unit.size, np.bool_)
        new[1:] = (np.diff(arcs.vertex[by_unit]) != 0) | (np.diff(unit[by_unit]) != 0)
        remote[np.flatnonzero(remote >= 0)[by_unit]] = np.cumsum(new) - 1
        first = by_unit[new]
        into = _side(
            source, local, remote, batch.in_weights if weighted else None, position, np.zeros(first.size, np.int64),
            np.concatenate((batch.start + np.arange(n), arcs.vertex[first])), arcs.vertex[first], arcs.subgraph[first],
            unit[first], units,
        )  # fmt: skip
    size = np.ones(vertex.size) if omega is None else omega[vertex].astype(np.float64)
    return Piece(vertex, position, out, into, size, batch.targets)


def _ends(
    batch: SubgraphBatch, offsets: Integers, targets: NDArray[Any], starts: Integers | None
) -> tuple[Integers, Integers, Integers]:
    """Of every arc its source, its target if that is local, and its row in the remote table if not; else -1."""
    source = np.repeat(np.arange(batch.num_vertices), np.diff(offsets))
    unit = batch.subgraph_of_vertex()[source]
    inside = targets >= 0
    local = np.where(inside, batch.subgraph_offsets[unit] + targets, -1)
    remote = np.where(inside, -1, ~targets.astype(np.int64) + (0 if starts is None else starts[unit]))
    return source, local, remote


def _side(
    source: Integers,
    local: Integers,
    remote: Integers,
    weights: NDArray[np.float64] | None,
    position: Integers,
    ghost: Integers,
    ids: NDArray[Any],
    ghost_vertex: Integers,
    ghost_unit: Integers,
    unit_of_ghost: Integers,
    units: int,
) -> Side:
    """The arcs among what is in the core; `ghost` is negative for table rows outside it, `ids` order the rows."""
    n = int(position.max(initial=-1)) + 1
    inside = local >= 0
    keep = (position[source] >= 0) & (local != source)
    keep[inside] &= position[local[inside]] >= 0
    keep[~inside] &= ghost[remote[~inside]] >= 0
    source, local, remote, inside = source[keep], local[keep], remote[keep], inside[keep]
    used = np.unique(remote[~inside])
    number = np.full(ghost.size, -1, np.int64)
    number[used] = np.arange(used.size)
    row = position[source]
    target = np.empty(source.size, np.int64)
    target[inside] = position[local[inside]]
    target[~inside] = n + number[remote[~inside]]
    key = np.empty(source.size, np.int64)
    key[inside] = ids[local[inside]]
    key[~inside] = ids[position.size + remote[~inside]]
    weight = None if weights is None else weights[keep]
    ascending = (np.diff(row) != 0) | (np.diff(key) > 0)
    if not ascending.all():
        # Parallel arcs are then neighbors, the lightest first, and only that one is kept.
        order = np.lexsort((key, row) if weight is None else (weight, key, row))
        new = np.ones(order.size, np.bool_)
        new[1:] = (np.diff(row[order]) != 0) | (np.diff(key[order]) != 0)
        order = order[new]
        row, target = row[order], target[order]
        weight = None if weight is None else weight[order]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=n))))
    outer = np.zeros(n, np.bool_)
    outer[row[target >= n]] = True
    starts = np.searchsorted(unit_of_ghost[used], np.arange(units + 1))
    arcs = Csr(offsets, target.astype(np.int32), NO_WEIGHTS if weight is None else weight)
    cut = np.count_nonzero(target >= n)
    far = Csr(np.zeros(used.size + 1, np.int64), np.empty(cut, np.int32), np.empty(cut if arcs.weights.size else 0))
    kernels.arcs_by_ghost(arcs, far)
    table = np.full((1 << (2 * used.size).bit_length(), 2), -1)
    kernels.index_ghosts(starts, ghost_vertex[used], table)
    owners, door = np.unique(ghost_unit[used], return_inverse=True)
    return Side(
        arcs, ghost_vertex[used], ghost_unit[used], used, starts, outer, owners, door.astype(np.int32), far, table
    )  # fmt: skip
