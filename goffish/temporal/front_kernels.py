"""What is reached within one timestep inside the subgraphs of a partition: by shortest paths in time, and by memes."""

from __future__ import annotations

import numpy as np

from goffish.algorithms.paths.step_kernels import lower_remote
from goffish.kernels.arrays import make_room
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push


@kernel
def open_roots(rows, done, ghost_done, open_, roots):
    """Finalised vertices with a neighbor that is not known to be; the others are closed for good. Their number."""
    subgraph_offsets, remote_offsets, offsets, targets = rows
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


@kernel
def advance_front(
    active, rows, latency, exists, roots, horizon, past_horizon, vertex_ids, done, ghost_done, tree, improved
):
    """Dijkstra inside each active subgraph, from its `roots` (Entries), with the latencies of one instance.

    With `past_horizon` a traversal may end after the window: such labels are kept, but not followed (semantics D).
    Rows of remote vertices whose best time got better are written to `improved`; their number is returned.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
    root_starts, root_vertex, root_time = roots
    label, pred, announced, _ = tree
    count = 0
    keys = np.empty(1024, np.float64)
    items = np.empty(1024, np.int64)
    fresh = np.zeros(announced.size, np.bool_)
    limited = exists.size > 0
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        first, last = root_starts[s], root_starts[s + 1]
        keys, items = make_room(keys, 0, last - first), make_room(items, 0, last - first)
        size = 0
        for i in range(first, last):
            push(keys, items, size, root_time[i], root_vertex[i], True)
            size += 1
        while size > 0:
            d, v = keys[0], items[0]
            pop(keys, items, size, True)
            size -= 1
            if not done[v] and d > label[v]:
                continue
            most = size + offsets[v + 1] - offsets[v]
            if most > keys.size:
                keys, items = make_room(keys, size, most), make_room(items, size, most)
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
                            push(keys, items, size, nd, w, True)
                            size += 1
                elif not ghost_done[remote + ~t]:
                    count = lower_remote(tree, remote + ~t, nd, vertex_ids[v], fresh, improved, count)
    return count


@kernel
def spread(
    subgraph_offsets, remote_offsets, offsets, targets, holds, roots, timestep, reached, open_, probed, fresh
):  # fmt: skip
    """Reach all holders that are connected to the roots; rows of remote vertices to probe, each once in a timestep.

    A vertex all of whose neighbors are reached is closed: it has nothing left to send. Those with remote neighbors
    stay open, since only their owner has their values.
    """
    count = 0
    queue = np.empty(holds.size, np.int64)
    head = tail = 0
    for v in roots:
        queue[tail] = v
        tail += 1
    while head < tail:
        v = queue[head]
        head += 1
        s = np.searchsorted(subgraph_offsets, v, side="right") - 1
        low, remote = subgraph_offsets[s], remote_offsets[s]
        left = False
        for i in range(offsets[v], offsets[v + 1]):
            t = targets[i]
            if t < 0:
                left = True
                r = remote + ~t
                if probed[r] < timestep:
                    probed[r] = timestep
                    fresh[count] = r
                    count += 1
            elif reached[low + t] < 0:
                if holds[low + t]:
                    reached[low + t] = timestep
                    open_[low + t] = True
                    queue[tail] = low + t
                    tail += 1
                else:
                    left = True
        open_[v] = left
    return count
