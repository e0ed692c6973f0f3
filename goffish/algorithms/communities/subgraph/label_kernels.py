"""Numba kernels of the partitioned Louvain: what the master reads from the messages."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def own_entries(kinds, row, column, head, entry, bounds):
    """Labels that have an entry with themselves, in the order of the messages: every label of every partition.

    Those after the i-th head, the i-th partition's, lie in ``bounds[i] … bounds[i + 1]``.
    """
    labels = np.empty(kinds.size, np.int64)
    count = heads = 0
    for i in range(kinds.size):
        if kinds[i] == head:
            bounds[heads] = count
            heads += 1
        elif kinds[i] == entry and row[i] == column[i]:
            labels[count] = row[i]
            count += 1
    bounds[heads] = count
    return labels[:count].copy()


@kernel
def used_labels(kinds, row, entry, size):
    """Labels below `size` that have entries, ascending, and the rank of each label."""
    number = np.zeros(size, np.int64)
    for i in range(kinds.size):
        if kinds[i] == entry:
            number[row[i]] = 1
    labels = np.empty(size, np.int64)
    count = 0
    for c in range(size):
        if number[c]:
            labels[count] = c
            number[c] = count
            count += 1
    return labels[:count].copy(), number


@kernel
def mirror_rows(kinds, row, column, weight, entry, number, offsets):
    """The symmetric matrix of which every pair of labels was sent once; loops apart.

    ``number[label]`` is the vertex of each label. Returns (targets, weights, loops) and fills `offsets`.
    """
    n = offsets.size - 1
    loops = np.zeros(n)
    for i in range(kinds.size):
        if kinds[i] == entry:
            a, b = number[row[i]], number[column[i]]
            if a == b:
                loops[a] += weight[i]
            elif weight[i] != 0.0:
                offsets[a + 1] += 1
                offsets[b + 1] += 1
    for a in range(n):
        offsets[a + 1] += offsets[a]
    cursor = offsets[:-1].copy()
    targets, weights = np.empty(offsets[n], np.uint32), np.empty(offsets[n])
    for i in range(kinds.size):
        if kinds[i] == entry:
            a, b = number[row[i]], number[column[i]]
            if a != b and weight[i] != 0.0:
                targets[cursor[a]] = b
                weights[cursor[a]] = weight[i]
                cursor[a] += 1
                targets[cursor[b]] = a
                weights[cursor[b]] = weight[i]
                cursor[b] += 1
    return targets, weights, loops
