"""Bounds of the eccentricity of every vertex, tightened by searches until they meet."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.paths.kernels import breadth_first
from goffish.kernels.compile import kernel

_UNREACHED = np.iinfo(np.int64).max
#: Searches in a component before its central vertex is chosen.
_TRIES = 6


class Groups(NamedTuple):
    """Vertices by strongly connected component.

    Attributes
    ----------
    number : integers, shape (n,)
        Of each vertex; equal in a component only.
    starts, members : int64, shape (components + 1,) and (n,)
        Components, each after all those that it reaches.
    """

    number: NDArray[Any]
    starts: NDArray[np.int64]
    members: NDArray[np.int64]


class Bounds(NamedTuple):
    """Least and greatest eccentricity that a vertex can have, int64, shape (n,) each."""

    least: NDArray[np.int64]
    most: NDArray[np.int64]


class Scratch(NamedTuple):
    """Memory of searches.

    Attributes
    ----------
    depth : int64, shape (n,)
        -1, and so again after each search.
    found : int64, shape (n,)
        As for `breadth_first`, and so again after each search.
    queue : integers, shape (n + 1,)
    level : int64, shape (n,)
        Zeros; depth below a central vertex of each component.
    """

    depth: NDArray[np.int64]
    found: NDArray[np.int64]
    queue: NDArray[Any]
    level: NDArray[np.int64]


@kernel(inner=True, allocates=False)
def search_group(arcs, number, source, depth, queue):
    """Search breadth first within the component of the source; gives the number of vertices reached."""
    offsets, targets, _ = arcs
    depth[source], queue[0] = 0, source
    at, end = 0, 1
    while at < end:
        u = queue[at]
        at += 1
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if depth[v] < 0 and number[v] == number[source]:
                depth[v] = depth[u] + 1
                queue[end] = v
                end += 1
    return end


@kernel(allocates=False)
def first_bounds(arcs, back_arcs, mirrored, groups, bounds, scratch):
    """Bounds by way of one vertex of each component (Akiba, Iwata and Kawata, ALENEX 2015).

    Whatever a vertex reaches, it reaches by way of that vertex, which lies no farther than what it reaches in its own
    component, or by way of an arc that leaves it.
    """
    offsets, targets, _ = arcs
    number, starts, members = groups
    least, most = bounds
    depth, _, queue, _ = scratch
    for group in range(starts.size - 1):
        hub = members[starts[group]]
        for i in range(starts[group], starts[group + 1]):
            v = members[i]
            if offsets[v + 1] - offsets[v] > offsets[hub + 1] - offsets[hub]:
                hub = v
        count = search_group(arcs, number, hub, depth, queue)
        far = depth[queue[count - 1]]
        if not mirrored:
            for at in range(count):
                v = queue[at]
                for i in range(offsets[v], offsets[v + 1]):
                    if number[targets[i]] != number[v]:
                        far = max(far, depth[v] + 1 + most[targets[i]])
            for at in range(count):
                depth[queue[at]] = -1
            count = search_group(back_arcs, number, hub, depth, queue)
        for at in range(count):
            v = queue[at]
            most[v] = far + depth[v]
            least[v] = max(depth[v], far - depth[v]) if mirrored else depth[v]
            depth[v] = -1


@kernel
def close_bounds(arcs, back_arcs, mirrored, groups, order, bounds, only_most, scratch):
    """Search from vertices whose bounds differ, in turn from the one that may be farthest out and farthest in.

    Parameters
    ----------
    arcs, back_arcs : Csr
    mirrored : bool
        The graph is undirected.
    order : int64, shape (components,)
        In which order components are looked at.
    only_most : bool
        Until no bound is above the largest eccentricity that was found. In undirected graphs, a pair of vertices is not
        farther apart than both are from a central vertex (iFUB, Crescenzi et al., Theor. Comput. Sci. 514, 2013).
    scratch : Scratch

    Returns
    -------
    (int, int, int, int)
        Number of searches, the largest eccentricity that they found, and the two vertices.
    """
    offsets, targets, _ = arcs
    number, starts, members = groups
    least, most = bounds
    depth, found, queue, level = scratch
    bits = 0
    while found.size >> bits:
        bits += 1
    searches, best, source, target = 0, np.int64(-1), np.int64(-1), np.int64(-1)
    for at in range(order.size):
        first, last = starts[order[at]], starts[order[at] + 1]
        outward, tries, centered = True, 0, False
        while True:
            if only_most and mirrored and tries == _TRIES:
                center = members[first]
                for i in range(first, last):
                    if most[members[i]] < most[center]:
                        center = members[i]
                for i in range(search_group(arcs, number, center, depth, queue)):
                    level[queue[i]] = depth[queue[i]]
                    depth[queue[i]] = -1
                centered = True
            tries += 1
            chosen = np.int64(-1)
            for i in range(first, last):
                v = members[i]
                if (most[v] <= best) if only_most else (least[v] == most[v]):
                    continue
                if centered and 2 * level[v] <= best:
                    continue
                if chosen >= 0:
                    ahead = most[v] - most[chosen] if outward else least[chosen] - least[v]
                    degrees = offsets[v + 1] - offsets[v] - offsets[chosen + 1] + offsets[chosen]
                    if ahead < 0 or (ahead == 0 and degrees <= 0):
                        continue
                chosen = v
            if chosen < 0:
                break
            outward = not outward
            searches += 1
            count = breadth_first(offsets, targets, mirrored, chosen, 14, 24, bits, found, queue)
            far = found[queue[count - 1]] >> bits
            if far > best:
                best, source, target = far, chosen, np.int64(queue[count - 1])
            for i in range(count):
                v = queue[i]
                if number[v] == number[chosen]:
                    way = found[v] >> bits
                    least[v] = max(least[v], far - way)
                    if mirrored:
                        least[v] = max(least[v], way)
                        most[v] = min(most[v], far + way)
                found[v] = _UNREACHED
            if not mirrored:
                count = search_group(back_arcs, number, chosen, depth, queue)
                for i in range(count):
                    v = queue[i]
                    least[v] = max(least[v], depth[v])
                    most[v] = min(most[v], far + depth[v])
                    depth[v] = -1
            least[chosen] = most[chosen] = far
    return searches, best, source, target
