"""Numba kernels that route message columns."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def group_stable(keys, groups):
    """Stable counting sort of keys in ``0 … groups-1``: (order, offsets of each group); no order where they ascend."""
    offsets = np.zeros(groups + 1, np.int64)
    ascending, before = True, 0
    for i in range(keys.size):
        key = keys[i]
        offsets[key + 1] += 1
        ascending = ascending and key >= before
        before = key
    for g in range(groups):
        offsets[g + 1] += offsets[g]
    if ascending:
        return np.empty(0, np.int64), offsets
    cursor = offsets[:-1].copy()
    order = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        at = cursor[keys[i]]
        cursor[keys[i]] = at + 1
        order[at] = i
    return order, offsets


@njit(cache=True, nogil=True)
def localise(subgraph, vertex, offsets, first_vertex, bounds):
    """Turn the numbers of a grouped inbox into those of its partition; the first row that is wrong, or -1."""
    for s in range(offsets.size - 1):
        for i in range(offsets[s], offsets[s + 1]):
            if vertex[i] >= 0:
                own = vertex[i] - first_vertex
                if own < bounds[s] or own >= bounds[s + 1]:
                    return i
                vertex[i] = own
            subgraph[i] = s
    return -1


@njit(cache=True, nogil=True)
def hash_groups(first_key, second_key, group):
    """Group equal key pairs; groups are numbered by first appearance.

    Writes the group of every row into `group` and returns the first row of each group. Open addressing over
    a table of at least twice the rows, so memory follows the messages and not the graph.
    """
    size = 16
    while size < 2 * first_key.size:
        size *= 2
    table = np.full(size, -1, np.int64)
    mask = np.uint64(size - 1)
    first = np.empty(first_key.size, np.int64)
    groups = 0
    for i in range(first_key.size):
        a, b = first_key[i], second_key[i]
        h = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(b) * np.uint64(0xC2B2AE3D27D4EB4F)
        h = (h ^ (h >> np.uint64(29))) & mask
        while True:
            g = table[h]
            if g < 0:
                table[h] = groups
                group[i] = groups
                first[groups] = i
                groups += 1
                break
            row = first[g]
            if first_key[row] == a and second_key[row] == b:
                group[i] = g
                break
            h = (h + np.uint64(1)) & mask
    return first[:groups].copy()


@njit(cache=True, nogil=True)
def best_rows(group, values, best, largest):
    """Replace ``best[g]`` by the row of group g with the least (or largest) value; the first one on ties."""
    for i in range(group.size):
        row = best[group[i]]
        if (values[i] > values[row]) if largest else (values[i] < values[row]):
            best[group[i]] = i
