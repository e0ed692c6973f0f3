"""Searches one source at a time along weighted arcs, summed up at the source or at the vertices that they find."""

from __future__ import annotations

import numpy as np
from numba import njit

from goffish.algorithms.paths.kernels import dijkstra


@njit(cache=True, nogil=True)
def search_distances(
    offsets, targets, weights, piece_of, bounds, sources, first, last, counted, inverse, at_source, scale,
    distance, parent, heads, entry, heap_keys, heap_items, total, reached,
):  # fmt: skip
    """Add up the distances from ``sources[first:last]``.

    Parameters
    ----------
    piece_of, bounds
        Component of each vertex, and the first vertex of each component.
    counted : bool, shape (n,)
        Which vertices a search adds up the distances to.
    inverse : bool
        Add up 1 / distance, where that is not 0, rather than distance.
    at_source : bool
        Whether a sum belongs to the source, or to the vertex that is found.
    scale, distance, parent, heads, entry, heap_keys, heap_items
        As in `dijkstra`; `distance` and `parent` need not be filled.
    total : float64, reached : int64
        Shape (sources,) with `at_source`, else (n,).
    """
    for i in range(first, last):
        source = sources[i]
        low, high = bounds[piece_of[source]], bounds[piece_of[source] + 1]
        distance[low:high] = np.inf
        parent[low:high] = -1
        dijkstra(offsets, targets, weights, source, scale, distance, parent, heads, entry, heap_keys, heap_items)
        own, found = 0.0, 0
        for v in range(low, high):
            length = distance[v]
            if length == np.inf or v == source or not counted[v]:
                continue
            worth = length
            if inverse:
                worth = 1.0 / length if length > 0.0 else 0.0
            if at_source:
                own += worth
                found += 1
            else:
                total[v] += worth
                reached[v] += 1
        if at_source:
            total[i] = own
            reached[i] = found
