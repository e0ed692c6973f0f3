"""Hashes of numbers, for random choices that depend on a seed and a number only."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@kernel(inner=True)
def splitmix64(x):
    """Finaliser of splitmix64 (Steele, Lea & Flood 2014): a bijection of 64-bit numbers."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))
