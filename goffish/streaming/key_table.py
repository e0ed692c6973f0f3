"""Numbers for keys: integers and texts in hash tables of flat arrays, other keys in a dictionary."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming import kernels
from goffish.streaming.hashing import Positions, distinct_keys, original_key, positions_of, text_buffers
from goffish.streaming.state import Column

Slots = NDArray[np.int64]
_NUMBER, _TEXT, _OTHER, _FREE = kernels.NUMBER, kernels.TEXT, 2, 3
_INT64 = pa.int64()


class Keys(NamedTuple):
    """Integers and texts with their slots.

    Attributes
    ----------
    slots : array
    kinds : uint8 array
    numbers : array
        Of integers.
    offsets : array
        Of texts in `data`: one more than there are texts.
    data : uint8 array
    """

    slots: Slots
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    def labels(self) -> Column:
        """Return the keys.

        Raises
        ------
        ValueError
            The columns do not fit together.
        """
        sizes = [int(np.count_nonzero(self.kinds == kind)) for kind in (_NUMBER, _TEXT)]
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else [-1, -1]
        if (
            sizes != [len(self.numbers), len(self.offsets) - 1] or sum(sizes) != len(self.kinds)
            or len(self.kinds) != len(self.slots) or ends != [0, len(self.data)] or np.any(np.diff(self.offsets) < 0)
        ):  # fmt: skip
            raise ValueError("keys: the columns do not fit together")
        buffers = pa.py_buffer(self.offsets), pa.py_buffer(self.data)
        texts = pa.LargeStringArray.from_buffers(sizes[1], *buffers)
        texts.validate(full=True)
        numbers = pa.array(self.numbers)
        if not sizes[0] or not sizes[1]:
            return texts if sizes[1] else numbers
        found = np.empty(len(self.kinds), object)
        found[self.kinds == _NUMBER], found[self.kinds == _TEXT] = numbers.to_pylist(), texts.to_pylist()
        return found.tolist()


class KeyTable:
    """Numbers the keys in the order of their first appearance.

    Integers and texts are found by compiled kernels, other keys by a dictionary.
    """

    def __init__(self) -> None:
        self._unused = np.zeros(2, np.int64)  # as of `kernels.find_numbers`
        self.positions: Positions = np.empty(0, np.uint64)
        self._kinds = np.empty(0, np.uint8)
        self._numbers = np.empty(0, np.int64)
        self._bounds = np.zeros(2, np.int64)
        self._stored = np.empty(1 << 12, np.uint8)
        self._tables = [np.zeros(0, np.int32), np.zeros(0, np.int32)]
        self._others: dict[Any, int] = {}
        self._other_keys: dict[int, Any] = {}
        self._grow(512)

    @property
    def count(self) -> int:
        """Number of slots that have been in use."""
        return int(self._unused[0])

    @property
    def used(self) -> int:
        """Number of keys."""
        return int(self._unused[0] - self._unused[1])

    @property
    def slots_in_use(self) -> Slots:
        """Slots of all keys."""
        return np.flatnonzero(self._kinds[: self.count] != _FREE)

    @property
    def capacity(self) -> int:
        """Slots that arrays by slot must have."""
        return len(self._kinds)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """Kinds of the keys (0 for integers, 1 for texts), the integers, and the bounds of texts in a buffer."""
        return self._kinds, self._numbers, self._bounds, self._stored

    @property
    def by_hash(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Slots plus one of integers by their hash, and the integers by slot; see `kernels.find_numbers`."""
        return self._tables[_NUMBER], self._numbers

    def _grow(self, capacity: int) -> None:
        """Make space for more keys; the tables stay at most half full."""
        count = self.count
        self.positions = longer(self.positions, count, capacity)
        self._kinds = longer(self._kinds, count, capacity)
        self._numbers = longer(self._numbers, count, capacity)
        used = self._bounds[-1]
        self._bounds = longer(self._bounds, 2 * count, 2 * capacity + 2)
        self._bounds[-1] = used
        self._fill_tables(capacity)

    def _fill_tables(self, capacity: int) -> None:
        for kind in (_NUMBER, _TEXT):
            self._tables[kind] = np.zeros(2 * capacity, np.int32)
            kernels.fill_table(self._tables[kind], self.positions, self._kinds, kind, self.count)

    def slots(self, keys: pa.Array | list[Any]) -> Slots:
        """Return the slots of keys, which are added if they are new.

        Raises
        ------
        InputError
            A key has a type that is not accepted.
        """
        if isinstance(keys, pa.Array):
            if keys.null_count == 0:
                if pa.types.is_integer(keys.type) and keys.type != pa.uint64():
                    return self._number_slots(keys.cast(_INT64).to_numpy())
                if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
                    return self._text_slots(*text_buffers(keys))
            keys = keys.to_pylist()
        kinds = set(map(type, keys))
        if not kinds:
            return np.empty(0, np.int64)
        if kinds == {int}:
            try:
                return self._number_slots(np.array(keys, np.int64))
            except OverflowError:
                pass
        elif kinds == {str}:
            try:
                return self._text_slots(*text_buffers(pa.array(keys, pa.large_string())))
            except UnicodeEncodeError:
                pass
        return np.fromiter(map(self._slot, distinct_keys(keys)), np.int64, len(keys))

    def _slot(self, key: Any) -> int:
        if type(key) is int and -(1 << 63) <= key < 1 << 63:
            return int(self._number_slots(np.array([key], np.int64))[0])
        if type(key) is str and key.isascii():
            return int(self._text_slots(*text_buffers(pa.array([key], pa.large_string())))[0])
        slot = self._others.get(key)
        if slot is None:
            if type(key) is str:
                try:
                    return int(self._text_slots(*text_buffers(pa.array([key], pa.large_string())))[0])
                except UnicodeEncodeError:
                    pass
            slot = self.count
            if slot == self.capacity:
                self._grow(2 * slot)
            self._others[key] = slot
            self._other_keys[slot] = original_key(key)
            self.positions[slot] = positions_of([self._other_keys[slot]])[0]
            self._kinds[slot] = _OTHER
            self._unused[0] += 1
        return slot

    def _number_slots(self, numbers: NDArray[np.int64]) -> Slots:
        slots, done = np.empty(len(numbers), np.int64), 0
        hashes = np.empty(len(slots), np.uint64)
        kernels.hash_numbers(numbers, hashes)
        while True:
            done = kernels.find_numbers(
                self._tables[_NUMBER], self._numbers, self.positions, self._kinds, self._unused, numbers, hashes, slots,
                done,
            )  # fmt: skip
            if done == len(numbers):
                return slots
            self._grow(2 * self.capacity)

    def _text_slots(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Slots:
        slots, done = np.empty(len(offsets) - 1, np.int64), 0
        hashes = np.empty(len(slots), np.uint64)
        kernels.hash_texts(data, offsets, hashes)
        while True:
            done = kernels.find_texts(
                self._tables[_TEXT], self._bounds, self.positions, self._kinds, self._stored, self._unused, data,
                offsets, hashes, slots, done,
            )  # fmt: skip
            if done == len(slots):
                return slots
            used = int(self._bounds[-1])
            if used + int(offsets[done + 1] - offsets[done]) > len(self._stored):
                self._stored = longer(self._stored, used, 2 * (used + int(offsets[done + 1] - offsets[done])))
            else:
                self._grow(2 * self.capacity)

    def keys(self, slots: Slots) -> Column:
        """Return the keys of slots: an Arrow array where all are integers or all are texts."""
        kinds = self._kinds[slots]
        if len(slots) and np.all(kinds == _NUMBER):
            return pa.array(self._numbers[slots])
        if len(slots) and np.all(kinds == _TEXT):
            return self._texts(slots)
        found = np.empty(len(slots), object)
        for kind in (_NUMBER, _TEXT):
            at = np.flatnonzero(kinds == kind)
            if len(at):
                part = pa.array(self._numbers[slots[at]]) if kind == _NUMBER else self._texts(slots[at])
                found[at] = part.to_pylist()
        for place in np.flatnonzero(kinds == _OTHER).tolist():
            found[place] = self._other_keys[int(slots[place])]
        return found.tolist()

    @property
    def mark(self) -> tuple[int, int]:
        """What `since` needs, to find keys that are added later."""
        return int(self._unused[0]), int(self._unused[1])

    def since(self, mark: tuple[int, int]) -> Slots | slice:
        """Return the slots of the keys that were added after a mark, in this order; none were freed since then."""
        count, free = self.mark
        new = slice(mark[0], count)
        if free == mark[1]:
            return new
        reused = self._unused[2 + free : 2 + mark[1]][::-1]
        return np.concatenate([reused, np.arange(*new.indices(count))])

    def taken(self, slots: Slots | slice) -> Keys:
        """Return integers and texts of slots."""
        if isinstance(slots, slice):
            slots = np.arange(*slots.indices(self.count))
        kinds = self._kinds[slots]
        texts = self._texts(slots[kinds == _TEXT])
        offsets, data = (np.frombuffer(buffer, kind) for buffer, kind in zip(
            texts.buffers()[1:], (np.int64, np.uint8), strict=True
        ))  # fmt: skip
        return Keys(slots, kinds, self._numbers[slots[kinds == _NUMBER]], offsets, data)

    def free(self, slots: Slots) -> None:
        """Let new keys have the slots of these integers and texts, which are in ascending order."""
        count, free = self.mark
        texts = np.any(self._kinds[slots] == _TEXT)
        self._kinds[slots] = _FREE
        # The first one is the next one.
        self._unused = np.concatenate([[count, free + len(slots)], self._unused[2 : 2 + free], slots[::-1]])
        if texts:  # lets the texts go
            self.install(self.saved())
        else:
            self._fill_tables(self.capacity)

    def saved(self) -> tuple[Keys, Slots, int]:
        """Return all of a table of integers and texts, for `install`."""
        return self.taken(self.slots_in_use), self._unused[: 2 + int(self._unused[1])], self.capacity

    def install(self, saved: tuple[Keys, Slots, int]) -> None:
        """Take the place of another table.

        Raises
        ------
        ValueError
            The parts do not fit together.
        """
        keys, unused, capacity = saved
        keys.labels()  # checks them
        slots = np.sort(np.concatenate([keys.slots, unused[2:]]))
        if (
            unused.dtype != np.int64 or not np.array_equal(slots, np.arange(unused[0])) or len(unused) - 2 < unused[1]
            or capacity & (capacity - 1) or not max(512, unused[0]) <= capacity <= max(512, 4 * unused[0])
        ):  # fmt: skip
            raise ValueError("keys: the numbers do not fit together")
        texts, numbers = (keys.slots[keys.kinds == kind] for kind in (_TEXT, _NUMBER))
        positions = np.zeros(capacity, np.uint64)
        bounds = np.zeros(2 * capacity + 2, np.int64)
        found = np.empty(len(texts), np.uint64)
        kernels.hash_texts(keys.data, keys.offsets, found)
        positions[texts] = found
        found = np.empty(len(numbers), np.uint64)
        kernels.hash_numbers(keys.numbers, found)
        positions[numbers] = found
        bounds[2 * texts], bounds[2 * texts + 1], bounds[-1] = keys.offsets[:-1], keys.offsets[1:], len(keys.data)
        self.positions, self._bounds, self._unused = positions, bounds, unused.copy()
        self._kinds = np.full(capacity, _FREE, np.uint8)
        self._kinds[keys.slots] = keys.kinds
        self._numbers = np.zeros(capacity, np.int64)
        self._numbers[numbers] = keys.numbers
        self._stored = longer(keys.data, len(keys.data), max(1 << 12, 2 * len(keys.data)))
        self._fill_tables(capacity)

    def _texts(self, slots: Slots) -> pa.Array:
        offsets = np.zeros(len(slots) + 1, np.int64)
        kernels.gather_texts(self._stored, self._bounds, slots, offsets, self._stored[:0])
        data = np.empty(offsets[-1], np.uint8)
        if len(data):
            kernels.gather_texts(self._stored, self._bounds, slots, offsets, data)
        return pa.LargeStringArray.from_buffers(len(slots), pa.py_buffer(offsets), pa.py_buffer(data))


def longer(values: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    """Return a copy of the first entries that has space for more."""
    copy = np.zeros(size, values.dtype)
    copy[:used] = values[:used]
    return copy
