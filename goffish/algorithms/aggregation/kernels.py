"""Numba kernel that combines messages."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

SUM, MIN, MAX = 0, 1, 2


@kernel(allocates=False)
def combine(receiver, message, how, total, count):
    """Add messages to what their receivers have, one after the other; NaN is no message."""
    for i in range(receiver.size):
        value = message[i]
        if np.isnan(value):
            continue
        v = receiver[i]
        if how == SUM:
            total[v] += value
        elif count[v] == 0 or (value < total[v] if how == MIN else value > total[v]):
            total[v] = value
        count[v] += 1
