"""Keys that Spark's hash partitioning brings to one partition each."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def partition_keys(partitions: int) -> list[int]:
    """For each of Spark's partitions, the least number that its hash partitioning puts there.

    Spark places a row by the Murmur3 hash of its key (32 bits, seed 42), modulo the number of partitions.
    """
    keys: list[int] = [-1] * partitions
    missing, number = partitions, 0
    while missing:
        place = _murmur3(number) % partitions
        if keys[place] < 0:
            keys[place] = number
            missing -= 1
        number += 1
    return keys


def _murmur3(number: int) -> int:
    """Murmur3 (x86, 32 bits, seed 42) of one 4-byte integer, as a signed number."""
    mixed = number * 0xCC9E2D51 & _MASK
    mixed = (mixed << 15 | mixed >> 17) & _MASK
    hashed = 42 ^ (mixed * 0x1B873593 & _MASK)
    hashed = (hashed << 13 | hashed >> 19) & _MASK
    hashed = (hashed * 5 + 0xE6546B64 & _MASK) ^ 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed
