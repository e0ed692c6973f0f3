"""Results as they come: pieces of an Arrow IPC stream."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa

from goffish.client.channels import ServiceError


class _Pieces(io.RawIOBase):
    """A file of pieces that are asked for as it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def read_batches(pieces: Iterator[bytes]) -> pa.RecordBatchStreamReader:
    """What reads the batches of a result while its pieces come."""
    return pa.ipc.open_stream(io.BufferedReader(_Pieces(pieces)))


def check_whole(job: str, received: int, total: int) -> None:
    """Refuse a result of which a part is missing: Arrow takes one that ends between two batches for a smaller one.

    Raises
    ------
    ServiceError
    """
    if not total or received != total:
        told = f"the result of job {job} did not come whole: {received:,} of {total:,} bytes; fetch it again"
        raise ServiceError(grpc.StatusCode.DATA_LOSS, told)
