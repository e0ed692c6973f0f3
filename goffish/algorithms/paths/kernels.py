"""Single-source kernels on one CSR structure: direction-optimizing BFS and bucketed Dijkstra."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push

#: Frontiers below this share of the vertices are expanded without a look at their arcs.
_SMALL = 256
#: Buckets, and how many of them one mean weight spans. An entry waits `weight / mean · 64 / 4096` rounds, so all rounds
#: together move at most arcs/64 entries; at most 64 · arcs empty buckets are passed.
_BUCKETS, _BUCKETS_PER_MEAN = 4096, 64
_UNREACHED = np.iinfo(np.int64).max


@kernel
def breadth_first(offsets, targets, mirrored, source, alpha, beta, bits, found, queue):
    """Levels and smallest-numbered parents; returns the number of vertices reached.

    Direction-optimizing (Beamer, Asanović and Patterson, SC 2012): where rows hold both directions
    (`mirrored`), a level whose frontier owns more than 1/`alpha` of the arcs not yet seen is found from below, by
    asking every unreached vertex for a neighbor in the frontier, until the frontier is below n/`beta`.

    Parameters
    ----------
    bits
        Enough for a vertex number.
    found : int64, shape (n,)
        Filled with `_UNREACHED`; receives ``level << bits | parent``. The smallest such number is the right one,
        so that an arc needs no branch: whether its end is new cannot be predicted and would cost most of the time.
    queue : integers, shape (n + 1,)
        Scratch; receives the vertices in the order they were reached.
    """
    n = found.size
    found[source] = source
    queue[0] = source
    first, last = 0, 1
    level = np.int64(0)
    unseen = offsets[n]
    upwards = False
    while first < last:
        if mirrored and not upwards and last - first > n // _SMALL:
            # A small frontier never pays to be met from below: do not even fetch its row lengths.
            arcs = 0
            for at in range(first, last):
                arcs += offsets[queue[at] + 1] - offsets[queue[at]]
            upwards = arcs > unseen // alpha
        elif upwards:
            upwards = last - first > n // beta
        level += 1
        end = last
        if upwards:
            for v in range(n):
                if found[v] != _UNREACHED:
                    continue
                for i in range(offsets[v], offsets[v + 1]):
                    # Rows ascend, so the first neighbor found in the frontier is the smallest.
                    if found[targets[i]] >> bits == level - 1:
                        found[v] = (level << bits) | targets[i]
                        queue[end] = v
                        end += 1
                        break
        else:
            for at in range(first, last):
                u = queue[at]
                unseen -= offsets[u + 1] - offsets[u]
                candidate = (level << bits) | u
                for i in range(offsets[u], offsets[u + 1]):
                    v = targets[i]
                    before = found[v]
                    found[v] = min(before, candidate)
                    queue[end] = v
                    end += before == _UNREACHED
        first, last = last, end
    return last


@kernel
def unpack(found, source, bits, depth, parent):
    """Split ``level << bits | parent``; -1 where there is none."""
    for v in range(found.size):
        if found[v] == _UNREACHED:
            depth[v] = parent[v] = -1
        else:
            depth[v] = found[v] >> bits
            parent[v] = found[v] & ((np.int64(1) << bits) - 1)
    parent[source] = -1


class Search(NamedTuple):
    """Result and memory of `dijkstra`.

    Attributes
    ----------
    distance, parent : float64 and integers, shape (n,)
        Infinity and -1 before.
    heads : int64, shape (a power of two,)
        First entry of each bucket; -1 before. Bucket numbers wrap round; an entry of a later round is put back.
    keys, items, following : float64, integers and int64, shape (arcs + 1,)
        Entries that wait in buckets.
    heap_keys, heap_items : float64 and integers, shape (arcs + 1,)
    """

    distance: NDArray[np.float64]
    parent: NDArray[Any]
    heads: NDArray[np.int64]
    keys: NDArray[np.float64]
    items: NDArray[Any]
    following: NDArray[np.int64]
    heap_keys: NDArray[np.float64]
    heap_items: NDArray[Any]

    @classmethod
    def make(cls, n: int, arcs: int, kind: Any) -> Search:
        """Memory for a graph whose vertex numbers are of a `kind`; what is never touched costs nothing."""
        room = arcs + 1
        return cls(
            np.full(n, np.inf), np.full(n, -1, kind), np.full(_BUCKETS, -1, np.int64), np.empty(room),
            np.empty(room, kind), np.empty(room, np.int64), np.empty(room), np.empty(room, kind),
        )  # fmt: skip


def bucket_scale(weights: NDArray[np.float64]) -> float:
    """Buckets per unit of distance, for `dijkstra`; 0 where none would do."""
    mean = float(weights.mean()) if weights.size else 0.0
    scale = _BUCKETS_PER_MEAN / mean if 0.0 < mean < math.inf else 0.0
    return scale if math.isfinite(scale) else 0.0


@kernel
def dijkstra(arcs, source, scale, search):
    """Exact Dijkstra whose far entries wait in buckets; only those of the current bucket are in a heap.

    The heap stays small enough for the nearest cache (the two-level idea of Cherkassky, Goldberg and Silverstein,
    SIAM J. Comput. 1999), and keys need not be integers. An entry is dropped when its vertex has got nearer meanwhile.

    Parameters
    ----------
    arcs : Csr
    scale
        Buckets per unit of distance; 0 puts everything into the heap.
    search : Search
    """
    offsets, targets, weights = arcs
    distance, parent, heads, entry_key, entry_item, entry_next, heap_keys, heap_items = search
    mask = heads.size - 1
    distance[source] = 0.0
    heap_keys[0], heap_items[0] = 0.0, source
    size, waiting, fresh = 1, 0, 0
    free = np.int64(-1)
    bucket = np.int64(0)
    while size > 0 or waiting > 0:
        if size == 0:
            bucket += 1
            e = heads[bucket & mask]
            heads[bucket & mask] = -1
            while e >= 0:
                following = entry_next[e]
                key, v = entry_key[e], entry_item[e]
                if key == distance[v] and np.int64(key * scale) > bucket:
                    entry_next[e] = heads[bucket & mask]
                    heads[bucket & mask] = e
                else:
                    entry_next[e] = free
                    free = e
                    waiting -= 1
                    if key == distance[v]:
                        push(heap_keys, heap_items, size, key, v, False)
                        size += 1
                e = following
            continue
        near, u = heap_keys[0], heap_items[0]
        pop(heap_keys, heap_items, size, False)
        size -= 1
        if near > distance[u]:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            key = near + weights[i]
            if key < distance[v]:
                distance[v] = key
                parent[v] = u
                if np.int64(key * scale) <= bucket:
                    push(heap_keys, heap_items, size, key, v, False)
                    size += 1
                else:
                    if free >= 0:
                        e = free
                        free = entry_next[e]
                    else:
                        e = np.int64(fresh)
                        fresh += 1
                    at = np.int64(key * scale) & mask
                    entry_key[e], entry_item[e], entry_next[e] = key, v, heads[at]
                    heads[at] = e
                    waiting += 1
            elif key == distance[v] and near < key and u < parent[v]:
                parent[v] = u
