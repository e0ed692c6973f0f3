"""Values of attributes as pairs of numbers: a kind, and 64 bits."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.times import event_time, moments, read_times
from goffish.streaming.graphs.updates import BOOLEAN, FLOAT, INTEGER, LIST, NONE, REFUSED, TEXT, TIME
from goffish.streaming.key_table import KeyTable, longer

Kinds = NDArray[np.int8]
Bits = NDArray[np.int64]
ACCEPTED_VALUES = (
    "accepted are integers up to 64 bits, finite floats, booleans, texts, timestamps, and lists of one of these"
)


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

    def encode(self, column: pa.Array) -> tuple[Kinds, Bits]:
        """Return kinds and bits of a column whose type `check_type` accepts.

        They are `NONE` where a value is missing, and `REFUSED` where it is not accepted.
        """
        kinds, bits = np.full(len(column), NONE, np.int8), np.zeros(len(column), np.int64)
        if pa.types.is_dictionary(column.type):
            of_entries = self.encode(column.dictionary)
            given = np.asarray(column.indices.is_valid())
            places = column.indices.drop_null().to_numpy(zero_copy_only=False)
            kinds[given], bits[given] = (one[places] for one in of_entries)
            return kinds, bits
        given = np.asarray(column.is_valid())
        if given.any():
            kinds[given], bits[given] = self._encode_known(column.drop_null())
        return kinds, bits

    def _encode_known(self, column: pa.Array) -> tuple[Kinds | int, Bits]:
        """Encode an Arrow array without missing values."""
        kind = column.type
        if pa.types.is_integer(kind):
            integers = column.to_numpy().astype(np.int64)
            return np.where(integers < 0, REFUSED, INTEGER) if kind == pa.uint64() else INTEGER, integers
        if pa.types.is_floating(kind):
            floats = column.cast(pa.float64()).to_numpy() + 0.0  # -0.0 equals 0.0
            return np.where(np.isfinite(floats), FLOAT, REFUSED), floats.view(np.int64)
        if pa.types.is_boolean(kind):
            return BOOLEAN, column.cast(pa.int64()).to_numpy()
        if is_text(kind):
            return TEXT, self.texts.slots(column.cast(pa.large_string()))
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            times, accepted = read_times(column)
            return np.where(accepted, TIME, REFUSED), times
        kinds, bits = np.full(len(column), REFUSED, np.int8), np.zeros(len(column), np.int64)
        for at, value in enumerate(column):
            with suppress(InputError, ValueError, OverflowError):
                kinds[at], bits[at] = self.encode_one(value.as_py())
        return kinds, bits

    def encode_one(self, value: Any) -> tuple[int, int]:
        """Return kind and bits of one value.

        Raises
        ------
        InputError
            It is not accepted.
        """
        if value is None:
            return NONE, 0
        if isinstance(value, list | tuple):
            return LIST, self._encode_list(list(value))
        kind, bits = self._encode_single(value)
        return kind, int(self.texts.slots([bits])[0]) if kind == TEXT else bits

    def _encode_single(self, value: Any) -> tuple[int, Any]:
        """Return kind and bits of one value that is no list; those of a text are the text."""
        if isinstance(value, bool | np.bool_):
            return BOOLEAN, int(value)
        if isinstance(value, int | np.integer) and -(1 << 63) <= value < 1 << 63:
            return INTEGER, int(value)
        if isinstance(value, float | np.floating) and math.isfinite(value):
            return FLOAT, int(np.float64(value + 0.0).view(np.int64))
        if isinstance(value, str):
            value.encode()  # raises for half of a surrogate pair
            return TEXT, str(value)
        if isinstance(value, datetime.datetime):
            return TIME, event_time(value)
        raise InputError(f"value {value!r:.60}: {ACCEPTED_VALUES}")

    def _encode_list(self, values: list[Any]) -> int:
        if any(isinstance(value, list | tuple) for value in values):
            raise InputError(f"value: a list in a list; {ACCEPTED_VALUES}")
        singles = [self._encode_single(value) for value in values]
        if len({kind for kind, _ in singles}) != 1:
            raise InputError(f"value {values!r:.60}: {ACCEPTED_VALUES}")
        key = tuple(singles)
        number = self._lists.setdefault(key, len(self._lists))
        if number == len(self._of_lists):
            kinds, bits = (np.array(one) for one in zip(*map(self.encode_one, values), strict=True))
            self._of_lists.append(self._column(int(kinds[0]), bits).to_pylist())
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


def check_type(kind: pa.DataType) -> None:
    """Check that columns of a type can have values that are accepted.

    Raises
    ------
    InputError
        They cannot.
    """
    if pa.types.is_dictionary(kind):
        return check_type(kind.value_type)
    simple = (
        pa.types.is_null, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_timestamp,
        pa.types.is_date, is_text,
    )  # fmt: skip
    if not any(one(kind) for one in simple) and not (is_list(kind) and not is_list(kind.value_type)):
        raise InputError(f"is {kind}; {ACCEPTED_VALUES}")
    return None


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column has texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a column has lists."""
    return any(
        one(kind)
        for one in (
            pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    )  # fmt: skip
