"""Messages as bytes, and records that stay bytes until an operator needs them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.batches import Batch

ALIGN = 64


def pack(message: object) -> list[memoryview]:
    """Return a message as buffers; arrays and Arrow columns are not copied."""
    outside: list[pickle.PickleBuffer] = []
    data = pickle.dumps(message, protocol=5, buffer_callback=outside.append)
    buffers = [memoryview(data), *(buffer.raw() for buffer in outside)]
    lengths = struct.pack(f"<{len(buffers) + 1}Q", len(buffers), *(buffer.nbytes for buffer in buffers))
    packed, length = [memoryview(lengths)], len(lengths)
    for buffer in buffers:
        if padding := -length % ALIGN:  # for the same reason as Arrow aligns its columns
            packed.append(memoryview(bytes(padding)))
        packed.append(buffer)
        length += padding + buffer.nbytes
    return packed


def unpack(data: memoryview) -> Any:
    """Return a message from the bytes of its buffers, which its arrays go on using."""
    (count,) = struct.unpack_from("<Q", data)
    lengths = struct.unpack_from(f"<{count}Q", data, 8)
    place = 8 * (count + 1)
    buffers = []
    for length in lengths:
        place += -place % ALIGN
        buffers.append(data[place : place + length])
        place += length
    return pickle.loads(buffers[0], buffers=(pa.py_buffer(buffer) for buffer in buffers[1:]))


class Records:
    """Payload of ring messages: records for a channel, of one version of the flow, and when they were read.

    In a worker that only keeps a copy of them, they stay bytes.

    Parameters
    ----------
    channel : str
    batch : Batch
    version : int
    read_at : float
    """

    __slots__ = ("_batch", "_count", "_packed", "channel", "read_at", "version")

    def __init__(self, channel: str, batch: Batch, version: int = 0, read_at: float = 0.0) -> None:
        self.channel, self.version, self.read_at = channel, version, read_at
        self._batch: Batch | None = batch
        self._count = len(batch)
        self._packed: Any = None

    @property
    def batch(self) -> Batch:
        """The records."""
        if self._batch is None:
            self._batch = unpack(memoryview(self._packed))
            self._packed = None
        return self._batch

    def take(self, rows: NDArray[np.int64]) -> Records:
        """Return some of the records."""
        return Records(self.channel, self.batch.take(rows), self.version, self.read_at)

    def joins(self, other: Records) -> bool:
        """Whether records of both can be one batch: of the same channel and version, and of the same columns."""
        if (self.channel, self.version) != (other.channel, other.version):
            return False
        one, two = self.batch, other.batch
        if (one.times is None) != (two.times is None):
            return False
        if isinstance(one.values, list) or isinstance(two.values, list):
            return isinstance(one.values, list) and isinstance(two.values, list)
        return bool(one.values.schema.equals(two.values.schema))

    def joined(self, others: Sequence[Records]) -> Records:
        """Return the records of this batch and of others, which were read when the first of them was."""
        parts = [self, *others]
        batch = Batch.join([part.batch for part in parts])
        return Records(self.channel, batch, self.version, min(part.read_at for part in parts))

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[Any, ...]:
        packed = b"".join(pack(self._batch)) if self._packed is None else self._packed
        return _packed, (self.channel, self._count, self.version, self.read_at, pickle.PickleBuffer(packed))


def _packed(channel: str, count: int, version: int, read_at: float, packed: Any) -> Records:
    records = Records(channel, Batch([]), version, read_at)
    records._batch, records._count, records._packed = None, count, packed
    return records
