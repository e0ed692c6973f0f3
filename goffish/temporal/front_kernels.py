"""One window of time-dependent shortest paths inside the active sub-graphs of a partition."""

from __future__ import annotations

import numpy as np
from numba import njit

from goffish.algorithms.paths.step_kernels import _pop, _push


@njit(cache=True, nogil=True)
def open_roots(subgraph_offsets, remote_offsets, offsets, targets, done, ghost_done, open_, roots):
    """Finalised vertices with a neighbour that is not known to be; the others are closed for good. Their number."""
    count = 0
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            if not open_[v]:
                continue
            found = False
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                if (t >= 0 and not done[low + t]) or (t < 0 and not ghost_done[remote + ~t]):
                    found = True
                    break
            open_[v] = found
            if found:
                roots[count] = v
                count += 1
    return count


@njit(cache=True, nogil=True)
def advance_front(
    active, subgraph_offsets, remote_offsets, offsets, targets, latency, exists,
    root_starts, roots, root_times, horizon, past_horizon, vertex_ids,
    done, label, pred, ghost, via, ghost_done, improved,
):  # fmt: skip
    """Dijkstra inside each active sub-graph, from its roots at their times, with the latencies of one instance.

    With `past_horizon` a traversal may end after the window: such labels are kept, but not followed (semantics D).
    Rows of remote vertices whose best time got better are written to `improved`; their number is returned.
    """
    count = 0
    keys = np.empty(1024, np.float64)
    items = np.empty(1024, np.int64)
    fresh = np.zeros(ghost.size, np.bool_)
    limited = exists.size > 0
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        first, last = root_starts[s], root_starts[s + 1]
        if last - first > keys.size:
            keys = np.empty(last - first, np.float64)
            items = np.empty(keys.size, np.int64)
        size = 0
        for i in range(first, last):
            _push(keys, items, size, root_times[i], roots[i])
            size += 1
        while size > 0:
            d, v = keys[0], items[0]
            _pop(keys, items, size)
            size -= 1
            if not done[v] and d > label[v]:
                continue
            degree = offsets[v + 1] - offsets[v]
            if size + degree > keys.size:
                more = np.empty(2 * (size + degree), np.float64)
                more[:size] = keys[:size]
                keys = more
                more_items = np.empty(keys.size, np.int64)
                more_items[:size] = items[:size]
                items = more_items
            for i in range(offsets[v], offsets[v + 1]):
                if limited and not exists[i]:
                    continue
                nd = d + latency[i]
                if nd > horizon and not past_horizon:
                    continue
                t = targets[i]
                if t >= 0:
                    w = low + t
                    if not done[w] and nd < label[w]:
                        label[w] = nd
                        pred[w] = vertex_ids[v]
                        if not past_horizon or nd < horizon:
                            _push(keys, items, size, nd, w)
                            size += 1
                else:
                    r = remote + ~t
                    if not ghost_done[r] and nd < ghost[r]:
                        ghost[r] = nd
                        via[r] = vertex_ids[v]
                        if not fresh[r]:
                            fresh[r] = True
                            improved[count] = r
                            count += 1
    return count
