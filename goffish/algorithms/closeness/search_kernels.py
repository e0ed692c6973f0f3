"""Searches one source at a time along weighted arcs, summed up at the source or at the vertices that they find."""

from __future__ import annotations

import numpy as np

from goffish.algorithms.paths.kernels import dijkstra
from goffish.kernels.compile import kernel


@kernel
def search_distances(arcs, piece_of, bounds, sources, counted, inverse, at_source, scale, search, sums):
    """Add up the distances from `sources`.

    Parameters
    ----------
    arcs : Csr
    piece_of, bounds
        Component of each vertex, and the first vertex of each component.
    counted : bool, shape (n,)
        Which vertices a search adds up the distances to.
    inverse : bool
        Add up 1 / distance, where that is not 0, rather than distance.
    at_source : bool
        Whether a sum belongs to the source, or to the vertex that is found.
    scale, search
        As in `dijkstra`; distances and parents need not be filled.
    sums : Sums
        Shape (sources,) with `at_source`, else (n,).
    """
    total, reached = sums
    distance, parent = search.distance, search.parent
    for i in range(sources.size):
        source = sources[i]
        low, high = bounds[piece_of[source]], bounds[piece_of[source] + 1]
        distance[low:high] = np.inf
        parent[low:high] = -1
        dijkstra(arcs, source, scale, search)
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
