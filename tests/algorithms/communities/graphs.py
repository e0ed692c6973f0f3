"""Graphs with planted communities for the tests of this room."""

from __future__ import annotations

import numpy as np

import goffish as gf


def planted(
    n: int, *, groups: int, seed: int, mixing: float = 0.2, weighted: bool = False, directed: bool = False
) -> gf.Graph:
    """Equal groups of consecutive vertices, eight edges per vertex, of which the share `mixing` goes anywhere."""
    rng = np.random.default_rng(seed)
    src = np.repeat(np.arange(n), 8)
    size = n // groups
    near = np.minimum(src // size * size + rng.integers(0, size, src.size), n - 1)
    dst = np.where(rng.random(src.size) < mixing, rng.integers(0, n, src.size), near)
    weight = rng.integers(1, 5, src.size).astype(float) if weighted else None
    return gf.from_edges(src, dst, weight, labels=np.arange(n), directed=directed)
