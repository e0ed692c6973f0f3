"""Kernels for common neighbors, on ascending rows without loops and repeated neighbors.

Weights of common neighbors are added in ascending order of the neighbors, so that a pair has the same bits everywhere.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push

#: What a sum over common neighbors is divided by: nothing, the union, the smaller degree, the mean degree (geometric).
NOTHING, UNION, SMALLER, MEAN = range(4)
#: From this ratio of degrees on, the shorter row is looked up in the longer one.
_LOOK_UP = 16


@kernel(inline="always")
def score(total, first, second, divisor):
    """Similarity for the sum over common neighbors and two degrees."""
    if divisor == NOTHING or total == 0.0:
        return total
    if divisor == UNION:
        return total / (first + second - total)
    if divisor == SMALLER:
        return total / min(first, second)
    return total / np.sqrt(float(first) * float(second))


@kernel(allocates=False)
def pair_scores(graph, divisor, first, second, begin, end, out):
    """Similarities of some pairs; `graph` holds row pointers, neighbors, degrees and weights of common neighbors."""
    offsets, targets, degree, weight = graph
    for at in range(begin, end):
        u, v = first[at], second[at]
        if degree[u] > degree[v]:
            u, v = v, u
        i, stop, j, last = offsets[u], offsets[u + 1], offsets[v], offsets[v + 1]
        look_up = degree[v] > _LOOK_UP * degree[u]
        total = 0.0
        while i < stop and j < last:
            w = targets[i]
            if look_up:
                low, high = j, last
                while low < high:
                    middle = (low + high) >> 1
                    if targets[middle] < w:
                        low = middle + 1
                    else:
                        high = middle
                j = low
            else:
                while j < last and targets[j] < w:
                    j += 1
            if j < last and targets[j] == w:
                total += weight[w]
            i += 1
        out[at] = score(total, degree[u], degree[v], divisor)


@kernel(allocates=False)
def top_of_each(graph, divisor, first, last, most, scratch, starts, counts, best, ids):
    """The most similar vertices at distance two of each vertex in a range, the best first.

    Parameters
    ----------
    most : int
        Number of vertices.
    scratch : tuple
        Zeros, and places for vertices, shape (n,).
    starts, counts : int64, shape (n,)
        Where the vertices of each row begin in `best` and `ids`; receives their numbers.
    """
    offsets, targets, degree, weight = graph
    total, met = scratch
    for u in range(first, last):
        found, size = 0, 0
        for i in range(offsets[u], offsets[u + 1]):
            w = targets[i]
            for j in range(offsets[w], offsets[w + 1]):
                v = targets[j]
                if total[v] == 0.0:
                    met[found] = v
                    found += 1
                total[v] += weight[w]
        total[u] = 0.0
        for i in range(offsets[u], offsets[u + 1]):
            total[targets[i]] = 0.0
        begin = starts[u]
        keys, items = best[begin:], ids[begin:]
        for at in range(found):
            v = met[at]
            if total[v] == 0.0:
                continue
            value = score(total[v], degree[u], degree[v], divisor)
            total[v] = 0.0
            # The worst is on top; of equal values, the last vertex.
            if size < most:
                push(keys, items, size, value, -v, True)
                size += 1
            elif value > keys[0] or (value == keys[0] and -v > items[0]):
                pop(keys, items, size, True)
                push(keys, items, size - 1, value, -v, True)
        counts[u] = size
        for left in range(size, 0, -1):
            value, item = keys[0], items[0]
            pop(keys, items, left, True)
            keys[left - 1], items[left - 1] = value, -item


@kernel(allocates=False)
def top_of_all(graph, divisor, first, last, scratch, sizes, best, ids):
    """Keep the most similar pairs at distance two whose smaller vertex is in a range, in a heap.

    Parameters
    ----------
    scratch
        As for `top_of_each`.
    sizes : int64, shape (1,)
        Number of pairs in the heap; it holds as many as there are places in `best`.
    ids : int64
        Numbers of pairs, ``-(u n + v)``.
    """
    offsets, targets, degree, weight = graph
    total, met = scratch
    n, most, size = degree.size, best.size, sizes[0]
    for u in range(first, last):
        found = 0
        for i in range(offsets[u], offsets[u + 1]):
            w = targets[i]
            for j in range(offsets[w + 1] - 1, offsets[w] - 1, -1):
                v = targets[j]
                if v <= u:
                    break
                if total[v] == 0.0:
                    met[found] = v
                    found += 1
                total[v] += weight[w]
        for i in range(offsets[u], offsets[u + 1]):
            total[targets[i]] = 0.0
        for at in range(found):
            v = met[at]
            if total[v] == 0.0:
                continue
            value = score(total[v], degree[u], degree[v], divisor)
            total[v] = 0.0
            item = -(np.int64(u) * n + v)
            if size < most:
                push(best, ids, size, value, item, True)
                size += 1
            elif value > best[0] or (value == best[0] and item > ids[0]):
                pop(best, ids, size, True)
                push(best, ids, size - 1, value, item, True)
    sizes[0] = size
