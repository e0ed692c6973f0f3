"""Numba kernels for what crosses a cut: ghosts found by unit and vertex, messages sorted, one message for each unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class Mail(NamedTuple):
    """Messages of one stage for one source.

    Attributes
    ----------
    ghost : int64
        Senders.
    value : float64
    exponent : float64
        Powers of the values (see `sweep_kernels`); empty if all are 0.
    """

    ghost: NDArray[np.int64]
    value: NDArray[np.float64]
    exponent: NDArray[np.float64]


class Distances(NamedTuple):
    """Distances from one source, float64.

    Attributes
    ----------
    local : shape (n,)
    ghost, seen : shape (ghosts,)
        Of the ghosts as heads and as tails of arcs, infinite where none is known to be on a shortest path; one array
        in an undirected graph.
    """

    local: NDArray[np.float64]
    ghost: NDArray[np.float64]
    seen: NDArray[np.float64]


class Notes(NamedTuple):
    """Where a kernel writes its messages about one source.

    Attributes
    ----------
    door : int32, shape (ghosts,)
        Which unit owns each ghost.
    token : int
        No vertex v has used ``token + v`` with `stamp` before.
    stamp : int64, shape (units,)
    rows, doors : int32, shape (cut arcs,)
        Vertices with news, and the units that these are for.
    """

    door: NDArray[np.int32]
    token: int
    stamp: NDArray[np.int64]
    rows: NDArray[np.int32]
    doors: NDArray[Any]


@kernel
def _first_place(unit, vertex, mask):
    h = np.uint64(vertex) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(unit) * np.uint64(0xC2B2AE3D27D4EB4F)
    return (h ^ (h >> np.uint64(32))) & mask


@kernel
def index_ghosts(starts, vertices, table):
    """Enter the rows of a table of ghosts, unit after unit, under (unit, vertex).

    `table`, shape (places, 2), is for vertices and rows, of which the latter are -1. The number of places is a power of
    two and at least twice that of the rows: open addressing.
    """
    mask = np.uint64(table.shape[0] - 1)
    for unit in range(starts.size - 1):
        for row in range(starts[unit], starts[unit + 1]):
            h = _first_place(unit, vertices[row], mask)
            while table[h, 1] >= 0:
                h = (h + np.uint64(1)) & mask
            table[h, 0], table[h, 1] = vertices[row], row


@kernel
def _row_of(unit, vertex, starts, table):
    mask = np.uint64(table.shape[0] - 1)
    h = _first_place(unit, vertex, mask)
    while True:
        row = table[h, 1]
        if row < 0 or (table[h, 0] == vertex and starts[unit] <= row < starts[unit + 1]):
            return row
        h = (h + np.uint64(1)) & mask


@kernel
def find_rows(unit, vertex, starts, table, rows):
    """Row of each (unit, vertex) in an indexed table of ghosts; -1 where it is none."""
    for i in range(unit.size):
        rows[i] = _row_of(unit[i], vertex[i], starts, table)


@kernel
def sort_letters(kinds, slots, units, senders, values, kind, starts, table, begins):
    """Messages of one kind by slot, in their order: (rows of the ghosts that sent them, values).

    Those of slot s lie in ``begins[s] … begins[s + 1]``.
    """
    for i in range(kinds.size):
        if kinds[i] == kind:
            begins[slots[i] + 1] += 1
    for s in range(begins.size - 1):
        begins[s + 1] += begins[s]
    cursor = begins[:-1].copy()
    rows, found = np.empty(begins[-1], np.int64), np.empty(begins[-1])
    for i in range(kinds.size):
        if kinds[i] == kind:
            at = cursor[slots[i]]
            cursor[slots[i]] = at + 1
            rows[at] = _row_of(units[i], senders[i], starts, table)
            found[at] = values[i]
    return rows, found


@kernel
def arcs_by_ghost(arcs, far):
    """Fill `far`, zeros before, with the cut arcs of each ghost: ends in the partition, and weights if any."""
    offsets, targets, weights = arcs
    begins, rows, far_weights = far
    n = offsets.size - 1
    for i in range(targets.size):
        if targets[i] >= n:
            begins[targets[i] - n + 1] += 1
    for g in range(begins.size - 1):
        begins[g + 1] += begins[g]
    cursor = begins[:-1].copy()
    for v in range(n):
        for i in range(offsets[v], offsets[v + 1]):
            if targets[i] >= n:
                at = cursor[targets[i] - n]
                cursor[targets[i] - n] = at + 1
                rows[at] = v
                if weights.size:
                    far_weights[at] = weights[i]


@kernel(inner=True)
def notify(v, ghost, notes, noted):
    """Note that vertex v has news for the owner of a ghost, once for each unit; the number of notes so far."""
    door = notes.door[ghost]
    if notes.stamp[door] != notes.token + v:
        notes.stamp[door] = notes.token + v
        notes.rows[noted] = v
        notes.doors[noted] = door
        noted += 1
    return noted
