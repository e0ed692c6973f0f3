"""Repairs of an assignment: empty parts, parts in pieces. Deterministic, and untouched parts stay as they
are.
"""

from __future__ import annotations

from heapq import heapify, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.subgraphs import local_components
from goffish.partition import kernels
from goffish.partition.links import Links


def fill_empty(simple: Links, owner: NDArray[np.int32], parts: int, *, connected: bool) -> NDArray[np.int32]:
    """Give every empty part about half of the part that is largest at that moment (ties: the lowest number).

    The half is cut off along a breadth-first order, so that it mostly hangs together; with `connected`, the
    donor has to be connected and both halves stay so (and may be unequal). Needs `parts` ≤ n.
    """
    sizes = np.bincount(owner, minlength=parts)
    empty = np.flatnonzero(sizes == 0)
    if empty.size == 0:
        return owner
    n = owner.size
    owner = owner.copy()
    grouped, ends = np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])
    members = {int(p): grouped[ends[p] : ends[p + 1]] for p in np.flatnonzero(sizes)}
    largest = [(-int(sizes[p]), p) for p in members]
    heapify(largest)
    order, moved, weight = (np.empty(n, np.int64) for _ in range(3))
    parent = np.full(n, -3, np.int64)
    for part in empty.tolist():
        donor = largest[0][1]
        count = kernels.split_part(
            simple.offsets, simple.targets, members[donor], connected, order, parent, weight, moved
        )
        gone = np.sort(moved[:count])
        owner[gone] = part
        kept = members[donor][owner[members[donor]] == donor]
        members[donor], members[part] = kept, gone
        heapreplace(largest, (-kept.size, donor))
        heappush(largest, (-gone.size, part))
    return owner


def join_fragments(simple: Links, owner: NDArray[np.int32], parts: int) -> NDArray[np.int32]:
    """Make every part of a connected graph connected.

    The largest piece of each part stays; the vertices of the others join the part that a breadth-first
    search from those pieces reaches them from first.
    """
    piece, count = local_components(simple.offsets, simple.targets, owner, symmetric=True)
    if count == np.count_nonzero(np.bincount(owner, minlength=parts)):
        return owner
    sizes = np.bincount(piece, minlength=count)
    part = np.empty(count, np.int32)
    part[piece] = owner
    best = np.lexsort((np.arange(count), -sizes, part))
    first = best[np.concatenate([[True], np.diff(part[best]) > 0])]
    kept = np.zeros(count, bool)
    kept[first] = True
    seeds = np.flatnonzero(kept[piece])
    owner = np.where(kept[piece], owner, np.int32(-1))
    queue = np.empty(owner.size, np.int64)
    queue[: seeds.size] = seeds
    kernels.grow_parts(simple.offsets, simple.targets, owner, queue, seeds.size)
    return owner
