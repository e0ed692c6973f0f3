"""Relaxation of the springs between a host and its peers, in numba."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

#: Closer than this is the same place; the peer is then taken to be `APART` away.
SAME, APART = 1e-9, 1e-3


@kernel
def relax(position, peers, measured, strength, least_step, most_steps, directions):
    """Move a host until the springs to its peers hardly pull any more; returns the number of steps.

    Parameters
    ----------
    position : float64, shape (dimensions,)
        Of the host; is moved.
    peers : float64, shape (peers, dimensions)
    measured : float64, shape (peers,)
        Milliseconds to each; above 0.
    directions : float64, shape (peers, dimensions)
        Of length 1: where a peer at the same place is taken to be.
    """
    step = np.empty(position.size)
    for done in range(most_steps):
        step[:] = 0.0
        for q in range(peers.shape[0]):
            length = 0.0
            for d in range(position.size):
                length += (peers[q, d] - position[d]) ** 2
            length = np.sqrt(length)
            if length < SAME:
                step += directions[q] * (strength * np.log(APART / measured[q]))
            else:
                step += (peers[q] - position) * (strength * np.log(length / measured[q]) / length)
        position += step
        if np.sqrt((step * step).sum()) <= least_step:
            return done + 1
    return most_steps
