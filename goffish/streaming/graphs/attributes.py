"""Values of attributes as pairs of numbers: a kind, and 64 bits."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.times import event_times, moments
from goffish.streaming.graphs.updates import BOOLEAN, FLOAT, INTEGER, LIST, NONE, TEXT, TIME
from goffish.streaming.hashing import distinct_key
from goffish.streaming.key_table import KeyTable, longer

Kinds = NDArray[np.int8]
Bits = NDArray[np.int64]
_ACCEPTED = "accepted are integers up to 64 bits, finite floats, booleans, texts, timestamps, and lists of one of these"


class Lists(NamedTuple):
    """Elements of all lists, one list after the other."""

    firsts: NDArray[np.int64]
    kinds: Kinds
    bits: Bits
    floats: NDArray[np.float64]


class Values:
    """Encodes and decodes values; equal texts and lists have equal numbers.

    Attributes
    ----------
    texts : KeyTable
    """

    def __init__(self) -> None:
        self.texts = KeyTable()
        self._lists: dict[Any, int] = {}
        self._of_lists: list[list[Any]] = []
        self._firsts, self._kinds, self._bits = np.zeros(16, np.int64), np.zeros(64, np.int8), np.zeros(64, np.int64)

    def encode(self, column: pa.Array | Sequence[Any]) -> tuple[Kinds, Bits]:
        """Return kinds and bits of a column, with `NONE` where a value is missing.

        Raises
        ------
        InputError
            A value has a type that is not accepted.
        """
        if not isinstance(column, pa.Array):
            return self._encode_objects(column)
        kinds, bits = np.full(len(column), NONE, np.int8), np.zeros(len(column), np.int64)
        valid = np.asarray(column.is_valid())
        if not valid.any():
            return kinds, bits
        kind, found = self._encode_known(column.drop_null())
        kinds[valid], bits[valid] = kind, found
        return kinds, bits

    def _encode_known(self, column: pa.Array) -> tuple[Kinds | int, Bits]:
        """Encode an Arrow array without missing values."""
        if pa.types.is_dictionary(column.type):
            kinds, bits = self.encode(column.dictionary)
            places = column.indices.to_numpy(zero_copy_only=False)
            return kinds[places], bits[places]
        if pa.types.is_integer(column.type) and column.type != pa.uint64():
            return INTEGER, column.cast(pa.int64()).to_numpy()
        if pa.types.is_floating(column.type):
            numbers = column.cast(pa.float64()).to_numpy()
            if not np.isfinite(numbers).all():
                raise InputError(f"value {numbers[~np.isfinite(numbers)][0]}: must be finite")
            return FLOAT, (numbers + 0.0).view(np.int64)  # -0.0 equals 0.0
        if pa.types.is_boolean(column.type):
            return BOOLEAN, column.cast(pa.int64()).to_numpy()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return TEXT, self.texts.slots(column)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            return TIME, event_times(column)
        return self._encode_objects(column.to_pylist())

    def _encode_objects(self, values: Sequence[Any]) -> tuple[Kinds, Bits]:
        encoded = [self.encode_one(value) for value in values]
        return np.array([one[0] for one in encoded], np.int8), np.array([one[1] for one in encoded], np.int64)

    def encode_one(self, value: Any) -> tuple[int, int]:
        """Return kind and bits of one value."""
        kind = type(value)
        if value is None:
            return NONE, 0
        if kind is bool or kind is np.bool_:
            return BOOLEAN, int(value)
        if isinstance(value, int | np.integer) and -(1 << 63) <= value < 1 << 63:
            return INTEGER, int(value)
        if isinstance(value, float | np.floating):
            return FLOAT, int(self._encode_known(pa.array([float(value)]))[1][0])
        if isinstance(value, str):
            value.encode()  # raises for half of a surrogate pair
            return TEXT, int(self.texts.slots([value])[0])
        if isinstance(value, datetime.datetime):
            return TIME, int(event_times([value])[0])
        if isinstance(value, list | tuple):
            return LIST, self._encode_list(list(value))
        raise InputError(f"value {value!r:.60}: {_ACCEPTED}")

    def _encode_list(self, values: list[Any]) -> int:
        if len({self.encode_one(value)[0] for value in values} - {LIST, NONE}) != 1 or None in values:
            raise InputError(f"value {values!r:.60}: {_ACCEPTED}")
        key = distinct_key(tuple(values))
        number = self._lists.setdefault(key, len(self._lists))
        if number == len(self._of_lists):
            self._of_lists.append(values)
            kinds, bits = zip(*map(self.encode_one, values), strict=True)
            begin = int(self._firsts[number])
            end = begin + len(values)
            if number + 2 > len(self._firsts):
                self._firsts = longer(self._firsts, number + 1, 2 * number + 2)
            if end > len(self._bits):
                self._kinds, self._bits = (longer(one, begin, 2 * end) for one in (self._kinds, self._bits))
            self._kinds[begin:end], self._bits[begin:end], self._firsts[number + 1] = kinds, bits, end
        return number

    @property
    def number_of_lists(self) -> int:
        """How many lists there are."""
        return len(self._of_lists)

    def lists_from(self, number: int) -> tuple[NDArray[np.int64], Kinds, Bits]:
        """Return the sizes of lists from a number on, and their elements."""
        firsts = self._firsts[number : self.number_of_lists + 1]
        return np.diff(firsts), self._kinds[firsts[0] : firsts[-1]], self._bits[firsts[0] : firsts[-1]]

    def add_lists(self, sizes: NDArray[np.int64], kinds: Kinds, bits: Bits) -> Bits:
        """Add lists that `lists_from` returned; return their numbers."""
        values = self.decode(kinds, bits)
        values = values if isinstance(values, list) else values.to_pylist()
        ends = np.cumsum(sizes).tolist()
        rows = [values[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True)]
        return np.array([self._encode_list(row) for row in rows], np.int64)

    @property
    def lists(self) -> Lists:
        """Elements of lists, for compiled code."""
        return Lists(self._firsts, self._kinds, self._bits, self._bits.view(np.float64))

    def decode(self, kinds: Kinds, bits: Bits) -> pa.Array | list[Any]:
        """Return the values: an Arrow array where all are of one kind, or else a list."""
        present = set(np.unique(kinds).tolist()) - {NONE}
        if len(present) == 1:
            valid = kinds != NONE
            column = self._column(present.pop(), bits[valid])
            if valid.all():
                return column
            places = np.cumsum(valid) - 1
            return column.take(pa.array(places, mask=~valid))
        found: list[Any] = [None] * len(kinds)
        for kind in present:
            at = np.flatnonzero(kinds == kind)
            for place, value in zip(at.tolist(), self._column(kind, bits[at]).to_pylist(), strict=True):
                found[place] = value
        return found

    def _column(self, kind: int, bits: Bits) -> pa.Array:
        columns: dict[int, Callable[[], pa.Array]] = {
            INTEGER: lambda: pa.array(bits),
            FLOAT: lambda: pa.array(bits.view(np.float64)),
            BOOLEAN: lambda: pa.array(bits.astype(np.bool_)),
            TEXT: lambda: self.texts.keys(bits),
            TIME: lambda: pa.array(moments(bits), pa.timestamp("us", "UTC")),
            LIST: lambda: pa.array([self._of_lists[number] for number in bits.tolist()]),
        }
        return columns[kind]()
