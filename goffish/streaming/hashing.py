"""Positions of keys on the ring of 64-bit numbers: XXH64 with seed 0 of a canonical encoding.

A text is encoded as UTF-8, an int64 as 8 little-endian bytes, and bytes as they are, so that columns of Arrow and
Python values have the same positions. Other keys are encoded with a tag, and tuples as their tagged items.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.streaming.kernels import hash_numbers, hash_texts, in_ranges

Positions = NDArray[np.uint64]
#: Half-open ranges of positions; the end of the last one may be `END`.
Ranges = Iterable[tuple[int, int]]
END = 1 << 64
_INT64 = range(-(1 << 63), 1 << 63)
#: Types whose values are equal only if their keys are.
_PLAIN = {str, int, bytes, type(None)}
_TAGS = {str: b"s", int: b"i", bytes: b"b", type(None): b"n", bool: b"?", float: b"f", tuple: b"t"}


class Exact(NamedTuple):
    """A key inside dictionaries, where ``1``, ``1.0`` and ``True`` would be the same key."""

    kind: str
    value: float


def distinct_key(key: Any) -> Any:
    """Return a hashable stand-in for a key, unequal for keys of different types.

    Raises
    ------
    InputError
        The type is not accepted as a key.
    """
    kind = type(key)
    if kind in _PLAIN:
        return key
    if kind is bool:
        return Exact("bool", key)
    if kind is float:
        if math.isnan(key):
            raise InputError("key nan: not equal to itself; accepted keys are text, numbers, bytes, None and tuples")
        return Exact("float", key + 0.0)  # -0.0 and 0.0 are one key
    if kind is tuple:
        return tuple(map(distinct_key, key))
    if isinstance(key, np.generic):
        return distinct_key(key.item())
    raise InputError(f"key {key!r:.60} of type {kind.__name__}: accepted are text, numbers, bytes, None and tuples")


def distinct_keys(keys: list[Any]) -> list[Any]:
    """Return `distinct_key` of all keys."""
    return keys if set(map(type, keys)) <= _PLAIN else list(map(distinct_key, keys))


def original_key(key: Any) -> Any:
    """Return the key of a stand-in."""
    if isinstance(key, Exact):
        return key.value
    return tuple(map(original_key, key)) if type(key) is tuple else key


def original_keys(keys: list[Any]) -> list[Any]:
    """Return `original_key` of all stand-ins."""
    return keys if set(map(type, keys)) <= _PLAIN else list(map(original_key, keys))


def encode(key: Any) -> bytes:
    """Return the canonical encoding of a key or of its stand-in."""
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return key
    if key is None:
        return b"n"
    if isinstance(key, bool):
        return b"?1" if key else b"?0"
    if isinstance(key, int):
        if key in _INT64:
            return struct.pack("<q", key)
        return b"i" + key.to_bytes(key.bit_length() // 8 + 1, "little", signed=True)
    if isinstance(key, float):
        return b"f" + struct.pack("<d", key + 0.0)
    if isinstance(key, Exact):
        return encode(key.value)
    parts = [(_TAGS[type(original_key(item))], encode(item)) for item in key]
    return b"t" + b"".join(tag + struct.pack("<I", len(part)) + part for tag, part in parts)


def positions_of(keys: Sequence[Any] | pa.Array | NDArray[np.int64]) -> Positions:
    """Return the positions of keys.

    Parameters
    ----------
    keys : sequence, Arrow array or int64 array

    Returns
    -------
    array of uint64

    Examples
    --------
    >>> [hex(position) for position in positions_of(["", "a"])]
    ['0xef46db3751d8e999', '0xd24ec4f1a98c6e5b']
    """
    positions = np.empty(len(keys), np.uint64)
    if isinstance(keys, np.ndarray):
        hash_numbers(keys, positions)
        return positions
    if isinstance(keys, pa.Array):
        if keys.null_count == 0 and pa.types.is_integer(keys.type) and keys.type != pa.uint64():
            return positions_of(keys.cast(pa.int64()).to_numpy())
        if keys.null_count == 0 and (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
            hash_texts(*text_buffers(keys), positions)
            return positions
        keys = keys.to_pylist()
    kinds = set(map(type, keys))
    if kinds in ({int}, {str}):
        try:
            return positions_of(np.array(keys, np.int64) if kinds == {int} else pa.array(keys, pa.large_string()))
        except (OverflowError, UnicodeEncodeError):
            pass  # integers of more than 64 bits, texts with lone surrogates
    encoded = list(map(encode, keys))
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(list(map(len, encoded)), out=offsets[1:])
    hash_texts(np.frombuffer(b"".join(encoded), np.uint8), offsets, positions)
    return positions


def text_buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes and offsets of a text column without nulls."""
    array = texts.cast(pa.large_string())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


def within(positions: Positions, ranges: Ranges) -> NDArray[np.bool_]:
    """Return which positions lie in any of the half-open ranges."""
    given = [(start, end) for start, end in ranges if start < end]
    found = np.empty(len(positions), np.bool_)
    starts = np.array([start for start, _ in given], np.uint64)
    lasts = np.array([end - 1 for _, end in given], np.uint64)
    in_ranges(positions, starts, lasts, found)
    return found
