"""Subgraphs: the connected components that are left when arcs between different cells are ignored."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class SubgraphRows(NamedTuple):
    """Arcs that leave the subgraphs of one partition.

    Attributes
    ----------
    starts : int64, shape (subgraphs + 1,)
        First vertex of each subgraph.
    remote_starts : int64, shape (subgraphs + 1,)
        First row of each subgraph in the remote table.
    offsets : int64, shape (n + 1,)
    targets : int32, shape (arcs,)
        A vertex, counted from the first one of its subgraph, or ``~row`` of the remote table, counted likewise. In
        every row of arcs the local targets come first.
    """

    starts: NDArray[np.int64]
    remote_starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    targets: NDArray[np.int32]


def local_components(
    offsets: NDArray[np.int64],
    targets: NDArray[np.integer[Any]],
    cell: NDArray[np.integer[Any]],
    *,
    symmetric: bool = False,
) -> tuple[NDArray[np.integer[Any]], int]:
    """Weakly connected components over the arcs whose two ends lie in the same cell.

    Parameters
    ----------
    offsets : int64, shape (n + 1,)
    targets : int32 or int64, shape (arcs,)
        Compressed sparse rows. An arc links its ends whatever its direction.
    cell : integers, shape (n,)
        For instance the owner of each vertex; the components are then the subgraphs of every partition.
    symmetric : bool
        Every arc is there in both directions and rows are sorted (an undirected `Graph`): only the
        arcs to smaller vertices are looked at, which halves the time.

    Returns
    -------
    component : dtype of `targets`, shape (n,)
        ``0 … count-1``, numbered by the smallest vertex of each component.
    count : int

    Notes
    -----
    Union-find with path halving; the larger root is hung below the smaller one, so that a vertex never has
    a larger parent and one ascending pass numbers the components.
    """
    component = np.empty(offsets.size - 1, targets.dtype)
    count = number_components(offsets, targets, cell, symmetric, component)
    return component, int(count)


@kernel
def number_components(offsets: Any, targets: Any, cell: Any, symmetric: bool, parent: Any) -> int:
    n = offsets.size - 1
    for v in range(n):
        parent[v] = v
    for u in range(n):
        mine = cell[u]
        root = u
        while parent[root] != root:
            parent[root] = parent[parent[root]]
            root = parent[root]
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if symmetric and v >= u:
                break
            if cell[v] != mine:
                continue
            other = v
            while parent[other] != other:
                parent[other] = parent[parent[other]]
                other = parent[other]
            if other < root:
                parent[root] = other
                root = other
            elif root < other:
                parent[other] = root
    count = 0
    for v in range(n):
        if parent[v] == v:
            parent[v] = count
            count += 1
        else:
            # smaller than v, hence overwritten with its number already
            parent[v] = parent[parent[v]]
    return count
