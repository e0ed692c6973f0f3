"""Breadth-first search through the vertices that hold a meme."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def spread(
    subgraph_offsets, remote_offsets, offsets, targets, holds, roots, timestep, reached, open_, probed, fresh
):  # fmt: skip
    """Reach all holders that are connected to the roots; rows of remote vertices to probe, each once in a timestep.

    A vertex all of whose neighbours are reached is closed: it has nobody to tell any more. Those with remote neighbours
    stay open, since only their owner knows what they hold.
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
