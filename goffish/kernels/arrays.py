"""Copying and growing flat arrays."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def copy_values(target, source):
    """Copy all values of `source` to the beginning of `target`; both have one dimension.

    Kernels call this in place of ``target[:n] = source``, which takes three seconds longer to compile: numba compiles
    string functions for the error message of arrays that differ in length.
    """
    for i in range(source.size):
        target[i] = source[i]


@kernel
def make_room(values, size, wanted):
    """`values` where it holds `wanted` elements; else a longer array that begins with the first `size` of them.

    Compare the sizes before a call on a hot path: the call costs as much as a push.
    """
    if wanted <= values.size:
        return values
    more = np.empty(2 * wanted, values.dtype)
    copy_values(more, values[:size])
    return more
