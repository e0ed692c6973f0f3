"""What travels between supersteps on Spark: blocks of bytes, one row each, in Arrow record batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.gopher.messages import Batch

#: Kinds of rows: what a partition remembers, what it is sent, and what the driver wants to know.
STATE, MESSAGE, REPORT = 0, 1, 2

#: Columns of every row, for Spark and for Arrow.
COLUMNS = "key int, target int, kind int, source int, sequence int, payload binary"
SCHEMA = pa.schema(
    [
        ("key", pa.int32()),  # brings the row to the task that it is for, see `partition_keys`
        ("target", pa.int32()),  # partition that it is for
        ("kind", pa.int32()),
        ("source", pa.int32()),  # partition that wrote it
        ("sequence", pa.int32()),
        ("payload", pa.binary()),
    ]
)

#: Bytes of one payload; Spark holds rows whole in memory.
BLOCK = 1 << 20
#: Rows of one Arrow batch on the way into Python.
BATCH_ROWS = 64

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


@dataclass(frozen=True)
class Address:
    """Which tasks the partitions of the graph are brought to.

    Attributes
    ----------
    groups : list of list of int
        Partitions of each task.
    keys : list of int
        Key of the rows for each partition.
    """

    groups: list[list[int]]
    keys: list[int]

    @classmethod
    def of(cls, groups: list[list[int]]) -> Address:
        """The keys that assign every group to a separate Spark partition."""
        keys = partition_keys(len(groups))
        found = {partition: key for group, key in zip(groups, keys, strict=True) for partition in group}
        return cls(groups, [found[partition] for partition in range(len(found))])

    def pack(self, target: int, kind: int, source: int, data: Any) -> Iterator[pa.RecordBatch]:
        """Bytes for a partition, or for the driver if that is -1, as rows; empty data give one empty row."""
        key = -1 if target < 0 else self.keys[target]
        view = memoryview(data).cast("B")
        rows = max(1, -(-view.nbytes // BLOCK))
        for first in range(0, rows, BATCH_ROWS):
            numbers = range(first, min(rows, first + BATCH_ROWS))
            payload = pa.array([view[i * BLOCK : (i + 1) * BLOCK] for i in numbers], pa.binary())
            count = len(numbers)
            same = [pa.array(np.full(count, value, np.int32)) for value in (key, target, kind, source)]
            columns = [*same, pa.array(np.array(numbers, np.int32)), payload]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def pack_values(self, target: int, kind: int, source: int, values: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Named values as rows; arrays keep their types and numbers their bits."""
        return self.pack(target, kind, source, pickle.dumps(dict(values), protocol=5))


def unpack_values(data: Any) -> dict[str, Any]:
    """The inverse of `Address.pack_values`, from joined bytes; arrays are writable."""
    values: dict[str, Any] = pickle.loads(data)
    return values


def join(batches: Iterable[pa.RecordBatch]) -> dict[int, dict[tuple[int, int], bytes]]:
    """The bytes of rows in any order, by target and by (kind, source), all ascending; reports are left out."""
    found: dict[tuple[int, int, int], list[tuple[int, pa.Buffer]]] = {}
    for batch in batches:
        targets, kinds, sources, sequences = (batch.column(i).to_pylist() for i in (1, 2, 3, 4))
        for row, value in enumerate(batch.column(5)):
            if kinds[row] != REPORT:
                place = (targets[row], kinds[row], sources[row])
                found.setdefault(place, []).append((sequences[row], value.as_buffer()))
    joined: dict[int, dict[tuple[int, int], bytes]] = {}
    for place in sorted(found):
        blocks = sorted(found.pop(place), key=lambda block: block[0])
        joined.setdefault(place[0], {})[place[1:]] = b"".join(memoryview(block) for _, block in blocks)
    return joined


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each costs the JVM as much as a thousand small rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BLOCK):
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.concat_batches(held)


def to_batch(data: bytes, dtype: np.dtype[np.void]) -> Batch:
    """Messages from their bytes."""
    return np.frombuffer(data, dtype)
