"""Copying and growing flat arrays."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel(inner=True)
def copy_values(target, source):
    """Copy all values of `source` to the beginning of `target`; both have one dimension.

    Kernels call this in place of ``target[:n] = source``, which takes three seconds longer to compile: numba compiles
    string functions for the error message of arrays that differ in length.
    """
    for i in range(source.size):
        target[i] = source[i]


@kernel(inner=True)
def make_room(values, size, wanted):
    """`values` where it holds `wanted` elements; else a longer array that begins with the first `size` of them.

    Compare the sizes before a call on a hot path: the call costs as much as a push.
    """
    if wanted <= values.size:
        return values
    more = np.empty(2 * wanted, values.dtype)
    copy_values(more, values[:size])
    return more


@kernel(inner=True)
def stable_order(keys):
    """Return the places of keys in ascending order, those of equal keys as they are (merge sort).

    Kernels call this in place of ``np.argsort(keys, kind="stable")``, which takes two seconds longer to compile.
    """
    order, merged = np.arange(keys.size), np.empty(keys.size, np.int64)
    width = 1
    while width < keys.size:
        for begin in range(0, keys.size, 2 * width):
            left, middle = begin, min(begin + width, keys.size)
            right, end = middle, min(middle + width, keys.size)
            for at in range(begin, end):
                if right == end or (left < middle and keys[order[left]] <= keys[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order
