"""Sketches of the vertices within a number of hops, and estimates of how many there are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64


class Sketches(NamedTuple):
    """A HyperLogLog counter for each vertex.

    Attributes
    ----------
    old, new : uint8, shape (n * registers,)
        Registers before and after a step.
    active, next_active : bool, shape (n,)
        Vertices whose registers changed in the last step, and in this one.
    size : float64, shape (n,)
        Estimates.
    """

    old: NDArray[np.uint8]
    new: NDArray[np.uint8]
    active: NDArray[np.bool_]
    next_active: NDArray[np.bool_]
    size: NDArray[np.float64]

    @classmethod
    def make(cls, n: int, registers: int) -> Sketches:
        return cls(
            np.zeros(n * registers, np.uint8), np.zeros(n * registers, np.uint8), np.zeros(n, np.bool_),
            np.ones(n, np.bool_), np.empty(n),
        )  # fmt: skip

    def turned(self) -> Sketches:
        """For the next step."""
        old, new, active, next_active, size = self
        return Sketches(new, old, next_active, active, size)


def weight_of(registers: int) -> float:
    """The constant of the estimate."""
    small: dict[int, Any] = {16: 0.673, 32: 0.697, 64: 0.709}
    return float(small.get(registers, 0.7213 / (1 + 1.079 / registers)))


@kernel(inner=True, allocates=False)
def estimate(registers, first, last, weight):
    """Number of different vertices that a counter has seen (Flajolet et al., AofA 2007)."""
    count, total, empty = last - first, 0.0, 0
    for i in range(first, last):
        total += 1.0 / (np.uint64(1) << np.uint64(registers[i]))
        empty += registers[i] == 0
    found = weight * count * count / total
    if found <= 2.5 * count and empty > 0:
        found = count * math.log(count / empty)
    return found


@kernel
def begin(seed, bits, weight, sketches):
    """Let each vertex count itself, by a hash of its number."""
    _, registers, _, _, size = sketches
    count, salt = np.int64(1) << bits, splitmix64(seed)
    for v in range(size.size):
        mixed = splitmix64(np.uint64(v) ^ salt)
        register = np.int64(mixed & np.uint64(count - 1))
        rest, rank = mixed >> np.uint64(bits), 1
        while rest & np.uint64(1) == 0 and rank < 65 - bits:
            rest >>= np.uint64(1)
            rank += 1
        registers[v * count + register] = rank
        size[v] = estimate(registers, v * count, (v + 1) * count, weight)


@kernel(allocates=False)
def step(offsets, targets, first, last, bits, weight, sketches):
    """Let the vertices from first to last count what their neighbors have counted; gives how many changed."""
    old, new, active, next_active, size = sketches
    count = np.int64(1) << bits
    changes = 0
    for v in range(first, last):
        row = v * count
        if active[v]:
            # The other registers are those of two steps before.
            for j in range(count):
                new[row + j] = old[row + j]
        changed = False
        for i in range(offsets[v], offsets[v + 1]):
            if not active[targets[i]]:
                continue
            other = np.int64(targets[i]) * count
            greater = np.uint8(0)
            for j in range(count):
                mine, theirs = new[row + j], old[other + j]
                greater |= np.uint8(theirs > mine)
                new[row + j] = max(mine, theirs)
            changed = changed or greater > 0
        next_active[v] = changed
        if changed:
            size[v] = estimate(new, row, row + count, weight)
            changes += 1
    return changes
