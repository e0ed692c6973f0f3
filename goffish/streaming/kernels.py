"""Hashing of keys, hash tables from keys to slots, and accumulation into flat arrays."""

from __future__ import annotations

import numpy as np

from goffish.kernels.barrier import prefetch
from goffish.kernels.compile import kernel

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)
_GREATEST = (1 << 63) - 1
#: Kinds of keys.
NUMBER, TEXT = 0, 1


@kernel
def _rotated(value, bits):
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel
def _word(data, at, count):
    """`count` bytes as a little-endian number."""
    value = np.uint64(0)
    for i in range(count):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@kernel
def _round(total, lane):
    return _rotated(total + lane * _P2, 31) * _P1


@kernel
def _mixed(value):
    value ^= value >> np.uint64(33)
    value *= _P2
    value ^= value >> np.uint64(29)
    value *= _P3
    return value ^ (value >> np.uint64(32))


@kernel(inner=True)
def xxh64(data, begin, end):
    """XXH64 with seed 0 of ``data[begin:end]`` (uint8)."""
    size = end - begin
    at = begin
    if size >= 32:
        a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while at + 32 <= end:
            a = _round(a, _word(data, at, 8))
            b = _round(b, _word(data, at + 8, 8))
            c = _round(c, _word(data, at + 16, 8))
            d = _round(d, _word(data, at + 24, 8))
            at += 32
        value = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        for lane in (a, b, c, d):
            value = (value ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        value = _P5
    value += np.uint64(size)
    while at + 8 <= end:
        value = _rotated(value ^ _round(np.uint64(0), _word(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        value = _rotated(value ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        value = _rotated(value ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    return _mixed(value)


@kernel(inner=True)
def xxh64_number(number):
    """XXH64 with seed 0 of the 8 little-endian bytes of an int64."""
    value = _P5 + np.uint64(8)
    return _mixed(_rotated(value ^ _round(np.uint64(0), np.uint64(number)), 27) * _P1 + _P4)


@kernel
def hash_texts(data, offsets, positions):
    """Write the hash of every text ``data[offsets[i]:offsets[i + 1]]``."""
    for i in range(positions.size):
        positions[i] = xxh64(data, offsets[i], offsets[i + 1])


@kernel
def hash_numbers(numbers, positions):
    """Write the hash of every number."""
    for i in range(positions.size):
        positions[i] = xxh64_number(numbers[i])


@kernel
def in_ranges(positions, starts, lasts, found):
    """Mark the positions in any of the ranges, which include their last position."""
    for i in range(positions.size):
        found[i] = False
        for j in range(starts.size):
            if starts[j] <= positions[i] <= lasts[j]:
                found[i] = True


@kernel
def _next_slot(unused):
    """Return the slot of a key that is new: one that is free, or the first one that was never in use."""
    if unused[1]:
        unused[1] -= 1
        return unused[2 + unused[1]]
    unused[0] += 1
    return unused[0] - 1


@kernel
def find_numbers(table, numbers_of, positions_of, kinds_of, unused, numbers, hashes, slots, begin):
    """Find or add the slots of numbers with their hashes; return how many were processed.

    `table` has slots plus one by hash, 0 where it is empty. Stops when it is half full. The arrays that end in ``_of``
    are by slot. `unused` begins with the number of slots that have been in use, and how many of them are free; those
    follow, the next one last.
    """
    mask = np.uint64(table.size - 1)
    most = min(table.size // 2, numbers_of.size)
    for i in range(begin, numbers.size):
        # What a lookup reads depends on what it read before: each step is fetched a few numbers ahead.
        if i + 16 < numbers.size:
            prefetch(table, np.int64(hashes[i + 16] & mask))
        if i + 8 < numbers.size:
            likely = np.int64(table[hashes[i + 8] & mask]) - 1
            if likely >= 0:
                prefetch(numbers_of, likely)
        number = numbers[i]
        position = hashes[i]
        at = position & mask
        while True:
            slot = table[at] - 1
            if slot < 0:
                if unused[1] == 0 and unused[0] >= most:
                    return i
                slot = _next_slot(unused)
                numbers_of[slot] = number
                positions_of[slot] = position
                kinds_of[slot] = NUMBER
                slots[i] = slot
                table[at] = slot + 1
                break
            if numbers_of[slot] == number:
                slots[i] = slot
                break
            at = (at + np.uint64(1)) & mask
    return numbers.size


@kernel
def find_texts(table, bounds_of, positions_of, kinds_of, stored, unused, data, offsets, hashes, slots, begin):
    """As `find_numbers` for texts with their hashes, which are appended to `stored`.

    ``bounds_of[2 * slot]`` and the next one are begin and end there; the last of all is the used part of `stored`.
    """
    mask = np.uint64(table.size - 1)
    most = min(table.size // 2, bounds_of.size // 2 - 1)
    last = bounds_of.size - 1
    for i in range(begin, slots.size):
        # What a lookup reads depends on what it read before: each step is fetched a few texts ahead.
        if i + 24 < slots.size:
            prefetch(table, np.int64(hashes[i + 24] & mask))
        if i + 16 < slots.size:
            likely = np.int64(table[hashes[i + 16] & mask]) - 1
            if likely >= 0:
                prefetch(positions_of, likely)
                prefetch(bounds_of, 2 * likely)
        if i + 8 < slots.size:
            likely = np.int64(table[hashes[i + 8] & mask]) - 1
            if likely >= 0:
                prefetch(stored, bounds_of[2 * likely])
        first, size = offsets[i], offsets[i + 1] - offsets[i]
        position = hashes[i]
        at = position & mask
        while True:
            slot = table[at] - 1
            if slot < 0:
                used = bounds_of[last]
                if (unused[1] == 0 and unused[0] >= most) or used + size > stored.size:
                    return i
                for j in range(size):
                    stored[used + j] = data[first + j]
                slot = _next_slot(unused)
                bounds_of[2 * slot] = used
                bounds_of[2 * slot + 1] = used + size
                bounds_of[last] = used + size
                positions_of[slot] = position
                kinds_of[slot] = TEXT
                slots[i] = slot
                table[at] = slot + 1
                break
            known = bounds_of[2 * slot]
            if positions_of[slot] == position and bounds_of[2 * slot + 1] - known == size:
                same = True
                for j in range(size):
                    if stored[known + j] != data[first + j]:
                        same = False
                        break
                if same:
                    slots[i] = slot
                    break
            at = (at + np.uint64(1)) & mask
    return slots.size


@kernel
def fill_table(table, positions_of, kinds, kind, count):
    """Enter all slots of a kind into an empty table."""
    mask = np.uint64(table.size - 1)
    for slot in range(count):
        if kinds[slot] == kind:
            at = positions_of[slot] & mask
            while table[at] != 0:
                at = (at + np.uint64(1)) & mask
            table[at] = slot + 1


@kernel
def gather_texts(stored, bounds_of, slots, offsets, data):
    """Copy the texts of slots one after the other; with an empty `data`, only compute the offsets."""
    end = 0
    for i in range(slots.size):
        first, last = bounds_of[2 * slots[i]], bounds_of[2 * slots[i] + 1]
        if data.size:
            for j in range(last - first):
                data[end + j] = stored[first + j]
        end += last - first
        offsets[i + 1] = end


@kernel
def distinct(slots, seen, changed, found):
    """Write every slot once, in the order of first appearance, and mark it as changed; return the number."""
    count = 0
    for i in range(slots.size):
        slot = slots[i]
        if not seen[slot]:
            seen[slot] = True
            changed[slot] = True
            found[count] = slot
            count += 1
    for i in range(count):
        seen[found[i]] = False
    return count


@kernel
def add_counts(slots, counts):
    """Count the records of every slot."""
    for i in range(slots.size):
        counts[slots[i]] += 1


@kernel
def add_integers(slots, data, sums):
    """Add to the sums; return the first record whose sum leaves the range of int64, or -1."""
    for i in range(slots.size):
        slot, value = slots[i], data[i]
        # Before the addition: its overflow is undefined, so that a test of the result is optimized away.
        if (value > 0 and sums[slot] > _GREATEST - value) or (value < 0 and sums[slot] < -_GREATEST - 1 - value):
            return i
        sums[slot] += value
    return -1


@kernel
def add_floats(slots, data, sums):
    """Add to the sums."""
    for i in range(slots.size):
        sums[slots[i]] += data[i]


@kernel
def add_minima(slots, data, minima, counts):
    """Lower the minima."""
    for i in range(slots.size):
        slot = slots[i]
        if counts[slot] == 0 or data[i] < minima[slot]:
            minima[slot] = data[i]
        counts[slot] += 1


@kernel
def add_maxima(slots, data, maxima, counts):
    """Raise the maxima."""
    for i in range(slots.size):
        slot = slots[i]
        if counts[slot] == 0 or data[i] > maxima[slot]:
            maxima[slot] = data[i]
        counts[slot] += 1
