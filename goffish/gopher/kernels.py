"""Numba kernels that route message columns."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def partition_keys(subgraph, starts, keys, counts, before):
    """Partition of each message from its target subgraph, or from ``~partition``; adds to ``counts[partition + 1]``.

    Returns the last partition, or -1 where they do not ascend from `before` on.
    """
    for i in range(subgraph.size):
        target = subgraph[i]
        key = ~target
        if target >= 0:
            # A search without branches, which nobody could predict.
            key, length = 0, starts.size - 1
            while length > 1:
                half = length >> 1
                key += half if starts[key + half] <= target else 0
                length -= half
        keys[i] = key
        counts[key + 1] += 1
        before = key if before >= 0 and key >= before else -1
    return before


@kernel
def unit_keys(subgraph, first, keys, counts, before):
    """Index of each message's target subgraph in its partition; adds to ``counts[index + 1]``.

    Returns the last index, -1 where they do not ascend from `before` on, or -2 for messages to whole partitions.
    """
    for i in range(subgraph.size):
        if subgraph[i] < 0:
            return -2
        key = subgraph[i] - first
        keys[i] = key
        counts[key + 1] += 1
        before = key if before >= 0 and key >= before else -1
    return before


@kernel
def scatter_rows(rows, keys, cursor, out):
    """Append each row of bytes to its group in `out`, at the group's cursor."""
    for i in range(keys.size):
        at = cursor[keys[i]]
        cursor[keys[i]] = at + 1
        for k in range(rows.shape[1]):
            out[at, k] = rows[i, k]


@kernel
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


@kernel
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


@kernel
def best_rows(group, values, best, largest):
    """Replace ``best[g]`` by the row of group g with the least (or largest) value; the first one on ties."""
    for i in range(group.size):
        row = best[group[i]]
        if (values[i] > values[row]) if largest else (values[i] < values[row]):
            best[group[i]] = i
