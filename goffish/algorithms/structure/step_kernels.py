"""Kernel of greedy choices inside subgraphs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from goffish.kernels.compile import kernel


class Turns(NamedTuple):
    """Who decides before whom: vertices by ascending key, of the same key by ascending number.

    Attributes
    ----------
    key, number : int64, shape (n,)
    remote_key, remote_number : int64, shape (rows of the remote table,)
    """

    key: Any
    number: Any
    remote_key: Any
    remote_number: Any


@kernel
def decide(active, rows, order, turns, value, remote_value, coloring, changed):
    """Decide about each vertex of the active subgraphs whose neighbors with an earlier turn have decided.

    With `coloring`, a vertex takes the least value that no neighbor has; else 1 if no neighbor has 1, and 0 otherwise.

    Parameters
    ----------
    order : int64, shape (n,)
        Vertices of each subgraph in the order of their turns, counted from the first one of the partition.
    value, remote_value : int64
        -1 where a vertex has not decided.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
    mark = np.full(16, -1, np.int64)
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for at in range(low, subgraph_offsets[s + 1]):
            v = order[at]
            if value[v] >= 0:
                continue
            if offsets[v + 1] - offsets[v] + 2 > mark.size:
                mark = np.full(2 * (offsets[v + 1] - offsets[v]) + 2, -1, np.int64)
            ready = True
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                if t >= 0:
                    key, number, taken = turns.key[low + t], turns.number[low + t], value[low + t]
                else:
                    r = remote + ~t
                    key, number, taken = turns.remote_key[r], turns.remote_number[r], remote_value[r]
                if taken >= 0:
                    # A neighbor with a later turn cannot have decided.
                    if taken < mark.size:
                        mark[taken] = v
                elif key < turns.key[v] or (key == turns.key[v] and number < turns.number[v]):
                    ready = False
                    break
            if not ready:
                continue
            if coloring:
                free = 0
                while mark[free] == v:
                    free += 1
                value[v] = free
            else:
                value[v] = mark[1] != v
            changed[v] = True
