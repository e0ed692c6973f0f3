"""Arcs in compressed sparse rows, as kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel

NO_WEIGHTS = np.empty(0, np.float64)
_LINE = 64


class Csr(NamedTuple):
    """The arcs of vertex v lead to ``targets[offsets[v]:offsets[v + 1]]``.

    Attributes
    ----------
    offsets : int64 or uint64, shape (n + 1,)
    targets : integers, shape (arcs,)
        Unsigned, with unsigned offsets, where no index may be tested for being negative.
    weights : shape (arcs,)
        Empty where every arc weighs 1.
    """

    offsets: NDArray[Any]
    targets: NDArray[Any]
    weights: NDArray[Any] = NO_WEIGHTS

    def padded(self, stride: int) -> Csr:
        """Unsigned rows without weights, filled up to multiples of `stride` with arcs to a vertex n."""
        n = self.offsets.size - 1
        offsets, targets = np.zeros_like(self.offsets), np.empty(self.targets.size + (stride - 1) * n, np.uint32)
        used = pad_rows(self.offsets, self.targets, stride, offsets, targets)
        return Csr(offsets.view(np.uint64), targets[:used])


@kernel
def pad_rows(offsets: Any, targets: Any, stride: int, new_offsets: Any, new_targets: Any) -> int:
    n = offsets.size - 1
    end = 0
    for v in range(n):
        for a in range(offsets[v], offsets[v + 1]):
            new_targets[end] = targets[a]
            end += 1
        while end % stride:
            new_targets[end] = n
            end += 1
        new_offsets[v + 1] = end
    return end


def aligned_zeros(size: int, kind: Any) -> NDArray[Any]:
    """Zeros of eight bytes each that begin with a cache line, so that no row of eight lies in two."""
    raw = np.zeros(size + _LINE // 8, kind)
    skip = -raw.ctypes.data % _LINE // 8
    return raw[skip : skip + size]
