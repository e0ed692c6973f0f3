"""Positions of keys, compared with a plain implementation of the published algorithm."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.streaming.hashing import END, distinct_key, original_key, positions_of, within

PRIMES = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
MASK = (1 << 64) - 1


def slow_xxh64(data: bytes) -> int:
    """XXH64 with seed 0, as the specification describes it."""
    p1, p2, p3, p4, p5 = PRIMES

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & MASK

    def one_round(lane: int, word: int) -> int:
        return rotated((lane + word * p2) & MASK, 31) * p1 & MASK

    rest = data
    if len(data) >= 32:
        lanes = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        while len(rest) >= 32:
            lanes = [one_round(lane, word) for lane, word in zip(lanes, struct.unpack("<4Q", rest[:32]), strict=True)]
            rest = rest[32:]
        value = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            value = ((value ^ one_round(0, lane)) * p1 + p4) & MASK
    else:
        value = p5
    value = (value + len(data)) & MASK
    while len(rest) >= 8:
        value = (rotated(value ^ one_round(0, struct.unpack("<Q", rest[:8])[0]), 27) * p1 + p4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        value = (rotated(value ^ struct.unpack("<I", rest[:4])[0] * p1 & MASK, 23) * p2 + p3) & MASK
        rest = rest[4:]
    for byte in rest:
        value = rotated(value ^ byte * p5 & MASK, 11) * p1 & MASK
    value = (value ^ value >> 33) * p2 & MASK
    value = (value ^ value >> 29) * p3 & MASK
    return value ^ value >> 32


VECTORS = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}


@pytest.mark.parametrize("data", VECTORS)
def test_published_values(data: bytes) -> None:
    assert slow_xxh64(data) == VECTORS[data]
    assert positions_of([data])[0] == VECTORS[data]
    assert positions_of([data.decode()])[0] == VECTORS[data]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_bytes(keys: list[bytes]) -> None:
    assert positions_of(keys).tolist() == [slow_xxh64(key) for key in keys]


@given(st.lists(st.text(max_size=50), max_size=20))
def test_texts_of_python_and_arrow(keys: list[str]) -> None:
    expected = [slow_xxh64(key.encode()) for key in keys]
    assert positions_of(keys).tolist() == expected
    column = pa.array(["cut", *keys], pa.string()).slice(1)
    assert positions_of(column).tolist() == expected


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_integers_of_python_and_arrow(keys: list[int]) -> None:
    expected = [slow_xxh64(struct.pack("<q", key)) for key in keys]
    assert positions_of(keys).tolist() == expected
    assert positions_of(np.array(keys, np.int64)).tolist() == expected
    assert positions_of(pa.array([0, *keys], pa.int64()).slice(1)).tolist() == expected


def test_narrow_integers_are_integers() -> None:
    assert positions_of(pa.array([1, -2], pa.int8())).tolist() == positions_of([1, -2]).tolist()


ODD: list[Any] = [
    None, True, False, 0, 1, 0.0, 1.0, 1 << 80, -(1 << 80), "1", (), (1,), (True,), (1.0,), ("a", "b"),
    ("ab", ""), ("", "ab"), (b"a",), ("a",), ((1,), 2), (1, (2,)), (None,),
]  # fmt: skip


def test_unequal_keys_have_unequal_positions_and_stand_ins() -> None:
    assert len(set(positions_of(ODD).tolist())) == len(ODD)
    assert len({distinct_key(key) for key in ODD}) == len(ODD)
    assert [repr(original_key(distinct_key(key))) for key in ODD] == [repr(key) for key in ODD]
    assert positions_of([distinct_key(key) for key in ODD]).tolist() == positions_of(ODD).tolist()


def test_both_zeros_are_one_key() -> None:
    assert distinct_key(-0.0) == distinct_key(0.0)
    assert positions_of([-0.0])[0] == positions_of([0.0])[0]


@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, object(), float("nan"), (1, [2])])
def test_other_keys_are_refused(key: Any) -> None:
    with pytest.raises(InputError, match="accepted"):
        distinct_key(key)


@given(st.lists(st.integers(0, END - 1), max_size=20), st.lists(st.tuples(st.integers(0, END), st.integers(0, END))))
def test_ranges(positions: list[int], ranges: list[tuple[int, int]]) -> None:
    expected = [any(start <= one < end for start, end in ranges) for one in positions]
    assert within(np.array(positions, np.uint64), ranges).tolist() == expected
