"""Numba kernels of leaf compression on one partition (docs/specs/betweenness.md, sections 3.6 and 3.7)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class Trees(NamedTuple):
    """Vertices that were removed as leaves, and what hangs at those that were not.

    Attributes
    ----------
    alive : bool, shape (n,)
    degree : int64, shape (n,)
        Neighbors that were not removed.
    omega : int64, shape (n,)
        Vertices in the tree that hangs at each vertex, itself included.
    mass : int64, shape (n,)
        Sources of paths among these.
    cross : float64, shape (n,)
        Sum of size times sources over the trees of its children.
    parent : int64, shape (n,)
        A vertex, or n + ghost; -1 for none.
    child_of : int64, shape (ghosts,)
        The vertex here that a removed ghost hangs at, -1 for none.
    sequence : int64, shape (n,)
        When each vertex was removed, -1 for never.
    """

    alive: NDArray[np.bool_]
    degree: NDArray[np.int64]
    omega: NDArray[np.int64]
    mass: NDArray[np.int64]
    cross: NDArray[np.float64]
    parent: NDArray[np.int64]
    child_of: NDArray[np.int64]
    sequence: NDArray[np.int64]


@kernel
def remove_leaves(start, target, row, size, sources, arcs, ids, ghost_ids, trees):
    """One superstep of the protocol: take in removed leaves of other units, then remove all that is a leaf here.

    `target`, `row`, `size` and `sources` are the messages: the parent, the leaf's row among the ghosts, vertices and
    sources in its tree. In the first superstep (`start`) every vertex may be a leaf, later only one that a message
    touched. Returns what was removed and hangs at a ghost, and these ghosts.
    """
    offsets, targets, _ = arcs
    alive, degree, omega, mass, cross, parent, child_of, sequence = trees
    n = degree.size
    leaf, leaf_row = np.empty(n, np.int64), np.empty(n, np.int64)
    removed = np.int64(0)
    for v in range(n):
        removed = max(removed, sequence[v] + 1)
    queue = np.empty(n, np.int64)
    tail = 0
    if start:
        for v in range(n):
            if degree[v] == 1:
                queue[tail] = v
                tail += 1
    for i in range(target.size):
        u, g = target[i], row[i]
        if alive[u]:
            degree[u] -= 1
            if degree[u] == 1:
                queue[tail] = u
                tail += 1
        elif ids[u] < ghost_ids[g]:
            # Two leaves of each other removed themselves at once: the one with the smaller number stays.
            alive[u] = True
            parent[u] = -1
            sequence[u] = -1
            degree[u] = 0
        else:
            continue
        child_of[g] = u
        omega[u] += size[i]
        mass[u] += sources[i]
        cross[u] += np.float64(size[i]) * np.float64(sources[i])
    count = 0
    head = 0
    while head < tail:
        v = queue[head]
        head += 1
        if degree[v] != 1:
            continue
        alive[v] = False
        degree[v] = 0
        sequence[v] = removed
        removed += 1
        for i in range(offsets[v], offsets[v + 1]):
            t = targets[i]
            if t < n:
                if not alive[t]:
                    continue
                parent[v] = t
                omega[t] += omega[v]
                mass[t] += mass[v]
                cross[t] += np.float64(omega[v]) * np.float64(mass[v])
                degree[t] -= 1
                if degree[t] == 1:
                    queue[tail] = t
                    tail += 1
                break
            if child_of[t - n] < 0:
                parent[v] = t
                leaf[count], leaf_row[count] = v, t - n
                count += 1
                break
    return leaf[:count], leaf_row[:count]


@kernel
def flood(order, entry, entry_label, arcs, label, ghost_label, news):
    """Spread smaller labels inside the partition and offer them to the ghosts; returns how many ghosts got one.

    `order` lists the entries by ascending label, so that a vertex is passed once.
    """
    offsets, targets, _ = arcs
    n = label.size
    stack = np.empty(n, np.int64)
    sent = np.zeros(ghost_label.size, np.bool_)
    count = 0
    for i in order:
        low = entry_label[i]
        if low >= label[entry[i]]:
            continue
        label[entry[i]] = low
        stack[0] = entry[i]
        size = 1
        while size:
            size -= 1
            v = stack[size]
            for a in range(offsets[v], offsets[v + 1]):
                t = targets[a]
                if t < n:
                    if low < label[t]:
                        label[t] = low
                        stack[size] = t
                        size += 1
                elif low < ghost_label[t - n]:
                    ghost_label[t - n] = low
                    if not sent[t - n]:
                        sent[t - n] = True
                        news[count] = t - n
                        count += 1
    return count


@kernel
def hand_down(order, parent, component, component_mass, root, root_unit):
    """Give removed vertices what is known of their parents; `order` has every parent before its children."""
    n = component.size
    for v in order:
        p = parent[v]
        if component[v] == 0.0 and 0 <= p < n and component[p] > 0.0:
            component[v] = component[p]
            component_mass[v] = component_mass[p]
            root[v] = root[p]
            root_unit[v] = root_unit[p]
